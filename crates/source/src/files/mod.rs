//! The source that reads binlog files from a folder, no server needed.

mod probe;
mod reader;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use weir_binlog::file::FileOptions;
use weir_binlog::index::FileIndex;
use weir_types::{GtidSet, SourcePosition};

use crate::error::{Result, SourceError};

pub use reader::{End, FilesReader, Handover, Progress};

pub(crate) use probe::probe;
pub(crate) use reader::{HANDOVER_BYTES, STEP_EVENTS, hand_over};

/// How often a file that is still being written is looked at again.
pub const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Where reading starts while there is no saved position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// The end of the last file.
    Latest,
    /// The first file.
    Earliest,
    /// Behind the transactions of a set.
    Gtids(GtidSet),
    /// An offset in a file, where a transaction begins.
    File {
        /// Name of the file, without folder.
        name: String,
        /// Offset in it.
        offset: u64,
    },
    /// The first transaction committed at this time or later, milliseconds since the
    /// Unix epoch.
    Time(u64),
}

/// Where reading ends, inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// What the folder held when it was opened.
    CaughtUp,
    /// All transactions of a set.
    Gtids(GtidSet),
    /// The transaction that ends at or behind an offset.
    File {
        /// Name of the file, without folder.
        name: String,
        /// Offset in it.
        offset: u64,
    },
    /// The last transaction committed at this time or before, milliseconds since the
    /// Unix epoch.
    Time(u64),
}

/// Where the files are and how they are read.
#[derive(Clone, Debug)]
pub struct FilesOptions {
    /// Folder of the files.
    pub folder: PathBuf,
    /// Index file in the folder; without it all files named `base.NNNNNN` count.
    pub index: Option<String>,
    /// Where to start while there is no saved position.
    pub start: StartAt,
    /// Where to end; none follows the folder for ever.
    pub stop: Option<StopAt>,
    /// How often to look for more.
    pub poll_interval: Duration,
    /// Largest event, bytes.
    pub event_bytes_max: u64,
    /// Saved position of the store.
    pub resume: Option<SourcePosition>,
}

impl FilesOptions {
    pub(crate) fn file_options(&self) -> FileOptions {
        FileOptions {
            max_event_bytes: self.event_bytes_max,
            ..FileOptions::default()
        }
    }

    pub(crate) fn list(&self) -> Result<FileIndex> {
        let list = match &self.index {
            Some(index) => FileIndex::read(&self.folder, index),
            None => FileIndex::scan(&self.folder),
        };
        list.map_err(|source| SourceError::Binlog {
            place: self.folder.display().to_string(),
            source,
        })
    }
}

/// The number at the end of a file's name.
pub(crate) fn file_number(name: &str) -> Option<u64> {
    name.rsplit_once('.').and_then(|(_, digits)| digits.parse().ok())
}
