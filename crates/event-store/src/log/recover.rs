//! Opening a log: the last segment's snapshot and what follows it give the state, the
//! others their footers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use weir_segment::{SegmentReader, SegmentWriter, Volume};
use weir_types::OrderKey;

use super::disk::{Segment, Shared, Shown, Slot, lock};
use super::index::{OpenIndex, read_footer};
use super::manifest::Manifest;
use super::reader::LogReader;
use super::replay::{Walked, first_of, walk};
use super::seal;
use super::writer::{LogWriter, begin_segment};
use super::{LogOptions, Opened, log_name, parse_name, seg_name};
use crate::entry::Batch;
use crate::error::{Result, StoreError};
use crate::memory::random_lineage;
use crate::state::WriterState;
use crate::tail::Tail;
use crate::view::View;

fn io(path: &str) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { path, source }
}

/// Files of the live segments: number → sealed.
struct Files {
    sealed: BTreeMap<u64, bool>,
}

/// Sorts out what a crash may have left.
fn tidy(volume: &dyn Volume, manifest: &Manifest) -> Result<Files> {
    let (mut logs, mut segs) = (BTreeSet::new(), BTreeSet::new());
    let remove = |name: &str| volume.remove(name).map_err(io(name));
    for name in volume.list().map_err(io("the store's folder"))? {
        match parse_name(&name) {
            Some((_, "tmp")) => remove(&name)?,
            Some((number, _)) if number <= manifest.last && !manifest.is_live(number) => remove(&name)?,
            Some((number, "log")) => {
                logs.insert(number);
            }
            Some((number, _)) => {
                segs.insert(number);
            }
            None => {}
        }
    }
    for number in logs.intersection(&segs) {
        remove(&log_name(*number))?;
    }
    let later: Vec<u64> = logs
        .union(&segs)
        .copied()
        .filter(|n| *n > manifest.last)
        .collect();
    for number in later {
        drop_unnamed(volume, number, segs.contains(&number))?;
        logs.remove(&number);
        segs.remove(&number);
    }
    let mut sealed = BTreeMap::new();
    for number in (manifest.floor..=manifest.last).filter(|n| manifest.is_live(*n)) {
        match (segs.contains(&number), logs.contains(&number)) {
            (true, _) => sealed.insert(number, true),
            (false, true) => sealed.insert(number, false),
            (false, false) => return Err(StoreError::MissingSegment(number)),
        };
    }
    Ok(Files { sealed })
}

/// A segment that the manifest does not name was being begun: nothing but its snapshot
/// may be in it.
fn drop_unnamed(volume: &dyn Volume, number: u64, sealed: bool) -> Result<()> {
    let name = if sealed {
        seg_name(number)
    } else {
        log_name(number)
    };
    let file = volume.open(&name).map_err(io(&name))?;
    let mut groups = 0;
    if let Ok(reader) = SegmentReader::open(file, &name) {
        let mut walk = reader.groups(None, &|_| false)?;
        while groups < 2 && walk.next_group()?.is_some() {
            groups += 1;
        }
    }
    if sealed || groups > 1 {
        let reason = format!("segment {number} is in use but not in the manifest");
        return Err(StoreError::Manifest(reason));
    }
    volume.remove(&name).map_err(io(&name))
}

/// Opens what is there, or begins a store.
pub(crate) fn open(volume: Arc<dyn Volume>, options: LogOptions) -> Result<Opened> {
    let manifest = match Manifest::read(&*volume)? {
        Some(manifest) => manifest,
        None => {
            let lineage = match options.lineage {
                Some(lineage) => lineage,
                None => random_lineage()?,
            };
            let mut manifest = Manifest::new(lineage);
            manifest.write(&*volume)?;
            manifest
        }
    };
    let files = tidy(&*volume, &manifest)?;
    let tail_bytes = options.memory_bytes - options.memory_bytes / 4;
    let shown = Shown {
        view: View::new(manifest.lineage, tail_bytes),
        segments: BTreeMap::new(),
        pins: HashMap::new(),
    };
    let start = options.start.clone();
    let shared = Arc::new(Shared::new(Arc::clone(&volume), options, shown));
    let opened = match files.sealed.last_key_value() {
        None => begin(shared, manifest, start)?,
        Some((last, _)) => resume(shared, manifest, &files, *last)?,
    };
    start_sealer(opened)
}

fn start_sealer((recovered, mut writer, reader): Opened) -> Result<Opened> {
    let shared = Arc::clone(&writer.shared);
    if shared.options.background_seal {
        let (sender, receiver) = mpsc::channel();
        *lock(&shared.wake) = Some(sender);
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("store-seal".to_owned());
        let handle = thread.spawn(move || seal::serve(&served, &receiver));
        writer.sealer = Some(handle.map_err(io("the sealing thread"))?);
    }
    seal::offer(&shared, writer.number)?;
    Ok((recovered, writer, reader))
}

fn writer(shared: &Arc<Shared>, state: WriterState, log: SegmentWriter, manifest: Manifest) -> LogWriter {
    LogWriter {
        shared: Arc::clone(shared),
        state,
        batch: Batch::default(),
        log,
        number: manifest.last,
        manifest,
        groups: 1,
        infos: Vec::new(),
        group_bytes: 0,
        meta_bytes: 0,
        entries: 0,
        sealer: None,
    }
}

/// A store without segments.
fn begin(
    shared: Arc<Shared>,
    mut manifest: Manifest,
    start: Option<weir_types::SourcePosition>,
) -> Result<Opened> {
    let state = WriterState::new(start, false);
    let number = manifest.last + 1;
    let begun = begin_segment(&shared, &state, number, 0)?;
    manifest.last = number;
    manifest.write(&*shared.volume)?;
    shared.write().segments.insert(number, begun.slot);
    let recovered = state.recovered(manifest.lineage);
    let writer = writer(&shared, state, begun.log, manifest);
    Ok((recovered, writer, Arc::new(LogReader { shared })))
}

fn open_reader(shared: &Shared, manifest: &Manifest, number: u64, sealed: bool) -> Result<SegmentReader> {
    let name = if sealed {
        seg_name(number)
    } else {
        log_name(number)
    };
    let file = shared.volume.open(&name).map_err(io(&name))?;
    let reader = SegmentReader::open(file, &name)?;
    if reader.id().number != number || reader.id().lineage != manifest.lineage.0 {
        return Err(reader.corrupt(0, "it is another store's segment").into());
    }
    Ok(reader)
}

fn show_index(shown: &mut Shown, index: &OpenIndex) {
    for (table, bytes) in &index.stored {
        shown.view.add_live(*table, *bytes);
    }
    for (table, entries) in &index.entries {
        if let Some(entry) = entries.last() {
            let last = shown.view.last.entry(*table).or_default();
            *last = (*last).max(entry.last);
        }
    }
    shown.pin(&index.pins());
}

/// Enters a segment that is not the last.
fn enter(shared: &Shared, manifest: &Manifest, number: u64, sealed: bool, end: Option<u64>) -> Result<()> {
    let reader = open_reader(shared, manifest, number, sealed)?;
    let uid = shared.uid();
    if sealed {
        let read = read_footer(&reader)?;
        let bytes = reader.size()?;
        let data = Segment {
            number,
            uid,
            reader,
            base: read.footer.base,
            base_ts: read.footer.base_ts,
            footer: Some(read.footer),
        };
        let mut shown = shared.write();
        let shown = &mut *shown;
        for pointer in read.tables.iter() {
            shown.view.add_live(pointer.table, pointer.stored_bytes);
            let last = shown.view.last.entry(pointer.table).or_default();
            *last = (*last).max(pointer.last);
        }
        shown.pin(&read.pins);
        insert(shared, shown, data, None, bytes, 0);
        return Ok(());
    }
    let end = end.ok_or_else(|| reader.corrupt(0, "the segment behind it is missing"))?;
    let walked = walk(&reader, Some(end))?;
    // A footer cut short lies behind it.
    reader.file().set_len(end).map_err(io(reader.name()))?;
    let data = Segment {
        number,
        uid,
        reader,
        base: walked.base,
        base_ts: walked.base_ts,
        footer: None,
    };
    let mut shown = shared.write();
    show_index(&mut shown, &walked.index);
    insert(
        shared,
        &mut shown,
        data,
        Some(Arc::new(walked.index)),
        end,
        walked.groups,
    );
    Ok(())
}

fn insert(
    shared: &Shared,
    shown: &mut Shown,
    data: Segment,
    open: Option<Arc<OpenIndex>>,
    bytes: u64,
    groups: u64,
) {
    shared.closed_bytes.fetch_add(bytes, Ordering::AcqRel);
    let slot = Slot {
        data: Arc::new(data),
        open,
        bytes,
        groups,
    };
    shown.segments.insert(slot.data.number, slot);
}

/// Makes the valid prefix of the last segment durable before any of it is visible:
/// after a crash it may be in the page cache only, and after a failed sync the system
/// may take lost pages for clean ones.
fn settle(reader: &SegmentReader, end: u64) -> Result<()> {
    let file = reader.file();
    file.set_len(end).map_err(io(reader.name()))?;
    let mut groups = reader.groups(Some(end), &|_| false)?;
    while groups.next_group()?.is_some() {}
    groups.rewrite()?;
    file.sync_data().map_err(io(reader.name()))
}

fn resume(shared: Arc<Shared>, manifest: Manifest, files: &Files, last: u64) -> Result<Opened> {
    let numbers: Vec<(u64, bool)> = files.sealed.iter().map(|(n, s)| (*n, *s)).collect();
    for pair in numbers.windows(2) {
        let [(number, sealed), (next, next_sealed)] = pair else {
            continue;
        };
        let mut end = None;
        if !sealed && *next == number + 1 {
            let reader = open_reader(&shared, &manifest, *next, *next_sealed)?;
            end = Some(first_of(&reader)?.previous_end);
        }
        enter(&shared, &manifest, *number, *sealed, end)?;
    }
    let sealed = files.sealed.get(&last).copied().unwrap_or(false);
    let mut manifest = manifest;
    let reader = open_reader(&shared, &manifest, last, sealed)?;
    if sealed || last != manifest.last {
        return Err(reader.corrupt(0, "the last segment is sealed").into());
    }
    let mut walked = walk(&reader, None)?;
    // What has neither commit nor prepare is read again from the source.
    walked.state.attempts.clear();
    settle(&reader, walked.end)?;
    manifest.coverage.merge(&walked.coverage);
    let log = SegmentWriter::resume(reader.file(), reader.name(), walked.end, walked.groups);
    show(&shared, &walked);
    shared.write().view.coverage = manifest.coverage.clone();
    let ended = manifest
        .coverage
        .ended()
        .filter_map(|id| walked.state.catalog.names().get(id as usize));
    for name in ended.cloned().collect::<Vec<_>>() {
        walked.state.give_up(&name);
    }
    let recovered = walked.state.recovered(manifest.lineage);
    let entries = walked.index.count;
    let data = Segment {
        number: last,
        uid: shared.uid(),
        reader,
        base: walked.base,
        base_ts: walked.base_ts,
        footer: None,
    };
    let slot = Slot {
        data: Arc::new(data),
        open: Some(Arc::new(walked.index)),
        bytes: walked.end,
        groups: walked.groups,
    };
    shared.write().segments.insert(last, slot);
    let mut writer = writer(&shared, walked.state, log, manifest);
    writer.groups = walked.groups;
    writer.entries = entries;
    Ok((recovered, writer, Arc::new(LogReader { shared })))
}

/// Fills the view from the recovered state.
fn show(shared: &Shared, walked: &Walked) {
    let state = &walked.state;
    let mut shown = shared.write();
    for name in state.catalog.names() {
        shown.view.add_table(name.clone());
    }
    for (id, info) in state.catalog.versions() {
        shown.view.versions.insert(*id, Arc::clone(&info.version));
    }
    shown.view.resolved = state.clock.last();
    shown.view.history = state.history.clone();
    let tail_bytes = shared.options.memory_bytes - shared.options.memory_bytes / 4;
    shown.view.tail = Tail::new(tail_bytes, OrderKey::end_of(state.clock.last()));
    show_index(&mut shown, &walked.index);
}
