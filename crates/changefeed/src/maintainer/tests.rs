//! The maintainer's state machine, case by case. Barriers under load and restarts are
//! the simulation's.

mod formation;

use std::sync::Arc;

use weir_protocol::changefeed::{
    BarrierReached, BarrierWritten, DispatcherFailed, Flushed, Heartbeat, RegisterTable,
};
use weir_protocol::dispatcher::BarrierStep;
use weir_types::{CommitTs, DdlEvent, DdlKind, DispatcherId, ErrorClass, ErrorReport, OrderKey, TableName};

use super::core::{Effect, MaintainerConfig, MaintainerCore};
use super::progress::{SAVE_INTERVAL_FIRST_MS, SAVE_INTERVAL_MS, SavedKeys};

const SCHEMA: DispatcherId = DispatcherId::SCHEMA;

fn key(ts: u64) -> OrderKey {
    OrderKey::new(CommitTs(ts), 1)
}

fn name(table: &str) -> TableName {
    TableName::new("shop", table)
}

fn error(class: ErrorClass) -> ErrorReport {
    ErrorReport {
        class,
        code: "WEIR-TST-001",
        message: "broken".to_owned(),
        action: "repair".to_owned(),
    }
}

struct Rig {
    core: MaintainerCore,
    now_ms: u64,
    last_save: u64,
}

impl Rig {
    /// Tables 1, 2, … by name, all at key 10.
    fn new(tables: &[&str]) -> (Self, Vec<String>) {
        Self::with(
            SavedKeys::fresh(key(10), tables.iter().map(|t| name(t))),
            &[],
            |_| true,
        )
    }

    fn with(
        saved: SavedKeys,
        sink_progress: &[(&str, u64)],
        wants: impl Fn(&TableName) -> bool + Send + Sync + 'static,
    ) -> (Self, Vec<String>) {
        let mut rig = Self {
            core: MaintainerCore::new(MaintainerConfig {
                saved,
                sink_progress: sink_progress.iter().map(|(t, ts)| (name(t), key(*ts))).collect(),
                components: Vec::new(),
                wants: Arc::new(wants),
            }),
            now_ms: 0,
            last_save: 0,
        };
        let started = rig.call(MaintainerCore::start);
        (rig, started)
    }

    fn call(&mut self, input: impl FnOnce(&mut MaintainerCore, u64, &mut Vec<Effect>)) -> Vec<String> {
        let mut out = Vec::new();
        input(&mut self.core, self.now_ms, &mut out);
        out.iter().map(|effect| self.describe(effect)).collect()
    }

    fn describe(&mut self, effect: &Effect) -> String {
        match effect {
            Effect::Create { id, after, .. } => format!("create {} after {}", id.0, after.commit_ts),
            Effect::End(message) => format!("end {}", message.dispatcher.0),
            Effect::Detach(id) => format!("detach {}", id.0),
            Effect::Barrier(message) => match message.step {
                BarrierStep::Write => format!("write {}", message.dispatcher.0),
                BarrierStep::Pass => format!("pass {}", message.dispatcher.0),
            },
            Effect::Flush(message) => format!("flush {}", message.dispatcher.0),
            Effect::Save(update) => {
                self.last_save = update.seq;
                let changed = update.changed.len();
                format!("save {changed} changed {} removed", update.removed.len())
            }
            Effect::AdvanceGc(message) => format!("gc {}", message.schema.commit_ts),
            Effect::TableFailed { table, .. } => format!("table failed {}", table.table),
            Effect::Blocked(error) => format!("blocked {}", error.code),
            Effect::BarrierPassed { .. } => "passed".to_owned(),
            Effect::Failed(error) => format!("failed {}", error.code),
            Effect::CaughtUp { failed } => match failed.first() {
                Some((table, error)) => {
                    format!(
                        "caught up, {} failed, {} {}",
                        failed.len(),
                        table.table,
                        error.code
                    )
                }
                None => "caught up, 0 failed".to_owned(),
            },
            Effect::Stopped { clean } => format!("stopped {clean}"),
            Effect::Reform => "reform".to_owned(),
        }
    }

    fn beat(&mut self, id: u32, checkpoint: OrderKey, resolved: u64) -> Vec<String> {
        let message = Heartbeat {
            dispatcher: DispatcherId(id),
            checkpoint,
            resolved: CommitTs(resolved),
        };
        self.call(|core, now, out| core.heartbeat(message, now, out))
    }

    fn reach(&mut self, id: u32, ts: u64, event: &Arc<DdlEvent>) -> Vec<String> {
        let message = BarrierReached {
            dispatcher: DispatcherId(id),
            key: key(ts),
            event: Arc::clone(event),
        };
        self.call(|core, now, out| core.barrier_reached(&message, now, out))
    }

    fn written(&mut self, id: u32, ts: u64) -> Vec<String> {
        self.written_with(id, ts, false)
    }

    fn reformed(&mut self, id: u32, ts: u64) -> Vec<String> {
        self.written_with(id, ts, true)
    }

    fn written_with(&mut self, id: u32, ts: u64, reform: bool) -> Vec<String> {
        let message = BarrierWritten {
            dispatcher: DispatcherId(id),
            key: key(ts),
            reform,
        };
        self.call(|core, now, out| core.barrier_written(message, now, out))
    }

    fn register(&mut self, table: &str, ts: u64) -> Vec<String> {
        let message = RegisterTable {
            table: name(table),
            after: key(ts),
        };
        self.call(|core, now, out| core.register_table(&message, now, out))
    }

    fn fail(&mut self, id: u32, class: ErrorClass) -> Vec<String> {
        let message = DispatcherFailed {
            dispatcher: DispatcherId(id),
            error: error(class),
        };
        self.call(|core, now, out| core.dispatcher_failed(message, now, out))
    }

    fn flushed(&mut self, id: u32) -> Vec<String> {
        let message = Flushed {
            dispatcher: DispatcherId(id),
        };
        self.call(|core, now, out| core.flushed(message, now, out))
    }

    fn saved(&mut self) -> Vec<String> {
        let seq = self.last_save;
        self.call(|core, now, out| core.saved(seq, now, out))
    }

    fn tick(&mut self, after_ms: u64) -> Vec<String> {
        self.now_ms += after_ms;
        self.call(MaintainerCore::tick)
    }
}

fn ddl(kind: DdlKind, writes: &[&str], makes: &[&str], reads: &[&str]) -> Arc<DdlEvent> {
    let names = |tables: &[&str]| tables.iter().map(|table| name(table)).collect();
    Arc::new(DdlEvent {
        kind,
        schema: "shop".into(),
        session: Arc::default(),
        sql: "".into(),
        writes: names(writes),
        makes: names(makes),
        reads: names(reads),
        commit_time_ms: 0,
    })
}

#[test]
fn starts_where_token_sink_and_start_allow() {
    let mut saved = SavedKeys::fresh(key(10), [name("a"), name("b"), name("c"), name("gone")]);
    saved.tables.insert(name("a"), key(30));
    saved.tables.insert(name("b"), key(5));
    let (mut rig, started) = Rig::with(saved, &[("c", 40), ("d", 90)], |table| &*table.table != "gone");
    assert_eq!(
        started,
        [
            "create 0 after 10",
            "create 1 after 30",
            "create 2 after 10",
            "create 3 after 40",
            "save 2 changed 1 removed",
        ]
    );
    assert_eq!(
        rig.register("d", 50),
        ["create 4 after 90"],
        "finished files count"
    );
    assert_eq!(rig.register("e", 50), ["create 5 after 50"]);
    assert_eq!(rig.register("e", 70), [""; 0], "it has a dispatcher");
    assert_eq!(rig.register("gone", 50), [""; 0], "nobody wants it");
    assert_eq!(rig.core.checkpoint(), key(10));
}

#[test]
fn one_table_waits_for_itself_only() {
    let (mut rig, _) = Rig::new(&["a", "b"]);
    let alter = ddl(DdlKind::AlterTable, &["a"], &[], &[]);
    assert_eq!(rig.reach(1, 20, &alter), ["write 1"]);
    assert_eq!(
        rig.reach(1, 20, &alter),
        ["write 1"],
        "a repeated report is answered again"
    );
    assert_eq!(rig.written(1, 20), ["pass 1", "passed"]);
    assert_eq!(rig.written(1, 20), ["pass 1"]);
    assert_eq!(rig.reach(1, 20, &alter), ["pass 1"]);
}

#[test]
fn all_tables_that_a_ddl_reads_or_writes_wait() {
    let (mut rig, _) = Rig::new(&["child", "parent", "other"]);
    let alter = ddl(DdlKind::AlterTable, &["child"], &[], &["parent"]);
    // child 1, other 2, parent 3
    assert_eq!(rig.reach(3, 20, &alter), [""; 0]);
    assert_eq!(rig.reach(1, 20, &alter), ["write 1"], "the written table writes");
    assert_eq!(rig.written(1, 20), ["pass 1", "pass 3", "passed"]);
}

#[test]
fn a_table_that_starts_behind_the_ddl_counts_as_arrived() {
    let (mut rig, _) = Rig::new(&["child", "parent"]);
    rig.beat(2, key(20), 20);
    let alter = ddl(DdlKind::AlterTable, &["child"], &[], &["parent"]);
    assert_eq!(rig.reach(1, 20, &alter), ["write 1"]);
}

#[test]
fn a_name_without_dispatcher_waits_for_the_schema_dispatcher() {
    let (mut rig, _) = Rig::new(&["child"]);
    let alter = ddl(DdlKind::AlterTable, &["child"], &[], &["parent"]);
    assert_eq!(rig.reach(1, 20, &alter), [""; 0], "its creation may lie before");
    assert_eq!(rig.register("parent", 15), ["create 2 after 15"]);
    rig.beat(SCHEMA.0, OrderKey::end_of(CommitTs(19)), 19);
    assert_eq!(rig.reach(2, 20, &alter), ["write 1"]);

    let (mut rig, _) = Rig::new(&["child"]);
    rig.reach(1, 20, &alter);
    let late = OrderKey::end_of(CommitTs(30));
    assert_eq!(rig.beat(SCHEMA.0, late, 30), ["write 1"], "it never existed");

    let saved = SavedKeys::fresh(key(10), [name("child")]);
    let (mut rig, _) = Rig::with(saved, &[], |table| &*table.table != "parent");
    assert_eq!(rig.reach(1, 20, &alter), ["write 1"], "it is not replicated");
}

#[test]
fn structural_ddl_is_written_by_the_schema_dispatcher_and_ends_what_it_drops() {
    let (mut rig, _) = Rig::new(&["a", "b"]);
    let drop = ddl(DdlKind::DropTable, &["a"], &[], &[]);
    assert_eq!(rig.reach(1, 20, &drop), [""; 0]);
    assert_eq!(rig.reach(SCHEMA.0, 20, &drop), ["write 0"]);
    assert_eq!(rig.written(0, 20), ["end 1", "pass 0", "passed"]);
    assert_eq!(
        rig.register("a", 25),
        ["create 3 after 25"],
        "ids are not used again"
    );
    assert_eq!(rig.beat(1, key(99), 99), [""; 0], "the old one is unknown");

    let swap = ddl(DdlKind::RenameTable, &["a", "b", "tmp"], &["a", "b"], &[]);
    rig.reach(3, 30, &swap);
    rig.reach(2, 30, &swap);
    assert_eq!(rig.reach(0, 30, &swap), ["write 0"]);
    let passed = rig.written(0, 30);
    assert_eq!(
        passed,
        ["pass 0", "pass 2", "pass 3", "passed"],
        "both names go on"
    );
}

#[test]
fn drop_database_ends_all_its_tables() {
    let (mut rig, _) = Rig::new(&["a", "b"]);
    let drop = ddl(DdlKind::DropDatabase, &[""], &[], &[]);
    rig.reach(SCHEMA.0, 20, &drop);
    rig.reach(2, 20, &drop);
    assert_eq!(rig.reach(1, 20, &drop), ["write 0"]);
    assert_eq!(rig.written(0, 20), ["end 1", "end 2", "pass 0", "passed"]);
    assert_eq!(rig.core.registry().table_count(), 0);
}

#[test]
fn saves_are_spaced_and_gc_follows_them() {
    let (mut rig, started) = Rig::new(&["a", "b"]);
    assert_eq!(started.last().unwrap(), "save 0 changed 0 removed");
    rig.beat(1, key(20), 20);
    assert_eq!(rig.tick(SAVE_INTERVAL_MS), [""; 0], "one at a time");
    assert_eq!(rig.saved(), ["gc 10"]);
    assert_eq!(rig.tick(1), ["save 1 changed 0 removed"], "only what moved");
    assert_eq!(rig.saved(), ["gc 10"]);
    rig.now_ms += 10 * SAVE_INTERVAL_MS;
    rig.beat(1, key(21), 21);
    assert_eq!(rig.tick(0), ["save 1 changed 0 removed"]);
    rig.saved();
    rig.beat(1, key(22), 22);
    assert_eq!(rig.tick(SAVE_INTERVAL_MS - 1), [""; 0]);
    assert_eq!(rig.tick(1), ["save 1 changed 0 removed"]);
    assert_eq!(
        rig.call(|core, now, out| core.saved(77, now, out)),
        [""; 0],
        "another save"
    );
}

/// What a process of any life saves: all but the last third of its time, and the first interval.
#[test]
fn a_short_life_saves_too() {
    let (mut rig, _) = Rig::new(&["a"]);
    rig.saved();
    let mut last = 0;
    for now in 1..=5_000 {
        rig.beat(1, key(20 + now), 20 + now);
        if !rig.tick(1).is_empty() {
            rig.saved();
            last = now;
        }
        let lost = now - last;
        assert!(
            lost <= SAVE_INTERVAL_FIRST_MS + now / 3 && lost <= SAVE_INTERVAL_MS,
            "{lost} of {now} ms"
        );
    }
}

#[test]
fn until_flushes_saves_and_ends_once() {
    let (mut rig, _) = Rig::new(&["a"]);
    rig.saved();
    rig.call(|core, now, out| core.until(CommitTs(50), now, out));
    assert_eq!(rig.beat(1, key(20), 49), [""; 0]);
    assert_eq!(rig.beat(1, key(20), 50), ["flush 1"]);
    assert_eq!(rig.beat(1, key(20), 60), [""; 0], "asked once");
    assert_eq!(rig.beat(1, OrderKey::end_of(CommitTs(60)), 60), [""; 0]);
    let end = OrderKey::end_of(CommitTs(50));
    assert_eq!(rig.beat(0, end, 50), ["save 1 changed 0 removed"]);
    rig.beat(0, OrderKey::end_of(CommitTs(70)), 70);
    assert_eq!(rig.tick(SAVE_INTERVAL_MS), [""; 0], "the last save was made");
    assert_eq!(rig.saved(), ["gc 50", "caught up, 0 failed"]);
    assert_eq!(rig.tick(SAVE_INTERVAL_MS), [""; 0]);
}

#[test]
fn a_clean_stop_waits_for_every_flush_or_its_deadline() {
    let (mut rig, _) = Rig::new(&["a"]);
    rig.saved();
    let stop = rig.call(|core, now, out| core.stop(now, now + 500, out));
    assert_eq!(stop, ["flush 0", "flush 1"]);
    assert_eq!(
        rig.register("new", 30),
        [""; 0],
        "nothing is started, its start is saved"
    );
    assert_eq!(rig.flushed(0), [""; 0]);
    rig.beat(1, key(20), 20);
    assert_eq!(rig.flushed(1), ["save 2 changed 0 removed"]);
    assert_eq!(rig.saved().last().unwrap(), "stopped true");

    let (mut rig, _) = Rig::new(&["a"]);
    rig.saved();
    rig.call(|core, now, out| core.stop(now, now + 500, out));
    rig.flushed(0);
    assert_eq!(rig.tick(499), [""; 0]);
    assert_eq!(rig.tick(1), ["stopped false"], "nothing has changed");
}

#[test]
fn a_failed_table_blocks_only_what_needs_it() {
    let (mut rig, _) = Rig::new(&["a", "b", "c"]);
    rig.saved();
    rig.call(|core, now, out| core.until(CommitTs(50), now, out));
    let failed = rig.fail(1, ErrorClass::Table);
    assert_eq!(failed, ["detach 1", "flush 1", "table failed a"]);
    assert_eq!(rig.fail(1, ErrorClass::Table), [""; 0]);
    let alter = ddl(DdlKind::AlterTable, &["b"], &[], &["a"]);
    assert_eq!(rig.reach(2, 20, &alter), ["blocked WEIR-CHF-001"]);
    assert_eq!(rig.reach(2, 20, &alter), [""; 0], "told once");
    let end = OrderKey::end_of(CommitTs(50));
    rig.beat(0, end, 50);
    rig.beat(3, end, 50);
    assert_eq!(rig.tick(1), [""; 0], "rows of the failed one may become durable");
    assert_eq!(rig.flushed(1), ["save 2 changed 0 removed"]);
    assert_eq!(
        rig.saved(),
        ["gc 50", "caught up, 2 failed, a WEIR-TST-001"],
        "the failed and the blocked"
    );
}

#[test]
fn what_failed_is_told_before_what_waits_for_it() {
    let (mut rig, _) = Rig::new(&["a", "b"]);
    rig.saved();
    rig.call(|core, now, out| core.until(CommitTs(50), now, out));
    rig.fail(2, ErrorClass::Table);
    let alter = ddl(DdlKind::AlterTable, &["a"], &[], &["b"]);
    assert_eq!(rig.reach(1, 20, &alter), ["blocked WEIR-CHF-001"]);
    rig.beat(0, OrderKey::end_of(CommitTs(50)), 50);
    rig.flushed(2);
    assert_eq!(rig.saved(), ["gc 50", "caught up, 2 failed, b WEIR-TST-001"]);
}

#[test]
fn any_other_failure_is_the_changefeeds() {
    for class in [ErrorClass::Transient, ErrorClass::Changefeed, ErrorClass::Bug] {
        let (mut rig, _) = Rig::new(&["a"]);
        assert_eq!(rig.fail(1, class), ["failed WEIR-TST-001"]);
    }
    let (mut rig, _) = Rig::new(&["a"]);
    assert_eq!(
        rig.fail(0, ErrorClass::Table),
        ["failed WEIR-TST-001"],
        "no table of its own"
    );
}

#[test]
fn a_failed_writer_leaves_the_ddl_to_nobody() {
    let (mut rig, _) = Rig::new(&["a", "b"]);
    let alter = ddl(DdlKind::AlterTable, &["a"], &[], &["b"]);
    rig.reach(2, 20, &alter);
    assert_eq!(rig.reach(1, 20, &alter), ["write 1"]);
    let failed = rig.fail(1, ErrorClass::Table);
    assert_eq!(
        failed,
        ["detach 1", "flush 1", "table failed a", "blocked WEIR-CHF-001"]
    );
    assert_eq!(rig.core.open_barriers(), 1);
}
