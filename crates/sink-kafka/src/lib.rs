//! Kafka sink.
//!
//! * `names`: the topic of a table. `partition`: the partition of a row. `topics`: what
//!   the cluster has, and the partition counts that rows are spread by.
//! * `client`: producers and what they report. `delivery`: which rows have arrived, and
//!   who may send more, without I/O.
//! * `writer` and `backend`: spans behind the scheduler of `weir-sink`.

mod backend;
mod client;
mod config;
mod ddl;
mod delivery;
mod error;
pub mod metrics;
mod names;
mod partition;
mod preflight;
mod prepared;
mod rows;
mod topics;
mod writer;

pub use config::{
    CreateTopics, KafkaSinkConfig, MessageTooLarge, PartitionBy, PartitionCountChange, QUEUE_BYTES_DEFAULT,
    REQUEST_TIMEOUT_DEFAULT, Sasl, SaslMechanism, WORKERS_DEFAULT,
};
pub use error::{KafkaSinkError, Result};
pub use preflight::preflight;
pub use prepared::prepare;
