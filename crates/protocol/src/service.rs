//! EventCollector → EventService. All of them may be lost, doubled, delayed or
//! reordered by a transport: each is idempotent by (dispatcher, epoch).

use std::fmt;
use std::sync::Arc;

use actix::Message;
use weir_types::{DispatcherId, Epoch, OrderKey, TableName};

use crate::collector::ServiceIncarnation;

/// A table of a span of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The table.
    pub table: TableName,
    /// Where its part of the stream begins, exclusive: what is at or below this key was
    /// durable before the span was formed, and may be gone from the store.
    pub after: OrderKey,
}

/// What a dispatcher's stream covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// One table: its rows, and every DDL that writes or reads it.
    Table(TableName),
    /// Tables that belong together (tied by foreign keys at the target): the rows of all
    /// of them in one order, and every DDL that writes or reads one. At least two,
    /// ascending by name.
    Tables(Arc<[Member]>),
    /// The schema dispatcher's: structural DDL of everything the filter lets through.
    Schema,
}

impl Span {
    /// The span of these tables, each name once; the schema dispatcher's for none.
    pub fn of(mut members: Vec<Member>) -> Self {
        members.sort_unstable();
        match members.len() {
            0 | 1 => members
                .pop()
                .map_or(Self::Schema, |member| Self::Table(member.table)),
            _ => Self::Tables(members.into()),
        }
    }

    /// Its tables, and for each where what is left of it begins if everything of the
    /// span up to `cursor` was accepted. None for the schema dispatcher's.
    pub fn behind(&self, cursor: OrderKey) -> impl Iterator<Item = (&TableName, OrderKey)> {
        let (one, several) = match self {
            Self::Table(table) => (Some(table), &[][..]),
            Self::Tables(members) => (None, &**members),
            Self::Schema => (None, &[][..]),
        };
        let several = several
            .iter()
            .map(move |member| (&member.table, member.after.max(cursor)));
        one.into_iter().map(move |table| (table, cursor)).chain(several)
    }

    /// Its tables; none for the schema dispatcher's.
    pub fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.behind(OrderKey::MIN).map(|(table, _)| table)
    }
}

/// For messages and labels, bounded: the first table, and how many more.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Tables(members) => match &**members {
                [] => f.write_str("no table"),
                [first, others @ ..] => write!(f, "{}+{}", first.table, others.len()),
            },
            Self::Schema => f.write_str("schema"),
        }
    }
}

/// Starts a stream, or starts it anew under a higher epoch. Answered by a handshake;
/// repeated with backoff until it comes. An epoch not above the current one is stale
/// and ignored, except that the current one's handshake is sent again if nothing was
/// accepted yet. An epoch begins without credit: what the epoch before had under way
/// stays charged until the handshake tells that none of it will come any more, and the
/// first grant tells the service that its handshake was accepted.
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
    /// Incarnation whose handshake was accepted; another one knows nothing of what was
    /// sent against the grant.
    pub service: ServiceIncarnation,
    /// Counts up within the epoch, from 1.
    pub grant_seq: u64,
    /// Sum of the bytes granted since the epoch began.
    pub granted_bytes: u64,
    /// Credit that the stream may keep while it has nothing to send; the rest is given
    /// back.
    pub keep_bytes: u64,
    /// Row events that may pass through the reserved lane, beyond the granted bytes, in
    /// sum since the epoch began.
    pub lane_rows: u64,
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
