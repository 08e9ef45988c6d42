//! A small seeded generator, so that a recording can be made again from its seed.

/// SplitMix64: 64 bits of state, equidistributed, good enough for test data.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Starts a sequence.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of `low..=high`.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.range(1, 100) <= percent
    }

    /// Appends a text of `low..=high` letters, with spaces.
    pub(crate) fn text(&mut self, out: &mut String, low: u64, high: u64) {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyzABCDE ";
        let length = self.range(low, high);
        for _ in 0..length {
            let index = usize::try_from(self.next() % 32).unwrap_or(0);
            out.push(char::from(LETTERS[index]));
        }
    }

    /// Appends exactly `count` digits.
    pub(crate) fn digits(&mut self, out: &mut String, count: u64) {
        for _ in 0..count {
            out.push(char::from(b'0' + u8::try_from(self.next() % 10).unwrap_or(0)));
        }
    }
}
