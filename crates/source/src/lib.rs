//! Upstream: transaction assembly and the binlog-file source.
//!
//! * [`TransactionAssembler`]: events in, `StoreInput`s out; pure.
//! * [`files::FilesReader`]: binlog files of a folder into the assembler; no thread.
//! * [`actor::BinlogReader`]: the stage of the pipeline.
//! * [`preflight::preflight`]: what `weir check` asks of the files.

pub mod actor;
mod assembler;
mod ends;
mod error;
mod feed;
pub mod files;
mod growing;
pub mod metrics;
mod open;
pub mod preflight;
mod rows;
mod skip;
mod statement_text;
mod statements;
mod tables;
mod window;

pub use assembler::{AssemblerOptions, Counts, TransactionAssembler};
pub use error::SourceError;
pub use rows::RowsMeta;
pub use skip::Skip;
