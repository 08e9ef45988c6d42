//! State machine of one changefeed: which tables have a dispatcher, DDL barriers,
//! progress, the end of a run. Pure: time is a parameter, what is to be done comes back
//! as effects.
//!
//! * A table-scoped failure stops that table; the others go on. A DDL that the failed
//!   table takes part in cannot run: its other participants wait, the owner is told
//!   (`Effect::Blocked`), and for `--until` they count as arrived with that error. To
//!   fail the whole changefeed instead would stop tables that the DDL does not concern.
//! * A table ends when the DDL that drops or renames it passes. Its dispatcher is not
//!   told to pass but to end: behind the DDL the name belongs to another table.
//! * Within one pipeline nothing is lost between the actors; reports are repeated by the
//!   dispatchers all the same, and each is answered again.

use std::collections::HashMap;
use std::fmt;

use weir_protocol::changefeed::{BarrierReached, BarrierWritten, DispatcherFailed, Flushed, Heartbeat};
use weir_protocol::dispatcher::{BarrierAction, BarrierStep, EndDispatcher, FlushNow};
use weir_protocol::service::{Member, Span};
use weir_protocol::store::AdvanceGc;
use weir_types::{CommitTs, DispatcherId, ErrorClass, ErrorReport, OrderKey, TableName};

use super::barriers::{Barriers, Verdict, WantsTable};
use super::finish::{Failure, Mode, Outcome, arrived};
use super::formation::Awaited;
use super::progress::{SavePolicy, SaveProgress, SavedKeys};
use super::registry::{Entry, Registry};
use crate::error::Error;

/// Longest wait for what was delivered to become durable before spans are formed anew,
/// milliseconds. What is late is delivered again.
pub const REFORM_FLUSH_MS: u64 = 2_000;

/// What a generation of the pipeline starts from.
#[derive(Clone)]
pub struct MaintainerConfig {
    /// Saved progress, or a fresh start.
    pub saved: SavedKeys,
    /// The sink's own progress per source table (finished files): a floor.
    pub sink_progress: HashMap<TableName, OrderKey>,
    /// Tables that belong together, by their names at the source: those that are known
    /// and wanted get one dispatcher. A table counts in the first that names it. Tables
    /// that `sink_progress` knows and saved progress does not are named too.
    pub components: Vec<Vec<TableName>>,
    /// Which tables the changefeed replicates.
    pub wants: WantsTable,
}

/// Counts only.
impl fmt::Debug for MaintainerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintainerConfig")
            .field("tables", &self.saved.tables.len())
            .field("sink_progress", &self.sink_progress.len())
            .field("components", &self.components.len())
            .finish_non_exhaustive()
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a dispatcher: open its span at the sink, tell the collector.
    Create {
        /// Its id.
        id: DispatcherId,
        /// What it reads.
        span: Span,
        /// Start, exclusive.
        after: OrderKey,
    },
    /// The table is gone: take the stream from the collector, then end the dispatcher.
    End(EndDispatcher),
    /// The table has failed: take the stream from the collector. The dispatcher stays
    /// and returns the credit of what is still delivered.
    Detach(DispatcherId),
    /// Answer to a report.
    Barrier(BarrierAction),
    /// Make everything delivered durable.
    Flush(FlushNow),
    /// Save progress in one transaction, then call `saved`.
    Save(SaveProgress),
    /// Progress is on disk: the store may forget what is before it.
    AdvanceGc(AdvanceGc),
    /// A table has stopped.
    TableFailed {
        /// The table.
        table: TableName,
        /// Why.
        error: ErrorReport,
    },
    /// A DDL waits for a failed table, and will not run.
    Blocked(ErrorReport),
    /// A DDL has passed.
    BarrierPassed {
        /// Time from the first report, milliseconds.
        waited_ms: u64,
    },
    /// The pipeline cannot go on.
    Failed(ErrorReport),
    /// Everything up to the target is durable and saved, but for these tables.
    CaughtUp {
        /// Tables that did not arrive.
        failed: Vec<Failure>,
    },
    /// The clean stop has ended.
    Stopped {
        /// Everything delivered is durable and saved; false if the deadline cut it.
        clean: bool,
    },
    /// Build the pipeline anew, with spans formed anew. Progress is saved.
    Reform,
}

impl Effect {
    /// Starts the dispatcher of an entry.
    pub(super) fn create(entry: &Entry) -> Self {
        Self::Create {
            id: entry.id,
            span: entry.span(),
            after: entry.checkpoint,
        }
    }
}

/// One changefeed.
#[derive(Debug)]
pub struct MaintainerCore {
    start: OrderKey,
    pub(super) sink_progress: HashMap<TableName, OrderKey>,
    wants: Wants,
    pub(super) registry: Registry,
    pub(super) awaited: Vec<Awaited>,
    barriers: Barriers,
    saves: SavePolicy,
    pub(super) mode: Mode,
}

struct Wants(WantsTable);

impl fmt::Debug for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wants")
    }
}

impl MaintainerCore {
    /// Nothing runs before `start`.
    pub fn new(config: MaintainerConfig) -> Self {
        let MaintainerConfig {
            saved,
            sink_progress,
            components,
            wants,
        } = config;
        let mut core = Self {
            start: saved.start,
            sink_progress,
            wants: Wants(wants),
            registry: Registry::new(saved.schema.max(saved.start)),
            awaited: Vec::new(),
            barriers: Barriers::default(),
            saves: SavePolicy::new(saved.clone()),
            mode: Mode::Running,
        };
        core.form(saved.tables, components);
        core
    }

    /// Creates the dispatchers that progress knows; the others are registered by the
    /// schema dispatcher.
    pub fn start(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        let created = self.registry.entries().filter(|entry| !entry.deferred);
        out.extend(created.map(Effect::create));
        self.save(now_ms, out);
    }

    /// The changefeed's checkpoint: the minimum over all its dispatchers.
    pub fn checkpoint(&self) -> OrderKey {
        let all = self.registry.entries().map(|entry| entry.checkpoint);
        all.min().unwrap_or(self.start)
    }

    /// The dispatchers, for the API and metrics.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Number of DDLs that are waited at.
    pub fn open_barriers(&self) -> usize {
        self.barriers.len()
    }

    /// Progress of a dispatcher.
    pub fn heartbeat(&mut self, message: Heartbeat, now_ms: u64, out: &mut Vec<Effect>) {
        let Some(entry) = self.registry.get_mut(message.dispatcher) else {
            return;
        };
        entry.checkpoint = entry.checkpoint.max(message.checkpoint);
        entry.resolved = entry.resolved.max(message.resolved);
        if message.dispatcher == DispatcherId::SCHEMA {
            self.release(out);
            self.judge_all(out);
        }
        self.flush_if_there(message.dispatcher, out);
        // Asking whether all have arrived looks at all of them.
        if matches!(self.mode, Mode::Until(target) if message.checkpoint >= OrderKey::end_of(target)) {
            self.settle(now_ms, out);
        }
    }

    /// A dispatcher stands at a DDL.
    pub fn barrier_reached(&mut self, message: &BarrierReached, now_ms: u64, out: &mut Vec<Effect>) {
        let BarrierReached {
            dispatcher,
            key,
            event,
        } = message;
        let Some(entry) = self.registry.get_mut(*dispatcher) else {
            return;
        };
        if entry.failed.is_some() {
            return;
        }
        if entry.held {
            return;
        }
        if *key <= entry.passed {
            out.push(action(*dispatcher, *key, BarrierStep::Pass));
            return;
        }
        entry.checkpoint = entry.checkpoint.max(key.before());
        if self.barriers.writer(*key) == Some(*dispatcher) {
            out.push(action(*dispatcher, *key, BarrierStep::Write));
            return;
        }
        self.barriers.report(*key, event, *dispatcher, now_ms);
        if *dispatcher == DispatcherId::SCHEMA {
            self.judge_all(out);
        } else {
            self.judge(*key, out);
        }
        self.settle(now_ms, out);
    }

    /// The DDL is durable downstream: everybody goes on.
    pub fn barrier_written(&mut self, message: BarrierWritten, now_ms: u64, out: &mut Vec<Effect>) {
        let BarrierWritten {
            dispatcher,
            key,
            reform,
        } = message;
        match self.barriers.written(key, reform, &self.registry, now_ms) {
            Some(mut passing) => {
                let noted = |table: &TableName| self.sink_progress.get(table) == Some(&key);
                passing.left_behind(&self.registry, noted);
                self.pass(key, &passing, out);
                if passing.reform {
                    self.reform(key, &passing, now_ms, out);
                }
            }
            None => {
                // Reported again because the answer was late.
                let passed = self
                    .registry
                    .get(dispatcher)
                    .is_some_and(|entry| key <= entry.passed && !entry.held);
                if passed {
                    out.push(action(dispatcher, key, BarrierStep::Pass));
                }
            }
        }
        self.judge_all(out);
        self.settle(now_ms, out);
    }

    /// A dispatcher has stopped.
    pub fn dispatcher_failed(&mut self, message: DispatcherFailed, now_ms: u64, out: &mut Vec<Effect>) {
        let DispatcherFailed { dispatcher, error } = message;
        let Some(entry) = self.registry.get_mut(dispatcher) else {
            return;
        };
        if entry.members.is_empty() || error.class != ErrorClass::Table {
            out.push(Effect::Failed(error));
            return;
        }
        if entry.failed.is_some() {
            return;
        }
        entry.failed = Some(error.clone());
        entry.flush_sent = true;
        entry.flushed = false;
        self.barriers.forget(dispatcher);
        out.push(Effect::Detach(dispatcher));
        // What it delivered before may still become durable.
        out.push(Effect::Flush(FlushNow {
            dispatcher,
            ends: false,
        }));
        // None of its tables goes on.
        for Member { table, .. } in &entry.members {
            out.push(Effect::TableFailed {
                table: table.clone(),
                error: error.clone(),
            });
        }
        self.judge_all(out);
        self.settle(now_ms, out);
    }

    /// Answer to `Effect::Flush`.
    pub fn flushed(&mut self, message: Flushed, now_ms: u64, out: &mut Vec<Effect>) {
        if let Some(entry) = self.registry.get_mut(message.dispatcher) {
            entry.flushed = true;
        }
        self.settle(now_ms, out);
    }

    /// The save `seq` is on disk.
    pub fn saved(&mut self, seq: u64, now_ms: u64, out: &mut Vec<Effect>) {
        if let Some(gc) = self.saves.saved(seq) {
            out.push(Effect::AdvanceGc(gc));
        }
        self.settle(now_ms, out);
    }

    /// The run ends when everything up to and including `target` is durable.
    pub fn until(&mut self, target: CommitTs, now_ms: u64, out: &mut Vec<Effect>) {
        if self.mode != Mode::Running {
            return;
        }
        self.mode = Mode::Until(target);
        let ids: Vec<_> = self.registry.entries().map(|entry| entry.id).collect();
        for id in ids {
            self.flush_if_there(id, out);
        }
        self.settle(now_ms, out);
    }

    /// The run ends when everything delivered is durable and saved, at the latest at
    /// `deadline_ms`.
    pub fn stop(&mut self, now_ms: u64, deadline_ms: u64, out: &mut Vec<Effect>) {
        match &mut self.mode {
            Mode::Running | Mode::Until(_) => self.flush_all(true, out),
            Mode::Reforming { .. } => {}
            // The end is what the stop asks for, only that nothing is to follow.
            Mode::Saving { outcome, .. } if *outcome == Outcome::Reform => {
                *outcome = Outcome::Stopped { clean: true };
                return;
            }
            Mode::Stopping { .. } | Mode::Saving { .. } | Mode::Done => return,
        }
        self.mode = Mode::Stopping { deadline_ms };
        self.settle(now_ms, out);
    }

    /// Saves what is due; ends a stop at its deadline.
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        if let Mode::Stopping { deadline_ms } = self.mode
            && now_ms >= deadline_ms
        {
            self.mode = Mode::Saving {
                outcome: Outcome::Stopped { clean: false },
                begun: false,
            };
        }
        self.settle(now_ms, out);
        if !matches!(self.mode, Mode::Saving { .. } | Mode::Done) {
            self.save(now_ms, out);
        }
    }

    pub(super) fn wants(&self, table: &TableName) -> bool {
        (self.wants.0)(table)
    }

    pub(super) fn floor(&self, table: &TableName, after: OrderKey) -> OrderKey {
        let sink = self.sink_progress.get(table).copied().unwrap_or(OrderKey::MIN);
        after.max(sink).max(self.start)
    }

    pub(super) fn judge_all(&mut self, out: &mut Vec<Effect>) {
        for key in self.barriers.keys() {
            self.judge(key, out);
        }
    }

    fn judge(&mut self, key: OrderKey, out: &mut Vec<Effect>) {
        match self.barriers.judge(key, &self.registry, &self.wants.0) {
            Verdict::Wait => {
                if !self.awaited.is_empty() {
                    let missing = self.barriers.missing(key, &self.registry);
                    self.release_for(key, &missing, out);
                }
            }
            Verdict::Write(writer) => out.push(action(writer, key, BarrierStep::Write)),
            Verdict::Blocked(failed) => {
                if self.barriers.tell_blocked(key) {
                    let error = Error::BlockedByFailedTable { key, failed };
                    out.push(Effect::Blocked(ErrorReport::new(&error)));
                }
            }
        }
    }

    /// With `--until`: once everything up to the target was delivered, it is to become
    /// durable without waiting for the sink's own rhythm.
    fn flush_if_there(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        let Mode::Until(target) = self.mode else {
            return;
        };
        let Some(entry) = self.registry.get_mut(id) else {
            return;
        };
        let delivered = entry.resolved >= target && entry.checkpoint < OrderKey::end_of(target);
        if delivered && !entry.flush_sent {
            entry.flush_sent = true;
            out.push(Effect::Flush(FlushNow {
                dispatcher: id,
                ends: false,
            }));
        }
    }

    /// Moves on towards the end of the run, if there is to be one.
    pub(super) fn settle(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        let outcome = match &self.mode {
            Mode::Running | Mode::Done => return,
            Mode::Saving { .. } => return self.finish(now_ms, out),
            Mode::Until(target) => arrived(&self.registry, &self.barriers, *target).map(Outcome::CaughtUp),
            Mode::Stopping { .. } => {
                let all = self.registry.entries().all(|entry| entry.flushed);
                all.then_some(Outcome::Stopped { clean: true })
            }
            Mode::Reforming { deadline_ms, schema } => {
                let all = now_ms >= *deadline_ms || self.registry.entries().all(|entry| entry.flushed);
                let registered = self.registry.schema().checkpoint >= *schema;
                (all && registered).then_some(Outcome::Reform)
            }
        };
        if let Some(outcome) = outcome {
            self.mode = Mode::Saving {
                outcome,
                begun: false,
            };
            self.finish(now_ms, out);
        }
    }

    /// Makes the last save, after the one under way, and reports the end.
    fn finish(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        if !self.saves.is_idle() {
            return;
        }
        let Mode::Saving { outcome, begun } = &mut self.mode else {
            return;
        };
        if !std::mem::replace(begun, true)
            && let Some(update) = self.saves.next(&self.registry, now_ms, true)
        {
            out.push(Effect::Save(update));
            return;
        }
        out.push(match outcome {
            Outcome::CaughtUp(failed) => Effect::CaughtUp {
                failed: std::mem::take(failed),
            },
            Outcome::Stopped { clean } => Effect::Stopped { clean: *clean },
            Outcome::Reform => Effect::Reform,
        });
        self.mode = Mode::Done;
    }

    fn save(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        if let Some(update) = self.saves.next(&self.registry, now_ms, false) {
            out.push(Effect::Save(update));
        }
    }
}

pub(super) const fn action(dispatcher: DispatcherId, key: OrderKey, step: BarrierStep) -> Effect {
    Effect::Barrier(BarrierAction {
        dispatcher,
        key,
        step,
    })
}
