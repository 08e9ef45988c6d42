//! The maintainer as an actor: moves the messages of one [`MaintainerCore`].
//!
//! * In: heartbeats, barrier reports, registrations, failures and flush answers of the
//!   dispatchers; `RunUntil`, `StopClean`, `StopMaintainer`, `GetStatus` from the owner.
//! * Out: barrier actions and flushes to the dispatchers; `RemoveDispatcher` to the
//!   collector; `AdvanceGc` to the store; `MaintainerEvent` to the owner.
//! * Dispatchers are made by an injected factory, which opens the span at the sink,
//!   starts the actor and tells the collector.
//! * Memory: a few hundred bytes per table; reports are bounded by dispatchers.
//! * Failure: the owner is told and rebuilds the whole pipeline.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, MessageResult, Recipient};
use weir_actor::{ExitGuard, post, post_to};
use weir_protocol::changefeed::{
    BarrierReached, BarrierWritten, DispatcherFailed, Flushed, Heartbeat, RegisterTable,
};
use weir_protocol::dispatcher::{BarrierAction, EndDispatcher, FlushNow, RemoveDispatcher};
use weir_protocol::service::Span;
use weir_protocol::store::AdvanceGc;
use weir_types::{ChangefeedId, CommitTs, DispatcherId, ErrorReport, OrderKey, TableName};

use super::core::{Effect, MaintainerConfig, MaintainerCore};
use super::finish::Failure;
use super::progress::SaveProgress;
use crate::metrics::{MaintainerMetrics, SaverMetrics};
use crate::saver::{SaveDone, Saver, SharedMetaStore, TokenSource};

/// Time between two ticks.
pub const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// The ways to one dispatcher.
#[derive(Clone)]
pub struct DispatcherHandles {
    /// What to do at a DDL.
    pub barrier: Recipient<BarrierAction>,
    /// Make everything durable.
    pub flush: Recipient<FlushNow>,
    /// The table is gone.
    pub end: Recipient<EndDispatcher>,
}

/// Makes a dispatcher: opens its span at the sink, starts its actor with the maintainer's
/// address, adds it to the collector.
pub type DispatcherFactory = Box<
    dyn FnMut(DispatcherId, Span, OrderKey, &Addr<Maintainer>) -> Result<DispatcherHandles, ErrorReport>
        + Send,
>;

/// What the owner learns.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub enum MaintainerEvent {
    /// The checkpoint was saved.
    Progress {
        /// Minimum over all dispatchers.
        checkpoint: OrderKey,
    },
    /// A table has stopped; the others go on.
    TableFailed {
        /// The table.
        table: TableName,
        /// Why.
        error: ErrorReport,
    },
    /// A DDL waits for a failed table.
    Blocked(ErrorReport),
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
    /// Spans have to be formed anew: progress is saved, and the next generation is to be
    /// built at once. Not a failure.
    Reform,
}

/// The run ends when everything up to and including `target` is durable.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct RunUntil {
    /// Last transaction that counts.
    pub target: CommitTs,
}

/// The run ends when everything delivered is durable and saved.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopClean {
    /// Longest wait.
    pub within: Duration,
}

/// End on purpose, at once.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopMaintainer;

/// How the changefeed stands.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Status")]
pub struct GetStatus;

/// Answer to `GetStatus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Minimum over all dispatchers.
    pub checkpoint: OrderKey,
    /// The schema dispatcher's.
    pub schema_checkpoint: OrderKey,
    /// Checkpoint per table, and why it has stopped.
    pub tables: Vec<(TableName, OrderKey, Option<ErrorReport>)>,
    /// DDLs that are waited at.
    pub open_barriers: usize,
}

/// What a maintainer is made of.
pub struct MaintainerParts {
    /// The changefeed.
    pub changefeed: ChangefeedId,
    /// Where it starts.
    pub config: MaintainerConfig,
    /// Where progress is saved.
    pub store: SharedMetaStore,
    /// Makes tokens of keys.
    pub tokens: TokenSource,
    /// Makes dispatchers.
    pub factory: DispatcherFactory,
    /// The collector.
    pub collector: Recipient<RemoveDispatcher>,
    /// The event store.
    pub gc: Recipient<AdvanceGc>,
    /// The owner.
    pub owner: Recipient<MaintainerEvent>,
    /// Reports the exit.
    pub exit: ExitGuard,
}

/// The maintainer of one changefeed's pipeline.
pub struct Maintainer {
    core: MaintainerCore,
    parts: Option<(SharedMetaStore, TokenSource)>,
    saver: Option<Saver>,
    factory: DispatcherFactory,
    dispatchers: HashMap<DispatcherId, DispatcherHandles>,
    collector: Recipient<RemoveDispatcher>,
    gc: Recipient<AdvanceGc>,
    owner: Recipient<MaintainerEvent>,
    changefeed: ChangefeedId,
    metrics: MaintainerMetrics,
    started: Instant,
    effects: Vec<Effect>,
    exit: ExitGuard,
}

impl Maintainer {
    /// A maintainer that begins when its actor starts.
    pub fn new(parts: MaintainerParts) -> Self {
        Self {
            core: MaintainerCore::new(parts.config),
            parts: Some((parts.store, parts.tokens)),
            saver: None,
            factory: parts.factory,
            dispatchers: HashMap::new(),
            collector: parts.collector,
            gc: parts.gc,
            owner: parts.owner,
            metrics: MaintainerMetrics::new(&parts.changefeed),
            changefeed: parts.changefeed,
            started: Instant::now(),
            effects: Vec::new(),
            exit: parts.exit,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// One input of the state machine, then what it asks for.
    fn turn(&mut self, ctx: &Context<Self>, input: impl FnOnce(&mut MaintainerCore, u64, &mut Vec<Effect>)) {
        let now_ms = self.now_ms();
        input(&mut self.core, now_ms, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.carry_out(effect, ctx);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect, ctx: &Context<Self>) {
        match effect {
            Effect::Create { id, span, after } => self.create(id, span, after, ctx),
            Effect::End(message) => {
                let dispatcher = message.dispatcher;
                post(&self.collector, RemoveDispatcher { dispatcher });
                if let Some(handles) = self.dispatchers.remove(&dispatcher) {
                    post(&handles.end, message);
                }
            }
            Effect::Detach(dispatcher) => post(&self.collector, RemoveDispatcher { dispatcher }),
            Effect::Barrier(message) => {
                if let Some(handles) = self.dispatchers.get(&message.dispatcher) {
                    post(&handles.barrier, message);
                }
            }
            Effect::Flush(message) => {
                match self.dispatchers.get(&message.dispatcher) {
                    Some(handles) => post(&handles.flush, message),
                    // It could not be made, so that nothing was delivered to it.
                    None => post_to(
                        &ctx.address(),
                        Flushed {
                            dispatcher: message.dispatcher,
                        },
                    ),
                }
            }
            Effect::Save(update) => self.save(update),
            Effect::AdvanceGc(message) => post(&self.gc, message),
            Effect::TableFailed { table, error } => {
                tracing::error!(changefeed = %self.changefeed, code = error.code, "table `{table}` stopped: {error}");
                post(&self.owner, MaintainerEvent::TableFailed { table, error });
            }
            Effect::Blocked(error) => {
                tracing::warn!(changefeed = %self.changefeed, code = error.code, "{error}");
                post(&self.owner, MaintainerEvent::Blocked(error));
            }
            Effect::BarrierPassed { waited_ms } => self.metrics.barrier_passed(waited_ms),
            Effect::Failed(error) => post(&self.owner, MaintainerEvent::Failed(error)),
            Effect::CaughtUp { failed } => post(&self.owner, MaintainerEvent::CaughtUp { failed }),
            Effect::Stopped { clean } => post(&self.owner, MaintainerEvent::Stopped { clean }),
            Effect::Reform => {
                tracing::info!(changefeed = %self.changefeed, "tables are tied to each other otherwise than before: spans are formed anew");
                post(&self.owner, MaintainerEvent::Reform);
            }
        }
    }

    fn create(&mut self, id: DispatcherId, span: Span, after: OrderKey, ctx: &Context<Self>) {
        match (self.factory)(id, span, after, &ctx.address()) {
            Ok(handles) => {
                self.dispatchers.insert(id, handles);
            }
            // As if it had started and failed: a table's error stops the table.
            Err(error) => post_to(
                &ctx.address(),
                DispatcherFailed {
                    dispatcher: id,
                    error,
                },
            ),
        }
    }

    fn save(&self, update: SaveProgress) {
        let saved = match &self.saver {
            Some(saver) => saver.save(update),
            None => Err(crate::error::Error::SaverGone),
        };
        if let Err(error) = saved {
            post(&self.owner, MaintainerEvent::Failed(ErrorReport::new(&error)));
        }
    }

    fn arm(&self, ctx: &mut Context<Self>) {
        ctx.run_later(TICK_INTERVAL, |actor, ctx| {
            actor.turn(ctx, MaintainerCore::tick);
            actor.show();
            actor.arm(ctx);
        });
    }

    fn show(&self) {
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        self.metrics.progress(self.core.checkpoint(), now_ms);
        let registry = self.core.registry();
        let failed = registry
            .tables()
            .filter(|(_, entry)| entry.failed.is_some())
            .count();
        self.metrics
            .counts(registry.table_count(), failed, self.core.open_barriers());
    }
}

impl Actor for Maintainer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some((store, tokens)) = self.parts.take() {
            let address = ctx.address();
            let done = move |done: SaveDone| post_to(&address, SaveEnded(done));
            match Saver::start(store, tokens, SaverMetrics::new(&self.changefeed), done) {
                Ok(saver) => self.saver = Some(saver),
                Err(error) => {
                    post(&self.owner, MaintainerEvent::Failed(ErrorReport::new(&error)));
                }
            }
        }
        self.turn(ctx, MaintainerCore::start);
        self.arm(ctx);
    }
}

impl Handler<Heartbeat> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: Heartbeat, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| core.heartbeat(message, now_ms, out));
    }
}

impl Handler<BarrierReached> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: BarrierReached, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| {
            core.barrier_reached(&message, now_ms, out);
        });
    }
}

impl Handler<BarrierWritten> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: BarrierWritten, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| {
            core.barrier_written(message, now_ms, out);
        });
    }
}

impl Handler<RegisterTable> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: RegisterTable, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| {
            core.register_table(&message, now_ms, out);
        });
    }
}

impl Handler<DispatcherFailed> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: DispatcherFailed, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| {
            core.dispatcher_failed(message, now_ms, out);
        });
    }
}

impl Handler<Flushed> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: Flushed, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| core.flushed(message, now_ms, out));
    }
}

/// From the saver's thread.
#[derive(Message)]
#[rtype(result = "()")]
struct SaveEnded(SaveDone);

impl Handler<SaveEnded> for Maintainer {
    type Result = ();

    fn handle(&mut self, SaveEnded(done): SaveEnded, ctx: &mut Self::Context) {
        if let Some(error) = done.error {
            post(&self.owner, MaintainerEvent::Failed(error));
            return;
        }
        let checkpoint = self.core.checkpoint();
        post(&self.owner, MaintainerEvent::Progress { checkpoint });
        self.turn(ctx, |core, now_ms, out| core.saved(done.seq, now_ms, out));
    }
}

impl Handler<RunUntil> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: RunUntil, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| core.until(message.target, now_ms, out));
    }
}

impl Handler<StopClean> for Maintainer {
    type Result = ();

    fn handle(&mut self, message: StopClean, ctx: &mut Self::Context) {
        let within_ms = u64::try_from(message.within.as_millis()).unwrap_or(u64::MAX);
        self.turn(ctx, |core, now_ms, out| {
            core.stop(now_ms, now_ms.saturating_add(within_ms), out);
        });
    }
}

impl Handler<GetStatus> for Maintainer {
    type Result = MessageResult<GetStatus>;

    fn handle(&mut self, _: GetStatus, _: &mut Self::Context) -> Self::Result {
        let registry = self.core.registry();
        let tables = registry.tables();
        MessageResult(Status {
            checkpoint: self.core.checkpoint(),
            schema_checkpoint: registry.schema().checkpoint,
            tables: tables
                .map(|(member, entry)| {
                    let checkpoint = entry.checkpoint_of(member);
                    (member.table.clone(), checkpoint, entry.failed.clone())
                })
                .collect(),
            open_barriers: self.core.open_barriers(),
        })
    }
}

impl Handler<StopMaintainer> for Maintainer {
    type Result = ();

    fn handle(&mut self, _: StopMaintainer, ctx: &mut Self::Context) {
        self.saver = None;
        self.exit.mark_clean();
        ctx.stop();
    }
}
