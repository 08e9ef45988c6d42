use weir_types::{Column, WireType};

use super::*;
use crate::rows::testing as t;

fn of(source: Column, data_type: &str, column_type: &str) -> Option<Equality> {
    let target = TargetColumn {
        column_type: column_type.to_owned(),
        ..t::at_target("c", data_type)
    };
    equality(&source, &target)
}

fn number(wire: WireType, meta: u16) -> Column {
    t::column("c", wire, meta)
}

#[test]
fn values_that_the_target_rounds_may_be_equal() {
    let decimal = number(WireType::NewDecimal, 10 << 8 | 2);
    assert_eq!(
        of(decimal.clone(), "decimal", "decimal(12,2)"),
        Some(Equality::Exact)
    );
    assert_eq!(of(decimal.clone(), "decimal", "decimal(12,1)"), None);
    assert_eq!(of(decimal, "int", "int"), None);
    let datetime = number(WireType::Datetime2, 6);
    assert_eq!(
        of(datetime.clone(), "datetime", "datetime(6)"),
        Some(Equality::Exact)
    );
    assert_eq!(of(datetime.clone(), "datetime", "datetime"), None);
    assert_eq!(of(datetime, "date", "date"), None);
    assert_eq!(of(number(WireType::Double, 8), "float", "float"), None);
    assert_eq!(
        of(number(WireType::Float, 4), "double", "double"),
        Some(Equality::Float)
    );
    assert_eq!(
        of(number(WireType::Long, 0), "bigint", "bigint unsigned"),
        Some(Equality::Exact)
    );
}

#[test]
fn texts_fold_only_under_collations_that_are_known() {
    let text = |source: u16, collation: &str| {
        let target = TargetColumn {
            collation: Some(collation.to_owned()),
            ..t::at_target("c", "varchar")
        };
        equality(&t::text("c", WireType::VarChar, 80, source), &target)
    };
    let folded = Some(Equality::Folded);
    assert_eq!(text(255, "utf8mb4_0900_ai_ci"), folded);
    assert_eq!(text(255, "utf8mb4_bin"), Some(Equality::Padded));
    assert_eq!(text(13, "utf8mb4_bin"), folded, "sjis has two backslashes");
    assert_eq!(text(45, "utf8mb4_general_nopad_ci"), folded);
    assert_eq!(text(8, "latin1_swedish_ci"), folded);
    assert_eq!(text(255, "utf8mb4_swedish_ci"), None, "v and w");
    assert_eq!(text(28, "gbk_chinese_ci"), None, "Y and ~");
    assert_eq!(text(54, "utf16_general_ci"), None, "its bytes are no ASCII");
    assert_eq!(text(54, "utf8mb4_bin"), None);
    // Padding makes `a` and `a\0` equal.
    let bytes = t::text("c", WireType::VarChar, 80, 63);
    assert_eq!(of(bytes.clone(), "binary", "binary(8)"), None);
    assert_eq!(of(bytes, "varbinary", "varbinary(8)"), Some(Equality::Exact));
}

fn uses(key: &TargetKey, target: &TargetTable, names: &[&str]) -> KeyUse {
    let version = t::version(
        names
            .iter()
            .map(|name| t::column(name, WireType::Long, 0))
            .collect(),
    );
    let source_of: Vec<_> = target
        .columns
        .iter()
        .map(|column| names.iter().position(|name| *name == column.name))
        .collect();
    key_use(key, &version, target, &source_of)
}

#[test]
fn what_the_source_does_not_have_makes_more_conflicts_not_fewer() {
    let mut target = t::target(
        vec![t::at_target("a", "int"), t::at_target("x", "int")],
        Vec::new(),
    );
    let both = t::key(&[0, 1], false);
    let exact = |source| KeyColumn {
        source,
        equality: Equality::Exact,
    };
    let conflict = |columns| KeyUse::Conflict(ConflictKey { columns });
    assert_eq!(
        uses(&both, &target, &["a", "x"]),
        conflict(vec![exact(0), exact(1)])
    );
    assert_eq!(uses(&both, &target, &["a"]), conflict(vec![exact(0)]));
    assert_eq!(uses(&t::key(&[1], false), &target, &["a"]), KeyUse::Serial);
    target.columns[1].auto_increment = true;
    assert_eq!(uses(&t::key(&[1], false), &target, &["a"]), KeyUse::Never);
    target.columns[0].generated = true;
    assert_eq!(uses(&t::key(&[0], false), &target, &["a"]), KeyUse::Serial);
}
