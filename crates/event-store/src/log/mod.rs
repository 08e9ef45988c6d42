//! The segmented log on disk.
//!
//! ```text
//! LOCK                       one process at a time
//! manifest-0, manifest-1     which segments there are (see `manifest`)
//! <number>.log               a segment without footer: the open one, or waiting
//! <number>.seg               a sealed segment
//! <number>.tmp               a segment being rewritten; dropped at opening
//! ```
//!
//! A segment begins with a snapshot of all state, so that recovery reads the last one
//! only; earlier ones give their footers. Memory: recent blocks up to a quarter less
//! than `memory_bytes`, blocks that a scan has read in part up to that quarter, footers
//! up to half of `index_bytes`, the open segment's index up to the other half (a
//! segment with more entries is ended early).

mod cache;
mod disk;
mod encode;
mod gc;
mod index;
mod manifest;
mod reader;
mod record;
mod recover;
mod replay;
mod seal;
mod ticket;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use weir_segment::{Folder, Volume};
use weir_types::{LineageId, SourcePosition};

pub use reader::LogReader;
pub use writer::LogWriter;

use crate::contract::Recovered;
use crate::error::{Result, StoreError};

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// A segment of this size is ended; GC works on whole segments.
    pub segment_bytes: u64,
    /// Memory for recent blocks and blocks read in part.
    pub memory_bytes: usize,
    /// Memory for indexes: half for footers, half for the open segment.
    pub index_bytes: usize,
    /// Bytes that all segments may take on disk. A segment being rewritten comes on top.
    pub disk_quota: u64,
    /// History of a new store; drawn at random if none. Ignored by one that exists.
    pub lineage: Option<LineageId>,
    /// Where the source of a new store begins. Ignored by one that exists.
    pub start: Option<SourcePosition>,
    /// Segments are sealed on a thread of their own; otherwise where a ticket is waited
    /// for.
    pub background_seal: bool,
}

/// Default of [`LogOptions::segment_bytes`].
pub const SEGMENT_BYTES: u64 = 128 << 20;
/// Least size of a segment.
const SEGMENT_BYTES_MIN: u64 = 4 << 10;

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            memory_bytes: 64 << 20,
            index_bytes: 16 << 20,
            disk_quota: 20 << 30,
            lineage: None,
            start: None,
            background_seal: true,
        }
    }
}

/// What opening a log gives.
pub type Opened = (Recovered, LogWriter, Arc<LogReader>);

/// Opens logs.
///
/// ```
/// use std::sync::Arc;
/// use weir_event_store::{LogOptions, LogStore, ScanRequest, StoreReader, StoreWriter};
/// use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
/// use weir_types::{BlockBuilder, Flavor, OrderKey, RowKind, SourceIdentity, TableName, TableVersion};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let (recovered, mut writer, reader) = LogStore::open(dir.path(), LogOptions::default())?;
/// assert!(recovered.position.is_none());
///
/// let name = TableName::new("shop", "orders");
/// let version = Arc::new(TableVersion {
///     name: name.clone(),
///     flavor: Flavor::Mysql,
///     columns: Vec::new(),
///     primary_key: Vec::new(),
/// });
/// let mut block = BlockBuilder::new(version);
/// block.push(0, 1, RowKind::Insert, 0, b"one rows event");
/// let group = TxnGroup {
///     txns: vec![TxnMeta { commit_time_ms: 1_000, gtid: None, end_offset: 300 }],
///     blocks: vec![block],
///     ddls: Vec::new(),
/// };
/// let upto = ReadPosition {
///     identity: SourceIdentity::Digest(1),
///     file: Arc::from("binlog.000001"),
///     offset: 300,
/// };
/// writer.append(StoreInput::Group { group, upto }, 1_000)?;
/// if let Some(ticket) = writer.commit_group()? {
///     ticket.wait()?; // usually on another thread
/// }
/// let request = ScanRequest {
///     table: name,
///     after: OrderKey::MIN,
///     upto: OrderKey::end_of(reader.resolved()),
///     bytes_max: 1 << 20,
///     events_max: 4096,
///     lane: false,
/// };
/// assert_eq!(reader.scan(&request)?.slices.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LogStore;

impl LogStore {
    /// Opens the log in a folder, or makes one. The folder is locked until the writer
    /// and all readers are gone.
    ///
    /// # Errors
    /// `Locked`; damage that is no torn tail; I/O.
    pub fn open(dir: &Path, options: LogOptions) -> Result<Opened> {
        let io = |source| StoreError::Io {
            path: dir.display().to_string(),
            source,
        };
        let folder = Folder::open(dir).map_err(io)?;
        let lock = File::create(dir.join("LOCK")).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(StoreError::Locked(dir.display().to_string()));
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(io(source)),
        }
        let volume = Locked { folder, _lock: lock };
        Self::open_volume(Arc::new(volume), options)
    }

    /// History of the log in a folder, which may be open elsewhere; none if there is no
    /// log. Changes nothing.
    ///
    /// # Errors
    /// A damaged manifest; I/O.
    pub fn lineage(dir: &Path) -> Result<Option<LineageId>> {
        if !dir.is_dir() {
            return Ok(None);
        }
        let folder = Folder::open(dir).map_err(|source| StoreError::Io {
            path: dir.display().to_string(),
            source,
        })?;
        Ok(manifest::Manifest::read(&folder)?.map(|manifest| manifest.lineage))
    }

    /// Opens the log in any volume; the caller sees to it that nobody else does.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_volume(volume: Arc<dyn Volume>, mut options: LogOptions) -> Result<Opened> {
        let most = (options.disk_quota / 8).max(SEGMENT_BYTES_MIN);
        options.segment_bytes = options.segment_bytes.clamp(SEGMENT_BYTES_MIN, most);
        recover::open(volume, options)
    }
}

/// A folder with its lock.
struct Locked {
    folder: Folder,
    _lock: File,
}

impl Volume for Locked {
    fn create(&self, name: &str) -> std::io::Result<Arc<dyn weir_segment::VolumeFile>> {
        self.folder.create(name)
    }
    fn open(&self, name: &str) -> std::io::Result<Arc<dyn weir_segment::VolumeFile>> {
        self.folder.open(name)
    }
    fn list(&self) -> std::io::Result<Vec<String>> {
        self.folder.list()
    }
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.folder.rename(from, to)
    }
    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.folder.remove(name)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.folder.sync()
    }
}

pub(crate) fn log_name(number: u64) -> String {
    format!("{number:020}.log")
}

pub(crate) fn seg_name(number: u64) -> String {
    format!("{number:020}.seg")
}

pub(crate) fn tmp_name(number: u64) -> String {
    format!("{number:020}.tmp")
}

/// Number and ending of a segment's file name.
pub(crate) fn parse_name(name: &str) -> Option<(u64, &str)> {
    let (number, ending) = name.split_once('.')?;
    if number.len() != 20 || !matches!(ending, "log" | "seg" | "tmp") {
        return None;
    }
    Some((number.parse().ok()?, ending))
}
