//! Of many tables under load one is slow at the sink, in whatever way: every other stays fast.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_integration::{Changefeed, Client, Kind, Pair, Running, wait_until};

const TABLES: usize = 20;
/// Rows that each table begins with.
const ROWS: u32 = 100;
/// Longest lag of a table that is not slow.
const LAG_MAX: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(180);
/// How long the table is slow, unless `WEIR_TEST_LOCK_SECONDS` says otherwise.
const SLOW_SECONDS: u64 = 15;
/// Time between two transactions of the load.
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two rounds of probes.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

fn slow_time() -> Duration {
    let seconds = std::env::var("WEIR_TEST_LOCK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(SLOW_SECONDS))
}

/// Tells the load to stop.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two servers, the tables, and a changefeed that has caught up.
struct Many {
    pair: Pair,
    running: Running,
    // Behind the command, so that its files are removed after it has ended.
    _feed: Changefeed,
}

impl Many {
    fn new(kind: Kind) -> Self {
        let pair = Pair::own(kind, kind).unwrap();
        let main = &pair.names.main;
        let mut source = pair.source.client().unwrap();
        source
            .run(&format!(
                "CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
            ))
            .unwrap();
        let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, 0)")).collect();
        for number in 0..TABLES {
            // Every fifth has no key.
            let key = if number % 5 == 4 { "KEY" } else { "PRIMARY KEY" };
            source
                .run_all([
                    format!("CREATE TABLE {main}.t{number} (id INT NOT NULL, n BIGINT NOT NULL, {key} (id))"),
                    format!("INSERT INTO {main}.t{number} VALUES {}", rows.join(",")),
                ])
                .unwrap();
        }
        let feed = pair.feed("").unwrap();
        let running = feed.start(&[]).unwrap();
        let many = Self {
            pair,
            running,
            _feed: feed,
        };
        many.equal();
        many
    }

    fn equal(&self) {
        let equal = self.pair.equal_within(LIMIT);
        assert!(equal.is_ok(), "{equal:?}\n{}", self.running.trouble());
    }

    /// Changes rows of all tables until told to stop.
    fn load(&self, stop: &AtomicBool) {
        let main = &self.pair.names.main;
        let mut client = self.pair.source.client().unwrap();
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            for table in 0..TABLES {
                count += 1;
                let id = count % (ROWS - 1) + 1;
                client
                    .run(&format!("UPDATE {main}.t{table} SET n = n + 1 WHERE id = {id}"))
                    .unwrap();
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Probes all tables but the first, again and again; the longest lag.
    fn worst_lag(&self, until: impl Fn(Duration) -> bool) -> Duration {
        let main = &self.pair.names.main;
        let (mut source, mut sink) = (
            self.pair.source.client().unwrap(),
            self.pair.sink.client().unwrap(),
        );
        let (start, mut worst, mut value) = (Instant::now(), Duration::ZERO, 1_000_000_000_u64);
        while until(start.elapsed()) {
            value += 1;
            // All are written before the first is waited for.
            for number in 1..TABLES {
                source
                    .run(&format!("UPDATE {main}.t{number} SET n = {value} WHERE id = 0"))
                    .unwrap();
            }
            let written = Instant::now();
            for number in 1..TABLES {
                let sql = format!("SELECT n FROM {main}.t{number} WHERE id = 0");
                let arrived = wait_until(&format!("t{number}"), LIMIT, || Ok(sink.number(&sql)? == value));
                let lag = written.elapsed();
                assert!(
                    arrived.is_ok() && lag < LAG_MAX,
                    "t{number} after {:?}: {lag:?}\n{}",
                    start.elapsed(),
                    self.running.trouble()
                );
                worst = worst.max(lag);
            }
            std::thread::sleep(PROBE_PAUSE);
        }
        worst
    }

    /// Probes under load until `over`.
    fn probed(&self, what: &str, over: impl Fn(Duration) -> bool) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.load(&stop));
            // The load ends in a test that fails too.
            let _end = Ending(&stop);
            let worst = self.worst_lag(|elapsed| !over(elapsed));
            println!("{what}: worst lag {worst:?}");
        });
    }
}

fn locked(kind: Kind, what: &str, lock: &[&str], unlock: &str) {
    let _machine = crate::alone();
    let many = Many::new(kind);
    let main = &many.pair.names.main;
    let mut holder = many.pair.sink.client().unwrap();
    holder
        .run_all(lock.iter().map(|sql| sql.replace("NAME", &format!("{main}.t0"))))
        .unwrap();
    many.probed(what, |elapsed| elapsed > slow_time());
    holder.run(unlock).unwrap();
    many.equal();
}

#[test]
fn a_table_lock_at_mysql() {
    locked(
        Kind::Mysql,
        "table lock, MySQL",
        &["LOCK TABLES NAME WRITE"],
        "UNLOCK TABLES",
    );
}

#[test]
fn open_row_locks_at_mysql() {
    locked(
        Kind::Mysql,
        "row locks, MySQL",
        &["BEGIN", "SELECT COUNT(*) FROM NAME FOR UPDATE"],
        "ROLLBACK",
    );
}

#[test]
fn a_table_lock_at_mariadb() {
    locked(
        Kind::Mariadb118,
        "table lock, MariaDB",
        &["LOCK TABLES NAME WRITE"],
        "UNLOCK TABLES",
    );
}

#[test]
fn open_row_locks_at_mariadb() {
    locked(
        Kind::Mariadb118,
        "row locks, MariaDB",
        &["BEGIN", "SELECT COUNT(*) FROM NAME FOR UPDATE"],
        "ROLLBACK",
    );
}

/// A DDL waits at the sink for somebody who reads the table.
#[test]
fn a_ddl_that_waits() {
    let _machine = crate::alone();
    let many = Many::new(Kind::Mysql);
    let main = &many.pair.names.main;
    let mut reader = many.pair.sink.client().unwrap();
    reader
        .run_all(["BEGIN".to_owned(), format!("SELECT COUNT(*) FROM {main}.t0")])
        .unwrap();
    let mut source = many.pair.source.client().unwrap();
    source
        .run(&format!("ALTER TABLE {main}.t0 ADD COLUMN c INT"))
        .unwrap();
    many.probed("waiting DDL", |elapsed| elapsed > slow_time());
    reader.run("ROLLBACK").unwrap();
    many.equal();
}

/// A DDL that builds a large table anew.
#[test]
fn a_ddl_that_takes_long() {
    let _machine = crate::alone();
    let many = Many::new(Kind::Mysql);
    let main = &many.pair.names.main;
    let mut source = many.pair.source.client().unwrap();
    source
        .run_all([
            format!("CREATE TABLE {main}.large (id INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(200))"),
            format!("INSERT INTO {main}.large (v) VALUES (REPEAT('x', 200))"),
        ])
        .unwrap();
    for _ in 0..LARGE_DOUBLINGS {
        source
            .run(&format!(
                "INSERT INTO {main}.large (v) SELECT v FROM {main}.large"
            ))
            .unwrap();
    }
    many.equal();
    source
        .run(&format!(
            "ALTER TABLE {main}.large ADD KEY k_v (v), MODIFY id BIGINT AUTO_INCREMENT, ALGORITHM = COPY"
        ))
        .unwrap();
    let begun = Instant::now();
    let mut sink = many.pair.sink.client().unwrap();
    wait_until("the DDL at the sink", LIMIT, || Ok(runs(&mut sink, main))).unwrap();
    let looker = std::cell::RefCell::new(sink);
    many.probed("long DDL", |_| !runs(&mut looker.borrow_mut(), main));
    println!("the DDL took {:?}", begun.elapsed());
    many.equal();
}

/// Rows of the large table, as a power of two.
const LARGE_DOUBLINGS: u32 = 19;

fn runs(sink: &mut Client, main: &str) -> bool {
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'ALTER TABLE%{main}%large%'"
    );
    sink.number(&sql).unwrap() > 0
}
