//! A sink with delays: releases and makes durable at random later times, keeps each
//! span's order, runs DDL once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_protocol::collector::{EventBatch, charge};
use weir_protocol::sink::SinkWork;
use weir_types::{DdlEvent, DispatcherId, OrderKey, TableName};

use crate::downstream::{Downstream, SpanCheck};
use crate::history::History;
use crate::rng::Rng;
use crate::ties::Ties;

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
    DdlWritten {
        /// The span.
        dispatcher: DispatcherId,
        /// Place of the DDL.
        key: OrderKey,
        /// Spans are to be formed anew.
        reform: bool,
    },
}

#[derive(Debug)]
struct Span {
    check: SpanCheck,
    busy_until_ms: u64,
    written: Vec<(OrderKey, TableName)>,
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
    /// Batches with row events of several tables.
    pub mixed: u64,
    /// Tables are tied to each other; else each is for itself.
    tied: bool,
    delay: u64,
    slow: Option<(TableName, u64)>,
}

impl ModelSink {
    /// A sink whose work takes up to `delay` milliseconds, but for one table that is so
    /// many times slower.
    pub fn new(delay: u64, slow: Option<(TableName, u64)>, tied: bool) -> Self {
        Self {
            tied,
            delay,
            slow,
            ..Self::default()
        }
    }

    /// A span begins.
    pub fn open(&mut self, id: DispatcherId, members: BTreeMap<TableName, OrderKey>) {
        let slow = self
            .slow
            .as_ref()
            .filter(|(slow, _)| members.contains_key(slow))
            .map_or(1, |(_, n)| *n);
        self.spans.insert(
            id,
            Span {
                check: SpanCheck::new(members),
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
        if let SinkWork::Rows(batch) = &work {
            self.check_formation(id, batch, history, downstream)?;
        }
        let Some(span) = self.spans.get_mut(&id) else {
            return Err(format!("work for {id:?}, which has no span"));
        };
        let done = match work {
            SinkWork::Rows(batch) => {
                span.check.accept(id, history, downstream, &rows_of(&batch)?)?;
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
                span.written.extend(rows_of(&batch)?);
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
                answers.push(Answer::DdlWritten {
                    dispatcher: id,
                    key,
                    reform: self.is_torn(downstream, &event),
                });
                Ok(None)
            }
        }
    }

    /// Tables of the span that has this one.
    fn together_with(&self, table: &TableName) -> Option<BTreeSet<TableName>> {
        let mut spans = self.spans.values();
        let span = spans.find(|span| span.check.members.contains_key(table))?;
        Some(span.check.members.keys().cloned().collect())
    }

    /// Whether tables of the DDL are tied otherwise than spans were opened.
    fn is_torn(&self, downstream: &Downstream, event: &DdlEvent) -> bool {
        let open = self.spans.values().flat_map(|span| span.check.members.keys());
        let tables: BTreeSet<_> = open.chain(&event.makes).collect();
        if !self.tied {
            return false;
        }
        let tied = |table: &TableName| -> BTreeSet<TableName> {
            let mut tied = downstream.ties.component(table);
            tied.retain(|other| tables.contains(other));
            tied
        };
        tables
            .iter()
            .filter(|table| event.concerns(table) || event.makes.contains(table))
            .any(|table| match self.together_with(table) {
                Some(together) => together != tied(table),
                None => tied(table).len() > 1,
            })
    }

    /// Tables that are tied to each other come through one span.
    fn check_formation(
        &mut self,
        id: DispatcherId,
        batch: &EventBatch,
        history: &History,
        downstream: &Downstream,
    ) -> Result<(), String> {
        let last = |slice: &weir_types::BlockSlice| (slice.block.version.name.clone(), slice.last);
        let tables: BTreeMap<_, _> = batch.slices.iter().map(last).collect();
        self.mixed += u64::from(tables.len() > 1);
        for (table, last) in tables.iter().filter(|_| self.tied) {
            let together = self.together_with(table).unwrap_or_default();
            // What is tied at the source but comes through another span has to be there.
            for other in Ties::before(history, *last)
                .component(table)
                .difference(&together)
            {
                if !downstream.holds_all(history, other, last.before()) {
                    return Err(format!(
                        "{id:?}: {table} came to {last} before rows of {other}, which is tied to it"
                    ));
                }
            }
            let mut tied = downstream.ties.component(table);
            tied.retain(|other| self.together_with(other).is_some());
            if tied != together {
                return Err(format!(
                    "{id:?}: rows of {table}, which is tied to {tied:?}, came with {together:?}"
                ));
            }
        }
        Ok(())
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
        let Some(last) = span.written.last().map(|(key, _)| *key) else {
            return;
        };
        for (key, table) in span.written.drain(..) {
            downstream.durable(&table, std::iter::once(key));
        }
        span.last = last;
        answers.push(Answer::Durable(id, last));
    }
}

fn rows_of(batch: &EventBatch) -> Result<Vec<(OrderKey, TableName)>, String> {
    let mut rows = Vec::new();
    for slice in &batch.slices {
        for event in slice.iter() {
            let event = event.map_err(|error| error.to_string())?;
            rows.push((event.key, slice.block.version.name.clone()));
        }
    }
    if rows.len() != batch.events || charge(&batch.slices) != batch.bytes {
        return Err("a batch states other counts than it has".to_owned());
    }
    Ok(rows)
}
