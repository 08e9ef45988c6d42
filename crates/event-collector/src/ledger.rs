//! Byte ledger of one changefeed: who holds how much of its memory budget, and who gets
//! more. Pure.
//!
//! Per dispatcher, at any time:
//!
//! ```text
//! granted − returned = open (on the wire, or free at the service) + accepted
//! charge             = open + closing + held
//! Σ charge ≤ budget, beside at most one row event in the reserved lane
//! ```
//!
//! `held` is what was accepted and not yet released by the sink, whatever the epoch;
//! `closing` is what older epochs had open, until the handshake of the current one tells
//! that none of it will come any more.
//!
//! Half of the budget is split into equal shares that are always there for their
//! dispatchers; the other half is lent to those that ask and drain, in the order in
//! which they ask. A stream that stands still keeps no more than its share. Credit moves
//! only on events: a demand, a release, a return, a handshake.

mod account;
mod books;

use std::collections::{BTreeMap, VecDeque};

use weir_types::DispatcherId;

use self::account::reserve;
pub use self::account::{Account, Grant};

/// Largest guaranteed share of a dispatcher, bytes.
pub const SHARE_MAX_BYTES: u64 = 4 << 20;
/// Most that a stream is granted with its handshake, bytes: many streams begin together, and the first of them must not
/// take what is the share of those that come a moment later.
pub const FIRST_GRANT_MAX_BYTES: u64 = 256 << 10;
/// Largest window of a dispatcher, bytes, and at most a quarter of the budget, unless
/// its share is larger.
pub const WINDOW_MAX_BYTES: u64 = 8 << 20;
/// A fixed window is this part of the budget.
const FIXED_WINDOW_PART: u64 = 10;
/// A grant of less than this part of the window waits for the next release of the
/// dispatcher's own rows.
const CRUMB_DIVISOR: u64 = 8;
/// Waiters behind the first that are tried when the first cannot be served.
const LOOK_AHEAD: usize = 16;

/// Who has the reserved lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Nobody.
    Free,
    /// Granted; its row event is not accepted yet.
    Granted(DispatcherId),
    /// The row event is on its way through the sink.
    Held(DispatcherId, u64),
}

/// How much of the budget one dispatcher may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowPolicy {
    /// A share that is always there for it, and a window that grows while it drains.
    #[default]
    PerDispatcher,
    /// A tenth of it, whether it drains or not, and nothing that is there for it: what TiCDC
    /// has without its scan window. Kept for the benchmark `hot-cold`: no setting leads here.
    Fixed,
}

/// What became of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Granted, or nothing was wanted.
    Served,
    /// The dispatcher's own rows must be released first; their release tries again.
    OwnWindow,
    /// Others hold the budget.
    Budget,
}

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    budget: u64,
    windows: WindowPolicy,
    accounts: BTreeMap<DispatcherId, Account>,
    live: u64,
    share: u64,
    charged: u64,
    /// Σ max(charge, share).
    reserved: u64,
    waiters: VecDeque<DispatcherId>,
    lane: Lane,
    /// The share fell: streams may keep more than they should.
    keeps_stale: bool,
}

impl Ledger {
    /// A ledger over `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self::with_windows(budget, WindowPolicy::PerDispatcher)
    }

    /// A ledger with another policy.
    pub fn with_windows(budget: u64, windows: WindowPolicy) -> Self {
        Self {
            budget,
            windows,
            accounts: BTreeMap::new(),
            live: 0,
            share: (budget / 2).min(SHARE_MAX_BYTES),
            charged: 0,
            reserved: 0,
            waiters: VecDeque::new(),
            lane: Lane::Free,
            keeps_stale: false,
        }
    }

    /// A dispatcher comes; the others' shares become smaller.
    pub fn add(&mut self, id: DispatcherId) {
        let account = self.accounts.entry(id).or_default();
        account.gone = false;
        self.live += 1;
        self.share_out();
    }

    /// A dispatcher goes. What it holds stays charged until the sink has released it.
    pub fn remove(&mut self, id: DispatcherId, out: &mut Vec<Grant>) {
        let Some(account) = self.accounts.get_mut(&id) else {
            return;
        };
        account.gone = true;
        account.live = false;
        account.waiting = false;
        account.closing = 0;
        (account.granted, account.accepted, account.returned) = (0, 0, 0);
        let empty = account.held == 0;
        if self.lane == Lane::Granted(id) {
            self.lane = Lane::Free;
        }
        self.waiters.retain(|waiter| *waiter != id);
        if empty {
            self.accounts.remove(&id);
        }
        self.live = self.live.saturating_sub(1);
        self.share_out();
        self.pump(out);
    }

    fn share_out(&mut self) {
        let share = (self.budget / 2 / self.live.max(1)).min(SHARE_MAX_BYTES);
        self.keeps_stale |= share < self.share;
        // A window that has not grown is the share, whatever that is.
        let before = self.share;
        for account in self.accounts.values_mut().filter(|a| a.window == before) {
            account.window = share;
        }
        self.share = share;
        self.charged = self.accounts.values().map(Account::charge).sum();
        self.reserved = self.accounts.values().map(|a| reserve(a, share)).sum();
    }

    /// A new epoch begins at the service: nothing more is granted before its handshake.
    pub fn begin_epoch(&mut self, id: DispatcherId) {
        self.change(id, |account| {
            account.closing += account.open();
            (account.granted, account.accepted, account.returned) = (0, 0, 0);
            (account.grant_seq, account.lane_rows) = (0, 0);
            account.live = false;
            account.waiting = false;
            account.needs = 0;
        });
        self.waiters.retain(|waiter| *waiter != id);
    }

    /// The handshake came: nothing of older epochs will arrive. Always makes a grant,
    /// which tells the service that the handshake was accepted.
    pub fn confirm_epoch(&mut self, id: DispatcherId, out: &mut Vec<Grant>) {
        if self.lane == Lane::Granted(id) {
            self.lane = Lane::Free;
        }
        let share = self.share;
        let window = match self.windows {
            WindowPolicy::PerDispatcher => share,
            WindowPolicy::Fixed => self.fixed_window(),
        };
        self.change(id, |account| {
            account.closing = 0;
            account.live = true;
            account.window = window;
            account.drained = 0;
        });
        let first = share.min(FIRST_GRANT_MAX_BYTES);
        let room = first.saturating_sub(self.charge(id)).min(self.room(id));
        self.give(id, room, false, out);
        self.pump(out);
    }

    /// Rows were accepted.
    pub fn accept(&mut self, id: DispatcherId, bytes: u64, lane: bool, out: &mut Vec<Grant>) {
        if lane {
            debug_assert_eq!(
                self.lane,
                Lane::Granted(id),
                "a row in a lane that was not granted"
            );
            self.lane = Lane::Held(id, bytes);
        }
        self.change(id, |account| {
            if !lane {
                debug_assert!(bytes <= account.open(), "the service sent more than was granted");
                account.accepted += bytes;
                account.held += bytes;
                account.drained += bytes;
                account.used += bytes;
            }
            // The stream moves: it does not wait any more.
            account.waiting = false;
            account.needs = 0;
        });
        self.top_up(id, out);
    }

    /// The sink has released rows.
    pub fn release(&mut self, id: DispatcherId, bytes: u64, lane: bool, out: &mut Vec<Grant>) {
        if lane {
            if matches!(self.lane, Lane::Held(holder, _) if holder == id) {
                self.lane = Lane::Free;
            }
            self.pump(out);
            return;
        }
        self.change(id, |account| {
            debug_assert!(bytes <= account.held, "more released than was held");
            account.held = account.held.saturating_sub(bytes);
        });
        if self.accounts.get(&id).is_some_and(|a| a.gone && a.held == 0) {
            self.accounts.remove(&id);
        }
        self.top_up(id, out);
        self.pump(out);
    }

    /// The stream gave credit back: `returned` is the sum of the epoch.
    pub fn give_back(&mut self, id: DispatcherId, returned: u64, out: &mut Vec<Grant>) {
        let share = match self.windows {
            WindowPolicy::PerDispatcher => self.share,
            WindowPolicy::Fixed => self.fixed_window(),
        };
        let mut changed = false;
        self.change(id, |account| {
            if returned > account.returned {
                debug_assert!(returned - account.returned <= account.open());
                account.returned = returned;
                account.window = (account.window / 2).max(share);
                changed = true;
            }
        });
        if changed {
            self.pump(out);
        }
    }

    /// The stream stands still for want of `needs` bytes, and knows the grants up to
    /// `grant_seq`. An older demand than the last grant has been answered: false.
    pub fn demand(&mut self, id: DispatcherId, needs: u64, grant_seq: u64, out: &mut Vec<Grant>) -> bool {
        let (window_max, contested) = (self.window_max(), !self.waiters.is_empty());
        let Some(account) = self.accounts.get_mut(&id).filter(|a| a.live) else {
            return true;
        };
        if grant_seq != account.grant_seq {
            return false;
        }
        let repeated = account.needs == needs;
        account.needs = needs.max(1);
        if !repeated && !contested && account.drained >= account.window / 2 {
            account.window = (account.window * 2).min(window_max);
            account.drained = 0;
        }
        account.window = account.window.max(self.share).max(needs.min(window_max));
        if self.serve(id, out) == Outcome::Budget {
            self.wait(id);
            self.pump(out);
        }
        true
    }

    /// Whether the last grant is later than `grant_seq`.
    pub fn is_behind(&self, id: DispatcherId, grant_seq: u64) -> bool {
        self.accounts
            .get(&id)
            .is_some_and(|a| a.live && grant_seq < a.grant_seq)
    }

    /// Says the last grant again.
    pub fn last_grant(&self, id: DispatcherId) -> Option<Grant> {
        self.accounts.get(&id).filter(|a| a.live).map(|a| a.grant(id))
    }

    /// A slow sweep: credit that streams should have given back is asked for again while
    /// somebody waits.
    pub fn sweep(&mut self, out: &mut Vec<Grant>) {
        if self.waiters.is_empty() {
            return;
        }
        let share = self.share;
        for account in self.accounts.values_mut().filter(|a| a.live && a.open() > share) {
            account.keep = u64::MAX;
            self.keeps_stale = true;
        }
        self.pump(out);
    }

    /// Grants more before a draining stream stands still: when half of its window has
    /// come back.
    fn top_up(&mut self, id: DispatcherId, out: &mut Vec<Grant>) {
        let Some(account) = self.accounts.get(&id).filter(|a| a.live).copied() else {
            return;
        };
        if account.needs > 0 {
            if self.serve(id, out) == Outcome::Budget {
                self.wait(id);
            }
            return;
        }
        let window = if self.waiters.is_empty() || self.windows == WindowPolicy::Fixed {
            account.window
        } else {
            self.share
        };
        let lacking = window.saturating_sub(account.charge());
        if account.used > 0 && lacking >= (window / 2).max(1) {
            let room = lacking.min(self.room(id));
            if room > 0 {
                self.give(id, room, false, out);
            }
        }
    }

    /// Serves a demand if the account's own window and the budget allow it.
    fn serve(&mut self, id: DispatcherId, out: &mut Vec<Grant>) -> Outcome {
        let Some(account) = self.accounts.get(&id).filter(|a| a.live && a.needs > 0).copied() else {
            return Outcome::Served;
        };
        let lacking = account.window.saturating_sub(account.charge());
        let fits = account.open() + lacking >= account.needs;
        // In bulk, while something is still to come back.
        if account.held > 0 && (lacking < account.window / 2 || !fits) {
            return Outcome::OwnWindow;
        }
        let give = lacking.min(self.room(id));
        if account.open() + give < account.needs {
            return Outcome::Budget;
        }
        // Crumbs make small batches: better take what the next release brings.
        if account.held > 0 && give < lacking.min(account.window / CRUMB_DIVISOR) {
            return Outcome::OwnWindow;
        }
        self.give(id, give, false, out);
        Outcome::Served
    }

    fn wait(&mut self, id: DispatcherId) {
        if let Some(account) = self.accounts.get_mut(&id)
            && !account.waiting
        {
            account.waiting = true;
            self.waiters.push_back(id);
        }
    }

    /// Serves waiters in order; the first that cannot be served takes the lane if it is
    /// free and only the budget is in its way.
    fn pump(&mut self, out: &mut Vec<Grant>) {
        let mut passed_over = 0;
        while passed_over < self.waiters.len().min(LOOK_AHEAD) {
            let Some(&id) = self.waiters.get(passed_over) else {
                break;
            };
            let waiting = self.accounts.get(&id).is_some_and(|a| a.waiting && a.live);
            if waiting && self.serve(id, out) == Outcome::Budget && !self.take_lane(id, out) {
                passed_over += 1;
                continue;
            }
            if let Some(account) = self.accounts.get_mut(&id) {
                account.waiting = false;
            }
            self.waiters.remove(passed_over);
        }
        if self.keeps_stale && !self.waiters.is_empty() {
            self.lower_keeps(out);
        }
    }

    fn take_lane(&mut self, id: DispatcherId, out: &mut Vec<Grant>) -> bool {
        if self.lane != Lane::Free {
            return false;
        }
        self.lane = Lane::Granted(id);
        self.give(id, 0, true, out);
        true
    }

    /// Asks streams that stand still to keep no more than today's share.
    fn lower_keeps(&mut self, out: &mut Vec<Grant>) {
        self.keeps_stale = false;
        let share = self.share;
        let stale: Vec<_> = self
            .accounts
            .iter()
            .filter(|(_, a)| a.live && a.keep > share)
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            if let Some(account) = self.accounts.get_mut(&id) {
                account.keep = share;
                account.grant_seq += 1;
                out.push(account.grant(id));
            }
        }
    }

    /// Bytes that the budget has for the dispatcher: the rest of its share, and what
    /// nobody's share needs.
    fn room(&self, id: DispatcherId) -> u64 {
        if self.windows == WindowPolicy::Fixed {
            return self.budget.saturating_sub(self.charged);
        }
        let own = self.share.saturating_sub(self.charge(id));
        let pool = self.budget.saturating_sub(self.reserved);
        (own + pool).min(self.budget.saturating_sub(self.charged))
    }

    fn give(&mut self, id: DispatcherId, bytes: u64, lane: bool, out: &mut Vec<Grant>) {
        let share = self.share;
        self.change(id, |account| {
            account.granted += bytes;
            account.lane_rows += u64::from(lane);
            account.grant_seq += 1;
            account.keep = share;
            account.used = 0;
            account.needs = 0;
            account.waiting = false;
        });
        out.extend(self.last_grant(id));
        debug_assert!(self.charged <= self.budget, "more charged than the budget has");
    }

    fn charge(&self, id: DispatcherId) -> u64 {
        self.accounts.get(&id).map_or(0, Account::charge)
    }

    fn change(&mut self, id: DispatcherId, change: impl FnOnce(&mut Account)) {
        if let Some(account) = self.accounts.get_mut(&id) {
            let (charge, reserved) = (account.charge(), reserve(account, self.share));
            change(account);
            self.charged = self.charged - charge + account.charge();
            self.reserved = self.reserved - reserved + reserve(account, self.share);
        }
    }

    fn window_max(&self) -> u64 {
        if self.windows == WindowPolicy::Fixed {
            return self.fixed_window();
        }
        WINDOW_MAX_BYTES.min(self.budget / 4).max(self.share)
    }

    const fn fixed_window(&self) -> u64 {
        self.budget / FIXED_WINDOW_PART
    }
}

#[cfg(test)]
mod tests;
