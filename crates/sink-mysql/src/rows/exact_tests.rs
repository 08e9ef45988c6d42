use std::sync::Arc;

use weir_types::{OrderKey, RowKind, TableVersion, WireType};

use super::*;
use crate::plan::{ExactReason, Mode};
use crate::rows::testing::{self as t, Ints};

const LIMITS: Limits = Limits {
    groups: 1,
    packet_max: 1 << 20,
};

fn version() -> Arc<TableVersion> {
    t::version(vec![
        t::column("a", WireType::Long, 0),
        t::column("b", WireType::Long, 0),
    ])
}

fn plan(key: bool, foreign: bool) -> Arc<TablePlan> {
    let columns = vec![t::at_target("a", "int"), t::at_target("b", "int")];
    let keys = if key { vec![t::key(&[0], true)] } else { Vec::new() };
    let mut target = t::target(columns, keys);
    target.foreign = foreign;
    Arc::new(TablePlan::new(&version(), &target).unwrap())
}

fn row(a: i32, b: Option<i32>) -> Ints {
    vec![Some(a), b]
}

fn work(plan: &Arc<TablePlan>, events: &[(RowKind, u8, Vec<u8>)]) -> ExactWork {
    let mut pull = Pull::default();
    pull.push(t::slice(&version(), 1, events), plan, OrderKey::MIN);
    ExactWork::new(&pull, LIMITS).unwrap()
}

fn sql(work: &ExactWork) -> Vec<&str> {
    let text = |s| std::str::from_utf8(s).unwrap();
    work.statements.iter().map(|s| text(&s.sql)).collect()
}

#[test]
fn changes_keep_their_order() {
    let plan = plan(true, true);
    let reason = ExactReason::ForeignKeys;
    assert_eq!(plan.mode(), Mode::Exact { reason });
    let (one, two) = (row(1, None), row(2, Some(2)));
    let work = work(
        &plan,
        &[
            (RowKind::Insert, 0, t::body(RowKind::Insert, &[&one, &two])),
            (RowKind::Insert, 0, t::body(RowKind::Insert, &[&row(3, None)])),
            (
                RowKind::Update,
                0,
                t::body(RowKind::Update, &[&two, &row(4, Some(2))]),
            ),
            (RowKind::Delete, 2, t::body(RowKind::Delete, &[&one])),
            (RowKind::Insert, 2, t::body(RowKind::Insert, &[&one])),
            (RowKind::Insert, 0, t::body(RowKind::Insert, &[&two])),
        ],
    );
    assert_eq!(
        sql(&work),
        [
            "INSERT INTO `d`.`t` (`a`,`b`) VALUES (1,NULL),(2,2),(3,NULL)",
            "UPDATE `d`.`t` SET `a`=4 WHERE `a`=2 LIMIT 1",
            "DELETE FROM `d`.`t` WHERE `a`=1 LIMIT 1",
            "INSERT INTO `d`.`t` (`a`,`b`) VALUES (1,NULL)",
            "INSERT INTO `d`.`t` (`a`,`b`) VALUES (2,2)",
        ]
    );
    let expected: Vec<_> = work.statements.iter().map(|s| s.expect).collect();
    let one = Expect::Rows(1);
    assert_eq!(expected, [Expect::Rows(3), one, one, one, one]);
    let unchecked: Vec<_> = work.statements.iter().map(|s| s.unchecked).collect();
    assert_eq!(unchecked, [false, false, true, true, false]);
    assert_eq!(
        (work.counts.inserts, work.counts.updates, work.counts.deletes),
        (5, 1, 1)
    );
    assert_eq!(work.bytes, sql(&work).iter().map(|s| s.len()).sum::<usize>());
}

#[test]
fn a_row_without_a_key_is_named_by_all_of_it() {
    let plan = plan(false, false);
    let reason = ExactReason::NoKey;
    assert_eq!(plan.mode(), Mode::Exact { reason });
    let old = row(1, None);
    let work = work(
        &plan,
        &[
            (
                RowKind::Update,
                0,
                t::body(RowKind::Update, &[&old, &row(1, Some(5))]),
            ),
            (RowKind::Update, 0, t::body(RowKind::Update, &[&old, &old])),
            (RowKind::Delete, 0, t::body(RowKind::Delete, &[&row(1, Some(5))])),
        ],
    );
    assert_eq!(
        sql(&work),
        [
            "UPDATE `d`.`t` SET `b`=5 WHERE `a`<=>1 AND `b` IS NULL LIMIT 1",
            "DELETE FROM `d`.`t` WHERE `a`<=>1 AND `b`<=>5 LIMIT 1",
        ]
    );
}

#[test]
fn values_are_compared_byte_by_byte() {
    let columns = vec![
        t::text("x", WireType::VarChar, 20, 8),
        t::column("e", WireType::Enum, 1),
        t::column("g", WireType::Geometry, 4),
        t::column("j", WireType::Json, 4),
        t::text("v", WireType::VarChar, 20, 63),
        t::column("z", WireType::Vector, 4),
    ];
    let version = t::version(columns);
    let mut targets: Vec<_> = ["varchar", "enum", "geometry", "json", "varbinary", "vector"]
        .iter()
        .zip(["x", "e", "g", "j", "v", "z"])
        .map(|(data_type, name)| t::at_target(name, data_type))
        .collect();
    targets[0].charset = Some("latin1".to_owned());
    let target = t::target(targets, Vec::new());
    let plan = Arc::new(TablePlan::new(&version, &target).unwrap());
    let mut body = vec![6, 0x3f, 0];
    body.extend_from_slice(b"\x01a\x02\x01\0\0\0G\x03\0\0\0\x05\x2a\0\x01b\x01\0\0\0Z");
    let mut pull = Pull::default();
    let events = [(RowKind::Delete, 0, body)];
    pull.push(t::slice(&version, 1, &events), &plan, OrderKey::MIN);
    let work = ExactWork::new(&pull, LIMITS).unwrap();
    assert_eq!(
        sql(&work),
        [
            "DELETE FROM `d`.`t` WHERE CAST(`x` AS BINARY)<=>CAST(CONVERT('a' USING latin1) AS BINARY) \
          AND `e`+0<=>2 AND CAST(`g` AS BINARY)<=>_binary'G' AND `j`<=>CAST('42' AS JSON) \
          AND `v`<=>_binary'b' AND CAST(`z` AS BINARY)<=>_binary'Z' LIMIT 1"
        ]
    );
}

#[test]
fn an_update_sets_what_could_change_by_itself() {
    let version = t::version(vec![
        t::column("a", WireType::Long, 0),
        t::column("s", WireType::Timestamp2, 0),
    ]);
    let columns = vec![t::at_target("a", "int"), t::at_target("s", "timestamp")];
    let plan = Arc::new(TablePlan::new(&version, &t::target(columns, Vec::new())).unwrap());
    let image = |a: i32| [&[0][..], &a.to_le_bytes(), &1_u32.to_be_bytes()].concat();
    let body = [vec![2, 3, 3], image(1), image(2)].concat();
    let mut pull = Pull::default();
    pull.push(
        t::slice(&version, 1, &[(RowKind::Update, 0, body)]),
        &plan,
        OrderKey::MIN,
    );
    let work = ExactWork::new(&pull, LIMITS).unwrap();
    assert_eq!(
        sql(&work),
        ["UPDATE `d`.`t` SET `a`=2,`s`='1970-01-01 00:00:01' \
          WHERE `a`<=>1 AND `s`<=>'1970-01-01 00:00:01' LIMIT 1"]
    );
}
