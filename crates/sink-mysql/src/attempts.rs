//! Trying again what the target does not take for now.

use std::time::Duration;

use weir_sink::Blocked;
use weir_sink::contract::WorkerContext;

use crate::backend::Shared;
use crate::error::{MysqlSinkError, Result};
use crate::reply::Retry;

/// First wait after a failure.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// Longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest wait where the server has waited already, or another attempt soon succeeds.
const WAIT_LOCKED_MAX: Duration = Duration::from_millis(500);
/// Lost connections in a row that are no outage worth a line in the log.
const QUIET_FAILURES: u32 = 2;

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may succeed later; with a word for the log.
    Retry(Retry, String),
    /// It never will.
    Definite(MysqlSinkError),
}

impl Failure {
    /// Judges an error of Weir's own queries.
    pub(crate) fn of(error: MysqlSinkError) -> Self {
        match error {
            MysqlSinkError::Unavailable { retry, reason } => Self::Retry(retry, reason),
            MysqlSinkError::Unreachable { .. } | MysqlSinkError::Zombie { .. } => {
                Self::Retry(Retry::Lost, error.to_string())
            }
            error => Self::Definite(error),
        }
    }

    /// The connection must not be used any more.
    pub(crate) const fn lost(&self) -> bool {
        matches!(self, Self::Retry(Retry::Lost, _))
    }
}

impl From<MysqlSinkError> for Failure {
    fn from(error: MysqlSinkError) -> Self {
        Self::of(error)
    }
}

/// Attempts at one piece of work.
pub(crate) struct Attempts {
    what: String,
    failures: u32,
    /// Said in the log that it fails.
    told: bool,
}

impl Attempts {
    pub(crate) const fn new(what: String) -> Self {
        Self {
            what,
            failures: 0,
            told: false,
        }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The failure is for good, or the sink stops.
    pub(crate) fn after(&mut self, failure: Failure, shared: &Shared, worker: &WorkerContext) -> Result<()> {
        let (reason, why) = match failure {
            Failure::Definite(error) => return Err(error),
            Failure::Retry(reason, why) => (reason, why),
        };
        self.failures += 1;
        shared.metrics.retried(reason);
        let passing = matches!(reason, Retry::Deadlock | Retry::Locked);
        if !passing && self.failures > QUIET_FAILURES {
            shared.metrics.connected(false);
            shared.counters.set_away(true);
            if !self.told {
                self.told = true;
                tracing::warn!(
                    code = "WEIR-MYS-005",
                    reason = reason.label(),
                    why,
                    what = self.what,
                    "the target does not take it for now; trying again until it does"
                );
            }
        }
        let wait = wait(self.failures, if passing { WAIT_LOCKED_MAX } else { WAIT_MAX });
        if worker.pause(wait, blocked(reason)) {
            Ok(())
        } else {
            Err(MysqlSinkError::Stopping)
        }
    }

    /// Notes that it worked.
    pub(crate) fn succeeded(&self, shared: &Shared) {
        if self.failures > 0 {
            shared.metrics.connected(true);
            shared.counters.set_away(false);
        }
        if self.told {
            tracing::info!(
                what = self.what,
                failures = self.failures,
                "the target takes it again"
            );
        }
    }
}

const fn blocked(reason: Retry) -> Blocked {
    match reason {
        Retry::Deadlock | Retry::Locked => Blocked::Locked,
        Retry::DiskFull => Blocked::DiskFull,
        Retry::ReadOnly | Retry::Lost | Retry::Busy => Blocked::Unavailable,
    }
}

/// Twice as long after each failure.
fn wait(failures: u32, longest: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (WAIT_MIN * (1_u32 << doublings)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        assert_eq!(wait(1, WAIT_MAX), WAIT_MIN);
        assert_eq!(wait(3, WAIT_MAX), WAIT_MIN * 4);
        assert_eq!(wait(100, WAIT_MAX), WAIT_MAX);
        assert_eq!(wait(u32::MAX, WAIT_LOCKED_MAX), WAIT_LOCKED_MAX);
    }

    #[test]
    fn outages_are_tried_again_and_refusals_are_not() {
        let outage = MysqlSinkError::Unavailable {
            retry: Retry::Lost,
            reason: String::new(),
        };
        assert!(Failure::of(outage).lost());
        let refusal = MysqlSinkError::Panicked;
        assert!(matches!(Failure::of(refusal), Failure::Definite(_)));
    }
}
