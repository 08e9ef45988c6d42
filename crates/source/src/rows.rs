//! Row events: which are wanted, where their bytes go, and what happens when a
//! transaction outgrows its memory.

use std::ops::Range;
use std::sync::Arc;

use weir_binlog::event::Rows;
use weir_protocol::store::StoreInput;
use weir_types::{DdlEvent, DdlKind, RowKind};

use crate::assembler::TransactionAssembler;
use crate::error::{Result, SourceError};
use crate::growing::{Body, NewRow};

/// An open transaction with more rows than this is split off, so that whole ones before
/// it do not wait for its end.
pub(crate) const SPLIT_PAYLOAD_BYTES: usize = 4 << 20;
/// A buffer for decompression that is larger than this is given back after its event.
const INFLATED_KEPT_BYTES: usize = 1 << 20;
/// The transaction buffer is emptied down to this part of its budget.
const EVICT_DOWN_TO: (usize, usize) = (3, 4);

/// Kind, flags and table id of a large row event whose bytes are handed over.
#[derive(Clone, Copy, Debug)]
pub struct RowsMeta {
    /// Insert, update or delete.
    pub kind: RowKind,
    /// Table id.
    pub table_id: u64,
    /// Flags for the block.
    pub flags: u8,
}

impl TransactionAssembler {
    pub(crate) fn compressed_rows(&mut self, rows: &Rows<'_>) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.inflated);
        let limit = self.event_bytes_max;
        let result = match weir_binlog::compress::inflate_rows(rows, limit, &mut buffer) {
            Ok(rows) => self.rows(&rows, Body::Borrowed(rows.body)),
            Err(error) => Err(self.binlog_error(error)),
        };
        self.keep_buffer(buffer);
        result
    }

    /// Keeps a buffer for the next compressed event, unless it has become large.
    pub(crate) fn keep_buffer(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= INFLATED_KEPT_BYTES {
            self.inflated = buffer;
        }
    }

    /// Takes in a large row event with its allocation. `body`: where the body of
    /// `RowsMeta`'s event lies in `bytes`. `end` as for `event`.
    ///
    /// # Errors
    /// As for `event`.
    pub fn large_rows(&mut self, meta: RowsMeta, bytes: Vec<u8>, body: Range<usize>, end: u64) -> Result<()> {
        self.at = end;
        self.row_event(meta, Body::Owned(bytes, body))
    }

    pub(crate) fn rows(&mut self, rows: &Rows<'_>, body: Body<'_>) -> Result<()> {
        let meta = RowsMeta {
            kind: rows.kind,
            table_id: rows.table_id,
            flags: rows.block_flags(),
        };
        self.row_event(meta, body)
    }

    fn row_event(&mut self, meta: RowsMeta, body: Body<'_>) -> Result<()> {
        let skipped = self.begun("row")?.skipped;
        let ordinal = self.next_ordinal()?;
        self.counts.row_events += 1;
        let Some(mapped) = self
            .tables
            .mapped(meta.table_id)
            .filter(|m| m.transaction == self.number)
        else {
            return Err(SourceError::NoTableMap {
                place: self.place(),
                table_id: meta.table_id,
            });
        };
        let Some((no, version)) = mapped.wanted.as_ref().filter(|_| !skipped) else {
            return Ok(());
        };
        let (no, version) = (*no, Arc::clone(version));
        if self
            .tables
            .get(no)
            .is_some_and(|t| !t.known && t.created_in != self.number)
        {
            self.implicit_create(no, ordinal - 1);
        }
        self.counts.wanted_row_events += 1;
        let row = NewRow {
            ordinal,
            kind: meta.kind,
            flags: meta.flags,
            body,
        };
        self.group.push(&mut self.tables, no, &version, row);
        if self.group.payload_bytes() > SPLIT_PAYLOAD_BYTES || self.group.pinned > self.buffer_bytes {
            self.make_room();
        }
        Ok(())
    }

    /// A table without CREATE enters the history just before its first row or DDL.
    pub(crate) fn implicit_create(&mut self, no: crate::tables::TableNo, ordinal: u32) {
        let number = self.number;
        let (Some(open), Some(table)) = (&mut self.open, self.tables.get_mut(no)) else {
            return;
        };
        table.created_in = number;
        open.created.push(no);
        let event = DdlEvent {
            kind: DdlKind::ImplicitCreate,
            schema: Arc::clone(&table.name.schema),
            session: Arc::default(),
            sql: Arc::from(""),
            writes: vec![table.name.clone()],
            makes: vec![table.name.clone()],
            reads: Vec::new(),
            commit_time_ms: open.commit_time_ms,
        };
        self.group.push_ddl(ordinal, Arc::new(event));
    }

    /// Splits a large open transaction off, and evicts it beyond the budget.
    fn make_room(&mut self) {
        if self.group.whole_txns() > 0 {
            self.flush_whole();
        }
        if self.group.pinned <= self.buffer_bytes {
            return;
        }
        let keep = self.buffer_bytes / EVICT_DOWN_TO.1 * EVICT_DOWN_TO.0;
        let blocks = self.group.evict(&mut self.tables, keep);
        if blocks.is_empty() {
            return;
        }
        let attempt = self.attempt();
        self.counts.spilled_fragments += 1;
        self.output(StoreInput::Fragment { attempt, blocks });
    }
}
