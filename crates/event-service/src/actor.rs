//! The event service as an actor: connects the state machine with the store, the scan
//! threads and the collector.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle};
use weir_actor::{ExitGuard, post, post_to};
use weir_event_store::StoreReader;
use weir_protocol::collector::{ServiceIncarnation, StreamMessages};
use weir_protocol::service::{GrantCredit, PassBarrier, Remove, Reset};
use weir_protocol::store::{ResolvedAdvanced, StageFailed, TableDetached};
use weir_types::{CommitTs, ErrorReport};

use crate::core::{Effect, SCANS_MAX, ServiceConfig, ServiceCore};
use crate::metrics::ServiceMetrics;
use crate::policy::ScanPolicy;
use crate::pool::{OnDone, ScanPool};
use crate::scan::{DdlFilter, ScanDone};

/// What the actor is given.
pub struct EventServiceOptions {
    /// The store's reading side.
    pub store: Arc<dyn StoreReader>,
    /// Which DDL the schema span is to see.
    pub filter: DdlFilter,
    /// A single row event that takes more fails its table, bytes.
    pub max_row_bytes: u64,
    /// What bounds how far streams read, besides their credit.
    pub policy: ScanPolicy,
    /// Told when the service cannot go on.
    pub failed_to: Recipient<StageFailed>,
    /// Reports how the actor ended.
    pub exit: ExitGuard,
}

/// A changefeed's collector takes its streams from here on. Those of the collector
/// before, if any, are forgotten, so that this comes before the first dispatcher is
/// added to the new one.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AttachCollector(pub Recipient<StreamMessages>);

/// End on purpose: nothing more is sent.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopService;

#[derive(Message)]
#[rtype(result = "()")]
struct ScanFinished(ScanDone);

/// The event service.
pub struct EventService {
    pub(crate) core: ServiceCore,
    store: Arc<dyn StoreReader>,
    collector: Option<Recipient<StreamMessages>>,
    pool: Option<ScanPool>,
    failed_to: Recipient<StageFailed>,
    metrics: ServiceMetrics,
    started: Instant,
    effects: Vec<Effect>,
    timer: Option<(u64, SpawnHandle)>,
    exported_ms: u64,
    exit: ExitGuard,
}

/// Time between two exports of metrics, milliseconds.
const EXPORT_MS: u64 = 250;

impl EventService {
    /// A service over a store.
    pub fn new(options: EventServiceOptions) -> Self {
        let config = ServiceConfig {
            incarnation: ServiceIncarnation(unix_nanos()),
            max_row_bytes: options.max_row_bytes,
            scans_max: SCANS_MAX,
            policy: options.policy,
        };
        let resolved = options.store.resolved();
        Self {
            core: ServiceCore::new(config, options.filter, resolved),
            store: options.store,
            collector: None,
            pool: None,
            failed_to: options.failed_to,
            metrics: ServiceMetrics::new(),
            started: Instant::now(),
            effects: Vec::new(),
            timer: None,
            exported_ms: 0,
            exit: options.exit,
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Carries out what the core asked for.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        let mut messages = Vec::new();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Send(message) => messages.push(message),
                Effect::Scan(job) => {
                    if let Some(pool) = &self.pool {
                        pool.submit(job);
                    }
                }
            }
        }
        if let Some(collector) = &self.collector
            && !messages.is_empty()
        {
            post(collector, StreamMessages(messages));
        }
        self.arm(ctx);
    }

    /// One timer, for the earliest time at which the core has something to do.
    fn arm(&mut self, ctx: &mut Context<Self>) {
        let wait_ms = self.core.next_tick_ms();
        let due_ms = self.now_ms() + wait_ms;
        if let Some((armed_ms, handle)) = self.timer {
            if armed_ms <= due_ms {
                return;
            }
            ctx.cancel_future(handle);
        }
        let handle = ctx.run_later(Duration::from_millis(wait_ms), |actor, ctx| {
            actor.timer = None;
            actor.tick(ctx);
        });
        self.timer = Some((due_ms, handle));
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let now_ms = self.now_ms();
        self.core.tick(now_ms, self.store.as_ref(), &mut self.effects);
        if now_ms >= self.exported_ms + EXPORT_MS {
            self.exported_ms = now_ms;
            self.metrics.export(&self.core, unix_nanos() / 1_000_000);
        }
        self.settle(ctx);
    }
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Results go back as messages; the threads do not keep the actor alive.
fn reporter(address: &Addr<EventService>) -> OnDone {
    let weak = address.downgrade();
    Arc::new(move |done| {
        if let Some(address) = weak.upgrade() {
            post_to(&address, ScanFinished(done));
        }
    })
}

impl Actor for EventService {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        match ScanPool::start(
            SCANS_MAX,
            &self.store,
            &self.core.filter(),
            &reporter(&ctx.address()),
        ) {
            Ok(pool) => self.pool = Some(pool),
            Err(error) => {
                tracing::error!(%error, "scan threads cannot be started");
                let error = ErrorReport::new(&crate::error::ServiceError::Threads);
                post(
                    &self.failed_to,
                    StageFailed {
                        stage: "event-service",
                        error,
                    },
                );
            }
        }
        self.arm(ctx);
    }
}

impl Handler<AttachCollector> for EventService {
    type Result = ();

    fn handle(&mut self, message: AttachCollector, ctx: &mut Self::Context) {
        self.core.remove_all();
        self.collector = Some(message.0);
        self.settle(ctx);
    }
}

impl Handler<Reset> for EventService {
    type Result = ();

    fn handle(&mut self, message: Reset, ctx: &mut Self::Context) {
        self.core.reset(self.now_ms(), &message, &mut self.effects);
        self.settle(ctx);
    }
}

impl Handler<GrantCredit> for EventService {
    type Result = ();

    fn handle(&mut self, message: GrantCredit, ctx: &mut Self::Context) {
        self.core
            .grant(self.now_ms(), &message, self.store.as_ref(), &mut self.effects);
        self.settle(ctx);
    }
}

impl Handler<PassBarrier> for EventService {
    type Result = ();

    fn handle(&mut self, message: PassBarrier, ctx: &mut Self::Context) {
        self.core
            .pass_barrier(self.now_ms(), &message, self.store.as_ref(), &mut self.effects);
        self.settle(ctx);
    }
}

impl Handler<Remove> for EventService {
    type Result = ();

    fn handle(&mut self, message: Remove, ctx: &mut Self::Context) {
        self.core.remove(self.now_ms(), &message);
        self.settle(ctx);
    }
}

impl Handler<ResolvedAdvanced> for EventService {
    type Result = ();

    fn handle(&mut self, message: ResolvedAdvanced, ctx: &mut Self::Context) {
        let resolved: CommitTs = message.resolved;
        let now_ms = self.now_ms();
        let advanced = self
            .core
            .resolved_advanced(now_ms, resolved, self.store.as_ref(), &mut self.effects);
        if let Err(error) = advanced {
            let error = ErrorReport::new(&error);
            post(
                &self.failed_to,
                StageFailed {
                    stage: "event-service",
                    error,
                },
            );
        }
        self.settle(ctx);
    }
}

impl Handler<TableDetached> for EventService {
    type Result = ();

    fn handle(&mut self, message: TableDetached, ctx: &mut Self::Context) {
        let now_ms = self.now_ms();
        self.core
            .detached(now_ms, &message.table, self.store.as_ref(), &mut self.effects);
        self.settle(ctx);
    }
}

impl Handler<ScanFinished> for EventService {
    type Result = ();

    fn handle(&mut self, message: ScanFinished, ctx: &mut Self::Context) {
        self.core
            .scan_done(self.now_ms(), message.0, self.store.as_ref(), &mut self.effects);
        self.settle(ctx);
    }
}

impl Handler<StopService> for EventService {
    type Result = ();

    fn handle(&mut self, _: StopService, ctx: &mut Self::Context) {
        self.exit.mark_clean();
        self.collector = None;
        ctx.stop();
    }
}
