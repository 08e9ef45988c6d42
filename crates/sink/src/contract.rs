//! What a kind of sink implements, and how it is told of spans and answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use actix::{Message, Recipient};
use weir_actor::post;
use weir_protocol::collector::EventBatch;
use weir_protocol::sink::{DdlWritten, Durable, Released, SinkFailed, SinkWork};
use weir_types::{DdlEvent, DispatcherId, OrderKey, TableName};

use crate::error::Result;
use crate::metrics::{Blocked, SinkMetrics};
use weir_codec::RowCounts;

/// A table of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanTable {
    /// Name at the source, as the rows' blocks have it.
    pub source: TableName,
    /// Name at the target.
    pub target: TableName,
    /// Its rows up to and including this key are durable already: a span of several
    /// tables starts where the last of them is, and the others' rows are left out.
    pub after: OrderKey,
}

/// Server → Sink: a dispatcher is about to write. Must arrive before its first
/// `SinkWrite`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OpenSpan {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Its tables; none for the schema dispatcher, which writes DDL only; several where
    /// they are tied by foreign keys at the target.
    pub tables: Vec<SpanTable>,
    /// Where the answers of this span go.
    pub replies: Arc<dyn SpanReplies>,
}

/// Takes the answers of one span. Called from worker threads; must not block.
pub trait SpanReplies: Send + Sync {
    /// Rows are durable.
    fn durable(&self, message: Durable);
    /// A DDL is durable.
    fn ddl_written(&self, message: DdlWritten);
    /// The span has failed.
    fn failed(&self, message: SinkFailed);
}

/// Answers as actor messages.
pub struct SpanRecipients {
    /// Takes `Durable`.
    pub durable: Recipient<Durable>,
    /// Takes `DdlWritten`.
    pub ddl_written: Recipient<DdlWritten>,
    /// Takes `SinkFailed`.
    pub failed: Recipient<SinkFailed>,
}

impl SpanReplies for SpanRecipients {
    fn durable(&self, message: Durable) {
        post(&self.durable, message);
    }

    fn ddl_written(&self, message: DdlWritten) {
        post(&self.ddl_written, message);
    }

    fn failed(&self, message: SinkFailed) {
        post(&self.failed, message);
    }
}

/// Takes `Released`, once per batch. Called from worker threads; must not block.
pub trait ReleaseTo: Send + Sync {
    /// A batch has left the sink's memory.
    fn released(&self, message: Released);
}

impl ReleaseTo for Recipient<Released> {
    fn released(&self, message: Released) {
        post(self, message);
    }
}

/// How much of a span's work a worker takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// Most bytes of batches, unless a single batch is larger.
    pub bytes: usize,
    /// Most pieces of work.
    pub work: usize,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            work: 64,
        }
    }
}

/// A kind of sink: opens writers. Shared by the workers.
pub trait Backend: Send + Sync + 'static {
    /// Makes the writer of a span.
    ///
    /// # Errors
    /// The span cannot be written here.
    fn open(&self, dispatcher: DispatcherId, tables: &[SpanTable]) -> Result<Box<dyn SpanWriter>>;

    /// The last step of what writers said needs a commit; covers all of it.
    ///
    /// # Errors
    /// None of it may count as durable.
    fn commit(&self, worker: &mut WorkerContext) -> Result<()>;

    /// How much of a span's work a worker takes at once.
    fn pull_limits(&self) -> PullLimits {
        PullLimits::default()
    }

    /// Gives the way to wake spans; once, before the first is opened.
    fn attach(&self, _: SpanWaker) {}

    /// The sink stops: work that is under way may be finished, but not take long.
    fn stopping(&self) {}
}

/// Wakes spans of a sink whose target answers later, from any thread.
#[derive(Clone)]
pub struct SpanWaker(pub(crate) Weak<dyn WakeSpan>);

impl SpanWaker {
    /// The span is asked again whether it can take its next work, and gets a tick. Does
    /// nothing after the sink has ended.
    pub fn wake(&self, dispatcher: DispatcherId) {
        if let Some(sink) = self.0.upgrade() {
            sink.wake(dispatcher);
        }
    }
}

pub(crate) trait WakeSpan: Send + Sync {
    fn wake(&self, dispatcher: DispatcherId);
}

/// What a writer has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Everything of the span up to here is durable once committed; `OrderKey::MIN` for
    /// nothing.
    pub durable: OrderKey,
    /// `Backend::commit` must succeed first.
    pub needs_commit: bool,
}

/// How a DDL ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DdlDone {
    /// Which tables belong together at the target is not what the span was opened with
    /// (`DdlWritten::reform`).
    pub reform: bool,
}

/// Writes one span, on one worker at a time, in order.
pub trait SpanWriter: Send {
    /// Whether a piece of work can be taken without waiting; asked before each. If not,
    /// the span keeps it, no thread waits, and it is asked again once the writer's span
    /// is woken.
    ///
    /// # Errors
    /// As `write`.
    fn ready(&mut self, _: &SinkWork, _: &mut WorkerContext) -> Result<bool> {
        Ok(true)
    }

    /// Writes rows.
    ///
    /// # Errors
    /// The span has failed; nothing more is asked of the writer.
    fn write(&mut self, batch: &EventBatch, worker: &mut WorkerContext) -> Result<()>;

    /// Gives everything written so far out of Weir's memory: batches are released after
    /// it. Called at the end of each run of work.
    ///
    /// # Errors
    /// As `write`.
    fn settle(&mut self, worker: &mut WorkerContext) -> Result<()>;

    /// Makes everything written so far durable, a commit aside.
    ///
    /// # Errors
    /// As `write`.
    fn flush(&mut self, worker: &mut WorkerContext) -> Result<()>;

    /// Writes a DDL and makes it durable, a commit aside. Does nothing if it was written
    /// before.
    ///
    /// # Errors
    /// As `write`.
    fn ddl(&mut self, key: OrderKey, event: &DdlEvent, worker: &mut WorkerContext) -> Result<DdlDone>;

    /// The time that `due` named has come, or the span was woken.
    ///
    /// # Errors
    /// As `write`.
    fn tick(&mut self, worker: &mut WorkerContext) -> Result<()>;

    /// What has been reached since the last call; resets `needs_commit`.
    fn reached(&mut self) -> Reached;

    /// When `tick` is wanted, in milliseconds since the sink started.
    fn due(&self) -> Option<u64>;
}

/// What a worker lends to writers.
pub struct WorkerContext {
    /// Working room shared by the spans of this worker; empty between runs of work.
    pub scratch: Vec<u8>,
    /// Milliseconds since the sink started, at the begin of the run of work.
    pub now: u64,
    pub(crate) metrics: SinkMetrics,
    stop: Arc<StopSignal>,
}

impl WorkerContext {
    pub(crate) const fn new(metrics: SinkMetrics, stop: Arc<StopSignal>) -> Self {
        Self {
            scratch: Vec::new(),
            now: 0,
            metrics,
            stop,
        }
    }

    /// Counts rows, and the bytes that they took, in metrics.
    pub fn count_rows(&self, rows: RowCounts, bytes: u64) {
        self.metrics.rows(rows, bytes);
    }

    /// Counts a DDL in metrics.
    pub fn count_ddl(&self) {
        self.metrics.ddl();
    }

    /// Counts a wait of the worker that the target caused.
    pub fn count_blocked(&self, reason: Blocked, waited: Duration) {
        self.metrics.blocked(reason, waited);
    }

    /// Whether the sink stops: nothing is retried any more.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_stopped()
    }

    /// Waits, unless the sink stops; false if it does.
    pub fn pause(&self, length: Duration, reason: Blocked) -> bool {
        let started = Instant::now();
        let go_on = self.stop.pause(length);
        self.metrics.blocked(reason, started.elapsed());
        go_on
    }
}

/// Tells waiting workers that the sink stops.
#[derive(Default)]
pub(crate) struct StopSignal {
    stopped: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl StopSignal {
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Taking the lock keeps a worker from missing the call between its look at the
        // flag and its wait.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits `length`; false if the sink stops before.
    fn pause(&self, length: Duration) -> bool {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .wake
            .wait_timeout_while(guard, length, |()| !self.is_stopped());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        !self.is_stopped()
    }
}
