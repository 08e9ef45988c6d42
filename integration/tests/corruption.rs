//! Truncated and flipped binlog files: an error with a code and nothing invented, or no difference at all.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_integration::output::Rows;
use weir_integration::{Changefeed, Output, Recording};

const DEFINITE: i32 = 3;
/// Runs at the same time; most of a run is waiting for the disk.
const WORKERS: usize = 4;
/// Where the flags of the format description lie in the file: magic, then 17 bytes of its header.
const FLAGS_AT: usize = 4 + 17;
/// `LOG_EVENT_BINLOG_IN_USE_F`: not covered by the checksum, set while a server writes the file.
const IN_USE: u8 = 1;

/// The file that is changed: every type of event of a small recording, a few hundred bytes.
fn subject() -> Vec<u8> {
    let recording = Recording::open("mysql-9.7-tagged").unwrap();
    std::fs::read(&recording.files().unwrap()[1]).unwrap()
}

fn run(bytes: &[u8]) -> (i32, Output, Option<String>) {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("binlog.000002"), bytes).unwrap();
    let feed = Changefeed::to_files(source.path(), "").unwrap();
    let finished = feed.catch_up().unwrap();
    let code = (finished.code() != 0).then(|| finished.error().0);
    (finished.code(), Output::read(&feed.out).unwrap(), code)
}

/// Runs `check` for every number below `count` on a few threads; collects what it complains about.
fn each(count: usize, check: impl Fn(usize) -> Result<(), String> + Sync) {
    let next = AtomicUsize::new(0);
    let complaints = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    if let Err(complaint) = check(at) {
                        complaints.lock().unwrap().push(complaint);
                    }
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(
        complaints.is_empty(),
        "{} of {count}:\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

#[test]
fn every_flipped_byte_is_an_error_or_no_difference() {
    let bytes = subject();
    let (code, whole, _) = run(&bytes);
    assert_eq!(code, 0);
    assert!(whole.total().all() > 0);
    each(bytes.len(), |at| {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        let (code, output, error) = run(&changed);
        if code == 0 {
            return Err(format!(
                "byte {at} is covered by a checksum, yet the run ended well"
            ));
        }
        if code != DEFINITE || error.is_none() {
            return Err(format!("byte {at}: status {code}, {error:?}"));
        }
        if !output.is_prefix_of(&whole) {
            return Err(format!("byte {at}: rows that the file does not hold"));
        }
        Ok(())
    });
}

/// The in-use flag alone changes nothing: it tells that the server had not closed the file.
#[test]
fn the_in_use_flag_is_no_corruption() {
    let mut bytes = subject();
    let (_, whole, _) = run(&bytes);
    bytes[FLAGS_AT] ^= IN_USE;
    let (code, output, _) = run(&bytes);
    assert_eq!(code, 0);
    output.assert_same_rows(&whole, "with the in-use flag");
}

/// Offsets of the events, and the end of the file.
fn borders(bytes: &[u8]) -> Vec<usize> {
    let mut borders = vec![4];
    while let Some(length) = borders.last().and_then(|at| bytes.get(at + 9..at + 13)) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        borders.push(borders[borders.len() - 1] + length);
    }
    borders
}

/// A file cut anywhere gives every whole transaction before the cut. A cut inside an event or inside a transaction is
/// an error; one between two transactions is how a file that is still written looks.
#[test]
fn every_truncation_keeps_what_is_whole() {
    let bytes = subject();
    let (_, whole, _) = run(&bytes);
    let borders = borders(&bytes);
    // Format description, earlier transactions, GTID … XID, STOP: one transaction.
    let (begin, end) = (borders[2], borders[borders.len() - 2]);
    assert_eq!(bytes.len() - end, 23, "STOP is a header and a checksum");
    each(bytes.len(), |at| {
        let (code, output, _) = run(&bytes[..at]);
        let clean = at == 0 || (borders.contains(&at) && !(begin + 1..end).contains(&at));
        if code != 0 && code != DEFINITE {
            return Err(format!("cut at {at}: status {code}"));
        }
        if clean != (code == 0) && at > borders[1] {
            return Err(format!("cut at {at}: status {code}"));
        }
        let wanted = if at >= end { whole.total() } else { Rows::default() };
        if output.total() != wanted || !output.is_prefix_of(&whole) {
            return Err(format!("cut at {at}: {:?} instead of {wanted:?}", output.total()));
        }
        Ok(())
    });
}

/// The same cut in the last of several files, then the rest arrives.
#[test]
fn a_truncated_last_file_is_completed_later() {
    let recording = Recording::open("quickstart").unwrap();
    let source = tempfile::tempdir().unwrap();
    let files = recording.files().unwrap();
    let target = |file: &Path| source.path().join(file.file_name().unwrap());
    for file in &files {
        std::fs::copy(file, target(file)).unwrap();
    }
    let last = files.last().unwrap();
    let bytes = std::fs::read(last).unwrap();
    // Inside a transaction: nearly every byte is.
    std::fs::write(target(last), &bytes[..bytes.len() / 2 + 7]).unwrap();
    let feed = Changefeed::to_files(source.path(), "").unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(DEFINITE);
    finished.error();
    let partial = Output::read(&feed.out).unwrap();
    assert!(partial.total().all() > recording.total().all() / 2);
    std::fs::write(target(last), &bytes).unwrap();
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert!(partial.is_prefix_of(&output));
    assert_eq!(output.tables, recording.tables);
}

/// A flipped byte in the middle of a long run: what came before is delivered, and after repair the rest.
#[test]
fn a_repaired_file_goes_on() {
    let recording = Recording::open("quickstart").unwrap();
    let source = tempfile::tempdir().unwrap();
    for file in recording.files().unwrap() {
        std::fs::copy(&file, source.path().join(file.file_name().unwrap())).unwrap();
    }
    let broken = source.path().join("binlog.000002");
    let good = std::fs::read(&broken).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 0x10;
    std::fs::write(&broken, bad).unwrap();
    let feed = Changefeed::to_files(source.path(), "").unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(DEFINITE);
    finished.error();
    let partial = Output::read(&feed.out).unwrap();
    std::fs::write(&broken, good).unwrap();
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert!(partial.is_prefix_of(&output));
    assert_eq!(output.tables, recording.tables);
}
