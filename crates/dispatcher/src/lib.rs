//! Per-span order, DDL barriers, checkpoint.
//!
//! One dispatcher per table, and one for structural DDL (the schema dispatcher). The
//! state machine is [`DispatcherCore`]; [`Dispatcher`] moves its messages.

pub mod actor;
pub mod core;
pub mod error;
pub mod metrics;
pub mod progress;

#[cfg(test)]
mod tests;

pub use crate::actor::{Dispatcher, Links, MaintainerLinks, StopDispatcher};
pub use crate::core::{DispatcherCore, Effect};
pub use crate::error::{Error, Result};
pub use crate::metrics::TableLabels;
pub use crate::progress::TableProgress;
