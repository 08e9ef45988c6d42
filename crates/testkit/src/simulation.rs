//! A whole run: a growing history, the event service, a transport with faults, and
//! generations of the changefeed's side. Deterministic by seed.

mod checks;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_changefeed::maintainer::{SaveProgress, SavedKeys};
use weir_event_service::{self as service, DdlFilter, ScanDone, ServiceConfig, ServiceCore};
use weir_event_store::error::StoreError;
use weir_event_store::{MemoryOptions, MemoryStore, MemoryWriter, StoreReader, StoreWriter};
use weir_protocol::collector::{ServiceIncarnation, StreamBody, StreamMessage};
use weir_protocol::store::StoreInput;
use weir_types::{Generation, OrderKey, TableName};

use crate::downstream::Downstream;
use crate::history::BODY_BYTES_MAX;
use crate::pipeline::{Outgoing, Outside, Pipeline, PipelineConfig, ToService};
use crate::rng::Rng;
use crate::scenario::{CALM_DELAY_MS, Scenario, Summary};
use crate::sink::SinkStep;
use crate::store::ModelStore;

/// Time after the last fault within which everything must be durable, milliseconds.
pub const RECOVERY_MS: u64 = 300_000;
/// Time after the end within which both sides agree on every account, milliseconds.
const SETTLE_MS: u64 = 8_000;
const TICK_MS: u64 = 50;

#[derive(Debug)]
enum Event {
    Feed,
    Tick,
    ToService(ToService),
    ToCollector(StreamMessage),
    Scanned { life: u64, done: Box<ScanDone> },
    Sink { generation: u64, step: SinkStep },
    Saved { generation: u64, update: SaveProgress },
    RestartService,
    RestartChangefeed,
    Reform { generation: u64 },
}

/// A run under way.
pub struct Simulation {
    scenario: Scenario,
    rng: Rng,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    fed: u64,
    store: Arc<ModelStore>,
    /// What the service reads: the model, or the event store's twin in memory.
    reader: Arc<dyn StoreReader>,
    writer: Option<MemoryWriter>,
    service: ServiceCore,
    life: u64,
    generation: u64,
    pipeline: Pipeline,
    saved: SavedKeys,
    downstream: Downstream,
    calm_from_ms: u64,
    finished_ms: Option<u64>,
    /// Charged bytes on the wire, by message; doubles are not counted.
    wire_bytes: u64,
    summary: Summary,
}

fn everything() -> DdlFilter {
    Arc::new(|_| true)
}

fn new_service(life: u64, store: &dyn StoreReader) -> ServiceCore {
    let config = ServiceConfig {
        incarnation: ServiceIncarnation(life),
        max_row_bytes: BODY_BYTES_MAX * 2,
        scans_max: 2,
        policy: weir_event_service::ScanPolicy::PerDispatcher,
    };
    ServiceCore::new(config, everything(), store.resolved())
}

impl Simulation {
    /// A run at its beginning.
    pub fn new(scenario: Scenario) -> Self {
        let store = Arc::new(ModelStore::default());
        let (reader, writer) = open_store(&scenario, &store);
        let saved = SavedKeys::fresh(OrderKey::MIN, []);
        let mut sim = Self {
            rng: Rng::new(scenario.seed ^ 0xabcd),
            now_ms: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            fed: 0,
            service: new_service(1, reader.as_ref()),
            store,
            reader,
            writer,
            life: 1,
            generation: 1,
            pipeline: Pipeline::new(&pipeline_config(&scenario, 1), &saved, HashMap::new(), Vec::new()),
            saved,
            downstream: Downstream::default(),
            calm_from_ms: 5_000,
            finished_ms: None,
            wire_bytes: 0,
            summary: Summary::default(),
            scenario,
        };
        sim.schedule(0, Event::Feed);
        sim.schedule(TICK_MS, Event::Tick);
        for at in sim.scenario.service_restarts.clone() {
            sim.schedule(at, Event::RestartService);
        }
        for at in sim.scenario.changefeed_restarts.clone() {
            sim.schedule(at, Event::RestartChangefeed);
        }
        sim
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn run(mut self) -> Result<Summary, String> {
        self.run_until(u64::MAX)?;
        self.check_end()?;
        self.check_quiet()?;
        self.summarize_generation();
        let faults = self.scenario.faults;
        let calm =
            faults.drop_percent + faults.double_percent + faults.late_percent == 0 && faults.delay_ms <= 1;
        if calm && self.scenario.service_restarts.is_empty() && self.summary.resets > 0 {
            return Err(format!("{} resets without a fault", self.summary.resets));
        }
        let history = self.store.history();
        self.summary.rows = history.row_count();
        self.summary.ddls = history.ddls.len();
        self.summary.repeated = self.downstream.repeated;
        self.summary.ended_ms = self.finished_ms.unwrap_or(self.now_ms);
        Ok(self.summary)
    }

    /// Runs to the end, or to a simulated time.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn run_until(&mut self, until_ms: u64) -> Result<(), String> {
        if self.summary.events == 0 {
            self.with_pipeline(Pipeline::start)?;
        }
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until_ms) {
            let ((at, _), event) = entry.remove_entry();
            self.now_ms = at;
            self.summary.events += 1;
            let was_tick = matches!(event, Event::Tick);
            self.handle(event)?;
            self.pipeline.check_books()?;
            if was_tick && self.is_finished() {
                let until = *self.finished_ms.get_or_insert(self.now_ms) + SETTLE_MS;
                if self.now_ms >= until {
                    return Ok(());
                }
            }
            if self.now_ms > self.calm_from_ms + RECOVERY_MS {
                return Err(self.stuck());
            }
        }
        Ok(())
    }

    /// Tables with rows that are not durable yet.
    pub fn lacking(&self) -> Vec<TableName> {
        let history = self.store.history();
        let lacks = |table: &&TableName| !self.downstream.holds_all(&history, table, OrderKey::MAX);
        history.rows.keys().filter(lacks).cloned().collect()
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Feed => self.feed(),
            Event::Tick => {
                self.schedule(self.now_ms + TICK_MS, Event::Tick);
                let now_ms = self.now_ms;
                self.serve(|service, store, out| service.tick(now_ms, store, out));
                self.with_pipeline(Pipeline::tick)
            }
            Event::ToService(message) => {
                self.service_message(&message);
                Ok(())
            }
            Event::ToCollector(message) => {
                if let StreamBody::Batch(batch) = &message.body {
                    self.wire_bytes = self.wire_bytes.saturating_sub(batch.bytes as u64);
                }
                self.with_pipeline(|pipeline, now_ms, outside| pipeline.stream(now_ms, message, outside))?;
                self.check_memory()
            }
            Event::Scanned { life, done } => {
                let now_ms = self.now_ms;
                if life == self.life {
                    self.serve(|service, store, out| service.scan_done(now_ms, *done, store, out));
                }
                Ok(())
            }
            Event::Sink { generation, step } if generation == self.generation => {
                self.with_pipeline(|pipeline, now_ms, outside| pipeline.sink_step(now_ms, step, outside))
            }
            Event::Saved { generation, update } if generation == self.generation => {
                self.save(&update)?;
                let seq = update.seq;
                self.with_pipeline(|pipeline, now_ms, outside| pipeline.saved(now_ms, seq, outside))
            }
            Event::Reform { generation } if generation == self.generation => {
                self.summary.reforms += 1;
                self.restart_changefeed()
            }
            Event::Sink { .. } | Event::Saved { .. } | Event::Reform { .. } => Ok(()),
            Event::RestartService => {
                self.life += 1;
                self.service = new_service(self.life, self.reader.as_ref());
                Ok(())
            }
            Event::RestartChangefeed => self.restart_changefeed(),
        }
    }

    fn feed(&mut self) -> Result<(), String> {
        let mix = self.scenario.mix;
        self.store.history_mut().step(&mut self.rng, &mix);
        self.fed += 1;
        let last = self.fed == self.scenario.steps;
        if last || self.rng.percent(70) {
            self.advance_resolved()?;
        }
        if last {
            self.calm_from_ms = self.calm_from_ms.max(self.now_ms + 1);
        } else {
            let pause = if self.rng.percent(5) { 400 } else { 30 };
            let at = self.now_ms + self.rng.below(pause);
            self.schedule(at, Event::Feed);
        }
        Ok(())
    }

    fn advance_resolved(&mut self) -> Result<(), String> {
        let input = self.store.history_mut().take_group();
        if let (Some(writer), Some(input)) = (&mut self.writer, input) {
            sync(writer, input).map_err(|error| format!("the store refused a group: {error}"))?;
        }
        let (now_ms, end) = (self.now_ms, self.reader.resolved());
        let mut advanced = Ok(());
        self.serve(|service, store, out| advanced = service.resolved_advanced(now_ms, end, store, out));
        advanced.map_err(|error| error.to_string())
    }

    fn service_message(&mut self, message: &ToService) {
        let now_ms = self.now_ms;
        self.serve(|service, store, out| match message {
            ToService::Reset(message) => service.reset(now_ms, message, out),
            ToService::Grant(message) => service.grant(now_ms, message, store, out),
            ToService::Pass(message) => service.pass_barrier(now_ms, message, store, out),
            ToService::Remove(message) => service.remove(now_ms, message),
        });
    }

    fn serve(&mut self, act: impl FnOnce(&mut ServiceCore, &dyn StoreReader, &mut Vec<service::Effect>)) {
        let mut out = Vec::new();
        let reader = Arc::clone(&self.reader);
        act(&mut self.service, reader.as_ref(), &mut out);
        for effect in out {
            match effect {
                service::Effect::Send(message) => {
                    let bytes = match &message.body {
                        StreamBody::Batch(batch) => batch.bytes as u64,
                        _ => 0,
                    };
                    if self.transport(|| Event::ToCollector(message.clone())) {
                        self.wire_bytes += bytes;
                    }
                }
                service::Effect::Scan(job) => {
                    let done = Box::new(job.run(self.reader.as_ref(), &everything()));
                    let at = self.now_ms + self.rng.below(8);
                    let life = self.life;
                    self.schedule(at, Event::Scanned { life, done });
                }
            }
        }
    }

    /// Sends a message; false if it is lost.
    fn transport(&mut self, event: impl Fn() -> Event) -> bool {
        if self.now_ms >= self.calm_from_ms {
            self.schedule(self.now_ms + CALM_DELAY_MS, event());
            return true;
        }
        let faults = self.scenario.faults;
        if self.rng.percent(faults.drop_percent) {
            return false;
        }
        let copies = if self.rng.percent(faults.double_percent) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let late = if self.rng.percent(faults.late_percent) {
                3_000
            } else {
                0
            };
            let delay = CALM_DELAY_MS + self.rng.below(faults.delay_ms) + self.rng.below(late + 1);
            self.schedule(self.now_ms + delay, event());
        }
        true
    }

    fn with_pipeline(
        &mut self,
        act: impl FnOnce(&mut Pipeline, u64, &mut Outside<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut out = Vec::new();
        {
            let history = self.store.history();
            let mut outside = Outside {
                history: &history,
                downstream: &mut self.downstream,
                rng: &mut self.rng,
                out: &mut out,
            };
            act(&mut self.pipeline, self.now_ms, &mut outside)?;
        }
        let generation = self.generation;
        for outgoing in out {
            match outgoing {
                Outgoing::Service(message) => {
                    self.transport(|| Event::ToService(message.clone()));
                }
                Outgoing::Sink(at, step) => self.schedule(at, Event::Sink { generation, step }),
                Outgoing::Reform => self.schedule(self.now_ms, Event::Reform { generation }),
                Outgoing::Save(update) => {
                    let at = self.now_ms + self.rng.below(30);
                    self.schedule(at, Event::Saved { generation, update });
                }
            }
        }
        Ok(())
    }

    fn restart_changefeed(&mut self) -> Result<(), String> {
        self.summarize_generation();
        self.generation += 1;
        let config = pipeline_config(&self.scenario, self.generation);
        let mut progress = HashMap::new();
        if self.scenario.exact {
            progress = self.downstream.progress();
        }
        if self.scenario.tied {
            for (table, key) in self.downstream.floors() {
                let known = progress.entry(table).or_insert(key);
                *known = key.max(*known);
            }
        }
        let components = if self.scenario.tied {
            self.downstream.ties.components()
        } else {
            Vec::new()
        };
        self.pipeline = Pipeline::new(&config, &self.saved, progress, components);
        self.with_pipeline(Pipeline::start)
    }

    /// Saved progress never passes what is durable.
    fn save(&mut self, update: &SaveProgress) -> Result<(), String> {
        let history = self.store.history();
        for (table, key) in &update.changed {
            if !self.downstream.holds_all(&history, table, *key) {
                return Err(format!(
                    "the token {key} of {table} passes rows that are not durable"
                ));
            }
        }
        drop(history);
        self.saved.apply(update);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        let history = self.store.history();
        self.fed == self.scenario.steps
            && self.now_ms > self.calm_from_ms
            && self.pipeline.maintainer.checkpoint() >= OrderKey::end_of(history.end)
            && self.pipeline.maintainer.open_barriers() == 0
    }

    fn summarize_generation(&mut self) {
        self.summary.resets += self.pipeline.collector.counters().resets.iter().sum::<u64>();
        self.summary.lane_rows += self.service.counters().lane_rows;
        self.summary.mixed += self.pipeline.sink.mixed;
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), event);
    }
}

fn open_store(scenario: &Scenario, model: &Arc<ModelStore>) -> (Arc<dyn StoreReader>, Option<MemoryWriter>) {
    let options = MemoryOptions {
        lineage: Some(model.lineage()),
        ..MemoryOptions::default()
    };
    match MemoryStore::open(options) {
        Ok((_, writer, reader)) if scenario.memory_store => (reader, Some(writer)),
        _ => (Arc::clone(model) as Arc<dyn StoreReader>, None),
    }
}

fn sync(writer: &mut MemoryWriter, input: StoreInput) -> Result<(), StoreError> {
    writer
        .append(input, u64::MAX / 2)
        .map_err(|refused| refused.error)?;
    match writer.commit_group()? {
        Some(ticket) => ticket.wait().map(drop),
        None => Ok(()),
    }
}

fn pipeline_config(scenario: &Scenario, generation: u64) -> PipelineConfig {
    PipelineConfig {
        generation: Generation(generation),
        budget_bytes: scenario.budget_bytes,
        seed: scenario.seed,
        sink_delay: scenario.sink_delay,
        tied: scenario.tied,
        slow: scenario.slow.clone(),
    }
}
