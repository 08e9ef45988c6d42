//! librdkafka: producers, and questions about topics.

mod cluster;
mod context;
mod producer;
pub(crate) mod properties;

pub(crate) use cluster::{Asker, Cluster};
pub(crate) use producer::{Away, Producer, Producers, Sent};
