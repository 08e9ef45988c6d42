//! The twin in memory: the same contract, nothing durable. For tests and simulations.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weir_protocol::store::StoreInput;
use weir_segment::FrameAddress;
use weir_types::{CommitTs, LineageId, OrderKey, SourcePosition, TableName, Token};

use crate::contract::{
    Coverage, DdlPage, Recovered, ScanOutcome, ScanRequest, StoreReader, StoreWriter, SyncTicket, Synced,
};
use crate::entry::Batch;
use crate::error::{AppendError, Result, StoreError};
use crate::meta::{Checkpoint, MetaBatch, TokenWalk};
use crate::slice::Slicer;
use crate::state::{Stamp, WriterState, parts};
use crate::view::{Floors, View};

/// Settings of a store in memory.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// History; drawn at random if none.
    pub lineage: Option<LineageId>,
    /// Bytes of row events that the store may hold.
    pub quota_bytes: u64,
    /// Where the source begins.
    pub start: Option<SourcePosition>,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            lineage: None,
            quota_bytes: u64::MAX,
            start: None,
        }
    }
}

struct Shown {
    view: View,
    base: Checkpoint,
    base_ts: CommitTs,
    metas: VecDeque<MetaBatch>,
}

type Shared = Arc<RwLock<Shown>>;

fn read(shared: &Shared) -> RwLockReadGuard<'_, Shown> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shared: &Shared) -> RwLockWriteGuard<'_, Shown> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}

/// Makes stores in memory.
#[derive(Debug)]
pub struct MemoryStore;

impl MemoryStore {
    /// A new store.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn open(options: MemoryOptions) -> Result<(Recovered, MemoryWriter, Arc<MemoryReader>)> {
        let lineage = match options.lineage {
            Some(lineage) => lineage,
            None => random_lineage()?,
        };
        let shown = Shown {
            view: View::new(lineage, usize::MAX),
            base: Checkpoint {
                position: options.start.clone(),
                ..Checkpoint::default()
            },
            base_ts: CommitTs::ZERO,
            metas: VecDeque::new(),
        };
        let shared = Arc::new(RwLock::new(shown));
        let state = WriterState::new(options.start, true);
        let recovered = state.recovered(lineage);
        let writer = MemoryWriter {
            shared: Arc::clone(&shared),
            state,
            batch: Batch::default(),
            quota_bytes: options.quota_bytes,
        };
        Ok((recovered, writer, Arc::new(MemoryReader { shared })))
    }
}

pub(crate) fn random_lineage() -> Result<LineageId> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|e| StoreError::Io {
        path: "random numbers".to_owned(),
        source: std::io::Error::other(e.to_string()),
    })?;
    Ok(LineageId(u128::from_le_bytes(bytes)))
}

/// Writing side of [`MemoryStore`].
pub struct MemoryWriter {
    shared: Shared,
    state: WriterState,
    batch: Batch,
    quota_bytes: u64,
}

impl std::fmt::Debug for MemoryWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryWriter").finish_non_exhaustive()
    }
}

struct MemoryTicket {
    shared: Shared,
    batch: Batch,
}

impl SyncTicket for MemoryTicket {
    fn wait(self: Box<Self>) -> Result<Synced> {
        let mut batch = self.batch;
        let mut shown = write(&self.shared);
        shown.view.publish(&mut batch);
        let events = batch.events();
        for rows in batch.rows {
            if let Some(block) = rows.block {
                shown.view.add_live(rows.table, block.pinned_bytes() as u64);
                shown.view.tail.push(rows.table, block);
            }
        }
        shown.metas.extend(batch.metas.into_iter().map(|(meta, _)| meta));
        Ok(Synced {
            resolved: shown.view.resolved,
            raw_bytes: batch.raw_bytes,
            stored_bytes: 0,
            events,
        })
    }
}

impl MemoryWriter {
    fn room(&self, bytes: u64) -> Result<()> {
        let used = self.disk_bytes();
        if bytes > self.quota_bytes {
            return Err(StoreError::TransactionTooLarge {
                bytes,
                quota: self.quota_bytes,
            });
        }
        if bytes > 0 && used.saturating_add(bytes) > self.quota_bytes {
            return Err(StoreError::QuotaExceeded {
                used,
                quota: self.quota_bytes,
            });
        }
        Ok(())
    }

    fn stamp(&mut self, input: &StoreInput, now_ms: u64) -> Result<Stamp> {
        let bytes = parts(input).blocks.iter().map(|b| b.payload.len() as u64).sum();
        self.room(bytes)?;
        self.state.stamp(input, now_ms)
    }
}

impl StoreWriter for MemoryWriter {
    fn append(&mut self, mut input: StoreInput, now_ms: u64) -> Result<(), AppendError> {
        self.state.prepare(&mut input);
        let stamp = match self.stamp(&input, now_ms) {
            Ok(stamp) => stamp,
            Err(error) => {
                let input = Box::new(input);
                return Err(AppendError { error, input });
            }
        };
        let (blocks, attempt) = (parts(&input).blocks, parts(&input).attempt);
        let new = attempt.map_or_else(Vec::new, |a| self.state.fragment_refs(a, blocks, &stamp.ids));
        let new = new.into_iter().map(|at| (at, FrameAddress::default())).collect();
        self.state
            .absorb(input, stamp, new, &[], FrameAddress::default(), &mut self.batch);
        Ok(())
    }

    fn commit_group(&mut self) -> Result<Option<Box<dyn SyncTicket>>> {
        if self.batch.inputs == 0 {
            return Ok(None);
        }
        let batch = std::mem::take(&mut self.batch);
        let shared = Arc::clone(&self.shared);
        Ok(Some(Box::new(MemoryTicket { shared, batch })))
    }

    fn advance_gc(&mut self, tables: &[(TableName, OrderKey)], schema: OrderKey) -> Result<u64> {
        let mut shown = write(&self.shared);
        let shown = &mut *shown;
        let floors = Floors::new(&shown.view, tables, schema);
        let mut freed = 0;
        let count = u32::try_from(shown.view.names.len()).unwrap_or(u32::MAX);
        for table in 0..count {
            let (bytes, last) = shown.view.tail.drop_passed(table, floors.of(table));
            shown.view.sub_live(table, bytes as u64);
            freed += bytes as u64;
            if let Some(last) = last {
                shown.view.coverage.raise(table, last);
            }
        }
        while let Some(meta) = shown.metas.front().filter(|m| m.last() < floors.min.commit_ts) {
            shown.base.apply_all(meta);
            shown.base_ts = meta.last();
            shown.metas.pop_front();
        }
        shown.view.history.advance(floors.min);
        self.state.history.advance(floors.min);
        Ok(freed)
    }

    fn detach(&mut self, table: &TableName) -> Result<()> {
        let mut shown = write(&self.shared);
        if let Some(id) = shown.view.id(table) {
            let to = OrderKey::end_of(shown.view.resolved);
            shown.view.coverage.end(id, to);
            self.state.give_up(table);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some(ticket) = self.commit_group()? {
            ticket.wait()?;
        }
        Ok(())
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        Arc::new(MemoryReader {
            shared: Arc::clone(&self.shared),
        })
    }

    fn disk_bytes(&self) -> u64 {
        let open = self.state.attempts.values().chain(self.state.prepared.values());
        let held: u64 = open.flatten().map(|f| u64::from(f.at.raw_bytes)).sum();
        let rows = self.batch.rows.iter().map(|r| u64::from(r.entry.raw_bytes));
        held + rows.sum::<u64>() + read(&self.shared).view.live.values().sum::<u64>()
    }
}

/// Reading side of [`MemoryStore`].
pub struct MemoryReader {
    shared: Shared,
}

impl std::fmt::Debug for MemoryReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryReader").finish_non_exhaustive()
    }
}

impl StoreReader for MemoryReader {
    fn lineage(&self) -> LineageId {
        read(&self.shared).view.lineage
    }

    fn resolved(&self) -> CommitTs {
        read(&self.shared).view.resolved
    }

    fn scan(&self, request: &ScanRequest) -> Result<ScanOutcome> {
        let mut slicer = Slicer::new(request, None);
        let (scope, part) = {
            let shown = read(&self.shared);
            let Some(scope) = shown.view.scope(request)? else {
                return Ok(slicer.finish());
            };
            let part = shown
                .view
                .tail
                .collect(scope.table, request.after, scope.upto, request.bytes_max);
            (scope, part)
        };
        for block in &part.blocks {
            slicer.add(block, request.after, scope.upto)?;
        }
        if part.more {
            slicer.stop();
        }
        Ok(slicer.finish())
    }

    fn coverage(&self, table: &TableName) -> Option<Coverage> {
        read(&self.shared).view.coverage_of(table)
    }

    fn ddls(&self, after: OrderKey, upto: OrderKey, limit: usize) -> Result<DdlPage> {
        let shown = read(&self.shared);
        let upto = upto.min(OrderKey::end_of(shown.view.resolved));
        let ddls = shown.view.history.page(after, upto, limit)?;
        Ok(DdlPage { ddls })
    }

    fn tables_at(&self, at: OrderKey) -> Result<Vec<TableName>> {
        let tables = read(&self.shared).view.history.tables_at(at)?;
        Ok(tables.into_iter().collect())
    }

    fn last_key(&self, table: &TableName, after: OrderKey) -> Option<OrderKey> {
        let shown = read(&self.shared);
        let last = shown.view.last.get(&shown.view.id(table)?)?;
        Some(*last).filter(|k| *k > after)
    }

    fn token(&self, key: OrderKey) -> Result<Token> {
        let shown = read(&self.shared);
        let end = OrderKey::end_of(shown.base_ts);
        if shown.base_ts > CommitTs::ZERO && key < end {
            return Ok(TokenWalk::new(shown.view.lineage, key, Checkpoint::default()).token());
        }
        let mut walk = TokenWalk::new(shown.view.lineage, key, shown.base.clone());
        for meta in &shown.metas {
            if walk.step(meta) {
                break;
            }
        }
        Ok(walk.token())
    }

    fn live_bytes(&self) -> HashMap<TableName, u64> {
        read(&self.shared).view.live_bytes()
    }
}
