//! Sources whose binlog names no columns: names, signs and members come from the catalogue, or there is an error.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::{Kind, Load, Pair, TestServer, caught_up};

const LOAD: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(60);
/// Longer than the time of a table's last change may lie behind the stream.
const LATER: Duration = Duration::from_secs(12);

/// Statements on `d0` to `d5`, each with rows behind it that can only be read by what the table is then.
fn changes(main: &str) -> Vec<[String; 2]> {
    let insert = |rest: &str| format!("INSERT INTO {main}.{rest}");
    vec![
        [
            format!(
                "ALTER TABLE {main}.d0 ADD COLUMN u TINYINT UNSIGNED FIRST, ADD COLUMN e ENUM('x','ö') AFTER v"
            ),
            insert("d0 (u, v, e, s) VALUES (255, 1, 'ö', 'a'), (128, -1, 'x', 'b')"),
        ],
        [
            format!("ALTER TABLE {main}.d1 RENAME COLUMN s TO w"),
            insert("d1 (v, w) VALUES (1, 'renamed')"),
        ],
        [
            format!(
                "RENAME TABLE {main}.d0 TO {main}.between, {main}.d1 TO {main}.d0, {main}.between TO {main}.d1"
            ),
            insert("d1 (u, v, e, s) VALUES (200, 2, 'x', 'swapped')"),
        ],
        [
            format!("DROP TABLE {main}.d2, {main}.d3"),
            insert("d0 (v, w) VALUES (3, 'other')"),
        ],
        [
            format!("CREATE TABLE {main}.d2 (s INT UNSIGNED, v VARCHAR(50), id BIGINT PRIMARY KEY)"),
            insert("d2 VALUES (4294967295, 'new', -1)"),
        ],
        [
            format!("TRUNCATE TABLE {main}.d2"),
            insert("d2 VALUES (4000000000, 'again', -2)"),
        ],
    ]
}

fn without_names(kind: Kind, metadata: &str, seed: u64) {
    let _machine = crate::shared();
    let setting = format!("--binlog-row-metadata={metadata}");
    let source = TestServer::own(kind, &[&setting]).unwrap();
    let pair = Pair::of(source, TestServer::own(kind, &[]).unwrap()).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    // A description that is read while the table changes further is refused, so that DDL waits for Weir here.
    let options = Options {
        seed,
        ddl_pause: None,
        ..Options::default()
    };
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    let running = feed.start(&[]).unwrap();
    std::thread::sleep(LOAD);
    let report = load.stop().unwrap();
    assert!(report.transactions > 100, "{report:?}");
    let same = |step: &str, running: &weir_integration::Running| {
        let equal = pair.equal_within(LIMIT);
        assert!(equal.is_ok(), "{step}: {equal:?}\n{}", running.trouble());
    };
    same("load", &running);
    let mut client = pair.source.client().unwrap();
    let main = &pair.names.main;
    for [change, rows] in changes(main) {
        client.run(&change).unwrap();
        client.run(&rows).unwrap();
        same(&change, &running);
    }
    caught_up(&feed, running).unwrap();

    // While nobody reads, a column gets another's name: which rows have which is not guessed.
    client
        .run(&format!("INSERT INTO {main}.d4 (v, s) VALUES (7, 'before')"))
        .unwrap();
    std::thread::sleep(LATER);
    client
        .run(&format!("ALTER TABLE {main}.d4 RENAME COLUMN s TO z"))
        .unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(3);
    let (code, message) = finished.error();
    assert_eq!(code, "WEIR-SRC-028", "{message}");
    assert!(message.contains(&format!("{main}.d4")), "{message}");
    let mut sink = pair.sink.client().unwrap();
    let sql = format!("SELECT COUNT(*) FROM {main}.d4 WHERE s = 'before'");
    assert_eq!(
        sink.number(&sql).unwrap(),
        0,
        "a row of a table that is not known"
    );
}

#[test]
fn mysql_with_minimal_metadata() {
    without_names(Kind::Mysql, "MINIMAL", 71);
}

#[test]
fn mariadb_118_without_metadata() {
    without_names(Kind::Mariadb118, "NO_LOG", 72);
}

#[test]
fn mariadb_1011_with_minimal_metadata() {
    without_names(Kind::Mariadb1011, "MINIMAL", 73);
}
