//! Exponential backoff with jitter from a seeded generator, so that a run can be
//! repeated.

/// First delay of a repetition, milliseconds.
pub const FIRST_MS: u64 = 200;
/// Longest delay, milliseconds.
pub const LONGEST_MS: u64 = 10_000;

/// Small generator (xorshift64*, Marsaglia 2003 and Vigna 2016) for jitter.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// A generator; equal seeds give equal delays.
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Delay before repetition `attempt` (from 0): doubled each time, between three
    /// quarters and all of it.
    pub const fn delay_ms(&mut self, attempt: u32) -> u64 {
        let shift = if attempt > 16 { 16 } else { attempt };
        let doubled = FIRST_MS << shift;
        let full = if doubled > LONGEST_MS { LONGEST_MS } else { doubled };
        full - self.next() % (full / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_stay_bounded() {
        let (mut a, mut b) = (Jitter::new(7), Jitter::new(7));
        for attempt in 0..40 {
            let delay = a.delay_ms(attempt);
            assert_eq!(delay, b.delay_ms(attempt));
            let full = (FIRST_MS << attempt.min(16)).min(LONGEST_MS);
            assert!(delay <= full && delay > full * 3 / 4 - 1, "{attempt}: {delay}");
        }
    }
}
