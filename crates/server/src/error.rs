//! Errors of putting the pipeline together and running it.

use std::io;
use std::path::PathBuf;

use weir_types::{Classified, CommitTs, ErrorClass, TableName};

/// What can go wrong outside the stages.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data folder cannot be used.
    #[error("data folder `{path}` cannot be used")]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another process holds the data folder.
    #[error("data folder `{path}` is in use by another process")]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The metrics port cannot be opened.
    #[error("metrics address `{address}` cannot be listened on")]
    Listen {
        /// Address.
        address: String,
        /// Cause.
        source: io::Error,
    },
    /// The metrics recorder cannot be installed.
    #[error("metrics recorder cannot be installed: {0}")]
    Metrics(String),
    /// A stage ended without being told to.
    #[error("stage `{stage}` ended unexpectedly")]
    StageLost {
        /// Stage name.
        stage: &'static str,
    },
    /// A stage did not stop in time.
    #[error("pipeline did not stop within {seconds} s")]
    StopTimeout {
        /// The deadline.
        seconds: u64,
    },
    /// Progress on disk belongs to another history than the store.
    #[error("saved progress belongs to lineage `{saved}`, the store to `{store}`")]
    LineageMismatch {
        /// Lineage of the saved tokens.
        saved: String,
        /// Lineage of the store.
        store: String,
    },
    /// The store has lost what was synced: progress made from it is ahead of it.
    #[error("{what} is at `{at}`, but the store ends at `{resolved}`: it has lost synced data")]
    StoreBehind {
        /// Whose progress.
        what: String,
        /// Order key of that progress.
        at: String,
        /// Order key at which the store ends.
        resolved: String,
    },
    /// Two tables are routed to one target.
    #[error("tables `{first}` and `{second}` are both routed to `{target}`")]
    RouteCollision {
        /// The target.
        target: TableName,
        /// The table that had it first.
        first: TableName,
        /// The table that comes second, and stops.
        second: TableName,
    },
    /// The store holds transactions, but nothing says what of them was delivered.
    #[error("the store holds transactions up to commit-ts {resolved}, but saved progress is missing")]
    ProgressMissing {
        /// Greatest commit-ts of the store.
        resolved: CommitTs,
    },
    /// An earlier filter kept the table's rows out of the store.
    #[error(
        "table `{table}` was excluded by an earlier `filter.rules`: rows of that time are not in the store"
    )]
    ExcludedOnce {
        /// The table.
        table: TableName,
    },
    /// Both ends are one server, and a table would be written to one that is read.
    #[error(
        "source and sink are one server, and table `{table}` would be written to `{target}`, which is replicated itself"
    )]
    SameServer {
        /// The table.
        table: TableName,
        /// Its target.
        target: TableName,
    },
    /// The data folder of another changefeed.
    #[error("the data folder `{}` is that of changefeed `{found}`, this is `{expected}`", data_dir.display())]
    OtherChangefeed {
        /// The folder.
        data_dir: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// The memory quota leaves no room to work in.
    #[error("`flow-control.memory-quota` of {quota} is too small")]
    MemoryQuota {
        /// The quota.
        quota: String,
    },
}

impl Classified for ServerError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::DataDir { .. } | Self::Locked { .. } | Self::Listen { .. } => ErrorClass::Usage,
            Self::Metrics(_) => ErrorClass::Bug,
            Self::StageLost { .. } | Self::StopTimeout { .. } => ErrorClass::Transient,
            Self::LineageMismatch { .. } | Self::StoreBehind { .. } => ErrorClass::Changefeed,
            Self::RouteCollision { .. } | Self::ExcludedOnce { .. } => ErrorClass::Table,
            Self::ProgressMissing { .. } | Self::SameServer { .. } | Self::OtherChangefeed { .. } => {
                ErrorClass::Changefeed
            }
            Self::MemoryQuota { .. } => ErrorClass::Usage,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::DataDir { .. } => "WEIR-SRV-001",
            Self::Locked { .. } => "WEIR-SRV-002",
            Self::Listen { .. } => "WEIR-SRV-003",
            Self::Metrics(_) => "WEIR-SRV-004",
            Self::StageLost { .. } => "WEIR-SRV-005",
            Self::StopTimeout { .. } => "WEIR-SRV-006",
            Self::LineageMismatch { .. } => "WEIR-SRV-007",
            Self::RouteCollision { .. } => "WEIR-SRV-008",
            Self::MemoryQuota { .. } => "WEIR-SRV-009",
            Self::ProgressMissing { .. } => "WEIR-SRV-011",
            Self::ExcludedOnce { .. } => "WEIR-SRV-012",
            Self::StoreBehind { .. } => "WEIR-SRV-010",
            Self::SameServer { .. } => "WEIR-SRV-013",
            Self::OtherChangefeed { .. } => "WEIR-SRV-014",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::DataDir { .. } => {
                "check the folder's permissions and free space, or give another --data-dir"
            }
            Self::Locked { .. } => "stop the other process, or give another --data-dir",
            Self::Listen { .. } => "choose a free address in `metrics.listen`, or \"\" for none",
            Self::Metrics(_) => "report it together with the log",
            Self::StageLost { .. } => {
                "the pipeline is restarted from its checkpoint; report it if it repeats"
            }
            Self::StopTimeout { .. } => "start again: work goes on from the last checkpoint",
            Self::LineageMismatch { .. } => {
                "the store was replaced under saved progress: use an empty data folder and an empty output"
            }
            Self::StoreBehind { .. } => {
                "restore the store's files in the data folder, or begin anew with an empty data folder and an empty output"
            }
            Self::RouteCollision { .. } => "route the tables apart, or exclude one of them in `filter.rules`",
            Self::ProgressMissing { .. } => {
                "restore `progress.redb` of the data folder, or start anew with an empty data folder and an empty output"
            }
            Self::ExcludedOnce { .. } => {
                "exclude the table again, or replicate it with a changefeed of its own (another id and output)"
            }
            Self::MemoryQuota { .. } => "give it at least 32MiB",
            Self::OtherChangefeed { .. } => "give each changefeed a --data-dir of its own",
            Self::SameServer { .. } => {
                "route every table to a name that `filter.rules` leave out, or name another server in `sink.uri`"
            }
        }
        .to_owned()
    }
}
