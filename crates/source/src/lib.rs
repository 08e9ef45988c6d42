//! Upstream: transaction assembly, and the sources that read a server or binlog files.
//!
//! * [`TransactionAssembler`]: events in, `StoreInput`s out; pure.
//! * [`files::FilesReader`]: binlog files of a folder into the assembler; no thread.
//! * [`server::ServerReader`]: the binlog of a running server into the assembler.
//! * [`actor::BinlogReader`]: the stage of the pipeline.
//! * [`preflight::preflight`]: what `weir check` asks of the files.

// The model of the integration tests serves unit tests too.
#[cfg(test)]
extern crate self as weir_source;

pub mod actor;
mod assembler;
mod catalogue;
mod digest;
mod ends;
mod error;
mod feed;
pub mod files;
mod growing;
mod input;
pub mod metrics;
mod open;
pub mod preflight;
mod rows;
pub mod server;
mod skip;
mod statement_text;
mod statements;
mod tables;
mod window;

pub use assembler::{AssemblerOptions, Counts, TransactionAssembler};
pub use error::SourceError;
pub use rows::RowsMeta;
pub use skip::Skip;
