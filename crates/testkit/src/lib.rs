//! Seeded simulator of the pipeline between store and sink, with an oracle and a faulty
//! transport. For tests.

pub mod downstream;
pub mod history;
pub mod pipeline;
pub mod rng;
pub mod scenario;
pub mod simulation;
pub mod sink;
pub mod store;
pub mod ties;

pub use crate::rng::Rng;
pub use crate::scenario::{Faults, Scenario, Summary};
pub use crate::simulation::Simulation;
pub use crate::store::ModelStore;
