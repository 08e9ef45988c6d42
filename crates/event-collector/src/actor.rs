//! The event collector as an actor: connects the state machine with the service, the
//! dispatchers and the sink.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient};
use weir_actor::{ExitGuard, post};
use weir_protocol::collector::StreamMessages;
use weir_protocol::dispatcher::{AddDispatcher, Deliver, RemoveDispatcher, ResumeStream};
use weir_protocol::service::{GrantCredit, PassBarrier, Remove, Reset};
use weir_protocol::sink::Released;
use weir_types::{ChangefeedId, DispatcherId};

use crate::core::{CollectorConfig, CollectorCore, Effect, TICK_MS};
use crate::metrics::CollectorMetrics;

/// The ways to the event service.
#[derive(Clone)]
pub struct ServiceLinks {
    /// Starts streams.
    pub reset: Recipient<Reset>,
    /// Credit.
    pub grant: Recipient<GrantCredit>,
    /// Barriers that have passed.
    pub pass: Recipient<PassBarrier>,
    /// Ends streams.
    pub remove: Recipient<Remove>,
}

/// End on purpose: nothing more is delivered.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopCollector;

/// The event collector of one changefeed.
pub struct EventCollector {
    pub(crate) core: CollectorCore,
    service: ServiceLinks,
    dispatchers: HashMap<DispatcherId, Recipient<Deliver>>,
    metrics: CollectorMetrics,
    started: Instant,
    effects: Vec<Effect>,
    exit: ExitGuard,
}

impl EventCollector {
    /// A collector without dispatchers.
    pub fn new(
        changefeed: &ChangefeedId,
        config: &CollectorConfig,
        service: ServiceLinks,
        exit: ExitGuard,
    ) -> Self {
        Self {
            core: CollectorCore::new(config),
            service,
            dispatchers: HashMap::new(),
            metrics: CollectorMetrics::new(&changefeed.0),
            started: Instant::now(),
            effects: Vec::new(),
            exit,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Carries out what the core asked for.
    fn settle(&mut self) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Deliver(message) => {
                    if let Some(dispatcher) = self.dispatchers.get(&message.dispatcher) {
                        post(dispatcher, message);
                    }
                }
                Effect::Grant(message) => post(&self.service.grant, message),
                Effect::Reset(message) => post(&self.service.reset, message),
                Effect::Pass(message) => post(&self.service.pass, message),
                Effect::Remove(message) => post(&self.service.remove, message),
            }
        }
    }

    fn arm(&self, ctx: &mut Context<Self>) {
        ctx.run_later(Duration::from_millis(TICK_MS), |actor, ctx| {
            actor.core.tick(actor.now_ms(), &mut actor.effects);
            actor.metrics.export(&actor.core);
            actor.settle();
            actor.arm(ctx);
        });
    }
}

impl Actor for EventCollector {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.arm(ctx);
    }
}

impl Handler<StreamMessages> for EventCollector {
    type Result = ();

    fn handle(&mut self, messages: StreamMessages, _: &mut Self::Context) {
        let now_ms = self.now_ms();
        for message in messages.0 {
            self.core.message(now_ms, message, &mut self.effects);
        }
        self.settle();
    }
}

impl Handler<AddDispatcher> for EventCollector {
    type Result = ();

    fn handle(&mut self, message: AddDispatcher, _: &mut Self::Context) {
        self.dispatchers.insert(message.dispatcher, message.deliver_to);
        let now_ms = self.now_ms();
        self.core.add(
            now_ms,
            message.dispatcher,
            message.span,
            message.after,
            &mut self.effects,
        );
        self.settle();
    }
}

impl Handler<RemoveDispatcher> for EventCollector {
    type Result = ();

    fn handle(&mut self, message: RemoveDispatcher, _: &mut Self::Context) {
        self.dispatchers.remove(&message.dispatcher);
        self.core
            .remove(self.now_ms(), message.dispatcher, &mut self.effects);
        self.settle();
    }
}

impl Handler<ResumeStream> for EventCollector {
    type Result = ();

    fn handle(&mut self, message: ResumeStream, _: &mut Self::Context) {
        self.core
            .resume(self.now_ms(), message.dispatcher, message.key, &mut self.effects);
        self.settle();
    }
}

impl Handler<Released> for EventCollector {
    type Result = ();

    fn handle(&mut self, message: Released, _: &mut Self::Context) {
        self.core.released(self.now_ms(), &message, &mut self.effects);
        self.settle();
    }
}

impl Handler<StopCollector> for EventCollector {
    type Result = ();

    fn handle(&mut self, _: StopCollector, ctx: &mut Self::Context) {
        self.exit.mark_clean();
        self.dispatchers.clear();
        ctx.stop();
    }
}
