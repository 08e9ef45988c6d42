//! What the catalogue of the target says of a table, as far as writing rows depends on
//! it.

use weir_types::{Flavor, TableName};

/// A table at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTable {
    /// Name at the target.
    pub name: TableName,
    /// Columns in order.
    pub columns: Vec<TargetColumn>,
    /// Primary key and unique keys; other indexes are left out. InnoDB's order, the
    /// primary key first.
    pub keys: Vec<TargetKey>,
    /// Has foreign keys, or is referenced by some.
    pub foreign: bool,
    /// Server family of the target.
    pub flavor: Flavor,
    /// The storage engine has transactions.
    pub transactional: bool,
}

/// A column at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetColumn {
    /// Name.
    pub name: String,
    /// `information_schema.COLUMNS.DATA_TYPE`, lower-case: `varchar`.
    pub data_type: String,
    /// `information_schema.COLUMNS.COLUMN_TYPE`: `varchar(20)`, `enum('a','b')`.
    pub column_type: String,
    /// Charset of a text column.
    pub charset: Option<String>,
    /// Collation of a text column.
    pub collation: Option<String>,
    /// Accepts NULL.
    pub nullable: bool,
    /// Generated, virtual or stored; cannot be written.
    pub generated: bool,
    /// Has a default, `DEFAULT (expr)` included.
    pub has_default: bool,
    /// `AUTO_INCREMENT`.
    pub auto_increment: bool,
}

/// A primary or unique key at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetKey {
    /// Name; `PRIMARY` for the primary key.
    pub name: String,
    /// Indexes into `TargetTable::columns`, in key order. Parts that are expressions are
    /// left out.
    pub columns: Vec<usize>,
    /// Is the primary key.
    pub primary: bool,
    /// A column accepts NULL.
    pub nullable: bool,
    /// Some part is an expression or a prefix of its column.
    pub functional_or_prefix: bool,
}
