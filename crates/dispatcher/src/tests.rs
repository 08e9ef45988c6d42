//! The dispatcher's state machine, case by case.

use std::sync::Arc;

use proptest::prelude::*;
use weir_protocol::collector::EventBatch;
use weir_protocol::dispatcher::{BarrierStep, Delivery};
use weir_protocol::service::Span;
use weir_protocol::sink::SinkWork;
use weir_types::{CommitTs, DdlEvent, DdlKind, DispatcherId, ErrorClass, ErrorReport, OrderKey, TableName};

use crate::core::{DispatcherCore, Effect, HEARTBEAT_INTERVAL_MS, REPORT_REPEAT_MS};
use crate::progress::{OUTSTANDING_RUNS_MAX, TableProgress};

const ID: DispatcherId = DispatcherId(4);

fn key(ts: u64) -> OrderKey {
    OrderKey::new(CommitTs(ts), 1)
}

fn batch(first: u64, last: u64) -> Delivery {
    Delivery::Batch(Arc::new(EventBatch {
        slices: Vec::new(),
        events: 1,
        bytes: 64,
        first: key(first),
        last: key(last),
        lane: false,
    }))
}

fn ddl(ts: u64, kind: DdlKind, makes: &[&str]) -> Delivery {
    let makes: Vec<_> = makes.iter().map(|table| TableName::new("shop", *table)).collect();
    Delivery::Ddl {
        key: key(ts),
        event: Arc::new(DdlEvent {
            kind,
            schema: "shop".into(),
            session: Arc::default(),
            sql: "".into(),
            writes: makes.clone(),
            makes,
            reads: Vec::new(),
            commit_time_ms: 0,
        }),
    }
}

fn error() -> ErrorReport {
    ErrorReport {
        class: ErrorClass::Table,
        code: "WEIR-TST-001",
        message: "broken".to_owned(),
        action: "repair".to_owned(),
    }
}

/// The core with a short name for each effect.
struct Rig {
    core: DispatcherCore,
    now_ms: u64,
}

impl Rig {
    fn table() -> Self {
        let span = Span::Table(TableName::new("shop", "orders"));
        Self {
            core: DispatcherCore::new(ID, span, key(1)),
            now_ms: 0,
        }
    }

    fn schema() -> Self {
        Self {
            core: DispatcherCore::new(DispatcherId::SCHEMA, Span::Schema, key(1)),
            now_ms: 0,
        }
    }

    fn call(&mut self, input: impl FnOnce(&mut DispatcherCore, u64, &mut Vec<Effect>)) -> Vec<String> {
        let mut out = Vec::new();
        input(&mut self.core, self.now_ms, &mut out);
        out.iter().map(name).collect()
    }

    fn deliver(&mut self, delivery: Delivery) -> Vec<String> {
        self.call(|core, now, out| core.deliver(delivery, now, out))
    }

    fn flush(&mut self, ends: bool) -> Vec<String> {
        self.call(|core, now, out| core.flush_now(ends, now, out))
    }

    fn durable(&mut self, ts: u64) -> Vec<String> {
        self.call(|core, now, out| core.durable(key(ts), now, out))
    }

    fn act(&mut self, ts: u64, step: BarrierStep) -> Vec<String> {
        self.call(|core, now, out| core.barrier_action(key(ts), step, now, out))
    }

    fn written(&mut self, ts: u64) -> Vec<String> {
        self.call(|core, now, out| core.ddl_written(key(ts), false, now, out))
    }

    fn tick(&mut self, after_ms: u64) -> Vec<String> {
        self.now_ms += after_ms;
        self.call(DispatcherCore::tick)
    }
}

fn name(effect: &Effect) -> String {
    match effect {
        Effect::ToSink(SinkWork::Rows(_)) => "rows".to_owned(),
        Effect::ToSink(SinkWork::Flush) => "flush".to_owned(),
        Effect::ToSink(SinkWork::Ddl { .. }) => "ddl".to_owned(),
        Effect::ToSink(SinkWork::Close) => "close".to_owned(),
        Effect::Heartbeat(message) => format!("heartbeat {}", message.checkpoint.commit_ts),
        Effect::Reached(message) => format!("reached {}", message.key.commit_ts),
        Effect::Written(message) => format!("written {}", message.key.commit_ts),
        Effect::Register(message) => format!("register {}", message.table.table),
        Effect::Flushed(_) => "flushed".to_owned(),
        Effect::Failed(message) => format!("failed {}", message.error.code),
        Effect::Resume(message) => format!("resume {}", message.key.commit_ts),
        Effect::Released(message) => format!("released {}", message.bytes),
    }
}

#[test]
fn the_checkpoint_stays_before_the_first_row_that_is_not_durable() {
    let mut rig = Rig::table();
    assert_eq!(rig.core.checkpoint(), key(1));
    assert_eq!(rig.deliver(batch(10, 12)), ["rows"]);
    assert_eq!(rig.deliver(Delivery::Resolved(CommitTs(20))), [""; 0]);
    assert_eq!(rig.core.checkpoint(), key(10).before());
    rig.deliver(batch(30, 35));
    rig.durable(11);
    assert_eq!(rig.core.checkpoint(), key(11), "in the middle of a batch");
    rig.durable(12);
    assert_eq!(rig.core.checkpoint(), key(30).before());
    rig.durable(35);
    assert_eq!(rig.core.checkpoint(), key(35), "resolved is behind the rows");
    rig.deliver(Delivery::Resolved(CommitTs(40)));
    assert_eq!(rig.core.checkpoint(), OrderKey::end_of(CommitTs(40)));
}

#[test]
fn heartbeats_are_coalesced() {
    let mut rig = Rig::table();
    assert!(!rig.core.wants_tick());
    rig.deliver(Delivery::Resolved(CommitTs(20)));
    rig.deliver(Delivery::Resolved(CommitTs(21)));
    assert!(rig.core.wants_tick());
    assert_eq!(rig.tick(HEARTBEAT_INTERVAL_MS), ["heartbeat 21"]);
    assert!(!rig.core.wants_tick());
    assert_eq!(rig.tick(1), [""; 0], "nothing new");
    rig.deliver(Delivery::Resolved(CommitTs(22)));
    assert_eq!(rig.tick(HEARTBEAT_INTERVAL_MS - 2), [""; 0], "too early");
    assert_eq!(rig.tick(1), ["heartbeat 22"]);
}

#[test]
fn a_ddl_waits_for_its_rows_then_writes_then_passes() {
    let mut rig = Rig::table();
    rig.deliver(batch(10, 12));
    assert_eq!(rig.deliver(ddl(15, DdlKind::AlterTable, &[])), ["flush"]);
    assert_eq!(rig.act(15, BarrierStep::Write), [""; 0], "rows are under way");
    assert_eq!(rig.durable(12), ["reached 15"]);
    assert_eq!(rig.core.checkpoint(), key(15).before());
    assert_eq!(rig.act(14, BarrierStep::Write), [""; 0], "another DDL");
    assert_eq!(rig.act(15, BarrierStep::Write), ["ddl"]);
    assert_eq!(rig.act(15, BarrierStep::Write), [""; 0], "under way");
    assert_eq!(rig.act(15, BarrierStep::Pass), [""; 0], "not durable");
    assert_eq!(rig.written(15), ["written 15"]);
    assert_eq!(rig.written(15), [""; 0]);
    assert_eq!(
        rig.act(15, BarrierStep::Write),
        ["written 15"],
        "the report was lost"
    );
    assert_eq!(
        rig.core.checkpoint(),
        key(15).before(),
        "others may not have passed"
    );
    assert_eq!(rig.act(15, BarrierStep::Pass), ["resume 15"]);
    assert_eq!(rig.core.checkpoint(), key(15));
    assert_eq!(rig.act(15, BarrierStep::Pass), [""; 0]);
    assert_eq!(rig.act(15, BarrierStep::Write), ["written 15"]);
    assert_eq!(rig.deliver(batch(16, 16)), ["rows"]);
}

#[test]
fn one_that_does_not_write_passes_at_once() {
    let mut rig = Rig::table();
    assert_eq!(rig.deliver(ddl(15, DdlKind::AlterTable, &[])), ["reached 15"]);
    assert_eq!(rig.act(15, BarrierStep::Pass), ["resume 15"]);
}

#[test]
fn reports_are_repeated_until_they_are_answered() {
    let mut rig = Rig::table();
    rig.deliver(ddl(15, DdlKind::AlterTable, &[]));
    rig.tick(HEARTBEAT_INTERVAL_MS);
    assert_eq!(rig.tick(REPORT_REPEAT_MS), ["reached 15"]);
    assert_eq!(rig.tick(REPORT_REPEAT_MS - 1), [""; 0]);
    rig.act(15, BarrierStep::Write);
    assert_eq!(rig.tick(REPORT_REPEAT_MS), [""; 0], "the sink has it");
    rig.written(15);
    assert_eq!(rig.tick(REPORT_REPEAT_MS), ["written 15"]);
}

#[test]
fn resolved_does_not_move_a_waiting_dispatcher_past_its_ddl() {
    let mut rig = Rig::table();
    rig.deliver(ddl(15, DdlKind::AlterTable, &[]));
    rig.deliver(Delivery::Resolved(CommitTs(90)));
    assert_eq!(rig.core.resolved(), CommitTs::ZERO);
    rig.deliver(Delivery::Resolved(CommitTs(14)));
    assert_eq!(rig.core.resolved(), CommitTs(14));
    rig.act(15, BarrierStep::Pass);
    assert_eq!(rig.core.checkpoint(), key(15));
}

#[test]
fn the_schema_dispatcher_registers_before_it_moves() {
    let mut rig = Rig::schema();
    let create = ddl(15, DdlKind::CreateTable, &["a", "b"]);
    assert_eq!(rig.deliver(create), ["reached 15"]);
    assert_eq!(rig.act(15, BarrierStep::Write), ["ddl"]);
    assert_eq!(rig.written(15), ["written 15"]);
    assert_eq!(rig.core.checkpoint(), key(15).before());
    let passed = rig.act(15, BarrierStep::Pass);
    assert_eq!(passed, ["register a", "register b", "resume 15"]);
    assert_eq!(rig.tick(HEARTBEAT_INTERVAL_MS), ["heartbeat 15"]);
}

#[test]
fn an_implicit_creation_needs_nobody() {
    let mut rig = Rig::schema();
    let implicit = || ddl(15, DdlKind::ImplicitCreate, &["a"]);
    assert_eq!(rig.deliver(implicit()), ["register a", "resume 15"]);
    assert_eq!(rig.core.checkpoint(), key(15));
    // It takes no ordinal of its own: another event may share its key.
    assert_eq!(rig.deliver(implicit()), ["register a", "resume 15"]);
    let create = ddl(15, DdlKind::CreateTable, &["b"]);
    assert_eq!(rig.deliver(create), ["reached 15"]);
    assert_eq!(rig.act(15, BarrierStep::Write), ["ddl"]);
}

#[test]
fn a_stream_that_goes_wrong_is_refused_and_gives_its_credit_back() {
    let mut backwards = Rig::table();
    backwards.deliver(batch(10, 12));
    let refused = backwards.deliver(batch(12, 13));
    assert_eq!(refused, ["released 64", "failed WEIR-DIS-001"]);
    assert_eq!(backwards.deliver(batch(14, 14)), ["released 64"], "stays failed");
    assert_eq!(
        backwards.durable(12),
        [""; 0],
        "earlier rows still become durable"
    );
    assert_eq!(backwards.core.checkpoint(), key(12));

    let mut behind = Rig::table();
    behind.deliver(ddl(15, DdlKind::AlterTable, &[]));
    let refused = behind.deliver(batch(16, 17));
    assert_eq!(refused, ["released 64", "failed WEIR-DIS-002"]);
    assert_eq!(behind.act(15, BarrierStep::Pass), [""; 0]);

    let mut schema = Rig::schema();
    assert_eq!(
        schema.deliver(batch(16, 17)),
        ["released 64", "failed WEIR-DIS-003"]
    );
}

#[test]
fn a_failed_sink_leaves_the_checkpoint_where_it_is() {
    let mut rig = Rig::table();
    rig.deliver(batch(10, 12));
    let failed = rig.call(|core, now, out| core.sink_failed(error(), now, out));
    assert_eq!(failed, ["failed WEIR-TST-001"]);
    let again = rig.call(|core, now, out| core.sink_failed(error(), now, out));
    assert_eq!(again, [""; 0], "reported once");
    assert_eq!(rig.deliver(batch(13, 13)), ["released 64"]);
    rig.deliver(Delivery::Resolved(CommitTs(99)));
    assert_eq!(rig.core.checkpoint(), key(10).before());
    let flushed = rig.flush(false);
    assert_eq!(flushed, ["heartbeat 10", "flushed"], "nothing to wait for");
}

#[test]
fn a_failed_stream_still_makes_its_rows_durable() {
    let mut rig = Rig::table();
    rig.deliver(batch(10, 12));
    let failed = rig.deliver(Delivery::Failed(error()));
    assert_eq!(failed, ["flush", "failed WEIR-TST-001"]);
    assert_eq!(rig.flush(false), ["flush"]);
    assert_eq!(rig.durable(12), ["heartbeat 12", "flushed"]);
}

#[test]
fn a_flush_is_answered_when_what_was_delivered_is_durable() {
    let mut rig = Rig::table();
    assert_eq!(rig.flush(false), ["heartbeat 1", "flushed"]);
    rig.deliver(batch(10, 12));
    assert_eq!(rig.flush(false), ["flush"]);
    rig.deliver(batch(20, 22));
    assert_eq!(rig.durable(11), [""; 0]);
    assert_eq!(
        rig.durable(12),
        ["heartbeat 20", "flushed"],
        "later rows do not count"
    );
    assert_eq!(rig.durable(22), [""; 0]);
}

/// What comes behind the flush of a run that ends is not written: it would be at the sink
/// without progress that says so.
#[test]
fn nothing_is_written_behind_the_last_flush() {
    let mut rig = Rig::table();
    rig.deliver(batch(10, 12));
    assert_eq!(rig.flush(true), ["flush"]);
    assert_eq!(rig.deliver(batch(20, 22)), ["released 64"]);
    rig.deliver(Delivery::Resolved(CommitTs(99)));
    assert_eq!(rig.durable(12), ["heartbeat 12", "flushed"]);
    assert_eq!(rig.core.checkpoint(), key(12));
}

proptest! {
    /// Against a plain list of rows: the checkpoint covers exactly what is durable, as
    /// long as no runs are joined.
    #[test]
    fn progress_is_exact(steps in proptest::collection::vec((0u8..3, 1u64..5), 1..200)) {
        let mut progress = TableProgress::new(OrderKey::MIN);
        let mut rows: Vec<u64> = Vec::new();
        let (mut at, mut durable, mut resolved) = (10, 0, 0);
        for (kind, n) in steps {
            match kind {
                0 => {
                    let first = at + n;
                    at = first + n;
                    rows.extend([first, at]);
                    progress.add(key(first), key(at));
                }
                1 => {
                    durable = rows.iter().copied().filter(|row| *row > durable).nth(n as usize).unwrap_or(durable);
                    progress.durable(key(durable));
                }
                _ => {
                    at += n;
                    resolved = at;
                    progress.resolve(CommitTs(at));
                }
            }
            let open = rows.iter().find(|row| **row > durable);
            prop_assert_eq!(progress.has_outstanding(), open.is_some());
            let checkpoint = progress.checkpoint();
            if let Some(open) = open {
                prop_assert!(checkpoint < key(*open), "beyond a row that is not durable");
            } else if resolved > 0 {
                prop_assert!(checkpoint >= OrderKey::end_of(CommitTs(resolved)));
            }
            prop_assert!(durable == 0 || checkpoint >= key(durable));
        }
    }
}

#[test]
fn any_number_of_small_batches_takes_bounded_memory() {
    let mut progress = TableProgress::new(OrderKey::MIN);
    let many = OUTSTANDING_RUNS_MAX as u64 * 3;
    for ts in 1..=many {
        progress.add(key(ts), key(ts));
    }
    progress.durable(key(many - 1));
    assert!(progress.has_outstanding());
    assert!(progress.checkpoint() >= key(many - 1));
    assert!(progress.checkpoint() < key(many));
    progress.durable(key(many));
    assert!(!progress.has_outstanding());
}
