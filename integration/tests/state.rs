//! State of earlier runs that does not fit this one.

use std::fs;

use weir_integration::{Changefeed, Output, Recording};

const DEFINITE: i32 = 3;
const NARROW: &str = "[filter]\nrules = [\"*.*\", \"!tpcc.stock\"]";

#[test]
fn a_table_that_was_excluded_once_stops_alone_when_it_is_let_through() {
    let recording = Recording::open("quickstart").unwrap();
    let feed = Changefeed::to_files(&recording.folder, NARROW).unwrap();
    feed.catch_up().unwrap().assert_ok();
    let narrow = Output::read(&feed.out).unwrap();
    assert!(!narrow.tables.contains_key("tpcc.stock"));

    // More of the source, under a filter that lets everything through.
    let text = fs::read_to_string(&feed.file).unwrap();
    fs::write(&feed.file, text.replace(", \"!tpcc.stock\"", "")).unwrap();
    let source = tempfile::tempdir().unwrap();
    for file in recording.files().unwrap() {
        fs::copy(&file, source.path().join(file.file_name().unwrap())).unwrap();
    }
    let wide = feed.catch_up().unwrap();
    // Nothing new of the table was in the source, so that nothing is missing yet.
    wide.assert_ok();
    assert_eq!(Output::read(&feed.out).unwrap().tables, narrow.tables);
}

#[test]
fn rows_behind_a_gap_of_the_filter_are_not_delivered_as_if_there_were_none() {
    let recording = Recording::open("quickstart").unwrap();
    let files = recording.files().unwrap();
    let source = tempfile::tempdir().unwrap();
    let put = |at: usize| {
        fs::copy(&files[at], source.path().join(files[at].file_name().unwrap())).unwrap();
    };
    put(0);
    let feed = Changefeed::to_files(source.path(), NARROW).unwrap();
    feed.catch_up().unwrap().assert_ok();
    (1..files.len()).for_each(put);
    let text = fs::read_to_string(&feed.file).unwrap();
    fs::write(&feed.file, text.replace(", \"!tpcc.stock\"", "")).unwrap();
    let wide = feed.catch_up().unwrap();
    wide.assert_code(DEFINITE);
    let (code, message) = wide.error();
    assert_eq!(code, "WEIR-SRV-012", "{message}");
    assert!(message.contains("tpcc.stock"), "{message}");
    let mut expected = recording.tables;
    expected.remove("tpcc.stock");
    assert_eq!(
        Output::read(&feed.out).unwrap().tables,
        expected,
        "the other tables have arrived"
    );
}

#[test]
fn a_store_without_saved_progress_is_refused() {
    let recording = Recording::open("mysql-9.7").unwrap();
    let feed = Changefeed::to_files(&recording.folder, "").unwrap();
    feed.catch_up().unwrap().assert_ok();
    let progress = feed.data.join("progress.redb");
    let saved = fs::read(&progress).unwrap();
    fs::remove_file(&progress).unwrap();
    let refused = feed.catch_up().unwrap();
    refused.assert_code(DEFINITE);
    assert_eq!(refused.error().0, "WEIR-SRV-011");
    fs::write(&progress, saved).unwrap();
    feed.catch_up().unwrap().assert_ok();
    assert_eq!(Output::read(&feed.out).unwrap().tables, recording.tables);
}
