//! One changefeed: maintainer, barriers, checkpoint, metadata store.

pub mod error;
pub mod maintainer;
pub mod meta_store;
pub mod state;

pub use crate::error::{Error, Result};
pub use crate::maintainer::{Effect, MaintainerConfig, MaintainerCore, SaveProgress, SavedKeys};
pub use crate::meta_store::{MemoryMetaStore, MetaStore, Progress, RedbMetaStore, TokenUpdate};
