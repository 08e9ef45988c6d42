//! Event service: scans the store for every dispatcher, inside that dispatcher's own
//! window and credit.
//!
//! [`core`] is the state machine, [`scan`] what a scan thread does, [`actor`] the shell
//! that connects both with the store and the collector.

pub mod actor;
pub mod core;
mod counters;
pub mod error;
pub mod fence;
pub mod flow;
mod merge;
pub mod metrics;
pub mod policy;
mod pool;
mod recent;
pub mod scan;
pub mod stream;
pub mod waits;

pub use crate::actor::{AttachCollector, EventService, EventServiceOptions, StopService};
pub use crate::core::{Effect, ServiceConfig, ServiceCore};
pub use crate::counters::ServiceCounters;
pub use crate::error::ServiceError;
pub use crate::flow::{Done, GetDone, GetStreams, StreamFlow, StreamFlows};
pub use crate::policy::ScanPolicy;
pub use crate::recent::RECENT_DDLS_MAX;
pub use crate::scan::{DdlFilter, ScanDone, ScanJob};
pub use crate::stream::Credit;
pub use crate::waits::{WaitClock, WaitReason};
