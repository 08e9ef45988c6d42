//! Event collector: accepts every stream of one changefeed exactly once and in order,
//! and keeps the changefeed's byte ledger.
//!
//! [`core`] is the state machine, [`ledger`] the books and the policy of credit,
//! [`actor`] the shell between the service, the dispatchers and the sink.

pub mod actor;
pub mod backoff;
pub mod core;
pub mod ledger;
pub mod metrics;

pub use crate::actor::{EventCollector, FlowTotals, GetFlow, ServiceLinks, StopCollector};
pub use crate::core::{CollectorConfig, CollectorCore, CollectorCounters, Effect, ResetReason};
pub use crate::ledger::{Account, Grant, Lane, Ledger};
