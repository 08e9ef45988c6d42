//! The group that grows: rows of whole transactions, and those of the open one behind
//! them in the same blocks, so that a row body is copied once. What belongs to the open
//! transaction can be cut off again: undone, split off, or evicted.

use std::mem;
use std::sync::Arc;

use weir_protocol::store::{GroupDdl, TxnGroup, TxnMeta};
use weir_types::block::RECORD_HEADER_BYTES;
use weir_types::{BlockBuilder, RowKind, TableVersion};

use crate::tables::{TableNo, Tables};

/// A block that has grown to this many bytes gets no more rows.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;
/// Row events from this size on keep the allocation that they were read into.
pub(crate) const ADOPT_BYTES: usize = 256 * 1024;
/// Memory of a block beside its payload, charged to the transaction buffer.
const BLOCK_OVERHEAD_BYTES: usize = 256;

/// Unused bytes of a block that are not worth a reallocation.
const SLACK_BYTES: usize = 4096;

/// How much of a block belongs to whole transactions.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    payload: usize,
    txns: usize,
    events: u32,
    last: (u32, u32),
}

struct Slot {
    table: TableNo,
    builder: BlockBuilder,
    mark: Mark,
    /// Whether rows behind the mark are the open transaction's.
    open: bool,
}

/// Rows of one row event.
pub(crate) enum Body<'a> {
    /// In a buffer that is used again.
    Borrowed(&'a [u8]),
    /// A whole event, and where its body lies.
    Owned(Vec<u8>, std::ops::Range<usize>),
}

pub(crate) struct NewRow<'a> {
    pub(crate) ordinal: u32,
    pub(crate) kind: RowKind,
    pub(crate) flags: u8,
    pub(crate) body: Body<'a>,
}

/// See the module documentation.
pub(crate) struct Growing {
    /// Counts up when slots are taken away, so that tables see that their slot is gone.
    generation: u64,
    txns: Vec<TxnMeta>,
    slots: Vec<Slot>,
    ddls: Vec<GroupDdl>,
    /// Memory of all blocks.
    pub(crate) pinned: usize,
    /// Memory of the open transaction, once it is alone.
    payload: usize,
}

impl Growing {
    pub(crate) const fn new() -> Self {
        Self {
            generation: 1,
            txns: Vec::new(),
            slots: Vec::new(),
            ddls: Vec::new(),
            pinned: 0,
            payload: 0,
        }
    }

    /// What the open transaction is called in the blocks.
    pub(crate) fn open_txn(&self) -> u32 {
        u32::try_from(self.txns.len()).unwrap_or(u32::MAX)
    }

    /// Whole transactions.
    pub(crate) fn whole_txns(&self) -> usize {
        self.txns.len()
    }

    /// Bytes of row events.
    pub(crate) const fn payload_bytes(&self) -> usize {
        self.payload
    }

    /// Adds a row event of the open transaction.
    pub(crate) fn push(
        &mut self,
        tables: &mut Tables,
        table: TableNo,
        version: &Arc<TableVersion>,
        row: NewRow<'_>,
    ) {
        let txn = self.open_txn();
        let large = matches!(&row.body, Body::Owned(..));
        let index = self.slot_for(tables, table, version, large);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if !slot.open {
            slot.open = true;
            slot.mark = Mark {
                payload: slot.builder.payload.len(),
                txns: slot.builder.txns.len(),
                events: slot.builder.events,
                last: slot.builder.last,
            };
        }
        let (pinned, payload) = (slot.builder.pinned_bytes(), slot.builder.payload.len());
        match row.body {
            Body::Borrowed(body) => slot.builder.push(txn, row.ordinal, row.kind, row.flags, body),
            Body::Owned(bytes, body) => {
                let at = body.clone();
                if let Err(bytes) = slot
                    .builder
                    .adopt((txn, row.ordinal), row.kind, row.flags, bytes, body)
                {
                    let body = bytes.get(at).unwrap_or_default();
                    slot.builder.push(txn, row.ordinal, row.kind, row.flags, body);
                }
            }
        }
        self.pinned += slot.builder.pinned_bytes().saturating_sub(pinned);
        self.payload += slot.builder.payload.len() - payload;
    }

    /// The block that takes the next row event of a table: its newest, unless that is
    /// full or of another version. So blocks of one table never overlap in order.
    fn slot_for(
        &mut self,
        tables: &mut Tables,
        no: TableNo,
        version: &Arc<TableVersion>,
        alone: bool,
    ) -> usize {
        let Some(table) = tables.get_mut(no) else {
            return usize::MAX;
        };
        let (generation, index) = table.block;
        if generation == self.generation
            && !alone
            && let Some(slot) = self.slots.get(index)
            && Arc::ptr_eq(&slot.builder.version, version)
            && slot.builder.payload.len() < BLOCK_BYTES
        {
            return index;
        }
        let mut builder = BlockBuilder::new(Arc::clone(version));
        if !alone && generation != self.generation {
            builder.payload.reserve_exact(table.payload_hint);
        }
        let index = self.slots.len();
        table.block = (self.generation, index);
        self.pinned += builder.pinned_bytes() + BLOCK_OVERHEAD_BYTES;
        self.slots.push(Slot {
            table: no,
            builder,
            mark: Mark::default(),
            open: false,
        });
        index
    }

    /// Adds a DDL or implicit creation of the open transaction.
    pub(crate) fn push_ddl(&mut self, ordinal: u32, event: Arc<weir_types::DdlEvent>) {
        let txn = self.open_txn();
        self.ddls.push(GroupDdl { txn, ordinal, event });
    }

    /// The open transaction is whole.
    pub(crate) fn end_txn(&mut self, meta: TxnMeta) {
        self.txns.push(meta);
        for slot in &mut self.slots {
            slot.open = false;
        }
    }

    /// Undoes the open transaction's row events behind `ordinal`.
    pub(crate) fn undo_behind(&mut self, ordinal: u32) {
        let mut payload = 0;
        for slot in &mut self.slots {
            if slot.open {
                cut_behind(slot, ordinal);
            }
            payload += slot.builder.payload.len();
        }
        self.payload = payload;
        // Empty blocks have no first and last row; they go with the next `take`.
    }

    /// Undoes the open transaction, its implicit creations and DDL included.
    pub(crate) fn undo_all(&mut self) {
        self.undo_behind(0);
        for slot in &mut self.slots {
            slot.open = false;
        }
        drop(self.take_open_ddls());
    }

    fn take_open_ddls(&mut self) -> Vec<GroupDdl> {
        let open = self.open_txn();
        let at = self.ddls.partition_point(|ddl| ddl.txn < open);
        let mut ddls = self.ddls.split_off(at);
        for ddl in &mut ddls {
            ddl.txn = 0;
        }
        ddls
    }

    /// Takes the whole transactions out; the open one stays, as number 0. Without whole
    /// ones, none.
    pub(crate) fn take_whole(&mut self, tables: &mut Tables) -> Option<TxnGroup> {
        if self.txns.is_empty() {
            return None;
        }
        let open_ddls = self.take_open_ddls();
        let mut group = TxnGroup {
            txns: mem::take(&mut self.txns),
            blocks: Vec::with_capacity(self.slots.len()),
            ddls: mem::replace(&mut self.ddls, open_ddls),
        };
        let slots = mem::take(&mut self.slots);
        self.generation += 1;
        (self.pinned, self.payload) = (0, 0);
        for mut slot in slots {
            if let Some(table) = tables.get_mut(slot.table) {
                table.payload_hint = slot.builder.payload.len().min(BLOCK_BYTES);
            }
            let open = slot.open.then(|| split_open(&mut slot));
            if !slot.builder.is_empty() {
                shrink(&mut slot.builder);
                group.blocks.push(slot.builder);
            }
            if let Some(builder) = open.filter(|builder| !builder.is_empty()) {
                self.keep_open(tables, slot.table, builder);
            }
        }
        Some(group)
    }

    fn keep_open(&mut self, tables: &mut Tables, no: TableNo, builder: BlockBuilder) {
        self.pinned += builder.pinned_bytes() + BLOCK_OVERHEAD_BYTES;
        self.payload += builder.payload.len();
        if let Some(table) = tables.get_mut(no) {
            table.block = (self.generation, self.slots.len());
        }
        self.slots.push(Slot {
            table: no,
            builder,
            mark: Mark::default(),
            open: true,
        });
    }

    /// Takes everything of an open transaction that is alone.
    pub(crate) fn take_open(&mut self) -> (Vec<BlockBuilder>, Vec<GroupDdl>) {
        self.generation += 1;
        (self.pinned, self.payload) = (0, 0);
        let slots = mem::take(&mut self.slots);
        let blocks = slots
            .into_iter()
            .map(|slot| slot.builder)
            .filter(|b| !b.is_empty());
        (blocks.collect(), self.take_open_ddls())
    }

    /// Takes the largest tables of an open transaction that is alone, until no more than
    /// `keep` bytes are left. Per table all its blocks, in order.
    pub(crate) fn evict(&mut self, tables: &mut Tables, keep: usize) -> Vec<BlockBuilder> {
        let mut by_table = std::collections::HashMap::<TableNo, usize>::new();
        for slot in &self.slots {
            *by_table.entry(slot.table).or_default() += slot.builder.pinned_bytes() + BLOCK_OVERHEAD_BYTES;
        }
        let mut largest: Vec<(usize, TableNo)> = by_table.iter().map(|(no, bytes)| (*bytes, *no)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = self.pinned;
        for (bytes, no) in largest {
            if left <= keep {
                break;
            }
            left = left.saturating_sub(bytes);
            by_table.remove(&no);
        }
        let slots = mem::take(&mut self.slots);
        self.generation += 1;
        (self.pinned, self.payload) = (0, 0);
        let mut evicted = Vec::new();
        for slot in slots {
            if by_table.contains_key(&slot.table) {
                self.keep_open(tables, slot.table, slot.builder);
            } else if !slot.builder.is_empty() {
                let mut builder = slot.builder;
                shrink(&mut builder);
                evicted.push(builder);
            }
        }
        evicted
    }
}

/// Gives back what was reserved and not needed: the block may be kept for long.
fn shrink(builder: &mut BlockBuilder) {
    let (length, capacity) = (builder.payload.len(), builder.payload.capacity());
    if capacity - length > length / 2 + SLACK_BYTES {
        builder.payload.shrink_to_fit();
    }
}

/// Cuts a block behind the last row event of the open transaction that stays.
fn cut_behind(slot: &mut Slot, ordinal: u32) {
    let (mut at, mut events, mut last) = (slot.mark.payload, slot.mark.events, slot.mark.last);
    while let Some((found, length)) = record_at(&slot.builder.payload, at) {
        if found > ordinal {
            break;
        }
        at += length;
        events += 1;
        last = (slot.builder.last.0, found);
    }
    let builder = &mut slot.builder;
    builder.payload.truncate(at);
    (builder.events, builder.last) = (events, last);
    if at == slot.mark.payload {
        builder.txns.truncate(slot.mark.txns);
    }
}

/// Ordinal and length of the record at an offset.
fn record_at(payload: &[u8], at: usize) -> Option<(u32, usize)> {
    let header = payload.get(at..at.checked_add(RECORD_HEADER_BYTES)?)?;
    let number = |at: usize| {
        let bytes = header.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    Some((number(4)?, RECORD_HEADER_BYTES + number(12)? as usize))
}

/// Splits the open transaction's part off, as transaction number 0.
fn split_open(slot: &mut Slot) -> BlockBuilder {
    let builder = &mut slot.builder;
    let mut open = BlockBuilder::new(Arc::clone(&builder.version));
    open.events = builder.events - slot.mark.events;
    if open.events == 0 {
        return open;
    }
    open.payload = if slot.mark.payload == 0 {
        mem::take(&mut builder.payload)
    } else {
        builder.payload.split_off(slot.mark.payload)
    };
    open.txns = vec![0];
    open.last = (0, builder.last.1);
    let mut at = 0;
    while let Some((ordinal, length)) = record_at(&open.payload, at) {
        if at == 0 {
            open.first = (0, ordinal);
        }
        if let Some(txn) = open.payload.get_mut(at..at + 4) {
            txn.copy_from_slice(&[0; 4]);
        }
        at += length;
    }
    builder.txns.truncate(slot.mark.txns);
    (builder.events, builder.last) = (slot.mark.events, slot.mark.last);
    open
}
