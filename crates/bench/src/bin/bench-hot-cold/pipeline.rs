//! Streams of one kind, on the actors that production has: service, collector, dispatchers, sink.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use actix::{Actor, Addr, Context, Handler, WeakRecipient};
use anyhow::{Context as _, Result};
use weir_actor::{ActorExited, ExitGuard, NamedArbiter, post_to};
use weir_dispatcher::{Dispatcher, Links, MaintainerLinks, StopDispatcher, TableLabels};
use weir_event_collector::{
    CollectorConfig, EventCollector, Flow, GetFlow, ServiceLinks, StopCollector, WindowPolicy,
};
use weir_event_service::{
    AttachCollector, Done, EventService, EventServiceOptions, GetDone, ScanPolicy, StopService,
};
use weir_event_store::{LogReader, StoreReader};
use weir_protocol::changefeed::{
    BarrierReached, BarrierWritten, DispatcherFailed, Flushed, Heartbeat, RegisterTable,
};
use weir_protocol::dispatcher::AddDispatcher;
use weir_protocol::service::Span;
use weir_protocol::store::{ResolvedAdvanced, StageFailed};
use weir_sink::contract::Backend;
use weir_sink::{OpenSpan, PreparedSink, SinkActor, SinkCounters, SpanRecipients, SpanTable, StopSink};
use weir_types::{ChangefeedId, CommitTs, DispatcherId, Generation, OrderKey};

use crate::load::table;

/// Checkpoints by number of the table.
pub(crate) type Progress = Arc<Mutex<BTreeMap<usize, OrderKey>>>;

/// Stands where the maintainer does: takes progress, and ends the benchmark when anything fails.
struct Watcher {
    progress: Progress,
    first: usize,
}

impl Actor for Watcher {
    type Context = Context<Self>;
}

impl Handler<Heartbeat> for Watcher {
    type Result = ();

    fn handle(&mut self, message: Heartbeat, _: &mut Self::Context) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.first + message.dispatcher.0 as usize - 1;
        progress.insert(number, message.checkpoint);
    }
}

/// What never happens in this benchmark; were it to, nothing would be measured any more.
macro_rules! never {
    ($($message:ty),*) => {$(
        impl Handler<$message> for Watcher {
            type Result = ();

            fn handle(&mut self, message: $message, _: &mut Self::Context) {
                eprintln!("unexpected: {message:?}");
                std::process::exit(1);
            }
        }
    )*};
}

never!(
    BarrierReached,
    BarrierWritten,
    RegisterTable,
    Flushed,
    DispatcherFailed,
    StageFailed
);

impl Handler<ActorExited> for Watcher {
    type Result = ();

    fn handle(&mut self, exited: ActorExited, _: &mut Self::Context) {
        if !exited.clean {
            eprintln!("unexpected: {exited:?}");
            std::process::exit(1);
        }
    }
}

/// What streams of one kind are made of.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) budget_bytes: u64,
    pub(crate) windows: WindowPolicy,
    pub(crate) policy: ScanPolicy,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) workers: usize,
    /// Tables from here on.
    pub(crate) tables: std::ops::Range<usize>,
    pub(crate) after: CommitTs,
}

/// Streams of one kind.
pub(crate) struct Streams {
    service: Addr<EventService>,
    collector: Addr<EventCollector>,
    sink: Addr<SinkActor>,
    dispatchers: Vec<Addr<Dispatcher>>,
    pub(crate) progress: Progress,
    _watcher: Addr<Watcher>,
    _arbiter: NamedArbiter,
}

impl Streams {
    /// Starts them, from `after` on.
    pub(crate) async fn start(kind: Kind, store: &Arc<LogReader>) -> Result<Self> {
        let progress = Progress::default();
        let watcher = Watcher {
            progress: Arc::clone(&progress),
            first: kind.tables.start,
        }
        .start();
        let exits: WeakRecipient<ActorExited> = watcher.downgrade().recipient();
        let guard = |stage| ExitGuard::new(stage, Generation(1), exits.clone());
        let flow = NamedArbiter::start("flow");
        let (store, policy) = (Arc::clone(store) as Arc<dyn StoreReader>, kind.policy);
        let (failed_to, exit) = (watcher.clone().recipient(), guard("event-service"));
        let service = flow.place(move |_| {
            EventService::new(EventServiceOptions {
                store,
                filter: Arc::new(|_| false),
                max_row_bytes: 64 << 20,
                policy,
                failed_to,
                exit,
            })
        });
        let id = ChangefeedId(Arc::from(kind.name));
        let collector = {
            let links = ServiceLinks {
                reset: service.clone().recipient(),
                grant: service.clone().recipient(),
                pass: service.clone().recipient(),
                remove: service.clone().recipient(),
            };
            let config = CollectorConfig {
                generation: Generation(1),
                budget_bytes: kind.budget_bytes,
                seed: 1,
                windows: kind.windows,
            };
            let (id, exit) = (id.clone(), guard("event-collector"));
            flow.place(move |_| EventCollector::new(&id, &config, links, exit))
        };
        post_to(&service, AttachCollector(collector.clone().recipient()));
        let sink = {
            let counters = Arc::<SinkCounters>::default();
            let prepared =
                PreparedSink::from_backend(kind.backend, kind.name.to_owned(), kind.workers, counters);
            let (released, exit) = (collector.clone().recipient(), guard("sink"));
            let started = flow.run(move || prepared.start(released, exit)).await;
            started.context("the flow thread")??
        };
        let maintainer = MaintainerLinks {
            heartbeat: watcher.clone().recipient(),
            reached: watcher.clone().recipient(),
            written: watcher.clone().recipient(),
            register: watcher.clone().recipient(),
            flushed: watcher.clone().recipient(),
            failed: watcher.clone().recipient(),
        };
        let labels = TableLabels::new(id);
        let after = OrderKey::new(kind.after, 0);
        let mut dispatchers = Vec::new();
        for (place, number) in kind.tables.enumerate() {
            let links = Links {
                sink: sink.clone().recipient(),
                resume: collector.clone().recipient(),
                released: collector.clone().recipient(),
                maintainer: maintainer.clone(),
            };
            let (labels, exit) = (labels.clone(), guard("dispatcher"));
            let dispatcher = DispatcherId(u32::try_from(place)? + 1);
            let (span, sink, collector) = (Span::Table(table(number)), sink.clone(), collector.clone());
            let made = flow.run(move || {
                let actor = Dispatcher::new(dispatcher, span.clone(), after, links, &labels, exit).start();
                let tables = span
                    .tables()
                    .map(|table| SpanTable {
                        source: table.clone(),
                        target: table.clone(),
                        after,
                    })
                    .collect();
                let replies = Arc::new(SpanRecipients {
                    durable: actor.clone().recipient(),
                    ddl_written: actor.clone().recipient(),
                    failed: actor.clone().recipient(),
                });
                post_to(
                    &sink,
                    OpenSpan {
                        dispatcher,
                        tables,
                        replies,
                    },
                );
                let deliver_to = actor.clone().recipient();
                post_to(
                    &collector,
                    AddDispatcher {
                        dispatcher,
                        span,
                        after,
                        deliver_to,
                    },
                );
                actor
            });
            dispatchers.push(made.await.context("the flow thread")?);
        }
        Ok(Self {
            service,
            collector,
            sink,
            dispatchers,
            progress,
            _watcher: watcher,
            _arbiter: flow,
        })
    }

    /// Everything up to `resolved` is in the store.
    pub(crate) fn resolved(&self) -> impl Fn(CommitTs) + Send + Sync + 'static {
        let service = self.service.clone();
        move |resolved| post_to(&service, ResolvedAdvanced { resolved })
    }

    /// How the books stand.
    pub(crate) async fn flow(&self) -> Result<Flow> {
        let tables = std::collections::HashSet::new();
        Ok(self.collector.send(GetFlow { tables }).await?)
    }

    /// What the service has done.
    pub(crate) async fn done(&self) -> Result<Done> {
        Ok(self.service.send(GetDone).await?)
    }

    /// Ends them.
    pub(crate) async fn stop(self) -> Result<()> {
        self.service.send(StopService).await?;
        self.collector.send(StopCollector).await?;
        self.sink.send(StopSink).await?;
        for dispatcher in self.dispatchers {
            dispatcher.send(StopDispatcher).await?;
        }
        Ok(())
    }
}
