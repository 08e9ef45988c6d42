//! Rows per table and kind are those that `mysqlbinlog -vv` counted when the recording was made.

use weir_integration::{Changefeed, Output, Recording};

fn counts_match(name: &str) {
    let recording = Recording::open(name).unwrap();
    let feed = Changefeed::to_files(&recording.folder, "").unwrap();
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert_eq!(output.tables, recording.tables);
    assert_eq!(output.ddl, recording.ddl, "DDL: {:#?}", output.statements);
    assert_eq!(output.unfinished, 0);
}

macro_rules! recordings {
    ($($test:ident $name:literal,)*) => {
        $(#[test] fn $test() { counts_match($name); })*

        #[test]
        fn every_recording_is_tested() {
            let mut tested = vec![$($name),*];
            tested.sort_unstable();
            assert_eq!(Recording::names().unwrap(), tested);
        }
    };
}

recordings! {
    quickstart "quickstart",
    mysql "mysql-9.7",
    mysql_compressed "mysql-9.7-compressed",
    mysql_without_checksums "mysql-9.7-no-checksum",
    mysql_xa "mysql-9.7-xa",
    mysql_tagged_gtids "mysql-9.7-tagged",
    mariadb_10_11 "mariadb-10.11",
    mariadb_10_11_compressed "mariadb-10.11-compressed",
    mariadb_10_11_xa "mariadb-10.11-xa",
    mariadb_11_8 "mariadb-11.8",
    mariadb_11_8_compressed "mariadb-11.8-compressed",
    mariadb_11_8_xa "mariadb-11.8-xa",
}

/// Compressed transactions hold the same rows as plain ones, byte for byte in the output.
#[test]
fn compression_changes_nothing() {
    let mut outputs = Vec::new();
    for name in ["mysql-9.7", "mysql-9.7-compressed"] {
        let recording = Recording::open(name).unwrap();
        let more = "[filter]\nrules = [\"shapes.*\"]";
        let feed = Changefeed::to_files(&recording.folder, more).unwrap();
        feed.catch_up().unwrap().assert_ok();
        let mut output = Output::read(&feed.out).unwrap();
        // The two recordings were made seconds apart.
        for line in output.streams.values_mut().flatten() {
            let mut message: serde_json::Value = serde_json::from_str(line).unwrap();
            for key in ["es", "_weir"] {
                message.as_object_mut().unwrap().remove(key);
            }
            *line = message.to_string();
        }
        assert!(output.total().all() > 0);
        outputs.push(output);
    }
    outputs[0].assert_same_rows(&outputs[1], "compressed against plain");
}

/// A second run over the same source with the same state adds nothing.
#[test]
fn a_finished_run_adds_nothing() {
    let recording = Recording::open("mysql-9.7").unwrap();
    let feed = Changefeed::to_files(&recording.folder, "").unwrap();
    feed.catch_up().unwrap().assert_ok();
    let first = Output::read(&feed.out).unwrap();
    feed.catch_up().unwrap().assert_ok();
    assert_eq!(Output::read(&feed.out).unwrap(), first);
}

/// The blackhole sees as many rows as the files hold.
#[test]
fn the_blackhole_counts_what_it_visits() {
    let recording = Recording::open("quickstart").unwrap();
    let feed = Changefeed::to_blackhole(&recording.folder, "", "").unwrap();
    let result = feed.catch_up().unwrap().assert_ok().result();
    let total = recording.total();
    assert_eq!(result["inserts"], total.inserts);
    assert_eq!(result["updates"], total.updates);
    assert_eq!(result["deletes"], total.deletes);
}

/// Rules leave tables out, routes rename them; the rest is whole.
#[test]
fn filter_and_routes_choose_and_rename() {
    let recording = Recording::open("quickstart").unwrap();
    let more = "[filter]\nrules = [\"tpcc.*\", \"!tpcc.st*\"]\n[[route]]\nmatch = \"tpcc.order*\"\n\
                target-schema = \"{schema}_copy\"";
    let feed = Changefeed::to_files(&recording.folder, more).unwrap();
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    let mut wanted = recording.tables;
    assert!(wanted.remove("tpcc.stock").is_some());
    for table in ["orders", "order_line"] {
        let rows = wanted.remove(&format!("tpcc.{table}")).unwrap();
        wanted.insert(format!("tpcc_copy.{table}"), rows);
    }
    assert_eq!(output.tables, wanted);
}
