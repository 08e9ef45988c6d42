//! `kill -9` at any moment loses nothing and doubles nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use weir_integration::command::{RUN_LIMIT, Running};
use weir_integration::{Changefeed, Output, Recording};

/// Kills that must have hit a run with rows in flight.
const KILLS: u32 = 50;
/// Attempts after which the machine is too fast or too slow for the test to say anything.
const ATTEMPTS_MAX: u32 = 400;
/// At most this many kills of one output before it is completed.
const KILLS_IN_A_ROW_MAX: u64 = 3;

/// Moments spread by a multiplicative sequence: no two runs of the test share a pattern with the clock.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A part of `whole`, between nothing and all of it.
    fn within(&mut self, whole: Duration) -> Duration {
        whole.mul_f64((self.next() % 10_000) as f64 / 10_000.0)
    }
}

fn quickstart(dir: &Path, scratch: &Path) -> Result<Running> {
    Running::start(
        &["quickstart", "--output", "json", "--dir", &dir.to_string_lossy()],
        scratch,
    )
}

/// Whether rows are on their way: something was read into the store, and not everything has come out.
fn in_flight(dir: &Path, all: u64) -> bool {
    let stored = folder_bytes(&dir.join("data")) > 0;
    stored && Output::read(&dir.join("out")).is_ok_and(|output| output.total().all() < all)
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

#[test]
fn quickstart_survives_a_kill_at_any_moment() {
    let recording = Recording::open("quickstart").unwrap();
    let all = recording.total().all();
    let scratch = tempfile::tempdir().unwrap();
    let baseline_dir = scratch.path().join("baseline");
    let finished = quickstart(&baseline_dir, scratch.path())
        .unwrap()
        .finish(RUN_LIMIT)
        .unwrap();
    let result = finished.assert_ok().result();
    assert_eq!(result["rows"], all);
    assert_eq!(result["resumed"], false);
    let baseline = Output::read(&baseline_dir.join("out")).unwrap();
    assert_eq!(baseline.tables, recording.tables);

    let mut moments = Moments(u64::from(std::process::id()));
    let (mut kills, mut attempts) = (0, 0);
    while kills < KILLS {
        let dir = scratch.path().join(format!("run-{attempts}"));
        let mut here = 0;
        for _ in 0..=moments.next() % KILLS_IN_A_ROW_MAX {
            attempts += 1;
            let running = quickstart(&dir, scratch.path()).unwrap();
            std::thread::sleep(moments.within(finished.elapsed));
            if !running.kill().unwrap() {
                break;
            }
            here += u32::from(in_flight(&dir, all));
        }
        let last = quickstart(&dir, scratch.path())
            .unwrap()
            .finish(RUN_LIMIT)
            .unwrap();
        let context = format!("after {here} kills in {}", dir.display());
        assert_eq!(last.assert_ok().result()["rows"], all, "{context}");
        let output = Output::read(&dir.join("out")).unwrap();
        assert_eq!(output.tables, recording.tables, "{context}");
        assert_eq!(output.ddl, recording.ddl, "{context}");
        output.assert_nothing_twice(&context);
        output.assert_same_rows(&baseline, &context);
        kills += here;
        assert!(
            attempts < ATTEMPTS_MAX,
            "only {kills} of {attempts} kills had rows in flight"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
    println!("{kills} kills with rows in flight, {attempts} attempts");
}

/// The same with small output files and segments, so that kills hit renames, seals and garbage collection.
#[test]
fn small_files_and_segments_survive_kills() {
    let recording = Recording::open("quickstart").unwrap();
    let more = "[sink.file]\nrotate-size = \"64KiB\"\n[store]\nsegment-size = \"2MiB\"";
    let baseline_feed = Changefeed::to_files(&recording.folder, more).unwrap();
    let whole = baseline_feed.catch_up().unwrap();
    whole.assert_ok();
    let baseline = Output::read(&baseline_feed.out).unwrap();
    assert_eq!(baseline.tables, recording.tables);
    let mut moments = Moments(u64::from(std::process::id()) << 16);
    for _ in 0..10 {
        let feed = Changefeed::to_files(&recording.folder, more).unwrap();
        for _ in 0..3 {
            let running = feed.start(&["--until", "caught-up"]).unwrap();
            std::thread::sleep(moments.within(whole.elapsed));
            running.kill().unwrap();
        }
        feed.catch_up().unwrap().assert_ok();
        Output::read(&feed.out)
            .unwrap()
            .assert_same_rows(&baseline, "after three kills");
    }
}
