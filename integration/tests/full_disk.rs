//! A full disk under the store or under the output: an error that says so, and after repair nothing is lost.

use std::time::{Duration, Instant};

use weir_integration::{Changefeed, Output, Recording, SmallDisk};

/// How long a run may try before it has to say that the disk is full.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);

/// Runs into the full disk, checks what is said, makes room, and runs to the end.
fn full_then_repaired(feed: &Changefeed, disk: &SmallDisk) {
    let recording = Recording::open("quickstart").unwrap();
    let mut running = feed.start(&["--until", "caught-up"]).unwrap();
    let deadline = Instant::now() + NOTICE_LIMIT;
    // Either it ends with an error, or it says what it waits for.
    let mut noticed = false;
    while running.is_running().unwrap() {
        let stderr = running.stderr().unwrap();
        noticed = stderr.contains("WEIR-") && (stderr.contains("disk") || stderr.contains("space"));
        if noticed || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if running.is_running().unwrap() {
        assert!(
            noticed,
            "nothing was said about the full disk: {}",
            running.stderr().unwrap()
        );
        running.signal("TERM").unwrap();
        running.finish(NOTICE_LIMIT).unwrap();
    } else {
        let finished = running.finish(NOTICE_LIMIT).unwrap();
        assert_ne!(finished.code(), 0, "the disk is too small for all of it");
        let (_, message) = finished.error();
        assert!(message.contains("space") || message.contains("disk"), "{message}");
    }
    let partial = Output::read(&feed.out).unwrap();
    disk.enlarge().unwrap();
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert!(partial.is_prefix_of(&output));
    assert_eq!(output.tables, recording.tables);
    assert_eq!(output.ddl, recording.ddl);
}

#[test]
fn under_the_output() {
    let recording = Recording::open("quickstart").unwrap();
    let disk = SmallDisk::new(4096).unwrap();
    let mut feed = Changefeed::to_files(&recording.folder, "[sink.file]\nrotate-size = \"256KiB\"").unwrap();
    feed.set_out(&disk.folder()).unwrap();
    full_then_repaired(&feed, &disk);
}

#[test]
fn under_the_store() {
    let recording = Recording::open("quickstart").unwrap();
    let disk = SmallDisk::new(2048).unwrap();
    let mut feed = Changefeed::to_files(&recording.folder, "").unwrap();
    feed.data = disk.folder();
    full_then_repaired(&feed, &disk);
}
