//! Keyed rows: compacted to the last state of each key, and cut into groups that may be
//! written side by side.
//!
//! **What is written.** Per key that a pull touches, its last state: the row, or nothing.
//! An update that changes the key is a delete of the old one and the birth of the new.
//! Keys are told apart by their exact literals; values that only the target's collation
//! holds equal (`'a'`, `'A'`) are different keys of one group, whose deletes run first.
//!
//! **Groups.** Two keys are in one group if any image of their rows in the pull, old or
//! new, shares a value of a unique key of the target. So groups never wait for each
//! other's values, and each is a transaction of its own. Within one, deletes run first,
//! then rows are written: values that change places meet nothing.
//!
//! **Outside of the replay** (rows that the target cannot have seen): a key born in the
//! pull is inserted plainly, so that a duplicate is the error that it is, and a key that
//! was born and died in it is not written at all. Other rows are updated by `INSERT … ON
//! DUPLICATE KEY UPDATE`; where the target has more unique keys and one of their values
//! changed, the row is deleted and inserted.
//!
//! **In the replay** (up to the store's end when the pipeline started, and after a commit
//! whose outcome is not known) the target may be at any later state, of each key another.
//! Every key of the window is written again by its last change in it, so the window ends
//! with the right rows if no write takes away a row that is not written again. With one
//! unique key no write touches another row. With more, `REPLACE` evicts the row that holds
//! a unique value now: at the end of the pull the value was this row's, so the evicted row
//! got it afterwards, inside of the window, and the change that gave it is still to come.
//! A row that no change of the window concerns held its values all the time, so no row of
//! the window can have them.
//!
//! Values that only the target has (columns with defaults) are lost when a row is deleted
//! and inserted.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use weir_binlog::RowImages;
use weir_codec::RowCounts;
use weir_types::{Flavor, RowEvent, RowKind, Value};

use super::conflict::{ByHash, Conflicts, GROUP_BYTES_MIN};
use super::{Expect, Group, Limits, Pull, Result, RowsError, Statement, count};
use super::{STATEMENT_BYTES_MAX, STATEMENT_ROWS_MAX};
use crate::plan::TablePlan;

/// No next entry of the same hash.
const END: u32 = u32::MAX;
/// `sql_mode` of the statements that write the error value of an ENUM.
const LENIENT: &str = "'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'";

/// The last state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Last {
    Deleted,
    /// The row: `(value,…)` in the arena.
    Row(Range<usize>),
}

/// A key that the pull touches.
#[derive(Clone, Debug)]
struct Entry {
    /// Its literal in the arena: `1` or `(1,'a')`.
    key: Range<usize>,
    /// Next entry whose key has the same hash.
    next: u32,
    /// The row was there before the pull.
    existed: bool,
    /// A value of another unique key changed, or the row died and was born again.
    moved: bool,
    /// The row needs a statement without strict mode.
    lenient: bool,
    last: Last,
    /// Row changes.
    changes: u32,
}

/// The changes of one keyed table in a pull, compacted.
#[derive(Debug)]
pub struct KeyedWork<'p> {
    plan: &'p TablePlan,
    table: usize,
    /// Literals of keys and rows.
    arena: Vec<u8>,
    entries: Vec<Entry>,
    by_key: ByHash<u32>,
    seed: RandomState,
    conflicts: Conflicts,
    counts: RowCounts,
    scratch: Vec<u8>,
    group_bytes_min: usize,
}

/// How the rows of a statement are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Insert,
    Upsert,
    Replace,
}

impl<'p> KeyedWork<'p> {
    /// Reads the row events of one table of a pull, an index into `Pull::tables`. Where
    /// a pull has several plans of one table, their work is done in their order.
    ///
    /// # Errors
    /// A row cannot be read or written.
    pub fn gather(pull: &'p Pull, table: usize) -> Result<Option<Self>> {
        let Some(pulled) = pull.tables.get(table) else {
            return Ok(None);
        };
        let seed = RandomState::new();
        let mut work = Self {
            plan: &pulled.plan,
            table,
            arena: Vec::with_capacity(pull.bytes),
            entries: Vec::new(),
            by_key: ByHash::default(),
            conflicts: Conflicts::new(pulled.plan.serial, seed.clone()),
            seed,
            counts: RowCounts::default(),
            scratch: Vec::new(),
            group_bytes_min: GROUP_BYTES_MIN,
        };
        let mut images = RowImages::default();
        for item in pull.items.iter().filter(|item| item.table == table) {
            for event in item.slice.iter() {
                let event = event.map_err(|error| RowsError::Block {
                    table: work.plan.version.name.clone(),
                    error,
                })?;
                if event.key > item.after {
                    work.event(&event, &mut images)?;
                }
            }
        }
        Ok(Some(work))
    }

    /// Row changes that were read.
    pub const fn counts(&self) -> RowCounts {
        self.counts
    }

    fn event<'a>(&mut self, event: &RowEvent<'a>, images: &mut RowImages<'a>) -> Result<()> {
        let plan = self.plan;
        let decode = |error| plan.decode_error(error);
        let mut reader = plan
            .reader
            .rows(event.kind, event.flags, event.body)
            .map_err(decode)?;
        while reader.next(images).map_err(decode)? {
            plan.check_images(event.kind, images)?;
            match event.kind {
                RowKind::Insert => self.inserted(&images.after)?,
                RowKind::Update => self.updated(&images.before, &images.after)?,
                RowKind::Delete => self.deleted(&images.before)?,
            }
            count(&mut self.counts, event.kind);
        }
        Ok(())
    }

    fn inserted(&mut self, after: &[Value<'_>]) -> Result<()> {
        let key = self.key(after)?;
        let (entry, new) = self.entry(key, false);
        self.write_row(entry, after, !new)
    }

    fn deleted(&mut self, before: &[Value<'_>]) -> Result<()> {
        let key = self.key(before)?;
        let (entry, _) = self.entry(key, true);
        self.delete(entry, before);
        Ok(())
    }

    fn updated(&mut self, before: &[Value<'_>], after: &[Value<'_>]) -> Result<()> {
        let old = self.key(before)?;
        let new = self.key(after)?;
        if self.arena.get(old.clone()) == self.arena.get(new.clone()) {
            self.arena.truncate(new.start);
            let (entry, _) = self.entry(old, true);
            let changed = |at: &usize| before.get(*at) != after.get(*at);
            let moved = self.plan.opaque_unique || self.plan.other_unique.iter().any(changed);
            if moved {
                self.conflicts.hold(entry, &self.plan.conflicts, before);
            }
            return self.write_row(entry, after, moved);
        }
        // The new key is taken out, so that the old one's entry can be made before it.
        self.scratch.clear();
        self.scratch
            .extend_from_slice(self.arena.get(new.clone()).unwrap_or_default());
        self.arena.truncate(new.start);
        let (dead, _) = self.entry(old, true);
        let start = self.arena.len();
        self.arena.extend_from_slice(&self.scratch);
        self.scratch.clear();
        self.delete(dead, before);
        let (born, _) = self.entry(start..self.arena.len(), false);
        self.write_row(born, after, true)
    }

    fn delete(&mut self, entry: u32, before: &[Value<'_>]) {
        self.conflicts.hold(entry, &self.plan.conflicts, before);
        if let Some(entry) = self.entries.get_mut(entry as usize) {
            entry.last = Last::Deleted;
            entry.moved = true;
            entry.changes += 1;
        }
    }

    fn write_row(&mut self, entry: u32, after: &[Value<'_>], moved: bool) -> Result<()> {
        self.conflicts.hold(entry, &self.plan.conflicts, after);
        let start = self.arena.len();
        let lenient = self.plan.write_row(after, &mut self.scratch, &mut self.arena)?;
        let row = start..self.arena.len();
        if let Some(entry) = self.entries.get_mut(entry as usize) {
            entry.last = Last::Row(row);
            entry.moved |= moved;
            entry.lenient = lenient;
            entry.changes += 1;
        }
        Ok(())
    }

    /// Appends the key's literal to the arena.
    fn key(&mut self, image: &[Value<'_>]) -> Result<Range<usize>> {
        let start = self.arena.len();
        self.plan.write_key(image, &mut self.scratch, &mut self.arena)?;
        Ok(start..self.arena.len())
    }

    /// The entry of the key at the arena's end, and whether it is new; the literal of a
    /// known key is taken off again.
    fn entry(&mut self, key: Range<usize>, existed: bool) -> (u32, bool) {
        let literal = self.arena.get(key.clone()).unwrap_or_default();
        let hash = self.seed.hash_one(literal);
        let first = self.by_key.get(&hash).copied().unwrap_or(END);
        let mut at = first;
        while let Some(entry) = self.entries.get(at as usize) {
            if self.arena.get(entry.key.clone()) == Some(literal) {
                self.arena.truncate(key.start);
                return (at, false);
            }
            at = entry.next;
        }
        let new = u32::try_from(self.entries.len()).unwrap_or(END);
        self.entries.push(Entry {
            key,
            next: first,
            existed,
            moved: false,
            lenient: false,
            last: Last::Deleted,
            changes: 0,
        });
        self.by_key.insert(hash, new);
        self.conflicts.add();
        (new, true)
    }

    /// Cuts the work into groups. `replay`: the target may be at a later state; see the
    /// module. A table whose engine has no transactions may always be: what a failed
    /// attempt wrote stays.
    ///
    /// # Errors
    /// A row is larger than the target accepts.
    pub fn groups(&mut self, limits: Limits, replay: bool) -> Result<Vec<Group>> {
        let sizes: Vec<usize> = self.entries.iter().map(Entry::bytes).collect();
        let spread = self.conflicts.spread(&sizes, limits.groups, self.group_bytes_min);
        let replay = replay || !self.plan.transactional;
        let mut groups = Vec::with_capacity(spread.len());
        for entries in spread {
            let group = self.group(&entries, limits.packet_max, replay)?;
            if !group.statements.is_empty() {
                groups.push(group);
            }
        }
        Ok(groups)
    }

    fn group(&self, entries: &[u32], packet_max: usize, replay: bool) -> Result<Group> {
        let mut out = Statements {
            plan: self.plan,
            table: self.table,
            packet_max,
            group: Group::default(),
            rows: 0,
        };
        let of = || entries.iter().filter_map(|at| self.entries.get(*at as usize));
        for entry in of().filter(|entry| entry.is_deleted(self.plan, replay)) {
            let rows = match entry.last {
                Last::Deleted => entry.changes,
                Last::Row(_) => 0,
            };
            out.add(&Shape::Delete, self.arena.get(entry.key.clone()), rows)?;
        }
        out.end();
        for write in [Write::Upsert, Write::Insert, Write::Replace] {
            for lenient in [false, true] {
                let chosen = |entry: &&Entry| {
                    entry.lenient == lenient && entry.write(self.plan, replay) == Some(write)
                };
                for entry in of().filter(chosen) {
                    if let Last::Row(row) = &entry.last {
                        let shape = Shape::Write { write, lenient };
                        out.add(&shape, self.arena.get(row.clone()), entry.changes)?;
                    }
                }
                out.end();
            }
        }
        Ok(out.group)
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        match &self.last {
            Last::Deleted => self.key.len(),
            Last::Row(row) => row.len(),
        }
    }

    /// Whether the row is deleted, before anything is written.
    fn is_deleted(&self, plan: &TablePlan, replay: bool) -> bool {
        match self.last {
            Last::Deleted => self.existed || replay,
            Last::Row(_) => !replay && self.existed && self.moved && plan.has_other_unique,
        }
    }

    fn write(&self, plan: &TablePlan, replay: bool) -> Option<Write> {
        if self.last == Last::Deleted {
            return None;
        }
        Some(match (replay, self.existed) {
            (true, _) if plan.has_other_unique => Write::Replace,
            (true, _) => Write::Upsert,
            (false, false) => Write::Insert,
            (false, true) if self.moved && plan.has_other_unique => Write::Insert,
            (false, true) => Write::Upsert,
        })
    }
}

/// What a statement does.
enum Shape {
    Delete,
    Write { write: Write, lenient: bool },
}

impl Shape {
    fn open(&self, plan: &TablePlan, sql: &mut Vec<u8>) {
        match self {
            Self::Delete => {
                let words = [
                    "DELETE FROM ",
                    &plan.quoted,
                    " WHERE ",
                    &plan.identity_names,
                    " IN (",
                ];
                words
                    .iter()
                    .for_each(|word| sql.extend_from_slice(word.as_bytes()));
            }
            Self::Write { write, lenient } => {
                let verb = match write {
                    Write::Insert | Write::Upsert => "INSERT",
                    Write::Replace => "REPLACE",
                };
                begin(verb, *lenient, plan, sql);
                let words = [" INTO ", &plan.quoted, &plan.insert_columns];
                words
                    .iter()
                    .for_each(|word| sql.extend_from_slice(word.as_bytes()));
            }
        }
    }

    fn close<'a>(&self, plan: &'a TablePlan) -> &'a str {
        match self {
            Self::Delete => ")",
            Self::Write {
                write: Write::Upsert, ..
            } => &plan.on_duplicate,
            Self::Write { .. } => "",
        }
    }
}

/// A statement's verb; without strict mode if asked for.
pub(super) fn begin(verb: &str, lenient: bool, plan: &TablePlan, sql: &mut Vec<u8>) {
    let (before, behind) = match (lenient, plan.flavor) {
        (false, _) => (String::new(), String::new()),
        (true, Flavor::Mysql) => (String::new(), format!(" /*+ SET_VAR(sql_mode={LENIENT}) */")),
        (true, Flavor::Mariadb) => (format!("SET STATEMENT sql_mode={LENIENT} FOR "), String::new()),
    };
    for word in [before.as_str(), verb, behind.as_str()] {
        sql.extend_from_slice(word.as_bytes());
    }
}

/// Builds statements of many rows.
struct Statements<'p> {
    plan: &'p TablePlan,
    table: usize,
    packet_max: usize,
    group: Group,
    /// Rows of the open statement; 0 for none open.
    rows: u32,
}

impl Statements<'_> {
    /// Adds a row to the open statement, or to a new one.
    fn add(&mut self, shape: &Shape, literal: Option<&[u8]>, changes: u32) -> Result<()> {
        let literal = literal.unwrap_or_default();
        let close = shape.close(self.plan);
        let open = self.group.statements.last_mut().filter(|_| self.rows > 0);
        let fits = |sql: &Vec<u8>| {
            let bytes = sql.len() + literal.len() + close.len() + 1;
            bytes <= STATEMENT_BYTES_MAX.min(self.packet_max)
        };
        // The closing words stand already: they are taken off and put behind the row.
        match open {
            Some(statement) if self.rows < STATEMENT_ROWS_MAX && fits(&statement.sql) => {
                let end = statement.sql.len() - close.len();
                statement.sql.truncate(end);
                statement.sql.push(b',');
                statement.sql.extend_from_slice(literal);
                statement.sql.extend_from_slice(close.as_bytes());
                statement.rows += changes;
                self.rows += 1;
            }
            _ => {
                self.end();
                let mut sql = Vec::new();
                shape.open(self.plan, &mut sql);
                sql.extend_from_slice(literal);
                sql.extend_from_slice(close.as_bytes());
                self.plan.check_size(sql.len(), self.packet_max)?;
                self.group.statements.push(Statement {
                    sql,
                    rows: changes,
                    expect: Expect::Any,
                    table: self.table,
                    unchecked: false,
                });
                self.rows = 1;
            }
        }
        Ok(())
    }

    /// Ends the open statement.
    fn end(&mut self) {
        if self.rows > 0 {
            let bytes = self.group.statements.last().map_or(0, |s| s.sql.len());
            self.group.bytes += bytes;
        }
        self.rows = 0;
    }
}

#[cfg(test)]
#[path = "keyed_tests.rs"]
mod tests;
