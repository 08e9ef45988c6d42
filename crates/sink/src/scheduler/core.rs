//! Which span is worked on next. Pure: no threads, time is a parameter.
//!
//! Work waits per span. A span with work, or whose time has come, is *ready* and stands
//! once in a round-robin queue; a worker pulls it with a bounded part of its work and
//! the span's writer, so that nobody else can work on it; what is left makes it ready
//! again, at the end of the queue. A slow span holds up one worker and itself.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};

use weir_protocol::sink::SinkWork;
use weir_types::DispatcherId;

use crate::contract::PullLimits;

/// Bytes that a piece of work pins.
pub fn work_bytes(work: &SinkWork) -> usize {
    match work {
        SinkWork::Rows(batch) => batch.bytes,
        SinkWork::Flush | SinkWork::Ddl { .. } | SinkWork::Close => 0,
    }
}

struct Span<W> {
    queue: VecDeque<SinkWork>,
    /// None while a worker has it, and after a failure.
    writer: Option<W>,
    ready: bool,
    failed: bool,
    /// Its writer cannot take the next piece of work before it is woken.
    held: bool,
    /// It was woken since the last pull.
    woken: bool,
    due: Option<u64>,
}

impl<W> Span<W> {
    fn is_wanted(&self) -> bool {
        self.writer.is_some() && !self.ready
    }
}

/// A part of a span's work, with the span's writer.
pub struct Pull<W> {
    /// The span.
    pub dispatcher: DispatcherId,
    /// Its writer; comes back by `finish`.
    pub writer: W,
    /// What to do, in order.
    pub work: Vec<SinkWork>,
    /// The time that the writer named has come, or it was woken.
    pub tick: bool,
}

/// How a pull ended.
pub enum Finish<W> {
    /// The span goes on; `due` is when a tick is wanted, in milliseconds.
    Idle {
        /// The writer.
        writer: W,
        /// When a tick is wanted.
        due: Option<u64>,
    },
    /// As `Idle`, but the writer cannot take `rest` yet: it comes back once the span is
    /// woken.
    Held {
        /// The writer.
        writer: W,
        /// When a tick is wanted.
        due: Option<u64>,
        /// Work that was not done, in order.
        rest: Vec<SinkWork>,
    },
    /// Nothing more is done for the span.
    Failed,
    /// The span is forgotten.
    Closed,
}

/// Spans and their work.
pub struct SchedulerCore<W> {
    spans: HashMap<DispatcherId, Span<W>>,
    ready: VecDeque<DispatcherId>,
    timers: BTreeSet<(u64, DispatcherId)>,
    limits: PullLimits,
}

impl<W> Default for SchedulerCore<W> {
    fn default() -> Self {
        Self::new(PullLimits::default())
    }
}

impl<W> SchedulerCore<W> {
    /// Without spans; a pull takes as much as `limits` say.
    pub fn new(limits: PullLimits) -> Self {
        Self {
            limits,
            spans: HashMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Adds a span.
    ///
    /// # Errors
    /// The writer comes back if the span is there already.
    pub fn open(&mut self, dispatcher: DispatcherId, writer: W) -> Result<(), W> {
        match self.spans.entry(dispatcher) {
            Entry::Occupied(_) => Err(writer),
            Entry::Vacant(entry) => {
                entry.insert(Span {
                    queue: VecDeque::new(),
                    writer: Some(writer),
                    ready: false,
                    failed: false,
                    held: false,
                    woken: false,
                    due: None,
                });
                Ok(())
            }
        }
    }

    /// Whether the span is there, failed ones included.
    pub fn knows(&self, dispatcher: DispatcherId) -> bool {
        self.spans.contains_key(&dispatcher)
    }

    /// Whether the span's next work waits for a call of `wake`.
    pub fn is_held(&self, dispatcher: DispatcherId) -> bool {
        self.spans.get(&dispatcher).is_some_and(|span| span.held)
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no span.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Adds work to a span.
    ///
    /// # Errors
    /// The work comes back if the span is not there or has failed; `Close` of a failed
    /// span is carried out.
    pub fn push(&mut self, dispatcher: DispatcherId, work: SinkWork) -> Result<(), SinkWork> {
        let Some(span) = self.spans.get_mut(&dispatcher) else {
            return Err(work);
        };
        if span.failed {
            if matches!(work, SinkWork::Close) {
                self.spans.remove(&dispatcher);
                return Ok(());
            }
            return Err(work);
        }
        span.queue.push_back(work);
        if span.is_wanted() && !span.held {
            span.ready = true;
            self.ready.push_back(dispatcher);
        }
        Ok(())
    }

    /// Makes a span ready: its writer can go on with work that it could not take, or has
    /// reached more.
    pub fn wake(&mut self, dispatcher: DispatcherId) {
        let Some(span) = self.spans.get_mut(&dispatcher) else {
            return;
        };
        span.woken = true;
        if span.is_wanted() {
            span.ready = true;
            self.ready.push_back(dispatcher);
        }
    }

    /// Makes the spans ready whose time has come.
    pub fn advance(&mut self, now: u64) {
        while let Some(&(due, dispatcher)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            if let Some(span) = self.spans.get_mut(&dispatcher)
                && span.is_wanted()
            {
                span.ready = true;
                self.ready.push_back(dispatcher);
            }
        }
    }

    /// When `advance` has something to do next, in milliseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.timers.first().map(|&(due, _)| due)
    }

    /// Whether a pull would find something.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next ready span. `now` decides whether its tick is due.
    pub fn pull(&mut self, now: u64) -> Option<Pull<W>> {
        while let Some(dispatcher) = self.ready.pop_front() {
            let Some(span) = self.spans.get_mut(&dispatcher) else {
                continue;
            };
            span.ready = false;
            let Some(writer) = span.writer.take() else {
                continue;
            };
            span.held = false;
            let woken = std::mem::take(&mut span.woken);
            let due = span.due.take();
            if let Some(due) = due {
                self.timers.remove(&(due, dispatcher));
            }
            let (mut work, mut bytes) = (Vec::new(), 0);
            while let Some(next) = span.queue.front() {
                let more = work_bytes(next);
                if work.len() >= self.limits.work || (bytes > 0 && bytes + more > self.limits.bytes) {
                    break;
                }
                bytes += more;
                work.extend(span.queue.pop_front());
            }
            return Some(Pull {
                dispatcher,
                writer,
                work,
                tick: woken || due.is_some_and(|due| due <= now),
            });
        }
        None
    }

    /// Ends a pull. Returns work that will not be done any more.
    pub fn finish(&mut self, dispatcher: DispatcherId, finish: Finish<W>) -> Vec<SinkWork> {
        let Some(span) = self.spans.get_mut(&dispatcher) else {
            return Vec::new();
        };
        match finish {
            Finish::Idle { writer, due } => {
                span.writer = Some(writer);
                span.due = due;
                self.timers.extend(due.map(|due| (due, dispatcher)));
                if span.woken || !span.queue.is_empty() {
                    span.ready = true;
                    self.ready.push_back(dispatcher);
                }
                Vec::new()
            }
            Finish::Held { writer, due, rest } => {
                span.writer = Some(writer);
                span.due = due;
                self.timers.extend(due.map(|due| (due, dispatcher)));
                for work in rest.into_iter().rev() {
                    span.queue.push_front(work);
                }
                span.held = true;
                if span.woken {
                    span.ready = true;
                    self.ready.push_back(dispatcher);
                }
                Vec::new()
            }
            Finish::Failed => {
                span.failed = true;
                let rest: Vec<_> = span.queue.drain(..).collect();
                if rest.iter().any(|work| matches!(work, SinkWork::Close)) {
                    self.spans.remove(&dispatcher);
                }
                rest
            }
            Finish::Closed => {
                let rest = self.spans.remove(&dispatcher).map(|span| span.queue);
                rest.into_iter().flatten().collect()
            }
        }
    }

    /// Takes everything out: at the end of the sink.
    pub fn drain(&mut self) -> Vec<(DispatcherId, SinkWork)> {
        self.ready.clear();
        self.timers.clear();
        let spans = self.spans.drain();
        spans
            .flat_map(|(id, span)| span.queue.into_iter().map(move |work| (id, work)))
            .collect()
    }
}
