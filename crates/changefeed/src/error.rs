//! Errors of a changefeed.

use std::path::PathBuf;

use weir_types::{Classified, ErrorClass, LineageId, OrderKey, TableName};

/// What goes wrong around one changefeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A DDL needs a table that has failed.
    #[error("the DDL at {key} waits for table `{failed}`, which has failed")]
    BlockedByFailedTable {
        /// Key of the DDL.
        key: OrderKey,
        /// The table that stopped before it.
        failed: TableName,
    },
    /// The metadata file cannot be opened, read or written.
    #[error("metadata file `{}` cannot be {doing}", path.display())]
    MetaIo {
        /// The file.
        path: PathBuf,
        /// `opened`, `read` or `written`.
        doing: &'static str,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The metadata file is open in another process.
    #[error("metadata file `{}` is open in another process", path.display())]
    MetaLocked {
        /// The file.
        path: PathBuf,
    },
    /// The metadata file is damaged.
    #[error("metadata file `{}` is damaged: {what}", path.display())]
    MetaCorrupt {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        what: String,
    },
    /// The metadata file was written by a later version.
    #[error("metadata file `{}` has format {found}, this build knows up to {known}", path.display())]
    MetaFormat {
        /// The file.
        path: PathBuf,
        /// Format found.
        found: u64,
        /// Greatest format known.
        known: u64,
    },
    /// A token of another history.
    #[error("progress belongs to history {found}, expected {expected}")]
    OtherLineage {
        /// Lineage of the token.
        found: LineageId,
        /// Lineage of the changefeed's progress.
        expected: LineageId,
    },
    /// Progress was saved before a start was.
    #[error("progress was saved before the start position")]
    NotInitialised,
    /// The thread that saves progress is gone.
    #[error("the thread that saves progress has ended")]
    SaverGone,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Classified for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::BlockedByFailedTable { .. } => ErrorClass::Table,
            Self::MetaIo { .. } => ErrorClass::Transient,
            Self::MetaLocked { .. } => ErrorClass::Usage,
            Self::MetaCorrupt { .. } | Self::MetaFormat { .. } | Self::OtherLineage { .. } => {
                ErrorClass::Changefeed
            }
            Self::NotInitialised | Self::SaverGone => ErrorClass::Bug,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::BlockedByFailedTable { .. } => "WEIR-CHF-001",
            Self::MetaIo { .. } => "WEIR-CHF-002",
            Self::MetaLocked { .. } => "WEIR-CHF-003",
            Self::MetaCorrupt { .. } => "WEIR-CHF-004",
            Self::MetaFormat { .. } => "WEIR-CHF-005",
            Self::OtherLineage { .. } => "WEIR-CHF-006",
            Self::NotInitialised => "WEIR-CHF-007",
            Self::SaverGone => "WEIR-CHF-008",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::BlockedByFailedTable { failed, .. } => {
                format!("repair what stopped `{failed}`, or exclude it in `filter.rules`, then start again")
            }
            Self::MetaIo { .. } => "check the disk and the permissions of the data folder".to_owned(),
            Self::MetaLocked { .. } => "stop the other process, or use another `--data-dir`".to_owned(),
            Self::MetaCorrupt { .. } => {
                "restore the file from a copy, or remove the data folder and start anew from `source.start`"
                    .to_owned()
            }
            Self::MetaFormat { .. } => "use the version of weir that wrote it, or a later one".to_owned(),
            Self::OtherLineage { .. } => {
                "the data folder mixes two stores: restore both from one copy, or start with a new one"
                    .to_owned()
            }
            Self::NotInitialised | Self::SaverGone => {
                "report this with the log; the changefeed starts again from its checkpoint".to_owned()
            }
        }
    }
}
