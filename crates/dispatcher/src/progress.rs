//! Progress of one span: which delivered rows are not durable yet.

use std::collections::VecDeque;

use weir_types::{CommitTs, OrderKey};

/// Most runs of outstanding rows kept apart. Beyond it a batch joins the run before it:
/// the checkpoint moves in larger steps, and memory stays bounded for any number of
/// small batches in one unfinished file or transaction of the sink.
pub const OUTSTANDING_RUNS_MAX: usize = 4096;

/// One run of rows under way.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: OrderKey,
    last: OrderKey,
}

/// Rows under way and resolved-ts of one span. A batch is added before the sink sees it
/// and the resolved-ts is set after that: either order reversed would give a checkpoint
/// beyond what is durable.
#[derive(Clone, Debug)]
pub struct TableProgress {
    /// Everything up to here is durable, whatever is outstanding.
    floor: OrderKey,
    resolved: CommitTs,
    /// Key of the last row, DDL or start: what comes next is greater.
    last: OrderKey,
    outstanding: VecDeque<Run>,
}

impl TableProgress {
    /// Nothing outstanding; everything up to and including `after` is durable.
    pub fn new(after: OrderKey) -> Self {
        Self {
            floor: after,
            resolved: CommitTs::ZERO,
            last: after,
            outstanding: VecDeque::new(),
        }
    }

    /// Key of the last thing that was delivered, the start included.
    pub const fn last(&self) -> OrderKey {
        self.last
    }

    /// Everything of the span up to here was delivered.
    pub const fn resolved(&self) -> CommitTs {
        self.resolved
    }

    /// Whether rows wait for the sink.
    pub fn has_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Adds the rows `first..=last`, before the sink sees them.
    pub fn add(&mut self, first: OrderKey, last: OrderKey) {
        self.last = last;
        if self.outstanding.len() >= OUTSTANDING_RUNS_MAX
            && let Some(run) = self.outstanding.back_mut()
        {
            run.last = last;
            return;
        }
        self.outstanding.push_back(Run { first, last });
    }

    /// Rows up to and including `upto` are durable.
    pub fn durable(&mut self, upto: OrderKey) {
        while let Some(run) = self.outstanding.front() {
            if run.last > upto {
                if run.first <= upto {
                    // The sink finished in the middle of the run.
                    self.floor = self.floor.max(upto);
                }
                return;
            }
            self.floor = self.floor.max(run.last);
            self.outstanding.pop_front();
        }
    }

    /// Everything up to and including `upto` was delivered.
    pub fn resolve(&mut self, upto: CommitTs) {
        self.resolved = self.resolved.max(upto);
    }

    /// Nothing is outstanding and nothing of the span lies between the last delivery
    /// and `key`: all of it is durable.
    pub fn pass(&mut self, key: OrderKey) {
        self.floor = self.floor.max(key);
        self.last = self.last.max(key);
    }

    /// The place up to which everything is durable: before the first outstanding row,
    /// else all that was resolved.
    pub fn checkpoint(&self) -> OrderKey {
        match self.outstanding.front() {
            Some(run) => self.floor.max(run.first.before()),
            None if self.resolved == CommitTs::ZERO => self.floor,
            None => self.floor.max(OrderKey::end_of(self.resolved)),
        }
    }
}
