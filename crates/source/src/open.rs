//! The transaction that is being read.

use std::ops::Range;

use weir_types::{AttemptId, Gtid, Xid};

use crate::tables::TableNo;

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its identifier was seen; BEGIN or a single statement follows.
    Announced,
    /// MariaDB: a single statement follows and ends it.
    Standalone,
    /// Rows, until COMMIT, XID, XA PREPARE or ROLLBACK.
    Begun,
}

/// What MariaDB says about an ALTER that is written in two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlterHalf {
    /// Not in halves.
    Whole,
    /// The first half: nothing has happened yet. Or the ALTER failed.
    WithoutEffect,
}

struct Savepoint {
    name: String,
    ordinal: u32,
}

/// See the module documentation.
pub(crate) struct Open {
    pub(crate) phase: Phase,
    pub(crate) gtid: Option<Gtid>,
    pub(crate) commit_time_ms: u64,
    pub(crate) alter: AlterHalf,
    /// Rows are left out: the transaction lies before the start.
    pub(crate) skipped: bool,
    /// XA transaction that it is a part of.
    pub(crate) xa: Option<Xid>,
    /// Ordinal of the last row event or DDL.
    pub(crate) ordinal: u32,
    /// Some of its rows are in the store already.
    pub(crate) attempt: Option<AttemptId>,
    /// Ordinal ranges that were undone after some of their rows went to the store.
    pub(crate) aborted: Vec<Range<u32>>,
    /// Tables whose implicit creation it holds.
    pub(crate) created: Vec<TableNo>,
    pub(crate) has_ddl: bool,
    savepoints: Vec<Savepoint>,
}

impl Open {
    pub(crate) fn new(phase: Phase, gtid: Option<Gtid>, commit_time_ms: u64) -> Self {
        Self {
            phase,
            gtid,
            commit_time_ms,
            alter: AlterHalf::Whole,
            skipped: false,
            xa: None,
            ordinal: 0,
            attempt: None,
            aborted: Vec::new(),
            created: Vec::new(),
            has_ddl: false,
            savepoints: Vec::new(),
        }
    }

    /// Sets a savepoint; one of the same name is replaced.
    pub(crate) fn set_savepoint(&mut self, name: String) {
        self.savepoints.retain(|savepoint| savepoint.name != name);
        let ordinal = self.ordinal;
        self.savepoints.push(Savepoint { name, ordinal });
    }

    /// Goes back to a savepoint, which stays; later ones go. Gives the ordinal of the
    /// last row event that counts; none if there is no such savepoint.
    pub(crate) fn roll_back_to(&mut self, name: &str) -> Option<u32> {
        let at = self
            .savepoints
            .iter()
            .position(|savepoint| savepoint.name == name)?;
        self.savepoints.truncate(at + 1);
        let to = self.savepoints.get(at)?.ordinal;
        if self.attempt.is_some() && to < self.ordinal {
            self.aborted.retain(|range| range.start <= to);
            self.aborted.push(to + 1..self.ordinal + 1);
        }
        Some(to)
    }
}
