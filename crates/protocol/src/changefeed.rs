//! Dispatcher → Maintainer, and Maintainer → pipeline owner.

use std::sync::Arc;

use actix::Message;
use weir_types::{CommitTs, DdlEvent, DispatcherId, ErrorReport, OrderKey, TableName};

/// Progress of one dispatcher. Coalesced, latest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Heartbeat {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Everything of the span up to and including this key is durable downstream.
    pub checkpoint: OrderKey,
    /// Everything of the span up to here was delivered.
    pub resolved: CommitTs,
}

/// The dispatcher waits at a DDL: everything before it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct BarrierReached {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Key of the DDL.
    pub key: OrderKey,
    /// The statement.
    pub event: Arc<DdlEvent>,
}

/// The dispatcher that was told to write has the DDL durable downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct BarrierWritten {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Key of the DDL.
    pub key: OrderKey,
    /// Spans have to be formed anew behind it (`DdlWritten::reform`).
    pub reform: bool,
}

/// The dispatcher cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct DispatcherFailed {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// What happened.
    pub error: ErrorReport,
}

/// Schema dispatcher → Maintainer: the table exists from here on. Its dispatcher starts
/// behind `after`, unless there is one already or a token of the table is later.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct RegisterTable {
    /// The table.
    pub table: TableName,
    /// Start, exclusive.
    pub after: OrderKey,
}

/// Answer to `FlushNow`: everything that was delivered before it is durable, or never
/// will be because the dispatcher has failed. The last heartbeat came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Flushed {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
}
