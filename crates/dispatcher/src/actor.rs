//! The dispatcher as an actor: moves the messages of one [`DispatcherCore`].
//!
//! * In: `Deliver` from the collector; `Durable`, `DdlWritten`, `SinkFailed` from the
//!   sink; `BarrierAction`, `FlushNow`, `EndDispatcher` from the maintainer.
//! * Out: `SinkWrite`; `ResumeStream` and `Released` to the collector; reports and
//!   coalesced heartbeats to the maintainer.
//! * Memory: holds no rows; batches go on to the sink in the same turn, bounded by the
//!   collector's credit.
//! * Failure: a report to the maintainer; the actor stays and returns the credit of what
//!   is still delivered. A panic is seen by the exit guard's supervisor.
//!
//! All dispatchers of a changefeed share one arbiter.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient};
use weir_actor::{ExitGuard, post};
use weir_protocol::changefeed::{
    BarrierReached, BarrierWritten, DispatcherFailed, Flushed, Heartbeat, RegisterTable,
};
use weir_protocol::dispatcher::{BarrierAction, Deliver, Delivery, EndDispatcher, FlushNow, ResumeStream};
use weir_protocol::service::Span;
use weir_protocol::sink::{DdlWritten, Durable, Released, SinkFailed, SinkWork, SinkWrite};
use weir_types::{DispatcherId, OrderKey};

use crate::core::{DispatcherCore, Effect, HEARTBEAT_INTERVAL_MS};
use crate::metrics::{DispatcherMetrics, TableLabels};

/// The ways to the maintainer.
#[derive(Clone)]
pub struct MaintainerLinks {
    /// Progress.
    pub heartbeat: Recipient<Heartbeat>,
    /// Waiting at a DDL.
    pub reached: Recipient<BarrierReached>,
    /// A DDL is durable.
    pub written: Recipient<BarrierWritten>,
    /// New tables.
    pub register: Recipient<RegisterTable>,
    /// Answers to `FlushNow`.
    pub flushed: Recipient<Flushed>,
    /// Failures.
    pub failed: Recipient<DispatcherFailed>,
}

/// The ways out of a dispatcher.
#[derive(Clone)]
pub struct Links {
    /// To the sink.
    pub sink: Recipient<SinkWrite>,
    /// To the collector: barriers that have passed.
    pub resume: Recipient<ResumeStream>,
    /// To the collector: credit of dropped rows.
    pub released: Recipient<Released>,
    /// To the maintainer.
    pub maintainer: MaintainerLinks,
}

/// The pipeline goes down: end on purpose, without closing the span at the sink.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopDispatcher;

/// One dispatcher.
pub struct Dispatcher {
    core: DispatcherCore,
    links: Links,
    metrics: DispatcherMetrics,
    started: Instant,
    effects: Vec<Effect>,
    armed: bool,
    exit: ExitGuard,
}

impl Dispatcher {
    /// A dispatcher whose stream starts behind `after`.
    pub fn new(
        id: DispatcherId,
        span: Span,
        after: OrderKey,
        links: Links,
        labels: &TableLabels,
        exit: ExitGuard,
    ) -> Self {
        Self {
            metrics: DispatcherMetrics::new(labels, &span),
            core: DispatcherCore::new(id, span, after),
            links,
            started: Instant::now(),
            effects: Vec::new(),
            armed: false,
            exit,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// One input of the state machine, then what it asks for.
    fn turn(
        &mut self,
        ctx: &mut Context<Self>,
        input: impl FnOnce(&mut DispatcherCore, u64, &mut Vec<Effect>),
    ) {
        let now_ms = self.now_ms();
        input(&mut self.core, now_ms, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.effects = effects;
        if !self.armed && self.core.wants_tick() {
            self.armed = true;
            let interval = Duration::from_millis(HEARTBEAT_INTERVAL_MS);
            ctx.run_later(interval, |actor, ctx| {
                actor.armed = false;
                actor.turn(ctx, DispatcherCore::tick);
            });
        }
    }

    fn carry_out(&self, effect: Effect) {
        let maintainer = &self.links.maintainer;
        match effect {
            Effect::ToSink(work) => self.to_sink(work),
            Effect::Heartbeat(message) => {
                let resolved = OrderKey::end_of(message.resolved);
                let now_ms = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
                self.metrics.progress(message.checkpoint, resolved, now_ms);
                post(&maintainer.heartbeat, message);
            }
            Effect::Reached(message) => post(&maintainer.reached, message),
            Effect::Written(message) => post(&maintainer.written, message),
            Effect::Register(message) => post(&maintainer.register, message),
            Effect::Flushed(message) => post(&maintainer.flushed, message),
            Effect::Failed(message) => {
                tracing::warn!(
                    dispatcher = self.core.id().0,
                    code = message.error.code,
                    "dispatcher stopped: {}",
                    message.error
                );
                post(&maintainer.failed, message);
            }
            Effect::Resume(message) => post(&self.links.resume, message),
            Effect::Released(message) => post(&self.links.released, message),
        }
    }

    fn to_sink(&self, work: SinkWork) {
        if let SinkWork::Rows(batch) = &work {
            self.metrics.rows(batch.events, batch.bytes);
        }
        let dispatcher = self.core.id();
        post(&self.links.sink, SinkWrite { dispatcher, work });
    }
}

impl Actor for Dispatcher {
    type Context = Context<Self>;
}

impl Handler<Deliver> for Dispatcher {
    type Result = ();

    fn handle(&mut self, message: Deliver, ctx: &mut Self::Context) {
        let delivery: Delivery = message.delivery;
        self.turn(ctx, |core, now_ms, out| core.deliver(delivery, now_ms, out));
    }
}

impl Handler<Durable> for Dispatcher {
    type Result = ();

    fn handle(&mut self, message: Durable, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| core.durable(message.upto, now_ms, out));
    }
}

impl Handler<DdlWritten> for Dispatcher {
    type Result = ();

    fn handle(&mut self, message: DdlWritten, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| {
            core.ddl_written(message.key, message.reform, now_ms, out);
        });
    }
}

impl Handler<SinkFailed> for Dispatcher {
    type Result = ();

    fn handle(&mut self, message: SinkFailed, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| {
            core.sink_failed(message.error, now_ms, out);
        });
    }
}

impl Handler<BarrierAction> for Dispatcher {
    type Result = ();

    fn handle(&mut self, message: BarrierAction, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| {
            core.barrier_action(message.key, message.step, now_ms, out);
        });
    }
}

impl Handler<FlushNow> for Dispatcher {
    type Result = ();

    fn handle(&mut self, message: FlushNow, ctx: &mut Self::Context) {
        self.turn(ctx, |core, now_ms, out| core.flush_now(message.ends, now_ms, out));
    }
}

impl Handler<EndDispatcher> for Dispatcher {
    type Result = ();

    fn handle(&mut self, _: EndDispatcher, ctx: &mut Self::Context) {
        self.to_sink(SinkWork::Close);
        self.exit.mark_clean();
        ctx.stop();
    }
}

impl Handler<StopDispatcher> for Dispatcher {
    type Result = ();

    fn handle(&mut self, _: StopDispatcher, ctx: &mut Self::Context) {
        self.exit.mark_clean();
        ctx.stop();
    }
}
