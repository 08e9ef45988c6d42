//! One changefeed: maintainer, barriers, checkpoint, metadata store.
//!
//! * [`maintainer`]: which tables have a dispatcher, DDL barriers, saved progress.
//! * [`meta_store`]: where progress is kept; [`saver`]: the thread that keeps it.
//! * [`state`]: normal, warning, failed …, and the backoff between restarts.

pub mod error;
pub mod maintainer;
pub mod meta_store;
pub mod metrics;
pub mod saver;
pub mod state;

pub use crate::error::{Error, Result};
pub use crate::maintainer::{
    DispatcherFactory, DispatcherHandles, Effect, Failure, GetStatus, Maintainer, MaintainerConfig,
    MaintainerCore, MaintainerEvent, MaintainerParts, RunUntil, SaveProgress, SavedKeys, Status, StopClean,
    StopMaintainer, WantsTable,
};
pub use crate::meta_store::{MemoryMetaStore, MetaStore, Progress, RedbMetaStore, TokenUpdate};
pub use crate::saver::{Saver, SharedMetaStore, TokenSource};
pub use crate::state::{Command, State, StateMachine};
