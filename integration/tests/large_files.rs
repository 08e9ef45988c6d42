//! Offsets beyond 4 GiB, where the 32 bits of `end_log_pos` have wrapped.

use weir_integration::binlog::BinlogWriter;
use weir_integration::command::RUN_LIMIT;
use weir_integration::{Changefeed, Output};

const FOUR_GIBIBYTES: u64 = 4 << 30;
const TRANSACTIONS: u64 = 300;
const ROWS: u64 = 10;

/// A file whose events cross the border; what lies before them is a hole that the start position leaves out.
#[test]
fn rows_behind_four_gibibytes_arrive() {
    let source = tempfile::tempdir().unwrap();
    let mut writer = BinlogWriter::create(&source.path().join("binlog.000001")).unwrap();
    let first = FOUR_GIBIBYTES - 20_000;
    writer.skip_to(first).unwrap();
    for transaction in 0..TRANSACTIONS {
        writer.begin().unwrap();
        let ids = transaction * ROWS..(transaction + 1) * ROWS;
        writer
            .insert(100, "far", "t", ids.map(|id| (id, &b"a value"[..])))
            .unwrap();
        writer.commit().unwrap();
    }
    writer.finish().unwrap();
    let length = std::fs::metadata(source.path().join("binlog.000001"))
        .unwrap()
        .len();
    assert!(length > FOUR_GIBIBYTES);

    let feed = Changefeed::to_files(source.path(), "").unwrap();
    feed.add_to_source(&format!("start = \"file:binlog.000001:{first}\""))
        .unwrap();
    // Up to an offset behind the border, then the rest: the saved position is beyond 4 GiB too.
    let half = format!("file:binlog.000001:{}", FOUR_GIBIBYTES + 2_000);
    feed.start(&["--until", &half])
        .unwrap()
        .finish(RUN_LIMIT)
        .unwrap()
        .assert_ok();
    let part = Output::read(&feed.out).unwrap();
    assert!(
        (1..TRANSACTIONS * ROWS).contains(&part.total().inserts),
        "{:?}",
        part.total()
    );
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert!(part.is_prefix_of(&output));
    assert_eq!(output.total().inserts, TRANSACTIONS * ROWS);
}
