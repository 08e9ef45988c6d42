//! Single rules of the event collector.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::sync::Arc;

use weir_event_collector::{CollectorConfig, CollectorCore, Effect, ResetReason};
use weir_protocol::collector::{EventBatch, ServiceIncarnation, StreamBody, StreamMessage};
use weir_protocol::dispatcher::Delivery;
use weir_protocol::service::Span;
use weir_types::{CommitTs, DdlEvent, DdlKind, DispatcherId, Epoch, Generation, OrderKey, SeqNo};

const ID: DispatcherId = DispatcherId(1);
const LIFE: ServiceIncarnation = ServiceIncarnation(9);

struct Bench {
    core: CollectorCore,
    now_ms: u64,
    epoch: Epoch,
    out: Vec<Effect>,
}

fn key(ts: u64) -> OrderKey {
    OrderKey::new(CommitTs(ts), 1)
}

fn batch(ts: u64) -> StreamBody {
    StreamBody::Batch(Arc::new(EventBatch {
        slices: Vec::new(),
        events: 1,
        bytes: 10,
        first: key(ts),
        last: key(ts),
        lane: false,
    }))
}

fn ddl(ts: u64) -> StreamBody {
    let event = DdlEvent {
        kind: DdlKind::AlterTable,
        schema: Arc::from(""),
        session: Arc::default(),
        sql: Arc::from(""),
        writes: Vec::new(),
        makes: Vec::new(),
        reads: Vec::new(),
        commit_time_ms: 0,
    };
    let (key, event) = (key(ts), Arc::new(event));
    StreamBody::Ddl { key, event }
}

fn resolved(ts: u64) -> StreamBody {
    StreamBody::Resolved {
        resolved: CommitTs(ts),
        returned_bytes: 0,
        grant_seq: 1,
    }
}

impl Bench {
    fn new() -> Self {
        let config = CollectorConfig {
            generation: Generation(2),
            budget_bytes: 1 << 20,
            seed: 1,
            windows: weir_event_collector::WindowPolicy::PerDispatcher,
        };
        let mut bench = Self {
            core: CollectorCore::new(&config),
            now_ms: 1,
            epoch: Epoch(0),
            out: Vec::new(),
        };
        bench.core.add(1, ID, Span::Schema, OrderKey::MIN, &mut bench.out);
        bench.handshake(OrderKey::MIN);
        bench
    }

    /// Answers the reset that was sent.
    fn handshake(&mut self, after: OrderKey) {
        let reset = self.resets().pop().expect("a reset");
        assert_eq!(reset.1, after);
        self.epoch = reset.0;
        self.say(1, StreamBody::Handshake { after });
        assert!(self.out.iter().any(|effect| matches!(effect, Effect::Grant(_))));
    }

    fn say_as(&mut self, service: ServiceIncarnation, seq: u64, body: StreamBody) {
        let message = StreamMessage {
            dispatcher: ID,
            epoch: self.epoch,
            service,
            seq: SeqNo(seq),
            body,
        };
        self.core.message(self.now_ms, message, &mut self.out);
    }

    fn say(&mut self, seq: u64, body: StreamBody) {
        self.say_as(LIFE, seq, body);
    }

    fn resets(&mut self) -> Vec<(Epoch, OrderKey)> {
        let reset = |effect: &Effect| match effect {
            Effect::Reset(reset) => Some((reset.epoch, reset.after)),
            _ => None,
        };
        let found = self.out.iter().filter_map(reset).collect();
        self.out.retain(|effect| !matches!(effect, Effect::Reset(_)));
        found
    }

    fn delivered(&self) -> usize {
        self.out
            .iter()
            .filter(|effect| matches!(effect, Effect::Deliver(_)))
            .count()
    }

    fn count(&self, reason: ResetReason) -> u64 {
        self.core.counters().resets[reason as usize]
    }
}

#[test]
fn exactly_the_next_message_is_accepted() {
    let mut bench = Bench::new();
    bench.say(2, batch(10));
    bench.say(2, batch(10));
    bench.say(2, resolved(15));
    bench.say(2, resolved(15));
    bench.say(3, batch(20));
    bench.say(2, resolved(17));
    assert_eq!(bench.delivered(), 3, "two batches and one resolved-ts");
    assert_eq!(bench.resets(), [], "what came already is ignored");
    assert_eq!(bench.core.accepted(ID).map(|(_, key)| key), Some(key(20)));
}

#[test]
fn a_gap_makes_one_reset_behind_what_was_accepted() {
    let mut bench = Bench::new();
    bench.say(2, batch(10));
    bench.say(2, resolved(15));
    bench.say(4, batch(30));
    bench.say(5, batch(40));
    bench.say(5, resolved(50));
    let before = bench.epoch;
    assert_eq!(bench.count(ResetReason::Gap), 1);
    bench.handshake(OrderKey::end_of(CommitTs(15)));
    assert!(bench.epoch > before);
    bench.say(2, batch(20));
    assert_eq!(bench.core.accepted(ID).map(|(_, key)| key), Some(key(20)));
}

#[test]
fn a_lost_last_message_is_noticed_by_the_next_resolved() {
    let mut bench = Bench::new();
    bench.say(2, batch(10));
    bench.say(3, resolved(30));
    assert_eq!(bench.resets().len(), 1);
}

#[test]
fn another_life_of_the_service_cannot_go_on_with_the_numbers() {
    let mut bench = Bench::new();
    bench.say(2, batch(10));
    bench.say_as(ServiceIncarnation(10), 3, batch(30));
    assert_eq!(bench.delivered(), 1);
    assert_eq!(bench.count(ResetReason::Restarted), 1);
    assert_eq!(bench.resets().len(), 1);
}

#[test]
fn a_stream_at_a_barrier_is_reset_when_that_has_passed() {
    let mut bench = Bench::new();
    bench.say(2, ddl(10));
    bench.say(0, StreamBody::Unknown);
    bench.say(0, StreamBody::Unknown);
    bench.now_ms += 60_000;
    bench.core.tick(bench.now_ms, &mut bench.out);
    assert_eq!(bench.resets(), [], "a new epoch would run past the barrier");
    bench.core.resume(bench.now_ms, ID, key(9), &mut bench.out);
    assert_eq!(bench.resets(), [], "another DDL has passed");
    bench.core.resume(bench.now_ms, ID, key(10), &mut bench.out);
    assert!(!bench.out.iter().any(|effect| matches!(effect, Effect::Pass(_))));
    bench.handshake(key(10));
}

#[test]
fn a_pass_is_repeated_until_the_stream_moves() {
    let mut bench = Bench::new();
    bench.say(2, ddl(10));
    bench.core.resume(bench.now_ms, ID, key(10), &mut bench.out);
    let passes = |bench: &Bench| bench.out.iter().filter(|e| matches!(e, Effect::Pass(_))).count();
    assert_eq!(passes(&bench), 1);
    bench.say(2, resolved(5));
    bench.now_ms += 300;
    bench.core.tick(bench.now_ms, &mut bench.out);
    assert_eq!(passes(&bench), 2, "a resolved-ts before the DDL is no answer");
    bench.say(2, resolved(10));
    bench.now_ms += 60_000;
    bench.core.tick(bench.now_ms, &mut bench.out);
    assert_eq!(passes(&bench), 2);
}

#[test]
fn an_unanswered_reset_is_repeated_under_its_epoch_with_growing_pauses() {
    let mut bench = Bench::new();
    bench.say(0, StreamBody::Unknown);
    let mut times = Vec::new();
    let first = bench.resets();
    while times.len() < 6 {
        bench.now_ms += 10;
        bench.core.tick(bench.now_ms, &mut bench.out);
        let again = bench.resets();
        if !again.is_empty() {
            assert_eq!(again, first);
            times.push(bench.now_ms);
        }
    }
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
}

#[test]
fn registrations_are_bounded() {
    let mut bench = Bench::new();
    for n in 2..1_000 {
        bench
            .core
            .add(1, DispatcherId(n), Span::Schema, OrderKey::MIN, &mut bench.out);
    }
    assert_eq!(
        bench.resets().len(),
        weir_event_collector::core::REGISTRATIONS_MAX
    );
}

#[test]
fn a_silent_stream_is_asked_and_streams_that_are_gone_are_ended() {
    let mut bench = Bench::new();
    bench.out.clear();
    bench.now_ms += 6_000;
    bench.core.tick(bench.now_ms, &mut bench.out);
    assert!(matches!(bench.out[..], [Effect::Grant(_)]), "{:?}", bench.out);
    bench.core.remove(bench.now_ms, ID, &mut bench.out);
    bench.out.clear();
    bench.say(2, batch(10));
    assert!(matches!(bench.out[..], [Effect::Remove(_)]), "{:?}", bench.out);
}

#[test]
fn a_failure_ends_the_stream() {
    let mut bench = Bench::new();
    let report = weir_types::ErrorReport {
        class: weir_types::ErrorClass::Table,
        code: "WEIR-EVS-001",
        message: String::new(),
        action: String::new(),
    };
    bench.say(1, StreamBody::Failed(report));
    bench.say(2, batch(10));
    let failed =
        |effect: &Effect| matches!(effect, Effect::Deliver(d) if matches!(d.delivery, Delivery::Failed(_)));
    assert_eq!(bench.out.iter().filter(|effect| failed(effect)).count(), 1);
    assert_eq!(bench.delivered(), 1);
}
