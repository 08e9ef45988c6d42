//! Errors of the event store.

use std::fmt;

use weir_protocol::store::StoreInput;
use weir_segment::SegmentError;
use weir_types::{Classified, ErrorClass, OrderKey, TableName, Xid};

use crate::contract::Coverage;

/// Why the store cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place is no longer, or not yet, in the store.
    #[error("the store does not hold `{0}`")]
    OutOfRange(String),
    /// Row events outside of what the store holds of a table.
    #[error("the store holds `{table}` behind `{from}` up to `{to}`, not at `{at}`")]
    NotCovered {
        /// The table.
        table: String,
        /// The place asked for.
        at: OrderKey,
        /// Begin of what is held, exclusive.
        from: OrderKey,
        /// End of what is held, inclusive.
        to: OrderKey,
    },
    /// The table was given up.
    #[error("table `{0}` was detached from the store")]
    Detached(String),
    /// The disk quota is used up.
    #[error("the store holds {used} bytes of its quota of {quota} bytes")]
    QuotaExceeded {
        /// Bytes held.
        used: u64,
        /// The quota.
        quota: u64,
    },
    /// One transaction needs more than the whole quota.
    #[error("one transaction needs {bytes} bytes, more than the store's quota of {quota} bytes")]
    TransactionTooLarge {
        /// Bytes of the transaction so far.
        bytes: u64,
        /// The quota.
        quota: u64,
    },
    /// XA COMMIT of a group whose PREPARE the store has not seen.
    #[error("XA COMMIT of `{}`, which was never prepared here", .0.0)]
    UnknownXid(Xid),
    /// An input that breaks the store's contract.
    #[error("input refused: {0}")]
    InvalidInput(&'static str),
    /// Another process uses the folder.
    #[error("the store in `{0}` is locked by another process")]
    Locked(String),
    /// A file that must be there is missing.
    #[error("segment {0} is missing")]
    MissingSegment(u64),
    /// Bytes that are not what was written.
    #[error("segment {segment}: {reason}")]
    Corrupt {
        /// Segment number.
        segment: u64,
        /// What is wrong.
        reason: String,
    },
    /// The folder's manifest cannot be used.
    #[error("the store's manifest is unreadable: {0}")]
    Manifest(String),
    /// An earlier write or sync failed; nothing is accepted any more.
    #[error("the store stopped after a failed write or sync")]
    Poisoned,
    /// Reading or writing failed.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Reading or writing outside of segments failed.
    #[error("`{path}` cannot be used")]
    Io {
        /// File or folder.
        path: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

/// Result of this crate.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl StoreError {
    pub(crate) fn not_covered(table: &TableName, at: OrderKey, held: Coverage) -> Self {
        Self::NotCovered {
            table: table.to_string(),
            at,
            from: held.from,
            to: held.to,
        }
    }

    /// Whether there is no room now, but may be later.
    pub fn is_full(&self) -> bool {
        match self {
            Self::QuotaExceeded { .. } => true,
            Self::Segment(error) => error.is_full(),
            Self::Io { source, .. } => weir_segment::is_full(source),
            _ => false,
        }
    }

    /// Whether stored bytes are not what was written.
    pub fn is_corrupt(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::MissingSegment(_) | Self::Manifest(_) => true,
            Self::Segment(error) => error.is_corrupt(),
            _ => false,
        }
    }
}

impl Classified for StoreError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::QuotaExceeded { .. } | Self::Locked(_) => ErrorClass::Transient,
            Self::Detached(_) | Self::NotCovered { .. } => ErrorClass::Table,
            Self::InvalidInput(_) | Self::OutOfRange(_) => ErrorClass::Changefeed,
            Self::Segment(error) => error.class(),
            Self::Io { source, .. } if weir_segment::is_full(source) => ErrorClass::Transient,
            _ => ErrorClass::Changefeed,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::OutOfRange(_) => "WEIR-STO-001",
            Self::Detached(_) => "WEIR-STO-002",
            Self::QuotaExceeded { .. } => "WEIR-STO-003",
            Self::TransactionTooLarge { .. } => "WEIR-STO-004",
            Self::UnknownXid(_) => "WEIR-STO-005",
            Self::InvalidInput(_) => "WEIR-STO-006",
            Self::Locked(_) => "WEIR-STO-007",
            Self::MissingSegment(_) => "WEIR-STO-008",
            Self::Corrupt { .. } => "WEIR-STO-009",
            Self::Manifest(_) => "WEIR-STO-010",
            Self::Poisoned => "WEIR-STO-011",
            Self::Io { .. } => "WEIR-STO-012",
            Self::NotCovered { .. } => "WEIR-STO-013",
            Self::Segment(error) => error.code(),
        }
    }

    fn action(&self) -> String {
        match self {
            Self::OutOfRange(_) | Self::NotCovered { .. } => {
                "start the changefeed anew from a position the source still has"
            }
            Self::Detached(_) => "register the table again so that it is read from the source once more",
            Self::QuotaExceeded { .. } => "raise `store.disk-quota`, or see which table is slow downstream",
            Self::TransactionTooLarge { .. } => "raise `store.disk-quota` above the size of the transaction",
            Self::UnknownXid(_) => "start from a position before the XA PREPARE",
            Self::InvalidInput(_) => "report this as a bug",
            Self::Locked(_) => "stop the other process, or use another data folder",
            Self::MissingSegment(_) | Self::Corrupt { .. } | Self::Manifest(_) => {
                "restore the data folder, or remove it and start from the saved checkpoint"
            }
            Self::Poisoned => "look at the first error of the store, and restart when the disk works again",
            Self::Io { .. } => "check the folder, its permissions and the disk",
            Self::Segment(error) => return error.action(),
        }
        .to_owned()
    }
}

/// A refused input and why; nothing of it was written.
pub struct AppendError {
    /// Why.
    pub error: StoreError,
    /// The input, unchanged.
    pub input: Box<StoreInput>,
}

impl fmt::Debug for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppendError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
