//! Row changes as SQL statements.
//!
//! A [`Pull`] is what one settle covers: slices of one table, or of several tied by
//! foreign keys. [`KeyedWork`] compacts the changes of a keyed table and cuts them into
//! groups that may run side by side; [`ExactWork`] keeps the source's order.

mod conflict;
mod error;
mod exact;
mod image;
mod json;
mod keyed;
pub(crate) mod literal;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use weir_codec::RowCounts;
use weir_types::{BlockSlice, OrderKey, RowKind};

use crate::plan::TablePlan;

pub use error::RowsError;
pub use exact::ExactWork;
pub use keyed::KeyedWork;

/// Result of this module.
pub type Result<T> = std::result::Result<T, RowsError>;

/// Bytes of SQL after which a statement takes no further row.
pub const STATEMENT_BYTES_MAX: usize = 512 << 10;
/// Most rows of a statement.
pub const STATEMENT_ROWS_MAX: u32 = 1000;

/// How many rows a statement must concern, counted as matched (`CLIENT_FOUND_ROWS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No matter.
    Any,
    /// Exactly so many; another number is drift of the target.
    Rows(u32),
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Text. Bytes of other charsets stand in hexadecimal literals, bytes of binary
    /// columns as they are behind `_binary`.
    pub sql: Vec<u8>,
    /// Row changes that it covers.
    pub rows: u32,
    /// What its answer must say.
    pub expect: Expect,
    /// Index into [`Pull::tables`].
    pub table: usize,
    /// Must run with `foreign_key_checks=0`, as at the source.
    pub unchecked: bool,
}

/// Statements for one transaction, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The statements.
    pub statements: Vec<Statement>,
    /// Bytes of SQL.
    pub bytes: usize,
}

/// Bounds of what is made of a pull.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most groups; at least 1.
    pub groups: usize,
    /// `max_allowed_packet` of the target, bytes.
    pub packet_max: usize,
}

/// A table of a pull.
#[derive(Clone, Debug)]
pub struct PulledTable {
    /// How its rows are written.
    pub plan: Arc<TablePlan>,
    /// Key of its last row event in the pull.
    pub last: OrderKey,
}

#[derive(Clone, Debug)]
struct Item {
    slice: BlockSlice,
    table: usize,
    after: OrderKey,
}

/// Row events that one settle covers, in order.
#[derive(Clone, Debug, Default)]
pub struct Pull {
    items: Vec<Item>,
    tables: Vec<PulledTable>,
    bytes: usize,
}

impl Pull {
    /// Adds a slice behind the others; row events up to `after` are left out.
    pub fn push(&mut self, slice: BlockSlice, plan: &Arc<TablePlan>, after: OrderKey) {
        if slice.last <= after {
            return;
        }
        let known = self.tables.iter().position(|t| Arc::ptr_eq(&t.plan, plan));
        let table = known.unwrap_or_else(|| {
            self.tables.push(PulledTable {
                plan: Arc::clone(plan),
                last: slice.last,
            });
            self.tables.len() - 1
        });
        if let Some(pulled) = self.tables.get_mut(table) {
            pulled.last = pulled.last.max(slice.last);
        }
        self.bytes += slice.range.len();
        self.items.push(Item { slice, table, after });
    }

    /// Whether nothing is to be written.
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of row events.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its tables, in the order of their first rows: one for each plan.
    pub fn tables(&self) -> &[PulledTable] {
        &self.tables
    }

    /// Key of the first row event; `OrderKey::MAX` if there is none.
    pub fn first(&self) -> OrderKey {
        self.items.first().map_or(OrderKey::MAX, |item| item.slice.first)
    }

    /// Key of the last row event; `OrderKey::MIN` if there is none.
    pub fn last(&self) -> OrderKey {
        self.tables.iter().map(|t| t.last).max().unwrap_or(OrderKey::MIN)
    }

    /// Forgets the row events.
    pub fn clear(&mut self) {
        self.items.clear();
        self.tables.clear();
        self.bytes = 0;
    }
}

const fn count(counts: &mut RowCounts, kind: RowKind) {
    match kind {
        RowKind::Insert => counts.inserts += 1,
        RowKind::Update => counts.updates += 1,
        RowKind::Delete => counts.deletes += 1,
    }
}
