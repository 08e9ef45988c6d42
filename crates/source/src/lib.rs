//! Upstream: transaction assembly and the binlog-file source.
//!
//! * [`TransactionAssembler`]: events in, `StoreInput`s out; pure.

mod assembler;
mod ends;
mod error;
mod growing;
mod open;
mod skip;
mod statement_text;
mod statements;
mod tables;

pub use assembler::{AssemblerOptions, Counts, RowsMeta, TransactionAssembler};
pub use error::SourceError;
pub use skip::Skip;
