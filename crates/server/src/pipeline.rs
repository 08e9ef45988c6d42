//! One generation of a changefeed's pipeline: built bottom-up, stopped in the direction
//! of the flow. Only wiring; what stages do is in their crates.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, WeakRecipient};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use weir_actor::{ActorExited, ExitGuard, NamedArbiter, post_to};
use weir_changefeed::{
    Maintainer, MaintainerConfig, MaintainerParts, Progress as SavedProgress, StopMaintainer, TokenSource,
};
use weir_config::SinkUri;
use weir_event_collector::{CollectorConfig, EventCollector, ServiceLinks, StopCollector, WindowPolicy};
use weir_event_service::{AttachCollector, EventService, EventServiceOptions, ScanPolicy, StopService};
use weir_event_store::actor::{AttachSource, StopStore, StoreActor, StoreOutlets};
use weir_event_store::{LogReader, LogWriter, StoreReader};
use weir_sink::{SinkActor, StopSink};
use weir_source::actor::{BinlogReader, SourceOptions, SourceOutlets, StopSource};
use weir_types::{CommitTs, ErrorReport, Generation, OrderKey, TableName};

use crate::blueprint::{Blueprint, Opened, beginning};
use crate::error::ServerError;
use crate::factory::FactoryParts;
use crate::owner::{OwnerEvent, PipelineOwner};
use crate::translate;

/// How long all stages may take to end; longer than the sink gives its target.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

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
    pub(crate) service: Addr<EventService>,
    sink: Addr<SinkActor>,
    reader: Arc<LogReader>,
    // Kept for as long as the stages live; dropping them ends their threads.
    _owner: Addr<PipelineOwner>,
    _arbiters: [NamedArbiter; 2],
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
    pub(crate) async fn build(
        blueprint: &Blueprint,
        opened: Opened,
        generation: Generation,
    ) -> Result<Self, ErrorReport> {
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
            let (prepared, released, exit) = (
                opened.sink.prepared,
                collector.clone().recipient(),
                exits.guard("sink"),
            );
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
                sink_progress: opened.sink.progress,
                components: opened.sink.components,
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
        let source = start_source(opened.source, &store, &owner, &exits);
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
    ///
    /// # Errors
    /// A stage does not end in time: its thread may go on for a while, and is not to be
    /// trusted.
    pub(crate) async fn stop(mut self) -> Result<(), ErrorReport> {
        let stopped = tokio::time::timeout(STOP_TIMEOUT, self.stop_all()).await;
        stopped.map_err(|_| {
            let stages: Vec<&str> = self.missing.iter().copied().collect();
            tracing::warn!(?stages, "stages do not end");
            ErrorReport::new(&ServerError::StopTimeout {
                seconds: STOP_TIMEOUT.as_secs(),
            })
        })
    }

    async fn stop_all(&mut self) {
        self.stop_source();
        self.stop_store().await;
        post_to(&self.service, StopService);
        post_to(&self.collector, StopCollector);
        let _ended = self.sink.send(StopSink).await;
        post_to(&self.maintainer, StopMaintainer);
        while !self.missing.is_empty() {
            match self.events.recv().await {
                Some(OwnerEvent::Exited(exited)) => self.exited(exited.stage),
                Some(_) => {}
                None => break,
            }
        }
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
        policy: ScanPolicy::PerDispatcher,
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
        budget_bytes: match &blueprint.changefeed.sink.uri {
            SinkUri::Kafka(_) => blueprint.memory.with_client_queue().0,
            _ => blueprint.memory.changefeed_queue,
        },
        seed: generation.0,
        windows: WindowPolicy::PerDispatcher,
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
    components: Vec<Vec<TableName>>,
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
        one_server: blueprint.one_server.then(|| Arc::clone(&blueprint.filter)),
        labels: blueprint.labels.clone(),
        exits: exits.clone(),
    };
    let parts = MaintainerParts {
        changefeed: blueprint.changefeed.id.clone(),
        config: MaintainerConfig {
            saved: inputs.saved.keys(),
            sink_progress: inputs.sink_progress,
            components: inputs.components,
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
