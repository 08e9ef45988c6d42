//! State machine of one dispatcher: order within its span, the barrier that it waits
//! at, progress. Pure: time is a parameter, what is to be sent comes back as effects.
//!
//! A barrier runs through four phases:
//!
//! ```text
//! Draining ──all rows durable──► Waiting ──Write──► Writing ──DdlWritten──► Written
//!                                   └───────────────Pass──────────────────────┴──► passed
//! ```
//!
//! `Write` and `Pass` may be repeated at any time; what was done already is answered
//! again or ignored.

use std::sync::Arc;

use weir_protocol::changefeed::{
    BarrierReached, BarrierWritten, DispatcherFailed, Flushed, Heartbeat, RegisterTable,
};
use weir_protocol::collector::EventBatch;
use weir_protocol::dispatcher::{BarrierStep, Delivery, ResumeStream};
use weir_protocol::service::Span;
use weir_protocol::sink::{Released, SinkWork};
use weir_types::{CommitTs, DdlEvent, DdlKind, DispatcherId, ErrorReport, OrderKey};

use crate::error::Error;
use crate::progress::TableProgress;

/// Least time between two heartbeats, milliseconds. Progress is coalesced, so that
/// thousands of tables cost the maintainer thousands of messages a second at most.
pub const HEARTBEAT_INTERVAL_MS: u64 = 200;
/// A report that was not answered is repeated after this time, milliseconds.
pub const REPORT_REPEAT_MS: u64 = 5_000;

/// What the dispatcher asks of others.
#[derive(Clone, Debug)]
pub enum Effect {
    /// To the sink.
    ToSink(SinkWork),
    /// To the maintainer: progress.
    Heartbeat(Heartbeat),
    /// To the maintainer: waiting at a DDL.
    Reached(BarrierReached),
    /// To the maintainer: the DDL is durable.
    Written(BarrierWritten),
    /// To the maintainer: a table exists from here on.
    Register(RegisterTable),
    /// To the maintainer: the answer to `FlushNow`.
    Flushed(Flushed),
    /// To the maintainer: cannot go on.
    Failed(DispatcherFailed),
    /// To the collector: the barrier has passed.
    Resume(ResumeStream),
    /// To the collector: rows were dropped; their credit returns.
    Released(Released),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Draining,
    Waiting,
    Writing,
    Written { reform: bool },
}

#[derive(Clone, Debug)]
struct Barrier {
    key: OrderKey,
    event: Arc<DdlEvent>,
    phase: Phase,
    reported_ms: u64,
}

/// One dispatcher.
#[derive(Debug)]
pub struct DispatcherCore {
    id: DispatcherId,
    span: Span,
    progress: TableProgress,
    barrier: Option<Barrier>,
    /// Key of the last DDL that passed.
    passed: OrderKey,
    failed: bool,
    /// What is outstanding stays so.
    sink_failed: bool,
    /// Rows up to here are to be durable before `Flushed` is sent.
    flush_upto: Option<OrderKey>,
    /// Nothing more is written in this run.
    ends: bool,
    sent: (OrderKey, CommitTs),
    sent_ms: u64,
}

impl DispatcherCore {
    /// A dispatcher whose stream starts behind `after`.
    pub fn new(id: DispatcherId, span: Span, after: OrderKey) -> Self {
        Self {
            id,
            span,
            progress: TableProgress::new(after),
            barrier: None,
            passed: OrderKey::MIN,
            failed: false,
            sink_failed: false,
            flush_upto: None,
            ends: false,
            sent: (after, CommitTs::ZERO),
            sent_ms: 0,
        }
    }

    /// Its id.
    pub const fn id(&self) -> DispatcherId {
        self.id
    }

    /// What it reads.
    pub const fn span(&self) -> &Span {
        &self.span
    }

    /// Everything of the span up to and including this key is durable downstream.
    pub fn checkpoint(&self) -> OrderKey {
        let checkpoint = self.progress.checkpoint();
        match &self.barrier {
            Some(barrier) => checkpoint.min(barrier.key.before()),
            None => checkpoint,
        }
    }

    /// Everything of the span up to here was delivered.
    pub const fn resolved(&self) -> CommitTs {
        self.progress.resolved()
    }

    /// Key of the DDL that it waits at.
    pub fn waiting_at(&self) -> Option<OrderKey> {
        self.barrier.as_ref().map(|barrier| barrier.key)
    }

    /// Whether it has stopped for good.
    pub const fn is_failed(&self) -> bool {
        self.failed
    }

    /// Whether the run ends, and what is delivered is dropped.
    pub const fn has_ended(&self) -> bool {
        self.ends
    }

    /// Whether a tick has anything to do: progress to report, or a report that may have
    /// to be repeated.
    pub fn wants_tick(&self) -> bool {
        self.is_dirty() || (self.barrier.is_some() && !self.failed)
    }

    /// The next event of the stream.
    pub fn deliver(&mut self, delivery: Delivery, now_ms: u64, out: &mut Vec<Effect>) {
        if self.failed || self.ends {
            if let Delivery::Batch(batch) = delivery {
                self.drop_batch(&batch, out);
            }
            return;
        }
        match delivery {
            Delivery::Batch(batch) => self.batch(batch, out),
            Delivery::Ddl { key, event } => self.ddl(key, event, now_ms, out),
            Delivery::Resolved(upto) => self.resolve(upto),
            Delivery::Failed(error) => {
                // What was delivered before is good and still becomes durable.
                if self.progress.has_outstanding() {
                    out.push(Effect::ToSink(SinkWork::Flush));
                }
                self.fail(error, out);
            }
        }
    }

    /// The sink has made rows durable.
    pub fn durable(&mut self, upto: OrderKey, now_ms: u64, out: &mut Vec<Effect>) {
        self.progress.durable(upto);
        self.drained(now_ms, out);
        self.answer_flush(now_ms, out);
    }

    /// The sink has made the DDL at `key` durable. `reform`: spans are to be formed anew
    /// behind it.
    pub fn ddl_written(&mut self, key: OrderKey, reform: bool, now_ms: u64, out: &mut Vec<Effect>) {
        if self.failed {
            return;
        }
        if let Some(barrier) = self.barrier.as_mut()
            && barrier.key == key
            && barrier.phase == Phase::Writing
        {
            barrier.phase = Phase::Written { reform };
            barrier.reported_ms = now_ms;
            out.push(Effect::Written(self.written(key, reform)));
        }
    }

    /// The sink does nothing more for the span. What is outstanding stays so, and the
    /// checkpoint with it.
    pub fn sink_failed(&mut self, error: ErrorReport, now_ms: u64, out: &mut Vec<Effect>) {
        self.sink_failed = true;
        self.fail(error, out);
        self.answer_flush(now_ms, out);
    }

    /// The maintainer's answer to a report.
    pub fn barrier_action(&mut self, key: OrderKey, step: BarrierStep, now_ms: u64, out: &mut Vec<Effect>) {
        if self.failed {
            return;
        }
        let Some(barrier) = self.barrier.as_mut().filter(|barrier| barrier.key == key) else {
            // Nothing passes a DDL that is not durable.
            if key <= self.passed && step == BarrierStep::Write {
                out.push(Effect::Written(self.written(key, false)));
            }
            return;
        };
        match (step, barrier.phase) {
            (BarrierStep::Write, Phase::Waiting) => {
                barrier.phase = Phase::Writing;
                let event = Arc::clone(&barrier.event);
                out.push(Effect::ToSink(SinkWork::Ddl { key, event }));
            }
            (BarrierStep::Write, Phase::Written { reform }) => {
                out.push(Effect::Written(self.written(key, reform)));
            }
            (BarrierStep::Pass, Phase::Waiting | Phase::Written { .. }) => self.pass(now_ms, out),
            // While the DDL is under way its report comes; before that, so does the
            // report that the maintainer answers again.
            (BarrierStep::Write, Phase::Draining | Phase::Writing)
            | (BarrierStep::Pass, Phase::Draining | Phase::Writing) => {}
        }
    }

    /// Everything delivered is to become durable now; answered by `Flushed`. `ends`: what
    /// is delivered from now on is dropped.
    pub fn flush_now(&mut self, ends: bool, now_ms: u64, out: &mut Vec<Effect>) {
        if self.progress.has_outstanding() && !self.sink_failed {
            out.push(Effect::ToSink(SinkWork::Flush));
        }
        self.ends |= ends;
        self.flush_upto = Some(self.progress.last());
        self.answer_flush(now_ms, out);
    }

    /// Sends what is due: progress, and reports that were not answered.
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        if self.is_dirty() && now_ms.saturating_sub(self.sent_ms) >= HEARTBEAT_INTERVAL_MS {
            self.heartbeat(now_ms, out);
        }
        if self.failed {
            return;
        }
        let Some(barrier) = self.barrier.as_mut() else {
            return;
        };
        if now_ms.saturating_sub(barrier.reported_ms) < REPORT_REPEAT_MS {
            return;
        }
        barrier.reported_ms = now_ms;
        let (key, event) = (barrier.key, Arc::clone(&barrier.event));
        match barrier.phase {
            Phase::Waiting => out.push(Effect::Reached(self.reached(key, event))),
            Phase::Written { reform } => out.push(Effect::Written(self.written(key, reform))),
            Phase::Draining | Phase::Writing => {}
        }
    }

    fn batch(&mut self, batch: Arc<EventBatch>, out: &mut Vec<Effect>) {
        let refused = match self.span {
            Span::Schema => Err(Error::RowsOnSchema { key: batch.first }),
            Span::Table(_) | Span::Tables(_) => {
                self.check_order(batch.first, batch.first > self.progress.last())
            }
        };
        if let Err(error) = refused {
            self.drop_batch(&batch, out);
            self.fail(ErrorReport::new(&error), out);
            return;
        }
        self.progress.add(batch.first, batch.last);
        out.push(Effect::ToSink(SinkWork::Rows(batch)));
    }

    fn ddl(&mut self, key: OrderKey, event: Arc<DdlEvent>, now_ms: u64, out: &mut Vec<Effect>) {
        // Implicit creations take no ordinal of their own, so that two events of the
        // schema span may share a key; a table's DDL never shares one with its rows.
        let ascending = match self.span {
            Span::Schema => key >= self.progress.last(),
            Span::Table(_) | Span::Tables(_) => key > self.progress.last(),
        };
        if let Err(error) = self.check_order(key, ascending) {
            self.fail(ErrorReport::new(&error), out);
            return;
        }
        let implicit = event.kind == DdlKind::ImplicitCreate;
        if self.progress.has_outstanding() {
            out.push(Effect::ToSink(SinkWork::Flush));
        }
        self.barrier = Some(Barrier {
            key,
            event,
            phase: Phase::Draining,
            reported_ms: now_ms,
        });
        if implicit && self.span == Span::Schema {
            // Nothing is executed and nobody else waits.
            self.pass(now_ms, out);
        } else {
            self.drained(now_ms, out);
        }
    }

    fn resolve(&mut self, upto: CommitTs) {
        // A resolved-ts sent before the DDL may be repeated; one behind it cannot be
        // true before the barrier has passed.
        let behind = |barrier: &Barrier| OrderKey::end_of(upto) >= barrier.key;
        if !self.barrier.as_ref().is_some_and(behind) {
            self.progress.resolve(upto);
        }
    }

    fn check_order(&self, key: OrderKey, ascending: bool) -> Result<(), Error> {
        if let Some(barrier) = &self.barrier {
            return Err(Error::BehindBarrier {
                span: self.span_name(),
                key,
                barrier: barrier.key,
            });
        }
        if ascending {
            return Ok(());
        }
        Err(Error::OutOfOrder {
            span: self.span_name(),
            key,
            last: self.progress.last(),
        })
    }

    /// Reports the barrier once all rows before it are durable.
    fn drained(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        if self.failed || self.progress.has_outstanding() {
            return;
        }
        let Some(barrier) = self.barrier.as_mut().filter(|b| b.phase == Phase::Draining) else {
            return;
        };
        self.progress.pass(barrier.key.before());
        barrier.phase = Phase::Waiting;
        barrier.reported_ms = now_ms;
        let (key, event) = (barrier.key, Arc::clone(&barrier.event));
        out.push(Effect::Reached(self.reached(key, event)));
    }

    /// Moves behind the barrier. Tables that the DDL made are registered before the
    /// checkpoint covers it, so that no checkpoint passes a creation whose table has no
    /// dispatcher.
    fn pass(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        let Some(barrier) = self.barrier.take() else {
            return;
        };
        let key = barrier.key;
        if self.span == Span::Schema {
            out.extend(barrier.event.makes.iter().map(|table| {
                Effect::Register(RegisterTable {
                    table: table.clone(),
                    after: key,
                })
            }));
        }
        self.progress.pass(key);
        self.passed = key;
        out.push(Effect::Resume(ResumeStream {
            dispatcher: self.id,
            key,
        }));
        self.answer_flush(now_ms, out);
    }

    fn fail(&mut self, error: ErrorReport, out: &mut Vec<Effect>) {
        if self.failed {
            return;
        }
        self.failed = true;
        out.push(Effect::Failed(DispatcherFailed {
            dispatcher: self.id,
            error,
        }));
    }

    fn drop_batch(&self, batch: &EventBatch, out: &mut Vec<Effect>) {
        out.push(Effect::Released(Released {
            dispatcher: self.id,
            bytes: batch.bytes,
            lane: batch.lane,
        }));
    }

    fn answer_flush(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        let Some(upto) = self.flush_upto else {
            return;
        };
        let durable = !self.progress.has_outstanding() || self.progress.checkpoint() >= upto;
        if durable || self.sink_failed {
            self.flush_upto = None;
            self.heartbeat(now_ms, out);
            out.push(Effect::Flushed(Flushed { dispatcher: self.id }));
        }
    }

    fn heartbeat(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        self.sent = (self.checkpoint(), self.resolved());
        self.sent_ms = now_ms;
        out.push(Effect::Heartbeat(Heartbeat {
            dispatcher: self.id,
            checkpoint: self.sent.0,
            resolved: self.sent.1,
        }));
    }

    fn is_dirty(&self) -> bool {
        self.sent != (self.checkpoint(), self.resolved())
    }

    const fn reached(&self, key: OrderKey, event: Arc<DdlEvent>) -> BarrierReached {
        BarrierReached {
            dispatcher: self.id,
            key,
            event,
        }
    }

    const fn written(&self, key: OrderKey, reform: bool) -> BarrierWritten {
        BarrierWritten {
            dispatcher: self.id,
            key,
            reform,
        }
    }

    fn span_name(&self) -> String {
        self.span.to_string()
    }
}
