//! Sealing: a segment that is not written any more gets a footer; if its groups are
//! small they are coalesced into a new file first, so that a scan of one table reads
//! few blocks.
//!
//! Crash-safe at any point: the new file is synced before it takes its name, and the
//! old one goes only afterwards; a footer written behind the last group of the old file
//! lies behind the end that the next segment's snapshot names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use weir_segment::{Codec, FrameAddress, ScannedFrame, ScannedGroup, SegmentReader, SegmentWriter};
use weir_types::CommitTs;

use super::disk::{Segment, Shared, Slot, lock};
use super::index::{GroupInfo, OpenIndex, write_footer};
use super::record::{BASE, BLOCK, BlockHead, COMMIT, DDL, META, TABLE_INDEX, VERSION};
use super::{log_name, seg_name, tmp_name};
use crate::catalog::TableId;
use crate::error::{Result, StoreError};
use crate::meta::MetaBatch;
use crate::slice::shift_txns;

/// Raw bytes of a coalesced group over all tables.
const COALESCED_BYTES: u64 = 8 << 20;
/// Raw bytes of a coalesced block: small enough to be cut to a small share without much
/// reading.
const COALESCED_BLOCK_BYTES: usize = 1 << 20;

fn io(name: &str) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = name.to_owned();
    move |source| StoreError::Io { path, source }
}

/// Called when groups of segment `number` became visible: what lies before it is
/// complete and may be sealed.
pub(crate) fn offer(shared: &Arc<Shared>, number: u64) -> Result<()> {
    let complete: Vec<u64> = {
        let shown = shared.read();
        let before = shown.segments.range(..number);
        before
            .filter(|(_, slot)| slot.open.is_some())
            .map(|(n, _)| *n)
            .collect()
    };
    {
        let mut waiting = lock(&shared.unsealed);
        for number in complete {
            if !waiting.contains(&number) {
                waiting.push_back(number);
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
    }
    wake(shared)
}

/// Lets the sealing thread go on, or seals here if there is none.
pub(crate) fn wake(shared: &Arc<Shared>) -> Result<()> {
    let background = lock(&shared.wake).as_ref().map(|wake| wake.send(()).is_ok());
    match background {
        Some(true) => Ok(()),
        Some(false) => Err(StoreError::Poisoned),
        None => run(shared),
    }
}

/// The sealing thread; ends when the channel closes.
pub(crate) fn serve(shared: &Arc<Shared>, wake: &Receiver<()>) {
    while wake.recv().is_ok() {
        if let Err(error) = run(shared) {
            tracing::error!(%error, "sealing a segment failed");
            shared.fail();
            return;
        }
    }
}

/// Seals what waits; without room the rest waits on.
fn run(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let Some(number) = lock(&shared.unsealed).front().copied() else {
            return Ok(());
        };
        match seal(shared, number) {
            Ok(()) => {
                lock(&shared.unsealed).pop_front();
            }
            Err(error) if error.is_full() => return Ok(()),
            Err(error) => {
                shared.fail();
                return Err(error);
            }
        }
    }
}

/// Whether coalescing saves enough groups to be worth writing the segment again.
fn worthwhile(groups: &[GroupInfo]) -> bool {
    let (mut outputs, mut run) = (0_usize, None);
    for group in groups {
        run = match run {
            Some(bytes) if group.plain && bytes + group.raw_bytes <= COALESCED_BYTES => {
                Some(bytes + group.raw_bytes)
            }
            _ => {
                outputs += 1;
                group.plain.then_some(group.raw_bytes)
            }
        };
    }
    outputs * 4 <= groups.len() * 3
}

fn seal(shared: &Arc<Shared>, number: u64) -> Result<()> {
    let taken = {
        let shown = shared.read();
        shown.segments.get(&number).and_then(|slot| {
            let index = Arc::clone(slot.open.as_ref()?);
            Some((Arc::clone(&slot.data), index, slot.bytes, slot.groups))
        })
    };
    let Some((old, index, end, groups)) = taken else {
        return Ok(());
    };
    if worthwhile(&index.groups) {
        let rewritten = rewrite(shared, &old, end, true, &|_| true, &|_, _| true)?;
        return install(shared, &old, rewritten, end);
    }
    let name = log_name(number);
    let file = old.reader.file();
    let writer = SegmentWriter::resume(Arc::clone(&file), &name, end, groups);
    let (footer, bytes) = match write_footer(writer, &index, (old.base, old.base_ts)) {
        Ok(written) => written,
        Err(error) => {
            if error.is_full() {
                file.set_len(end).map_err(io(&name))?;
            }
            return Err(error);
        }
    };
    shared
        .volume
        .rename(&name, &seg_name(number))
        .map_err(io(&name))?;
    shared.volume.sync().map_err(io(&name))?;
    let data = Segment {
        number,
        uid: shared.uid(),
        reader: SegmentReader::of_new(file, &seg_name(number), old.reader.id()),
        base: old.base,
        base_ts: old.base_ts,
        footer: Some(footer),
    };
    let rewritten = Rewritten {
        data,
        bytes,
        stored: index.stored.clone().into_iter().collect(),
    };
    swap(shared, rewritten, end);
    Ok(())
}

/// A new file of a segment, not yet under its name.
pub(crate) struct Rewritten {
    pub(crate) data: Segment,
    pub(crate) bytes: u64,
    /// Bytes per table.
    pub(crate) stored: BTreeMap<TableId, u64>,
}

/// Gives the new file its name, shows it, and removes an unsealed old one.
pub(crate) fn install(shared: &Shared, old: &Segment, new: Rewritten, old_bytes: u64) -> Result<()> {
    let number = old.number;
    let (from, to) = (tmp_name(number), seg_name(number));
    shared.volume.rename(&from, &to).map_err(io(&from))?;
    shared.volume.sync().map_err(io(&to))?;
    swap(shared, new, old_bytes);
    if old.footer.is_none() {
        shared.volume.remove(&log_name(number)).map_err(io(&from))?;
    }
    Ok(())
}

fn swap(shared: &Shared, new: Rewritten, old_bytes: u64) {
    shared.closed_bytes.fetch_add(new.bytes, Ordering::AcqRel);
    shared.closed_bytes.fetch_sub(old_bytes, Ordering::AcqRel);
    let mut shown = shared.write();
    let shown = &mut *shown;
    let number = new.data.number;
    let slot = Slot {
        data: Arc::new(new.data),
        open: None,
        bytes: new.bytes,
        groups: 0,
    };
    let old = shown.segments.insert(number, slot);
    if let Some(index) = old.and_then(|slot| slot.open) {
        for (table, bytes) in &index.stored {
            shown.view.sub_live(*table, *bytes);
        }
        for (table, bytes) in new.stored {
            shown.view.add_live(table, bytes);
        }
    }
}

type KeepFrame<'a> = &'a dyn Fn(&ScannedFrame) -> bool;
type KeepEntry<'a> = &'a dyn Fn(TableId, weir_types::OrderKey) -> bool;

/// Writes the groups below `end` to a new file with a footer: coalesced if asked for,
/// without the frames and index entries that are not kept.
pub(crate) fn rewrite(
    shared: &Shared,
    old: &Segment,
    end: u64,
    coalesce: bool,
    keep: KeepFrame<'_>,
    keep_entry: KeepEntry<'_>,
) -> Result<Rewritten> {
    let name = tmp_name(old.number);
    let copied = copy_all(shared, old, end, coalesce, keep, keep_entry);
    if copied.as_ref().is_err_and(StoreError::is_full) {
        // Give the room back; the file is of no use.
        shared.volume.remove(&name).map_err(io(&name))?;
    }
    copied
}

fn copy_all(
    shared: &Shared,
    old: &Segment,
    end: u64,
    coalesce: bool,
    keep: KeepFrame<'_>,
    keep_entry: KeepEntry<'_>,
) -> Result<Rewritten> {
    let name = tmp_name(old.number);
    let writer = SegmentWriter::create(&*shared.volume, &name, old.reader.id())?;
    let file = writer.file();
    let mut copier = Copier {
        from: &old.reader,
        number: old.number,
        to: writer,
        index: OpenIndex::default(),
        base: FrameAddress::default(),
    };
    let mut groups = old.reader.groups(Some(end), &|_| false)?;
    let (mut run, mut run_bytes): (Vec<ScannedGroup>, u64) = (Vec::new(), 0);
    while let Some(mut group) = groups.next_group()? {
        group.frames.retain(|f| f.kind < TABLE_INDEX && keep(f));
        let plain = group
            .frames
            .iter()
            .all(|f| matches!(f.kind, VERSION | BLOCK | META | DDL));
        let bytes: u64 = group.frames.iter().map(|f| u64::from(f.raw_bytes)).sum();
        if !(coalesce && plain && run_bytes + bytes <= COALESCED_BYTES) {
            copier.flush(&run)?;
            run.clear();
            run_bytes = 0;
        }
        if coalesce && plain {
            run_bytes += bytes;
            run.push(group);
        } else {
            copier.copy(&group)?;
        }
    }
    if let Some((offset, reason)) = groups.broken() {
        return Err(old.reader.corrupt(offset, reason).into());
    }
    copier.flush(&run)?;
    let mut index = copier.index;
    for (table, entries) in &mut index.entries {
        entries.retain(|entry| keep_entry(*table, entry.last));
    }
    index.entries.retain(|_, entries| !entries.is_empty());
    let base = copier.base;
    let (footer, bytes) = write_footer(copier.to, &index, (base, old.base_ts))?;
    let data = Segment {
        number: old.number,
        uid: shared.uid(),
        reader: SegmentReader::of_new(file, &seg_name(old.number), old.reader.id()),
        base,
        base_ts: old.base_ts,
        footer: Some(footer),
    };
    let stored = index.stored.into_iter().collect();
    Ok(Rewritten { data, bytes, stored })
}

/// Block under construction.
struct Merged {
    head: BlockHead,
    payload: Vec<u8>,
}

struct Copier<'a> {
    from: &'a SegmentReader,
    number: u64,
    to: SegmentWriter,
    index: OpenIndex,
    base: FrameAddress,
}

impl Copier<'_> {
    fn malformed(&self, frame: &ScannedFrame) -> StoreError {
        self.from
            .corrupt(frame.address.offset, "a frame is malformed")
            .into()
    }

    /// One frame as it is.
    fn copy_frame(&mut self, frame: &ScannedFrame) -> Result<()> {
        let address = self.to.copy(self.from, frame)?;
        if frame.kind == BASE {
            self.base = address;
        }
        let body = match frame.kind {
            META | COMMIT => Some(self.from.read(frame.address)?.body),
            _ => None,
        };
        let at = (self.number, address);
        let added = self
            .index
            .add_frame(frame.kind, &frame.head, frame.raw_bytes, body.as_deref(), at);
        added.ok_or_else(|| self.malformed(frame))
    }

    fn copy(&mut self, group: &ScannedGroup) -> Result<()> {
        if group.frames.is_empty() {
            return Ok(());
        }
        for frame in &group.frames {
            self.copy_frame(frame)?;
        }
        Ok(self.to.end_group(b"")?)
    }

    /// A run of groups as one.
    fn flush(&mut self, run: &[ScannedGroup]) -> Result<()> {
        match run {
            [] => Ok(()),
            [one] => self.copy(one),
            many => self.merge(many),
        }
    }

    fn merge(&mut self, run: &[ScannedGroup]) -> Result<()> {
        let mut blocks: BTreeMap<TableId, Merged> = BTreeMap::new();
        let mut meta: Option<MetaBatch> = None;
        for frame in run.iter().flat_map(|g| &g.frames) {
            match frame.kind {
                BLOCK => self.merge_block(frame, &mut blocks)?,
                META => {
                    let read = self.from.read(frame.address)?;
                    let next = MetaBatch::decode(&read.body).ok_or_else(|| self.malformed(frame))?;
                    meta = Some(match meta.take() {
                        None => next,
                        Some(last) => self.merge_meta(last, next)?,
                    });
                }
                _ => self.copy_frame(frame)?,
            }
        }
        for merged in blocks.into_values() {
            self.write_block(&merged)?;
        }
        if let Some(meta) = meta {
            self.write_meta(&meta)?;
        }
        if self.to.frames() > 0 {
            self.to.end_group(b"")?;
        }
        Ok(())
    }

    fn merge_meta(&mut self, mut last: MetaBatch, next: MetaBatch) -> Result<MetaBatch> {
        let joins = last.upto.file == next.upto.file
            && last.upto.identity == next.upto.identity
            && next.before.is_none();
        if !joins {
            self.write_meta(&last)?;
            return Ok(next);
        }
        last.records.extend(next.records);
        last.upto = next.upto;
        Ok(last)
    }

    fn write_meta(&mut self, meta: &MetaBatch) -> Result<()> {
        let address = self.to.append(META, b"", Codec::Lz4, &meta.encode())?;
        self.index.add_meta(meta, address);
        Ok(())
    }

    fn merge_block(&mut self, frame: &ScannedFrame, blocks: &mut BTreeMap<TableId, Merged>) -> Result<()> {
        let head = BlockHead::decode(&frame.head).ok_or_else(|| self.malformed(frame))?;
        let mut payload = self.from.read(frame.address)?.body;
        let Some(merged) = blocks.get_mut(&head.table) else {
            blocks.insert(head.table, Merged { head, payload });
            return Ok(());
        };
        let fits = merged.payload.len() + payload.len() <= COALESCED_BLOCK_BYTES;
        if merged.head.version != head.version || !fits {
            let full = std::mem::replace(merged, Merged { head, payload });
            return self.write_block(&full);
        }
        let delta = u32::try_from(merged.head.txns.len()).unwrap_or(u32::MAX);
        shift_txns(&mut payload, delta).ok_or_else(|| self.malformed(frame))?;
        merged.head.txns.extend(head.txns);
        merged.head.events += head.events;
        merged.head.last = head.last;
        merged.payload.append(&mut payload);
        Ok(())
    }

    fn write_block(&mut self, merged: &Merged) -> Result<()> {
        let head = merged.head.encode();
        let address = self.to.append(BLOCK, &head, Codec::Lz4, &merged.payload)?;
        let raw_bytes = u32::try_from(merged.payload.len()).unwrap_or(u32::MAX);
        let at = (self.number, address);
        let added = self.index.add_frame(BLOCK, &head, raw_bytes, None, at);
        added.ok_or(StoreError::InvalidInput("a coalesced block is malformed"))
    }
}

/// Commit-ts at the start of a segment, from the head of its BASE.
pub(crate) fn base_ts(head: &[u8]) -> Option<CommitTs> {
    crate::wire::Input::new(head).number().map(CommitTs)
}
