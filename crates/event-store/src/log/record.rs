//! Frames of the log: kinds and their bytes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_types::{AttemptId, Block, CommitTs, DdlEvent, OrderKey, TableName, TableVersion, Xid};

use crate::catalog::{TableId, VersionId};
use crate::coverage::Coverages;
use crate::entry::{Fragment, FragmentRef};
use crate::state::{Stamp, WriterState};
use crate::wire::{Input, put, put_bytes};

/// First frame of a segment: state of the position before it.
pub(crate) const BASE: u8 = 1;
/// Second frame of a segment: everything else that recovery needs.
pub(crate) const SNAPSHOT: u8 = 2;
/// Definition of a table version.
pub(crate) const VERSION: u8 = 3;
/// Row events of whole transactions.
pub(crate) const BLOCK: u8 = 4;
/// Row events of an attempt.
pub(crate) const FRAGMENT: u8 = 5;
/// Transaction groups.
pub(crate) const META: u8 = 6;
/// One DDL.
pub(crate) const DDL: u8 = 7;
/// Makes fragments visible.
pub(crate) const COMMIT: u8 = 8;
/// Keeps fragments until the end of their XA group.
pub(crate) const PREPARE: u8 = 9;
/// Index of one table, in a footer.
pub(crate) const TABLE_INDEX: u8 = 20;
/// Index of fragments, in a footer.
pub(crate) const FRAGMENT_INDEX: u8 = 21;
/// Index of transaction groups, in a footer.
pub(crate) const META_INDEX: u8 = 22;
/// The footer itself.
pub(crate) const DIRECTORY: u8 = 23;

pub(crate) fn put_key(out: &mut Vec<u8>, key: OrderKey) {
    put(out, key.commit_ts.0);
    put(out, u64::from(key.ordinal));
}

pub(crate) fn key(input: &mut Input<'_>) -> Option<OrderKey> {
    Some(OrderKey::new(CommitTs(input.number()?), input.small()?))
}

/// Head of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) table: TableId,
    pub(crate) version: VersionId,
    pub(crate) events: u32,
    pub(crate) first: OrderKey,
    pub(crate) last: OrderKey,
    pub(crate) txns: Vec<CommitTs>,
}

impl BlockHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40 + self.txns.len() * 3);
        for number in [self.table, self.version, self.events] {
            put(&mut out, u64::from(number));
        }
        put(&mut out, u64::from(self.first.ordinal));
        put(&mut out, u64::from(self.last.ordinal));
        put(&mut out, self.txns.len() as u64);
        let mut last = 0;
        for ts in &self.txns {
            put(&mut out, ts.0 - last);
            last = ts.0;
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input::new(bytes);
        let (table, version, events) = (input.small()?, input.small()?, input.small()?);
        let (first, last) = (input.small()?, input.small()?);
        let count = input.count()?;
        let mut txns = Vec::with_capacity(count);
        let mut ts = 0_u64;
        for _ in 0..count {
            ts = ts.checked_add(input.number()?)?;
            txns.push(CommitTs(ts));
        }
        Some(Self {
            table,
            version,
            events,
            first: OrderKey::new(*txns.first()?, first),
            last: OrderKey::new(*txns.last()?, last),
            txns,
        })
    }

    pub(crate) fn block(self, version: Arc<TableVersion>, payload: Vec<u8>) -> Block {
        Block {
            version,
            txns: self.txns,
            payload,
            events: self.events,
            first: self.first,
            last: self.last,
        }
    }
}

pub(crate) fn put_fragment(out: &mut Vec<u8>, at: &FragmentRef) {
    put(out, at.attempt.0);
    put(out, at.segment);
    for number in [
        at.number,
        at.table,
        at.version,
        at.first,
        at.last,
        at.events,
        at.raw_bytes,
        at.stored_bytes,
    ] {
        put(out, u64::from(number));
    }
    put_ranges(out, &at.aborted);
}

pub(crate) fn fragment(input: &mut Input<'_>) -> Option<FragmentRef> {
    Some(FragmentRef {
        attempt: AttemptId(input.number()?),
        segment: input.number()?,
        number: input.small()?,
        table: input.small()?,
        version: input.small()?,
        first: input.small()?,
        last: input.small()?,
        events: input.small()?,
        raw_bytes: input.small()?,
        stored_bytes: input.small()?,
        aborted: ranges(input)?,
    })
}

pub(crate) fn put_ranges(out: &mut Vec<u8>, ranges: &[Range<u32>]) {
    put(out, ranges.len() as u64);
    for range in ranges {
        put(out, u64::from(range.start));
        put(out, u64::from(range.end));
    }
}

pub(crate) fn ranges(input: &mut Input<'_>) -> Option<Vec<Range<u32>>> {
    let count = input.count()?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(input.small()?..input.small()?);
    }
    Some(out)
}

/// Body of COMMIT and PREPARE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) attempt: Option<AttemptId>,
    pub(crate) commit_ts: CommitTs,
    /// Of a PREPARE.
    pub(crate) xid: Option<Xid>,
    pub(crate) fragments: Vec<FragmentRef>,
}

impl Outcome {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.attempt.map_or(0, |a| a.0.saturating_add(1)));
        put(&mut out, self.commit_ts.0);
        put_bytes(&mut out, self.xid.as_ref().map_or("", |x| &*x.0).as_bytes());
        put(&mut out, self.fragments.len() as u64);
        for at in &self.fragments {
            put_fragment(&mut out, at);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input::new(bytes);
        let attempt = input.number()?.checked_sub(1).map(AttemptId);
        let commit_ts = CommitTs(input.number()?);
        let xid = Some(input.text()?)
            .filter(|x| !x.is_empty())
            .map(|x| Xid(Arc::from(x)));
        let count = input.count()?;
        let mut fragments = Vec::with_capacity(count);
        for _ in 0..count {
            fragments.push(fragment(&mut input)?);
        }
        input.is_empty().then_some(Self {
            attempt,
            commit_ts,
            xid,
            fragments,
        })
    }
}

/// Body of VERSION, as JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct VersionRecord {
    pub(crate) id: VersionId,
    pub(crate) version: Arc<TableVersion>,
    pub(crate) last_used: OrderKey,
}

/// Body of DDL, as JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct DdlRecord {
    pub(crate) key: OrderKey,
    pub(crate) event: Arc<DdlEvent>,
}

/// Body of SNAPSHOT, as JSON; fields may be added with a default.
#[derive(Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) resolved: CommitTs,
    pub(crate) next_attempt: AttemptId,
    pub(crate) next_version: VersionId,
    /// In the order of their numbers.
    pub(crate) tables: Vec<TableName>,
    pub(crate) versions: Vec<VersionRecord>,
    pub(crate) history_floor: OrderKey,
    pub(crate) history_base: BTreeSet<TableName>,
    pub(crate) history: Vec<DdlRecord>,
    pub(crate) prepared: Vec<(Xid, Vec<u8>)>,
    pub(crate) coverage: Coverages,
    /// Where the segment before this one ends.
    pub(crate) previous_end: u64,
}

fn encode_fragments(fragments: &[Fragment]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, fragments.len() as u64);
    for fragment in fragments {
        put_fragment(&mut out, &fragment.at);
    }
    out
}

fn decode_fragments(bytes: &[u8]) -> Option<Vec<Fragment>> {
    let mut input = Input::new(bytes);
    let count = input.count()?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        let at = fragment(&mut input)?;
        out.push(Fragment { at, block: None });
    }
    Some(out)
}

impl Snapshot {
    pub(crate) fn of(state: &WriterState, coverage: Coverages, previous_end: u64) -> Self {
        let versions = state.catalog.versions().iter();
        let prepared = state.prepared.iter();
        Self {
            resolved: state.clock.last(),
            next_attempt: state.next_attempt,
            next_version: state.catalog.next_version(),
            tables: state.catalog.names().to_vec(),
            versions: versions
                .map(|(id, info)| VersionRecord {
                    id: *id,
                    version: Arc::clone(&info.version),
                    last_used: info.last_used,
                })
                .collect(),
            history_floor: state.history.floor,
            history_base: state.history.base.clone(),
            history: ddl_records(&state.history.ddls),
            prepared: prepared
                .map(|(xid, f)| (xid.clone(), encode_fragments(f)))
                .collect(),
            coverage,
            previous_end,
        }
    }

    /// Fills a new state; None if the snapshot contradicts itself.
    pub(crate) fn restore(self, state: &mut WriterState) -> Option<()> {
        state.clock = weir_types::CommitClock::new(self.resolved);
        state.next_attempt = self.next_attempt;
        for name in &self.tables {
            state.catalog.table(name);
        }
        for record in self.versions {
            state.catalog.restore(record.id, record.version, record.last_used);
        }
        state.catalog.raise_next_version(self.next_version);
        state.history.floor = self.history_floor;
        state.history.base = self.history_base;
        for ddl in self.history {
            state.history.push(ddl.key, ddl.event);
        }
        for (xid, bytes) in self.prepared {
            state.prepared.insert(xid, decode_fragments(&bytes)?);
        }
        (state.catalog.names().len() == self.tables.len()).then_some(())
    }
}

fn ddl_records(ddls: &[(OrderKey, Arc<DdlEvent>)]) -> Vec<DdlRecord> {
    let record = |(key, event): &(OrderKey, Arc<DdlEvent>)| DdlRecord {
        key: *key,
        event: Arc::clone(event),
    };
    ddls.iter().map(record).collect()
}

/// Head of the block that a builder becomes.
pub(crate) fn head_of(
    builder: &weir_types::BlockBuilder,
    ids: (TableId, VersionId),
    stamp: &Stamp,
) -> BlockHead {
    let at = |txn: u32| stamp.ts.get(txn as usize).copied().unwrap_or(CommitTs::ZERO);
    BlockHead {
        table: ids.0,
        version: ids.1,
        events: builder.events,
        first: OrderKey::new(at(builder.first.0), builder.first.1),
        last: OrderKey::new(at(builder.last.0), builder.last.1),
        txns: builder.txns.iter().map(|t| at(*t)).collect(),
    }
}
