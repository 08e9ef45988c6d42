//! One table that is locked at the sink delays itself only.

use std::time::{Duration, Instant};

use weir_integration::load::Options;
use weir_integration::pair::lag;
use weir_integration::{Kind, Load, Pair};

/// Longest lag of a table that is not locked.
const LAG_MAX: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(120);
/// How long the lock is held, unless `WEIR_TEST_LOCK_SECONDS` says otherwise: shorter than the 60 s that Weir promises to
/// live through, to spare time in every run.
const LOCK_SECONDS: u64 = 15;

fn lock_time() -> Duration {
    let seconds = std::env::var("WEIR_TEST_LOCK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(LOCK_SECONDS))
}

/// `lock` at the sink; then every other kind of table is probed again and again while a load runs.
fn locked(kind: Kind, lock: &[&str], unlock: &str) {
    let _machine = crate::alone();
    let pair = Pair::new(kind, kind).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let main = &pair.names.main;
    let probes = [
        format!("{main}.beat"),
        format!("{main}.probe_nokey"),
        format!("{}.probe", pair.names.two),
    ];
    let mut source = pair.source.client().unwrap();
    source
        .run_all([
            format!(
                "CREATE TABLE {} (client INT, n BIGINT, UNIQUE KEY (client))",
                probes[1]
            ),
            format!(
                "CREATE TABLE {} (client INT NOT NULL PRIMARY KEY, n BIGINT)",
                probes[2]
            ),
        ])
        .unwrap();
    let running = feed.start(&[]).unwrap();
    pair.equal_within(LIMIT).unwrap();
    let options = Options {
        clients: 3,
        pause: Duration::from_millis(15),
        ddl_pause: None,
        ..Options::default()
    };
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    let (mut holder, mut sink) = (pair.sink.client().unwrap(), pair.sink.client().unwrap());
    holder
        .run_all(lock.iter().map(|sql| sql.replace("DB", main)))
        .unwrap();
    let start = Instant::now();
    let mut worst = Duration::ZERO;
    while start.elapsed() < lock_time() {
        for table in &probes {
            let took = lag(&mut source, &mut sink, table, LIMIT).unwrap();
            worst = worst.max(took);
            assert!(
                took < LAG_MAX,
                "`{table}` after {:?}: {took:?}\n{}",
                start.elapsed(),
                running.trouble()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    holder.run(unlock).unwrap();
    println!("{kind:?}: worst lag {worst:?} in {:?}", start.elapsed());
    load.stop().unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
}

#[test]
fn lock_tables_at_mysql() {
    locked(Kind::Mysql, &["LOCK TABLES DB.acct WRITE"], "UNLOCK TABLES");
}

#[test]
fn an_open_row_lock_at_mysql() {
    locked(
        Kind::Mysql,
        &["BEGIN", "SELECT COUNT(*) FROM DB.acct WHERE id <= 200 FOR UPDATE"],
        "ROLLBACK",
    );
}

#[test]
fn lock_tables_at_mariadb() {
    locked(Kind::Mariadb118, &["LOCK TABLES DB.acct WRITE"], "UNLOCK TABLES");
}
