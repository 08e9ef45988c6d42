//! The maintainer: owner of one changefeed's progress and DDL decisions.

pub mod actor;
pub mod barriers;
pub mod core;
mod finish;
mod formation;
pub mod progress;
pub mod registry;

#[cfg(test)]
mod actor_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use self::actor::{
    DispatcherFactory, DispatcherHandles, GetStatus, Maintainer, MaintainerEvent, MaintainerParts, RunUntil,
    Status, StopClean, StopMaintainer,
};
pub use self::barriers::WantsTable;
pub use self::core::{Effect, MaintainerConfig, MaintainerCore};
pub use self::finish::Failure;
pub use self::progress::{SaveProgress, SavedKeys};
