//! Which table, if any, is given up when the disk quota is used up.
//!
//! A table whose rows do not get through fills the store until the source has to pause,
//! and then delays all others. It is given up before that lasts, but only if it is
//! certain that it is this one table: a sink that is slow or down as a whole, and a
//! large table that is merely behind, make the source pause.

use std::collections::HashMap;

use weir_types::{OrderKey, TableName};

/// A table that moves within this time is not stuck, milliseconds.
pub const STUCK_MS: u64 = 60_000;
/// The stuck table alone holds more than this part of the quota.
const LARGE_PART: u64 = 2;
/// All others together hold less than this part.
const SMALL_PART: u64 = 8;

#[derive(Clone, Copy, Debug)]
struct Progress {
    key: OrderKey,
    /// When `key` last changed.
    moved_ms: u64,
    /// Last row event stored when `key` was reported.
    rows_upto: OrderKey,
    /// When row events were last passed.
    passed_rows_ms: Option<u64>,
}

/// Follows the tables' synced progress. Time is a parameter, milliseconds of any clock
/// that does not go back.
#[derive(Clone, Debug)]
pub struct Shares {
    stuck_ms: u64,
    tables: HashMap<TableName, Progress>,
}

impl Shares {
    /// Nothing known yet. `stuck_ms`: see [`STUCK_MS`].
    pub fn new(stuck_ms: u64) -> Self {
        Self {
            stuck_ms,
            tables: HashMap::new(),
        }
    }

    /// Synced progress of all tables. `last`: the table's last row event in the store.
    pub fn advanced(
        &mut self,
        now_ms: u64,
        tables: &[(TableName, OrderKey)],
        last: impl Fn(&TableName) -> Option<OrderKey>,
    ) {
        let mut old = std::mem::take(&mut self.tables);
        for (table, key) in tables {
            let rows_upto = last(table).unwrap_or_default();
            let mut progress = old.remove(table).unwrap_or(Progress {
                key: *key,
                moved_ms: now_ms,
                rows_upto,
                passed_rows_ms: None,
            });
            if *key > progress.key {
                // An idle table moves too: that tells nothing about the sink.
                let passed = |row: OrderKey| row > progress.key && row <= *key;
                if passed(progress.rows_upto) || passed(rows_upto) {
                    progress.passed_rows_ms = Some(now_ms);
                }
                progress.moved_ms = now_ms;
                progress.key = *key;
            }
            progress.rows_upto = rows_upto;
            self.tables.insert(table.clone(), progress);
        }
    }

    /// The table to give up while the quota keeps appends waiting since `blocked_ms`;
    /// none if the source is to pause.
    pub fn to_detach(
        &self,
        now_ms: u64,
        blocked_ms: u64,
        quota: u64,
        live: &HashMap<TableName, u64>,
    ) -> Option<TableName> {
        let (table, bytes) = live.iter().max_by_key(|(_, bytes)| **bytes)?;
        let others: u64 = live.values().sum::<u64>() - bytes;
        let progress = self.tables.get(table)?;
        let since_ms = progress.moved_ms.max(blocked_ms);
        let stuck = now_ms.saturating_sub(since_ms) >= self.stuck_ms;
        // The sink took rows of another table after it had stopped taking this one's.
        let sink_works = self
            .tables
            .iter()
            .any(|(other, p)| other != table && p.passed_rows_ms > Some(progress.moved_ms));
        let alone = *bytes > quota / LARGE_PART && others < quota / SMALL_PART;
        (alone && stuck && sink_works).then(|| table.clone())
    }
}

#[cfg(test)]
mod tests {
    use weir_types::CommitTs;

    use super::*;

    const QUOTA: u64 = 800;

    fn key(ts: u64) -> OrderKey {
        OrderKey::end_of(CommitTs(ts))
    }

    fn name(table: &str) -> TableName {
        TableName::new("s", table)
    }

    fn live(slow: u64, other: u64) -> HashMap<TableName, u64> {
        HashMap::from([(name("slow"), slow), (name("other"), other)])
    }

    /// Both have rows up to 10; `slow` comes to `slow`, `other` to `other`, later.
    fn after(slow: u64, other: u64) -> Shares {
        let mut shares = Shares::new(100);
        let rows = |_: &TableName| Some(key(10));
        shares.advanced(0, &[(name("slow"), key(1)), (name("other"), key(1))], rows);
        let tables = [(name("slow"), key(slow)), (name("other"), key(other))];
        shares.advanced(50, &tables, rows);
        shares
    }

    #[test]
    fn a_table_that_alone_is_stuck_is_given_up() {
        let shares = after(1, 10);
        assert_eq!(
            shares.to_detach(160, 60, QUOTA, &live(401, 99)),
            Some(name("slow"))
        );
        // Not before it has been waited for.
        assert_eq!(shares.to_detach(159, 60, QUOTA, &live(401, 99)), None);
    }

    #[test]
    fn rows_that_came_and_went_between_two_reports_count() {
        let mut shares = Shares::new(100);
        shares.advanced(0, &[(name("slow"), key(1)), (name("other"), key(9))], |_| {
            Some(key(9))
        });
        shares.advanced(50, &[(name("slow"), key(1)), (name("other"), key(20))], |_| {
            Some(key(20))
        });
        assert_eq!(
            shares.to_detach(160, 60, QUOTA, &live(401, 99)),
            Some(name("slow"))
        );
    }

    #[test]
    fn shares_that_are_not_one_sided_make_the_source_pause() {
        let shares = after(1, 10);
        assert_eq!(shares.to_detach(900, 60, QUOTA, &live(400, 0)), None);
        assert_eq!(shares.to_detach(900, 60, QUOTA, &live(500, 100)), None);
        assert_eq!(shares.to_detach(900, 60, QUOTA, &HashMap::new()), None);
    }

    #[test]
    fn a_sink_that_takes_nothing_at_all_makes_the_source_pause() {
        assert_eq!(after(1, 1).to_detach(900, 60, QUOTA, &live(700, 0)), None);
        // An idle table follows resolved-ts without any sink.
        let mut shares = after(1, 10);
        shares.tables.remove(&name("other"));
        let tables = [(name("slow"), key(1)), (name("idle"), key(20))];
        shares.advanced(60, &tables, |_| Some(key(5)));
        let tables = [(name("slow"), key(1)), (name("idle"), key(30))];
        shares.advanced(70, &tables, |_| Some(key(5)));
        assert_eq!(shares.to_detach(900, 60, QUOTA, &live(700, 0)), None);
    }

    #[test]
    fn a_table_that_moves_is_only_behind() {
        assert_eq!(after(2, 10).to_detach(900, 60, QUOTA, &live(700, 0)), None);
    }

    #[test]
    fn a_single_table_is_never_given_up() {
        let mut shares = Shares::new(100);
        let one = [(name("slow"), key(1))];
        shares.advanced(0, &one, |_| Some(key(10)));
        let live = HashMap::from([(name("slow"), 700)]);
        assert_eq!(shares.to_detach(900, 60, QUOTA, &live), None);
    }
}
