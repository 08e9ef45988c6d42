//! Typed changefeed configuration: defaults, validation, units.
//!
//! [`Changefeed::parse`] turns the text of a changefeed file into a value that holds
//! only what this build implements, or into one error that names the dotted path, the
//! value, line and column, and the nearest known key. Every key is described in
//! `docs/configuration.md`.

mod changefeed;
mod error;
mod kafka;
mod keys;
mod librdkafka;
mod load;
mod memory;
mod mysql;
mod start;
mod timestamp;
mod units;
mod uri;
mod validate;

pub use changefeed::{
    Changefeed, DISK_QUOTA_DEFAULT, EnumAs, FileSink, Filter, FlowControl, Follow,
    HEARTBEAT_INTERVAL_DEFAULT, MAX_EVENT_SIZE_DEFAULT, MAX_ROW_SIZE_DEFAULT, MEMORY_QUOTA_DEFAULT,
    METRICS_LISTEN_DEFAULT, Metrics, MysqlSink, POLL_INTERVAL_DEFAULT, ROTATE_AGE_DEFAULT,
    ROTATE_SIZE_DEFAULT, Route, SEGMENT_SIZE_DEFAULT, Sink, Source, Store, WORKER_COUNT_DEFAULT,
};
pub use error::{ConfigError, Place, Result};
pub use kafka::{
    KAFKA_PORT_DEFAULT, KafkaAddress, KafkaSink, MessageTooLarge, PARTITIONS_DEFAULT, PartitionBy,
    PartitionCountChange, Protocol, SaslMechanism, TOPIC_DEFAULT,
};
pub use keys::KEYS;
pub use memory::{MEMORY_QUOTA_MIN, MemoryPlan};
pub use mysql::{MYSQL_PORT_DEFAULT, MysqlAddress, SERVER_ID_DERIVED_MIN, derived_server_id};
pub use start::{Start, Until};
pub use timestamp::{format_rfc3339, parse_rfc3339};
pub use units::{ByteSize, HumanDuration, UtcOffset};
pub use uri::{SinkUri, SourceUri, file_uri, mask_secrets};
pub use validate::{ID_LENGTH_MAX, SEGMENT_SIZE_MIN, WORKER_COUNT_MAX};

#[cfg(test)]
mod kafka_tests;
#[cfg(test)]
mod mysql_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod value_tests;
