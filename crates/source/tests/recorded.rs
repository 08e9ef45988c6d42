//! Binlogs of real servers: what becomes visible is what `mysqlbinlog -vv` counted,
//! however the reading is cut.

mod model;

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::{Model, options, read};
use weir_source::files::{End, FilesOptions, StartAt, StopAt};
use weir_types::{DdlKind, Flavor, GtidSet};

const RECORDINGS: [&str; 11] = [
    "mysql-9.7",
    "mysql-9.7-compressed",
    "mysql-9.7-tagged",
    "mysql-9.7-xa",
    "mariadb-10.11",
    "mariadb-10.11-compressed",
    "mariadb-10.11-xa",
    "mariadb-11.8",
    "mariadb-11.8-compressed",
    "mariadb-11.8-xa",
    "quickstart",
];

const LARGE_BUFFER: usize = 64 << 20;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../integration/data")
        .join(name)
}

fn expected(name: &str) -> (serde_json::Value, BTreeMap<String, [u64; 3]>) {
    let text = std::fs::read_to_string(folder(name).join("expected.json")).expect("expected.json");
    let json: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    let tables = json["tables"].as_object().expect("tables").iter();
    let counts = tables.map(|(table, kinds)| {
        let kind = |name: &str| kinds[name].as_u64().expect("a number");
        (table.clone(), [kind("insert"), kind("update"), kind("delete")])
    });
    let counts = counts.filter(|(_, kinds)| *kinds != [0; 3]).collect();
    (json, counts)
}

fn whole(name: &str) -> Model {
    let mut model = Model::default();
    let end = read(
        options(&folder(name)),
        &["*.*"],
        LARGE_BUFFER,
        &mut model,
        usize::MAX,
    );
    assert!(matches!(end, Ok(End::Reached)), "{name}: {end:?}");
    model
}

#[test]
fn rows_are_those_that_mysqlbinlog_counted() {
    for name in RECORDINGS {
        let model = whole(name);
        let (json, counts) = expected(name);
        assert_eq!(model.counts(), counts, "{name}");
        let with_rows = model.txns.iter().filter(|txn| !txn.rows.is_empty()).count();
        assert_eq!(json["transactions"].as_u64(), Some(with_rows as u64), "{name}");
        let ddls = model.txns.iter().flat_map(|txn| &txn.ddls);
        let statements = ddls.filter(|ddl| ddl.kind != DdlKind::ImplicitCreate).count();
        // Views hold no rows, and are counted apart.
        let views = json["view-ddl"].as_u64().unwrap_or(0);
        assert_eq!(json["ddl"].as_u64(), Some(statements as u64), "{name}");
        assert!(model.ignored_statements >= views, "{name}");
    }
}

#[test]
fn a_small_transaction_buffer_changes_nothing_that_is_visible() {
    let mut fragments = 0;
    for name in RECORDINGS {
        let all = whole(name);
        for buffer in [1, 3_000, 100_000] {
            let mut model = Model::default();
            read(options(&folder(name)), &["*.*"], buffer, &mut model, usize::MAX).expect(name);
            assert!(model.txns == all.txns, "{name} with {buffer} bytes");
            fragments += model.fragments;
        }
    }
    assert!(fragments > 1_000, "only {fragments} fragments");
}

#[test]
fn a_restart_behind_any_input_gives_the_same() {
    let mut sum = 0;
    for name in RECORDINGS.iter().filter(|name| **name != "quickstart") {
        let all = whole(name);
        for step in [1, 2, 7] {
            let mut model = Model::default();
            let mut restarts = 0;
            // With one byte of buffer each row event is an input of its own; a
            // transaction must fit between two restarts, so their distance grows.
            loop {
                let accepted = step + restarts;
                let end = read(options(&folder(name)), &["*.*"], 2_000, &mut model, accepted);
                if matches!(end.expect(name), End::Reached) {
                    break;
                }
                model.crash();
                restarts += 1;
            }
            assert!(model.txns == all.txns, "{name}, {restarts} restarts");
            sum += restarts;
        }
    }
    assert!(sum > 100, "only {sum} restarts");
}

#[test]
fn a_start_behind_a_gtid_set_leaves_out_exactly_that_set() {
    for name in RECORDINGS.iter().filter(|name| **name != "quickstart") {
        let all = whole(name);
        for at in [1, all.txns.len() / 2, all.txns.len() - 2] {
            let mut set = GtidSet::default();
            for txn in &all.txns[..at] {
                let text = txn.gtid.clone().expect("recorded with GTIDs");
                set.union(&GtidSet::parse(&text).expect("a GTID"));
            }
            let prepared_before = name.ends_with("-xa");
            if prepared_before {
                continue;
            }
            let from = FilesOptions {
                start: StartAt::Gtids(set),
                ..options(&folder(name))
            };
            let mut model = Model::default();
            read(from, &["*.*"], LARGE_BUFFER, &mut model, usize::MAX).expect(name);
            let rows = |txns: &[model::Txn]| {
                txns.iter()
                    .map(|t| (t.gtid.clone(), t.rows.clone()))
                    .collect::<Vec<_>>()
            };
            assert!(rows(&model.txns) == rows(&all.txns[at..]), "{name} from {at}");
        }
    }
}

#[test]
fn a_run_until_a_gtid_or_an_offset_ends_behind_that_transaction() {
    for name in ["mysql-9.7", "mariadb-11.8-compressed", "mysql-9.7-tagged"] {
        let all = whole(name);
        let at = all.txns.len() / 3;
        let gtid = all.txns[at].gtid.clone().expect("a GTID");
        let set = GtidSet::parse(&gtid).expect("a GTID");
        let mut model = Model::default();
        let until = FilesOptions {
            stop: Some(StopAt::Gtids(set)),
            ..options(&folder(name))
        };
        let end = read(until, &["*.*"], LARGE_BUFFER, &mut model, usize::MAX);
        assert!(matches!(end, Ok(End::Reached)));
        assert!(model.txns == all.txns[..=at], "{name}");
        let file = model.position.clone().expect("a position").file.to_string();
        let offset = all.txns[at].end_offset - 1;
        let mut model = Model::default();
        let until = FilesOptions {
            stop: Some(StopAt::File { name: file, offset }),
            ..options(&folder(name))
        };
        read(until, &["*.*"], LARGE_BUFFER, &mut model, usize::MAX).expect(name);
        assert!(model.txns == all.txns[..=at], "{name}");
    }
}

#[test]
fn a_filter_keeps_ordinals_and_transactions() {
    for name in [
        "mysql-9.7",
        "mysql-9.7-compressed",
        "mariadb-10.11",
        "mariadb-11.8-compressed",
    ] {
        let all = whole(name);
        let mut model = Model::default();
        read(
            options(&folder(name)),
            &["shop.*"],
            LARGE_BUFFER,
            &mut model,
            usize::MAX,
        )
        .expect(name);
        assert_eq!(model.txns.len(), all.txns.len(), "{name}");
        for (some, every) in model.txns.iter().zip(&all.txns) {
            let wanted: Vec<_> = every
                .rows
                .iter()
                .filter(|row| &*row.table.schema == "shop")
                .cloned()
                .collect();
            assert!(some.rows == wanted, "{name}");
        }
        assert!(model.counts().keys().all(|table| table.starts_with("shop.")));
    }
}

#[test]
fn statements_come_with_the_session_that_ran_them() {
    let mut told = BTreeMap::new();
    for name in RECORDINGS {
        let model = whole(name);
        let ddls = model.txns.iter().flat_map(|txn| &txn.ddls);
        for ddl in ddls.filter(|ddl| ddl.kind != DdlKind::ImplicitCreate) {
            let session = &ddl.session;
            let flavor = if name.starts_with("mariadb") {
                Flavor::Mariadb
            } else {
                Flavor::Mysql
            };
            assert_eq!(session.flavor, Some(flavor), "{name}");
            // The servers' own default modes; MariaDB has bits that MySQL has not.
            let sql_mode = match flavor {
                Flavor::Mysql => 0x45a0_0020,
                Flavor::Mariadb => 0x5420_0000,
            };
            assert_eq!(session.sql_mode, Some(sql_mode), "{name}");
            assert!(session.timestamp > Some(1_796_000_000), "{name}");
            assert!(session.collation_connection.is_some(), "{name}");
            *told.entry("explicit").or_insert(0) +=
                u32::from(session.explicit_defaults_for_timestamp == Some(true));
            let utf8mb4 = session.character_set_collations.iter().flatten();
            *told.entry("collations").or_insert(0) += utf8mb4.filter(|pair| pair.0 == 45).count() as u32;
        }
    }
    assert!(told.values().all(|&count| count > 0), "{told:?}");
}
