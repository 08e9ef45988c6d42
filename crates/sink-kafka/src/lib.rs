//! Kafka sink.
//!
//! * `names`: the topic of a table. `partition`: the partition of a row. `topics`: what
//!   the cluster has, and the partition counts that rows are spread by.
//! * `client`: producers and what they report. `delivery`: which rows have arrived, and
//!   who may send more, without I/O.
//! * `writer` and `backend`: spans behind the scheduler of `weir-sink`.

mod config;
mod delivery;
mod error;

pub use config::{
    CreateTopics, KafkaSinkConfig, MessageTooLarge, PartitionBy, PartitionCountChange, Sasl, SaslMechanism,
};
pub use error::{KafkaSinkError, Result};
