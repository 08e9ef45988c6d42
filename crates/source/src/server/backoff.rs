//! How long to wait before the next attempt to connect.

use std::time::Duration;

/// First pause.
pub const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause.
pub const RETRY_MAX: Duration = Duration::from_secs(10);
/// Longest silence of the server that is waited for, when earlier waits were in vain: it
/// may be looking for the start in many files.
pub const PATIENCE_MAX: Duration = Duration::from_secs(300);

/// Doubling pauses, each shortened by up to half at random so that many clients of a
/// server that comes back do not arrive at once.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    /// State of the jitter (xorshift, never 0).
    random: u64,
}

impl Backoff {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            attempts: 0,
            random: seed | 1,
        }
    }

    /// Pauses since the last success.
    pub(crate) const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let full = doubled(RETRY_MIN, self.attempts, RETRY_MAX);
        self.attempts = self.attempts.saturating_add(1);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = u32::try_from(self.random % 512).unwrap_or(0);
        full - full / 1024 * part
    }

    /// The server is there again.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// How long the first event may take, after so many vain waits for it.
pub(crate) fn patience(silence: Duration, vain: u32) -> Duration {
    doubled(silence * 2, vain, PATIENCE_MAX)
}

fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    first
        .checked_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
        .map_or(most, |wanted| wanted.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(7);
        let mut full = RETRY_MIN;
        for _ in 0..100 {
            let pause = backoff.next();
            assert!(pause <= full && pause >= full / 2, "{pause:?} of {full:?}");
            full = (full * 2).min(RETRY_MAX);
        }
        backoff.reset();
        assert!(backoff.next() <= RETRY_MIN);
        assert_eq!(backoff.attempts(), 1);
    }

    #[test]
    fn patience_grows_with_every_vain_wait() {
        let silence = Duration::from_secs(5);
        assert_eq!(patience(silence, 0), Duration::from_secs(10));
        assert_eq!(patience(silence, 3), Duration::from_secs(80));
        assert_eq!(patience(silence, 40), PATIENCE_MAX);
    }
}
