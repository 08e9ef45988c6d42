//! librdkafka: producers, and questions about topics.

mod asker;
mod cluster;
mod context;
mod producer;
mod properties;
#[cfg(test)]
mod tests;

pub(crate) use asker::{Asker, TopicLayout, TopicSettings};
pub(crate) use cluster::Cluster;
pub(crate) use producer::{Away, Producer, Producers, Sent};
