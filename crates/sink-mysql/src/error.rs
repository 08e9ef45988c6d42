//! Errors of this sink. Server messages are never passed on: they hold row values. What
//! is told is the server's code, its SQLSTATE and, where it can be read out, the name of
//! the key, column or constraint.

use std::path::PathBuf;

use weir_schema::SchemaError;
use weir_sink::SinkError;
use weir_types::{Classified, ErrorClass, ErrorReport, TableName};

use crate::plan::PlanError;
use crate::reply::{Problem, Retry, ServerReply};
use crate::rows::RowsError;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, MysqlSinkError>;

/// Why the sink cannot go on. Never holds row values or secrets.
#[derive(Debug, thiserror::Error)]
pub enum MysqlSinkError {
    /// No connection.
    #[error("cannot reach the target `{address}`: {reason}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The server refuses the login.
    #[error("the target `{address}` refuses the login of user `{user}` ({reply})")]
    Login {
        /// Host and port.
        address: String,
        /// User.
        user: String,
        /// What the server said.
        reply: ServerReply,
    },
    /// No encryption as asked for.
    #[error("no TLS connection with the target `{address}`: {reason}")]
    Tls {
        /// Host and port.
        address: String,
        /// Why not.
        reason: String,
    },
    /// A certificate or key file.
    #[error("cannot use TLS file `{}`: {reason}", path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The connection was lost, or the server cannot serve now.
    #[error("the target cannot be used for now: {reason}")]
    Unavailable {
        /// What kind of trouble it is.
        retry: Retry,
        /// Why not.
        reason: String,
    },
    /// The target refuses something that Weir itself needs.
    #[error("the target refuses to {what} ({reply})")]
    Refused {
        /// What was tried: a verb.
        what: &'static str,
        /// What the server said.
        reply: ServerReply,
    },
    /// Missing privileges on Weir's own schema.
    #[error("user `{user}` may not {what} at the target ({reply})")]
    Privilege {
        /// User.
        user: String,
        /// What was tried: a verb.
        what: &'static str,
        /// What the server said.
        reply: ServerReply,
        /// What helps.
        grant: String,
    },
    /// Progress of another history.
    #[error(
        "the progress of changefeed `{changefeed}` at the target belongs to store `{found}`, this is store `{expected}`"
    )]
    OtherLineage {
        /// The changefeed.
        changefeed: String,
        /// What the target says.
        found: String,
        /// What runs now.
        expected: String,
    },
    /// Another process writes for the changefeed now.
    #[error("another process of changefeed `{changefeed}` has begun to write to the target")]
    Superseded {
        /// The changefeed.
        changefeed: String,
    },
    /// Progress that cannot be read.
    #[error("table `weir.{table}` at the target cannot be understood: {reason}")]
    Progress {
        /// Table of the schema `weir`.
        table: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// An old session holds a lock and does not end.
    #[error("an earlier session of this changefeed (connection {connection}) does not end at the target")]
    Zombie {
        /// Its connection id.
        connection: u64,
    },
    /// The rows cannot be brought into the table.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The rows cannot become statements.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The target refuses rows.
    #[error("rows of `{table}` are refused: {problem} ({reply})")]
    Rejected {
        /// The table at the target.
        table: TableName,
        /// What is wrong.
        problem: Problem,
        /// What the server said.
        reply: ServerReply,
    },
    /// The target does not hold the rows that the source had.
    #[error("`{table}` has drifted from the source: a change of {expected} rows met {found}")]
    Drifted {
        /// The table at the target.
        table: TableName,
        /// Rows that the statement must meet.
        expected: u64,
        /// Rows that it met.
        found: u64,
    },
    /// A DDL that is not replicated.
    #[error("a DDL of `{subject}` cannot be replicated")]
    Statement {
        /// The table or database.
        subject: Box<str>,
        /// Why not.
        source: SchemaError,
    },
    /// The target refuses a DDL.
    #[error("{kind} of `{subject}` fails at the target ({reply})")]
    Ddl {
        /// What it does.
        kind: &'static str,
        /// The table or database.
        subject: Box<str>,
        /// What the server said.
        reply: ServerReply,
    },
    /// The session of a DDL cannot be had at the target.
    #[error("{kind} of `{subject}` needs {what}, which the target does not have ({reply})")]
    DdlSession {
        /// What it does.
        kind: &'static str,
        /// The table or database.
        subject: Box<str>,
        /// A setting.
        what: String,
        /// What the server said.
        reply: ServerReply,
    },
    /// A DDL whose outcome at the target Weir could not answer for.
    #[error("a DDL of `{subject}` is not replicated: {why}")]
    Untold {
        /// The table or database.
        subject: Box<str>,
        /// Why not.
        why: &'static str,
    },
    /// Two spans would write one table.
    #[error("table `{target}` at the target is already written for another table")]
    TargetInUse {
        /// The table at the target.
        target: TableName,
    },
    /// Rows of a table that the span does not have.
    #[error("rows of `{found}` in a span without it")]
    WrongTable {
        /// The rows' table.
        found: TableName,
    },
    /// Threads for connections cannot be started.
    #[error("cannot start the threads of the connections")]
    Threads(#[source] std::io::Error),
    /// A task of the sink panicked.
    #[error("a task of the sink panicked")]
    Panicked,
    /// The sink was stopped while it waited; not an error of its own.
    #[error("the sink is stopping")]
    Stopping,
}

impl From<MysqlSinkError> for SinkError {
    fn from(error: MysqlSinkError) -> Self {
        match error {
            MysqlSinkError::Stopping => Self::Stopping,
            error => Self::Target(Box::new(ErrorReport::new(&error))),
        }
    }
}

impl Classified for MysqlSinkError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. }
            | Self::Unavailable { .. }
            | Self::Zombie { .. }
            | Self::Threads(_)
            | Self::Stopping => ErrorClass::Transient,
            Self::Login { .. }
            | Self::Tls { .. }
            | Self::TlsFile { .. }
            | Self::Refused { .. }
            | Self::Privilege { .. }
            | Self::OtherLineage { .. }
            | Self::Superseded { .. }
            | Self::Progress { .. } => ErrorClass::Changefeed,
            Self::Plan(error) => error.class(),
            Self::Rows(error) => error.class(),
            Self::Statement { source, .. } => match source.class() {
                ErrorClass::Bug => ErrorClass::Bug,
                _ => ErrorClass::Table,
            },
            Self::Rejected { .. }
            | Self::Drifted { .. }
            | Self::TargetInUse { .. }
            | Self::Ddl { .. }
            | Self::DdlSession { .. }
            | Self::Untold { .. } => ErrorClass::Table,
            Self::WrongTable { .. } | Self::Panicked => ErrorClass::Bug,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "WEIR-MYS-001",
            Self::Login { .. } => "WEIR-MYS-002",
            Self::Tls { .. } => "WEIR-MYS-003",
            Self::TlsFile { .. } => "WEIR-MYS-004",
            Self::Unavailable { .. } => "WEIR-MYS-005",
            Self::Refused { .. } => "WEIR-MYS-006",
            Self::Privilege { .. } => "WEIR-MYS-007",
            Self::OtherLineage { .. } => "WEIR-MYS-008",
            Self::Progress { .. } => "WEIR-MYS-009",
            Self::Zombie { .. } => "WEIR-MYS-010",
            Self::Rejected { problem, .. } => problem.code(),
            Self::Drifted { .. } => "WEIR-MYS-021",
            Self::TargetInUse { .. } => "WEIR-MYS-022",
            Self::Untold { .. } => "WEIR-MYS-033",
            Self::Ddl { .. } => "WEIR-MYS-031",
            Self::DdlSession { .. } => "WEIR-MYS-032",
            Self::Statement { source, .. } => source.code(),
            Self::Plan(error) => error.code(),
            Self::Rows(error) => error.code(),
            Self::WrongTable { .. } => "WEIR-MYS-041",
            Self::Threads(_) => "WEIR-MYS-042",
            Self::Panicked => "WEIR-MYS-043",
            Self::Stopping => "WEIR-MYS-044",
            Self::Superseded { .. } => "WEIR-MYS-045",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Unreachable { .. } => {
                "check that the server runs and that host and port of the sink are right"
            }
            Self::Login { .. } => "check user, password and host of the account at the target",
            Self::Tls { .. } => {
                "check `sink.tls`: mode, certificate authority and the certificate of the server"
            }
            Self::TlsFile { .. } => "name a readable PEM file; certificate and key belong together",
            Self::Unavailable { .. } => "nothing, if it passes; otherwise look at the log of the target",
            Self::Refused { .. } => "look up the error code in the manual of the target and repair its cause",
            Self::Privilege { grant, .. } => return format!("run `{grant}` at the target"),
            Self::OtherLineage { changefeed, .. } => {
                return format!(
                    "bring the data folder of that store back; or empty the target's tables, delete the rows of \
                     `{changefeed}` from `weir.progress`, `weir.ddl_begun` and `weir.changefeeds`, and start anew"
                );
            }
            Self::Superseded { .. } => {
                "leave one process per changefeed; give another changefeed an `id` of its own"
            }
            Self::Progress { .. } => {
                "restore the schema `weir` of the target from a copy; it must not be changed by hand"
            }
            Self::Zombie { .. } => "end that connection at the target with `KILL`",
            Self::Plan(error) => return error.action(),
            Self::Rows(error) => return error.action(),
            Self::Statement { source, .. } => return source.action(),
            Self::Rejected { problem, .. } => problem.action(),
            Self::Drifted { .. } => {
                "somebody else writes the table at the target, or it held other rows at the start: make it equal to \
                 the source and start again"
            }
            Self::Ddl { .. } => {
                "bring the target to where the statement can run, or exclude the table, and start again"
            }
            Self::DdlSession { .. } => "grant or install it at the target (time zones: `mysql_tzinfo_to_sql`), then start again",
            Self::Threads(_) => "raise the limit of threads of the process",
            Self::Stopping => "start again",
            Self::TargetInUse { .. } => "change the routes so that each table has a target of its own",
            Self::Untold { .. } => {
                "run the statement at the target by hand and start the changefeed behind it, or change filter and routes"
            }
            Self::WrongTable { .. } | Self::Panicked => {
                "report this as a bug of Weir, with the log"
            }
        }
        .to_owned()
    }
}
