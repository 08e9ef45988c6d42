//! Single rules of the event service.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::sync::Arc;

use weir_event_service::{DdlFilter, Effect, ServiceConfig, ServiceCore};
use weir_protocol::collector::{BATCH_BYTES_MAX, ServiceIncarnation, StreamBody, StreamMessage};
use weir_protocol::service::{GrantCredit, PassBarrier, Remove, Reset, Span};
use weir_testkit::history::Mix;
use weir_testkit::{ModelStore, Rng};
use weir_types::{DispatcherId, Epoch, OrderKey, SeqNo, TableName};

const ID: DispatcherId = DispatcherId(7);
const LIFE: ServiceIncarnation = ServiceIncarnation(3);
/// No test needs as many.
const SCANS_ENOUGH: u64 = 1_000;

struct Bench {
    service: ServiceCore,
    store: ModelStore,
    now_ms: u64,
    /// Scans run at once.
    sent: Vec<StreamMessage>,
    scans: u64,
}

fn all() -> DdlFilter {
    Arc::new(|_| true)
}

impl Bench {
    /// A history of `steps` transactions without DDL, but for implicit creations.
    fn new(steps: u64, mix: Mix, max_row_bytes: u64) -> Self {
        let store = ModelStore::default();
        let mut rng = Rng::new(1);
        for _ in 0..steps {
            store.history_mut().step(&mut rng, &mix);
        }
        let config = ServiceConfig {
            incarnation: LIFE,
            max_row_bytes,
            scans_max: 1,
            policy: weir_event_service::ScanPolicy::PerDispatcher,
        };
        let resolved = store.history().end;
        Self {
            service: ServiceCore::new(config, all(), resolved),
            store,
            now_ms: 1,
            sent: Vec::new(),
            scans: 0,
        }
    }

    fn small(steps: u64) -> Self {
        let mix = Mix {
            ddl_percent: 0,
            large_percent: 0,
            body_max: 300,
            revive: true,
        };
        Self::new(steps, mix, 1 << 20)
    }

    fn table(&self) -> TableName {
        self.store.history().rows.keys().next().cloned().unwrap()
    }

    fn act(&mut self, act: impl FnOnce(&mut ServiceCore, u64, &ModelStore, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        act(&mut self.service, self.now_ms, &self.store, &mut out);
        while !out.is_empty() {
            for effect in std::mem::take(&mut out) {
                match effect {
                    Effect::Send(message) => self.sent.push(message),
                    Effect::Scan(job) => {
                        self.scans += 1;
                        assert!(self.scans < SCANS_ENOUGH, "scans without end");
                        let done = job.run(&self.store, &all());
                        self.service.scan_done(self.now_ms, done, &self.store, &mut out);
                    }
                }
            }
        }
    }

    fn reset(&mut self, epoch: u64, span: Span, after: OrderKey) {
        let reset = Reset {
            dispatcher: ID,
            epoch: Epoch(epoch),
            span,
            after,
        };
        self.act(|service, now, _, out| service.reset(now, &reset, out));
    }

    fn grant(&mut self, epoch: u64, service: ServiceIncarnation, seq: u64, bytes: u64, lanes: u64) {
        let grant = GrantCredit {
            dispatcher: ID,
            epoch: Epoch(epoch),
            service,
            grant_seq: seq,
            granted_bytes: bytes,
            keep_bytes: 500,
            lane_rows: lanes,
        };
        self.act(|service, now, store, out| service.grant(now, &grant, store, out));
    }

    fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        self.act(|service, now, store, out| service.tick(now, store, out));
    }

    fn names(&mut self) -> Vec<(&'static str, u64)> {
        let name = |body: &StreamBody| match body {
            StreamBody::Handshake { .. } => "handshake",
            StreamBody::Batch(batch) if batch.lane => "lane",
            StreamBody::Batch(_) => "batch",
            StreamBody::Ddl { .. } => "ddl",
            StreamBody::Resolved { .. } => "resolved",
            StreamBody::Demand { .. } => "demand",
            StreamBody::Failed(_) => "failed",
            StreamBody::Unknown => "unknown",
        };
        std::mem::take(&mut self.sent)
            .iter()
            .map(|m| (name(&m.body), m.seq.0))
            .collect()
    }
}

#[test]
fn nothing_follows_a_handshake_before_the_first_grant() {
    let mut bench = Bench::small(50);
    let span = Span::Table(bench.table());
    bench.reset(5, span.clone(), OrderKey::MIN);
    bench.reset(5, span.clone(), OrderKey::MIN);
    bench.reset(4, span, OrderKey::MIN);
    assert_eq!(
        bench.names(),
        [("handshake", 1), ("handshake", 1)],
        "repeated, but not for an old epoch"
    );
    bench.tick(1_100);
    assert_eq!(bench.names(), [("handshake", 1)]);
    bench.grant(5, LIFE, 1, 1 << 20, 0);
    assert_eq!(bench.names(), [("batch", 2), ("resolved", 2)]);
}

#[test]
fn strangers_are_told_so_and_stale_ones_are_not() {
    let mut bench = Bench::small(10);
    bench.grant(5, LIFE, 1, 100, 0);
    let pass = PassBarrier {
        dispatcher: ID,
        epoch: Epoch(5),
        key: OrderKey::MIN,
    };
    bench.act(|service, now, store, out| service.pass_barrier(now, &pass, store, out));
    assert_eq!(bench.names(), [("unknown", 0), ("unknown", 0)]);
    bench.reset(6, Span::Schema, OrderKey::MIN);
    bench.names();
    bench.grant(5, LIFE, 1, 100, 0);
    assert_eq!(bench.names(), [], "an old epoch's grant");
    bench.grant(6, ServiceIncarnation(2), 1, 100, 0);
    assert_eq!(bench.names(), [("unknown", 0)], "granted to another life");
}

#[test]
fn without_credit_it_asks_once_and_then_once_a_second() {
    let mut bench = Bench::small(50);
    let span = Span::Table(bench.table());
    bench.reset(1, span, OrderKey::MIN);
    bench.grant(1, LIFE, 1, 0, 0);
    assert_eq!(bench.names(), [("handshake", 1), ("demand", 1)]);
    bench.tick(300);
    assert_eq!(bench.names(), []);
    bench.tick(800);
    assert_eq!(bench.names(), [("demand", 1)]);
    bench.grant(1, LIFE, 1, 1 << 20, 0);
    assert_eq!(bench.names(), [], "a grant of the same number was seen");
    bench.grant(1, LIFE, 2, 1 << 20, 0);
    assert_eq!(bench.names(), [("batch", 2), ("resolved", 2)]);
    let (_, credit) = bench.service.credit(ID).unwrap();
    assert_eq!(credit.free(), 500, "the rest was given back");
    assert_eq!(credit.granted, credit.sent + credit.returned + 500);
}

#[test]
fn a_row_larger_than_the_credit_waits_for_the_lane() {
    let mix = Mix {
        ddl_percent: 0,
        large_percent: 100,
        body_max: 20_000,
        revive: true,
    };
    let mut bench = Bench::new(3, mix, 1 << 20);
    let span = Span::Table(bench.table());
    bench.reset(1, span, OrderKey::MIN);
    bench.grant(1, LIFE, 1, 600, 0);
    bench
        .sent
        .retain(|m| !matches!(m.body, StreamBody::Demand { .. }));
    bench.grant(1, LIFE, 2, 600, 1);
    let names = bench.names();
    assert_eq!(
        names.iter().filter(|(name, _)| *name == "lane").count(),
        1,
        "{names:?}"
    );
    let (_, credit) = bench.service.credit(ID).unwrap();
    assert_eq!(credit.sent, 0, "the lane is not charged to the credit");
}

#[test]
fn a_row_larger_than_a_batch_but_not_than_the_credit_passes_without_the_lane() {
    let mix = Mix {
        ddl_percent: 0,
        large_percent: 100,
        body_max: 3 << 20,
        revive: true,
    };
    let mut bench = Bench::new(8, mix, 16 << 20);
    let span = Span::Table(bench.table());
    bench.reset(1, span, OrderKey::MIN);
    bench.grant(1, LIFE, 1, 256 << 20, 0);
    let batches = bench.sent.iter().filter_map(|m| match &m.body {
        StreamBody::Batch(batch) => Some((batch.bytes, batch.events, batch.lane)),
        _ => None,
    });
    let batches: Vec<_> = batches.collect();
    let large = |bytes: usize| bytes > BATCH_BYTES_MAX;
    assert!(batches.iter().any(|(bytes, ..)| large(*bytes)), "{batches:?}");
    for (bytes, events, lane) in &batches {
        assert!(!lane && (*events == 1 || !large(*bytes)), "{batches:?}");
    }
    let sent = bench.table();
    let rows = bench.store.history().rows.get(&sent).map_or(0, Vec::len);
    let events: usize = batches.iter().map(|(_, events, _)| events).sum();
    assert_eq!(events, rows, "every row event");
}

#[test]
fn a_row_beyond_the_limit_fails_its_table_for_good() {
    let mix = Mix {
        ddl_percent: 0,
        large_percent: 100,
        body_max: 20_000,
        revive: true,
    };
    let mut bench = Bench::new(3, mix, 1_000);
    let span = Span::Table(bench.table());
    bench.reset(1, span, OrderKey::MIN);
    bench.grant(1, LIFE, 1, 1 << 20, 0);
    let failed = bench.sent.iter().find_map(|m| match &m.body {
        StreamBody::Failed(report) => Some(report.clone()),
        _ => None,
    });
    let report = failed.expect("a failure");
    assert_eq!(
        (report.code, report.class),
        ("WEIR-EVS-001", weir_types::ErrorClass::Table)
    );
    assert!(!bench.sent.iter().any(|m| matches!(m.body, StreamBody::Batch(_))));
    bench.names();
    bench.tick(1_100);
    assert_eq!(bench.names(), [("failed", 1)], "said again, in case it was lost");
}

#[test]
fn idle_streams_need_no_scan_and_few_messages() {
    let mut bench = Bench::small(30);
    let idle = Span::Table(TableName::new("quiet", "t"));
    bench.reset(1, idle, OrderKey::MIN);
    bench.grant(1, LIFE, 1, 500, 0);
    bench.tick(1);
    bench.names();
    let before = bench.scans;
    let mut rng = Rng::new(2);
    let mix = Mix {
        ddl_percent: 0,
        large_percent: 0,
        body_max: 10,
        revive: true,
    };
    for _ in 0..100 {
        bench.store.history_mut().step(&mut rng, &mix);
        let end = bench.store.history().end;
        bench.act(|service, now, store, out| service.resolved_advanced(now, end, store, out).unwrap());
    }
    assert_eq!(bench.scans, before);
    let names = bench.names();
    assert!(
        names.len() <= 100 && names.iter().all(|name| *name == ("resolved", 1)),
        "{names:?}"
    );
}

#[test]
fn a_stream_stops_at_its_ddl_until_that_has_passed() {
    let mix = Mix {
        ddl_percent: 60,
        large_percent: 0,
        body_max: 10,
        revive: true,
    };
    let mut bench = Bench::new(60, mix, 1 << 20);
    bench.reset(1, Span::Schema, OrderKey::MIN);
    bench.grant(1, LIFE, 1, 0, 0);
    let structural: Vec<_> = {
        let history = bench.store.history();
        let mut keys: Vec<_> = history
            .ddls
            .iter()
            .filter(|(_, e)| e.kind.is_structural())
            .map(|(key, _)| *key)
            .collect();
        keys.dedup();
        keys
    };
    for (n, key) in structural.iter().enumerate() {
        assert_eq!(bench.sent.last().map(|m| m.seq), Some(SeqNo(n as u64 + 2)));
        bench.tick(1);
        let wrong = PassBarrier {
            dispatcher: ID,
            epoch: Epoch(1),
            key: key.before(),
        };
        bench.act(|service, now, store, out| service.pass_barrier(now, &wrong, store, out));
        let seen: Vec<_> = bench
            .sent
            .iter()
            .filter(|m| matches!(m.body, StreamBody::Ddl { .. }))
            .collect();
        assert_eq!(seen.len(), n + 1);
        assert!(matches!(seen[n].body, StreamBody::Ddl { key: at, .. } if at == *key));
        let pass = PassBarrier { key: *key, ..wrong };
        bench.act(|service, now, store, out| service.pass_barrier(now, &pass, store, out));
    }
    assert_eq!(bench.names().last().map(|(name, _)| *name), Some("resolved"));
    bench.act(|service, now, _, _| {
        service.remove(
            now,
            &Remove {
                dispatcher: ID,
                epoch: Epoch(1),
            },
        );
    });
    assert_eq!(bench.service.streams(), 0);
}

/// Found out without a scan: an idle table has none.
#[test]
fn a_start_outside_of_what_the_store_holds_fails_its_table() {
    let mut bench = Bench::small(3);
    let end = bench.store.history().end;
    let later = OrderKey::end_of(weir_types::CommitTs(end.0 + 1));
    bench.reset(1, Span::Table(TableName::new("quiet", "t")), later);
    bench.grant(1, LIFE, 1, 500, 0);
    let failed = bench.sent.iter().find_map(|m| match &m.body {
        StreamBody::Failed(report) => Some((report.code, report.class)),
        _ => None,
    });
    assert_eq!(failed, Some(("WEIR-STO-013", weir_types::ErrorClass::Table)));
    assert_eq!(bench.scans, 0);
}
