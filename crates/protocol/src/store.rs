//! Source → EventStore (`AppendBatch`), EventStore → Source (`Persisted`),
//! EventStore → EventService (`ResolvedAdvanced`), Maintainer → EventStore (`AdvanceGc`).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use actix::Message;
use weir_types::{
    AttemptId, BlockBuilder, CommitTs, DdlEvent, ErrorReport, Gtid, OrderKey, SourceIdentity, TableName, Xid,
};

/// Where the source has read to, at the end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPosition {
    /// Server that the file belongs to.
    pub identity: SourceIdentity,
    /// Name of the binlog file.
    pub file: Arc<str>,
    /// Offset of the next event.
    pub offset: u64,
}

/// One transaction group as the binlog tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnMeta {
    /// Original commit time, milliseconds since the Unix epoch.
    pub commit_time_ms: u64,
    /// Identifier, if the server gave one.
    pub gtid: Option<Gtid>,
    /// Offset behind its last event, in the file of the group's `upto`.
    pub end_offset: u64,
}

/// A DDL inside a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDdl {
    /// Index of its transaction in the group.
    pub txn: u32,
    /// Ordinal inside the transaction group. An implicit creation takes no ordinal of
    /// its own: it has the one before its table's first row event.
    pub ordinal: u32,
    /// The statement.
    pub event: Arc<DdlEvent>,
}

/// Whole transactions, in binlog order, split by table.
#[derive(Clone, Default)]
pub struct TxnGroup {
    /// The transactions; those that no changefeed wants are in it too, without rows.
    pub txns: Vec<TxnMeta>,
    /// Row events per table version; their transaction numbers index `txns`.
    pub blocks: Vec<BlockBuilder>,
    /// DDL and implicit creations, by (txn, ordinal).
    pub ddls: Vec<GroupDdl>,
}

/// Counts only.
impl fmt::Debug for TxnGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxnGroup")
            .field("txns", &self.txns.len())
            .field("blocks", &self.blocks.len())
            .field("ddls", &self.ddls.len())
            .finish()
    }
}

/// What the source appends to the store. Everything that ends a transaction carries
/// `upto`, the read position behind it; nothing else moves the position.
#[derive(Clone)]
pub enum StoreInput {
    /// Whole transactions.
    Group {
        /// The transactions and their rows.
        group: TxnGroup,
        /// Read position behind the last one.
        upto: ReadPosition,
    },
    /// Rows of a transaction larger than its share of memory, invisible until its
    /// commit record. Transaction number 0 throughout.
    Fragment {
        /// The reading of the transaction.
        attempt: AttemptId,
        /// Rows, ordinals ascending per table over all fragments of the attempt.
        blocks: Vec<BlockBuilder>,
    },
    /// The attempt was rolled back as a whole, or its reading was given up.
    Discard {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The attempt commits; its rows become visible with this record. Stands in a
    /// group of its own.
    Commit {
        /// The attempt.
        attempt: AttemptId,
        /// The transaction.
        meta: TxnMeta,
        /// Rows that were still in memory; transaction number 0.
        blocks: Vec<BlockBuilder>,
        /// DDL and implicit creations of the transaction; `txn` is 0.
        ddls: Vec<GroupDdl>,
        /// Ordinal ranges undone by ROLLBACK TO SAVEPOINT.
        aborted: Vec<Range<u32>>,
        /// Read position behind it.
        upto: ReadPosition,
    },
    /// XA PREPARE: the attempt stays invisible, and open across restarts, until
    /// `CommitPrepared` or `RollbackPrepared`.
    Prepare {
        /// The attempt.
        attempt: AttemptId,
        /// XA identifier.
        xid: Xid,
        /// The prepare's own transaction group (it has a GTID).
        meta: TxnMeta,
        /// Rows that were still in memory; transaction number 0.
        blocks: Vec<BlockBuilder>,
        /// Implicit creations; `txn` is 0.
        ddls: Vec<GroupDdl>,
        /// Ordinal ranges undone by ROLLBACK TO SAVEPOINT.
        aborted: Vec<Range<u32>>,
        /// Read position behind it.
        upto: ReadPosition,
    },
    /// XA COMMIT of a prepared group. Without a stored prepare: a definite error.
    CommitPrepared {
        /// XA identifier.
        xid: Xid,
        /// The commit's transaction group.
        meta: TxnMeta,
        /// Read position behind it.
        upto: ReadPosition,
    },
    /// XA ROLLBACK of a prepared group.
    RollbackPrepared {
        /// XA identifier.
        xid: Xid,
        /// The rollback's transaction group.
        meta: TxnMeta,
        /// Read position behind it.
        upto: ReadPosition,
    },
    /// The upstream is idle, a new file began, or only unwanted transactions passed:
    /// time and position move.
    Tick {
        /// Time at the source, milliseconds since the Unix epoch.
        time_ms: u64,
        /// Read position.
        upto: ReadPosition,
    },
}

/// What an input pins beside its rows: the value itself, a position, an XA identifier.
const INPUT_BYTES: usize = 256;

impl StoreInput {
    /// Bytes of memory that the input pins; never 0, also for a commit whose rows all went
    /// ahead as fragments: what is counted by bytes must not overlook it.
    pub fn pinned_bytes(&self) -> usize {
        let blocks = |blocks: &[BlockBuilder]| blocks.iter().map(|b| b.pinned_bytes() + 128).sum::<usize>();
        let ddls = |ddls: &[GroupDdl]| ddls.iter().map(|d| d.event.sql.len() + 256).sum::<usize>();
        let rows = match self {
            Self::Group { group, .. } => {
                blocks(&group.blocks) + ddls(&group.ddls) + group.txns.capacity() * size_of::<TxnMeta>()
            }
            Self::Fragment { blocks: b, .. } => blocks(b),
            Self::Commit {
                blocks: b, ddls: d, ..
            }
            | Self::Prepare {
                blocks: b, ddls: d, ..
            } => blocks(b) + ddls(d),
            Self::Discard { .. }
            | Self::CommitPrepared { .. }
            | Self::RollbackPrepared { .. }
            | Self::Tick { .. } => 0,
        };
        INPUT_BYTES + rows
    }
}

/// Source → EventStore. In flight until the `Persisted` of the same or a later `seq`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AppendBatch {
    /// Counts up by one per batch of a pipeline generation, from 1.
    pub seq: u64,
    /// In binlog order.
    pub inputs: Vec<StoreInput>,
    /// Pinned bytes of `inputs`, charged to the source's in-flight window.
    pub bytes: usize,
}

impl fmt::Debug for AppendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppendBatch")
            .field("seq", &self.seq)
            .field("inputs", &self.inputs.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}

/// EventStore → Source: everything up to batch `seq` is synced and visible.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Persisted {
    /// Last batch that is durable.
    pub seq: u64,
    /// Bytes given back to the in-flight window.
    pub bytes: usize,
}

/// EventStore → EventService, coalesced, latest wins: nothing at or below `resolved`
/// will still arrive, and all of it is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct ResolvedAdvanced {
    /// The new resolved-ts.
    pub resolved: CommitTs,
}

/// EventStore → EventService: the table was given up, because it was stuck and kept the
/// quota from all others; every scan of it fails from now on.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct TableDetached {
    /// The table.
    pub table: TableName,
}

/// Maintainer → EventStore: synced progress. What every table and the schema history
/// have passed may go.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct AdvanceGc {
    /// Synced token key per registered table.
    pub tables: Vec<(TableName, OrderKey)>,
    /// Synced token key of the schema dispatcher; tables without an own token count
    /// with it.
    pub schema: OrderKey,
}

/// EventStore or Source → pipeline owner: the stage cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct StageFailed {
    /// Stage name, for example `source`.
    pub stage: &'static str,
    /// What happened.
    pub error: ErrorReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_pins_something() {
        let upto = ReadPosition {
            identity: SourceIdentity::Digest(1),
            file: Arc::from("binlog.000001"),
            offset: 4,
        };
        let meta = TxnMeta {
            commit_time_ms: 1,
            gtid: None,
            end_offset: 4,
        };
        let (attempt, xid) = (AttemptId(1), Xid(Arc::from("X'61',X'',1")));
        let inputs = [
            StoreInput::Group {
                group: TxnGroup::default(),
                upto: upto.clone(),
            },
            StoreInput::Fragment {
                attempt,
                blocks: Vec::new(),
            },
            StoreInput::Discard { attempt },
            StoreInput::Commit {
                attempt,
                meta: meta.clone(),
                blocks: Vec::new(),
                ddls: Vec::new(),
                aborted: Vec::new(),
                upto: upto.clone(),
            },
            StoreInput::CommitPrepared {
                xid,
                meta,
                upto: upto.clone(),
            },
            StoreInput::Tick { time_ms: 1, upto },
        ];
        assert!(inputs.iter().all(|input| input.pinned_bytes() > 0));
    }
}
