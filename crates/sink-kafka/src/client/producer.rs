//! Producers, and what becomes of their messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult};
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer};

use super::asker::Asker;
use super::{context, properties};
use crate::config::KafkaSinkConfig;
use crate::delivery::{Unit, message_cost};
use crate::error::{KafkaSinkError, Result};
use crate::metrics::KafkaMetrics;

/// Facility of the line of librdkafka's log that says why a producer has failed.
const FATAL: &str = "FATAL";
/// Wait between two looks for a broker.
const WATCH_EVERY: Duration = Duration::from_millis(200);

/// Told when no broker can be reached any more, and when one can again.
pub(crate) type Away = Arc<dyn Fn(bool) + Send + Sync>;

/// Why a message was not taken.
#[derive(Debug)]
pub(crate) enum Sent {
    /// There is no room for now.
    Full,
    /// It never will be.
    Failed(KafkaSinkError),
}

/// Whether brokers can be reached; of all producers.
struct Link {
    config: KafkaSinkConfig,
    away: Away,
    is_away: AtomicBool,
    metrics: Arc<KafkaMetrics>,
}

impl Link {
    fn set_away(self: &Arc<Self>, away: bool) {
        if self.is_away.swap(away, Ordering::AcqRel) == away {
            return;
        }
        self.metrics.connected(!away);
        (self.away)(away);
        if away {
            tracing::warn!(
                code = "WEIR-KFK-002",
                "no broker can be reached; messages wait until one can"
            );
            self.watch();
        } else {
            tracing::info!("a broker can be reached again");
        }
    }

    /// Looks for brokers until there are some: without messages, no producer would say.
    fn watch(self: &Arc<Self>) {
        let link = Arc::downgrade(self);
        let spawned = std::thread::Builder::new()
            .name("weir-kafka-watch".to_owned())
            .spawn(move || {
                let asker = link.upgrade().and_then(|link| Asker::new(&link.config).ok());
                let Some(asker) = asker else { return };
                // A message that arrives ends it, too.
                while link
                    .upgrade()
                    .is_some_and(|link| link.is_away.load(Ordering::Acquire))
                {
                    match (asker.probe(), link.upgrade()) {
                        (Ok(_), Some(link)) => link.set_away(false),
                        _ => std::thread::sleep(WATCH_EVERY),
                    }
                }
            });
        if let Err(error) = spawned {
            tracing::debug!(%error, "brokers are not watched; the next message that arrives tells");
        }
    }
}

struct Context {
    link: Arc<Link>,
    /// Why nothing can be sent any more.
    fatal: OnceLock<String>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // The error itself comes as any other one; this line comes first, and before the
        // messages that are thrown away then.
        if facility == FATAL && self.fatal.set(message.to_owned()).is_ok() {
            tracing::error!(
                code = "WEIR-KFK-013",
                reason = message,
                "the producer has to be replaced"
            );
        } else {
            context::log(level, facility, message);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if matches!(error, KafkaError::Global(RDKafkaErrorCode::AllBrokersDown)) {
            self.link.set_away(true);
        } else {
            tracing::debug!(%error, reason, "librdkafka");
        }
    }
}

fn cost(message: &BorrowedMessage<'_>) -> usize {
    message_cost(
        message.key().map_or(0, <[u8]>::len),
        message.payload().map_or(0, <[u8]>::len),
    )
}

/// What an error of a message means for its table.
fn judge(error: &KafkaError, topic: &str, fatal: Option<&String>) -> KafkaSinkError {
    let refused = |reason: String| KafkaSinkError::Refused {
        topic: topic.to_owned(),
        reason,
    };
    let KafkaError::MessageProduction(code) = error else {
        return KafkaSinkError::Producer {
            reason: error.to_string(),
        };
    };
    match code {
        // A producer that has failed throws its queue away as well.
        RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight if fatal.is_none() => {
            KafkaSinkError::Stopping
        }
        RDKafkaErrorCode::MessageSizeTooLarge => refused(
            "a batch is larger than it takes: lower `batch.size`, or raise its `max.message.bytes`"
                .to_owned(),
        ),
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed
        | RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownPartition
        | RDKafkaErrorCode::InvalidTopic
        | RDKafkaErrorCode::InvalidRecord
        | RDKafkaErrorCode::InvalidTimestamp
        | RDKafkaErrorCode::PolicyViolation
        | RDKafkaErrorCode::UnsupportedForMessageFormat => refused(code.to_string()),
        code => KafkaSinkError::Producer {
            reason: fatal.map_or_else(|| code.to_string(), String::clone),
        },
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Arc<Unit>;

    fn delivery(&self, result: &DeliveryResult<'_>, unit: Arc<Unit>) {
        match result {
            Ok(message) => {
                if self.link.is_away.load(Ordering::Relaxed) {
                    self.link.set_away(false);
                }
                self.link.metrics.delivered();
                unit.arrived(cost(message));
            }
            Err((error, message)) => {
                let error = judge(error, message.topic(), self.fatal.get());
                if !matches!(error, KafkaSinkError::Stopping) {
                    self.link.metrics.failed(&error);
                }
                unit.failed(cost(message), error);
            }
        }
    }
}

/// A producer.
#[derive(Clone)]
pub(crate) struct Producer(Arc<ThreadedProducer<Context, NoCustomPartitioner>>);

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Producer")
    }
}

impl Producer {
    /// Hands a message over; `unit` has counted it.
    pub(crate) fn send(
        &self,
        topic: &str,
        partition: u32,
        key: Option<&[u8]>,
        value: &[u8],
        unit: &Arc<Unit>,
    ) -> std::result::Result<(), Sent> {
        let mut record = BaseRecord::with_opaque_to(topic, Arc::clone(unit))
            .partition(i32::try_from(partition).unwrap_or(i32::MAX))
            .payload(value);
        if let Some(key) = key {
            record = record.key(key);
        }
        match self.0.send(record) {
            Ok(()) => Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Err(Sent::Full),
            Err((error, _)) => Err(Sent::Failed(judge(&error, topic, self.0.context().fatal.get()))),
        }
    }
}

/// Producers by the limit of the topics that they write to.
pub(crate) struct Producers {
    link: Arc<Link>,
    all: Mutex<Vec<(usize, Producer)>>,
}

impl Producers {
    /// Makes none yet.
    pub(crate) fn new(config: &KafkaSinkConfig, away: Away, metrics: Arc<KafkaMetrics>) -> Self {
        Self {
            link: Arc::new(Link {
                config: config.clone(),
                away,
                is_away: AtomicBool::new(false),
                metrics,
            }),
            all: Mutex::default(),
        }
    }

    /// The producer for topics that take batches of this size.
    ///
    /// # Errors
    /// A property is not what librdkafka takes.
    pub(crate) fn of(&self, message_max_bytes: usize) -> Result<Producer> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, producer)) = all.iter().find(|(limit, _)| *limit == message_max_bytes) {
            return Ok(producer.clone());
        }
        let producer = self.make(&properties::producer(&self.link.config, message_max_bytes))?;
        all.push((message_max_bytes, producer.clone()));
        Ok(producer)
    }

    pub(super) fn make(&self, properties: &ClientConfig) -> Result<Producer> {
        let context = Context {
            link: Arc::clone(&self.link),
            fatal: OnceLock::new(),
        };
        let made: ThreadedProducer<Context> = properties
            .create_with_context(context)
            .map_err(|error| property_error(&error))?;
        Ok(Producer(Arc::new(made)))
    }
}

/// The error of a client that could not be made.
pub(crate) fn property_error(error: &KafkaError) -> KafkaSinkError {
    match error {
        KafkaError::ClientConfig(_, reason, property, _) => KafkaSinkError::Property {
            property: property.clone(),
            reason: reason.clone(),
        },
        error => {
            let reason = error.to_string();
            // Certificates and keys are read when a client is made.
            if reason.contains("ssl.") {
                KafkaSinkError::Tls { reason }
            } else {
                let property = "(several)".to_owned();
                KafkaSinkError::Property { property, reason }
            }
        }
    }
}
