//! Cuts and flips of every byte of the tail.

use weir_types::CommitTs;

use super::*;
use crate::conformance::Run;

/// The store's files after a run, and the resolved-ts after each sync of the last
/// segment.
fn written(close: bool) -> (FaultVolume, LogOptions, CommitTs) {
    let options = LogOptions {
        segment_bytes: 40 << 10,
        ..small()
    };
    let mut log = Log::new(options.clone());
    {
        let mut run = Run::new(&mut log);
        for op in mixed().iter().take(26) {
            run.step(op);
        }
        run.step(&Op::Sync);
    }
    let mut open = open_log(&log.volume, &options).unwrap();
    let resolved = open.reader.resolved();
    if close {
        open.writer.close().unwrap();
    }
    drop(open);
    (log.volume, options, resolved)
}

fn last_segment(volume: &FaultVolume) -> String {
    volume.files().into_keys().rfind(|n| n.ends_with(".log")).unwrap()
}

/// Opens, goes on, and opens again: returns the resolved-ts found first.
fn reopen_and_go_on(volume: &FaultVolume, options: &LogOptions) -> Result<CommitTs, StoreError> {
    let mut open = open_log(volume, options)?;
    let first = open.recovered.resolved;
    let input = crate::conformance::Model::new(open.recovered.lineage).tick(&mut Rng::new(1));
    open.writer.append(input, 2_000_000).unwrap();
    open.writer.commit_group().unwrap().unwrap().wait().unwrap();
    let second = open.reader.resolved();
    assert!(second > first);
    drop(open);
    assert_eq!(open_log(volume, options).unwrap().recovered.resolved, second);
    Ok(first)
}

#[test]
fn every_cut_of_the_tail_leaves_a_prefix() {
    let (volume, options, resolved) = written(false);
    let name = last_segment(&volume);
    let whole = volume.files()[&name].clone();
    let (mut last, mut places) = (CommitTs::ZERO, 0);
    for cut in 0..=whole.len() {
        let mut files = volume.files();
        files.insert(name.clone(), whole[..cut].to_vec());
        match reopen_and_go_on(&FaultVolume::with_files(files), &options) {
            Ok(found) => {
                assert!(found >= last && found <= resolved, "cut at {cut}");
                places += usize::from(found > last);
                last = found;
            }
            Err(error) => assert!(
                last == CommitTs::ZERO && error.is_corrupt(),
                "cut at {cut}: {error}"
            ),
        }
    }
    assert_eq!(last, resolved);
    assert!(places > 5, "{places}");
}

#[test]
fn every_flip_of_synced_data_is_an_error() {
    let (volume, options, resolved) = written(true);
    let name = last_segment(&volume);
    let len = volume.files()[&name].len();
    let mut dropped = 0;
    for at in 0..len {
        let mut files = volume.files();
        files.get_mut(&name).unwrap()[at] ^= 0x21;
        match reopen_and_go_on(&FaultVolume::with_files(files), &options) {
            // The mark of the clean end itself says nothing of value.
            Ok(found) => {
                assert_eq!(found, resolved, "flip at {at}");
                dropped += 1;
            }
            Err(error) => assert!(error.is_corrupt(), "flip at {at}: {error}"),
        }
    }
    assert!(dropped < 100, "{dropped}");
}

#[test]
fn every_flip_in_a_sealed_segment_is_an_error_or_harmless() {
    let mut log = Log::new(small());
    run(&mut log, &mixed());
    let files = log.volume.files();
    let name = files.keys().find(|n| n.ends_with(".seg")).unwrap().clone();
    let tables: Vec<_> = crate::conformance::Model::new(weir_types::LineageId(1)).tables();
    let rows = |open: &Open| -> Result<Vec<usize>, StoreError> {
        let mut out = Vec::new();
        for table in &tables {
            // From the first place that GC has left; a detached table shows nothing.
            let held = open.reader.coverage(table);
            let Some(held) = held.filter(|held| !held.ended) else {
                out.push(0);
                continue;
            };
            let mut after = held.from;
            let mut seen = 0;
            loop {
                let request = ScanRequest {
                    table: table.clone(),
                    after,
                    upto: held.to,
                    bytes_max: 1 << 20,
                    events_max: 10_000,
                    lane: false,
                };
                let outcome = open.reader.scan(&request)?;
                for slice in &outcome.slices {
                    for event in slice.iter() {
                        seen += event
                            .unwrap()
                            .body
                            .iter()
                            .map(|b| usize::from(*b) + 1)
                            .sum::<usize>()
                            + 1;
                    }
                    after = slice.last;
                }
                if outcome.end == ScanEnd::Exhausted {
                    break;
                }
            }
            out.push(seen);
        }
        Ok(out)
    };
    let expected = rows(&open_log(&FaultVolume::with_files(files.clone()), &log.options).unwrap()).unwrap();
    let mut errors = 0;
    for at in (0..files[&name].len()).step_by(3) {
        let mut files = files.clone();
        files.get_mut(&name).unwrap()[at] ^= 0x10;
        let opened = open_log(&FaultVolume::with_files(files), &log.options);
        match opened.and_then(|open| rows(&open)) {
            Ok(found) => assert_eq!(found, expected, "flip at {at}"),
            Err(error) => {
                assert!(error.is_corrupt(), "{error}");
                errors += 1;
            }
        }
    }
    assert!(errors > 10, "{errors}");
}
