//! Errors of segment files.

use std::io;

use weir_types::{Classified, ErrorClass};

/// A segment file that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// No room on the disk; what was begun has been taken back.
    #[error("no room to write `{file}`")]
    Full {
        /// File name.
        file: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Writing, syncing or reading failed.
    #[error("{operation} `{file}` failed")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// File name.
        file: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Bytes that are not what was written.
    #[error("`{file}` is corrupt at byte {offset}: {reason}")]
    Corrupt {
        /// File name.
        file: String,
        /// Offset of the damaged frame.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// An earlier write or sync failed.
    #[error("`{file}` is closed after a failed write or sync")]
    Poisoned {
        /// File name.
        file: String,
    },
    /// A frame beyond what the format can hold.
    #[error("a frame of {bytes} bytes is too large for a segment")]
    FrameTooLarge {
        /// Bytes of the frame.
        bytes: usize,
    },
}

/// Result of this crate.
pub type Result<T, E = SegmentError> = std::result::Result<T, E>;

/// Whether an I/O error means that there is no room.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl SegmentError {
    /// Whether there is no room now, but may be later.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Whether stored bytes are not what was written.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    pub(crate) fn io(operation: &'static str, file: &str, source: io::Error) -> Self {
        let file = file.to_owned();
        if is_full(&source) {
            return Self::Full { file, source };
        }
        Self::Io {
            operation,
            file,
            source,
        }
    }
}

impl Classified for SegmentError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Full { .. } => ErrorClass::Transient,
            Self::FrameTooLarge { .. } => ErrorClass::Bug,
            Self::Io { .. } | Self::Corrupt { .. } | Self::Poisoned { .. } => ErrorClass::Changefeed,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Full { .. } => "WEIR-SEG-001",
            Self::Io { .. } => "WEIR-SEG-002",
            Self::Corrupt { .. } => "WEIR-SEG-003",
            Self::Poisoned { .. } => "WEIR-SEG-004",
            Self::FrameTooLarge { .. } => "WEIR-SEG-005",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Full { .. } => "free space on the disk of the data folder",
            Self::Io { .. } | Self::Poisoned { .. } => "check the disk of the data folder, then restart",
            Self::Corrupt { .. } => {
                "check the disk; restore the data folder, or remove it and start from the saved checkpoint"
            }
            Self::FrameTooLarge { .. } => "report this as a bug",
        }
        .to_owned()
    }
}
