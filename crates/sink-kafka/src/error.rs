//! What can go wrong.

use weir_sink::SinkError;
use weir_types::{Classified, ErrorClass, ErrorReport, TableName};

/// Result of the sink.
pub type Result<T> = std::result::Result<T, KafkaSinkError>;

/// An error of the sink. Names topics and settings, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaSinkError {
    /// librdkafka does not take a property.
    #[error("librdkafka does not take the property `{property}`: {reason}")]
    Property {
        /// Its name.
        property: String,
        /// What it says.
        reason: String,
    },
    /// No broker answers.
    #[error("no broker of {brokers} answers: {reason}")]
    Unreachable {
        /// `host:port`, separated by commas.
        brokers: String,
        /// What happened.
        reason: String,
    },
    /// The broker refuses the login.
    #[error("the broker refuses the login: {reason}")]
    Login {
        /// What it says.
        reason: String,
    },
    /// A file of the TLS settings cannot be used, or the handshake failed.
    #[error("TLS with the broker fails: {reason}")]
    Tls {
        /// Why.
        reason: String,
    },
    /// A topic is missing and is not to be made.
    #[error("topic `{topic}` does not exist, and `sink.kafka.create-topics` is off")]
    TopicMissing {
        /// Its name.
        topic: String,
    },
    /// A topic could not be made.
    #[error("topic `{topic}` with {partitions} partitions and {replication} cannot be created: {reason}")]
    TopicNotCreated {
        /// Its name.
        topic: String,
        /// As configured.
        partitions: u32,
        /// As configured, in words.
        replication: String,
        /// What the cluster says.
        reason: String,
    },
    /// A name that Kafka does not take.
    #[error("`{topic}`, the topic of `{table}`, is no name for a topic: {reason}")]
    TopicName {
        /// The name.
        topic: String,
        /// The table.
        table: TableName,
        /// Why.
        reason: String,
    },
    /// Two tables have come to one topic, though the rule keeps tables apart.
    #[error("`{table}` and `{other}` would both be written to topic `{topic}`")]
    TopicShared {
        /// The topic.
        topic: String,
        /// The table that came second.
        table: TableName,
        /// The one that has the topic.
        other: TableName,
    },
    /// The number of partitions is not what rows were spread by.
    #[error("topic `{topic}` has {found} partitions, rows were spread over {expected}")]
    PartitionsChanged {
        /// The topic.
        topic: String,
        /// Now.
        found: u32,
        /// Stored.
        expected: u32,
    },
    /// A message is larger than the topic takes.
    #[error("a message of `{table}` at {place} has {bytes} bytes, topic `{topic}` takes {limit}")]
    TooLarge {
        /// The table.
        table: TableName,
        /// The topic.
        topic: String,
        /// Order key and row.
        place: String,
        /// Its size, bytes.
        bytes: usize,
        /// The topic's limit, bytes.
        limit: usize,
    },
    /// The broker refuses messages for good.
    #[error("topic `{topic}` does not take messages: {reason}")]
    Refused {
        /// The topic.
        topic: String,
        /// What the broker says.
        reason: String,
    },
    /// The producer has come into a state that only a new one gets out of.
    #[error("the producer has to be replaced: {reason}")]
    Producer {
        /// What librdkafka says.
        reason: String,
    },
    /// A question to the cluster has no answer for now.
    #[error("the cluster does not answer for now: {reason}")]
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// The file of partition counts cannot be used.
    #[error("`{path}` cannot be used: {reason}")]
    State {
        /// Its path.
        path: String,
        /// Why.
        reason: String,
    },
    /// The sink stops.
    #[error("the sink stops")]
    Stopping,
}

impl KafkaSinkError {
    /// Whether a question about a topic may have an answer later.
    pub(crate) const fn is_passing(&self) -> bool {
        // The cluster has answered before: a login that is refused now may be a broker that
        // has not read its users yet.
        matches!(
            self,
            Self::Unavailable { .. } | Self::Unreachable { .. } | Self::Login { .. } | Self::Tls { .. }
        )
    }

    /// Whether no question about another topic has an answer now either.
    pub(crate) const fn is_silence(&self) -> bool {
        self.is_passing() && !matches!(self, Self::Unavailable { .. })
    }
}

impl From<KafkaSinkError> for SinkError {
    fn from(error: KafkaSinkError) -> Self {
        match error {
            KafkaSinkError::Stopping => Self::Stopping,
            error => Self::Target(Box::new(ErrorReport::new(&error))),
        }
    }
}

impl Classified for KafkaSinkError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Property { .. } => ErrorClass::Usage,
            Self::Unreachable { .. } | Self::Unavailable { .. } | Self::Producer { .. } | Self::Stopping => {
                ErrorClass::Transient
            }
            Self::Login { .. } | Self::Tls { .. } | Self::State { .. } => ErrorClass::Changefeed,
            Self::TopicMissing { .. }
            | Self::TopicNotCreated { .. }
            | Self::TopicName { .. }
            | Self::TopicShared { .. }
            | Self::PartitionsChanged { .. }
            | Self::TooLarge { .. }
            | Self::Refused { .. } => ErrorClass::Table,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Property { .. } => "WEIR-KFK-001",
            Self::Unreachable { .. } => "WEIR-KFK-002",
            Self::Login { .. } => "WEIR-KFK-003",
            Self::Tls { .. } => "WEIR-KFK-004",
            Self::Unavailable { .. } => "WEIR-KFK-005",
            Self::TopicMissing { .. } => "WEIR-KFK-006",
            Self::TopicNotCreated { .. } => "WEIR-KFK-007",
            Self::TopicName { .. } => "WEIR-KFK-008",
            Self::TopicShared { .. } => "WEIR-KFK-009",
            Self::PartitionsChanged { .. } => "WEIR-KFK-010",
            Self::TooLarge { .. } => "WEIR-KFK-011",
            Self::Refused { .. } => "WEIR-KFK-012",
            Self::Producer { .. } => "WEIR-KFK-013",
            Self::State { .. } => "WEIR-KFK-014",
            Self::Stopping => "WEIR-KFK-015",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Property { .. } => "correct or remove it in `[sink.kafka.librdkafka]`",
            Self::Unreachable { .. } => "check `sink.uri`, the network and the brokers' advertised listeners",
            Self::Login { .. } => "check the user in `sink.uri`, its password and `sink.kafka.sasl-mechanism`",
            Self::Tls { .. } => "check `[sink.tls]` and the port: brokers have one for TLS and one for clear text",
            Self::Unavailable { .. } | Self::Producer { .. } => "nothing: it is tried again from the last checkpoint",
            Self::TopicMissing { .. } => "create the topic, or switch `sink.kafka.create-topics` on",
            Self::TopicNotCreated { .. } => {
                "create the topic yourself, correct `sink.kafka.partitions` and `sink.kafka.replication-factor`, or \
                 route the table to another name: Kafka takes no two that differ only in `.` and `_`"
            }
            Self::TopicName { .. } => "choose another name in `sink.kafka.topic`, or route the table",
            Self::TopicShared { .. } => "route the tables apart, or name one topic for both in `sink.kafka.topic`",
            Self::PartitionsChanged { .. } => {
                "consumers see the rows of a key on two partitions from now on: if they can live with it, set \
                 `sink.kafka.partition-count-change` to `flush` and start again"
            }
            Self::TooLarge { .. } => {
                "raise the topic's `max.message.bytes`, or choose `skip-and-log` or `keys-only` in \
                 `sink.kafka.message-too-large`"
            }
            Self::Refused { .. } => "grant what is missing or repair the topic, and start again",
            Self::State { .. } => "repair the file's folder; without the file the counts are read anew",
            Self::Stopping => "nothing: it goes on from the last checkpoint",
        }
        .to_owned()
    }
}
