//! EventService → EventCollector.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use actix::Message;
use weir_types::{BlockSlice, CommitTs, DdlEvent, DispatcherId, Epoch, ErrorReport, OrderKey, SeqNo};

/// Most bytes of row events in one batch, unless a single row event is larger.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Most row events in one batch.
pub const BATCH_EVENTS_MAX: usize = 4096;

/// One life of an event service, never used again: sequence numbers of two lives do not
/// continue each other, even under the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceIncarnation(pub u64);

/// Row events of one span in order, charged by what they pin.
#[derive(Clone)]
pub struct EventBatch {
    /// Runs of row events, ascending; each of one table. Those of several tables take
    /// turns where their transactions do, so that runs may share a block.
    pub slices: Vec<BlockSlice>,
    /// Number of row events.
    pub events: usize,
    /// Charged bytes, as [`charge`] counts them.
    pub bytes: usize,
    /// Key of the first row event.
    pub first: OrderKey,
    /// Key of the last row event.
    pub last: OrderKey,
    /// The batch passed through the reserved lane.
    pub lane: bool,
}

/// What a further run of a block that is charged already takes, bytes.
pub const RUN_BYTES: usize = size_of::<BlockSlice>();

/// Bytes that the slices of a batch are charged: each block once (small slices of large
/// blocks were copied out before), and what runs take that share one.
pub fn charge(slices: &[BlockSlice]) -> usize {
    if slices
        .windows(2)
        .all(|pair| pair[0].block.version.name == pair[1].block.version.name)
    {
        return slices.iter().map(BlockSlice::pinned_bytes).sum();
    }
    let mut charged = HashSet::new();
    let bytes = |slice: &BlockSlice| {
        if charged.insert(Arc::as_ptr(&slice.block)) {
            slice.pinned_bytes()
        } else {
            RUN_BYTES
        }
    };
    slices.iter().map(bytes).sum()
}

/// Counts only.
impl fmt::Debug for EventBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBatch")
            .field("events", &self.events)
            .field("bytes", &self.bytes)
            .field("first", &self.first)
            .field("last", &self.last)
            .finish()
    }
}

/// What a stream carries.
#[derive(Clone, Debug)]
pub enum StreamBody {
    /// First message of an epoch, seq 1: the stream starts behind `after`.
    Handshake {
        /// Repeats the reset's `after`.
        after: OrderKey,
    },
    /// Rows; takes the next seq.
    Batch(Arc<EventBatch>),
    /// A DDL of the span; takes the next seq. The scan stops behind it until
    /// `PassBarrier`.
    Ddl {
        /// Its place.
        key: OrderKey,
        /// The statement.
        event: Arc<DdlEvent>,
    },
    /// Nothing of the span at or below `resolved` will still arrive; repeats the last
    /// seq. Sent again from time to time, so that a lost last message is noticed.
    Resolved {
        /// The stream's resolved-ts.
        resolved: CommitTs,
        /// Granted bytes given back unused, in sum since the epoch began.
        returned_bytes: u64,
        /// Last grant that the service knows, so that a lost one is noticed.
        grant_seq: u64,
    },
    /// The stream stands still for want of credit; repeats the last seq.
    Demand {
        /// Credit that the next row event needs.
        needs_bytes: u64,
        /// Granted bytes given back unused, in sum since the epoch began.
        returned_bytes: u64,
        /// Last grant that the service knows: an older one than the collector's last is
        /// a demand that has been answered already.
        grant_seq: u64,
    },
    /// The service cannot go on with this stream (a row beyond `max-row-size`, a
    /// corrupt block).
    Failed(ErrorReport),
    /// The service does not know the dispatcher or the epoch (it was restarted): the
    /// collector resets. Seq is 0.
    Unknown,
}

/// One message of one dispatcher's stream.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct StreamMessage {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Incarnation of the stream.
    pub epoch: Epoch,
    /// Who sends.
    pub service: ServiceIncarnation,
    /// Place in the epoch.
    pub seq: SeqNo,
    /// What it carries.
    pub body: StreamBody,
}

/// Many messages at once: a tick's resolved-ts for all idle dispatchers, say.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct StreamMessages(pub Vec<StreamMessage>);
