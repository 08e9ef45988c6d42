//! Dispatcher → Sink (`SinkWrite`), Sink → EventCollector (`Released`), Sink →
//! Dispatcher (`Durable`, `DdlWritten`, `SinkFailed`).

use std::sync::Arc;

use actix::Message;
use weir_types::{DdlEvent, DispatcherId, ErrorReport, OrderKey};

use crate::collector::EventBatch;

/// Work for a sink. Per dispatcher in order; the sink never blocks the sender, since
/// credit bounds what can be under way.
#[derive(Clone, Debug)]
pub enum SinkWork {
    /// Rows.
    Rows(Arc<EventBatch>),
    /// Make everything written so far durable now; answered by a `Durable` up to the
    /// last row written (also if that was durable before).
    Flush,
    /// A DDL. All rows of its tables are durable. Answered by `DdlWritten`. One that
    /// the sink has already executed (its record exists) is answered without doing it
    /// again.
    Ddl {
        /// Its place.
        key: OrderKey,
        /// The statement.
        event: Arc<DdlEvent>,
    },
    /// The dispatcher ends: forget its span. Nothing is answered.
    Close,
}

/// Dispatcher → Sink.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct SinkWrite {
    /// The span that the work belongs to.
    pub dispatcher: DispatcherId,
    /// What to do.
    pub work: SinkWork,
}

/// Sink → EventCollector: the bytes have left Weir's memory; credit returns. Sent once
/// per batch, after the sink has dropped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Released {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Charged bytes of the batch.
    pub bytes: usize,
    /// The batch held the reserved lane.
    pub lane: bool,
}

/// Sink → Dispatcher: everything of the span up to and including `upto` survives a
/// crash of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Durable {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Last durable key; `OrderKey::MIN` for "nothing was written".
    pub upto: OrderKey,
}

/// Sink → Dispatcher: the DDL is durable downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct DdlWritten {
    /// The dispatcher that wrote it.
    pub dispatcher: DispatcherId,
    /// Key of the DDL.
    pub key: OrderKey,
    /// Which tables belong together at the target is not what it was: spans have to be
    /// formed anew, by a restart of the pipeline behind this barrier.
    pub reform: bool,
}

/// Sink → Dispatcher: a write failed for good, or after the retries that the sink makes
/// itself. Nothing more is done for the span. Class `Table` fails the table; others
/// restart or fail the changefeed.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct SinkFailed {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// What happened.
    pub error: ErrorReport,
}
