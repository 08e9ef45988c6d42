//! One dispatcher's stream as the service sees it.

use std::sync::Arc;

use weir_protocol::service::{GrantCredit, Reset, Span};
use weir_types::{CommitTs, DdlEvent, Epoch, ErrorReport, OrderKey, SeqNo};

use crate::waits::Waited;

/// What the stream does.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The handshake is sent; nothing goes out before the first grant.
    Unconfirmed,
    /// Nothing to do, or waiting for credit.
    Resting,
    /// In the queue for a scan thread.
    Queued,
    /// A scan runs. Wake-ups need no memory: when it ends, the stream is looked at
    /// afresh.
    Scanning,
    /// A DDL was sent and has not passed.
    Barrier(OrderKey),
    /// Ended.
    Failed(ErrorReport),
}

/// A stream of one epoch. Never changed by a reset: replaced.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) epoch: Epoch,
    pub(crate) span: Span,
    pub(crate) start: OrderKey,
    pub(crate) phase: Phase,
    pub(crate) seq: SeqNo,
    /// Everything of the span up to here was sent.
    pub(crate) cursor: OrderKey,
    /// No DDL of the span in `(cursor, clear_upto]`, but `ddl`.
    pub(crate) clear_upto: OrderKey,
    pub(crate) ddl: Option<(OrderKey, Arc<DdlEvent>)>,
    pub(crate) credit: Credit,
    /// Credit that the next row event needs, as far as known; 0: unknown.
    pub(crate) needs: u64,
    /// Grant under which a demand was sent.
    pub(crate) demanded: Option<u64>,
    pub(crate) resolved_sent: CommitTs,
    pub(crate) returned_sent: u64,
    pub(crate) sent_ms: u64,
    pub(crate) waited: Waited,
}

/// The account of one epoch. All sums since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Granted by the collector.
    pub granted: u64,
    /// Charged for what was sent.
    pub sent: u64,
    /// Given back unused.
    pub returned: u64,
    pub(crate) keep: u64,
    pub(crate) grant_seq: u64,
    pub(crate) lanes_granted: u64,
    pub(crate) lanes_used: u64,
}

impl Credit {
    /// Bytes that may be sent.
    pub const fn free(&self) -> u64 {
        self.granted.saturating_sub(self.sent + self.returned)
    }

    pub(crate) const fn has_lane(&self) -> bool {
        self.lanes_granted > self.lanes_used
    }

    /// Takes a grant over; false if a later one was seen.
    pub(crate) fn take(&mut self, grant: &GrantCredit) -> bool {
        if grant.grant_seq <= self.grant_seq {
            return false;
        }
        self.grant_seq = grant.grant_seq;
        self.granted = self.granted.max(grant.granted_bytes);
        self.lanes_granted = self.lanes_granted.max(grant.lane_rows);
        self.keep = grant.keep_bytes;
        true
    }

    /// Gives back what may not be kept while the stream stands still.
    pub(crate) const fn give_back(&mut self) {
        let excess = self.free().saturating_sub(self.keep);
        self.returned += excess;
    }
}

impl Stream {
    pub(crate) fn new(reset: &Reset) -> Self {
        Self {
            epoch: reset.epoch,
            span: reset.span.clone(),
            start: reset.after,
            phase: Phase::Unconfirmed,
            seq: SeqNo(1),
            cursor: reset.after,
            clear_upto: reset.after,
            ddl: None,
            credit: Credit::default(),
            needs: 0,
            demanded: None,
            resolved_sent: CommitTs::ZERO,
            returned_sent: 0,
            sent_ms: 0,
            waited: Waited::default(),
        }
    }

    pub(crate) const fn next_seq(&mut self) -> SeqNo {
        self.seq = SeqNo(self.seq.0 + 1);
        self.seq
    }
}
