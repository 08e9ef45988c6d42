//! Composition root: builds the pipeline of a changefeed bottom-up, places it on
//! threads, serves metrics, and shuts it down in the direction of the flow.
//!
//! [`run()`] is the whole of it: one changefeed in the foreground.

mod blueprint;
mod contact;
pub mod ends;
pub mod error;
mod factory;
mod filter_history;
mod flow_page;
pub mod http;
mod kafka;
mod metrics;
pub mod options;
mod owner;
mod pipeline;
pub mod preflight;
mod resume;
mod run;
mod sinks;
mod translate;
mod watched;

pub use options::{CONNECT_TIMEOUT_DEFAULT, Progress, RunOptions, RunSummary, StopReason};
pub use run::run;
pub use translate::files_options;
