//! The `weir` command.

mod args;
mod cmd;
mod error;
mod logging;
mod outcome;
mod pipeline;
mod progress;
mod signals;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{BinlogCommand, Cli, Command, Output};
use crate::error::CliError;
use crate::outcome::{Failure, Outcome};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match Cli::try_parse_from(&args) {
        Ok(cli) => outcome::finish(cli.global.output, run(&cli)),
        Err(error) => refuse(&args, &error),
    }
}

/// Answers a command line that asks for help or is wrong.
fn refuse(args: &[OsString], error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Help and version are results.
        let outcome = Outcome {
            text: error.render().to_string(),
            ..Outcome::silent()
        };
        return outcome::finish(Output::Text, Ok(outcome));
    }
    if !args::wants_json(args) {
        eprint!("{}", error.render().ansi());
        return ExitCode::from(outcome::Status::Usage as u8);
    }
    // The first paragraph says what is wrong; usage and hints follow.
    let text = error.render().to_string();
    let paragraph = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let sentence = paragraph.collect::<Vec<_>>().join(" ");
    let sentence = sentence.trim_start_matches("error: ").to_owned();
    let failure = Failure::from(CliError::Usage(sentence));
    outcome::finish(Output::Json, Err(failure))
}

fn run(cli: &Cli) -> Result<Outcome, Failure> {
    logging::start(cli)?;
    let output = cli.global.output;
    match &cli.command {
        Command::Quickstart(args) => cmd::quickstart::run(output, args),
        Command::Run(args) => cmd::run::run(output, args),
        Command::Check(args) => cmd::check::run(args),
        Command::Binlog(BinlogCommand::Cat(args)) => cmd::binlog::cat::run(output, args),
        Command::Binlog(BinlogCommand::Stat(args)) => cmd::binlog::stat::run(args),
    }
}
