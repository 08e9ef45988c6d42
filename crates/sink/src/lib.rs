//! Sinks: where row changes and DDL go.
//!
//! A [`PreparedSink`] has looked at its output and tells the progress found there; it is
//! started as a [`SinkActor`], which takes [`OpenSpan`], then `SinkWrite` per dispatcher,
//! and at the end [`StopSink`]. Work waits per span and is done by worker threads, one
//! span on one worker at a time (`scheduler`). Answers: `Released` per batch, and per
//! span `Durable`, `DdlWritten` and `SinkFailed`.
//!
//! A kind of sink is a [`contract::Backend`]: [`mod@file`] and [`blackhole`].

mod actor;
pub mod blackhole;
pub mod contract;
mod counters;
mod error;
pub mod file;
pub mod metrics;
pub mod scheduler;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod testing;

pub use actor::{PreparedSink, SinkActor, SinkConfig, StopSink};
pub use blackhole::BlackholeConfig;
pub use contract::{OpenSpan, ReleaseTo, SpanRecipients, SpanReplies, SpanTable};
pub use counters::{SinkCounters, SinkTotals};
pub use error::{Result, SinkError};
pub use file::{FileConfig, FileProgress};
pub use metrics::Blocked;
pub use scheduler::Scheduler;
pub use weir_codec::RowCounts;
