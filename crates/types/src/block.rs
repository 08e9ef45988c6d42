//! Blocks: the row events of one table version in one commit group, as the bytes the
//! server wrote. The unit that the source makes, the store keeps and the sink decodes.
//!
//! Layout of the payload, repeated per row event:
//!
//! ```text
//! txn u32 LE      index into the block's transaction table
//! ordinal u32 LE  ordinal inside the transaction group
//! kind u8         1 insert, 2 update, 3 delete
//! flags u8        bit 0: partial JSON update; bit 1: foreign keys not checked
//! reserved u16    0
//! length u32 LE   length of the body
//! body            from the column count (length-encoded) of the rows event to its
//!                 end, checksum excluded: column count, one bitmap of the columns
//!                 present (two for an update), rows
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::key::{CommitTs, OrderKey};
use crate::table::TableVersion;

/// Bytes before each body.
pub const RECORD_HEADER_BYTES: usize = 16;

/// Flag: update rows hold partial JSON values (MySQL PARTIAL_UPDATE_ROWS_EVENT).
pub const FLAG_PARTIAL_JSON: u8 = 1;

/// Flag: the source did not check foreign keys for these rows (NO_FOREIGN_KEY_CHECKS_F of
/// the rows event): the session had switched it off, or the rows are what MySQL 9.6 and
/// later change by a cascade and log before the parent's row.
pub const FLAG_NO_FOREIGN_KEY_CHECKS: u8 = 2;

/// Kind of a row event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// After images only.
    Insert,
    /// Before and after images.
    Update,
    /// Before images only.
    Delete,
}

impl RowKind {
    const fn code(self) -> u8 {
        match self {
            Self::Insert => 1,
            Self::Update => 2,
            Self::Delete => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Insert),
            2 => Some(Self::Update),
            3 => Some(Self::Delete),
            _ => None,
        }
    }
}

/// A payload that does not follow the layout above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block payload is malformed at byte {offset}")]
pub struct BlockError {
    /// Offset of the record.
    pub offset: usize,
}

/// Row events of one table version, growing.
#[derive(Clone)]
pub struct BlockBuilder {
    /// Shape of the rows.
    pub version: Arc<TableVersion>,
    /// For each entry of the block's transaction table: what the caller calls that
    /// transaction (the index within its group). Ascending.
    pub txns: Vec<u32>,
    /// Encoded records.
    pub payload: Vec<u8>,
    /// Number of row events.
    pub events: u32,
    /// First and last (group transaction, ordinal).
    pub first: (u32, u32),
    /// See `first`.
    pub last: (u32, u32),
}

impl BlockBuilder {
    /// An empty block.
    pub fn new(version: Arc<TableVersion>) -> Self {
        Self {
            version,
            txns: Vec::new(),
            payload: Vec::new(),
            events: 0,
            first: (0, 0),
            last: (0, 0),
        }
    }

    /// Appends a row event of the group's transaction number `txn`. Transactions and
    /// ordinals come in order. `body` is at most `u32::MAX` bytes: binlog events are.
    pub fn push(&mut self, txn: u32, ordinal: u32, kind: RowKind, flags: u8, body: &[u8]) {
        if self.txns.last() != Some(&txn) {
            self.txns.push(txn);
        }
        let local = u32::try_from(self.txns.len() - 1).unwrap_or(u32::MAX);
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let mut header = [0_u8; RECORD_HEADER_BYTES];
        header[0..4].copy_from_slice(&local.to_le_bytes());
        header[4..8].copy_from_slice(&ordinal.to_le_bytes());
        header[8] = kind.code();
        header[9] = flags;
        header[12..16].copy_from_slice(&length.to_le_bytes());
        self.payload.extend_from_slice(&header);
        self.payload.extend_from_slice(body);
        if self.events == 0 {
            self.first = (txn, ordinal);
        }
        self.last = (txn, ordinal);
        self.events += 1;
    }

    /// As `push` into an empty block, for a large event: takes the event's own allocation
    /// over instead of copying it. `body` is where the body lies in `bytes`; there must
    /// be room for a record header before it (event headers are longer). Returns the
    /// bytes if the block is not empty or there is no such room.
    ///
    /// # Errors
    /// The bytes, untouched.
    pub fn adopt(
        &mut self,
        (txn, ordinal): (u32, u32),
        kind: RowKind,
        flags: u8,
        mut bytes: Vec<u8>,
        body: Range<usize>,
    ) -> Result<(), Vec<u8>> {
        let start = body.start.checked_sub(RECORD_HEADER_BYTES);
        let (Some(start), true) = (
            start,
            self.events == 0 && body.end <= bytes.len() && body.start <= body.end,
        ) else {
            return Err(bytes);
        };
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        bytes.truncate(body.end);
        bytes.drain(..start);
        self.push(txn, ordinal, kind, flags, &[]);
        let header_end = RECORD_HEADER_BYTES.min(self.payload.len()).min(bytes.len());
        if let (Some(to), Some(from)) = (bytes.get_mut(..header_end), self.payload.get(..header_end)) {
            to.copy_from_slice(from);
        }
        if let Some(field) = bytes.get_mut(12..RECORD_HEADER_BYTES) {
            field.copy_from_slice(&length.to_le_bytes());
        }
        self.payload = bytes;
        Ok(())
    }

    /// Bytes of memory that the block pins.
    pub fn pinned_bytes(&self) -> usize {
        self.payload.capacity() + self.txns.capacity() * 4
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }
}

/// Row events of one table version with their commit timestamps, complete.
#[derive(Clone)]
pub struct Block {
    /// Shape of the rows.
    pub version: Arc<TableVersion>,
    /// Commit-ts per transaction of the block, ascending.
    pub txns: Vec<CommitTs>,
    /// Encoded records; see the module documentation.
    pub payload: Vec<u8>,
    /// Number of row events.
    pub events: u32,
    /// Key of the first row event.
    pub first: OrderKey,
    /// Key of the last row event.
    pub last: OrderKey,
}

/// Counts only, never rows.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("table", &self.version.name)
            .field("events", &self.events)
            .field("bytes", &self.payload.len())
            .field("first", &self.first)
            .field("last", &self.last)
            .finish()
    }
}

impl Block {
    /// Bytes of memory that the block pins.
    pub fn pinned_bytes(&self) -> usize {
        self.payload.capacity() + self.txns.capacity() * size_of::<CommitTs>()
    }

    /// Walks all row events.
    pub fn events(&self) -> RowEvents<'_> {
        RowEvents {
            txns: &self.txns,
            payload: &self.payload,
            offset: 0,
            end: self.payload.len(),
        }
    }

    /// Walks the row events of a byte range that starts and ends at record borders.
    pub fn events_in(&self, range: Range<usize>) -> RowEvents<'_> {
        let end = range.end.min(self.payload.len());
        RowEvents {
            txns: &self.txns,
            payload: &self.payload,
            offset: range.start.min(end),
            end,
        }
    }
}

/// One row event of a block.
#[derive(Clone, Copy)]
pub struct RowEvent<'a> {
    /// Its place.
    pub key: OrderKey,
    /// Insert, update or delete.
    pub kind: RowKind,
    /// `FLAG_*`.
    pub flags: u8,
    /// Column count, bitmaps and rows, as the server wrote them.
    pub body: &'a [u8],
    /// Offset of its record in the payload.
    pub offset: usize,
    /// Offset behind its record.
    pub end: usize,
}

/// Iterator over the row events of a block.
pub struct RowEvents<'a> {
    txns: &'a [CommitTs],
    payload: &'a [u8],
    offset: usize,
    end: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map(u32::from_le_bytes)
}

impl<'a> RowEvents<'a> {
    fn read(&self) -> Option<RowEvent<'a>> {
        let header = self.payload.get(self.offset..self.offset + RECORD_HEADER_BYTES)?;
        let commit_ts = *self.txns.get(u32_at(header, 0)? as usize)?;
        let ordinal = u32_at(header, 4)?;
        let kind = RowKind::from_code(header[8])?;
        let start = self.offset + RECORD_HEADER_BYTES;
        let end = start.checked_add(u32_at(header, 12)? as usize)?;
        let body = self.payload.get(start..end)?;
        let key = OrderKey { commit_ts, ordinal };
        Some(RowEvent {
            key,
            kind,
            flags: header[9],
            body,
            offset: self.offset,
            end,
        })
    }
}

impl<'a> Iterator for RowEvents<'a> {
    type Item = Result<RowEvent<'a>, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.end {
            return None;
        }
        match self.read() {
            Some(event) => {
                self.offset = event.end;
                Some(Ok(event))
            }
            None => {
                let offset = self.offset;
                self.offset = self.end;
                Some(Err(BlockError { offset }))
            }
        }
    }
}

/// A run of row events of a shared block.
#[derive(Clone)]
pub struct BlockSlice {
    /// The block, shared with the store's memory tail.
    pub block: Arc<Block>,
    /// Byte range of the records in the payload.
    pub range: Range<usize>,
    /// Number of row events in the range.
    pub events: u32,
    /// Key of the first row event of the range.
    pub first: OrderKey,
    /// Key of the last row event of the range.
    pub last: OrderKey,
}

impl fmt::Debug for BlockSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockSlice")
            .field("table", &self.block.version.name)
            .field("events", &self.events)
            .field("bytes", &self.range.len())
            .finish()
    }
}

impl BlockSlice {
    /// The whole block.
    pub fn whole(block: Arc<Block>) -> Self {
        let (range, events) = (0..block.payload.len(), block.events);
        let (first, last) = (block.first, block.last);
        Self {
            block,
            range,
            events,
            first,
            last,
        }
    }

    /// Walks the row events.
    pub fn iter(&self) -> RowEvents<'_> {
        self.block.events_in(self.range.clone())
    }

    /// Bytes of memory that the slice pins: the whole block's.
    pub fn pinned_bytes(&self) -> usize {
        self.block.pinned_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableName;
    use crate::table::Flavor;

    fn version() -> Arc<TableVersion> {
        Arc::new(TableVersion {
            name: TableName::new("s", "t"),
            flavor: Flavor::Mysql,
            columns: Vec::new(),
            primary_key: Vec::new(),
        })
    }

    fn block() -> Block {
        let mut builder = BlockBuilder::new(version());
        builder.push(3, 1, RowKind::Insert, 0, b"abc");
        builder.push(3, 2, RowKind::Delete, 0, b"");
        builder.push(5, 1, RowKind::Update, FLAG_PARTIAL_JSON, b"xy");
        assert_eq!(builder.txns, [3, 5]);
        Block {
            version: builder.version,
            txns: vec![CommitTs(30), CommitTs(50)],
            payload: builder.payload,
            events: builder.events,
            first: OrderKey::new(CommitTs(30), 1),
            last: OrderKey::new(CommitTs(50), 1),
        }
    }

    #[test]
    fn what_is_pushed_is_read() {
        let block = block();
        let read: Vec<_> = block.events().map(Result::unwrap).collect();
        assert_eq!(read.len(), 3);
        assert_eq!(read[1].key, OrderKey::new(CommitTs(30), 2));
        assert_eq!(
            (read[2].kind, read[2].flags, read[2].body),
            (RowKind::Update, 1, &b"xy"[..])
        );
        let tail: Vec<_> = block.events_in(read[1].offset..block.payload.len()).collect();
        assert_eq!(tail.len(), 2);
    }

    #[test]
    fn an_adopted_event_is_as_if_pushed() {
        let mut pushed = BlockBuilder::new(version());
        pushed.push(3, 7, RowKind::Update, 1, b"body");
        let mut adopted = BlockBuilder::new(version());
        let event = b"0123456789012345678body crc".to_vec();
        let left = adopted.adopt((3, 7), RowKind::Update, 1, event.clone(), 19..23);
        assert_eq!(left, Ok(()));
        assert_eq!(adopted.payload, pushed.payload);
        assert_eq!((adopted.events, adopted.first, adopted.last), (1, (3, 7), (3, 7)));
        let refused = adopted.adopt((3, 8), RowKind::Update, 1, event.clone(), 19..23);
        assert_eq!(refused, Err(event));
        let short = BlockBuilder::new(version()).adopt((0, 1), RowKind::Insert, 0, vec![0; 20], 15..20);
        assert_eq!(short, Err(vec![0; 20]));
    }

    #[test]
    fn every_cut_and_flip_ends_in_an_error_or_an_end() {
        let whole = block();
        for cut in 0..whole.payload.len() {
            let mut block = whole.clone();
            block.payload.truncate(cut);
            assert!(block.events().count() <= 3);
        }
        for at in 0..whole.payload.len() {
            let mut block = whole.clone();
            block.payload[at] ^= 0xff;
            assert!(block.events().count() <= 4);
        }
    }
}
