//! The harness by itself: what the load makes is replicated right by the servers' own replication, and the comparison
//! finds what is not.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::{Kind, Load, Pair};

const LOAD: Duration = Duration::from_secs(6);
const LIMIT: Duration = Duration::from_secs(60);

/// The sink as a replica of the source.
fn native(kind: Kind, change: &str, start: &str) {
    let _machine = crate::shared();
    let pair = Pair::own(kind, kind).unwrap();
    let mut sink = pair.sink.client().unwrap();
    let port = pair
        .source
        .address()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    sink.run(&change.replace("NUMBER", &port)).unwrap();
    sink.run(start).unwrap();
    pair.setup().unwrap();
    let load = Load::start(pair.source.uri(), &pair.names, &Options::default()).unwrap();
    std::thread::sleep(LOAD);
    let report = load.stop().unwrap();
    println!("{kind:?}: {report:?}");
    assert!(report.transactions > 200 && report.ddl > 10, "{report:?}");
    pair.equal_within(LIMIT).unwrap();

    let main = &pair.names.main;
    sink.run("SET sql_log_bin = 0").unwrap();
    for (damage, undo) in [
        (
            format!("UPDATE {main}.acct SET amount = amount + 0.001 WHERE id = 7"),
            format!("UPDATE {main}.acct SET amount = amount - 0.001 WHERE id = 7"),
        ),
        (
            format!("INSERT INTO {main}.nokey (a, bl) VALUES (NULL, 'damage'), (NULL, 'damage')"),
            format!("DELETE FROM {main}.nokey WHERE bl = 'damage'"),
        ),
        (
            format!("CREATE TABLE {main}.extra (id INT)"),
            format!("DROP TABLE {main}.extra"),
        ),
        (
            format!("ALTER TABLE {main}.beat ADD KEY k_damage (n)"),
            format!("ALTER TABLE {main}.beat DROP KEY k_damage"),
        ),
    ] {
        sink.run(&damage).unwrap();
        let error = pair.assert_equal().unwrap_err().to_string();
        assert!(error.contains("sink only"), "{damage}: {error}");
        sink.run(&undo).unwrap();
    }
    pair.assert_equal().unwrap();
}

#[test]
fn mysql_replicates_the_load_itself() {
    native(
        Kind::Mysql,
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=NUMBER, SOURCE_USER='root', \
         SOURCE_PASSWORD='weir', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
        "START REPLICA",
    );
}

const MARIADB_CHANGE: &str = "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=NUMBER, MASTER_USER='root', \
    MASTER_PASSWORD='weir', MASTER_USE_GTID=slave_pos";

#[test]
fn mariadb_118_replicates_the_load_itself() {
    native(Kind::Mariadb118, MARIADB_CHANGE, "START SLAVE");
}

#[test]
fn mariadb_1011_replicates_the_load_itself() {
    native(Kind::Mariadb1011, MARIADB_CHANGE, "START SLAVE");
}
