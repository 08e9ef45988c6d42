use weir_types::{Classified as _, WireType};

use super::*;
use crate::rows::testing as t;
use crate::target::{TargetColumn, TargetKey};

fn version(names: &[&str]) -> Arc<TableVersion> {
    let column = |name: &&str| t::column(name, WireType::Long, 0);
    t::version(names.iter().map(column).collect())
}

fn columns(names: &[&str]) -> Vec<TargetColumn> {
    names.iter().map(|name| t::at_target(name, "int")).collect()
}

fn required(name: &str) -> TargetColumn {
    TargetColumn {
        nullable: false,
        ..t::at_target(name, "int")
    }
}

#[test]
fn columns_are_matched_by_name() {
    let target = t::target(columns(&["B", "extra", "a"]), vec![t::key(&[2], true)]);
    let plan = TablePlan::new(&version(&["a", "b"]), &target).unwrap();
    assert_eq!(&*plan.insert_columns, " (`a`,`B`) VALUES ");
    assert_eq!(&*plan.identity_names, "`a`");
    assert_eq!(plan.mode(), Mode::Keyed);
}

#[test]
fn a_missing_column_is_named() {
    let target = t::target(columns(&["a"]), Vec::new());
    let error = TablePlan::new(&version(&["a", "gone"]), &target).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column `gone` of `s.t` is missing in `d.t` at the target"
    );
    assert_eq!(error.class(), weir_types::ErrorClass::Table);
}

#[test]
fn columns_of_the_target_alone_need_a_value_of_their_own() {
    let plan = |extra: TargetColumn| {
        let mut columns = columns(&["a"]);
        columns.push(extra);
        TablePlan::new(&version(&["a"]), &t::target(columns, Vec::new()))
    };
    assert!(matches!(
        plan(required("x")),
        Err(PlanError::UnknownColumn { .. })
    ));
    let mut column = required("x");
    column.has_default = true;
    assert!(plan(column).is_ok());
    let mut column = required("x");
    column.generated = true;
    assert!(plan(column).is_ok());
    let mut column = required("x");
    column.auto_increment = true;
    assert!(plan(column).is_ok());
}

#[test]
fn generated_columns_are_left_out() {
    let mut target = t::target(
        columns(&["a", "g"]),
        vec![t::key(&[1], true), t::key(&[0], false)],
    );
    target.columns[1].generated = true;
    let plan = TablePlan::new(&version(&["a", "g"]), &target).unwrap();
    assert_eq!(&*plan.insert_columns, " (`a`) VALUES ");
    let reason = ExactReason::NoKey;
    assert_eq!(plan.mode(), Mode::Exact { reason }, "the key of `a` accepts NULL");
    target.keys[1].nullable = false;
    let plan = TablePlan::new(&version(&["a", "g"]), &target).unwrap();
    assert_eq!(plan.mode(), Mode::Keyed);
    assert!(plan.opaque_unique, "a change of `a` may change the generated key");
    target.columns[0].generated = true;
    assert!(matches!(
        TablePlan::new(&version(&["a", "g"]), &target),
        Err(PlanError::NothingToWrite { .. })
    ));
}

#[test]
fn the_primary_key_names_rows_else_a_unique_key_without_null() {
    let unique = |columns: &[usize]| TargetKey {
        nullable: false,
        ..t::key(columns, false)
    };
    let plan = |keys| TablePlan::new(&version(&["a", "b"]), &t::target(columns(&["a", "b"]), keys)).unwrap();
    let chosen = plan(vec![unique(&[0]), t::key(&[1, 0], true)]);
    assert_eq!(&*chosen.identity_names, "(`b`,`a`)");
    assert_eq!(chosen.other_unique, [0]);
    assert_eq!(chosen.conflicts.len(), 1);
    let chosen = plan(vec![t::key(&[0], false), unique(&[1])]);
    assert_eq!(&*chosen.identity_names, "`b`");
    let prefix = TargetKey {
        functional_or_prefix: true,
        ..unique(&[0])
    };
    let chosen = plan(vec![prefix.clone()]);
    assert!(matches!(chosen.mode(), Mode::Exact { .. }));
    let chosen = plan(vec![prefix, t::key(&[1], true)]);
    assert!(chosen.serial && chosen.opaque_unique && chosen.mode() == Mode::Keyed);
}

#[test]
fn names_are_quoted() {
    let target = t::target(columns(&["a`b"]), vec![t::key(&[0], true)]);
    let plan = TablePlan::new(&version(&["a`b"]), &target).unwrap();
    assert_eq!(
        &*plan.on_duplicate,
        " ON DUPLICATE KEY UPDATE `a``b`=VALUES(`a``b`)"
    );
}
