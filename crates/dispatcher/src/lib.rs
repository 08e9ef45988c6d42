//! Per-span order, DDL barriers, checkpoint.
//!
//! One dispatcher per table, and one for structural DDL (the schema dispatcher). The
//! state machine is [`core::DispatcherCore`]; [`actor::Dispatcher`] moves its messages.

pub mod core;
pub mod error;
pub mod progress;

#[cfg(test)]
mod tests;

pub use crate::core::{DispatcherCore, Effect};
pub use crate::error::{Error, Result};
pub use crate::progress::TableProgress;
