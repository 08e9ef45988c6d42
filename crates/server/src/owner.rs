//! The pipeline's owner inside actix: takes what the stages report and hands it to the
//! run loop.
//!
//! * In: `SourceEnded`, `StageFailed`, `MaintainerEvent`, `ActorExited`.
//! * Out: the same, as one channel. It is not bounded by its type: a pipeline of one
//!   generation reports a progress a second, each failed table once and each exit once.

use actix::{Actor, Context, Handler};
use tokio::sync::mpsc::UnboundedSender;
use weir_actor::ActorExited;
use weir_changefeed::MaintainerEvent;
use weir_protocol::store::StageFailed;
use weir_source::actor::SourceEnded;

/// What the run loop learns.
#[derive(Debug)]
pub(crate) enum OwnerEvent {
    SourceEnded(SourceEnded),
    StageFailed(StageFailed),
    Maintainer(MaintainerEvent),
    Exited(ActorExited),
}

/// See the module documentation.
pub(crate) struct PipelineOwner {
    pub(crate) events: UnboundedSender<OwnerEvent>,
}

impl PipelineOwner {
    fn pass(&self, event: OwnerEvent) {
        if self.events.send(event).is_err() {
            tracing::debug!("a stage reported after the run had ended");
        }
    }
}

impl Actor for PipelineOwner {
    type Context = Context<Self>;
}

impl Handler<SourceEnded> for PipelineOwner {
    type Result = ();
    fn handle(&mut self, message: SourceEnded, _: &mut Self::Context) {
        self.pass(OwnerEvent::SourceEnded(message));
    }
}

impl Handler<StageFailed> for PipelineOwner {
    type Result = ();
    fn handle(&mut self, message: StageFailed, _: &mut Self::Context) {
        self.pass(OwnerEvent::StageFailed(message));
    }
}

impl Handler<MaintainerEvent> for PipelineOwner {
    type Result = ();
    fn handle(&mut self, message: MaintainerEvent, _: &mut Self::Context) {
        self.pass(OwnerEvent::Maintainer(message));
    }
}

impl Handler<ActorExited> for PipelineOwner {
    type Result = ();
    fn handle(&mut self, message: ActorExited, _: &mut Self::Context) {
        self.pass(OwnerEvent::Exited(message));
    }
}
