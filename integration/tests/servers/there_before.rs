//! Tables that are at both ends before the changefeed begins: no statement in the binlog makes them.

use std::time::Duration;

use weir_integration::pair::run_to_end;
use weir_integration::{Client, Kind, Pair};

const LIMIT: Duration = Duration::from_secs(60);
/// Rounds in which parents and children come and go.
const ROUNDS: u32 = 60;

/// Three levels at both ends, in no binlog.
fn make(client: &mut Client, schema: &str) {
    client
        .run_all([
            "SET sql_log_bin = 0".to_owned(),
            format!("CREATE DATABASE {schema}"),
            format!("CREATE TABLE {schema}.a (id INT PRIMARY KEY)"),
            format!(
                "CREATE TABLE {schema}.b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES {schema}.a (id) \
                 ON UPDATE CASCADE)"
            ),
            format!("CREATE TABLE {schema}.c (id INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES {schema}.b (id))"),
            "SET sql_log_bin = 1".to_owned(),
        ])
        .unwrap();
}

/// Rows whose parents do not live longer than they do, and some that stay.
fn round(client: &mut Client, schema: &str, number: u32) {
    let (gone, stays) = (2 * number + 1, 2 * number + 2);
    client
        .run_all([
            format!("INSERT INTO {schema}.a VALUES ({gone}), ({stays})"),
            format!("INSERT INTO {schema}.b VALUES ({gone}, {gone}), ({stays}, {stays})"),
            format!("INSERT INTO {schema}.c VALUES ({gone}, {gone}), ({stays}, {stays})"),
            format!("UPDATE {schema}.a SET id = id + 1000000 WHERE id = {gone}"),
            format!("DELETE FROM {schema}.c WHERE id = {gone}"),
            format!("DELETE FROM {schema}.b WHERE id = {gone}"),
            format!("DELETE FROM {schema}.a WHERE id = {gone} + 1000000"),
        ])
        .unwrap();
}

fn tied(kind: Kind) {
    let _machine = super::shared();
    let pair = Pair::new(kind, kind).unwrap();
    let schema = &pair.names.main;
    let (mut source, mut sink) = (pair.source.client().unwrap(), pair.sink.client().unwrap());
    make(&mut source, schema);
    make(&mut sink, schema);
    for number in 0..ROUNDS {
        round(&mut source, schema, number);
    }
    let feed = pair.feed("").unwrap();
    // Killed at once: nothing, or next to nothing, of its progress has been saved.
    let running = feed.start(&[]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    running.kill().unwrap();
    run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
    let running = feed.start(&[]).unwrap();
    for number in ROUNDS..2 * ROUNDS {
        round(&mut source, schema, number);
    }
    pair.equal_within(LIMIT).unwrap();
    running.kill().unwrap();
}

#[test]
fn tables_that_are_tied_move_together_from_the_start_mysql() {
    tied(Kind::Mysql);
}

#[test]
fn tables_that_are_tied_move_together_from_the_start_mariadb() {
    tied(Kind::Mariadb118);
}

/// MariaDB 10.11 cannot tell the GTIDs of a place behind an event that is larger than its `max_allowed_packet`.
#[test]
fn rows_behind_a_very_large_one_arrive() {
    let _machine = super::shared();
    let pair = Pair::own(Kind::Mariadb1011, Kind::Mariadb1011).unwrap();
    let schema = &pair.names.main;
    let mut source = pair.source.client().unwrap();
    source
        .run_all([
            format!("CREATE DATABASE {schema}"),
            format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, a LONGBLOB, b LONGBLOB)"),
            // Of a table that the filter leaves out: no statement holds it.
            "CREATE DATABASE elsewhere".to_owned(),
            format!("CREATE TABLE elsewhere.t LIKE {schema}.t"),
            "INSERT INTO elsewhere.t VALUES (1, REPEAT('a', 10000000), REPEAT('b', 10000000))".to_owned(),
            format!("INSERT INTO {schema}.t VALUES (1, 'x', 'y')"),
        ])
        .unwrap();
    let feed = pair.feed("").unwrap();
    run_to_end(&feed).unwrap();
    source
        .run(&format!("INSERT INTO {schema}.t VALUES (2, 'x', 'y')"))
        .unwrap();
    run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
}
