//! How a command ends: what it prints and its exit status.

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};
use weir_types::{Classified, ErrorClass, ErrorReport};

use crate::args::Output;
use crate::error::CliError;

/// Exit status, as `weir --help` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Definite = 3,
    Interrupted = 130,
}

impl From<ErrorClass> for Status {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Usage => Self::Usage,
            ErrorClass::Table | ErrorClass::Changefeed => Self::Definite,
            ErrorClass::Transient | ErrorClass::Bug => Self::Failed,
        }
    }
}

/// A command that did what it was asked, even if the answer is no.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// For people; empty for nothing.
    pub(crate) text: String,
    /// For programs; null for nothing.
    pub(crate) json: Value,
    /// Exit status.
    pub(crate) status: Status,
}

impl Outcome {
    /// Done, with everything printed before.
    pub(crate) const fn silent() -> Self {
        Self {
            text: String::new(),
            json: Value::Null,
            status: Status::Done,
        }
    }
}

/// A command that failed.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) ErrorReport);

impl<E: Classified> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(ErrorReport::new(&error))
    }
}

/// Prints the end of a command and gives its exit status.
pub(crate) fn finish(output: Output, ended: Result<Outcome, Failure>) -> ExitCode {
    let status = match ended {
        Ok(outcome) => {
            let printed = match output {
                Output::Text => print(&outcome.text),
                Output::Json if outcome.json.is_null() => Ok(()),
                Output::Json => print(&outcome.json.to_string()),
            };
            match printed {
                Ok(()) => outcome.status,
                Err(error) => return fail(Output::Text, &CliError::Stdout(error)),
            }
        }
        Err(Failure(report)) => {
            report_failure(output, &report);
            Status::from(report.class)
        }
    };
    ExitCode::from(status as u8)
}

fn fail(output: Output, error: &dyn Classified) -> ExitCode {
    let report = ErrorReport::new(error);
    report_failure(output, &report);
    ExitCode::from(Status::from(report.class) as u8)
}

/// Prints an error: as text on stderr, as JSON on stdout.
pub(crate) fn report_failure(output: Output, report: &ErrorReport) {
    match output {
        Output::Text => {
            eprintln!("error[{}]: {}", report.code, report.message);
            eprintln!("  {}", report.action);
        }
        Output::Json => {
            let error = json!({"error": {
                "code": report.code,
                "message": report.message,
                "action": report.action,
            }});
            if let Err(error) = print(&error.to_string()) {
                eprintln!("error[{}]: {} (stdout: {error})", report.code, report.message);
            }
        }
    }
}

/// Writes to stdout with a line end. A reader that went away (`| head`) wants no more:
/// that is no error.
fn print(text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    let written = out
        .write_all(text.trim_end_matches('\n').as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
