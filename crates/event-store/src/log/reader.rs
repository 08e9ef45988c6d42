//! Reading side of the log.

use std::collections::HashMap;
use std::sync::Arc;

use weir_types::{Block, CommitTs, LineageId, OrderKey, TableName, Token};

use super::disk::{Segment, Shared, find};
use super::index::MetaRef;
use super::record::{BASE, BLOCK, BlockHead, FRAGMENT, META, fragment};
use crate::catalog::{TableId, VersionId};
use crate::contract::{Coverage, DdlPage, ScanOutcome, ScanRequest, StoreReader};
use crate::entry::{Entry, Place, stamp_block};
use crate::error::{Result, StoreError};
use crate::meta::{Checkpoint, MetaBatch, TokenWalk};
use crate::slice::{Slicer, without};
use crate::wire::Input;

/// Reading side of [`super::LogStore`].
pub struct LogReader {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader").finish_non_exhaustive()
    }
}

/// A segment file and an offset in it.
type BlockKey = (u64, u64);

/// A segment that may hold row events of a scan; entries of an open one.
struct Part {
    segment: Arc<Segment>,
    entries: Option<Vec<Entry>>,
    /// Whether further entries up to the end were left out.
    more: bool,
}

/// Entries of a scan, from what lies behind `after` on, until they are worth `bytes`.
fn choose(entries: &[Entry], after: OrderKey, upto: OrderKey, bytes: usize) -> (Vec<Entry>, bool) {
    let start = entries.partition_point(|e| e.last <= after);
    let mut chosen = Vec::new();
    let mut sum = 0_usize;
    for entry in entries
        .get(start..)
        .unwrap_or_default()
        .iter()
        .take_while(|e| e.first <= upto)
    {
        if sum > bytes {
            return (chosen, true);
        }
        // One with undone row events may have none left behind `after`.
        let partial = matches!(&entry.place, Place::Fragment { aborted, .. } if !aborted.is_empty());
        sum += if partial { 0 } else { entry.raw_bytes as usize };
        chosen.push(entry.clone());
    }
    (chosen, false)
}

impl LogReader {
    fn version(&self, id: VersionId) -> Result<Arc<weir_types::TableVersion>> {
        let found = self.shared.read().view.versions.get(&id).map(Arc::clone);
        found.ok_or_else(|| StoreError::OutOfRange(format!("table version {id}")))
    }

    /// The row events of an entry, and what the cache calls them; none if all of them
    /// are undone.
    fn block(&self, segment: &Arc<Segment>, entry: &Entry) -> Result<Option<(BlockKey, Arc<Block>)>> {
        let (segment, address) = match &entry.place {
            Place::Block(address) => (Arc::clone(segment), *address),
            Place::Fragment { .. } => self.shared.fragment(&entry.place)?,
        };
        let key = (segment.uid, address.offset);
        if let Some(block) = self.shared.blocks.get(&key) {
            return Ok(Some((key, block)));
        }
        let frame = segment.reader.read(address)?;
        let bad = |reason| segment.reader.corrupt(address.offset, reason);
        let block = match &entry.place {
            Place::Block(_) => {
                let head = BlockHead::decode(&frame.head).filter(|_| frame.kind == BLOCK);
                let head = head.ok_or_else(|| bad("a block's head is malformed"))?;
                let version = self.version(head.version)?;
                Some(head.block(version, frame.body))
            }
            Place::Fragment { aborted, .. } => {
                let at = fragment(&mut Input::new(&frame.head)).filter(|_| frame.kind == FRAGMENT);
                let at = at.ok_or_else(|| bad("a fragment's head is malformed"))?;
                let block = Block {
                    version: self.version(at.version)?,
                    txns: Vec::new(),
                    payload: frame.body,
                    events: at.events,
                    first: OrderKey::new(CommitTs::ZERO, at.first),
                    last: OrderKey::new(CommitTs::ZERO, at.last),
                };
                without(stamp_block(block, entry.first.commit_ts), aborted)?
            }
        };
        Ok(block.map(|block| (key, Arc::new(block))))
    }

    fn scan_entries(
        &self,
        slicer: &mut Slicer<'_>,
        request: &ScanRequest,
        segment: &Arc<Segment>,
        entries: &[Entry],
        upto: OrderKey,
    ) -> Result<()> {
        for entry in entries {
            if slicer.is_full() {
                return Ok(());
            }
            // One row event beyond the limit needs no reading to be refused.
            let large = entry.events == 1 && entry.raw_bytes as usize > request.bytes_max;
            if large && !request.lane {
                slicer.refuse(entry.raw_bytes as usize + size_of::<CommitTs>(), entry.first);
                return Ok(());
            }
            if let Some((key, block)) = self.block(segment, entry)? {
                slicer.add(&block, request.after, upto)?;
                if slicer.is_full() {
                    // The next scan is likely to want it again.
                    let bytes = block.pinned_bytes();
                    self.shared.blocks.put(key, block, bytes);
                }
            }
        }
        Ok(())
    }

    fn scan_part(
        &self,
        slicer: &mut Slicer<'_>,
        request: &ScanRequest,
        part: &Part,
        table: TableId,
        upto: OrderKey,
    ) -> Result<()> {
        if let Some(entries) = &part.entries {
            self.scan_entries(slicer, request, &part.segment, entries, upto)?;
            if part.more {
                slicer.stop();
            }
            return Ok(());
        }
        let Some(footer) = part.segment.footer else {
            return Ok(());
        };
        let tables = self.shared.directory(&part.segment, &footer)?;
        let Some(pointer) = find(&tables, table) else {
            return Ok(());
        };
        if pointer.last <= request.after || pointer.first > upto {
            return Ok(());
        }
        let entries = self.shared.entries(&part.segment, &footer, table)?;
        let (entries, more) = choose(&entries, request.after, upto, request.bytes_max);
        self.scan_entries(slicer, request, &part.segment, &entries, upto)?;
        if more {
            slicer.stop();
        }
        Ok(())
    }

    /// State at the start of a token's walk and the batches to walk; none for a place that
    /// is gone.
    fn token_start(&self, key: OrderKey) -> Result<Option<TokenStart>> {
        let (segment, open, next) = {
            let shown = self.shared.read();
            let whole = key.ordinal == u32::MAX;
            let before = |ts: CommitTs| ts < key.commit_ts || ts == CommitTs::ZERO;
            let slot = shown.segments.values().rev().find(|s| before(s.data.base_ts));
            let exact = || {
                let at = shown.segments.values().find(|s| s.data.base_ts == key.commit_ts);
                at.filter(|_| whole)
            };
            let Some(slot) = slot.or_else(exact) else {
                return Ok(None);
            };
            let number = slot.data.number;
            let next = shown
                .segments
                .range(number + 1..)
                .next()
                .map(|(n, s)| (*n == number + 1, s.data.base_ts));
            let open = slot
                .open
                .as_ref()
                .map(|index| window(&index.metas, key.commit_ts));
            (Arc::clone(&slot.data), open, next)
        };
        let metas = match (open, segment.footer) {
            (Some(metas), _) => metas,
            (None, Some(footer)) => window(&self.shared.metas(&segment, &footer)?, key.commit_ts),
            (None, None) => Vec::new(),
        };
        // The segments behind it may be gone, and the transaction with them.
        if let Some((adjacent, _)) = next
            && !adjacent
            && metas.last().is_none_or(|m| m.last < key.commit_ts)
        {
            return Ok(None);
        }
        let first = metas.first().filter(|m| m.before).map(|m| m.address);
        Ok(Some((segment, first, metas)))
    }

    fn meta(&self, segment: &Segment, at: FrameOf) -> Result<MetaBatch> {
        let frame = segment.reader.read(at)?;
        let batch = MetaBatch::decode(&frame.body).filter(|_| frame.kind == META);
        batch.ok_or_else(|| {
            segment
                .reader
                .corrupt(at.offset, "transactions are malformed")
                .into()
        })
    }
}

type FrameOf = weir_segment::FrameAddress;

/// Where a token's walk begins: the segment, the batch with the state before it if that is not
/// the segment's own, and the batches to walk.
type TokenStart = (Arc<Segment>, Option<FrameOf>, Vec<MetaRef>);

/// The batches from the last state at or before `ts` to the one that holds `ts`.
fn window(metas: &[MetaRef], ts: CommitTs) -> Vec<MetaRef> {
    let end = metas.partition_point(|m| m.first <= ts);
    let metas = metas.get(..end).unwrap_or_default();
    let start = metas.iter().rposition(|m| m.before).unwrap_or(0);
    metas.get(start..).unwrap_or_default().to_vec()
}

impl StoreReader for LogReader {
    fn lineage(&self) -> LineageId {
        self.shared.read().view.lineage
    }

    fn resolved(&self) -> CommitTs {
        self.shared.read().view.resolved
    }

    fn scan(&self, request: &ScanRequest) -> Result<ScanOutcome> {
        let (scope, tail, parts, disk_upto) = {
            let shown = self.shared.read();
            let Some(scope) = shown.view.scope(request)? else {
                return Ok(Slicer::new(request, None).finish());
            };
            let tail = shown
                .view
                .tail
                .collect(scope.table, request.after, scope.upto, request.bytes_max);
            let disk_upto = tail.from.min(scope.upto);
            let mut parts = Vec::new();
            if request.after < disk_upto {
                for slot in shown.segments.values() {
                    let segment = Arc::clone(&slot.data);
                    if let Some(index) = &slot.open {
                        let entries = index
                            .entries
                            .get(&scope.table)
                            .map(Vec::as_slice)
                            .unwrap_or_default();
                        let (entries, more) = choose(entries, request.after, disk_upto, request.bytes_max);
                        let entries = Some(entries);
                        parts.push(Part {
                            segment,
                            entries,
                            more,
                        });
                    } else if slot
                        .data
                        .footer
                        .is_some_and(|f| f.last > request.after && f.first <= disk_upto)
                    {
                        parts.push(Part {
                            segment,
                            entries: None,
                            more: false,
                        });
                    }
                }
            }
            (scope, tail, parts, disk_upto)
        };
        let mut slicer = Slicer::new(request, self.shared.take_cut(scope.table));
        for part in &parts {
            if slicer.is_full() {
                break;
            }
            self.scan_part(&mut slicer, request, part, scope.table, disk_upto)?;
        }
        let after = request.after.max(disk_upto.min(tail.from));
        for block in &tail.blocks {
            slicer.add(block, after, scope.upto)?;
        }
        if tail.more {
            slicer.stop();
        }
        if let Some(cut) = slicer.take_cut() {
            self.shared.put_cut(scope.table, cut);
        }
        Ok(slicer.finish())
    }

    fn coverage(&self, table: &TableName) -> Option<Coverage> {
        self.shared.read().view.coverage_of(table)
    }

    fn ddls(&self, after: OrderKey, upto: OrderKey, limit: usize) -> Result<DdlPage> {
        let shown = self.shared.read();
        let upto = upto.min(OrderKey::end_of(shown.view.resolved));
        let ddls = shown.view.history.page(after, upto, limit)?;
        Ok(DdlPage { ddls })
    }

    fn tables_at(&self, at: OrderKey) -> Result<Vec<TableName>> {
        let tables = self.shared.read().view.history.tables_at(at)?;
        Ok(tables.into_iter().collect())
    }

    fn last_key(&self, table: &TableName, after: OrderKey) -> Option<OrderKey> {
        let shown = self.shared.read();
        let last = shown.view.last.get(&shown.view.id(table)?)?;
        Some(*last).filter(|k| *k > after)
    }

    fn token(&self, key: OrderKey) -> Result<Token> {
        let Some((segment, first, metas)) = self.token_start(key)? else {
            return Ok(TokenWalk::new(self.lineage(), key, Checkpoint::default()).token());
        };
        let mut start = None;
        if let Some(at) = first {
            start = self.meta(&segment, at)?.before;
        }
        let start = match start {
            Some(state) => state,
            None => {
                let frame = segment.reader.read(segment.base)?;
                let state = Checkpoint::decode(&frame.body).filter(|_| frame.kind == BASE);
                let bad = || {
                    segment
                        .reader
                        .corrupt(segment.base.offset, "the base is malformed")
                };
                state.ok_or_else(bad)?
            }
        };
        let mut walk = TokenWalk::new(self.lineage(), key, start);
        for meta in metas {
            if walk.step(&self.meta(&segment, meta.address)?) {
                break;
            }
        }
        Ok(walk.token())
    }

    fn live_bytes(&self) -> HashMap<TableName, u64> {
        self.shared.read().view.live_bytes()
    }
}

impl LogReader {
    /// Bytes of the memory tail, for metrics.
    pub fn tail_bytes(&self) -> usize {
        self.shared.read().view.tail.bytes()
    }

    /// Tables that have or had row events.
    pub fn tables_of_view(&self) -> Vec<TableName> {
        self.shared.read().view.names.clone()
    }

    /// Number of segments, for metrics.
    pub fn segments(&self) -> usize {
        self.shared.read().segments.len()
    }
}
