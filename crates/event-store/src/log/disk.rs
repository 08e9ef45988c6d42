//! What the log's writer, readers, sealer and sync tickets share.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weir_segment::{FrameAddress, SegmentReader, Volume};
use weir_types::{Block, CommitTs, OrderKey};

use super::LogOptions;
use super::cache::Cache;
use super::index::{
    Footer, MetaRef, OpenIndex, Pin, TablePointer, decode_directory, decode_entries, decode_fragments,
    decode_metas,
};
use crate::catalog::TableId;
use crate::entry::{Entry, FragmentRef, Place};
use crate::error::{Result, StoreError};
use crate::slice::Cut;
use crate::view::View;

/// Walking over less than this costs nothing.
const CUT_BYTES_MIN: usize = 32 << 10;

/// One segment file; stays readable while somebody holds it.
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Differs between two files of one number, so that caches do not mix them up.
    pub(crate) uid: u64,
    pub(crate) reader: SegmentReader,
    pub(crate) base: FrameAddress,
    /// Commit-ts of the last transaction before the segment.
    pub(crate) base_ts: CommitTs,
    pub(crate) footer: Option<Footer>,
}

pub(crate) struct Slot {
    pub(crate) data: Arc<Segment>,
    /// Index of a segment that is not sealed.
    pub(crate) open: Option<Arc<OpenIndex>>,
    /// Bytes of all published groups, or of the sealed file.
    pub(crate) bytes: u64,
    /// Published groups.
    pub(crate) groups: u64,
}

pub(crate) struct Shown {
    pub(crate) view: View,
    pub(crate) segments: BTreeMap<u64, Slot>,
    /// Segment → table → key that the table must have passed before its fragments go.
    pub(crate) pins: HashMap<u64, HashMap<TableId, OrderKey>>,
}

impl Shown {
    pub(crate) fn pin(&mut self, pins: &[Pin]) {
        for pin in pins {
            let at = self
                .pins
                .entry(pin.segment)
                .or_default()
                .entry(pin.table)
                .or_default();
            *at = (*at).max(pin.last);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Directory,
    Table(TableId),
    Fragments,
    Metas,
}

#[derive(Clone)]
enum Loaded {
    Directory(Arc<Vec<TablePointer>>),
    Table(Arc<Vec<Entry>>),
    Fragments(Arc<Vec<(FragmentRef, FrameAddress)>>),
    Metas(Arc<Vec<MetaRef>>),
}

pub(crate) struct Shared {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) options: LogOptions,
    pub(crate) shown: RwLock<Shown>,
    footers: Cache<(u64, Part), Loaded>,
    pub(crate) blocks: Cache<(u64, u64), Arc<Block>>,
    /// Where the last scan of a table stopped inside a block, if far from its start.
    cuts: Mutex<HashMap<TableId, Cut>>,
    /// Bytes of all segment files but the one being written.
    pub(crate) closed_bytes: AtomicU64,
    failed: AtomicBool,
    /// Segments waiting to be sealed, oldest first.
    pub(crate) unsealed: Mutex<VecDeque<u64>>,
    /// Wakes the sealing thread, if there is one.
    pub(crate) wake: Mutex<Option<Sender<()>>>,
    next_uid: AtomicU64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(volume: Arc<dyn Volume>, options: LogOptions, shown: Shown) -> Self {
        Self {
            volume,
            footers: Cache::new(options.index_bytes),
            blocks: Cache::new(options.memory_bytes / 4),
            cuts: Mutex::default(),
            options,
            shown: RwLock::new(shown),
            closed_bytes: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            unsealed: Mutex::new(VecDeque::new()),
            wake: Mutex::new(None),
            next_uid: AtomicU64::new(1),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Shown> {
        self.shown.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn uid(&self) -> u64 {
        self.next_uid.fetch_add(1, Ordering::Relaxed)
    }

    /// Nothing is accepted any more.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(StoreError::Poisoned);
        }
        Ok(())
    }

    pub(crate) fn take_cut(&self, table: TableId) -> Option<Cut> {
        lock(&self.cuts).remove(&table)
    }

    pub(crate) fn put_cut(&self, table: TableId, cut: Cut) {
        if cut.offset >= CUT_BYTES_MIN {
            lock(&self.cuts).insert(table, cut);
        }
    }

    fn part(&self, segment: &Segment, part: Part, at: FrameAddress) -> Result<Loaded> {
        let key = (segment.uid, part);
        if let Some(loaded) = self.footers.get(&key) {
            return Ok(loaded);
        }
        let frame = segment.reader.read(at)?;
        let body = &frame.body;
        let loaded = match part {
            Part::Directory => decode_directory(body).map(|v| (v.len() * 80, Loaded::Directory(Arc::new(v)))),
            Part::Table(_) => {
                decode_entries(body).map(|v| (v.len() * size_of::<Entry>(), Loaded::Table(Arc::new(v))))
            }
            Part::Fragments => {
                decode_fragments(body).map(|v| (v.len() * 104, Loaded::Fragments(Arc::new(v))))
            }
            Part::Metas => {
                decode_metas(body).map(|v| (v.len() * size_of::<MetaRef>(), Loaded::Metas(Arc::new(v))))
            }
        };
        let (bytes, loaded) =
            loaded.ok_or_else(|| segment.reader.corrupt(at.offset, "a footer is malformed"))?;
        self.footers.put(key, loaded.clone(), bytes + 128);
        Ok(loaded)
    }

    /// The tables of a sealed segment, by number.
    pub(crate) fn directory(&self, segment: &Segment, footer: &Footer) -> Result<Arc<Vec<TablePointer>>> {
        match self.part(segment, Part::Directory, footer.directory)? {
            Loaded::Directory(tables) => Ok(tables),
            _ => Ok(Arc::default()),
        }
    }

    /// The row events of one table in a sealed segment.
    pub(crate) fn entries(
        &self,
        segment: &Segment,
        footer: &Footer,
        table: TableId,
    ) -> Result<Arc<Vec<Entry>>> {
        let tables = self.directory(segment, footer)?;
        let Some(pointer) = find(&tables, table) else {
            return Ok(Arc::default());
        };
        match self.part(segment, Part::Table(table), pointer.section)? {
            Loaded::Table(entries) => Ok(entries),
            _ => Ok(Arc::default()),
        }
    }

    pub(crate) fn metas(&self, segment: &Segment, footer: &Footer) -> Result<Arc<Vec<MetaRef>>> {
        match self.part(segment, Part::Metas, footer.metas)? {
            Loaded::Metas(metas) => Ok(metas),
            _ => Ok(Arc::default()),
        }
    }

    /// Where a fragment lies.
    pub(crate) fn fragment(&self, place: &Place) -> Result<(Arc<Segment>, FrameAddress)> {
        let Place::Fragment {
            segment,
            attempt,
            number,
            ..
        } = place
        else {
            return Err(StoreError::InvalidInput("a block is no fragment"));
        };
        let (data, open) = {
            let shown = self.read();
            let slot = shown
                .segments
                .get(segment)
                .ok_or(StoreError::MissingSegment(*segment))?;
            let open = slot
                .open
                .as_ref()
                .map(|index| index.fragments.get(&(*attempt, *number)).map(|f| f.1));
            (Arc::clone(&slot.data), open)
        };
        let missing = || StoreError::Corrupt {
            segment: *segment,
            reason: format!("fragment {number} of attempt {} is missing", attempt.0),
        };
        if let Some(found) = open {
            return Ok((data, found.ok_or_else(missing)?));
        }
        let footer = data.footer.ok_or_else(missing)?;
        let Loaded::Fragments(fragments) = self.part(&data, Part::Fragments, footer.fragments)? else {
            return Err(missing());
        };
        let at = fragments.binary_search_by_key(&(*attempt, *number), |(f, _)| (f.attempt, f.number));
        let found = at.ok().and_then(|i| fragments.get(i)).map(|f| f.1);
        Ok((data, found.ok_or_else(missing)?))
    }
}

pub(crate) fn find(tables: &[TablePointer], table: TableId) -> Option<&TablePointer> {
    let at = tables.binary_search_by_key(&table, |p| p.table).ok()?;
    tables.get(at)
}
