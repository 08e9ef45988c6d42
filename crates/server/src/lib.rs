//! Composition root: builds the pipeline of a changefeed bottom-up, places it on
//! threads, serves metrics, and shuts it down in the direction of the flow.

pub mod error;
pub mod http;
pub mod options;

pub use options::{Progress, RunOptions, RunSummary, StopReason};
