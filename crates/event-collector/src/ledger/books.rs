//! How the books stand.

use weir_types::DispatcherId;

use super::account::{Account, reserve};
use super::{Lane, Ledger};

impl Ledger {
    /// The budget.
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes charged over all dispatchers, lane aside.
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// Guaranteed share of a dispatcher.
    pub const fn share(&self) -> u64 {
        self.share
    }

    /// Who has the lane.
    pub const fn lane(&self) -> Lane {
        self.lane
    }

    /// Dispatchers that wait for budget.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// One account.
    pub fn account(&self, id: DispatcherId) -> Option<&Account> {
        self.accounts.get(&id)
    }

    /// Sums of open, closing and held bytes.
    pub fn totals(&self) -> (u64, u64, u64) {
        self.accounts
            .values()
            .fold((0, 0, 0), |(open, closing, held), a| {
                (open + a.open(), closing + a.closing, held + a.held)
            })
    }

    /// Checks the books against each other.
    ///
    /// # Errors
    /// What does not add up.
    pub fn check(&self) -> Result<(), String> {
        let (open, closing, held) = self.totals();
        if open + closing + held != self.charged {
            return Err(format!(
                "open {open} + closing {closing} + held {held} ≠ charged {}",
                self.charged
            ));
        }
        if self.charged > self.budget {
            return Err(format!("charged {} of a budget of {}", self.charged, self.budget));
        }
        let reserved: u64 = self.accounts.values().map(|a| reserve(a, self.share)).sum();
        if reserved != self.reserved {
            return Err(format!("reserved {reserved} ≠ {}", self.reserved));
        }
        Ok(())
    }
}
