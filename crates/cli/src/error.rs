//! Errors of the command itself.

use std::io;
use std::path::PathBuf;

use weir_types::{Classified, ErrorClass};

/// What can go wrong outside the pipeline.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error("`--log-level` is `{0}`, which is not a level")]
    LogLevel(String),
    #[error("`{}` cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("stdout cannot be written")]
    Stdout(#[source] io::Error),
    #[error("signals cannot be watched")]
    Signals(#[source] io::Error),
    #[error("`{}` is not empty and was not made by `weir quickstart`", .0.display())]
    ForeignDir(PathBuf),
    #[error("`{}` is in use by another `weir quickstart`", .0.display())]
    BusyDir(PathBuf),
    #[error("output file `{}` has a line that is not canal-json", .0.display())]
    BadOutput(PathBuf),
    #[error("the output has {actual} {what}, mysqlbinlog counted {expected}")]
    Counts {
        what: String,
        expected: u64,
        actual: u64,
    },
    #[error("`{0}` is neither a binlog file, nor a folder, nor a `binlog-files://` URI")]
    BinlogSource(String),
    #[error("`{0}` is a server: `weir binlog` reads files only")]
    LiveSource(String),
    #[error("`{file}` ends inside an event: at offset {offset} it has {have} bytes of {need}")]
    CutFile {
        file: String,
        offset: u64,
        have: u64,
        need: u64,
    },
}

impl Classified for CliError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Usage(_)
            | Self::LogLevel(_)
            | Self::ForeignDir(_)
            | Self::BusyDir(_)
            | Self::BinlogSource(_)
            | Self::LiveSource(_) => ErrorClass::Usage,
            Self::Write { .. } | Self::Read { .. } | Self::Stdout(_) | Self::Signals(_) => {
                ErrorClass::Transient
            }
            Self::BadOutput(_) | Self::Counts { .. } | Self::CutFile { .. } => ErrorClass::Changefeed,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) => "WEIR-CLI-001",
            Self::LogLevel(_) => "WEIR-CLI-002",
            Self::Write { .. } => "WEIR-CLI-003",
            Self::Read { .. } => "WEIR-CLI-004",
            Self::Stdout(_) => "WEIR-CLI-005",
            Self::Signals(_) => "WEIR-CLI-006",
            Self::ForeignDir(_) => "WEIR-CLI-007",
            Self::BusyDir(_) => "WEIR-CLI-008",
            Self::BadOutput(_) => "WEIR-CLI-009",
            Self::Counts { .. } => "WEIR-CLI-010",
            Self::BinlogSource(_) => "WEIR-CLI-011",
            Self::CutFile { .. } => "WEIR-CLI-013",
            Self::LiveSource(_) => "WEIR-CLI-014",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Usage(_) => "see `weir --help`",
            Self::LogLevel(_) => "use off, error, warn, info, debug or trace, also per module: `info,weir_source=debug`",
            Self::Write { .. } => "check permissions and free space, then start again",
            Self::Read { .. } => "check that the path exists and its permissions",
            Self::Stdout(_) => "check where the output goes",
            Self::Signals(_) => "start again; report it if it repeats",
            Self::ForeignDir(_) => "give another folder with `--dir`, or empty this one",
            Self::BusyDir(_) => "wait for the other process, or give another folder with `--dir`",
            Self::BadOutput(_) => "the file was changed from outside: remove the folder and start again",
            Self::Counts { .. } => "the output was changed from outside: remove the folder and start again; report it if it repeats",
            Self::BinlogSource(_) => "check the path",
            Self::LiveSource(_) => {
                "copy its binlog with `mysqlbinlog --read-from-remote-server --raw`, or name a folder of its files"
            }
            Self::CutFile { .. } => "copy the file again when the server has closed it",
        }
        .to_owned()
    }
}
