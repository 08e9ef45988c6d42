//! Two thousand tables within 32 MiB, with DDL every few seconds: nothing stands still, and memory stays bounded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_integration::rng::Rng;
use weir_integration::{Changefeed, Client, Kind, Pair, Running, caught_up};

const TABLES: u64 = 2_000;
/// The smallest that there is.
const QUOTA_MIB: u64 = 32;
const PEAK_MIB: u64 = QUOTA_MIB * 12 / 10 + 100;
/// How long the load lasts, unless `WEIR_TEST_MANY_SECONDS` says otherwise.
const SECONDS: u64 = 20;
/// Time between two DDL.
const DDL_PAUSE: Duration = Duration::from_secs(2);
/// Longest time that a row of a table may take, DDL or not.
const STALL_MAX: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(120);
const WRITERS: u64 = 3;

fn load_time() -> Duration {
    let seconds = std::env::var("WEIR_TEST_MANY_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(SECONDS))
}

/// Tells the writers to stop, also when the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn setup(client: &mut Client, main: &str) {
    client
        .run(&format!(
            "CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
        ))
        .unwrap();
    for number in 0..TABLES {
        client
            .run(&format!(
                "CREATE TABLE {main}.t{number} (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(300))"
            ))
            .unwrap();
    }
    client
        .run(&format!(
            "CREATE TABLE {main}.beat (client INT PRIMARY KEY, n BIGINT)"
        ))
        .unwrap();
}

/// Rows for any table, in transactions of a few tables each.
fn write(pair: &Pair, seed: u64, ending: &AtomicBool) -> u64 {
    let (main, mut client, mut rng) = (&pair.names.main, pair.source.client().unwrap(), Rng::new(seed));
    let mut rows = 0;
    while !ending.load(Ordering::Relaxed) {
        client.run("BEGIN").unwrap();
        for _ in 0..1 + rng.below(4) {
            let table = rng.below(TABLES);
            let sql = format!(
                "INSERT INTO {main}.t{table} (v) VALUES (REPEAT('v', {}))",
                rng.below(300)
            );
            client.run(&sql).unwrap();
            rows += 1;
        }
        client.run("COMMIT").unwrap();
    }
    rows
}

/// A DDL of one table or several, of any kind that tables under load take.
fn ddl(client: &mut Client, main: &str, round: u64, rng: &mut Rng) {
    let (one, two) = (rng.below(TABLES), TABLES + round);
    let sql = match round % 4 {
        0 => format!("ALTER TABLE {main}.t{one} ADD COLUMN c{round} INT NULL"),
        1 => format!("CREATE TABLE {main}.t{two} LIKE {main}.t{one}"),
        2 => format!("TRUNCATE TABLE {main}.t{one}"),
        _ => format!(
            "RENAME TABLE {main}.t{one} TO {main}.swap, {main}.t{} TO {main}.t{one}, {main}.swap TO {main}.t{}",
            (one + 1) % TABLES,
            (one + 1) % TABLES
        ),
    };
    client.run(&sql).unwrap();
}

/// The longest time that a row took, while DDL runs.
fn worst_lag(pair: &Pair, running: &mut Running) -> (Duration, u64) {
    let (main, mut client, mut rng) = (&pair.names.main, pair.source.client().unwrap(), Rng::new(9));
    let (begun, mut worst, mut round) = (Instant::now(), Duration::ZERO, 0);
    let mut next_ddl = begun;
    while begun.elapsed() < load_time() {
        if Instant::now() >= next_ddl {
            ddl(&mut client, main, round, &mut rng);
            round += 1;
            next_ddl += DDL_PAUSE;
        }
        let lag = pair.lag(LIMIT);
        assert!(lag.is_ok(), "{lag:?}\n{}", running.trouble());
        worst = worst.max(lag.unwrap());
        assert!(running.is_running().unwrap(), "{}", running.trouble());
    }
    (worst, round)
}

#[test]
fn two_thousand_under_load_with_ddl() {
    let _machine = crate::alone();
    let pair = Pair::own(Kind::Mysql, Kind::Mysql).unwrap();
    setup(&mut pair.source.client().unwrap(), &pair.names.main);
    let feed: Changefeed = pair.feed_within(&format!("{QUOTA_MIB}MiB"), "").unwrap();
    let mut running = feed.start(&[]).unwrap();
    pair.lag(LIMIT).unwrap();
    let ending = AtomicBool::new(false);
    let ((worst, ddls), rows) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                scope.spawn({
                    let (pair, ending) = (&pair, &ending);
                    move || write(pair, seed, ending)
                })
            })
            .collect();
        let ending = Ending(&ending);
        let found = worst_lag(&pair, &mut running);
        drop(ending);
        let rows: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        (found, rows)
    });
    running.is_running().unwrap();
    println!("{rows} rows, {ddls} DDL, worst lag {worst:?}");
    assert!(worst < STALL_MAX, "{worst:?}");
    pair.lag(LIMIT).unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    let peak = running.peak_bytes().unwrap() >> 20;
    println!("peak {peak} MiB");
    assert!(peak <= PEAK_MIB, "{peak} MiB");
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
}
