//! Transactions that are not one piece: prepared ones (XA) that are decided later, parts that are rolled back, and one
//! of millions of rows, each across kills of Weir.

use std::time::Duration;

use weir_integration::pair::run_to_end;
use weir_integration::rng::Rng;
use weir_integration::{Changefeed, Client, Kind, Pair, Running, caught_up, wait_until};

const LIMIT: Duration = Duration::from_secs(120);
/// Rows of each prepared transaction.
const ROWS: u32 = 50;
/// Rows of the large transaction, unless `WEIR_TEST_LARGE_ROWS` says otherwise.
const LARGE_ROWS: u32 = 1_000_000;
/// Kills while it is on its way.
const LARGE_KILLS: u32 = 6;
/// Memory quota of the large transaction's changefeed, and what its peak may be.
const LARGE_QUOTA_MIB: u64 = 256;
const LARGE_PEAK_MIB: u64 = LARGE_QUOTA_MIB / 5 * 6 + 100;

fn database(pair: &Pair, tables: &[&str]) {
    let main = &pair.names.main;
    let mut client = pair.source.client().unwrap();
    client
        .run(&format!(
            "CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
        ))
        .unwrap();
    for table in tables {
        client.run(&format!("CREATE TABLE {main}.{table}")).unwrap();
    }
}

/// A transaction that is prepared in a session of its own, which is then gone.
fn prepare(pair: &Pair, name: &str, first: u32) {
    let main = &pair.names.main;
    let mut client = pair.source.client().unwrap();
    client.run(&format!("XA START '{name}'")).unwrap();
    for id in first..first + ROWS {
        client
            .run_all([
                format!("INSERT INTO {main}.xa VALUES ({id}, '{name}')"),
                format!("INSERT INTO {main}.nokey VALUES ({id}, '{name}')"),
            ])
            .unwrap();
    }
    client
        .run_all([format!("XA END '{name}'"), format!("XA PREPARE '{name}'")])
        .unwrap();
}

/// Ends a prepared transaction from another session. The one that prepared it may still be closing.
fn decide(client: &mut Client, decision: &str, name: &str) {
    let sql = format!("XA {decision} '{name}'");
    wait_until(&sql, LIMIT, || Ok(client.run(&sql).is_ok())).unwrap();
}

fn beat(pair: &Pair, id: u32) {
    let table = format!("{}.plain", pair.names.main);
    let mut client = pair.source.client().unwrap();
    client
        .run(&format!("INSERT INTO {table} VALUES ({id}, 'x')"))
        .unwrap();
    let mut sink = pair.sink.client().unwrap();
    let sql = format!("SELECT COUNT(*) FROM {table} WHERE id = {id}");
    wait_until("a row behind prepared ones", LIMIT, || {
        Ok(sink.number(&sql).is_ok_and(|rows| rows == 1))
    })
    .unwrap();
}

fn names_at_sink(pair: &Pair) -> Vec<String> {
    let sql = format!("SELECT DISTINCT v FROM {}.xa ORDER BY v", pair.names.main);
    let mut sink = pair.sink.client().unwrap();
    sink.text(&sql).unwrap().into_iter().flatten().collect()
}

/// Tables wait for themselves only, so that rows of another one say nothing of these.
fn wait_names(pair: &Pair, wanted: &[&str]) {
    wait_until("what was committed", LIMIT, || Ok(names_at_sink(pair) == wanted)).unwrap();
}

/// Prepared before, while and after Weir is killed or stopped; committed or rolled back at each of these times.
fn xa(kind: Kind) {
    let _machine = crate::shared();
    let pair = Pair::own(kind, kind).unwrap();
    let feed = pair.feed("").unwrap();
    let row = "(id INT PRIMARY KEY, v VARCHAR(20))";
    database(
        &pair,
        &[
            &format!("xa {row}"),
            "nokey (id INT, v VARCHAR(20))",
            &format!("plain {row}"),
        ],
    );
    let mut client = pair.source.client().unwrap();
    let running = feed.start(&[]).unwrap();
    for (place, name) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        prepare(&pair, name, 1_000 * (u32::try_from(place).unwrap() + 1));
    }
    beat(&pair, 1);
    assert!(
        names_at_sink(&pair).is_empty(),
        "what is prepared is not there yet"
    );
    decide(&mut client, "COMMIT", "a");
    beat(&pair, 2);
    wait_names(&pair, &["a"]);
    assert!(running.kill().unwrap());
    decide(&mut client, "COMMIT", "b");
    decide(&mut client, "ROLLBACK", "c");
    let running = feed.start(&[]).unwrap();
    beat(&pair, 3);
    wait_names(&pair, &["a", "b"]);
    prepare(&pair, "f", 9_000);
    beat(&pair, 4);
    caught_up(&feed, running).unwrap();
    decide(&mut client, "COMMIT", "f");
    decide(&mut client, "ROLLBACK", "d");
    let running = feed.start(&[]).unwrap();
    decide(&mut client, "COMMIT", "e");
    // In one phase: nothing is prepared.
    client
        .run_all([
            "XA START 'g'".to_owned(),
            format!("INSERT INTO {}.xa VALUES (1, 'g')", pair.names.main),
            "XA END 'g'".to_owned(),
            "XA COMMIT 'g' ONE PHASE".to_owned(),
        ])
        .unwrap();
    beat(&pair, 5);
    caught_up(&feed, running).unwrap();
    assert_eq!(names_at_sink(&pair), ["a", "b", "e", "f", "g"]);
    pair.assert_equal().unwrap();
}

#[test]
fn mysql_prepared_transactions() {
    xa(Kind::Mysql);
}

#[test]
fn mariadb_118_prepared_transactions() {
    xa(Kind::Mariadb118);
}

#[test]
fn mariadb_1011_prepared_transactions() {
    xa(Kind::Mariadb1011);
}

/// The binlog holds what was rolled back to a savepoint where a table without transactions was written behind it.
fn savepoints(kind: Kind, seed: u64) {
    let _machine = crate::shared();
    let pair = Pair::own(kind, kind).unwrap();
    let feed = pair.feed("").unwrap();
    database(
        &pair,
        &[
            "inno (id INT PRIMARY KEY, n INT) ENGINE=InnoDB",
            "my (id INT PRIMARY KEY) ENGINE=MyISAM",
        ],
    );
    let mut rng = Rng::new(seed);
    let mut client = pair.source.client().unwrap();
    let running = feed.start(&[]).unwrap();
    let (main, mut id) = (&pair.names.main, 0);
    for round in 0..60 {
        client.run("BEGIN").unwrap();
        let mut open: Vec<u64> = Vec::new();
        for step in 0..3 + rng.below(9) {
            id += 1;
            let sql = match rng.below(5) {
                0 => {
                    open.push(step);
                    format!("SAVEPOINT s{step}")
                }
                1 if !open.is_empty() => {
                    let place = usize::try_from(rng.below(open.len() as u64)).unwrap();
                    // Those behind it are gone; it stays.
                    open.truncate(place + 1);
                    format!("ROLLBACK TO SAVEPOINT s{}", open[place])
                }
                2 => format!("INSERT INTO {main}.my VALUES ({id})"),
                3 => format!("UPDATE {main}.inno SET n = n + 1 WHERE id % 7 = {}", rng.below(7)),
                _ => format!("INSERT INTO {main}.inno VALUES ({id}, {round})"),
            };
            client.run(&sql).unwrap();
        }
        // What has no transactions stays after a rollback too.
        let end = if rng.below(5) > 0 { "COMMIT" } else { "ROLLBACK" };
        client.run(end).unwrap();
    }
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
}

#[test]
fn mariadb_118_savepoints() {
    savepoints(Kind::Mariadb118, 31);
}

#[test]
fn mariadb_1011_savepoints() {
    savepoints(Kind::Mariadb1011, 32);
}

fn large_rows() -> u32 {
    let rows = std::env::var("WEIR_TEST_LARGE_ROWS").ok();
    rows.and_then(|text| text.parse().ok()).unwrap_or(LARGE_ROWS)
}

/// One statement that fills a table; its rows are one transaction.
fn fill(client: &mut Client, main: &str, rows: u32) {
    client
        .run_all([
            format!("SET SESSION cte_max_recursion_depth = {}", rows + 1),
            format!(
                "INSERT INTO {main}.big SELECT i, CONCAT('value ', i * 7) FROM \
                 (WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
                 SELECT i FROM n) AS numbers"
            ),
        ])
        .unwrap();
}

/// Waits until Weir has read a random part of the transaction, and kills it.
fn kill_at_random(feed: &Changefeed, rng: &mut Rng) {
    let mut running: Running = feed.start(&[]).unwrap();
    std::thread::sleep(Duration::from_millis(300 + rng.below(2_500)));
    assert!(running.is_running().unwrap(), "{}", running.trouble());
    let peak = running.kill_with_peak().unwrap().unwrap() >> 20;
    assert!(peak <= LARGE_PEAK_MIB, "{peak} MiB");
}

#[test]
fn one_of_millions_of_rows_survives_kills() {
    let _machine = crate::alone();
    let pair = Pair::own(Kind::Mysql, Kind::Mysql).unwrap();
    let feed = pair.feed_within(&format!("{LARGE_QUOTA_MIB}MiB"), "").unwrap();
    database(
        &pair,
        &[
            "big (id INT PRIMARY KEY, v VARCHAR(40))",
            "plain (id INT PRIMARY KEY, v VARCHAR(20))",
        ],
    );
    let (main, rows) = (pair.names.main.clone(), large_rows());
    let mut client = pair.source.client().unwrap();
    fill(&mut client, &main, rows);
    client
        .run(&format!("INSERT INTO {main}.plain VALUES (1, 'behind')"))
        .unwrap();
    let mut rng = Rng::new(77);
    for _ in 0..LARGE_KILLS {
        kill_at_random(&feed, &mut rng);
    }
    run_to_end(&feed).unwrap();
    let sums = format!("SELECT COUNT(*), SUM(CRC32(CONCAT(id, ':', v))) FROM {main}.big");
    let wanted = client.text(&sums).unwrap();
    assert_eq!(wanted[0][0], rows.to_string());
    let mut sink = pair.sink.client().unwrap();
    assert_eq!(sink.text(&sums).unwrap(), wanted);
    assert_eq!(
        sink.number(&format!("SELECT COUNT(*) FROM {main}.plain"))
            .unwrap(),
        1
    );
}
