//! The scheduler's state machine, and its threads with a writer that misbehaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use proptest::prelude::*;
use weir_protocol::collector::EventBatch;
use weir_protocol::sink::{SinkWork, SinkWrite};
use weir_types::{DdlEvent, DispatcherId, ErrorClass, OrderKey};

use super::core::{Finish, SchedulerCore};
use super::*;
use crate::contract::PullLimits;
use crate::contract::{DdlDone, Reached, SpanTable, SpanWaker, WorkerContext};
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

const LIMITS: PullLimits = PullLimits {
    bytes: 4 << 20,
    work: 64,
};
const A: DispatcherId = DispatcherId(1);
const B: DispatcherId = DispatcherId(2);

#[test]
fn one_span_has_one_worker_and_takes_turns() {
    let mut core = SchedulerCore::new(LIMITS);
    core.open(A, 'a').unwrap();
    core.open(B, 'b').unwrap();
    for i in 0..(LIMITS.work as u64 + 1) {
        core.push(A, batch(i, 1)).unwrap();
    }
    core.push(B, batch(7, 1)).unwrap();
    let first = core.pull(0).expect("a is ready");
    assert_eq!((first.dispatcher, first.work.len()), (A, LIMITS.work));
    core.push(A, batch(100, 1)).unwrap();
    let second = core.pull(0).expect("b is ready");
    assert_eq!(second.dispatcher, B);
    assert!(core.pull(0).is_none(), "both are being worked on");
    let due = None;
    core.finish(A, Finish::Idle { writer: 'a', due });
    let third = core.pull(0).expect("the rest of a");
    let numbers: Vec<u64> = third.work.iter().map(number).collect();
    assert_eq!(numbers, [LIMITS.work as u64, 100]);
}

#[test]
fn a_pull_is_bounded_in_bytes_but_takes_any_single_batch() {
    let mut core = SchedulerCore::new(LIMITS);
    core.open(A, ()).unwrap();
    for (i, bytes) in [LIMITS.bytes * 2, 1, LIMITS.bytes - 1, 1].into_iter().enumerate() {
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
    let mut core = SchedulerCore::new(LIMITS);
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
    let mut core = SchedulerCore::new(LIMITS);
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

#[test]
fn a_held_span_waits_to_be_woken() {
    let mut core = SchedulerCore::new(LIMITS);
    core.open(A, ()).unwrap();
    core.push(A, batch(1, 1)).unwrap();
    let held = |rest| Finish::Held {
        writer: (),
        due: None,
        rest,
    };
    let pull = core.pull(0).expect("ready");
    core.finish(A, held(pull.work));
    core.push(A, batch(2, 1)).unwrap();
    assert!(core.pull(0).is_none(), "more work does not help");
    core.wake(A);
    let pull = core.pull(0).expect("woken");
    assert!(pull.tick);
    assert_eq!(pull.work.iter().map(number).collect::<Vec<_>>(), [1, 2]);
    // Woken while it is worked on: what it was woken for may have come too late for it.
    core.wake(A);
    core.finish(A, held(pull.work));
    let pull = core.pull(0).expect("woken before it was given back");
    core.finish(A, held(pull.work));
    assert!(core.pull(0).is_none(), "a call wakes once");
    core.wake(B);
}

proptest! {
    /// Whatever the order of pushes, pulls and ends: each span's work comes out whole
    /// and in order, and one span is never out twice.
    #[test]
    fn work_of_a_span_stays_in_order(steps in proptest::collection::vec((0_u8..5, 0_u32..4), 1..200)) {
        let mut core = SchedulerCore::new(LIMITS);
        for id in 0..4 {
            core.open(DispatcherId(id), ()).unwrap();
        }
        let (mut pushed, mut done) = (HashMap::<u32, u64>::new(), HashMap::<u32, u64>::new());
        let mut out: Vec<(DispatcherId, Vec<SinkWork>)> = Vec::new();
        let pull = |core: &mut SchedulerCore<()>, out: &mut Vec<(DispatcherId, Vec<SinkWork>)>| {
            let Some(pull) = core.pull(0) else { return false };
            assert!(out.iter().all(|(id, _)| *id != pull.dispatcher));
            out.push((pull.dispatcher, pull.work));
            true
        };
        let mut finish = |core: &mut SchedulerCore<()>, (id, mut work): (DispatcherId, Vec<SinkWork>), taken: usize| {
            let rest = work.split_off(taken.min(work.len()));
            for work in &work {
                let next = done.entry(id.0).or_default();
                *next += 1;
                assert_eq!(number(work), *next);
            }
            let finish = if rest.is_empty() {
                Finish::Idle { writer: (), due: None }
            } else {
                Finish::Held { writer: (), due: None, rest }
            };
            core.finish(id, finish);
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
                2 => core.wake(DispatcherId(id)),
                // 3: the writer takes all; 4: some, and is held.
                _ => if !out.is_empty() {
                    let pulled = out.remove(id as usize % out.len());
                    finish(&mut core, pulled, if step == 3 { usize::MAX } else { id as usize });
                },
            }
        }
        // Whoever is held is woken in the end; nobody else needs it.
        loop {
            for pulled in std::mem::take(&mut out) {
                finish(&mut core, pulled, usize::MAX);
            }
            (0..4).for_each(|id| if core.is_held(DispatcherId(id)) {
                core.wake(DispatcherId(id));
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

/// Takes nothing before it is allowed to.
struct Patient {
    allowed: Arc<std::sync::atomic::AtomicBool>,
    ticks: u64,
}

struct PatientBackend {
    allowed: Arc<std::sync::atomic::AtomicBool>,
    waker: Arc<std::sync::Mutex<Option<SpanWaker>>>,
}

impl Backend for PatientBackend {
    fn open(&self, _: DispatcherId, _: &[SpanTable]) -> Result<Box<dyn SpanWriter>> {
        Ok(Box::new(Patient {
            allowed: Arc::clone(&self.allowed),
            ticks: 0,
        }))
    }

    fn commit(&self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }

    fn attach(&self, waker: SpanWaker) {
        *self.waker.lock().unwrap() = Some(waker);
    }
}

impl SpanWriter for Patient {
    fn ready(&mut self, _: &SinkWork, _: &mut WorkerContext) -> Result<bool> {
        Ok(self.allowed.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn write(&mut self, _: &EventBatch, _: &mut WorkerContext) -> Result<()> {
        assert!(self.allowed.load(std::sync::atomic::Ordering::SeqCst));
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
        self.ticks += 1;
        Ok(())
    }

    fn reached(&mut self) -> Reached {
        Reached {
            durable: key(self.ticks),
            needs_commit: false,
        }
    }

    fn due(&self) -> Option<u64> {
        None
    }
}

/// What a writer cannot take stays with its span, in order, and no thread waits for it; what it reaches later is
/// reported when it is woken.
#[test]
fn a_writer_that_cannot_go_on_is_asked_again_when_it_is_woken() {
    let (answers, receiver) = channel();
    let (allowed, waker) = (Arc::default(), Arc::default());
    let backend = PatientBackend {
        allowed: Arc::clone(&allowed),
        waker: Arc::clone(&waker),
    };
    let scheduler = Scheduler::start(Box::new(backend), Box::new(Arc::clone(&answers)), "test", 1).unwrap();
    scheduler.open(OpenSpan {
        dispatcher: A,
        tables: Vec::new(),
        replies: Arc::clone(&answers) as Arc<dyn SpanReplies>,
    });
    for work in [batch(1, 10), SinkWork::Flush, batch(2, 10)] {
        scheduler.write(SinkWrite { dispatcher: A, work });
    }
    assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err());
    allowed.store(true, std::sync::atomic::Ordering::SeqCst);
    let waker = waker.lock().unwrap().clone().expect("a waker");
    waker.wake(A);
    let mut answers = Vec::new();
    while released(&answers, A) < 2 || !answers.iter().any(|answer| matches!(answer, Answer::Durable(_))) {
        answers.push(receiver.recv_timeout(Duration::from_secs(10)).expect("an answer"));
    }
    waker.wake(A);
    let next = receiver.recv_timeout(Duration::from_secs(10)).expect("an answer");
    assert!(
        matches!(next, Answer::Durable(durable) if durable.upto == key(2)),
        "{next:?}"
    );
    scheduler.stop();
    waker.wake(A);
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
            work: batch(i, LIMITS.bytes),
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
