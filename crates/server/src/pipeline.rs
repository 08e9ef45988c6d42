//! One generation of a changefeed's pipeline: built bottom-up, stopped in the direction
//! of the flow. Only wiring; what stages do is in their crates.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, WeakRecipient};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use weir_actor::{ActorExited, ExitGuard, NamedArbiter, post_to};
use weir_changefeed::{
    Maintainer, MaintainerConfig, MaintainerParts, Progress as SavedProgress, SharedMetaStore,
    StopMaintainer, TokenSource,
};
use weir_config::{Changefeed, MemoryPlan, Until};
use weir_dispatcher::TableLabels;
use weir_event_collector::{CollectorConfig, EventCollector, ServiceLinks, StopCollector};
use weir_event_service::{AttachCollector, EventService, EventServiceOptions, StopService};
use weir_event_store::actor::{AttachSource, StopStore, StoreActor, StoreOutlets};
use weir_event_store::{LogOptions, LogReader, LogStore, LogWriter, Recovered, StoreReader};
use weir_filter::{Router, TableFilter};
use weir_sink::{PreparedSink, SinkActor, SinkCounters, StopSink};
use weir_source::actor::{BinlogReader, ReadProgress, SourceOptions, SourceOutlets, StopSource};
use weir_source::{AssemblerOptions, Skip};
use weir_types::{CommitTs, ErrorReport, Generation, LineageId, OrderKey, TableName, Token};

use crate::error::ServerError;
use crate::factory::FactoryParts;
use crate::filter_history::FilterHistory;
use crate::owner::{OwnerEvent, PipelineOwner};
use crate::{resume, translate};

/// How long all actors may take to end.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// What every generation of a run shares.
pub(crate) struct Blueprint {
    pub(crate) changefeed: Changefeed,
    pub(crate) filter: Arc<TableFilter>,
    pub(crate) history: Arc<FilterHistory>,
    pub(crate) router: Arc<Router>,
    pub(crate) memory: MemoryPlan,
    pub(crate) store_dir: PathBuf,
    pub(crate) meta: SharedMetaStore,
    pub(crate) until: Option<Until>,
    pub(crate) counters: Arc<SinkCounters>,
    pub(crate) labels: TableLabels,
    pub(crate) read: Arc<ReadProgress>,
}

/// The stages of one generation.
pub(crate) struct Pipeline {
    pub(crate) events: UnboundedReceiver<OwnerEvent>,
    pub(crate) maintainer: Addr<Maintainer>,
    pub(crate) collector: Addr<EventCollector>,
    /// There was progress before this generation.
    pub(crate) resumed: bool,
    /// Stages whose exit has not been reported.
    missing: HashSet<&'static str>,
    source: Addr<BinlogReader>,
    store: Addr<StoreActor>,
    service: Addr<EventService>,
    sink: Addr<SinkActor>,
    reader: Arc<LogReader>,
    // Kept for as long as the stages live; dropping them ends their threads.
    _owner: Addr<PipelineOwner>,
    _arbiters: [NamedArbiter; 2],
}

/// The parts that are opened before any actor exists.
struct Opened {
    recovered: Recovered,
    writer: LogWriter,
    reader: Arc<LogReader>,
    saved: SavedProgress,
    resumed: bool,
    sink: PreparedSink,
    sink_progress: HashMap<TableName, OrderKey>,
}

impl Blueprint {
    fn log_options(&self) -> LogOptions {
        LogOptions {
            segment_bytes: self.changefeed.store.segment_size.bytes(),
            memory_bytes: to_usize(self.memory.store_tail),
            index_bytes: to_usize(self.memory.store_index),
            disk_quota: self.changefeed.store.disk_quota.bytes(),
            ..LogOptions::default()
        }
    }

    /// Opens store, saved progress and sink, and checks that they belong together.
    fn open(&self) -> Result<Opened, ErrorReport> {
        let (recovered, writer, reader) =
            LogStore::open(&self.store_dir, self.log_options()).map_err(|e| ErrorReport::new(&e))?;
        let (saved, resumed) = self.saved_progress(&recovered)?;
        let config = translate::sink_config(&self.changefeed, recovered.lineage, resumed, &self.router)
            .ok_or_else(|| translate::unsupported("sink.uri = mysql://"))?;
        let sink = PreparedSink::new(config, Arc::clone(&self.counters)).map_err(|e| ErrorReport::new(&e))?;
        resume::check_output(sink.progress(), recovered.resolved).map_err(|e| ErrorReport::new(&e))?;
        let sink_progress = self.sink_progress(&recovered, &reader, &saved, &sink)?;
        Ok(Opened {
            recovered,
            writer,
            reader,
            saved,
            resumed,
            sink,
            sink_progress,
        })
    }

    /// Loads saved progress, or writes a start. The start is durable before the source
    /// reads, so that a store with rows always has one.
    fn saved_progress(&self, recovered: &Recovered) -> Result<(SavedProgress, bool), ErrorReport> {
        let mut meta = self
            .meta
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let loaded = meta.load().map_err(|e| ErrorReport::new(&e))?;
        if let Some(saved) = loaded {
            if saved.start.lineage != recovered.lineage {
                return Err(ErrorReport::new(&ServerError::LineageMismatch {
                    saved: saved.start.lineage.to_string(),
                    store: recovered.lineage.to_string(),
                }));
            }
            resume::check_saved(&saved, recovered.resolved).map_err(|e| ErrorReport::new(&e))?;
            let resumed = recovered.resolved > CommitTs::ZERO;
            return Ok((saved, resumed));
        }
        if recovered.resolved > CommitTs::ZERO {
            let resolved = recovered.resolved;
            return Err(ErrorReport::new(&ServerError::ProgressMissing { resolved }));
        }
        let fresh = SavedProgress::fresh(&beginning(recovered.lineage), []);
        meta.init(&fresh).map_err(|e| ErrorReport::new(&e))?;
        Ok((fresh, false))
    }

    /// What the output says about every table that may be registered: those that have
    /// a token, and all that the DDL history behind the schema's token names (a table
    /// may have been made, filled and dropped since the last save).
    fn sink_progress(
        &self,
        recovered: &Recovered,
        reader: &LogReader,
        saved: &SavedProgress,
        sink: &PreparedSink,
    ) -> Result<HashMap<TableName, OrderKey>, ErrorReport> {
        let mut tables: HashSet<TableName> = saved.tables.keys().cloned().collect();
        let upto = OrderKey::end_of(recovered.resolved);
        let history = reader
            .ddls(saved.schema.key, upto, 0)
            .map_err(|e| ErrorReport::new(&e))?;
        for (_, event) in &history.ddls {
            tables.extend(event.writes.iter().chain(&event.makes).cloned());
        }
        tables.retain(|table| !table.table.is_empty());
        let last = |table: TableName| {
            let key = sink.progress().last(&self.router.route(&table))?;
            Some((table, key))
        };
        Ok(tables.into_iter().filter_map(last).collect())
    }

    fn source_options(&self, recovered: &Recovered) -> Result<SourceOptions, ErrorReport> {
        let event_bytes_max = self.changefeed.source.max_event_size.bytes();
        let assembler = AssemblerOptions {
            filter: Arc::clone(&self.filter),
            known: recovered.tables.iter().map(|(name, _)| name.clone()).collect(),
            next_attempt: recovered.next_attempt,
            transaction_buffer_bytes: to_usize(self.memory.transaction_buffer),
            event_bytes_max,
            skip: Skip::Nothing,
        };
        let files =
            translate::files_options(&self.changefeed, self.until.as_ref(), recovered.position.clone());
        Ok(SourceOptions {
            changefeed: self.changefeed.id.to_string(),
            files: files.ok_or_else(|| translate::unsupported("source.uri = mysql://"))?,
            assembler,
            window_bytes: to_usize(self.memory.store_in_flight),
            progress: Arc::clone(&self.read),
        })
    }
}

/// The token before everything.
fn beginning(lineage: LineageId) -> Token {
    Token {
        lineage,
        key: OrderKey::MIN,
        position: None,
        gtid: None,
        open_xa: Vec::new(),
    }
}

pub(crate) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Makes the tokens that progress is saved as.
fn token_source(reader: &Arc<LogReader>) -> TokenSource {
    let reader = Arc::clone(reader);
    let lineage = reader.lineage();
    Arc::new(move |key| {
        if key == OrderKey::MIN {
            return Ok(beginning(lineage));
        }
        reader.token(key).map_err(|e| ErrorReport::new(&e))
    })
}

/// Exit guards of one generation.
#[derive(Clone)]
pub(crate) struct Exits {
    generation: Generation,
    report_to: WeakRecipient<ActorExited>,
}

impl Exits {
    pub(crate) fn guard(&self, stage: &'static str) -> ExitGuard {
        ExitGuard::new(stage, self.generation, self.report_to.clone())
    }
}

/// Stages whose exit a stop waits for. Dispatchers end with their thread.
const STAGES: [&str; 6] = [
    "source",
    "event-store",
    "event-service",
    "event-collector",
    "sink",
    "maintainer",
];

impl Pipeline {
    /// Builds a generation.
    pub(crate) async fn build(blueprint: &Blueprint, generation: Generation) -> Result<Self, ErrorReport> {
        let opened = blueprint.open()?;
        let source_options = blueprint.source_options(&opened.recovered)?;
        let (events_in, events) = unbounded_channel();
        let owner = PipelineOwner { events: events_in }.start();
        let exits = Exits {
            generation,
            report_to: owner.downgrade().recipient(),
        };
        let (flow, disk) = (NamedArbiter::start("flow"), NamedArbiter::start("store"));
        let reader = Arc::clone(&opened.reader);

        let service = place_service(blueprint, &reader, &flow, &owner, &exits);
        let collector = place_collector(blueprint, generation, &flow, &service, &exits);
        post_to(&service, AttachCollector(collector.clone().recipient()));

        let sink = {
            let (prepared, released, exit) =
                (opened.sink, collector.clone().recipient(), exits.guard("sink"));
            flow.run(move || prepared.start(released, exit))
                .await
                .ok_or_else(|| ErrorReport::new(&ServerError::StageLost { stage: "flow" }))?
                .map_err(|e| ErrorReport::new(&e))?
        };
        let store = place_store(blueprint, opened.writer, &disk, &service, &owner, &exits);
        let maintainer = place_maintainer(
            blueprint,
            MaintainerInputs {
                saved: &opened.saved,
                sink_progress: opened.sink_progress,
                tokens: token_source(&reader),
            },
            &flow,
            Neighbours {
                collector: &collector,
                store: &store,
                sink: &sink,
                owner: &owner,
            },
            &exits,
        );
        let source = start_source(source_options, &store, &owner, &exits);
        Ok(Self {
            events,
            maintainer,
            collector,
            resumed: opened.resumed,
            missing: STAGES.into(),
            source,
            store,
            service,
            sink,
            reader,
            _owner: owner,
            _arbiters: [flow, disk],
        })
    }

    /// Everything that the store holds is at or below this.
    pub(crate) fn resolved(&self) -> CommitTs {
        self.reader.resolved()
    }

    /// Tells the source to stop; what it has sent goes on.
    pub(crate) fn stop_source(&self) {
        post_to(&self.source, StopSource);
    }

    /// Syncs what the source has sent; the source must have been stopped.
    pub(crate) async fn stop_store(&self) {
        // An actor that has ended already has nothing to sync.
        let _ended = self.store.send(StopStore).await;
    }

    /// Takes note of an exit.
    pub(crate) fn exited(&mut self, stage: &'static str) {
        self.missing.remove(stage);
    }

    /// Ends all stages and waits for their exits.
    pub(crate) async fn stop(mut self) -> Result<(), ErrorReport> {
        self.stop_source();
        self.stop_store().await;
        post_to(&self.service, StopService);
        post_to(&self.collector, StopCollector);
        let _ended = self.sink.send(StopSink).await;
        post_to(&self.maintainer, StopMaintainer);
        let all = async {
            while !self.missing.is_empty() {
                match self.events.recv().await {
                    Some(OwnerEvent::Exited(exited)) => self.exited(exited.stage),
                    Some(_) => {}
                    None => break,
                }
            }
        };
        tokio::time::timeout(EXIT_TIMEOUT, all).await.map_err(|_| {
            ErrorReport::new(&ServerError::StopTimeout {
                seconds: EXIT_TIMEOUT.as_secs(),
            })
        })
    }
}

fn place_service(
    blueprint: &Blueprint,
    reader: &Arc<LogReader>,
    flow: &NamedArbiter,
    owner: &Addr<PipelineOwner>,
    exits: &Exits,
) -> Addr<EventService> {
    let filter = Arc::clone(&blueprint.filter);
    let options = EventServiceOptions {
        store: Arc::clone(reader) as Arc<dyn StoreReader>,
        filter: Arc::new(move |event| translate::ddl_wanted(&filter, event)),
        max_row_bytes: blueprint.changefeed.flow_control.max_row_size.bytes(),
        failed_to: owner.clone().recipient(),
        exit: exits.guard("event-service"),
    };
    flow.place(move |_| EventService::new(options))
}

fn place_store(
    blueprint: &Blueprint,
    writer: LogWriter,
    disk: &NamedArbiter,
    service: &Addr<EventService>,
    owner: &Addr<PipelineOwner>,
    exits: &Exits,
) -> Addr<StoreActor> {
    let outlets = StoreOutlets {
        detached: service.clone().recipient(),
        resolved: service.clone().recipient(),
        failed: owner.downgrade().recipient(),
    };
    let changefeed = blueprint.changefeed.id.to_string();
    let exit = exits.guard("event-store");
    disk.place(move |_| StoreActor::new(Box::new(writer), outlets, &changefeed, Some(exit)))
}

fn start_source(
    options: SourceOptions,
    store: &Addr<StoreActor>,
    owner: &Addr<PipelineOwner>,
    exits: &Exits,
) -> Addr<BinlogReader> {
    let outlets = SourceOutlets {
        store: store.clone().recipient(),
        ended: owner.clone().recipient(),
        failed: owner.clone().recipient(),
    };
    let (exit, store) = (exits.guard("source"), store.clone());
    BinlogReader::create(move |ctx| {
        // The way back exists before the first batch is sent.
        let persisted = ctx.address().downgrade().recipient();
        post_to(&store, AttachSource { persisted });
        BinlogReader::new(options, outlets, exit)
    })
}

fn place_collector(
    blueprint: &Blueprint,
    generation: Generation,
    flow: &NamedArbiter,
    service: &Addr<EventService>,
    exits: &Exits,
) -> Addr<EventCollector> {
    let id = blueprint.changefeed.id.clone();
    let config = CollectorConfig {
        generation,
        budget_bytes: blueprint.memory.changefeed_queue,
        seed: generation.0,
    };
    let links = ServiceLinks {
        reset: service.clone().recipient(),
        grant: service.clone().recipient(),
        pass: service.clone().recipient(),
        remove: service.clone().recipient(),
    };
    let exit = exits.guard("event-collector");
    flow.place(move |_| EventCollector::new(&id, &config, links, exit))
}

struct MaintainerInputs<'a> {
    saved: &'a SavedProgress,
    sink_progress: HashMap<TableName, OrderKey>,
    tokens: TokenSource,
}

struct Neighbours<'a> {
    collector: &'a Addr<EventCollector>,
    store: &'a Addr<StoreActor>,
    sink: &'a Addr<SinkActor>,
    owner: &'a Addr<PipelineOwner>,
}

fn place_maintainer(
    blueprint: &Blueprint,
    inputs: MaintainerInputs<'_>,
    flow: &NamedArbiter,
    neighbours: Neighbours<'_>,
    exits: &Exits,
) -> Addr<Maintainer> {
    let filter = Arc::clone(&blueprint.filter);
    let factory = FactoryParts {
        sink: neighbours.sink.clone(),
        collector: neighbours.collector.clone(),
        router: Arc::clone(&blueprint.router),
        history: Arc::clone(&blueprint.history),
        labels: blueprint.labels.clone(),
        exits: exits.clone(),
    };
    let parts = MaintainerParts {
        changefeed: blueprint.changefeed.id.clone(),
        config: MaintainerConfig {
            saved: inputs.saved.keys(),
            sink_progress: inputs.sink_progress,
            wants: Arc::new(move |table| filter.matches(table)),
        },
        store: Arc::clone(&blueprint.meta),
        tokens: inputs.tokens,
        factory: factory.into_factory(),
        collector: neighbours.collector.clone().recipient(),
        gc: neighbours.store.clone().recipient(),
        owner: neighbours.owner.clone().recipient(),
        exit: exits.guard("maintainer"),
    };
    flow.place(move |_| Maintainer::new(parts))
}
