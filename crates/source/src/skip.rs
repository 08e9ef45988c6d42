//! Transactions that lie before the start.

use weir_types::{Gtid, GtidSet};

/// Which transactions at the beginning are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// None.
    Nothing,
    /// All, while the end of the source is looked for.
    All,
    /// Those of a set, wherever they stand. Holds for every run that began with this
    /// start, since they need not stand together.
    Gtids(GtidSet),
    /// Those before the first one that was committed at this time (milliseconds since
    /// the Unix epoch) or later.
    Before(u64),
}

impl Skip {
    /// Whether the next transaction is left out.
    pub(crate) fn skips(&mut self, gtid: Option<&Gtid>, commit_time_ms: u64) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Gtids(set) => gtid.is_some_and(|gtid| set.contains(gtid)),
            Self::Before(time_ms) if commit_time_ms < *time_ms => true,
            Self::Before(_) => {
                *self = Self::Nothing;
                false
            }
        }
    }

    /// While a place is searched for, nothing may become the position to resume from: the
    /// search would be taken for done.
    pub(crate) const fn holds_position(&self) -> bool {
        matches!(self, Self::Before(_) | Self::All)
    }
}
