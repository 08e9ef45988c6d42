//! Index entries and fragments, and what a group makes visible.

use std::ops::Range;
use std::sync::Arc;

use weir_segment::FrameAddress;
use weir_types::{AttemptId, Block, CommitTs, DdlEvent, OrderKey, TableName, TableVersion};

use crate::catalog::{TableId, VersionId};
use crate::meta::MetaBatch;

/// A stored part of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FragmentRef {
    pub(crate) attempt: AttemptId,
    /// Counts up within the attempt.
    pub(crate) number: u32,
    pub(crate) segment: u64,
    pub(crate) table: TableId,
    pub(crate) version: VersionId,
    /// First and last ordinal.
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) events: u32,
    pub(crate) raw_bytes: u32,
    pub(crate) stored_bytes: u32,
    /// Ordinals undone, as far as they lie in the fragment.
    pub(crate) aborted: Vec<Range<u32>>,
}

pub(crate) struct Fragment {
    pub(crate) at: FragmentRef,
    /// Kept by the store in memory only.
    pub(crate) block: Option<Block>,
}

/// Where a run of row events is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A block of the same segment.
    Block(FrameAddress),
    /// A fragment, possibly of an earlier segment.
    Fragment {
        segment: u64,
        attempt: AttemptId,
        number: u32,
        aborted: Vec<Range<u32>>,
    },
}

/// Index entry: row events of one table version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first: OrderKey,
    pub(crate) last: OrderKey,
    pub(crate) version: VersionId,
    pub(crate) events: u32,
    pub(crate) raw_bytes: u32,
    pub(crate) place: Place,
}

pub(crate) struct NewRows {
    pub(crate) table: TableId,
    pub(crate) entry: Entry,
    /// None: read it from disk.
    pub(crate) block: Option<Arc<Block>>,
}

/// What becomes visible when a group is synced.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) tables: Vec<TableName>,
    pub(crate) versions: Vec<(VersionId, Arc<TableVersion>)>,
    pub(crate) rows: Vec<NewRows>,
    pub(crate) fragments: Vec<(FragmentRef, FrameAddress)>,
    pub(crate) metas: Vec<(MetaBatch, FrameAddress)>,
    pub(crate) ddls: Vec<(OrderKey, Arc<DdlEvent>)>,
    pub(crate) resolved: Option<CommitTs>,
    pub(crate) raw_bytes: u64,
    pub(crate) inputs: u64,
}

impl Batch {
    /// Row events that it shows.
    pub(crate) fn events(&self) -> u64 {
        self.rows.iter().map(|r| u64::from(r.entry.events)).sum()
    }
}

/// Cuts the aborted ranges to a fragment; None if all of it is undone.
pub(crate) fn clip(aborted: &[Range<u32>], first: u32, last: u32) -> Option<Vec<Range<u32>>> {
    if aborted.iter().any(|r| r.start <= first && r.end > last) {
        return None;
    }
    let touching = aborted.iter().filter(|r| r.start <= last && r.end > first);
    Some(touching.cloned().collect())
}

pub(crate) fn entry_of(at: &FragmentRef, ts: CommitTs) -> Entry {
    Entry {
        first: OrderKey::new(ts, at.first),
        last: OrderKey::new(ts, at.last),
        version: at.version,
        events: at.events,
        raw_bytes: at.raw_bytes,
        place: Place::Fragment {
            segment: at.segment,
            attempt: at.attempt,
            number: at.number,
            aborted: at.aborted.clone(),
        },
    }
}

/// Gives an attempt's block its commit-ts.
pub(crate) fn stamp_block(mut block: Block, ts: CommitTs) -> Block {
    block.txns = vec![ts];
    block.first.commit_ts = ts;
    block.last.commit_ts = ts;
    block
}
