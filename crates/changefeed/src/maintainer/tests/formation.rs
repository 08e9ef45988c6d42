//! Tables that share a dispatcher.

use weir_protocol::service::Span;

use super::super::core::REFORM_FLUSH_MS;
use super::*;

/// Tables at key 10; parent and child belong together, and what else is named.
fn tied(tables: &[(&str, u64)], sink_progress: &[(&str, u64)], component: &[&str]) -> (Rig, Vec<String>) {
    let mut saved = SavedKeys::fresh(key(10), []);
    saved.tables = tables.iter().map(|(t, ts)| (name(t), key(*ts))).collect();
    let mut rig = Rig {
        core: MaintainerCore::new(MaintainerConfig {
            saved,
            sink_progress: sink_progress.iter().map(|(t, ts)| (name(t), key(*ts))).collect(),
            components: vec![component.iter().map(|t| name(t)).collect()],
            wants: Arc::new(|table| &*table.table != "unwanted"),
        }),
        now_ms: 0,
        last_save: 0,
    };
    let started = rig.call(MaintainerCore::start);
    (rig, started)
}

fn span_of(rig: &Rig, table: &str) -> Span {
    rig.core
        .registry()
        .table(&name(table))
        .expect("a dispatcher")
        .span()
}

fn saved_keys(rig: &mut Rig) -> Vec<(String, OrderKey)> {
    let mut out = Vec::new();
    rig.now_ms += SAVE_INTERVAL_MS;
    rig.core.tick(rig.now_ms, &mut out);
    let update = out.iter().find_map(|effect| match effect {
        Effect::Save(update) => Some(update.clone()),
        _ => None,
    });
    let update = update.expect("a save");
    rig.last_save = update.seq;
    let tables = update.changed.into_iter();
    tables
        .map(|(table, key)| (table.table.to_string(), key))
        .collect()
}

#[test]
fn members_keep_their_own_starts_and_tokens() {
    let (mut rig, started) = tied(
        &[("child", 30), ("other", 15), ("parent", 20)],
        &[],
        &["parent", "unwanted", "unknown", "child"],
    );
    assert_eq!(
        started,
        [
            "create 0 after 10",
            "create 1 after 20",
            "create 2 after 15",
            "save 0 changed 0 removed"
        ]
    );
    let places: Vec<_> = span_of(&rig, "child")
        .behind(OrderKey::MIN)
        .map(|(table, after)| (table.table.to_string(), after))
        .collect();
    assert_eq!(
        places,
        [("child".to_owned(), key(30)), ("parent".to_owned(), key(20))]
    );
    rig.saved();
    rig.beat(1, key(25), 25);
    assert_eq!(
        saved_keys(&mut rig),
        [("parent".to_owned(), key(25))],
        "the child's stays"
    );
    rig.saved();
    rig.beat(1, key(40), 40);
    let both = [("child".to_owned(), key(40)), ("parent".to_owned(), key(40))];
    assert_eq!(saved_keys(&mut rig), both);
    let failed = rig.fail(1, ErrorClass::Table);
    assert_eq!(
        failed,
        ["detach 1", "flush 1", "table failed child", "table failed parent"]
    );
}

#[test]
fn a_ddl_that_a_member_has_behind_it_does_not_wait_for_the_span() {
    let (mut rig, _) = tied(
        &[("child", 30), ("other", 10), ("parent", 15)],
        &[],
        &["child", "parent"],
    );
    let alter = ddl(DdlKind::AlterTable, &["other"], &[], &["child"]);
    assert_eq!(rig.reach(2, 20, &alter), ["write 2"]);
    let alter = ddl(DdlKind::AlterTable, &["other"], &[], &["parent"]);
    rig.written(2, 20);
    assert_eq!(rig.reach(2, 25, &alter), [""; 0]);
    assert_eq!(rig.reach(1, 25, &alter), ["write 2"]);
}

#[test]
fn what_a_ddl_ties_stands_behind_it_until_all_is_saved() {
    let (mut rig, _) = tied(&[("child", 10), ("parent", 10)], &[], &[]);
    rig.saved();
    let alter = ddl(DdlKind::AlterTable, &["child"], &[], &["parent"]);
    rig.reach(2, 20, &alter);
    assert_eq!(rig.reach(1, 20, &alter), ["write 1"]);
    let reforming = rig.reformed(1, 20);
    assert_eq!(
        reforming,
        ["passed", "flush 0", "flush 1", "flush 2"],
        "nobody passes"
    );
    assert_eq!(rig.reach(2, 20, &alter), [""; 0], "nor later");
    assert_eq!(rig.reformed(1, 20), [""; 0]);
    rig.flushed(0);
    rig.flushed(1);
    assert_eq!(rig.flushed(2), ["save 2 changed 0 removed"]);
    assert_eq!(rig.saved(), ["gc 10", "reform"]);
    assert_eq!(rig.tick(SAVE_INTERVAL_MS), [""; 0]);
}

#[test]
fn what_a_ddl_makes_is_registered_before_spans_are_formed_anew() {
    let (mut rig, _) = tied(&[("parent", 10)], &[], &[]);
    rig.saved();
    let create = ddl(DdlKind::CreateTable, &["child"], &["child"], &["parent"]);
    rig.reach(SCHEMA.0, 20, &create);
    assert_eq!(rig.reach(1, 20, &create), ["write 0"]);
    assert_eq!(rig.reformed(0, 20), ["pass 0", "passed", "flush 0", "flush 1"]);
    rig.flushed(0);
    assert_eq!(rig.flushed(1), [""; 0], "the schema dispatcher has not passed");
    assert_eq!(rig.register("child", 20), [""; 0], "nothing is started");
    rig.beat(SCHEMA.0, key(20), 20);
    assert_eq!(rig.tick(1), ["save 2 changed 0 removed"], "child and parent");
    assert_eq!(rig.saved(), ["gc 20", "reform"]);
}

#[test]
fn a_locked_table_delays_the_forming_for_a_while_only() {
    let (mut rig, _) = tied(
        &[("child", 10), ("parent", 10), ("slow", 10)],
        &[],
        &["child", "parent"],
    );
    rig.saved();
    let drop = ddl(DdlKind::DropTable, &["child"], &[], &[]);
    rig.reach(SCHEMA.0, 20, &drop);
    rig.reach(1, 20, &drop);
    assert_eq!(
        rig.written(0, 20),
        ["pass 0", "passed", "flush 0", "flush 1", "flush 2"]
    );
    assert_eq!(span_of(&rig, "parent"), Span::Table(name("parent")));
    rig.beat(SCHEMA.0, key(20), 20);
    rig.flushed(0);
    rig.flushed(1);
    assert_eq!(rig.tick(REFORM_FLUSH_MS - 1), ["save 1 changed 1 removed"]);
    rig.saved();
    assert_eq!(rig.tick(1), ["reform"], "nothing has changed since");
    let (mut rig, _) = tied(&[("a", 10), ("b", 10)], &[], &["a", "b"]);
    let both = ddl(DdlKind::DropTable, &["a", "b"], &[], &[]);
    rig.reach(SCHEMA.0, 20, &both);
    rig.reach(1, 20, &both);
    assert_eq!(
        rig.written(0, 20),
        ["end 1", "pass 0", "passed"],
        "nothing is left to form"
    );
}

#[test]
fn partners_of_a_table_that_is_made_ahead_wait_for_it() {
    let (mut rig, started) = tied(
        &[("parent", 20)],
        &[("child", 30), ("parent", 30)],
        &["child", "parent"],
    );
    assert_eq!(started, ["create 0 after 10", "save 1 changed 0 removed"]);
    rig.saved();
    assert_eq!(rig.register("child", 30), [""; 0]);
    assert_eq!(rig.beat(SCHEMA.0, key(29), 29), [""; 0]);
    assert_eq!(rig.beat(SCHEMA.0, key(30), 30), ["create 1 after 30"]);
    assert_eq!(span_of(&rig, "child"), span_of(&rig, "parent"));
    // One that never comes does not hold its partner for ever.
    let (mut rig, _) = tied(&[("parent", 20)], &[("child", 30)], &["child", "parent"]);
    assert_eq!(rig.beat(SCHEMA.0, key(40), 40), ["create 1 after 20"]);
    assert_eq!(rig.register("child", 50), ["create 2 after 50"]);
}

#[test]
fn a_stop_may_come_while_spans_are_formed() {
    let (mut rig, _) = tied(&[("child", 10), ("parent", 10)], &[], &[]);
    rig.saved();
    let alter = ddl(DdlKind::AlterTable, &["child"], &[], &["parent"]);
    rig.reach(2, 20, &alter);
    rig.reach(1, 20, &alter);
    rig.reformed(1, 20);
    rig.flushed(0);
    assert_eq!(rig.call(|core, now, out| core.stop(now, now + 500, out)), [""; 0]);
    rig.flushed(1);
    assert_eq!(rig.flushed(2), ["save 2 changed 0 removed"]);
    assert_eq!(rig.saved(), ["gc 10", "stopped true"]);
}
