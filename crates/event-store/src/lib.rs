//! Durable ordered store of raw changes per table.
//!
//! Two implementations of one contract: the segmented log on disk and its twin in
//! memory; `conformance` holds both to it. The contract is split in three: a
//! [`StoreWriter`] owned by the store actor, a [`StoreReader`] shared by everyone who
//! scans, and what opening found ([`Recovered`]).

pub mod actor;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod contract;
pub mod error;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod share;

mod catalog;
mod coverage;
mod entry;
mod history;
mod meta;
mod slice;
mod split;
mod state;
mod tail;
mod view;
mod wire;

pub use contract::{
    Coverage, DdlPage, Recovered, ScanEnd, ScanOutcome, ScanRequest, StoreReader, StoreWriter, SyncTicket,
    Synced, Usage,
};
pub use error::{AppendError, StoreError};
pub use log::{LogOptions, LogReader, LogStore, LogWriter};
pub use memory::{MemoryOptions, MemoryReader, MemoryStore, MemoryWriter};
pub use slice::detach_slice;

#[cfg(test)]
mod tests;
