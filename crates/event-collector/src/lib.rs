//! Event collector: accepts every stream of one changefeed exactly once and in order,
//! and keeps the changefeed's byte ledger.
//!
//! [`core`] is the state machine, [`ledger`] the books and the policy of credit,
//! [`actor`] the shell between the service, the dispatchers and the sink, [`flow`] how the books stand.

pub mod actor;
pub mod backoff;
pub mod core;
pub mod flow;
pub mod ledger;
pub mod metrics;

pub use crate::actor::{EventCollector, ServiceLinks, StopCollector};
pub use crate::core::{CollectorConfig, CollectorCore, CollectorCounters, Effect, ResetReason};
pub use crate::flow::{AccountFlow, Flow, GetFlow};
pub use crate::ledger::{Account, Grant, Lane, Ledger, WindowPolicy};
