//! A store that has lost what it had synced, under saved progress and finished files.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use weir_integration::{Changefeed, Output, Recording};

const DEFINITE: i32 = 3;

/// The segment that is being written.
fn last_segment(feed: &Changefeed) -> PathBuf {
    let entries = fs::read_dir(feed.data.join("store")).unwrap();
    let logs = entries.map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.max().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Damages the last segment, sees the refusal, repairs, and sees that nothing was lost.
fn refused_until_restored(damage: impl Fn(&Path), code: &str) {
    let recording = Recording::open("mysql-9.7").unwrap();
    let files = recording.files().unwrap();
    let source = tempfile::tempdir().unwrap();
    let put = |file: &PathBuf| fs::copy(file, source.path().join(file.file_name().unwrap())).unwrap();
    let feed = Changefeed::to_files(source.path(), "").unwrap();
    put(&files[0]);
    feed.catch_up().unwrap().assert_ok();
    let before = names(&feed.out);
    let segment = last_segment(&feed);
    let saved = fs::read(&segment).unwrap();
    for file in &files[1..] {
        put(file);
    }

    damage(&segment);
    let refused = feed.catch_up().unwrap();
    refused.assert_code(DEFINITE);
    assert_eq!(refused.error().0, code);
    assert_eq!(names(&feed.out), before, "a refused run writes nothing");

    fs::write(&segment, &saved).unwrap();
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert_eq!(output.tables, recording.tables);
    assert_eq!(output.ddl, recording.ddl);
}

#[test]
fn a_store_cut_behind_its_output_is_refused() {
    let cut = |segment: &Path| {
        let file = OpenOptions::new().write(true).open(segment).unwrap();
        let size = file.metadata().unwrap().len();
        file.set_len(size / 2).unwrap();
    };
    refused_until_restored(cut, "WEIR-SRV-010");
}

#[test]
fn a_missing_segment_is_refused() {
    refused_until_restored(|segment| fs::remove_file(segment).unwrap(), "WEIR-STO-008");
}

/// Without finished files the saved tokens alone tell.
#[test]
fn a_store_cut_behind_saved_progress_is_refused() {
    let recording = Recording::open("mysql-9.7").unwrap();
    let feed = Changefeed::to_blackhole(&recording.folder, "", "").unwrap();
    feed.catch_up().unwrap().assert_ok();
    let segment = last_segment(&feed);
    let saved = fs::read(&segment).unwrap();
    fs::write(&segment, &saved[..saved.len() / 2]).unwrap();
    let refused = feed.catch_up().unwrap();
    refused.assert_code(DEFINITE);
    assert_eq!(refused.error().0, "WEIR-SRV-010");
    fs::write(&segment, &saved).unwrap();
    feed.catch_up().unwrap().assert_ok();
}
