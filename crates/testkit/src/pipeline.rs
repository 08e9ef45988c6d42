//! The changefeed's side of one generation: collector, dispatchers, maintainer, sink.
//! Messages inside it are neither lost nor reordered, as between actors of a process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use weir_changefeed::maintainer::{self, MaintainerConfig, MaintainerCore, SaveProgress, SavedKeys};
use weir_dispatcher::{self as dispatcher, DispatcherCore};
use weir_event_collector::{self as collector, CollectorConfig, CollectorCore, Lane};
use weir_protocol::collector::StreamMessage;
use weir_protocol::service::{GrantCredit, PassBarrier, Remove, Reset};
use weir_protocol::sink::{Released, SinkWork};
use weir_types::{DispatcherId, Generation, OrderKey, TableName};

use crate::downstream::Downstream;
use crate::history::History;
use crate::rng::Rng;
use crate::sink::{Answer, ModelSink, SinkStep};

/// A message to the event service.
#[derive(Clone, Debug)]
pub enum ToService {
    /// Starts a stream.
    Reset(Reset),
    /// Credit.
    Grant(GrantCredit),
    /// A barrier has passed.
    Pass(PassBarrier),
    /// Ends a stream.
    Remove(Remove),
}

/// What leaves the changefeed's side.
#[derive(Debug)]
pub enum Outgoing {
    /// Over the transport.
    Service(ToService),
    /// The sink has something to do at a time.
    Sink(u64, SinkStep),
    /// Progress is to be saved.
    Save(SaveProgress),
    /// The generation ends for one with other spans.
    Reform,
}

enum Local {
    Collector(collector::Effect),
    Dispatcher(DispatcherId, dispatcher::Effect),
    Maintainer(maintainer::Effect),
}

/// Settings of a generation.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    /// Which one.
    pub generation: Generation,
    /// Budget of the collector, bytes.
    pub budget_bytes: u64,
    /// Seed of its jitter.
    pub seed: u64,
    /// Factor of the sink's delays.
    pub sink_delay: u64,
    /// Tables are tied.
    pub tied: bool,
    /// A slow table.
    pub slow: Option<(TableName, u64)>,
}

/// One generation.
pub struct Pipeline {
    /// Byte ledger and streams.
    pub collector: CollectorCore,
    /// Progress and barriers.
    pub maintainer: MaintainerCore,
    /// Spans.
    pub dispatchers: BTreeMap<DispatcherId, DispatcherCore>,
    /// Writes.
    pub sink: ModelSink,
    local: VecDeque<Local>,
}

/// What the pipeline works on.
pub struct Outside<'a> {
    /// What was committed.
    pub history: &'a History,
    /// What is durable.
    pub downstream: &'a mut Downstream,
    /// Random numbers.
    pub rng: &'a mut Rng,
    /// What leaves.
    pub out: &'a mut Vec<Outgoing>,
}

impl Pipeline {
    /// A generation that starts from saved progress.
    pub fn new(
        config: &PipelineConfig,
        saved: &SavedKeys,
        sink_progress: HashMap<TableName, OrderKey>,
        components: Vec<Vec<TableName>>,
    ) -> Self {
        Self {
            collector: CollectorCore::new(&CollectorConfig {
                generation: config.generation,
                budget_bytes: config.budget_bytes,
                seed: config.seed,
                windows: weir_event_collector::WindowPolicy::PerDispatcher,
            }),
            maintainer: MaintainerCore::new(MaintainerConfig {
                saved: saved.clone(),
                sink_progress,
                components,
                wants: Arc::new(|_| true),
            }),
            dispatchers: BTreeMap::new(),
            sink: ModelSink::new(config.sink_delay, config.slow.clone(), config.tied),
            local: VecDeque::new(),
        }
    }

    /// Creates what progress knows.
    ///
    /// # Errors
    /// A broken promise.
    pub fn start(&mut self, now_ms: u64, outside: &mut Outside<'_>) -> Result<(), String> {
        self.maintain(|core, out| core.start(now_ms, out));
        self.settle(now_ms, outside)
    }

    /// A message of the service.
    ///
    /// # Errors
    /// A broken promise.
    pub fn stream(
        &mut self,
        now_ms: u64,
        message: StreamMessage,
        outside: &mut Outside<'_>,
    ) -> Result<(), String> {
        self.collect(|core, out| core.message(now_ms, message, out));
        self.settle(now_ms, outside)
    }

    /// The sink's time has come.
    ///
    /// # Errors
    /// A broken promise.
    pub fn sink_step(
        &mut self,
        now_ms: u64,
        step: SinkStep,
        outside: &mut Outside<'_>,
    ) -> Result<(), String> {
        let mut answers = Vec::new();
        let (history, rng) = (outside.history, &mut *outside.rng);
        let next = self
            .sink
            .step(now_ms, step, history, outside.downstream, rng, &mut answers)?;
        outside
            .out
            .extend(next.map(|(due_ms, step)| Outgoing::Sink(due_ms, step)));
        for answer in answers {
            match answer {
                Answer::Released {
                    dispatcher,
                    bytes,
                    lane,
                } => {
                    let released = Released {
                        dispatcher,
                        bytes,
                        lane,
                    };
                    self.collect(|core, out| core.released(now_ms, &released, out));
                }
                Answer::Durable(id, upto) => self.dispatch(id, |core, out| core.durable(upto, now_ms, out)),
                Answer::DdlWritten {
                    dispatcher,
                    key,
                    reform,
                } => self.dispatch(dispatcher, |core, out| core.ddl_written(key, reform, now_ms, out)),
            }
        }
        self.settle(now_ms, outside)
    }

    /// Progress is on disk.
    ///
    /// # Errors
    /// A broken promise.
    pub fn saved(&mut self, now_ms: u64, seq: u64, outside: &mut Outside<'_>) -> Result<(), String> {
        self.maintain(|core, out| core.saved(seq, now_ms, out));
        self.settle(now_ms, outside)
    }

    /// Time has passed.
    ///
    /// # Errors
    /// A broken promise.
    pub fn tick(&mut self, now_ms: u64, outside: &mut Outside<'_>) -> Result<(), String> {
        self.collect(|core, out| core.tick(now_ms, out));
        let ids: Vec<_> = self.dispatchers.keys().copied().collect();
        for id in ids {
            self.dispatch(id, |core, out| core.tick(now_ms, out));
        }
        self.maintain(|core, out| core.tick(now_ms, out));
        self.settle(now_ms, outside)
    }

    /// Whether the books add up: the collector's with the sink's.
    ///
    /// # Errors
    /// What does not.
    pub fn check_books(&self) -> Result<(), String> {
        let ledger = self.collector.ledger();
        ledger.check()?;
        for (id, held) in &self.sink.held {
            let booked = ledger.account(*id).map_or(0, |account| account.held);
            if booked != *held {
                return Err(format!(
                    "{id:?}: the sink holds {held} bytes, the ledger says {booked}"
                ));
            }
        }
        let lane = match ledger.lane() {
            Lane::Held(_, bytes) => bytes,
            Lane::Free | Lane::Granted(_) => 0,
        };
        if lane != self.sink.lane_held {
            return Err(format!(
                "the lane holds {}, the ledger says {lane}",
                self.sink.lane_held
            ));
        }
        Ok(())
    }

    fn collect(&mut self, act: impl FnOnce(&mut CollectorCore, &mut Vec<collector::Effect>)) {
        let mut out = Vec::new();
        act(&mut self.collector, &mut out);
        self.local.extend(out.into_iter().map(Local::Collector));
    }

    fn dispatch(
        &mut self,
        id: DispatcherId,
        act: impl FnOnce(&mut DispatcherCore, &mut Vec<dispatcher::Effect>),
    ) {
        let mut out = Vec::new();
        if let Some(core) = self.dispatchers.get_mut(&id) {
            act(core, &mut out);
        }
        self.local
            .extend(out.into_iter().map(|effect| Local::Dispatcher(id, effect)));
    }

    fn maintain(&mut self, act: impl FnOnce(&mut MaintainerCore, &mut Vec<maintainer::Effect>)) {
        let mut out = Vec::new();
        act(&mut self.maintainer, &mut out);
        self.local.extend(out.into_iter().map(Local::Maintainer));
    }

    fn settle(&mut self, now_ms: u64, outside: &mut Outside<'_>) -> Result<(), String> {
        while let Some(local) = self.local.pop_front() {
            match local {
                Local::Collector(effect) => self.route_collector(now_ms, effect, outside),
                Local::Dispatcher(id, effect) => self.route_dispatcher(now_ms, id, effect, outside)?,
                Local::Maintainer(effect) => self.route_maintainer(now_ms, effect, outside)?,
            }
        }
        Ok(())
    }

    fn route_collector(&mut self, now_ms: u64, effect: collector::Effect, outside: &mut Outside<'_>) {
        let message = match effect {
            collector::Effect::Reset(message) => ToService::Reset(message),
            collector::Effect::Grant(message) => ToService::Grant(message),
            collector::Effect::Pass(message) => ToService::Pass(message),
            collector::Effect::Remove(message) => ToService::Remove(message),
            collector::Effect::Deliver(message) => {
                let delivery = message.delivery;
                self.dispatch(message.dispatcher, |core, out| {
                    core.deliver(delivery, now_ms, out);
                });
                return;
            }
        };
        outside.out.push(Outgoing::Service(message));
    }

    fn route_dispatcher(
        &mut self,
        now_ms: u64,
        id: DispatcherId,
        effect: dispatcher::Effect,
        outside: &mut Outside<'_>,
    ) -> Result<(), String> {
        match effect {
            dispatcher::Effect::ToSink(work) => {
                let seen = (outside.history, &*outside.downstream);
                let next = self.sink.take(now_ms, id, work, seen, outside.rng)?;
                outside
                    .out
                    .extend(next.map(|(due_ms, step)| Outgoing::Sink(due_ms, step)));
            }
            dispatcher::Effect::Heartbeat(m) => self.maintain(|core, out| core.heartbeat(m, now_ms, out)),
            dispatcher::Effect::Reached(m) => {
                self.maintain(|core, out| core.barrier_reached(&m, now_ms, out));
            }
            dispatcher::Effect::Written(m) => self.maintain(|core, out| core.barrier_written(m, now_ms, out)),
            dispatcher::Effect::Register(m) => {
                self.maintain(|core, out| core.register_table(&m, now_ms, out));
            }
            dispatcher::Effect::Flushed(m) => self.maintain(|core, out| core.flushed(m, now_ms, out)),
            dispatcher::Effect::Failed(m) => return Err(format!("{id:?} failed: {}", m.error)),
            dispatcher::Effect::Resume(m) => self.collect(|core, out| core.resume(now_ms, id, m.key, out)),
            dispatcher::Effect::Released(m) => self.collect(|core, out| core.released(now_ms, &m, out)),
        }
        Ok(())
    }

    fn route_maintainer(
        &mut self,
        now_ms: u64,
        effect: maintainer::Effect,
        outside: &mut Outside<'_>,
    ) -> Result<(), String> {
        match effect {
            maintainer::Effect::Create { id, span, after } => {
                let members = span.behind(after).map(|(table, start)| (table.clone(), start));
                self.sink.open(id, members.collect());
                self.dispatchers
                    .insert(id, DispatcherCore::new(id, span.clone(), after));
                self.collect(|core, out| core.add(now_ms, id, span, after, out));
            }
            maintainer::Effect::End(end) => {
                let id = end.dispatcher;
                self.collect(|core, out| core.remove(now_ms, id, out));
                self.dispatchers.remove(&id);
                let seen = (outside.history, &*outside.downstream);
                self.sink.take(now_ms, id, SinkWork::Close, seen, outside.rng)?;
            }
            maintainer::Effect::Detach(id) => self.collect(|core, out| core.remove(now_ms, id, out)),
            maintainer::Effect::Barrier(action) => {
                let (id, key, step) = (action.dispatcher, action.key, action.step);
                self.dispatch(id, |core, out| core.barrier_action(key, step, now_ms, out));
            }
            maintainer::Effect::Flush(flush) => {
                self.dispatch(flush.dispatcher, |core, out| {
                    core.flush_now(flush.ends, now_ms, out);
                });
            }
            maintainer::Effect::Reform => outside.out.push(Outgoing::Reform),
            maintainer::Effect::Save(update) => outside.out.push(Outgoing::Save(update)),
            maintainer::Effect::TableFailed { table, error } => {
                return Err(format!("{table} failed: {error}"));
            }
            maintainer::Effect::Blocked(error) | maintainer::Effect::Failed(error) => {
                return Err(format!("the changefeed failed: {error}"));
            }
            maintainer::Effect::AdvanceGc(_)
            | maintainer::Effect::BarrierPassed { .. }
            | maintainer::Effect::CaughtUp { .. }
            | maintainer::Effect::Stopped { .. } => {}
        }
        Ok(())
    }
}
