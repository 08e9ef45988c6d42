//! Commit timestamps and order keys.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bits of the logical counter below the milliseconds.
pub const LOGICAL_BITS: u32 = 18;

/// Hybrid logical clock: milliseconds since the Unix epoch << 18 | counter. Given once,
/// when the store appends; greater than every one before it in the same lineage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommitTs(pub u64);

impl CommitTs {
    /// Before every transaction.
    pub const ZERO: Self = Self(0);
    /// After every transaction.
    pub const MAX: Self = Self(u64::MAX);

    /// The first commit-ts of a millisecond.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis << LOGICAL_BITS)
    }

    /// The physical part, in milliseconds since the Unix epoch.
    pub const fn millis(self) -> u64 {
        self.0 >> LOGICAL_BITS
    }
}

impl fmt::Display for CommitTs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Place of a row event or a DDL in a lineage: the transaction's commit-ts, then its
/// ordinal inside the transaction group, counted before any filter. Ordinals of events
/// start at 1; 0 is "before the first event of the transaction".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OrderKey {
    /// Commit-ts of the transaction.
    pub commit_ts: CommitTs,
    /// Ordinal inside the transaction group.
    pub ordinal: u32,
}

impl OrderKey {
    /// Before everything.
    pub const MIN: Self = Self {
        commit_ts: CommitTs::ZERO,
        ordinal: 0,
    };
    /// After everything.
    pub const MAX: Self = Self {
        commit_ts: CommitTs::MAX,
        ordinal: u32::MAX,
    };

    /// Makes a key.
    pub const fn new(commit_ts: CommitTs, ordinal: u32) -> Self {
        Self { commit_ts, ordinal }
    }

    /// The last possible key of a transaction: "all of it".
    pub const fn end_of(commit_ts: CommitTs) -> Self {
        Self {
            commit_ts,
            ordinal: u32::MAX,
        }
    }

    /// The greatest key below this one.
    pub const fn before(self) -> Self {
        match self.ordinal {
            0 => Self {
                commit_ts: CommitTs(self.commit_ts.0.saturating_sub(1)),
                ordinal: u32::MAX,
            },
            n => Self {
                commit_ts: self.commit_ts,
                ordinal: n - 1,
            },
        }
    }

    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 24 || !text.is_ascii() {
            return None;
        }
        let commit_ts = u64::from_str_radix(&text[..16], 16).ok()?;
        let ordinal = u32::from_str_radix(&text[16..], 16).ok()?;
        Some(Self {
            commit_ts: CommitTs(commit_ts),
            ordinal,
        })
    }
}

/// 24 hexadecimal digits of fixed width, so that names sort as keys do.
impl fmt::Display for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:08x}", self.commit_ts.0, self.ordinal)
    }
}
