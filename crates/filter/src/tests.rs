use proptest::prelude::*;
use weir_types::{Classified, ErrorClass, TableName};

use crate::*;

fn filter(rules: &[&str]) -> TableFilter {
    TableFilter::new(rules, NameCase::Sensitive).unwrap()
}

fn name(text: &str) -> TableName {
    let (schema, table) = text.split_once('/').unwrap();
    TableName::new(schema, table)
}

fn check(rules: &[&str], yes: &[&str], no: &[&str]) {
    let filter = filter(rules);
    for text in yes {
        assert!(filter.matches(&name(text)), "{rules:?} must let {text} through");
    }
    for text in no {
        assert!(!filter.matches(&name(text)), "{rules:?} must leave {text} out");
    }
}

#[test]
fn no_rule_lets_everything_through_but_system_schemas() {
    check(
        &[],
        &["shop/orders", "a/b"],
        &[
            "mysql/user",
            "sys/x",
            "INFORMATION_SCHEMA/x",
            "performance_schema/x",
            "weir/progress",
        ],
    );
    check(&["*.*", "mysql.user"], &["a/b"], &["mysql/user", "weir/x"]);
}

#[test]
fn the_last_rule_that_matches_wins() {
    check(
        &["shop.*", "!shop.tmp_*", "shop.tmp_keep"],
        &["shop/orders", "shop/tmp_keep"],
        &["shop/tmp_1", "other/orders"],
    );
    check(&["!shop.a", "shop.*"], &["shop/a"], &[]);
}

#[test]
fn wildcards() {
    check(&["s?.t*"], &["s1/t", "sé/table"], &["s/t", "s12/t", "s1/xt"]);
    check(&["*a*b.**"], &["ab/x", "xxayyb/"], &["ba/x"]);
}

#[test]
fn backticks_take_everything_literally() {
    check(&["`a.b`.`c*`"], &["a.b/c*"], &["a.b/cd", "a/b.c"]);
    check(&["x.`a``b`*"], &["x/a`b", "x/a`bc"], &["x/ab"]);
    check(&["`my shop`.`two words`"], &["my shop/two words"], &[]);
}

#[test]
fn case_is_a_parameter() {
    let rules = ["Shop.ORDERS"];
    let sensitive = TableFilter::new(&rules, NameCase::Sensitive).unwrap();
    let insensitive = TableFilter::new(&rules, NameCase::Insensitive).unwrap();
    assert!(!sensitive.matches(&name("shop/orders")));
    assert!(insensitive.matches(&name("sHOP/orders")));
}

#[test]
fn wrong_rules_are_usage_errors() {
    for rule in ["shop", "", ".", "a.", ".b", "a.b.c", "a.`b", "a b.c", "!"] {
        let error = TableFilter::new(&[rule], NameCase::Sensitive).unwrap_err();
        assert_eq!(error.code(), "WEIR-FIL-001", "{rule}");
        assert_eq!(error.class(), ErrorClass::Usage);
    }
    let error = TableFilter::new(&["!shop.*"], NameCase::Sensitive).unwrap_err();
    assert_eq!(error, FilterError::OnlyExclusions);
}

#[test]
fn schemas_of_databases() {
    let f = filter(&["*.*", "!logs.*", "shop.*", "!shop.tmp_*"]);
    assert!(f.may_match_schema("shop") && f.may_match_schema("x"));
    assert!(!f.may_match_schema("logs") && !f.may_match_schema("mysql"));
    let g = filter(&["a.t"]);
    assert!(g.may_match_schema("a") && !g.may_match_schema("b"));
}

fn route(pattern: &str, schema: Option<&str>, table: Option<&str>) -> RouteRule {
    RouteRule {
        pattern: pattern.to_owned(),
        target_schema: schema.map(str::to_owned),
        target_table: table.map(str::to_owned),
    }
}

#[test]
fn the_first_route_wins_and_identity_is_the_default() {
    let router = Router::new(
        &[
            route("shop.a", None, Some("{schema}_{table}")),
            route("shop.*", Some("{schema}_copy"), None),
        ],
        NameCase::Sensitive,
    )
    .unwrap();
    assert_eq!(router.route(&name("shop/a")), name("shop/shop_a"));
    assert_eq!(router.route(&name("shop/b")), name("shop_copy/b"));
    assert_eq!(router.route(&name("x/b")), name("x/b"));
    assert!(Router::identity(NameCase::Sensitive).is_identity());
}

#[test]
fn a_schema_has_a_target_when_it_is_one() {
    let one = |rules: &[RouteRule]| Router::new(rules, NameCase::Sensitive).unwrap().route_schema("s");
    assert_eq!(one(&[]), Some("s".to_owned()));
    assert_eq!(
        one(&[route("s.*", Some("{schema}2"), None)]),
        Some("s2".to_owned())
    );
    assert_eq!(one(&[route("s.a", Some("x"), None)]), None);
    assert_eq!(one(&[route("s.a", None, Some("b"))]), Some("s".to_owned()));
    assert_eq!(one(&[route("s.*", Some("{table}"), None)]), None);
}

#[test]
fn wrong_routes_are_errors() {
    let code = |rule| Router::new(&[rule], NameCase::Sensitive).unwrap_err().code();
    assert_eq!(code(route("a.*", None, None)), "WEIR-FIL-004");
    for template in ["", "{", "}", "{x}", "a}b{schema}"] {
        assert_eq!(
            code(route("a.*", Some(template), None)),
            "WEIR-FIL-003",
            "{template}"
        );
    }
    assert_eq!(code(route("a", Some("x"), None)), "WEIR-FIL-001");
}

#[test]
fn collisions_are_found() {
    let router = Router::new(&[route("*.*", Some("all"), None)], NameCase::Insensitive).unwrap();
    let names = [name("a/t"), name("b/T"), name("b/u")];
    let found = router.collisions(&names);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].target, name("all/t"));
    assert_eq!(found[0].sources, [name("a/t"), name("b/T")]);
    assert!(
        Router::identity(NameCase::Sensitive)
            .collisions(&names)
            .is_empty()
    );
}

/// Straightforward exponential matcher to compare with.
fn reference(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => (0..=text.len()).any(|n| reference(rest, &text[n..])),
        Some(('?', rest)) => !text.is_empty() && reference(rest, &text[1..]),
        Some((c, rest)) => text.first() == Some(c) && reference(rest, &text[1..]),
    }
}

proptest! {
    #[test]
    fn globs_match_as_the_reference_does(pattern in "[ab*?]{1,8}", text in "[ab]{0,8}") {
        let chars: Vec<char> = pattern.chars().collect();
        let wanted = reference(&chars, &text.chars().collect::<Vec<_>>());
        let rule = format!("s.{pattern}");
        let found = filter(&[&rule]).matches(&TableName::new("s", text.as_str()));
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn quoted_names_match_themselves_only(schema in "\\PC{1,12}", table in "\\PC{1,12}", other in "\\PC{1,12}") {
        prop_assume!(!is_system_schema(&schema));
        let rule = format!("`{}`.`{}`", schema.replace('`', "``"), table.replace('`', "``"));
        let f = filter(&[&rule]);
        prop_assert!(f.matches(&TableName::new(schema.as_str(), table.as_str())));
        prop_assert_eq!(f.matches(&TableName::new(schema.as_str(), other.as_str())), other == table);
    }
}
