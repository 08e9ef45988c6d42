//! Cutting blocks to what a scan asked for.

use std::ops::Range;
use std::sync::{Arc, Weak};

use weir_types::block::RECORD_HEADER_BYTES;
use weir_types::{Block, BlockSlice, OrderKey};

use crate::contract::{ScanEnd, ScanOutcome, ScanRequest};
use crate::error::{Result, StoreError};

/// A run of records inside a block.
struct Run {
    range: Range<usize>,
    events: u32,
    first: OrderKey,
    last: OrderKey,
    /// Bytes that the run pins when it is copied out.
    copied_bytes: usize,
    /// Whether records up to the end of the request are left behind it.
    more: bool,
}

/// Where a scan stopped inside a block, so that the next one need not walk to it again.
pub(crate) struct Cut {
    /// Held weakly: tells the block from another one in its place.
    block: Weak<Block>,
    /// Last key returned.
    pub(crate) key: OrderKey,
    /// Offset behind it.
    pub(crate) offset: usize,
}

/// Gathers slices until a limit is reached.
pub(crate) struct Slicer<'r> {
    request: &'r ScanRequest,
    pinned: usize,
    events: usize,
    slices: Vec<BlockSlice>,
    end: Option<ScanEnd>,
    /// Where the scan before this one stopped.
    resume: Option<Cut>,
    cut: Option<Cut>,
}

fn malformed(block: &Block) -> StoreError {
    StoreError::OutOfRange(format!("a readable block of `{}`", block.version.name))
}

impl<'r> Slicer<'r> {
    /// `resume`: where the last scan of the table stopped.
    pub(crate) fn new(request: &'r ScanRequest, resume: Option<Cut>) -> Self {
        Self {
            request,
            pinned: 0,
            events: 0,
            slices: Vec::new(),
            end: None,
            resume: resume.filter(|cut| cut.key == request.after),
            cut: None,
        }
    }

    /// Where the scan stops, if inside a block.
    pub(crate) fn take_cut(&mut self) -> Option<Cut> {
        self.cut.take()
    }

    /// Offset in the block before which there is nothing behind `after`.
    fn start(&self, block: &Arc<Block>, after: OrderKey) -> usize {
        let here = |cut: &&Cut| cut.key <= after && std::ptr::eq(cut.block.as_ptr(), Arc::as_ptr(block));
        self.resume.as_ref().filter(here).map_or(0, |cut| cut.offset)
    }

    /// Whether a limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.end.is_some()
    }

    /// Stops although there is more.
    pub(crate) fn stop(&mut self) {
        self.end.get_or_insert(ScanEnd::More);
    }

    /// The next row event, at `key`, pins `bytes`, more than any scan without the lane may.
    pub(crate) fn refuse(&mut self, bytes: usize, key: OrderKey) {
        let end = if self.slices.is_empty() {
            ScanEnd::TooLarge { bytes, key }
        } else {
            ScanEnd::More
        };
        self.end.get_or_insert(end);
    }

    pub(crate) fn finish(self) -> ScanOutcome {
        ScanOutcome {
            slices: self.slices,
            end: self.end.unwrap_or(ScanEnd::Exhausted),
        }
    }

    fn room(&self) -> usize {
        self.request.bytes_max.saturating_sub(self.pinned)
    }

    fn push(&mut self, slice: BlockSlice) {
        self.pinned += slice.pinned_bytes();
        self.events += slice.events as usize;
        self.slices.push(slice);
    }

    /// Takes the block's row events with `after < key ≤ upto`, as far as they fit.
    /// Blocks come in order.
    pub(crate) fn add(&mut self, block: &Arc<Block>, after: OrderKey, upto: OrderKey) -> Result<()> {
        if self.is_full() || block.last <= after || block.first > upto || block.events == 0 {
            return Ok(());
        }
        let events_left = self.request.events_max.max(1).saturating_sub(self.events);
        let whole = block.first > after && block.last <= upto;
        let (pinned, events) = (block.pinned_bytes(), block.events as usize);
        if whole && pinned <= self.room() && events <= events_left {
            self.push(BlockSlice::whole(Arc::clone(block)));
            return Ok(());
        }
        let fits_alone = pinned <= self.request.bytes_max && events <= self.request.events_max;
        if events_left == 0 || (whole && fits_alone && !self.slices.is_empty()) {
            // The next scan gets it without a copy.
            self.stop();
            return Ok(());
        }
        // Sharing is possible only if the block fits; otherwise no need to walk further
        // than a copy may go.
        let walk_bytes = if pinned <= self.room() {
            usize::MAX
        } else {
            self.room()
        };
        let walk = |bytes, events| walk(block, self.start(block, after), (after, upto), bytes, events);
        let Some(run) = walk(walk_bytes, events_left)? else {
            return self.add_large(block, after, upto);
        };
        let shared = pinned <= self.room() && run.range.len() * 2 >= pinned;
        if !shared && run.copied_bytes > self.room() {
            // It was walked for sharing, but is too small a part: cut it for a copy.
            let room = self.room();
            let Some(run) = walk(room, events_left)? else {
                return self.add_large(block, after, upto);
            };
            return self.take(block, &run, false);
        }
        self.take(block, &run, shared)
    }

    fn take(&mut self, block: &Arc<Block>, run: &Run, shared: bool) -> Result<()> {
        self.push(slice(block, run, shared)?);
        if run.more {
            self.cut_at(block, run);
            self.stop();
        }
        Ok(())
    }

    fn cut_at(&mut self, block: &Arc<Block>, run: &Run) {
        self.cut = Some(Cut {
            block: Arc::downgrade(block),
            key: run.last,
            offset: run.range.end,
        });
    }

    /// The next row event alone is larger than the room left.
    fn add_large(&mut self, block: &Arc<Block>, after: OrderKey, upto: OrderKey) -> Result<()> {
        if !self.slices.is_empty() {
            self.stop();
            return Ok(());
        }
        let start = self.start(block, after);
        let Some(run) = walk(block, start, (after, upto), usize::MAX, 1)? else {
            return Ok(());
        };
        if self.request.lane {
            let shared = run.range.len() * 2 >= block.pinned_bytes();
            self.push(slice(block, &run, shared)?);
            self.cut_at(block, &run);
            self.stop();
        } else {
            let bytes = run.copied_bytes;
            let key = run.first;
            self.end = Some(ScanEnd::TooLarge { bytes, key });
        }
        Ok(())
    }
}

/// The longest run behind `after` of at most `bytes` copied bytes and `events` events;
/// none if not even one fits. Nothing before `start` lies behind `after`.
fn walk(
    block: &Block,
    start: usize,
    (after, upto): (OrderKey, OrderKey),
    bytes: usize,
    events: usize,
) -> Result<Option<Run>> {
    let mut run: Option<Run> = None;
    let (mut first_ts, mut txns, mut last_ts) = (None, 0_usize, None);
    for event in block.events_in(start..block.payload.len()) {
        let event = event.map_err(|_| malformed(block))?;
        if event.key <= after {
            continue;
        }
        if event.key > upto {
            break;
        }
        if last_ts != Some(event.key.commit_ts) {
            txns += 1;
            last_ts = Some(event.key.commit_ts);
        }
        first_ts.get_or_insert(event.key.commit_ts);
        let start = run.as_ref().map_or(event.offset, |r| r.range.start);
        let copied_bytes = event.end - start + txns * size_of::<weir_types::CommitTs>();
        let count = run.as_ref().map_or(0, |r| r.events as usize);
        if copied_bytes > bytes || count >= events {
            if let Some(run) = &mut run {
                run.more = true;
            }
            return Ok(run);
        }
        run = Some(Run {
            range: start..event.end,
            events: u32::try_from(count + 1).unwrap_or(u32::MAX),
            first: run.as_ref().map_or(event.key, |r| r.first),
            last: event.key,
            copied_bytes,
            more: false,
        });
    }
    Ok(run)
}

fn slice(block: &Arc<Block>, run: &Run, shared: bool) -> Result<BlockSlice> {
    if shared {
        return Ok(BlockSlice {
            block: Arc::clone(block),
            range: run.range.clone(),
            events: run.events,
            first: run.first,
            last: run.last,
        });
    }
    let copied = copy_out(block, run).ok_or_else(|| malformed(block))?;
    Ok(BlockSlice::whole(Arc::new(copied)))
}

/// Transaction number of the record at a place.
pub(crate) fn txn_at(payload: &[u8], at: usize) -> Option<u32> {
    let bytes = payload.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

/// Ordinal of the record at a place.
pub(crate) fn ordinal_at(payload: &[u8], at: usize) -> Option<u32> {
    txn_at(payload, at.checked_add(4)?)
}

/// Bytes of the body of the record at a place.
pub(crate) fn length_at(payload: &[u8], at: usize) -> Option<usize> {
    txn_at(payload, at.checked_add(12)?).map(|n| n as usize)
}

/// Adds `delta` to the transaction number of every record; None if the records are
/// malformed.
pub(crate) fn shift_txns(payload: &mut [u8], delta: u32) -> Option<()> {
    let mut at = 0_usize;
    while at < payload.len() {
        let txn = txn_at(payload, at)?.wrapping_add(delta);
        let next = at + RECORD_HEADER_BYTES + length_at(payload, at)?;
        payload.get_mut(at..at + 4)?.copy_from_slice(&txn.to_le_bytes());
        at = next;
    }
    Some(())
}

fn copy_out(block: &Block, run: &Run) -> Option<Block> {
    let records = block.payload.get(run.range.clone())?;
    let low = block.txns.partition_point(|t| *t < run.first.commit_ts);
    let high = block.txns.partition_point(|t| *t <= run.last.commit_ts);
    let mut payload = records.to_vec();
    shift_txns(&mut payload, 0_u32.wrapping_sub(u32::try_from(low).ok()?))?;
    Some(Block {
        version: Arc::clone(&block.version),
        txns: block.txns.get(low..high)?.to_vec(),
        payload,
        events: run.events,
        first: run.first,
        last: run.last,
    })
}

/// The records of a slice as a block of their own, so that they no longer pin the block
/// they came from. Offsets move down by the start of the slice's range.
///
/// # Errors
/// The block is malformed.
pub fn detach_slice(slice: &BlockSlice) -> Result<Block> {
    let run = Run {
        range: slice.range.clone(),
        events: slice.events,
        first: slice.first,
        last: slice.last,
        copied_bytes: slice.range.len(),
        more: false,
    };
    copy_out(&slice.block, &run).ok_or_else(|| malformed(&slice.block))
}

/// The block without the row events whose ordinals lie in `aborted`; None if nothing
/// is left. All row events are of one transaction.
pub(crate) fn without(block: Block, aborted: &[Range<u32>]) -> Result<Option<Block>> {
    if aborted.is_empty() {
        return Ok(Some(block));
    }
    let mut payload = Vec::with_capacity(block.payload.len());
    let (mut events, mut first, mut last) = (0_u32, None, OrderKey::MIN);
    for event in block.events() {
        let event = event.map_err(|_| malformed(&block))?;
        if aborted.iter().any(|r| r.contains(&event.key.ordinal)) {
            continue;
        }
        payload.extend_from_slice(block.payload.get(event.offset..event.end).unwrap_or_default());
        first.get_or_insert(event.key);
        last = event.key;
        events += 1;
    }
    payload.shrink_to_fit();
    Ok(first.map(|first| Block {
        version: block.version,
        txns: block.txns,
        payload,
        events,
        first,
        last,
    }))
}
