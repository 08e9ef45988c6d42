//! One dispatcher's account.

use weir_types::DispatcherId;

/// A grant that is to be sent: all numbers are sums since the epoch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Counts up within the epoch.
    pub grant_seq: u64,
    /// Bytes granted.
    pub granted: u64,
    /// Credit that may be kept while the stream stands still.
    pub keep: u64,
    /// Row events that may pass through the lane.
    pub lane_rows: u64,
}

/// One dispatcher's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Granted in this epoch.
    pub granted: u64,
    /// Accepted in this epoch, lane aside.
    pub accepted: u64,
    /// Given back in this epoch.
    pub returned: u64,
    /// Open credit of older epochs.
    pub closing: u64,
    /// Accepted in any epoch and not released.
    pub held: u64,
    pub(super) window: u64,
    pub(super) needs: u64,
    pub(super) waiting: bool,
    pub(super) lane_rows: u64,
    pub(super) grant_seq: u64,
    pub(super) keep: u64,
    /// Accepted since the window was last widened.
    pub(super) drained: u64,
    /// Accepted since the last grant.
    pub(super) used: u64,
    pub(super) live: bool,
    pub(super) gone: bool,
}

impl Account {
    /// Granted and neither accepted nor given back.
    pub const fn open(&self) -> u64 {
        self.granted.saturating_sub(self.accepted + self.returned)
    }

    /// What counts against the budget.
    pub const fn charge(&self) -> u64 {
        self.open() + self.closing + self.held
    }

    /// Most credit that the stream may keep while it stands still, as it was told last.
    pub const fn keep(&self) -> u64 {
        self.keep
    }

    /// Most that it may have on the way by its own progress, bytes.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// The dispatcher waits for budget.
    pub const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// What the service is to know.
    pub(super) const fn grant(&self, dispatcher: DispatcherId) -> Grant {
        Grant {
            dispatcher,
            grant_seq: self.grant_seq,
            granted: self.granted,
            keep: self.keep,
            lane_rows: self.lane_rows,
        }
    }
}

/// What the account keeps from others: its charge, and at least its share.
pub(super) fn reserve(account: &Account, share: u64) -> u64 {
    if account.gone {
        account.charge()
    } else {
        account.charge().max(share)
    }
}
