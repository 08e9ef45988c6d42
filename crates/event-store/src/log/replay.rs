//! Reading a segment without footer: its snapshot and what follows give state and index.

use weir_segment::{ScannedFrame, SegmentReader};
use weir_types::{CommitClock, OrderKey};

use super::index::{GroupInfo, OpenIndex};
use super::record::{
    BASE, BLOCK, BlockHead, COMMIT, DDL, DdlRecord, FRAGMENT, META, Outcome, PREPARE, SNAPSHOT, Snapshot,
    VERSION, VersionRecord, fragment,
};
use super::seal::base_ts;
use crate::coverage::Coverages;
use crate::entry::Fragment;
use crate::error::{Result, StoreError};
use crate::meta::{Checkpoint, MetaBatch, XaChange};
use crate::state::WriterState;
use crate::wire::Input;

/// Kinds whose bodies recovery reads.
fn with_body(kind: u8) -> bool {
    matches!(kind, BASE | SNAPSHOT | VERSION | META | DDL | COMMIT | PREPARE)
}

/// A segment read from its start to its end.
pub(crate) struct Walked {
    pub(crate) state: WriterState,
    pub(crate) index: OpenIndex,
    pub(crate) base: weir_segment::FrameAddress,
    pub(crate) base_ts: weir_types::CommitTs,
    pub(crate) previous_end: u64,
    /// When the segment began.
    pub(crate) coverage: Coverages,
    pub(crate) end: u64,
    pub(crate) groups: u64,
}

fn malformed(reader: &SegmentReader, frame: &ScannedFrame) -> StoreError {
    reader
        .corrupt(frame.address.offset, "a frame is malformed")
        .into()
}

/// Reads a segment. `limit`: where it must end, exactly; none for the last one, whose
/// tail may be torn.
pub(crate) fn walk(reader: &SegmentReader, limit: Option<u64>) -> Result<Walked> {
    let number = reader.id().number;
    let mut groups = reader.groups(limit, &with_body)?;
    let mut walked: Option<Walked> = None;
    while let Some(group) = groups.next_group()? {
        let Some(walked) = &mut walked else {
            walked = Some(walk_first(reader, &group.frames)?);
            continue;
        };
        let mut info = GroupInfo {
            raw_bytes: 0,
            plain: true,
        };
        for frame in &group.frames {
            info.raw_bytes += u64::from(frame.raw_bytes);
            info.plain &= matches!(frame.kind, VERSION | BLOCK | META | DDL);
            let at = (number, frame.address);
            let body = frame.body.as_deref();
            let entered = walked
                .index
                .add_frame(frame.kind, &frame.head, frame.raw_bytes, body, at)
                .and_then(|()| replay(&mut walked.state, number, frame));
            entered.ok_or_else(|| malformed(reader, frame))?;
        }
        walked.index.groups.push(info);
    }
    let Some(mut walked) = walked else {
        let (offset, reason) = groups
            .broken()
            .unwrap_or_else(|| (groups.end(), "the snapshot is missing"));
        return Err(reader.corrupt(offset, reason).into());
    };
    if limit.is_some_and(|limit| groups.end() != limit) {
        let (offset, reason) = groups
            .broken()
            .unwrap_or_else(|| (groups.end(), "the file ends too early"));
        return Err(reader.corrupt(offset, reason).into());
    }
    groups.check_tail()?;
    walked.end = groups.end();
    walked.groups = groups.number();
    Ok(walked)
}

fn walk_first(reader: &SegmentReader, frames: &[ScannedFrame]) -> Result<Walked> {
    let [base, snapshot, ..] = frames else {
        return Err(reader.corrupt(0, "the snapshot is missing").into());
    };
    let mut state = WriterState::new(None, false);
    let body = |frame: &ScannedFrame, kind| frame.body.clone().filter(|_| frame.kind == kind);
    let parsed = body(base, BASE)
        .and_then(|b| Checkpoint::decode(&b))
        .zip(base_ts(&base.head));
    let (place, base_ts) = parsed.ok_or_else(|| malformed(reader, base))?;
    state.place = place;
    let parsed = body(snapshot, SNAPSHOT).and_then(|b| serde_json::from_slice::<Snapshot>(&b).ok());
    let mut parsed = parsed.ok_or_else(|| malformed(reader, snapshot))?;
    let previous_end = parsed.previous_end;
    let coverage = std::mem::take(&mut parsed.coverage);
    parsed
        .restore(&mut state)
        .ok_or_else(|| malformed(reader, snapshot))?;
    Ok(Walked {
        state,
        index: OpenIndex::default(),
        base: base.address,
        base_ts,
        previous_end,
        coverage,
        end: 0,
        groups: 0,
    })
}

/// Applies a frame of the last segment to the writer's state.
fn replay(state: &mut WriterState, number: u64, frame: &ScannedFrame) -> Option<()> {
    let body = frame.body.as_deref().unwrap_or_default();
    match frame.kind {
        VERSION => {
            let record: VersionRecord = serde_json::from_slice(body).ok()?;
            state.catalog.restore(record.id, record.version, record.last_used);
        }
        BLOCK => {
            let head = BlockHead::decode(&frame.head)?;
            state.catalog.used(head.version, head.last);
        }
        FRAGMENT => {
            let mut at = fragment(&mut Input::new(&frame.head))?;
            at.segment = number;
            at.stored_bytes = frame.address.stored_bytes;
            state.catalog.used(at.version, OrderKey::MAX);
            state.next_attempt.0 = state.next_attempt.0.max(at.attempt.0.saturating_add(1));
            state
                .attempts
                .entry(at.attempt)
                .or_default()
                .push(Fragment { at, block: None });
        }
        META => {
            let batch = MetaBatch::decode(body)?;
            for record in &batch.records {
                if let XaChange::Ended(xid) = &record.xa {
                    state.prepared.remove(xid);
                }
            }
            state.place.apply_all(&batch);
            state.clock = CommitClock::new(batch.last());
        }
        DDL => {
            let record: DdlRecord = serde_json::from_slice(body).ok()?;
            state.history.push(record.key, record.event);
        }
        COMMIT | PREPARE => {
            let outcome = Outcome::decode(body)?;
            if let Some(attempt) = outcome.attempt {
                state.attempts.remove(&attempt);
                state.next_attempt.0 = state.next_attempt.0.max(attempt.0.saturating_add(1));
            }
            if let Some(xid) = outcome.xid {
                let fragments = outcome.fragments.into_iter();
                let fragments = fragments.map(|at| Fragment { at, block: None }).collect();
                state.prepared.insert(xid, fragments);
            }
        }
        _ => {}
    }
    Some(())
}

/// Only the snapshot of a segment is wanted: damage behind it is found elsewhere.
pub(crate) fn first_of(reader: &SegmentReader) -> Result<Walked> {
    let mut groups = reader.groups(None, &with_body)?;
    match groups.next_group()? {
        Some(group) => walk_first(reader, &group.frames),
        None => Err(reader.corrupt(0, "the snapshot is missing").into()),
    }
}
