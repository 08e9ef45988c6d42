//! EventCollector → Dispatcher (`Deliver`), Maintainer → EventCollector
//! (`AddDispatcher`, `RemoveDispatcher`), Maintainer → Dispatcher (`BarrierAction`).

use std::sync::Arc;

use actix::{Message, Recipient};
use weir_types::{CommitTs, DdlEvent, DispatcherId, ErrorReport, OrderKey};

use crate::collector::EventBatch;
use crate::service::Span;

/// An accepted event: exactly the next one of its stream, each once.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// Rows.
    Batch(Arc<EventBatch>),
    /// A DDL: a barrier.
    Ddl {
        /// Its place.
        key: OrderKey,
        /// The statement.
        event: Arc<DdlEvent>,
    },
    /// All of the span up to here was delivered.
    Resolved(CommitTs),
    /// The stream cannot go on.
    Failed(ErrorReport),
}

/// EventCollector → Dispatcher.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Deliver {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// What was accepted.
    pub delivery: Delivery,
}

/// Maintainer → EventCollector: a new dispatcher; its stream starts behind `after`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AddDispatcher {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// What it reads.
    pub span: Span,
    /// Start, exclusive.
    pub after: OrderKey,
    /// Where its events go.
    pub deliver_to: Recipient<Deliver>,
}

/// Maintainer → EventCollector: the dispatcher is gone (its table failed).
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct RemoveDispatcher {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
}

/// Dispatcher → EventCollector: the barrier has passed, go on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct ResumeStream {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Key of the DDL.
    pub key: OrderKey,
}

/// What a waiting dispatcher is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierStep {
    /// Execute the DDL at the sink, then report `BarrierWritten`.
    Write,
    /// The DDL is durable downstream: move past it.
    Pass,
}

/// Maintainer → Dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct BarrierAction {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Key of the DDL.
    pub key: OrderKey,
    /// What to do.
    pub step: BarrierStep,
}

/// Maintainer → Dispatcher: everything accepted is to become durable soon (clean stop,
/// `--until`): files are finished, transactions committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct FlushNow {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// The run ends: nothing that is delivered from now on is written, so that nothing is
    /// at the sink that progress does not tell of.
    pub ends: bool,
}

/// Maintainer → Dispatcher: the table is gone (dropped or renamed) and everything before
/// that is durable. The dispatcher closes its span at the sink and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct EndDispatcher {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
}
