//! Peak memory stays within the quota, whatever the source holds.

use std::path::Path;
use std::time::Duration;

use weir_integration::binlog::BinlogWriter;
use weir_integration::command::RUN_LIMIT;
use weir_integration::{Changefeed, Recording};

const QUOTA_BYTES: u64 = 64 << 20;
/// Code, stacks, the allocator's slack.
const FIXED_BYTES: u64 = 100 << 20;
const LIMIT_BYTES: u64 = QUOTA_BYTES / 5 * 6 + FIXED_BYTES;
const SETTINGS: &str = "[flow-control]\nmemory-quota = \"64MiB\"";

/// How long the sink stands still.
const STALL: Duration = Duration::from_secs(60);

fn within_quota(source: &Path, query: &str, rows: u64) {
    check(&Changefeed::to_blackhole(source, query, SETTINGS).unwrap(), rows);
}

/// The file sink encodes what the blackhole only visits.
fn within_quota_into_files(source: &Path, rows: u64) {
    check(&Changefeed::to_files(source, SETTINGS).unwrap(), rows);
}

fn check(feed: &Changefeed, rows: u64) {
    let finished = feed
        .start(&["--until", "caught-up"])
        .unwrap()
        .finish(RUN_LIMIT)
        .unwrap();
    assert_eq!(finished.assert_ok().result()["inserts"], rows);
    println!(
        "peak {} MiB in {:.1} s",
        finished.high_water_bytes >> 20,
        finished.elapsed.as_secs_f64()
    );
    assert!(finished.high_water_bytes > 0);
    assert!(
        finished.high_water_bytes <= LIMIT_BYTES,
        "peak {} MiB, allowed {} MiB",
        finished.high_water_bytes >> 20,
        LIMIT_BYTES >> 20
    );
}

/// A file with `transactions` of one event each; event `n` goes to table `n` modulo `tables`.
fn write(folder: &Path, transactions: u64, tables: u64, rows: u64, value: &[u8]) {
    let mut writer = BinlogWriter::create(&folder.join("binlog.000001")).unwrap();
    let mut id = 0;
    for transaction in 0..transactions {
        let table = u32::try_from(transaction % tables).unwrap();
        writer.begin().unwrap();
        let first = id;
        id += rows;
        writer
            .insert(
                100 + table,
                "big",
                &format!("t{table}"),
                (first..id).map(|id| (id, value)),
            )
            .unwrap();
        writer.commit().unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn one_transaction_of_a_million_rows() {
    let source = tempfile::tempdir().unwrap();
    let mut writer = BinlogWriter::create(&source.path().join("binlog.000001")).unwrap();
    let value = [7_u8; 200];
    writer.begin().unwrap();
    for first in (0..1_000_000_u64).step_by(100) {
        writer
            .insert(100, "big", "t", (first..first + 100).map(|id| (id, &value[..])))
            .unwrap();
    }
    writer.commit().unwrap();
    writer.finish().unwrap();
    within_quota(source.path(), "", 1_000_000);
    within_quota_into_files(source.path(), 1_000_000);
}

#[test]
fn one_row_of_64_mebibytes() {
    let source = tempfile::tempdir().unwrap();
    let value: Vec<u8> = (0..64_u32 << 20)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    write(source.path(), 3, 1, 1, &value);
    within_quota(source.path(), "", 3);
    within_quota_into_files(source.path(), 3);
}

#[test]
fn two_thousand_tables() {
    let source = tempfile::tempdir().unwrap();
    write(source.path(), 60_000, 2_000, 5, &[3_u8; 300]);
    within_quota(source.path(), "", 300_000);
    within_quota_into_files(source.path(), 300_000);
}

#[test]
fn a_sink_that_stands_still_for_a_minute() {
    let source = tempfile::tempdir().unwrap();
    write(source.path(), 20_000, 20, 20, &[5_u8; 600]);
    let query = format!("?stall={}s", STALL.as_secs());
    within_quota(source.path(), &query, 400_000);
}

/// The made-up files hold what they should: the same code path as a recorded one.
#[test]
fn recorded_load_within_the_quota() {
    let recording = Recording::open("quickstart").unwrap();
    within_quota(&recording.folder, "", recording.total().inserts);
}
