//! One worker thread: pulls ready spans, works, answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use weir_protocol::sink::{DdlWritten, Durable, SinkFailed, SinkWork};
use weir_types::{DispatcherId, ErrorReport, OrderKey};

use super::core::{Finish, Pull};
use super::{OpenedSpan, Shared};
use crate::contract::{DdlDone, WorkerContext};
use crate::error::{Result, SinkError};

/// Most spans whose answers wait for one commit.
const HELD_MAX: usize = 64;
/// Longest that an answer waits for others to share its commit.
const HELD_MILLIS_MAX: u64 = 50;
/// Largest working room that is kept between runs of work, in bytes.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;

/// What a run of work has to answer, besides `Released`.
#[derive(Default)]
struct Answers {
    durable: Option<OrderKey>,
    ddl: Vec<(OrderKey, DdlDone)>,
    needs_commit: bool,
    closed: bool,
    /// Pieces of work that were done; the writer cannot take the others yet.
    done: usize,
}

/// A span whose answers wait for a commit. Nobody works on it meanwhile.
struct Held {
    dispatcher: DispatcherId,
    span: OpenedSpan,
    answers: Answers,
    /// Work that the writer cannot take yet.
    rest: Vec<SinkWork>,
}

enum Next {
    Work(Pull<OpenedSpan>),
    /// Nothing to do now, but answers are held.
    Idle,
    Stop,
}

/// Runs until the sink stops.
pub(super) fn run(shared: &Shared) {
    let mut context = WorkerContext::new(shared.metrics.clone(), Arc::clone(&shared.stop));
    let mut held: Vec<Held> = Vec::new();
    let mut held_since = 0;
    loop {
        let next = next(shared, !held.is_empty());
        context.now = shared.now();
        let full = match next {
            Next::Work(pull) => {
                if held.is_empty() {
                    held_since = context.now;
                }
                held.extend(work(shared, pull, &mut context));
                held.len() >= HELD_MAX || shared.now() >= held_since + HELD_MILLIS_MAX
            }
            Next::Idle => true,
            Next::Stop => break,
        };
        if full && !held.is_empty() {
            commit(shared, &mut held, &mut context);
        }
    }
    if !held.is_empty() {
        commit(shared, &mut held, &mut context);
    }
}

fn next(shared: &Shared, holding: bool) -> Next {
    let mut core = shared.core();
    loop {
        if shared.stop.is_stopped() {
            return Next::Stop;
        }
        let now = shared.now();
        core.advance(now);
        if let Some(pull) = core.pull(now) {
            if core.has_ready() {
                shared.wake.notify_one();
            }
            return Next::Work(pull);
        }
        if holding {
            return Next::Idle;
        }
        core = match core.next_due() {
            Some(due) => {
                let wait = Duration::from_millis(due.saturating_sub(now).max(1));
                let waited = shared.wake.wait_timeout(core, wait);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.wake.wait(core).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// Does a run of work. Returns the span if its answers wait for a commit.
fn work(shared: &Shared, pull: Pull<OpenedSpan>, context: &mut WorkerContext) -> Option<Held> {
    let Pull {
        dispatcher,
        writer: mut span,
        mut work,
        tick,
    } = pull;
    let result = catch_unwind(AssertUnwindSafe(|| run_work(&mut span, &work, tick, context)));
    let result = result.unwrap_or(Err(SinkError::Panicked));
    let rest = match &result {
        Ok(answers) if !answers.closed => work.split_off(answers.done.min(work.len())),
        _ => Vec::new(),
    };
    let newest = work.iter().rev().find_map(|work| match work {
        SinkWork::Rows(batch) => Some(batch.last),
        _ => None,
    });
    for done in work {
        shared.release(dispatcher, done);
    }
    context.scratch.clear();
    context.scratch.shrink_to(SCRATCH_KEPT_BYTES);
    match result {
        Ok(answers) => {
            if let Some(newest) = newest {
                shared.metrics.lag(lag_seconds(newest));
            }
            let held = Held {
                dispatcher,
                span,
                answers,
                rest,
            };
            if held.answers.needs_commit {
                return Some(held);
            }
            answer(shared, held);
        }
        Err(error) => fail(shared, dispatcher, &span, &error),
    }
    None
}

fn lag_seconds(key: OrderKey) -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    now.saturating_sub(key.commit_ts.millis()) as f64 / 1000.0
}

fn run_work(
    span: &mut OpenedSpan,
    work: &[SinkWork],
    tick: bool,
    context: &mut WorkerContext,
) -> Result<Answers> {
    let mut answers = Answers::default();
    let mut flushed = false;
    let writer = &mut span.writer;
    let before = writer.reached().durable;
    // What was reached while it was not worked on lets work go on.
    if tick {
        writer.tick(context)?;
    }
    for piece in work {
        if !writer.ready(piece, context)? {
            break;
        }
        answers.done += 1;
        match piece {
            SinkWork::Rows(batch) => writer.write(batch, context)?,
            SinkWork::Flush => {
                writer.flush(context)?;
                flushed = true;
            }
            SinkWork::Ddl { key, event } => {
                let done = writer.ddl(*key, event, context)?;
                answers.ddl.push((*key, done));
            }
            SinkWork::Close => {
                writer.flush(context)?;
                answers.closed = true;
                break;
            }
        }
    }
    writer.settle(context)?;
    let reached = writer.reached();
    answers.needs_commit = reached.needs_commit;
    answers.durable = (flushed || reached.durable > before).then_some(reached.durable);
    Ok(answers)
}

/// Sends the answers of a span and gives it back.
fn answer(shared: &Shared, held: Held) {
    let Held {
        dispatcher,
        span,
        answers,
        rest,
    } = held;
    if !answers.closed {
        if let Some(upto) = answers.durable {
            span.replies.durable(Durable { dispatcher, upto });
        }
        for (key, DdlDone { reform }) in answers.ddl {
            span.replies.ddl_written(DdlWritten {
                dispatcher,
                key,
                reform,
            });
        }
    }
    let finish = if answers.closed {
        // The writer ends before the span may be opened anew.
        drop(span);
        Finish::Closed
    } else {
        let due = span.writer.due();
        if rest.is_empty() {
            Finish::Idle { writer: span, due }
        } else {
            Finish::Held {
                writer: span,
                due,
                rest,
            }
        }
    };
    give_back(shared, dispatcher, finish);
}

fn give_back(shared: &Shared, dispatcher: DispatcherId, finish: Finish<OpenedSpan>) {
    let mut core = shared.core();
    let rest = core.finish(dispatcher, finish);
    // A worker that waits has to learn of the new work or of the new, earlier time.
    let wake = core.has_ready() || core.next_due().is_some();
    drop(core);
    if wake {
        shared.wake.notify_one();
    }
    for work in rest {
        shared.release(dispatcher, work);
    }
}

fn fail(shared: &Shared, dispatcher: DispatcherId, span: &OpenedSpan, error: &SinkError) {
    give_back(shared, dispatcher, Finish::Failed);
    // Stopping is no failure of the span.
    if !matches!(error, SinkError::Stopping) {
        let error = ErrorReport::new(error);
        tracing::warn!(dispatcher = dispatcher.0, code = error.code, %error, "span failed in the sink");
        span.replies.failed(SinkFailed { dispatcher, error });
    }
}

fn commit(shared: &Shared, held: &mut Vec<Held>, context: &mut WorkerContext) {
    let started = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| shared.backend.commit(context)));
    match result.unwrap_or(Err(SinkError::Panicked)) {
        Ok(()) => {
            shared.metrics.flushed(started.elapsed().as_secs_f64());
            held.drain(..).for_each(|held| answer(shared, held));
        }
        Err(error) => {
            for held in held.drain(..) {
                fail(shared, held.dispatcher, &held.span, &error);
            }
        }
    }
}
