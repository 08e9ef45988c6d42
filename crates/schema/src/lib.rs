//! Understanding of the statements in a binlog: what a DDL writes, reads, makes and
//! drops, where transactions and savepoints begin and end, and which statements change
//! rows as text. By tokens, without a grammar: only names matter for order and
//! registration, and they stand in few places, while the grammar of column definitions
//! and options differs between servers and grows with each release.
//!
//! ```
//! use weir_schema::{Session, Statement, classify};
//! use weir_types::{DdlKind, Flavor, TableName};
//!
//! let session = Session { default_schema: "shop", flavor: Flavor::Mysql, ..Session::default() };
//! let Ok(Statement::Ddl(ddl)) = classify("ALTER TABLE a RENAME TO old.a", &session) else {
//!     panic!("not understood");
//! };
//! assert_eq!(ddl.kind, DdlKind::RenameTable);
//! assert_eq!(ddl.makes, [TableName::new("old", "a")]);
//! ```

mod body;
mod classify;
mod ddl;
mod error;
mod lexer;
mod marks;
mod ordinary;
mod parser;
mod rewrite;
mod statement;
mod transaction;

pub use classify::classify;
pub use error::SchemaError;
pub use ordinary::{Step, ordinary};
pub use rewrite::rewrite;
pub use statement::{Ddl, IgnoreReason, Session, Statement};

#[cfg(test)]
mod tests;
