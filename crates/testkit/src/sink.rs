//! A sink with delays: releases and makes durable at random later times, keeps each
//! span's order, runs DDL once.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_protocol::collector::EventBatch;
use weir_protocol::sink::SinkWork;
use weir_types::{DispatcherId, OrderKey, TableName};

use crate::downstream::{Downstream, SpanCheck};
use crate::history::History;
use crate::rng::Rng;

/// An answer or a deadline of the sink.
#[derive(Clone, Debug)]
pub enum SinkStep {
    /// The head of the span's work is done.
    Done(DispatcherId, Done),
    /// What the span has written becomes durable.
    Flush(DispatcherId),
}

/// Work that is done.
#[derive(Clone, Debug)]
pub enum Done {
    /// Rows were written; their memory is free.
    Rows(Arc<EventBatch>),
    /// Everything before is to be durable now.
    Flush,
    /// A DDL ran.
    Ddl(OrderKey, Arc<weir_types::DdlEvent>),
}

/// What the sink tells others.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// To the collector.
    Released {
        /// The span.
        dispatcher: DispatcherId,
        /// Charged bytes.
        bytes: usize,
        /// Through the lane.
        lane: bool,
    },
    /// To the dispatcher.
    Durable(DispatcherId, OrderKey),
    /// To the dispatcher.
    DdlWritten(DispatcherId, OrderKey),
}

#[derive(Debug)]
struct Span {
    check: SpanCheck,
    busy_until_ms: u64,
    written: Vec<OrderKey>,
    last: OrderKey,
    slow: u64,
}

/// One generation of the sink.
#[derive(Debug, Default)]
pub struct ModelSink {
    spans: BTreeMap<DispatcherId, Span>,
    /// Charged bytes of batches that the sink holds, lane aside.
    pub held: BTreeMap<DispatcherId, u64>,
    /// Bytes of the row in the lane.
    pub lane_held: u64,
    delay: u64,
    slow: Option<(TableName, u64)>,
}

impl ModelSink {
    /// A sink whose work takes up to `delay` milliseconds, but for one table that is so
    /// many times slower.
    pub fn new(delay: u64, slow: Option<(TableName, u64)>) -> Self {
        Self {
            delay,
            slow,
            ..Self::default()
        }
    }

    /// A span begins.
    pub fn open(&mut self, id: DispatcherId, table: Option<TableName>, start: OrderKey) {
        let slow = self
            .slow
            .as_ref()
            .filter(|(slow, _)| table.as_ref() == Some(slow))
            .map_or(1, |(_, n)| *n);
        self.spans.insert(
            id,
            Span {
                check: SpanCheck::new(table, start),
                busy_until_ms: 0,
                written: Vec::new(),
                last: OrderKey::MIN,
                slow,
            },
        );
    }

    /// A span ends.
    pub fn close(&mut self, id: DispatcherId) {
        self.spans.remove(&id);
    }

    /// Takes work; returns when which step is due.
    ///
    /// # Errors
    /// Rows that are not exactly the next ones.
    pub fn take(
        &mut self,
        now_ms: u64,
        id: DispatcherId,
        work: SinkWork,
        (history, downstream): (&History, &Downstream),
        rng: &mut Rng,
    ) -> Result<Option<(u64, SinkStep)>, String> {
        let Some(span) = self.spans.get_mut(&id) else {
            return Err(format!("work for {id:?}, which has no span"));
        };
        let done = match work {
            SinkWork::Rows(batch) => {
                span.check.accept(id, history, downstream, &keys_of(&batch)?)?;
                if batch.lane {
                    if self.lane_held != 0 {
                        return Err("two rows in the lane".to_owned());
                    }
                    self.lane_held = batch.bytes as u64;
                } else {
                    *self.held.entry(id).or_default() += batch.bytes as u64;
                }
                Done::Rows(batch)
            }
            SinkWork::Flush => Done::Flush,
            SinkWork::Ddl { key, event } => Done::Ddl(key, event),
            SinkWork::Close => {
                self.close(id);
                return Ok(None);
            }
        };
        let delay = rng.below(1 + self.delay * span.slow);
        span.busy_until_ms = span.busy_until_ms.max(now_ms) + delay;
        Ok(Some((span.busy_until_ms, SinkStep::Done(id, done))))
    }

    /// A step is due; may return a further one.
    ///
    /// # Errors
    /// What must not become durable yet.
    pub fn step(
        &mut self,
        now_ms: u64,
        step: SinkStep,
        history: &History,
        downstream: &mut Downstream,
        rng: &mut Rng,
        answers: &mut Vec<Answer>,
    ) -> Result<Option<(u64, SinkStep)>, String> {
        let (id, done) = match step {
            SinkStep::Flush(id) => {
                self.flush(id, downstream, answers);
                return Ok(None);
            }
            SinkStep::Done(id, done) => (id, done),
        };
        match done {
            Done::Rows(batch) => {
                self.release(id, &batch, answers);
                let Some(span) = self.spans.get_mut(&id) else {
                    return Err(format!("{id:?} was closed with rows in the sink"));
                };
                span.written.extend(keys_of(&batch)?);
                let due = now_ms + rng.below(1 + self.delay * 4 * span.slow);
                Ok(Some((due, SinkStep::Flush(id))))
            }
            Done::Flush => {
                self.flush(id, downstream, answers);
                let last = self.spans.get(&id).map_or(OrderKey::MIN, |span| span.last);
                answers.push(Answer::Durable(id, last));
                Ok(None)
            }
            Done::Ddl(key, event) => {
                downstream.execute(history, key, &event)?;
                answers.push(Answer::DdlWritten(id, key));
                Ok(None)
            }
        }
    }

    fn release(&mut self, id: DispatcherId, batch: &EventBatch, answers: &mut Vec<Answer>) {
        if batch.lane {
            self.lane_held = 0;
        } else if let Some(held) = self.held.get_mut(&id) {
            *held -= batch.bytes as u64;
        }
        answers.push(Answer::Released {
            dispatcher: id,
            bytes: batch.bytes,
            lane: batch.lane,
        });
    }

    fn flush(&mut self, id: DispatcherId, downstream: &mut Downstream, answers: &mut Vec<Answer>) {
        let Some(span) = self.spans.get_mut(&id) else {
            return;
        };
        let (Some(last), Some(table)) = (span.written.last().copied(), span.check.table.clone()) else {
            return;
        };
        downstream.durable(&table, span.written.drain(..));
        span.last = last;
        answers.push(Answer::Durable(id, last));
    }
}

fn keys_of(batch: &EventBatch) -> Result<Vec<OrderKey>, String> {
    let events = batch.slices.iter().flat_map(weir_types::BlockSlice::iter);
    let keys: Result<Vec<_>, _> = events.map(|event| event.map(|event| event.key)).collect();
    let keys = keys.map_err(|error| error.to_string())?;
    let bytes: usize = batch
        .slices
        .iter()
        .map(weir_types::BlockSlice::pinned_bytes)
        .sum();
    if keys.len() != batch.events || bytes != batch.bytes {
        return Err("a batch states other counts than it has".to_owned());
    }
    Ok(keys)
}
