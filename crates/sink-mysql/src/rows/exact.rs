//! Exact rows: each change as it was, in the source's order.
//!
//! Consecutive inserts into one table become one statement, whose rows the server writes
//! in order. An update or delete names its row by the target's key, or else by all of its
//! columns compared null-safe and byte by byte (two texts that only a collation holds
//! equal are different rows; a FLOAT is compared as the DOUBLE that it is), and changes one
//! row: of rows that are the same in every byte it does not matter which. A statement that
//! does not match its row tells that the target has drifted.
//!
//! **Foreign keys** are checked at the target as they were at the source, event by event
//! (`Statement::unchecked`). That is right for cascades, too. MySQL 9.6 and later log what
//! a cascade changes: the children's rows come first, marked as not checked, then the
//! parent's, which finds no child left to cascade to. Older servers and MariaDB log only
//! the parent's row, and the target cascades by itself. Where the source session had
//! switched the checks off, neither side cascades.

use weir_binlog::RowImages;
use weir_codec::RowCounts;
use weir_types::block::FLAG_NO_FOREIGN_KEY_CHECKS;
use weir_types::{RowEvent, RowKind, Value};

use super::keyed::begin;
use super::literal::Place;
use super::{Expect, Limits, Pull, Result, RowsError, Statement, count};
use super::{STATEMENT_BYTES_MAX, STATEMENT_ROWS_MAX};
use crate::plan::{Match, PlannedColumn, TablePlan};

/// The changes of exact tables in a pull, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactWork {
    /// For one transaction.
    pub statements: Vec<Statement>,
    /// Row changes.
    pub counts: RowCounts,
    /// Bytes of SQL.
    pub bytes: usize,
}

/// An insert that may take further rows.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Open {
    table: usize,
    unchecked: bool,
    lenient: bool,
    rows: u32,
}

struct Builder {
    work: ExactWork,
    open: Option<Open>,
    packet_max: usize,
    scratch: Vec<u8>,
    /// One row of an insert.
    row: Vec<u8>,
}

/// Where a row event stands.
#[derive(Clone, Copy)]
struct At<'p> {
    plan: &'p TablePlan,
    table: usize,
    unchecked: bool,
}

impl ExactWork {
    /// Makes the statements of a pull.
    ///
    /// # Errors
    /// A row cannot be read or written, or is larger than the target accepts.
    pub fn new(pull: &Pull, limits: Limits) -> Result<Self> {
        let mut builder = Builder {
            work: Self::default(),
            open: None,
            packet_max: limits.packet_max,
            scratch: Vec::new(),
            row: Vec::new(),
        };
        let mut images = RowImages::default();
        for item in &pull.items {
            let Some(pulled) = pull.tables.get(item.table) else {
                continue;
            };
            for event in item.slice.iter() {
                let event = event.map_err(|error| RowsError::Block {
                    table: pulled.plan.version.name.clone(),
                    error,
                })?;
                if event.key > item.after {
                    let at = At {
                        plan: &pulled.plan,
                        table: item.table,
                        unchecked: event.flags & FLAG_NO_FOREIGN_KEY_CHECKS != 0,
                    };
                    builder.event(at, &event, &mut images)?;
                }
            }
        }
        builder.work.bytes = builder.work.statements.iter().map(|s| s.sql.len()).sum();
        Ok(builder.work)
    }
}

impl Builder {
    fn event<'a>(&mut self, at: At<'_>, event: &RowEvent<'a>, images: &mut RowImages<'a>) -> Result<()> {
        let decode = |error| at.plan.decode_error(error);
        let reader = at.plan.reader.rows(event.kind, event.flags, event.body);
        let mut reader = reader.map_err(decode)?;
        while reader.next(images).map_err(decode)? {
            at.plan.check_images(event.kind, images)?;
            match event.kind {
                RowKind::Insert => self.insert(at, &images.after)?,
                RowKind::Update => self.update(at, &images.before, &images.after)?,
                RowKind::Delete => self.delete(at, &images.before)?,
            }
            count(&mut self.work.counts, event.kind);
        }
        Ok(())
    }

    fn insert(&mut self, at: At<'_>, after: &[Value<'_>]) -> Result<()> {
        self.row.clear();
        let lenient = at.plan.write_row(after, &mut self.scratch, &mut self.row)?;
        let wanted = |open: &Open| Open {
            table: at.table,
            unchecked: at.unchecked,
            lenient,
            rows: open.rows,
        };
        let fits = |statement: &Statement| {
            statement.sql.len() + self.row.len() < STATEMENT_BYTES_MAX.min(self.packet_max)
        };
        if let (Some(open), Some(statement)) = (&mut self.open, self.work.statements.last_mut())
            && *open == wanted(open)
            && open.rows < STATEMENT_ROWS_MAX
            && fits(statement)
        {
            open.rows += 1;
            statement.sql.push(b',');
            statement.sql.extend_from_slice(&self.row);
            statement.rows = open.rows;
            statement.expect = Expect::Rows(open.rows);
            return Ok(());
        }
        let mut sql = Vec::with_capacity(self.row.len() + 128);
        begin("INSERT", lenient, at.plan, &mut sql);
        for word in [" INTO ", &at.plan.quoted, &at.plan.insert_columns] {
            sql.extend_from_slice(word.as_bytes());
        }
        sql.extend_from_slice(&self.row);
        self.push(at, sql)?;
        self.open = Some(Open {
            table: at.table,
            unchecked: at.unchecked,
            lenient,
            rows: 1,
        });
        Ok(())
    }

    fn update(&mut self, at: At<'_>, before: &[Value<'_>], after: &[Value<'_>]) -> Result<()> {
        let changes = |column: &&PlannedColumn| {
            column.temporal || before.get(column.source) != after.get(column.source)
        };
        let lenient = at.plan.columns.iter().filter(changes).any(|column| {
            let value = after.get(column.source);
            value.is_some_and(|value| column.literal.needs_lenience(value))
        });
        let mut sql = Vec::new();
        begin("UPDATE", lenient, at.plan, &mut sql);
        sql.push(b' ');
        sql.extend_from_slice(at.plan.quoted.as_bytes());
        sql.extend_from_slice(b" SET ");
        let start = sql.len();
        for column in at.plan.columns.iter().filter(changes) {
            if sql.len() > start {
                sql.push(b',');
            }
            sql.extend_from_slice(column.name.as_bytes());
            sql.push(b'=');
            at.plan
                .write_value(column, after, Place::Row, &mut self.scratch, &mut sql)?;
        }
        if sql.len() == start {
            // Only columns changed that the target does not write.
            return Ok(());
        }
        self.condition(at.plan, before, &mut sql)?;
        self.push(at, sql)
    }

    fn delete(&mut self, at: At<'_>, before: &[Value<'_>]) -> Result<()> {
        let mut sql = Vec::new();
        for word in ["DELETE FROM ", &at.plan.quoted] {
            sql.extend_from_slice(word.as_bytes());
        }
        self.condition(at.plan, before, &mut sql)?;
        self.push(at, sql)
    }

    /// Appends the condition that names one row.
    fn condition(&mut self, plan: &TablePlan, before: &[Value<'_>], sql: &mut Vec<u8>) -> Result<()> {
        sql.extend_from_slice(b" WHERE ");
        if plan.identity.is_empty() {
            for (place, column) in plan.columns.iter().enumerate() {
                if place > 0 {
                    sql.extend_from_slice(b" AND ");
                }
                self.match_column(plan, column, before, sql)?;
            }
        } else {
            sql.extend_from_slice(plan.identity_names.as_bytes());
            sql.push(b'=');
            plan.write_key(before, &mut self.scratch, sql)?;
        }
        sql.extend_from_slice(b" LIMIT 1");
        Ok(())
    }

    fn match_column(
        &mut self,
        plan: &TablePlan,
        column: &PlannedColumn,
        before: &[Value<'_>],
        sql: &mut Vec<u8>,
    ) -> Result<()> {
        if matches!(before.get(column.source), None | Some(Value::Null)) {
            sql.extend_from_slice(column.name.as_bytes());
            sql.extend_from_slice(b" IS NULL");
            return Ok(());
        }
        let (left, behind, right): (&str, &str, &str) = match &column.matched {
            Match::Plain => ("", "<=>", ""),
            Match::Number => ("", "+0<=>", ""),
            Match::Bytes => ("CAST(", " AS BINARY)<=>", ""),
            Match::BytesIn(_) => ("CAST(", " AS BINARY)<=>CAST(CONVERT(", " AS BINARY)"),
            Match::Json => ("", "<=>CAST(", " AS JSON)"),
        };
        for word in [left, &column.name, behind] {
            sql.extend_from_slice(word.as_bytes());
        }
        plan.write_value(column, before, Place::Condition, &mut self.scratch, sql)?;
        if let Match::BytesIn(charset) = &column.matched {
            for word in [" USING ", charset, ")"] {
                sql.extend_from_slice(word.as_bytes());
            }
        }
        sql.extend_from_slice(right.as_bytes());
        Ok(())
    }

    /// Appends a statement of one row.
    fn push(&mut self, at: At<'_>, sql: Vec<u8>) -> Result<()> {
        at.plan.check_size(sql.len(), self.packet_max)?;
        self.open = None;
        self.work.statements.push(Statement {
            sql,
            rows: 1,
            expect: Expect::Rows(1),
            table: at.table,
            unchecked: at.unchecked,
        });
        Ok(())
    }
}

#[cfg(test)]
#[path = "exact_tests.rs"]
mod tests;
