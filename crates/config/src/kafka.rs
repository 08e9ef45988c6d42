//! A Kafka sink: address and settings.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use percent_encoding::utf8_percent_encode;
use serde::{Deserialize, Serialize};
use weir_filter::NameTemplate;
use weir_types::Secret;
use weir_types::endpoint::MASK;

use crate::changefeed::EnumAs;
use crate::librdkafka::{check_property, properties};
use crate::mysql::{NAME_ESCAPES, decoded, host_and_port};
use crate::units::UtcOffset;

/// Port that brokers listen on by default.
pub const KAFKA_PORT_DEFAULT: u16 = 9092;

/// Most partitions that librdkafka asks for.
const PARTITIONS_MAX: u32 = 100_000;
/// `sink.kafka.partitions`: as many as a small group of consumers has members.
pub const PARTITIONS_DEFAULT: NonZeroU32 = match NonZeroU32::new(3) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

/// `sink.kafka.topic`: every table has a topic of its own.
pub const TOPIC_DEFAULT: &str = "{schema}.{table}";

/// Longest name of a topic that Kafka takes, bytes.
const TOPIC_LENGTH_MAX: usize = 249;

/// Brokers: `kafka://[user[:password]@]host[:port][,host[:port]…]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaAddress {
    /// User of a SASL login; none for none.
    pub user: Option<String>,
    /// Password, if it stands in the URI.
    pub password: Option<Secret>,
    /// Host and port of brokers to begin with; an IPv6 address without brackets.
    pub brokers: Vec<(String, u16)>,
}

impl KafkaAddress {
    /// Reads what stands behind `kafka://`. No error shows a part of the text: it may hold
    /// a password.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        if !matches!(behind, "" | "/") {
            return Err("behind the brokers only `/` may stand; topics are named by `sink.kafka.topic` (`/`, `?` and `#` \
                        in a password are written `%2F`, `%3F` and `%23`)"
                .to_owned());
        }
        let (login, brokers) = match authority.rsplit_once('@') {
            Some((login, brokers)) => (Some(login), brokers),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some(("", _)) => return Err("it names no user in front of `@`".to_owned()),
            Some((user, password))
                if decoded("user", user)?.contains('\0') || decoded("password", password)?.contains('\0') =>
            {
                return Err("its login has a NUL character".to_owned());
            }
            Some((user, "")) => (Some(decoded("user", user)?), None),
            Some((user, password)) => (
                Some(decoded("user", user)?),
                Some(Secret::new(decoded("password", password)?)),
            ),
        };
        let brokers = brokers
            .split(',')
            .map(|broker| {
                let broker = host_and_port(broker, KAFKA_PORT_DEFAULT)?;
                // Clients take one text of all brokers.
                match broker.0.contains([',', '/', '@'])
                    || broker.0.contains(|c: char| c.is_whitespace() || c.is_control())
                {
                    true => Err("a host has a character that no host has".to_owned()),
                    false => Ok(broker),
                }
            })
            .collect::<Result<_, String>>()?;
        Ok(Self {
            user,
            password,
            brokers,
        })
    }

    /// `host:port` of each broker, as clients take them.
    pub fn bootstrap(&self) -> Vec<String> {
        let text = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        self.brokers.iter().map(text).collect()
    }
}

impl fmt::Display for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kafka://")?;
        if let Some(user) = &self.user {
            write!(f, "{}", utf8_percent_encode(user, NAME_ESCAPES))?;
            if self.password.is_some() {
                write!(f, ":{MASK}")?;
            }
            f.write_str("@")?;
        }
        for (number, (host, port)) in self.brokers.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            if host.contains(':') {
                write!(f, "[{host}]:{port}")?;
            } else {
                write!(f, "{}:{port}", utf8_percent_encode(host, NAME_ESCAPES))?;
            }
        }
        f.write_str("/")
    }
}

/// `[sink.kafka]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KafkaSink {
    /// Format of the messages.
    pub protocol: Protocol,
    /// Template of topic names.
    pub topic: String,
    /// Template of the topics of DDL, empty for no DDL. Left out, DDL goes to partition 0
    /// of the topics of its tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ddl_topic: Option<String>,
    /// What rows are spread over partitions by.
    pub partition: PartitionBy,
    /// What happens when a topic has another number of partitions than rows were spread by.
    pub partition_count_change: PartitionCountChange,
    /// Whether missing topics are made.
    pub create_topics: bool,
    /// Partitions of topics that are made.
    pub partitions: NonZeroU32,
    /// Replicas of topics that are made; left out, the cluster decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<NonZeroU16>,
    /// What happens to a message that its topic does not take for its size.
    pub message_too_large: MessageTooLarge,
    /// How ENUM and SET values are written.
    pub enum_as: EnumAs,
    /// Offset that TIMESTAMP values are written with.
    pub time_zone: UtcOffset,
    /// How the password is shown to the broker, if `sink.uri` names a user.
    pub sasl_mechanism: SaslMechanism,
    /// Properties of librdkafka.
    #[serde(deserialize_with = "properties")]
    pub librdkafka: BTreeMap<String, String>,
}

impl Default for KafkaSink {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            topic: TOPIC_DEFAULT.to_owned(),
            ddl_topic: None,
            partition: PartitionBy::default(),
            partition_count_change: PartitionCountChange::default(),
            create_topics: true,
            partitions: PARTITIONS_DEFAULT,
            replication_factor: None,
            message_too_large: MessageTooLarge::default(),
            enum_as: EnumAs::default(),
            time_zone: UtcOffset::UTC,
            sasl_mechanism: SaslMechanism::default(),
            librdkafka: BTreeMap::new(),
        }
    }
}

/// `sink.kafka.protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// canal-json.
    #[default]
    CanalJson,
}

/// `sink.kafka.partition`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionBy {
    /// The row's key; the table for tables without one.
    #[default]
    Key,
    /// The table.
    Table,
    /// The source transaction.
    Transaction,
}

/// `sink.kafka.partition-count-change`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionCountChange {
    /// The table stops.
    #[default]
    Refuse,
    /// What is under way arrives first; then rows are spread by the new number.
    Flush,
}

/// `sink.kafka.message-too-large`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageTooLarge {
    /// The table stops.
    #[default]
    Error,
    /// It is left out, counted and told.
    SkipAndLog,
    /// It is sent with the columns of its key only.
    KeysOnly,
}

/// `sink.kafka.sasl-mechanism`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaslMechanism {
    /// In clear, below TLS.
    Plain,
    /// SCRAM-SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// SCRAM-SHA-512.
    #[default]
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

impl KafkaSink {
    /// The first setting that cannot be used: key below `sink.kafka` and reason.
    pub(crate) fn validate(&self) -> Result<(), (String, String)> {
        check_template(&self.topic).map_err(|reason| ("topic".to_owned(), reason))?;
        if let Some(template) = self.ddl_topic.as_deref().filter(|text| !text.is_empty()) {
            check_template(template).map_err(|reason| ("ddl-topic".to_owned(), reason))?;
        }
        if self.partitions.get() > PARTITIONS_MAX {
            return Err((
                "partitions".to_owned(),
                format!("it must be at most {PARTITIONS_MAX}"),
            ));
        }
        if self
            .replication_factor
            .is_some_and(|factor| i16::try_from(factor.get()).is_err())
        {
            return Err((
                "replication-factor".to_owned(),
                format!("it must be at most {}", i16::MAX),
            ));
        }
        for (name, value) in &self.librdkafka {
            check_property(name, value).map_err(|reason| (format!("librdkafka.{name}"), reason))?;
        }
        Ok(())
    }
}

/// Checks what is the same for all tables.
fn check_template(text: &str) -> Result<(), String> {
    let template = NameTemplate::parse(text).map_err(|error| error.to_string())?;
    let fixed = template.expand("", "");
    if !fixed.chars().all(is_topic_char) {
        return Err("names of topics have ASCII letters, digits, `.`, `_` and `-` only".to_owned());
    }
    if fixed.len() > TOPIC_LENGTH_MAX {
        return Err(format!(
            "names of topics have at most {TOPIC_LENGTH_MAX} characters"
        ));
    }
    if matches!(text, "." | "..") {
        return Err("`.` and `..` are no names of topics".to_owned());
    }
    Ok(())
}

const fn is_topic_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}
