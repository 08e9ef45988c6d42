//! Every rule of the transaction assembler, with events made by hand.

mod bench;
mod model;

use std::sync::Arc;

use bench::{Bench, EVENT_BYTES, table_id};
use proptest::prelude::*;
use weir_binlog::event::{Event, Incident, StatementPart};
use weir_binlog::gtid::{EXTRA_START_ALTER, MariadbGtid};
use weir_binlog::query::{QueryCharset, QuerySettings};
use weir_binlog::xa::XaPrepare;
use weir_protocol::store::StoreInput;
use weir_source::{RowsMeta, Skip, SourceError};
use weir_types::{AttemptId, Classified, DdlKind, RowKind, TableName, Xid};

fn code(result: Result<(), SourceError>) -> &'static str {
    result.expect_err("an error").code()
}

#[test]
fn rows_after_a_savepoint_go_when_it_is_rolled_back_to() {
    let mut b = Bench::new();
    b.begin();
    b.insert("t", 1).unwrap();
    b.query("SAVEPOINT a").unwrap();
    b.insert("t", 2).unwrap();
    b.query("SAVEPOINT `B`").unwrap();
    b.insert("u", 3).unwrap();
    b.query("ROLLBACK TO `b`").unwrap();
    b.insert("u", 4).unwrap();
    b.query("ROLLBACK TO a").unwrap();
    b.insert("t", 5).unwrap();
    assert_eq!(code(b.query("ROLLBACK TO b")), "WEIR-SRC-006");
    b.xid().unwrap();
    b.flush();
    assert_eq!(b.visible(), [[1, 5]]);
    let ordinals: Vec<u32> = b.model.txns[0].rows.iter().map(|row| row.ordinal).collect();
    assert_eq!(ordinals, [1, 5], "ordinals count what was undone, too");
}

#[test]
fn rows_that_are_in_the_store_already_are_undone_by_their_ordinals() {
    let mut b = Bench::with(&["s.*"], 1, Skip::Nothing);
    b.begin();
    b.insert("t", 1).unwrap();
    b.query("SAVEPOINT a").unwrap();
    b.insert("t", 2).unwrap();
    b.insert("u", 3).unwrap();
    b.query("ROLLBACK TO a").unwrap();
    b.insert("t", 4).unwrap();
    b.xid().unwrap();
    b.begin();
    b.insert("t", 9).unwrap();
    b.xid().unwrap();
    b.flush();
    assert_eq!(b.visible(), [vec![1, 4], vec![9]]);
    let attempts: Vec<AttemptId> = b
        .inputs
        .iter()
        .filter_map(|input| match input {
            StoreInput::Commit { attempt, .. } => Some(*attempt),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [AttemptId(7), AttemptId(8)], "never used again");
    let aborted = b.inputs.iter().find_map(|input| match input {
        StoreInput::Commit { aborted, .. } => Some(aborted.clone()),
        _ => None,
    });
    assert_eq!(aborted, Some(std::iter::once(2..4).collect()));
}

#[test]
fn a_rolled_back_transaction_keeps_its_gtid_only() {
    for buffer in [1, 1 << 20] {
        let mut b = Bench::with(&["s.*"], buffer, Skip::Nothing);
        b.begin();
        b.insert("t", 1).unwrap();
        b.insert("t", 2).unwrap();
        b.query("ROLLBACK").unwrap();
        b.begin();
        b.insert("t", 3).unwrap();
        b.xid().unwrap();
        b.flush();
        assert_eq!(b.visible(), [vec![], vec![3]]);
        assert!(b.model.txns.iter().all(|txn| txn.gtid.is_some()));
        let discards = b
            .inputs
            .iter()
            .filter(|i| matches!(i, StoreInput::Discard { .. }))
            .count();
        assert_eq!(discards, usize::from(buffer == 1));
        // The creation of the table went with the transaction, and is told again.
        assert_eq!(b.kinds(), [(DdlKind::ImplicitCreate, 0)]);
    }
}

#[test]
fn a_prepared_transaction_shows_its_rows_when_it_commits() {
    for buffer in [1, 1 << 20] {
        let mut b = Bench::with(&["s.*"], buffer, Skip::Nothing);
        let xid = |name: &str| Xid(Arc::from(format!("X'{name}',X'',1")));
        for (name, value) in [("61", 1), ("62", 2)] {
            b.gtid().unwrap();
            b.query(&format!("XA START X'{name}',X'',1")).unwrap();
            b.insert("t", value).unwrap();
            b.query(&format!("XA END X'{name}',X'',1")).unwrap();
            let prepare = XaPrepare {
                one_phase: false,
                xid: xid(name),
            };
            b.event(&Event::XaPrepare(prepare)).unwrap();
        }
        b.begin();
        b.insert("t", 3).unwrap();
        b.xid().unwrap();
        b.gtid().unwrap();
        b.query("XA COMMIT X'62',X'',1").unwrap();
        b.gtid().unwrap();
        b.query("XA ROLLBACK X'61',X'',1").unwrap();
        b.gtid().unwrap();
        b.query("XA START X'63',X'',1").unwrap();
        b.insert("t", 4).unwrap();
        b.query("XA END X'63',X'',1").unwrap();
        b.event(&Event::XaPrepare(XaPrepare {
            one_phase: true,
            xid: xid("63"),
        }))
        .unwrap();
        b.flush();
        assert_eq!(b.visible(), [vec![], vec![], vec![3], vec![2], vec![], vec![4]]);
        assert_eq!(b.model.txns.iter().filter(|txn| txn.gtid.is_some()).count(), 6);
    }
}

#[test]
fn a_transaction_must_end_before_the_next_one_begins() {
    let mut b = Bench::new();
    b.begin();
    b.insert("t", 1).unwrap();
    assert_eq!(code(b.gtid()), "WEIR-SRC-003");
    assert_eq!(code(b.event(&Event::Stop)), "WEIR-SRC-003");
    let file = b.assembler.begin_file(Arc::from("b.000002"), 4);
    assert_eq!(code(file), "WEIR-SRC-003");
    assert!(b.model.txns.is_empty());
}

#[test]
fn events_outside_of_transactions_are_errors() {
    let mut b = Bench::new();
    assert_eq!(code(b.xid()), "WEIR-SRC-004");
    assert_eq!(code(b.map("t")), "WEIR-SRC-004");
    assert_eq!(code(b.rows("t", 1)), "WEIR-SRC-004");
    b.gtid().unwrap();
    assert_eq!(code(b.rows("t", 1)), "WEIR-SRC-004");
    b.query("BEGIN").unwrap();
    assert_eq!(code(b.rows("t", 1)), "WEIR-SRC-005");
    b.insert("t", 1).unwrap();
    b.xid().unwrap();
    b.begin();
    assert_eq!(
        code(b.rows("t", 1)),
        "WEIR-SRC-005",
        "a map holds for its transaction only"
    );
}

#[test]
fn rows_changed_by_statements_are_errors_where_they_are_wanted() {
    for (sql, error) in [
        ("INSERT INTO t VALUES (1)", true),
        ("INSERT INTO other.t VALUES (1)", false),
        ("DELETE FROM mysql.user", false),
        ("UPDATE t, other.t SET x = 1", true),
        ("CREATE TABLE t AS SELECT 1", true),
        ("SELECT f()", true),
    ] {
        let mut b = Bench::new();
        b.begin();
        b.event(&Event::Statement(StatementPart::IntVar)).unwrap();
        let result = b.query(sql);
        if error {
            assert_eq!(code(result), "WEIR-SRC-002", "{sql}");
        } else {
            result.unwrap();
            b.query("COMMIT").unwrap();
        }
    }
    let mut b = Bench::new();
    b.begin();
    assert_eq!(
        code(b.event(&Event::Statement(StatementPart::LoadData))),
        "WEIR-SRC-002"
    );
}

#[test]
fn what_cannot_be_read_is_never_passed_over() {
    let mut b = Bench::new();
    let incident = Incident {
        number: 1,
        message: b"",
    };
    assert_eq!(code(b.event(&Event::Incident(incident))), "WEIR-SRC-008");
    assert_eq!(code(b.event(&Event::StartEncryption)), "WEIR-SRC-009");
    b.begin();
    b.map_with("other", "x", &[])
        .expect("unwanted tables need no names");
    let error = b.map_with("s", "x", &[]).expect_err("wanted ones do");
    assert_eq!(
        (error.code(), error.class()),
        ("WEIR-BIN-013", weir_types::ErrorClass::Changefeed)
    );
    b.query("COMMIT").unwrap();
    b.gtid().unwrap();
    let error = b.query("DROP TABLE a b").expect_err("no list of names");
    assert!(error.code().starts_with("WEIR-SCH-"));
    assert!(error.to_string().contains("b.000001:"), "{error}");
}

#[test]
fn tables_that_no_create_made_enter_the_history() {
    let mut b = Bench::new();
    b.begin();
    b.insert("t", 1).unwrap();
    b.insert("u", 2).unwrap();
    b.insert("t", 3).unwrap();
    b.xid().unwrap();
    b.flush();
    let implicit = DdlKind::ImplicitCreate;
    assert_eq!(b.kinds(), [(implicit, 0), (implicit, 1)]);
    b.gtid().unwrap();
    b.query("DROP TABLE t").unwrap();
    b.gtid().unwrap();
    b.query("CREATE TABLE t (c INT)").unwrap();
    b.gtid().unwrap();
    b.query("ALTER TABLE v ADD d INT").unwrap();
    b.gtid().unwrap();
    b.query("RENAME TABLE u TO w").unwrap();
    b.begin();
    b.insert("t", 4).unwrap();
    b.insert("w", 5).unwrap();
    b.insert("v", 6).unwrap();
    b.insert("u", 7).unwrap();
    b.xid().unwrap();
    b.flush();
    let behind: Vec<DdlKind> = b.kinds()[2..].iter().map(|(kind, _)| *kind).collect();
    use DdlKind::{AlterTable, CreateTable, DropTable, ImplicitCreate, RenameTable};
    assert_eq!(
        behind,
        [
            DropTable,
            CreateTable,
            ImplicitCreate,
            AlterTable,
            RenameTable,
            ImplicitCreate
        ]
    );
    let last = b.model.txns.last().unwrap().ddls.last().unwrap();
    assert_eq!(
        (last.ordinal, &last.writes[..]),
        (3, &[TableName::new("s", "u")][..])
    );
}

#[test]
fn ddl_counts_as_an_event_and_cuts_the_group() {
    let mut b = Bench::new();
    b.gtid().unwrap();
    b.query("CREATE DATABASE s").unwrap();
    assert_eq!(b.model.groups, 1);
    b.gtid().unwrap();
    b.query("CREATE TABLE other.t (a INT)").unwrap();
    b.gtid().unwrap();
    b.query("CREATE USER u IDENTIFIED BY 'p'").unwrap();
    assert_eq!(b.model.groups, 1, "unwanted ones do not");
    // MySQL's CREATE … SELECT: the rows follow in the same transaction.
    b.begin();
    b.query("CREATE TABLE t (c INT) START TRANSACTION").unwrap();
    b.insert("t", 1).unwrap();
    b.xid().unwrap();
    assert_eq!(b.model.txns.len(), 4);
    assert_eq!(
        b.kinds(),
        [(DdlKind::CreateDatabase, 1), (DdlKind::CreateTable, 1)]
    );
    assert_eq!(b.model.txns[3].rows[0].ordinal, 2);
    assert!(
        b.model
            .txns
            .iter()
            .all(|txn| txn.ddls.iter().all(|ddl| !ddl.sql.contains("USER")))
    );
}

#[test]
fn a_text_that_cannot_be_read_stops_only_where_it_may_concern_a_table() {
    let cp850 = QuerySettings {
        charset: Some(QueryCharset {
            client: 4,
            connection: 4,
            server: 255,
        }),
        ..QuerySettings::default()
    };
    let mut b = Bench::new();
    b.query_with(b"CREATE VIEW v AS SELECT '\x84' AS x", cp850)
        .unwrap();
    let result = b.query_with(b"CREATE TABLE t (c CHAR(1) DEFAULT '\x84')", cp850);
    assert_eq!(code(result), "WEIR-SRC-001");
}

#[test]
fn transactions_without_announcement_are_those_of_old_servers() {
    let mut b = Bench::new();
    b.query("BEGIN").unwrap();
    b.insert("t", 1).unwrap();
    b.xid().unwrap();
    b.query("DROP TABLE t").unwrap();
    b.query("BEGIN").unwrap();
    b.query("COMMIT").unwrap();
    b.flush();
    assert_eq!(b.visible(), [vec![1], vec![], vec![]]);
    assert!(b.model.txns.iter().all(|txn| txn.gtid.is_none()));
}

#[test]
fn half_an_alter_has_no_effect() {
    let mut b = Bench::new();
    for (sequence, extra) in [(1, EXTRA_START_ALTER), (2, 0)] {
        let gtid = MariadbGtid {
            domain: 0,
            server: 1,
            sequence,
            flags: 0,
            flags2: 1,
            flags_extra: extra,
            commit_id: None,
            xid: None,
            start_alter_sequence: None,
        };
        b.event(&Event::MariadbGtid(Box::new(gtid))).unwrap();
        b.query("ALTER TABLE t ADD x INT").unwrap();
    }
    b.flush();
    let with_ddl: Vec<bool> = b.model.txns.iter().map(|txn| !txn.ddls.is_empty()).collect();
    assert_eq!(with_ddl, [false, true]);
}

#[test]
fn whole_transactions_do_not_wait_for_a_large_one() {
    let mut b = Bench::with(&["s.*"], 64 << 20, Skip::Nothing);
    b.begin();
    b.insert("t", 1).unwrap();
    b.xid().unwrap();
    b.begin();
    b.insert("t", 2).unwrap();
    assert!(b.model.txns.is_empty());
    b.flush();
    assert_eq!(b.visible(), [[1]], "the input ran dry");
    for value in [3, 4] {
        b.insert("t", value).unwrap();
    }
    b.xid().unwrap();
    b.flush();
    assert_eq!(b.visible(), [vec![1], vec![2, 3, 4]]);
    assert_eq!(b.model.fragments, 0);
}

#[test]
fn large_row_events_keep_their_allocation() {
    let mut b = Bench::with(&["s.*"], 64 << 20, Skip::Nothing);
    b.begin();
    b.insert("t", 1).unwrap();
    let mut event = vec![9_u8; 29];
    event.extend([1, 0xff, 0, 2, 0, 0, 0]);
    event.extend(vec![8; 1 << 20]);
    event.extend([7; 4]);
    let body = 29..event.len() - 4;
    let meta = RowsMeta {
        kind: RowKind::Insert,
        table_id: table_id("t"),
        flags: 0,
    };
    b.offset += EVENT_BYTES;
    b.assembler.large_rows(meta, event, body, b.offset).unwrap();
    b.rows("t", 3).unwrap();
    b.xid().unwrap();
    b.flush();
    assert_eq!(b.visible(), [[1, 2, 3]]);
    assert_eq!(b.model.txns[0].rows[1].body.len(), 7 + (1 << 20));
}

#[test]
fn transactions_before_a_time_are_left_out() {
    let mut b = Bench::with(&["s.*"], 1 << 20, Skip::Before(3_000));
    for (seconds, value) in [(1, 1), (2, 2), (3, 3), (1, 4)] {
        b.gtid_at(seconds * 1_000_000).unwrap();
        b.query("BEGIN").unwrap();
        b.insert("t", value).unwrap();
        b.xid().unwrap();
        b.assembler.tick();
        b.drain();
        assert_eq!(
            b.model.position.is_some(),
            value >= 3,
            "no position while it searches"
        );
    }
    assert_eq!(b.visible(), [[3], [4]]);
}

#[test]
fn ticks_tell_only_a_position_that_moved() {
    let mut b = Bench::new();
    for _ in 0..3 {
        b.assembler.tick();
        b.drain();
    }
    assert_eq!(b.model.ticks, 1);
    b.event(&Event::BinlogCheckpoint(b"b.000001")).unwrap();
    b.assembler.tick();
    b.drain();
    assert_eq!(b.model.ticks, 2);
    assert_eq!(b.model.position.as_ref().map(|p| p.offset), Some(4 + EVENT_BYTES));
    b.begin();
    b.assembler.tick();
    b.drain();
    assert_eq!(b.model.ticks, 2, "never inside a transaction");
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u8, u8),
    Savepoint(u8),
    RollbackTo(u8),
    Flush,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0_u8..4, any::<u8>()).prop_map(|(t, v)| Op::Insert(t, v)),
        1 => (0_u8..3).prop_map(Op::Savepoint),
        1 => (0_u8..3).prop_map(Op::RollbackTo),
        1 => Just(Op::Flush),
    ];
    prop::collection::vec(op, 0..30)
}

proptest! {
    /// Against a list of rows and savepoints in its simplest form.
    #[test]
    fn visible_is_what_was_committed(
        txns in prop::collection::vec((ops(), any::<bool>()), 1..8),
        buffer in prop::sample::select(vec![1_usize, 600, 1_200, 5_000, 1 << 20]),
    ) {
        let mut b = Bench::with(&["s.*"], buffer, Skip::Nothing);
        let mut expected = Vec::new();
        for (ops, commits) in &txns {
            b.begin();
            let mut rows: Vec<u8> = Vec::new();
            let mut savepoints: Vec<(u8, usize)> = Vec::new();
            for op in ops {
                match op {
                    Op::Insert(table, value) => {
                        b.insert(["t0", "t1", "t2", "t3"][usize::from(*table)], *value).unwrap();
                        rows.push(*value);
                    }
                    Op::Savepoint(name) => {
                        b.query(&format!("SAVEPOINT s{name}")).unwrap();
                        savepoints.retain(|(known, _)| known != name);
                        savepoints.push((*name, rows.len()));
                    }
                    Op::RollbackTo(name) => {
                        if let Some(at) = savepoints.iter().position(|(known, _)| known == name) {
                            b.query(&format!("ROLLBACK TO s{name}")).unwrap();
                            savepoints.truncate(at + 1);
                            rows.truncate(savepoints[at].1);
                        }
                    }
                    Op::Flush => b.flush(),
                }
            }
            if *commits {
                b.xid().unwrap();
            } else {
                b.query("ROLLBACK").unwrap();
                rows.clear();
            }
            expected.push(rows);
        }
        b.flush();
        prop_assert_eq!(b.visible(), expected);
    }
}
