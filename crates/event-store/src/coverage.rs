//! Which row events of each table a store holds completely.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_types::{CommitTs, OrderKey};

use crate::catalog::TableId;
use crate::contract::Coverage;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    from: OrderKey,
    /// None while the table goes on.
    to: Option<OrderKey>,
}

/// What differs from the rule: a store is sent every table from its own start on, so a
/// table that is not in here is covered from there up to resolved-ts, also one that the
/// store has not met yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Coverages(BTreeMap<TableId, Held>);

impl Coverages {
    /// None if nothing is left of a table that ended.
    pub(crate) fn of(&self, table: TableId, resolved: CommitTs) -> Option<Coverage> {
        let held = self.0.get(&table).copied().unwrap_or_default();
        match held.to {
            Some(to) if to <= held.from => None,
            to => Some(Coverage {
                from: held.from,
                to: to.unwrap_or_else(|| OrderKey::end_of(resolved)),
                ended: to.is_some(),
            }),
        }
    }

    /// Row events up to there may be gone.
    pub(crate) fn from(&self, table: TableId) -> OrderKey {
        self.0.get(&table).map_or(OrderKey::MIN, |held| held.from)
    }

    /// Row events up to `from` may be gone.
    pub(crate) fn raise(&mut self, table: TableId, from: OrderKey) {
        let held = self.0.entry(table).or_default();
        held.from = held.from.max(from);
    }

    /// Row events behind `to` will not be held.
    pub(crate) fn end(&mut self, table: TableId, to: OrderKey) {
        let held = self.0.entry(table).or_default();
        held.to = Some(held.to.map_or(to, |known| known.min(to)));
    }

    pub(crate) fn has_ended(&self, table: TableId) -> bool {
        self.0.get(&table).is_some_and(|held| held.to.is_some())
    }

    /// Tables that ended.
    pub(crate) fn ended(&self) -> impl Iterator<Item = TableId> {
        let ended = self.0.iter().filter(|(_, held)| held.to.is_some());
        ended.map(|(table, _)| *table)
    }

    /// Takes over what another record knows: each says nothing too much.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (table, held) in &other.0 {
            self.raise(*table, held.from);
            if let Some(to) = held.to {
                self.end(*table, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ts: u64) -> OrderKey {
        OrderKey::end_of(CommitTs(ts))
    }

    #[test]
    fn a_table_is_covered_from_the_start_until_something_moves() {
        let mut all = Coverages::default();
        let mut expected = Coverage {
            from: OrderKey::MIN,
            to: key(9),
            ended: false,
        };
        assert_eq!(all.of(4, CommitTs(9)), Some(expected));
        all.raise(4, key(3));
        all.raise(4, key(2));
        expected.from = key(3);
        assert_eq!(all.of(4, CommitTs(9)), Some(expected));
        all.end(4, key(8));
        all.end(4, key(9));
        (expected.to, expected.ended) = (key(8), true);
        assert_eq!(all.of(4, CommitTs(20)), Some(expected));
        all.raise(4, key(8));
        assert_eq!(all.of(4, CommitTs(20)), None);
        assert!(!all.has_ended(5));
    }

    #[test]
    fn merging_keeps_the_smaller_range() {
        let (mut one, mut other) = (Coverages::default(), Coverages::default());
        one.raise(1, key(3));
        one.end(2, key(7));
        other.raise(1, key(2));
        other.raise(2, key(5));
        other.end(2, key(8));
        let before = one.clone();
        one.merge(&Coverages::default());
        assert_eq!(one, before);
        one.merge(&other);
        assert_eq!(one.of(1, CommitTs(9)).map(|c| c.from), Some(key(3)));
        assert_eq!(
            one.of(2, CommitTs(9)).map(|c| (c.from, c.to)),
            Some((key(5), key(7)))
        );
        assert_eq!(one.ended().collect::<Vec<_>>(), [2]);
    }
}
