//! The contract of an event store.

use std::collections::HashMap;
use std::sync::Arc;

use weir_protocol::store::StoreInput;
use weir_types::{
    AttemptId, BlockSlice, CommitTs, DdlEvent, LineageId, OrderKey, SourcePosition, TableName, TableVersion,
    Token, Xid,
};

use crate::error::{AppendError, StoreError};

/// What a store holds when it is opened.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// History that all commit-ts of the store belong to.
    pub lineage: LineageId,
    /// Read position behind the last durable transaction; none in a new store.
    pub position: Option<SourcePosition>,
    /// Greatest commit-ts given.
    pub resolved: CommitTs,
    /// Next attempt id that was never used.
    pub next_attempt: AttemptId,
    /// XA groups prepared and not ended.
    pub prepared: Vec<Xid>,
    /// Tables that the DDL history knows to exist, with the last version seen.
    pub tables: Vec<(TableName, Option<Arc<TableVersion>>)>,
}

/// One scan of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRequest {
    /// Table.
    pub table: TableName,
    /// Start, exclusive.
    pub after: OrderKey,
    /// End, inclusive; never beyond the resolved-ts that the caller has seen.
    pub upto: OrderKey,
    /// Most bytes that the returned slices may pin (after copying small slices of large
    /// blocks out).
    pub bytes_max: usize,
    /// Most row events.
    pub events_max: usize,
    /// The reserved lane: if the first row event alone is larger than `bytes_max`, it
    /// is returned by itself.
    pub lane: bool,
}

/// Where a scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// Every row event of the table up to `upto` has been returned.
    Exhausted,
    /// A limit was reached; go on behind the last slice.
    More,
    /// Nothing is returned: the next row event pins `bytes`, more than `bytes_max`.
    TooLarge {
        /// What it would pin.
        bytes: usize,
        /// Its place.
        key: OrderKey,
    },
}

/// Result of a scan.
#[derive(Clone, Debug)]
pub struct ScanOutcome {
    /// Runs of row events, ascending by key.
    pub slices: Vec<BlockSlice>,
    /// Where it stopped.
    pub end: ScanEnd,
}

/// A part of the DDL history.
#[derive(Clone, Debug)]
pub struct DdlPage {
    /// DDL and implicit creations, ascending by key.
    pub ddls: Vec<(OrderKey, Arc<DdlEvent>)>,
}

/// Row events that a store holds completely: those with `from < key ≤ to`, half-open
/// like all ranges of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Exclusive: row events up to here may be gone. The store's start, then what GC
    /// removed.
    pub from: OrderKey,
    /// Inclusive: the end of resolved-ts; where the table was given up if it `ended`.
    pub to: OrderKey,
    /// The table was detached: nothing will come behind `to`.
    pub ended: bool,
}

/// Reading side; shared between threads. Shows synced data only.
pub trait StoreReader: Send + Sync + 'static {
    /// The store's history.
    fn lineage(&self) -> LineageId;

    /// Nothing at or below it will still arrive, and all of it is visible.
    fn resolved(&self) -> CommitTs;

    /// Reads row events of one table.
    ///
    /// # Errors
    /// A corrupt or missing block, never a silent gap; a range outside
    /// [`Self::coverage`]; a detached table.
    fn scan(&self, request: &ScanRequest) -> Result<ScanOutcome, StoreError>;

    /// What the store holds of a table. A store is sent every table from its own start
    /// on, so a table first met later, or never, is covered from there. None: the table
    /// was detached and its data are gone.
    fn coverage(&self, table: &TableName) -> Option<Coverage>;

    /// Whether the table can be read from `after` on for as long as it lasts.
    ///
    /// # Errors
    /// It was detached, or the place is outside its coverage.
    fn check_start(&self, table: &TableName, after: OrderKey) -> Result<(), StoreError> {
        match self.coverage(table).filter(|held| !held.ended) {
            None => Err(StoreError::Detached(table.to_string())),
            Some(held) if after < held.from || after > held.to => {
                Err(StoreError::not_covered(table, after, held))
            }
            Some(_) => Ok(()),
        }
    }

    /// DDL and implicit creations with `after < key ≤ upto`, all tables, ascending; at
    /// most `limit` (0 = no limit).
    ///
    /// # Errors
    /// As for `scan`.
    fn ddls(&self, after: OrderKey, upto: OrderKey, limit: usize) -> Result<DdlPage, StoreError>;

    /// Tables that exist, by the DDL history, just behind `at`.
    ///
    /// # Errors
    /// `at` is below what the store still knows.
    fn tables_at(&self, at: OrderKey) -> Result<Vec<TableName>, StoreError>;

    /// Key of the last row event of the table that is at or below `upto`, cheaply: may
    /// be larger than the true one, never smaller; none if the store holds nothing of
    /// the table above `after`. Lets idle tables be skipped without a scan.
    fn last_key(&self, table: &TableName, after: OrderKey) -> Option<OrderKey>;

    /// The token for a durable place: position before its transaction, its GTID, open
    /// XA groups. For a place at the end of a transaction (ordinal `u32::MAX`), or
    /// between two of them, the position is the one behind it and there is no GTID:
    /// nothing of it is left to skip. For a place that is not in the store any more,
    /// because all tables had passed it, there is neither; a table may still stand there
    /// when it comes back to where its output ends, or when others were ahead of it.
    ///
    /// # Errors
    /// The store cannot be read.
    fn token(&self, key: OrderKey) -> Result<Token, StoreError>;

    /// Live bytes on disk (or in memory) per table, fragments included.
    fn live_bytes(&self) -> HashMap<TableName, u64>;
}

/// What a sync made durable and visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// The new resolved-ts.
    pub resolved: CommitTs,
    /// Raw bytes of row events in the groups of this sync.
    pub raw_bytes: u64,
    /// Bytes that they take on disk; 0 where there is none.
    pub stored_bytes: u64,
    /// Row events that became visible.
    pub events: u64,
}

/// What a store takes, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that count against the quota.
    pub disk_bytes: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes of recent blocks in memory.
    pub tail_bytes: u64,
    /// The quota.
    pub quota_bytes: u64,
}

/// Waiting for a sync; runs on another thread so that the next group can be compressed
/// meanwhile. Tickets are waited for in the order in which they were made; one that is
/// dropped stops the store.
pub trait SyncTicket: Send {
    /// Syncs, then makes the groups visible.
    ///
    /// # Errors
    /// A failed sync is fatal for the store: it is never retried, and the writer
    /// refuses everything afterwards.
    fn wait(self: Box<Self>) -> Result<Synced, StoreError>;
}

/// Writing side; owned by one thread.
pub trait StoreWriter: Send {
    /// Appends; gives commit-ts. Nothing is visible before the sync. `now_ms`: Weir's
    /// own clock, milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// The input comes back, its large blocks perhaps split, and nothing of it was
    /// written. Full disk or quota
    /// ([`StoreError::is_full`]): the caller may try again later. Others are final.
    fn append(&mut self, input: StoreInput, now_ms: u64) -> Result<(), AppendError>;

    /// Ends the commit group; what was appended becomes durable when the ticket was
    /// waited for. None if nothing was appended.
    ///
    /// # Errors
    /// Full disk: the group stays open, the caller may try again later. Others are
    /// final.
    fn commit_group(&mut self) -> Result<Option<Box<dyn SyncTicket>>, StoreError>;

    /// Synced progress of the tables; removes or rewrites segments that all have
    /// passed. Returns the bytes freed.
    ///
    /// # Errors
    /// Deleting or rewriting failed.
    fn advance_gc(&mut self, tables: &[(TableName, OrderKey)], schema: OrderKey) -> Result<u64, StoreError>;

    /// Gives a table up (its disk share was exceeded, or its changefeed ended): its
    /// data no longer count and go with the next GC, and what still comes of it is not
    /// stored; its coverage ends, and later scans of it are a definite error. A table
    /// that the store has not met is left alone.
    ///
    /// # Errors
    /// Writing failed.
    fn detach(&mut self, table: &TableName) -> Result<(), StoreError>;

    /// A reading side of the same store.
    fn reader(&self) -> Arc<dyn StoreReader>;

    /// Bytes of memory or disk that count against the quota.
    fn disk_bytes(&self) -> u64;

    /// What the store takes.
    fn usage(&self) -> Usage {
        Usage {
            disk_bytes: self.disk_bytes(),
            ..Usage::default()
        }
    }

    /// Ends cleanly: commits what was appended and marks everything as synced, so that
    /// later damage is told apart from a torn tail. Tickets made before were waited for.
    ///
    /// # Errors
    /// Writing or syncing failed.
    fn close(&mut self) -> Result<(), StoreError>;
}
