//! `weir binlog` and `weir check`: what people look at before they run anything.

use std::collections::BTreeMap;

use weir_integration::command::{RUN_LIMIT, Running};
use weir_integration::output::Rows;
use weir_integration::{Changefeed, Finished, Recording};

/// A check asks for free disk as large as the quota: the machine of the tests need not have the default's 20 GiB.
const SMALL_STORE: &str = "[store]\ndisk-quota = \"1GiB\"\n";

fn run(arguments: &[&str]) -> Finished {
    let scratch = tempfile::tempdir().unwrap();
    Running::start(arguments, scratch.path())
        .unwrap()
        .finish(RUN_LIMIT)
        .unwrap()
}

/// The decoder's counts are those of `mysqlbinlog -vv`, for every recording. Where XA groups were rolled back the
/// files hold more rows than were committed.
#[test]
fn binlog_stat_counts_what_mysqlbinlog_counts() {
    for name in Recording::names().unwrap() {
        let recording = Recording::open(&name).unwrap();
        let folder = recording.folder.to_string_lossy().into_owned();
        let result = run(&["binlog", "stat", &folder, "--output", "json"])
            .assert_ok()
            .result();
        let number = |table: &serde_json::Value, key: &str| table[key].as_u64().unwrap();
        let tables: BTreeMap<String, Rows> = result["tables"]
            .as_array()
            .unwrap()
            .iter()
            .map(|table| {
                let rows = Rows {
                    inserts: number(table, "inserts"),
                    updates: number(table, "updates"),
                    deletes: number(table, "deletes"),
                };
                (table["table"].as_str().unwrap().to_owned(), rows)
            })
            .collect();
        if name.ends_with("-xa") {
            assert!(tables["bank.account"].all() > recording.total().all(), "{name}");
        } else {
            assert_eq!(tables, recording.tables, "{name}");
        }
    }
}

/// One line an event; the values of rows only where they were asked for.
#[test]
fn binlog_cat_shows_values_only_when_asked() {
    let recording = Recording::open("mysql-9.7").unwrap();
    let file = recording.files().unwrap()[0].to_string_lossy().into_owned();
    // A value of the first row of the recording.
    let value = "é漢😀";
    let plain = run(&["binlog", "cat", &file]);
    plain.assert_ok();
    assert!(plain.stdout.lines().count() > 100);
    assert!(!plain.stdout.contains(value));
    let rows = run(&["binlog", "cat", &file, "--rows"]);
    rows.assert_ok();
    assert!(rows.stdout.contains(value));
}

#[test]
fn check_passes_for_a_good_changefeed() {
    let recording = Recording::open("quickstart").unwrap();
    let feed = Changefeed::to_files(&recording.folder, SMALL_STORE).unwrap();
    let file = feed.file.to_string_lossy().into_owned();
    run(&["check", &file, "--output", "json"]).assert_ok();
    assert!(!feed.data.exists(), "a check leaves nothing behind");
}

#[test]
fn check_fails_where_the_disk_is_smaller_than_the_quota() {
    let recording = Recording::open("quickstart").unwrap();
    let feed = Changefeed::to_files(&recording.folder, "[store]\ndisk-quota = \"1000TiB\"\n").unwrap();
    let file = feed.file.to_string_lossy().into_owned();
    let finished = run(&["check", &file]);
    finished.assert_code(1);
    assert!(
        finished.stdout.contains("store.disk-quota"),
        "{}",
        finished.stdout
    );
}

#[test]
fn check_fails_with_status_1() {
    let feed = Changefeed::to_files(std::path::Path::new("/no/such/folder"), "").unwrap();
    let file = feed.file.to_string_lossy().into_owned();
    let finished = run(&["check", &file]);
    finished.assert_code(1);
    assert!(finished.stdout.contains("/no/such/folder"), "{}", finished.stdout);
}
