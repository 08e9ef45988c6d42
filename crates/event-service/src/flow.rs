//! What streams do and what they have waited for, for people who ask.

use actix::{Context, Handler, Message, MessageResponse};
use weir_types::{DispatcherId, OrderKey};

use crate::actor::EventService;
use crate::core::ServiceCore;
use crate::stream::Phase;
use crate::waits::WaitReason;

/// What these dispatchers' streams do.
#[derive(Clone, Debug, Message)]
#[rtype(result = "StreamFlows")]
pub struct GetStreams(pub Vec<DispatcherId>);

/// Answer to `GetStreams`: those that the service has.
#[derive(Clone, Debug, PartialEq, Eq, MessageResponse)]
pub struct StreamFlows(pub Vec<StreamFlow>);

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFlow {
    /// Its dispatcher.
    pub dispatcher: DispatcherId,
    /// What it does: `starting`, `resting`, `queued`, `scanning`, `barrier` or `failed`.
    pub phase: &'static str,
    /// Why it stands still, if it does.
    pub waits_for: Option<WaitReason>,
    /// Everything of its span up to here was sent.
    pub sent_upto: OrderKey,
    /// Credit that it may use, bytes.
    pub free_bytes: u64,
    /// Milliseconds that it has waited, by reason, since its dispatcher came.
    pub waited_ms: [(WaitReason, u64); WaitReason::ALL.len()],
}

impl ServiceCore {
    /// One stream.
    pub fn flow(&self, now_ms: u64, dispatcher: DispatcherId) -> Option<StreamFlow> {
        let stream = self.stream(dispatcher)?;
        Some(StreamFlow {
            dispatcher,
            phase: match stream.phase {
                Phase::Unconfirmed => "starting",
                Phase::Resting => "resting",
                Phase::Queued => "queued",
                Phase::Scanning => "scanning",
                Phase::Barrier(_) => "barrier",
                Phase::Failed(_) => "failed",
            },
            waits_for: stream.waited.reason(),
            sent_upto: stream.cursor,
            free_bytes: stream.credit.free(),
            waited_ms: WaitReason::ALL.map(|reason| (reason, stream.waited.sum_ms(now_ms, reason))),
        })
    }
}

impl Handler<GetStreams> for EventService {
    type Result = StreamFlows;

    fn handle(&mut self, message: GetStreams, _: &mut Context<Self>) -> Self::Result {
        let now_ms = self.now_ms();
        let flows = message.0.into_iter();
        StreamFlows(flows.filter_map(|id| self.core.flow(now_ms, id)).collect())
    }
}

/// What the service has done so far.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Done")]
pub struct GetDone;

/// Answer to `GetDone`: sums since the service started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, MessageResponse)]
pub struct Done {
    /// Scans of the store.
    pub scans: u64,
    /// Row events sent.
    pub events: u64,
    /// Their charged bytes.
    pub bytes: u64,
}

impl Handler<GetDone> for EventService {
    type Result = Done;

    fn handle(&mut self, _: GetDone, _: &mut Context<Self>) -> Self::Result {
        let counters = self.core.counters();
        Done {
            scans: counters.scans,
            events: counters.events,
            bytes: counters.bytes,
        }
    }
}
