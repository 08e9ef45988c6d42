//! The scheduler's state machine, and its threads with a writer that misbehaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use proptest::prelude::*;
use weir_protocol::collector::EventBatch;
use weir_protocol::sink::{SinkWork, SinkWrite};
use weir_types::{DdlEvent, DispatcherId, ErrorClass, OrderKey};

use super::core::{Finish, PULL_BYTES_MAX, PULL_WORK_MAX, SchedulerCore};
use super::*;
use crate::contract::{DdlDone, Reached, SpanTable, WorkerContext};
use crate::testing::{Answer, channel, key};

fn batch(number: u64, bytes: usize) -> SinkWork {
    SinkWork::Rows(Arc::new(EventBatch {
        slices: Vec::new(),
        events: 1,
        bytes,
        first: key(number),
        last: key(number),
        lane: number % 2 == 1,
    }))
}

fn number(work: &SinkWork) -> u64 {
    match work {
        SinkWork::Rows(batch) => batch.first.commit_ts.0,
        _ => 0,
    }
}

const A: DispatcherId = DispatcherId(1);
const B: DispatcherId = DispatcherId(2);

#[test]
fn one_span_has_one_worker_and_takes_turns() {
    let mut core = SchedulerCore::default();
    core.open(A, 'a').unwrap();
    core.open(B, 'b').unwrap();
    for i in 0..(PULL_WORK_MAX as u64 + 1) {
        core.push(A, batch(i, 1)).unwrap();
    }
    core.push(B, batch(7, 1)).unwrap();
    let first = core.pull(0).expect("a is ready");
    assert_eq!((first.dispatcher, first.work.len()), (A, PULL_WORK_MAX));
    core.push(A, batch(100, 1)).unwrap();
    let second = core.pull(0).expect("b is ready");
    assert_eq!(second.dispatcher, B);
    assert!(core.pull(0).is_none(), "both are being worked on");
    let due = None;
    core.finish(A, Finish::Idle { writer: 'a', due });
    let third = core.pull(0).expect("the rest of a");
    let numbers: Vec<u64> = third.work.iter().map(number).collect();
    assert_eq!(numbers, [PULL_WORK_MAX as u64, 100]);
}

#[test]
fn a_pull_is_bounded_in_bytes_but_takes_any_single_batch() {
    let mut core = SchedulerCore::default();
    core.open(A, ()).unwrap();
    for (i, bytes) in [PULL_BYTES_MAX * 2, 1, PULL_BYTES_MAX - 1, 1]
        .into_iter()
        .enumerate()
    {
        core.push(A, batch(i as u64, bytes)).unwrap();
    }
    let mut lengths = Vec::new();
    while let Some(pull) = core.pull(0) {
        lengths.push(pull.work.len());
        core.finish(
            A,
            Finish::Idle {
                writer: (),
                due: None,
            },
        );
    }
    assert_eq!(lengths, [1, 2, 1]);
}

#[test]
fn timers_make_spans_ready_once() {
    let mut core = SchedulerCore::default();
    core.open(A, ()).unwrap();
    core.push(A, batch(1, 1)).unwrap();
    assert!(!core.pull(0).expect("ready").tick);
    core.finish(
        A,
        Finish::Idle {
            writer: (),
            due: Some(50),
        },
    );
    assert_eq!(core.next_due(), Some(50));
    core.advance(49);
    assert!(core.pull(49).is_none());
    core.advance(50);
    let pull = core.pull(50).expect("its time has come");
    assert!(pull.tick && pull.work.is_empty());
    core.finish(
        A,
        Finish::Idle {
            writer: (),
            due: Some(90),
        },
    );
    core.push(A, batch(2, 1)).unwrap();
    assert!(!core.pull(60).expect("work before the time").tick);
    assert_eq!(core.next_due(), None, "the writer names the time anew");
}

#[test]
fn failed_and_closed_spans_give_work_back() {
    let mut core = SchedulerCore::default();
    core.open(A, ()).unwrap();
    assert!(core.open(A, ()).is_err());
    core.push(A, batch(1, 1)).unwrap();
    core.pull(0).expect("ready");
    core.push(A, batch(2, 1)).unwrap();
    let rest = core.finish(A, Finish::<()>::Failed);
    assert_eq!(rest.iter().map(number).collect::<Vec<_>>(), [2]);
    assert!(core.push(A, batch(3, 1)).is_err() && core.knows(A));
    core.push(A, SinkWork::Close).unwrap();
    assert!(!core.knows(A) && core.push(A, batch(4, 1)).is_err());
    core.open(A, ()).expect("free again");
}

proptest! {
    /// Whatever the order of pushes, pulls and ends: each span's work comes out whole
    /// and in order, and one span is never out twice.
    #[test]
    fn work_of_a_span_stays_in_order(steps in proptest::collection::vec((0_u8..3, 0_u32..4), 1..200)) {
        let mut core = SchedulerCore::default();
        for id in 0..4 {
            core.open(DispatcherId(id), ()).unwrap();
        }
        let (mut pushed, mut done) = (HashMap::<u32, u64>::new(), HashMap::<u32, u64>::new());
        let mut out: Vec<DispatcherId> = Vec::new();
        let mut pull = |core: &mut SchedulerCore<()>, out: &mut Vec<DispatcherId>| {
            let Some(pull) = core.pull(0) else { return false };
            assert!(!out.contains(&pull.dispatcher));
            for work in &pull.work {
                let next = done.entry(pull.dispatcher.0).or_default();
                *next += 1;
                assert_eq!(number(work), *next);
            }
            out.push(pull.dispatcher);
            true
        };
        for (step, id) in steps {
            match step {
                0 => {
                    let next = pushed.entry(id).or_default();
                    *next += 1;
                    core.push(DispatcherId(id), batch(*next, 1 << 20)).unwrap();
                }
                1 => {
                    pull(&mut core, &mut out);
                }
                _ => if !out.is_empty() {
                    let id = out.remove(id as usize % out.len());
                    core.finish(id, Finish::Idle { writer: (), due: None });
                },
            }
        }
        loop {
            out.drain(..).for_each(|id| {
                core.finish(id, Finish::Idle { writer: (), due: None });
            });
            if !pull(&mut core, &mut out) {
                break;
            }
        }
        prop_assert_eq!(pushed, done);
    }
}

/// Panics at key 13, fails at key 14, sleeps a while at the key 15.
struct Moody {
    last: OrderKey,
}

struct MoodyBackend;

impl Backend for MoodyBackend {
    fn open(&self, _: DispatcherId, _: &[SpanTable]) -> Result<Box<dyn SpanWriter>> {
        Ok(Box::new(Moody { last: OrderKey::MIN }))
    }

    fn commit(&self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }
}

impl SpanWriter for Moody {
    fn write(&mut self, batch: &EventBatch, _: &mut WorkerContext) -> Result<()> {
        match batch.last.commit_ts.0 {
            13 => panic!("the writer panics, as the test wants"),
            14 => {
                return Err(SinkError::OutOfOrder {
                    key: batch.last,
                    last: self.last,
                });
            }
            15 => std::thread::sleep(Duration::from_millis(300)),
            _ => {}
        }
        self.last = batch.last;
        Ok(())
    }

    fn settle(&mut self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }

    fn ddl(&mut self, _: OrderKey, _: &DdlEvent, _: &mut WorkerContext) -> Result<DdlDone> {
        Ok(DdlDone::default())
    }

    fn tick(&mut self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }

    fn reached(&mut self) -> Reached {
        Reached {
            durable: self.last,
            needs_commit: true,
        }
    }

    fn due(&self) -> Option<u64> {
        None
    }
}

fn moody() -> (Scheduler, Receiver<Answer>) {
    let (answers, receiver) = channel();
    let scheduler =
        Scheduler::start(Box::new(MoodyBackend), Box::new(Arc::clone(&answers)), "test", 2).unwrap();
    for dispatcher in [A, B] {
        scheduler.open(OpenSpan {
            dispatcher,
            tables: Vec::new(),
            replies: Arc::clone(&answers) as Arc<dyn SpanReplies>,
        });
    }
    (scheduler, receiver)
}

fn collect(scheduler: Scheduler, receiver: &Receiver<Answer>) -> Vec<Answer> {
    scheduler.stop();
    receiver.try_iter().collect()
}

fn released(answers: &[Answer], dispatcher: DispatcherId) -> usize {
    let of =
        |answer: &&Answer| matches!(answer, Answer::Released(released) if released.dispatcher == dispatcher);
    answers.iter().filter(of).count()
}

#[test]
fn a_panic_or_an_error_fails_its_span_only() {
    for (poison, class) in [(13, ErrorClass::Bug), (14, ErrorClass::Bug)] {
        let (scheduler, receiver) = moody();
        for i in [12, poison, 20, 21] {
            for (dispatcher, number) in [(A, i), (B, i + 100)] {
                let work = batch(number, 10);
                scheduler.write(SinkWrite { dispatcher, work });
            }
        }
        scheduler.write(SinkWrite {
            dispatcher: B,
            work: SinkWork::Flush,
        });
        let mut seen = Vec::new();
        while !seen
            .iter()
            .any(|answer| matches!(answer, Answer::Durable(d) if d.dispatcher == B && d.upto == key(121)))
            || !seen.iter().any(|answer| matches!(answer, Answer::Failed(_)))
        {
            seen.push(receiver.recv_timeout(Duration::from_secs(10)).expect("an answer"));
        }
        seen.extend(collect(scheduler, &receiver));
        assert_eq!((released(&seen, A), released(&seen, B)), (4, 4));
        let failed: Vec<_> = seen
            .iter()
            .filter_map(|answer| match answer {
                Answer::Failed(failed) => Some((failed.dispatcher, failed.error.class)),
                _ => None,
            })
            .collect();
        assert_eq!(failed, [(A, class)]);
        assert!(
            !seen
                .iter()
                .any(|answer| matches!(answer, Answer::Durable(d) if d.dispatcher == A && d.upto >= key(13)))
        );
    }
}

#[test]
fn a_slow_span_does_not_hold_up_another() {
    let (scheduler, receiver) = moody();
    scheduler.write(SinkWrite {
        dispatcher: A,
        work: batch(15, 10),
    });
    let wait = || receiver.recv_timeout(Duration::from_secs(10)).expect("an answer");
    scheduler.write(SinkWrite {
        dispatcher: B,
        work: batch(16, 10),
    });
    assert!(matches!(wait(), Answer::Released(released) if released.dispatcher == B));
    let rest = collect(scheduler, &receiver);
    assert_eq!(released(&rest, A), 1);
}

#[test]
fn work_that_is_not_done_is_released_at_the_end() {
    let (scheduler, receiver) = moody();
    for i in 15..40 {
        scheduler.write(SinkWrite {
            dispatcher: A,
            work: batch(i, PULL_BYTES_MAX),
        });
    }
    scheduler.write(SinkWrite {
        dispatcher: DispatcherId(99),
        work: batch(1, 5),
    });
    let answers = collect(scheduler, &receiver);
    assert_eq!(
        (released(&answers, A), released(&answers, DispatcherId(99))),
        (25, 1)
    );
}
