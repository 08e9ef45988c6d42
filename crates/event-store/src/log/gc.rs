//! Garbage collection: segments that every table has passed go, those that are less
//! than half live are written again without what was passed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_segment::ScannedFrame;
use weir_types::{AttemptId, OrderKey, TableName};

use super::disk::{Segment, Shown};
use super::index::{Footer, TablePointer};
use super::record::{BLOCK, BlockHead, FRAGMENT, fragment};
use super::seal::{install, rewrite, wake};
use super::seg_name;
use super::writer::LogWriter;
use crate::error::{Result, StoreError};
use crate::view::Floors;
use crate::wire::Input;

/// Segments written again per call: bounds the time that appends wait.
const REWRITES_MAX: usize = 1;

struct Candidate {
    data: Arc<Segment>,
    footer: Footer,
    bytes: u64,
}

/// Attempts without an end, and segments that hold parts of them.
struct OpenAttempts {
    attempts: HashSet<AttemptId>,
    segments: HashSet<u64>,
}

fn open_attempts(writer: &LogWriter) -> OpenAttempts {
    let state = &writer.state;
    let all = state.attempts.values().chain(state.prepared.values()).flatten();
    let mut open = OpenAttempts {
        attempts: HashSet::new(),
        segments: HashSet::new(),
    };
    for fragment in all {
        open.attempts.insert(fragment.at.attempt);
        open.segments.insert(fragment.at.segment);
    }
    open
}

/// Whether the table's fragments in the segment are still needed by a commit.
fn pinned(shown: &Shown, segment: u64, table: u32, floors: &Floors) -> bool {
    let pin = shown.pins.get(&segment).and_then(|tables| tables.get(&table));
    pin.is_some_and(|last| *last > floors.of(table))
}

/// Bytes of a segment that nobody needs any more.
fn dead_bytes(shown: &Shown, number: u64, tables: &[TablePointer], floors: &Floors) -> u64 {
    let needed = |p: &&TablePointer| {
        (p.first <= p.last && p.last > floors.of(p.table)) || pinned(shown, number, p.table, floors)
    };
    tables.iter().filter(|p| !needed(p)).map(|p| p.stored_bytes).sum()
}

fn is_dead(shown: &Shown, number: u64, tables: &[TablePointer], floors: &Floors) -> bool {
    let rows = tables
        .iter()
        .any(|p| p.first <= p.last && p.last > floors.of(p.table));
    let pins = shown.pins.get(&number).is_some_and(|pins| {
        let mut pins = pins.iter();
        pins.any(|(table, last)| *last > floors.of(*table))
    });
    let next = shown.segments.range(number + 1..).next();
    let tokens = next.is_none_or(|(_, slot)| slot.data.base_ts > floors.max.commit_ts);
    !rows && !pins && !tokens
}

pub(crate) fn advance(
    writer: &mut LogWriter,
    tables: &[(TableName, OrderKey)],
    schema: OrderKey,
) -> Result<u64> {
    let shared = Arc::clone(&writer.shared);
    let (floors, candidates) = {
        let shown = shared.read();
        let floors = Floors::new(&shown.view, tables, schema);
        let sealed = shown.segments.values().filter_map(|slot| {
            Some(Candidate {
                data: Arc::clone(&slot.data),
                footer: slot.data.footer?,
                bytes: slot.bytes,
            })
        });
        (floors, sealed.collect::<Vec<_>>())
    };
    let open = open_attempts(writer);
    let (mut freed, mut rewrites, mut dead) = (0, 0, Vec::new());
    for candidate in candidates {
        let number = candidate.data.number;
        let directory = shared.directory(&candidate.data, &candidate.footer)?;
        let (is_dead, unused) = {
            let shown = shared.read();
            let dead = is_dead(&shown, number, &directory, &floors) && !open.segments.contains(&number);
            (dead, dead_bytes(&shown, number, &directory, &floors))
        };
        if is_dead {
            dead.push((candidate, directory));
        } else if rewrites < REWRITES_MAX && unused * 2 > candidate.bytes && !open.segments.contains(&number)
        {
            let saved = rewrite_live(writer, &candidate, &directory, &floors, &open)?;
            rewrites += usize::from(saved > 0);
            freed += saved;
        }
    }
    freed += remove(writer, &dead, &floors)?;
    let mut shown = shared.write();
    shown.view.history.advance(floors.min);
    writer.state.history.advance(floors.min);
    let coverage = &shown.view.coverage;
    writer.state.catalog.forget(|table| coverage.from(table));
    let known = writer.state.catalog.versions();
    shown.view.versions.retain(|id, _| known.contains_key(id));
    drop(shown);
    if freed > 0 {
        wake(&shared)?;
    }
    Ok(freed)
}

/// Notes up to where row events of the tables may be gone, fragments whose commit lies
/// in another segment included.
fn note_removed(
    writer: &mut LogWriter,
    number: u64,
    tables: &[TablePointer],
    floors: &Floors,
) -> Vec<(u32, OrderKey)> {
    let pins = writer
        .shared
        .read()
        .pins
        .get(&number)
        .cloned()
        .unwrap_or_default();
    let passed = pins
        .into_iter()
        .filter(|(table, last)| *last <= floors.of(*table));
    let mut raised: Vec<(u32, OrderKey)> = passed.collect();
    for pointer in tables.iter().filter(|p| p.first <= p.last) {
        let upto = pointer.last.min(floors.of(pointer.table));
        if pointer.first > upto {
            continue;
        }
        raised.push((pointer.table, upto));
    }
    for (table, upto) in &raised {
        writer.manifest.coverage.raise(*table, *upto);
    }
    raised
}

fn show_removed(shown: &mut Shown, raised: &[(u32, OrderKey)]) {
    for (table, upto) in raised {
        shown.view.coverage.raise(*table, *upto);
    }
}

type Dead = (Candidate, Arc<Vec<TablePointer>>);

fn remove(writer: &mut LogWriter, dead: &[Dead], floors: &Floors) -> Result<u64> {
    if dead.is_empty() {
        return Ok(0);
    }
    let shared = Arc::clone(&writer.shared);
    let (old, mut raised) = (writer.manifest.clone(), Vec::new());
    for (candidate, directory) in dead {
        raised.extend(note_removed(writer, candidate.data.number, directory, floors));
        writer.manifest.remove(candidate.data.number);
    }
    if let Err(error) = writer.manifest.write(&*shared.volume) {
        writer.manifest = old;
        return Err(error);
    }
    let mut freed = 0;
    {
        let mut shown = shared.write();
        show_removed(&mut shown, &raised);
        for (candidate, directory) in dead {
            let number = candidate.data.number;
            shown.segments.remove(&number);
            shown.pins.remove(&number);
            for pointer in directory.iter() {
                shown.view.sub_live(pointer.table, pointer.stored_bytes);
            }
            freed += candidate.bytes;
        }
    }
    shared.closed_bytes.fetch_sub(freed, Ordering::AcqRel);
    for (candidate, _) in dead {
        let path = seg_name(candidate.data.number);
        shared
            .volume
            .remove(&path)
            .map_err(|source| StoreError::Io { path, source })?;
    }
    Ok(freed)
}

fn rewrite_live(
    writer: &mut LogWriter,
    candidate: &Candidate,
    directory: &[TablePointer],
    floors: &Floors,
    open: &OpenAttempts,
) -> Result<u64> {
    let shared = Arc::clone(&writer.shared);
    let number = candidate.data.number;
    let held: HashSet<u32> = {
        let shown = shared.read();
        let held = directory
            .iter()
            .filter(|p| pinned(&shown, number, p.table, floors));
        held.map(|p| p.table).collect()
    };
    let keep = |frame: &ScannedFrame| match frame.kind {
        BLOCK => BlockHead::decode(&frame.head).is_none_or(|h| h.last > floors.of(h.table)),
        FRAGMENT => fragment(&mut Input::new(&frame.head))
            .is_none_or(|f| open.attempts.contains(&f.attempt) || held.contains(&f.table)),
        _ => true,
    };
    let keep_entry = |table: u32, last: OrderKey| last > floors.of(table);
    let end = candidate
        .bytes
        .saturating_sub(weir_segment::format::POINTER_BYTES as u64);
    let new = match rewrite(&shared, &candidate.data, end, false, &keep, &keep_entry) {
        Ok(new) => new,
        // Nothing was lost; whole segments may still go.
        Err(error) if error.is_full() => return Ok(0),
        Err(error) => return Err(error),
    };
    let old = writer.manifest.clone();
    let raised = note_removed(writer, number, directory, floors);
    if let Err(error) = writer.manifest.write(&*shared.volume) {
        writer.manifest = old;
        return Err(error);
    }
    {
        let mut shown = shared.write();
        show_removed(&mut shown, &raised);
        for pointer in directory {
            shown.view.sub_live(pointer.table, pointer.stored_bytes);
        }
        for (table, bytes) in &new.stored {
            shown.view.add_live(*table, *bytes);
        }
    }
    let saved = candidate.bytes.saturating_sub(new.bytes);
    install(&shared, &candidate.data, new, candidate.bytes)?;
    Ok(saved)
}
