//! Peak memory (`VmHWM`) stays within the quota between real servers.

use std::time::Duration;

use weir_integration::command::trouble;
use weir_integration::load::Options;
use weir_integration::{Client, Kind, Load, Pair};

const QUOTA_BYTES: u64 = 64 << 20;
/// Code, stacks, the allocator's slack.
const FIXED_BYTES: u64 = 100 << 20;
const LIMIT_BYTES: u64 = QUOTA_BYTES / 5 * 6 + FIXED_BYTES;
const LIMIT: Duration = Duration::from_secs(300);
/// How long the sink stands still, unless `WEIR_TEST_STALL_SECONDS` says otherwise.
const STALL_SECONDS: u64 = 60;

/// Runs to the end of the source, then compares sums and looks at the peak.
fn within_quota(pair: &Pair, checks: &[String]) {
    let feed = pair.feed("").unwrap();
    let finished = feed
        .start(&["--until", "caught-up"])
        .unwrap()
        .finish(LIMIT)
        .unwrap();
    assert_eq!(
        finished.code(),
        0,
        "{}\n{}",
        finished.stdout,
        trouble(&finished.stderr)
    );
    peak(finished.high_water_bytes);
    let (mut source, mut sink) = (pair.source.client().unwrap(), pair.sink.client().unwrap());
    for sql in checks {
        let wanted = source.text(sql).unwrap();
        assert_ne!(wanted, [["0"]], "{sql}");
        assert_eq!(wanted, sink.text(sql).unwrap(), "{sql}");
    }
    println!("in {:.1} s", finished.elapsed.as_secs_f64());
}

fn peak(bytes: u64) {
    println!("peak {} MiB", bytes >> 20);
    assert!(bytes > 0);
    assert!(
        bytes <= LIMIT_BYTES,
        "peak {} MiB, allowed {} MiB",
        bytes >> 20,
        LIMIT_BYTES >> 20
    );
}

fn database(source: &mut Client, main: &str) {
    source
        .run(&format!(
            "CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
        ))
        .unwrap();
}

/// A table that doubles itself within one transaction.
fn doubled(source: &mut Client, main: &str, first: u64, times: u32, value: &str) {
    source
        .run(&format!(
            "CREATE TABLE {main}.big (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(250))"
        ))
        .unwrap();
    source.run("BEGIN").unwrap();
    let rows: Vec<String> = (0..first).map(|_| format!("({value})")).collect();
    source
        .run(&format!("INSERT INTO {main}.big (v) VALUES {}", rows.join(",")))
        .unwrap();
    for _ in 0..times {
        source
            .run(&format!("INSERT INTO {main}.big (v) SELECT v FROM {main}.big"))
            .unwrap();
    }
    source.run("COMMIT").unwrap();
}

fn sums(main: &str) -> Vec<String> {
    vec![
        format!("SELECT COUNT(*) FROM {main}.big"),
        format!("SELECT SUM(CRC32(CONCAT(id, ':', v))) FROM {main}.big"),
    ]
}

#[test]
fn one_transaction_of_a_million_rows() {
    let _machine = crate::alone();
    let pair = Pair::new(Kind::Mysql, Kind::Mysql).unwrap();
    let (main, mut source) = (&pair.names.main, pair.source.client().unwrap());
    database(&mut source, main);
    doubled(&mut source, main, 1000, 10, "REPEAT('x', 100)");
    within_quota(&pair, &sums(main));
}

#[test]
fn one_compressed_payload_of_a_million_and_a_half_rows() {
    let _machine = crate::alone();
    let pair = Pair::new(Kind::Mysql, Kind::Mysql).unwrap();
    let (main, mut source) = (&pair.names.main, pair.source.client().unwrap());
    database(&mut source, main);
    source
        .run("SET SESSION binlog_transaction_compression = ON")
        .unwrap();
    doubled(&mut source, main, 1500, 10, "REPEAT('y', 100)");
    within_quota(&pair, &sums(main));
}

#[test]
fn two_thousand_tables() {
    let _machine = crate::alone();
    let pair = Pair::new(Kind::Mysql, Kind::Mysql).unwrap();
    let (main, mut source) = (&pair.names.main, pair.source.client().unwrap());
    database(&mut source, main);
    for number in 0..2_000 {
        source
            .run(&format!(
                "CREATE TABLE {main}.t{number} (id INT PRIMARY KEY, v VARCHAR(300))"
            ))
            .unwrap();
    }
    for round in 0..5 {
        for number in 0..2_000 {
            source
                .run(&format!(
                    "INSERT INTO {main}.t{number} VALUES ({round}, REPEAT('z', 300))"
                ))
                .unwrap();
        }
    }
    let some =
        [0, 1, 777, 1_999].map(|number| format!("SELECT COUNT(*) FROM {main}.t{number} HAVING COUNT(*) = 5"));
    within_quota(&pair, &some);
}

/// The sink's process stands still under load; then everything arrives.
#[test]
fn a_sink_that_stands_still() {
    let _machine = crate::shared();
    let seconds = std::env::var("WEIR_TEST_STALL_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let stall = Duration::from_secs(seconds.unwrap_or(STALL_SECONDS));
    let mut pair = Pair::own(Kind::Mysql, Kind::Mysql).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let load = Load::start(pair.source.uri(), &pair.names, &Options::default()).unwrap();
    let mut running = feed.start(&[]).unwrap();
    pair.lag(LIMIT).unwrap();
    pair.sink.process().unwrap().signal("STOP").unwrap();
    std::thread::sleep(stall);
    assert!(running.is_running().unwrap(), "{}", running.trouble());
    pair.sink.process().unwrap().signal("CONT").unwrap();
    load.stop().unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    running.signal("TERM").unwrap();
    let finished = running.finish(LIMIT).unwrap();
    peak(finished.assert_ok().high_water_bytes);
}
