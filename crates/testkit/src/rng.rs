//! Deterministic random numbers: a failing seed can be run again.

/// xorshift64* (Marsaglia 2003, Vigna 2016), seeded through a multiplication so that
/// neighbouring seeds differ at once.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator; equal seeds give equal numbers.
    pub const fn new(seed: u64) -> Self {
        Self((seed.wrapping_add(0x632b_e59b_d9b4_e019)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Below `n`, which is not 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// In `from..=to`.
    pub const fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True in `percent` of a hundred cases.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len() as u64);
        &from[usize::try_from(at).unwrap_or(0)]
    }
}
