//! The clock that gives commit timestamps.

use crate::key::CommitTs;

/// How far the physical part may run ahead of Weir's own clock. One client's
/// `SET TIMESTAMP` must not push it into the future for ever.
pub const AHEAD_MAX_MS: u64 = 60_000;

/// Hybrid logical clock. Pure: the wall clock is a parameter.
#[derive(Clone, Debug)]
pub struct CommitClock {
    last: CommitTs,
}

impl CommitClock {
    /// Continues after `last`, the greatest commit-ts given so far.
    pub const fn new(last: CommitTs) -> Self {
        Self { last }
    }

    /// The greatest commit-ts given so far.
    pub const fn last(&self) -> CommitTs {
        self.last
    }

    /// The next commit-ts for a transaction of original commit time `event_ms`, at the
    /// wall clock `now_ms` (both milliseconds since the Unix epoch). Always greater
    /// than the one before.
    pub fn next(&mut self, event_ms: u64, now_ms: u64) -> CommitTs {
        let physical = event_ms.min(now_ms.saturating_add(AHEAD_MAX_MS));
        let wanted = CommitTs::from_millis(physical);
        self.last = if wanted > self.last {
            wanted
        } else {
            CommitTs(self.last.0 + 1)
        };
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_strictly_monotone_and_clamped() {
        let mut clock = CommitClock::new(CommitTs::ZERO);
        let a = clock.next(1_000, 5_000);
        let b = clock.next(1_000, 5_000);
        let c = clock.next(500, 5_000);
        assert!(a < b && b < c);
        let d = clock.next(10_000_000, 5_000);
        assert_eq!(d.millis(), 65_000);
    }
}
