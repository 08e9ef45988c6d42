//! Settings of the sink.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_codec::CanalOptions;
use weir_filter::{NameCase, Router, TableFilter};
use weir_types::{ChangefeedId, LineageId, Secret, TlsOptions};

/// Bytes of messages that may be under way, unless configured otherwise.
pub const QUEUE_BYTES_DEFAULT: usize = 32 << 20;
/// Worker threads: the work is encoding, so that more than cores are of no use.
pub const WORKERS_DEFAULT: usize = 2;
/// Longest wait for an answer to a question about the cluster.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// What rows are spread over partitions by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionBy {
    /// The row's key; the table for tables without one.
    #[default]
    Key,
    /// The table: all of its rows are on one partition.
    Table,
    /// The source transaction.
    Transaction,
}

/// What happens to a message that the topic does not take for its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageTooLarge {
    /// The table stops.
    #[default]
    Error,
    /// It is left out, counted and told.
    SkipAndLog,
    /// It is sent with the columns of its key only.
    KeysOnly,
}

/// What happens when a topic has another number of partitions than rows were spread by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionCountChange {
    /// The table stops.
    #[default]
    Refuse,
    /// Everything under way is delivered first; then rows are spread by the new number.
    Flush,
}

/// How missing topics come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateTopics {
    /// Partitions.
    pub partitions: u32,
    /// Replicas of each partition; none for the cluster's own default.
    pub replication_factor: Option<u16>,
}

/// How the password is shown to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// In clear, below TLS.
    Plain,
    /// SCRAM-SHA-256.
    ScramSha256,
    /// SCRAM-SHA-512.
    ScramSha512,
}

/// A login.
#[derive(Clone, Debug)]
pub struct Sasl {
    /// How.
    pub mechanism: SaslMechanism,
    /// Who.
    pub user: String,
    /// Password.
    pub password: Secret,
}

/// Settings of a Kafka sink.
#[derive(Clone, Debug)]
pub struct KafkaSinkConfig {
    /// The changefeed.
    pub changefeed: ChangefeedId,
    /// History that order keys belong to.
    pub lineage: LineageId,
    /// `host:port` of brokers to begin with.
    pub brokers: Vec<String>,
    /// Encryption; `preferred` counts as `disabled`, since the protocol has no upgrade.
    pub tls: TlsOptions,
    /// Login; none for none.
    pub sasl: Option<Sasl>,
    /// Template of topic names.
    pub topic: String,
    /// Template of the topics of DDL; empty for none; none for partition 0 of the table's
    /// topic.
    pub ddl_topic: Option<String>,
    /// What rows are spread by.
    pub partition: PartitionBy,
    /// What a changed number of partitions does.
    pub partition_count_change: PartitionCountChange,
    /// Missing topics are made so; none: they are errors.
    pub create_topics: Option<CreateTopics>,
    /// What happens to messages that are too large.
    pub message_too_large: MessageTooLarge,
    /// Properties of librdkafka, as configured.
    pub librdkafka: BTreeMap<String, String>,
    /// Options of the format.
    pub canal: CanalOptions,
    /// Names at the target.
    pub router: Arc<Router>,
    /// Tables that are replicated; none for all. A DDL is sent only if it concerns some.
    pub filter: Option<Arc<TableFilter>>,
    /// File that keeps the partition counts that rows are spread by.
    pub state_file: PathBuf,
    /// Bytes of messages that may be under way.
    pub queue_bytes: usize,
    /// Worker threads.
    pub workers: usize,
    /// Longest wait for an answer to a question about the cluster.
    pub request_timeout: Duration,
}

impl KafkaSinkConfig {
    /// Settings with defaults for all that is not an address or an identity.
    pub fn new(
        changefeed: ChangefeedId,
        lineage: LineageId,
        brokers: Vec<String>,
        state_file: PathBuf,
    ) -> Self {
        Self {
            changefeed,
            lineage,
            brokers,
            tls: TlsOptions::default(),
            sasl: None,
            topic: "{schema}.{table}".to_owned(),
            ddl_topic: None,
            partition: PartitionBy::default(),
            partition_count_change: PartitionCountChange::default(),
            create_topics: Some(CreateTopics {
                partitions: 3,
                replication_factor: None,
            }),
            message_too_large: MessageTooLarge::default(),
            librdkafka: BTreeMap::new(),
            canal: CanalOptions::default(),
            router: Arc::new(Router::identity(NameCase::Sensitive)),
            filter: None,
            state_file,
            queue_bytes: QUEUE_BYTES_DEFAULT,
            workers: WORKERS_DEFAULT,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
        }
    }
}
