//! Errors of the sinks.

use std::path::PathBuf;

use weir_binlog::BinlogError;
use weir_codec::CodecError;
use weir_types::block::BlockError;
use weir_types::{Classified, ErrorClass, ErrorReport, OrderKey};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, SinkError>;

/// Why a sink cannot go on. Never holds row values.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A file or folder of the output.
    #[error("cannot {what} `{}`", path.display())]
    Io {
        /// What was tried: a verb.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// An error of a kind of sink that lives in a crate of its own.
    #[error(transparent)]
    Target(Box<ErrorReport>),
    /// Rows cannot be encoded.
    #[error("cannot encode rows")]
    Codec(#[from] CodecError),
    /// Rows cannot be decoded.
    #[error("cannot decode rows")]
    Rows(#[from] BinlogError),
    /// A block does not follow its layout.
    #[error("cannot read a block of rows")]
    Block(#[from] BlockError),
    /// The folder holds something else.
    #[error("folder `{}` is not empty and has no `_weir.json`", dir.display())]
    ForeignFolder {
        /// The folder.
        dir: PathBuf,
    },
    /// The changefeed has written before, and not into this folder.
    #[error("folder `{}` does not hold what this changefeed has written so far: it has no `_weir.json`", dir.display())]
    OutputGone {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder holds the output of another changefeed or history.
    #[error("folder `{}` belongs to {field} `{found}`, this is {field} `{expected}`", dir.display())]
    OtherOwner {
        /// The folder.
        dir: PathBuf,
        /// What differs: `changefeed` or `lineage`.
        field: &'static str,
        /// What `_weir.json` says.
        found: String,
        /// What runs now.
        expected: String,
    },
    /// `_weir.json` cannot be understood.
    #[error("`{}` cannot be understood: {reason}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Two finished files of a table hold the same keys.
    #[error("files `{first}` and `{second}` overlap")]
    Overlap {
        /// Name of the one file.
        first: String,
        /// Name of the other.
        second: String,
    },
    /// Two tables would be written to the same files.
    #[error("table `{target}` is already written by another table")]
    TargetInUse {
        /// Name at the target.
        target: String,
    },
    /// Rows of another table than the span's.
    #[error("rows of `{found}` in the span of `{expected}`")]
    WrongTable {
        /// The span's table.
        expected: String,
        /// The rows' table.
        found: String,
    },
    /// Keys that run backwards.
    #[error("row event {key} comes after {last}")]
    OutOfOrder {
        /// Key of the row event.
        key: OrderKey,
        /// Key before it.
        last: OrderKey,
    },
    /// A dispatcher was registered twice, or writes without registration.
    #[error("dispatcher {dispatcher} {what}")]
    Registration {
        /// The dispatcher.
        dispatcher: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// A worker panicked.
    #[error("a sink worker panicked")]
    Panicked,
    /// Threads of the sink cannot be started.
    #[error("cannot start a sink worker")]
    Thread(#[source] std::io::Error),
    /// The sink was stopped while it waited; not an error of its own.
    #[error("the sink is stopping")]
    Stopping,
}

impl Classified for SinkError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Io { .. } | Self::Thread(_) | Self::Stopping => ErrorClass::Transient,
            Self::Target(error) => error.class,
            Self::Codec(error) => error.class(),
            Self::Rows(error) => error.class(),
            Self::ForeignFolder { .. }
            | Self::OutputGone { .. }
            | Self::OtherOwner { .. }
            | Self::Identity { .. }
            | Self::Overlap { .. } => ErrorClass::Changefeed,
            Self::TargetInUse { .. } => ErrorClass::Table,
            Self::Block(_)
            | Self::WrongTable { .. }
            | Self::OutOfOrder { .. }
            | Self::Registration { .. }
            | Self::Panicked => ErrorClass::Bug,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "WEIR-SNK-001",
            Self::Target(error) => error.code,
            Self::Codec(error) => error.code(),
            Self::Rows(error) => error.code(),
            Self::Block(_) => "WEIR-SNK-002",
            Self::ForeignFolder { .. } => "WEIR-SNK-003",
            Self::OtherOwner { .. } => "WEIR-SNK-004",
            Self::Identity { .. } => "WEIR-SNK-005",
            Self::Overlap { .. } => "WEIR-SNK-006",
            Self::TargetInUse { .. } => "WEIR-SNK-007",
            Self::WrongTable { .. } => "WEIR-SNK-008",
            Self::OutOfOrder { .. } => "WEIR-SNK-009",
            Self::Registration { .. } => "WEIR-SNK-010",
            Self::Panicked => "WEIR-SNK-011",
            Self::Thread(_) => "WEIR-SNK-012",
            Self::Stopping => "WEIR-SNK-013",
            Self::OutputGone { .. } => "WEIR-SNK-014",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Io { .. } => "check that the folder exists, may be written and has room",
            Self::Target(error) => return error.action.clone(),
            Self::Codec(error) => return error.action(),
            Self::Rows(error) => return error.action(),
            Self::ForeignFolder { .. } => "name an empty folder for the output",
            Self::OutputGone { .. } => {
                "bring the folder back, at least its `_weir.json`, or start anew with an empty data folder"
            }
            Self::OtherOwner { .. } => {
                "name another folder for the output; if this one is no longer needed, move it away"
            }
            Self::Identity { .. } => {
                "restore `_weir.json` from a copy, or name another folder for the output"
            }
            Self::Overlap { .. } => {
                "remove files that something else put into the folder, or name another folder for the output"
            }
            Self::TargetInUse { .. } => "change the routes so that each table has a target of its own",
            Self::Thread(_) => "raise the limit of threads of the process",
            Self::Stopping => "start again",
            Self::Block(_)
            | Self::WrongTable { .. }
            | Self::OutOfOrder { .. }
            | Self::Registration { .. }
            | Self::Panicked => "report this as a bug of Weir, with the log",
        }
        .to_owned()
    }
}
