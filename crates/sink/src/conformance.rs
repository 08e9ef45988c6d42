//! What every sink must do, held against each of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use weir_protocol::sink::{SinkWork, SinkWrite};
use weir_types::{DdlKind, DispatcherId, OrderKey, TableName};

use crate::contract::{Backend, OpenSpan, SpanReplies, SpanTable};
use crate::testing::{Answer, channel, ddl, key, rows, version};
use crate::{BlackholeConfig, FileConfig, PreparedSink, Scheduler, SinkConfig, SinkCounters};

const WAIT: Duration = Duration::from_secs(20);

/// A sink with spans 1..=n over tables `t1`…, and its answers.
pub(crate) struct Running {
    pub(crate) scheduler: Scheduler,
    pub(crate) answers: Receiver<Answer>,
    replies: Arc<dyn SpanReplies>,
}

pub(crate) fn table(number: u32) -> String {
    format!("t{number}")
}

impl Running {
    pub(crate) fn start(sink: PreparedSink, spans: u32) -> Self {
        let (answers, receiver) = channel();
        let scheduler = sink.into_scheduler(Arc::clone(&answers)).expect("starts");
        let running = Self {
            scheduler,
            answers: receiver,
            replies: answers,
        };
        (1..=spans).for_each(|span| running.open(span));
        running
    }

    /// A sink of the test's own making, with two workers.
    pub(crate) fn on(backend: Box<dyn Backend>, spans: u32) -> Self {
        let (answers, receiver) = channel();
        let released = Box::new(Arc::clone(&answers));
        let running = Self {
            scheduler: Scheduler::start(backend, released, "test", 2).expect("starts"),
            answers: receiver,
            replies: answers,
        };
        (1..=spans).for_each(|span| running.open(span));
        running
    }

    pub(crate) fn open(&self, span: u32) {
        let name = TableName::new("s", table(span));
        self.scheduler.open(OpenSpan {
            dispatcher: DispatcherId(span),
            tables: vec![SpanTable {
                source: name.clone(),
                target: name,
                after: OrderKey::MIN,
            }],
            replies: Arc::clone(&self.replies),
        });
    }

    pub(crate) fn write(&self, span: u32, work: SinkWork) {
        let dispatcher = DispatcherId(span);
        self.scheduler.write(SinkWrite { dispatcher, work });
    }

    /// Answers up to and including the first for which `last` holds.
    pub(crate) fn until(&self, mut last: impl FnMut(&Answer) -> bool) -> Vec<Answer> {
        let started = Instant::now();
        let mut seen = Vec::new();
        loop {
            let left = WAIT.saturating_sub(started.elapsed());
            let answer = self
                .answers
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no such answer after {seen:?}"));
            let found = last(&answer);
            seen.push(answer);
            if found {
                return seen;
            }
        }
    }

    pub(crate) fn flush(&self, span: u32) -> OrderKey {
        self.write(span, SinkWork::Flush);
        let mut reached = OrderKey::MIN;
        // Earlier answers may still be on the way: the last batch decides.
        self.until(|answer| match answer {
            Answer::Durable(durable) if durable.dispatcher.0 == span => {
                reached = durable.upto;
                true
            }
            _ => false,
        });
        reached
    }
}

fn each_sink(test: impl Fn(&dyn Fn() -> PreparedSink)) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = file_config(dir.path());
    config.rotate_bytes = 2_000;
    test(&|| PreparedSink::new(SinkConfig::File(config.clone()), Arc::default()).expect("prepares"));
    let config = BlackholeConfig::new(changefeed());
    test(&|| PreparedSink::new(SinkConfig::Blackhole(config.clone()), Arc::default()).expect("prepares"));
}

pub(crate) fn changefeed() -> weir_types::ChangefeedId {
    weir_types::ChangefeedId("orders".into())
}

pub(crate) fn file_config(dir: &std::path::Path) -> FileConfig {
    let router = weir_filter::Router::identity(weir_filter::NameCase::Sensitive);
    let lineage = weir_types::LineageId(7);
    let mut config = FileConfig::new(dir.join("out"), changefeed(), lineage, Arc::new(router));
    config.rotate_age = Duration::from_secs(600);
    config
}

#[test]
fn every_batch_is_released_once_and_all_becomes_durable_in_order() {
    each_sink(|make| {
        const SPANS: u32 = 20;
        let sink = make();
        let counters = Arc::clone(sink.counters());
        let running = Running::start(sink, SPANS);
        let versions: Vec<_> = (1..=SPANS).map(|span| version(&table(span), 45)).collect();
        let mut bytes = HashMap::new();
        for round in 0..30_u64 {
            for span in 1..=SPANS {
                let keys = [round * 10 + 1, round * 10 + 2];
                let work = rows(&versions[span as usize - 1], &keys, b"value");
                *bytes.entry(DispatcherId(span)).or_insert(0) += crate::scheduler::core::work_bytes(&work);
                running.write(span, work);
            }
        }
        (1..=SPANS).for_each(|span| running.write(span, SinkWork::Flush));
        let mut durable: HashMap<DispatcherId, OrderKey> = HashMap::new();
        let all = running.until(|answer| {
            if let Answer::Durable(message) = answer {
                let before = durable.insert(message.dispatcher, message.upto);
                assert!(
                    before.is_none_or(|before| before <= message.upto),
                    "durable never goes back"
                );
            }
            durable.len() == SPANS as usize && durable.values().all(|&upto| upto == key(292))
        });
        let mut returned = HashMap::new();
        let mut batches = 0;
        for answer in all.iter().filter_map(|answer| match answer {
            Answer::Released(released) => Some(released),
            _ => None,
        }) {
            *returned.entry(answer.dispatcher).or_insert(0) += answer.bytes;
            batches += 1;
        }
        assert_eq!((returned, batches), (bytes, 600));
        assert_eq!(counters.totals().rows.inserts, 1_200);
    });
}

#[test]
fn a_flush_is_always_answered() {
    each_sink(|make| {
        let running = Running::start(make(), 2);
        assert_eq!(running.flush(1), OrderKey::MIN, "nothing was written");
        let version = version("t2", 45);
        running.write(2, rows(&version, &[3], b"x"));
        // The blackhole answers for the batch and for the flush.
        while running.flush(2) != key(3) {}
        assert_eq!(running.flush(2), key(3), "also if it was durable before");
    });
}

#[test]
fn a_ddl_is_done_once_and_answered_each_time() {
    each_sink(|make| {
        let sink = make();
        let counters = Arc::clone(sink.counters());
        let running = Running::start(sink, 1);
        let version = version("t1", 45);
        running.write(1, rows(&version, &[3], b"x"));
        running.write(1, SinkWork::Flush);
        running.write(1, ddl(4, DdlKind::AlterTable, "t1"));
        let before = running.until(|answer| matches!(answer, Answer::DdlWritten(ddl) if ddl.key == key(4)));
        assert!(
            before
                .iter()
                .any(|answer| matches!(answer, Answer::Durable(durable) if durable.upto == key(3))),
            "rows before the DDL are durable before it"
        );
        running.write(1, rows(&version, &[5], b"x"));
        running.write(1, ddl(4, DdlKind::AlterTable, "t1"));
        running.until(|answer| matches!(answer, Answer::DdlWritten(ddl) if ddl.key == key(4)));
        assert!(counters.totals().ddl >= 1);
    });
}

#[test]
fn a_closed_span_is_forgotten_and_not_answered() {
    each_sink(|make| {
        let running = Running::start(make(), 2);
        let version = version("t1", 45);
        running.write(1, SinkWork::Close);
        running.write(1, SinkWork::Flush);
        running.write(1, rows(&version, &[3], b"x"));
        let seen = running.until(|answer| matches!(answer, Answer::Released(_)));
        assert!(
            seen.iter().all(|answer| !matches!(answer, Answer::Durable(_))),
            "{seen:?}"
        );
        // The name is free again, once the worker has let go of the span.
        let started = Instant::now();
        loop {
            running.open(1);
            running.write(1, SinkWork::Flush);
            let answers = running.until(|answer| matches!(answer, Answer::Durable(_) | Answer::Failed(_)));
            if answers.iter().any(|answer| matches!(answer, Answer::Durable(_))) {
                break;
            }
            assert!(started.elapsed() < WAIT);
        }
    });
}

#[test]
fn rows_that_are_not_the_spans_or_run_backwards_fail_it() {
    each_sink(|make| {
        let running = Running::start(make(), 2);
        running.write(1, rows(&version("t2", 45), &[3], b"x"));
        running.write(2, rows(&version("t2", 45), &[3], b"x"));
        running.write(2, rows(&version("t2", 45), &[3], b"x"));
        let mut failed = Vec::new();
        running.until(|answer| {
            if let Answer::Failed(message) = answer {
                assert_eq!(message.error.class, weir_types::ErrorClass::Bug);
                failed.push(message.dispatcher.0);
            }
            failed.len() == 2
        });
        failed.sort_unstable();
        assert_eq!(failed, [1, 2]);
    });
}

#[test]
fn a_dispatcher_is_registered_once() {
    each_sink(|make| {
        let running = Running::start(make(), 1);
        running.open(1);
        let seen = running.until(|answer| matches!(answer, Answer::Failed(_)));
        assert!(matches!(&seen[0], Answer::Failed(failed) if failed.error.code == "WEIR-SNK-010"));
        assert_eq!(running.flush(1), OrderKey::MIN, "the first one goes on");
    });
}

#[test]
fn counters_go_on_over_generations() {
    let counters: Arc<SinkCounters> = Arc::default();
    for _ in 0..2 {
        let config = SinkConfig::Blackhole(BlackholeConfig::new(changefeed()));
        let sink = PreparedSink::new(config, Arc::clone(&counters)).expect("prepares");
        let running = Running::start(sink, 1);
        running.write(1, rows(&version("t1", 45), &[3, 4], b"x"));
        while running.flush(1) != key(4) {}
        running.scheduler.stop();
    }
    assert_eq!(counters.totals().rows.inserts, 4);
}
