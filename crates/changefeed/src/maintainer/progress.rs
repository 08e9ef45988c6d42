//! What is saved as progress, and when. The state machine sees keys; the saver turns
//! them into tokens.

use std::collections::{BTreeMap, BTreeSet};

use weir_protocol::store::AdvanceGc;
use weir_types::{OrderKey, TableName};

use super::registry::Registry;

/// Least time between two saves, milliseconds. Each one is an fsync.
pub const SAVE_INTERVAL_MS: u64 = 1_000;
/// The same right after the first save. From there the interval grows by half of the time since that save: a process
/// that lives for T milliseconds loses about a third of its progress at most, so that one that crashes in its first
/// second, again and again, still gets on.
pub const SAVE_INTERVAL_FIRST_MS: u64 = 100;

/// Saved progress as keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedKeys {
    /// Where the changefeed began, exclusive.
    pub start: OrderKey,
    /// Token key of the schema dispatcher.
    pub schema: OrderKey,
    /// Token key per table that has a dispatcher.
    pub tables: BTreeMap<TableName, OrderKey>,
}

impl SavedKeys {
    /// A changefeed that begins behind `start`, where `tables` exist.
    pub fn fresh(start: OrderKey, tables: impl IntoIterator<Item = TableName>) -> Self {
        Self {
            start,
            schema: start,
            tables: tables.into_iter().map(|table| (table, start)).collect(),
        }
    }

    /// Applies a save.
    pub fn apply(&mut self, update: &SaveProgress) {
        self.schema = update.schema;
        for table in &update.removed {
            self.tables.remove(table);
        }
        self.tables.extend(update.changed.iter().cloned());
    }
}

/// One save: what changed since the last one that succeeded. All of it in one
/// transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveProgress {
    /// Counts up; comes back with `saved`.
    pub seq: u64,
    /// Token key of the schema dispatcher.
    pub schema: OrderKey,
    /// Tables whose token moved, and new tables.
    pub changed: Vec<(TableName, OrderKey)>,
    /// Tables whose dispatcher has ended.
    pub removed: Vec<TableName>,
}

/// Keeps what is saved apart from what is known. At most one save is under way; the next
/// one takes everything that has changed meanwhile.
#[derive(Debug)]
pub(super) struct SavePolicy {
    saved: SavedKeys,
    in_flight: Option<SaveProgress>,
    next_seq: u64,
    /// When the first and the last save were made.
    made_ms: Option<(u64, u64)>,
}

impl SavePolicy {
    pub(super) const fn new(saved: SavedKeys) -> Self {
        Self {
            saved,
            in_flight: None,
            next_seq: 1,
            made_ms: None,
        }
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// A save if one is due and anything has changed. `force` skips the interval, not
    /// the save under way.
    pub(super) fn next(&mut self, registry: &Registry, now_ms: u64, force: bool) -> Option<SaveProgress> {
        let due = self.made_ms.is_none_or(|(first, last)| {
            let grown = SAVE_INTERVAL_FIRST_MS + last.saturating_sub(first) / 2;
            now_ms.saturating_sub(last) >= grown.min(SAVE_INTERVAL_MS)
        });
        if self.in_flight.is_some() || !(due || force) {
            return None;
        }
        let update = self.diff(registry)?;
        self.next_seq += 1;
        let first = self.made_ms.map_or(now_ms, |(first, _)| first);
        self.made_ms = Some((first, now_ms));
        self.in_flight = Some(update.clone());
        Some(update)
    }

    /// The save `seq` is on disk. Only now may the store forget.
    pub(super) fn saved(&mut self, seq: u64) -> Option<AdvanceGc> {
        let update = self.in_flight.take_if(|update| update.seq == seq)?;
        self.saved.apply(&update);
        Some(AdvanceGc {
            tables: self
                .saved
                .tables
                .iter()
                .map(|(table, key)| (table.clone(), *key))
                .collect(),
            schema: self.saved.schema,
        })
    }

    fn diff(&self, registry: &Registry) -> Option<SaveProgress> {
        let changed: Vec<_> = registry
            .tables()
            .map(|(member, entry)| (&member.table, entry.checkpoint_of(member)))
            .filter(|(table, key)| self.saved.tables.get(*table) != Some(key))
            .map(|(table, key)| (table.clone(), key))
            .collect();
        let live: BTreeSet<_> = registry.tables().map(|(member, _)| &member.table).collect();
        let removed: Vec<_> = self
            .saved
            .tables
            .keys()
            .filter(|table| !live.contains(table))
            .cloned()
            .collect();
        let schema = registry.schema().checkpoint;
        // The first save of a generation is made in any case: the start of a new
        // changefeed is on disk before anything is delivered.
        let first = self.next_seq == 1;
        (first || schema != self.saved.schema || !changed.is_empty() || !removed.is_empty()).then_some(
            SaveProgress {
                seq: self.next_seq,
                schema,
                changed,
                removed,
            },
        )
    }
}
