//! Clean stops, and files that grow while they are read.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_integration::command::{RUN_LIMIT, Running};
use weir_integration::{Changefeed, Output, Recording};

/// A stop flushes and saves; it does not drain the source.
const STOP_LIMIT: Duration = Duration::from_secs(20);
const ROTATE_SOON: &str = "[sink.file]\nrotate-age = \"200ms\"\n[source.follow]\npoll-interval = \"20ms\"";

fn wait_for_rows(running: &mut Running, out: &Path, rows: u64) {
    let deadline = Instant::now() + RUN_LIMIT;
    // A file may be renamed between the listing and the reading.
    while Output::read(out).map_or(0, |output| output.total().all()) < rows {
        assert!(
            running.is_running().unwrap(),
            "ended early: {}",
            running.stderr().unwrap()
        );
        assert!(
            Instant::now() < deadline,
            "rows did not arrive: {}",
            running.stderr().unwrap()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn stops_cleanly(signal: &str, code: i32) {
    let recording = Recording::open("quickstart").unwrap();
    let feed = Changefeed::to_files(&recording.folder, ROTATE_SOON).unwrap();
    let mut running = feed.start(&[]).unwrap();
    wait_for_rows(&mut running, &feed.out, 1);
    running.signal(signal).unwrap();
    let stopped = running.finish(STOP_LIMIT).unwrap();
    stopped.assert_code(code);
    let middle = Output::read(&feed.out).unwrap();
    assert_eq!(middle.unfinished, 0, "a clean stop finishes its files");
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert!(middle.is_prefix_of(&output));
    assert_eq!(output.tables, recording.tables);
    assert_eq!(output.ddl, recording.ddl);
}

#[test]
fn sigterm_is_a_clean_stop() {
    stops_cleanly("TERM", 0);
}

#[test]
fn sigint_is_a_clean_stop_with_its_own_status() {
    stops_cleanly("INT", 130);
}

/// Files that appear and grow in pieces, cut anywhere, arrive whole and once.
#[test]
fn growing_files_are_followed() {
    let recording = Recording::open("mysql-9.7").unwrap();
    let source = tempfile::tempdir().unwrap();
    let feed = Changefeed::to_files(source.path(), ROTATE_SOON).unwrap();
    let files = recording.files().unwrap();
    let target = |file: &Path| source.path().join(file.file_name().unwrap());
    let first = std::fs::read(&files[0]).unwrap();
    std::fs::write(target(&files[0]), &first[..first.len() / 3]).unwrap();
    let mut running = feed.start(&[]).unwrap();
    for file in &files {
        let bytes = std::fs::read(file).unwrap();
        let mut out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(target(file))
            .unwrap();
        let mut written = usize::try_from(out.metadata().unwrap().len()).unwrap();
        // A size that is no event's, so that events are cut everywhere.
        while written < bytes.len() {
            let end = (written + 40_009).min(bytes.len());
            out.write_all(&bytes[written..end]).unwrap();
            written = end;
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    wait_for_rows(&mut running, &feed.out, recording.total().all());
    running.signal("TERM").unwrap();
    running.finish(STOP_LIMIT).unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert_eq!(output.tables, recording.tables);
    assert_eq!(output.ddl, recording.ddl);
}

/// A second process on the same state is refused while the first one runs.
#[test]
fn state_is_locked_by_one_process() {
    let recording = Recording::open("mysql-9.7-xa").unwrap();
    let feed = Changefeed::to_files(&recording.folder, ROTATE_SOON).unwrap();
    let mut first = feed.start(&[]).unwrap();
    wait_for_rows(&mut first, &feed.out, 1);
    let scratch = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        &feed.file.to_string_lossy(),
        "--data-dir",
        &feed.data.to_string_lossy(),
        "--output",
        "json",
    ];
    let second = Running::start(&arguments, scratch.path())
        .unwrap()
        .finish(STOP_LIMIT)
        .unwrap();
    assert_ne!(second.code(), 0);
    second.error();
    assert!(first.is_running().unwrap());
    first.signal("TERM").unwrap();
    first.finish(STOP_LIMIT).unwrap().assert_ok();
}
