//! A cheap order-dependent hash, the same on both sides of a benchmark.

/// Odd multiplier with well spread bits (2⁶⁴ ÷ golden ratio).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a pass over row values has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Rows; an update is one.
    pub rows: u64,
    /// Values, NULLs included, of both images.
    pub values: u64,
    /// NULLs among them.
    pub nulls: u64,
    /// Hash over all values.
    pub hash: u64,
}

impl Visit {
    /// Takes a number in.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    }

    /// Takes bytes in, eight at a time.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut tail = [0_u8; 8];
        tail[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(tail) ^ ((bytes.len() as u64) << 56));
    }

    /// Takes a NULL in.
    #[inline]
    pub fn null(&mut self) {
        self.nulls += 1;
        self.word(u64::MAX);
    }
}

/// A date with time as one word.
#[inline]
pub fn pack_datetime(date: (u16, u8, u8), time: (u8, u8, u8), micros: u32) -> u64 {
    let date = (u64::from(date.0) << 9) | (u64::from(date.1) << 5) | u64::from(date.2);
    let time = (u64::from(time.0) << 12) | (u64::from(time.1) << 6) | u64::from(time.2);
    (date << 41) | (time << 24) | u64::from(micros)
}

/// A TIME as one word.
#[inline]
pub fn pack_time(negative: bool, hours: u32, minutes: u8, seconds: u8, micros: u32) -> u64 {
    let time = (u64::from(hours) << 12) | (u64::from(minutes) << 6) | u64::from(seconds);
    (u64::from(negative) << 63) | (time << 24) | u64::from(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_length_count() {
        let hash = |parts: &[&[u8]]| {
            let mut visit = Visit::default();
            parts.iter().for_each(|part| visit.bytes(part));
            visit.hash
        };
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"ab"]), hash(&[b"ab\0"]));
        assert_ne!(hash(&[b"0123456789"]), hash(&[b"0123456788"]));
    }
}
