//! EventCollector → EventService. All of them may be lost, doubled, delayed or
//! reordered by a transport: each is idempotent by (dispatcher, epoch).

use actix::Message;
use weir_types::{DispatcherId, Epoch, OrderKey, TableName};

/// What a dispatcher's stream covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// One table: its rows, and every DDL that writes or reads it.
    Table(TableName),
    /// The schema dispatcher's: structural DDL of everything the filter lets through.
    Schema,
}

/// Starts a stream, or starts it anew under a higher epoch. Answered by a handshake;
/// repeated with backoff until it comes. An epoch not above the current one is stale
/// and ignored, except that the current one's handshake is sent again if nothing was
/// accepted yet.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Reset {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// New epoch.
    pub epoch: Epoch,
    /// What to read.
    pub span: Span,
    /// Everything up to and including this key was accepted already.
    pub after: OrderKey,
    /// Bytes granted at the start of the epoch (may be 0).
    pub granted_bytes: u64,
}

/// Credit, as the sum of all grants of the epoch: the delta is the difference to the
/// grant before. A lost grant is made good by the next, a doubled or late one changes
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct GrantCredit {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Epoch of the grant.
    pub epoch: Epoch,
    /// Counts up within the epoch.
    pub grant_seq: u64,
    /// Sum of the bytes granted since the epoch began.
    pub granted_bytes: u64,
    /// The reserved lane is this dispatcher's: one row event larger than its share may
    /// pass, beyond the granted bytes.
    pub lane: bool,
}

/// The barrier DDL at `key` has passed: the scan goes on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct PassBarrier {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Epoch in which the DDL was accepted.
    pub epoch: Epoch,
    /// Key of the DDL.
    pub key: OrderKey,
}

/// The dispatcher is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Remove {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Its last epoch.
    pub epoch: Epoch,
}
