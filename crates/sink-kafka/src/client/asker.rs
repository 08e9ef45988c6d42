//! Questions about topics. Each is bounded in time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use tokio::runtime::{Builder, Runtime};

use super::context::{AskContext, Trouble};
use super::producer::property_error;
use super::properties;
use crate::config::KafkaSinkConfig;
use crate::error::{KafkaSinkError, Result};

/// Largest batch that a topic takes where the cluster does not tell: the broker's default.
const MESSAGE_MAX_BYTES_DEFAULT: usize = 1_048_588;
/// Longest time for a topic that was made to show.
const SHOW_LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks at it.
const SHOW_LOOK: Duration = Duration::from_millis(10);
/// A refused login is noticed within this time, though librdkafka goes on trying.
const SLICE: Duration = Duration::from_secs(2);
/// Questions about settings without an answer, in a row, after which none is asked.
const UNANSWERED_MAX: u32 = 3;
/// Time for what has come up; lines of log end a shorter one.
const HEAR: Duration = Duration::from_millis(5);
/// A topic that is asked for to see whether there is an answer.
const PROBE: &str = "weir-probe";

/// A topic of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicInfo {
    pub(crate) partitions: u32,
    /// `max.message.bytes`.
    pub(crate) message_max_bytes: usize,
}

/// A topic as it is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicLayout {
    pub(crate) partitions: u32,
    /// Fewest replicas of a partition.
    pub(crate) replicas: u32,
}

/// Settings of a topic; none where they may not be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSettings {
    /// `max.message.bytes`.
    pub(crate) message_max_bytes: Option<usize>,
    /// `min.insync.replicas`.
    pub(crate) min_insync: Option<u32>,
}

/// Asks the cluster; each question is bounded in time.
pub(crate) struct Asker {
    config: KafkaSinkConfig,
    reader: BaseConsumer<AskContext>,
    /// Made when needed.
    admin: Mutex<Option<AdminClient<AskContext>>>,
    /// How often in a row a question about settings had no answer.
    unanswered: AtomicU32,
    /// It was told that settings cannot be read.
    is_told: AtomicBool,
    runtime: Runtime,
}

fn is_unknown(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic
    )
}

fn unavailable(reason: impl ToString) -> KafkaSinkError {
    KafkaSinkError::Unavailable {
        reason: reason.to_string(),
    }
}

impl Asker {
    pub(crate) fn new(config: &KafkaSinkConfig) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        properties::check_files(config)?;
        Ok(Self {
            reader: properties::client(config)
                .create_with_context(AskContext::default())
                .map_err(|error| property_error(&error))?,
            admin: Mutex::default(),
            unanswered: AtomicU32::new(0),
            is_told: AtomicBool::new(false),
            runtime: runtime.map_err(unavailable)?,
            config: config.clone(),
        })
    }

    /// Whether the cluster answers; its number of brokers.
    pub(crate) fn probe(&self) -> Result<usize> {
        Ok(self.metadata(PROBE)?.brokers().len())
    }

    /// Lets go of what is needed for rare questions only, and takes what librdkafka has
    /// to say.
    pub(crate) fn rest(&self) {
        drop(self.admin().take());
        self.hear();
    }

    fn admin(&self) -> MutexGuard<'_, Option<AdminClient<AskContext>>> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> &Trouble {
        &self.reader.context().trouble
    }

    /// Takes the lines of log and the errors that have come up; they come by the queue of
    /// messages, which is not read otherwise.
    fn hear(&self) {
        while self.reader.poll(HEAR).is_some() {}
    }

    /// Asks for a topic. Goes on until the time is over, unless the broker has said that it
    /// never will answer.
    fn metadata(&self, name: &str) -> Result<Metadata> {
        self.trouble().forget();
        let begun = Instant::now();
        loop {
            let left = self.config.request_timeout.saturating_sub(begun.elapsed());
            let answer = self.reader.fetch_metadata(Some(name), left.min(SLICE));
            let error = match answer {
                Ok(metadata) => return Ok(metadata),
                Err(error) => error,
            };
            self.hear();
            let error = self.trouble().explain(&self.config, &error);
            let is_definite = matches!(error, KafkaSinkError::Login { .. } | KafkaSinkError::Tls { .. });
            if is_definite || begun.elapsed() >= self.config.request_timeout {
                return Err(error);
            }
        }
    }

    /// How a topic is laid out; none if there is no such topic.
    pub(crate) fn layout(&self, name: &str) -> Result<Option<TopicLayout>> {
        let metadata = self.metadata(name)?;
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
            return Ok(None);
        };
        match topic.error().map(RDKafkaErrorCode::from) {
            None => {}
            Some(code) if is_unknown(code) => return Ok(None),
            Some(
                code @ (RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::InvalidTopic
                | RDKafkaErrorCode::PolicyViolation),
            ) => {
                return Err(KafkaSinkError::Refused {
                    topic: name.to_owned(),
                    reason: code.to_string(),
                });
            }
            Some(code) => return Err(unavailable(code)),
        }
        let partitions = topic.partitions();
        let Some(replicas) = partitions.iter().map(|one| one.replicas().len()).min() else {
            // Just made: not all brokers know it.
            return Err(unavailable(format!("topic `{name}` has no partitions yet")));
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Some(TopicLayout {
            partitions: number(partitions.len()),
            replicas: number(replicas),
        }))
    }

    /// What messages to topics need, in their order; makes those that are missing if that is
    /// configured. Many at once, since making one takes a cluster as long as making many.
    ///
    /// # Errors
    /// The cluster does not answer. What is wrong with one topic is in its place.
    pub(crate) fn topics(&self, names: &[Arc<str>]) -> Result<Vec<Result<TopicInfo>>> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            found.push(self.layout_or_silence(name)?);
        }
        let missing: Vec<&str> = names
            .iter()
            .zip(&found)
            .filter(|(_, layout)| matches!(layout, Ok(None)))
            .map(|(name, _)| &**name)
            .collect();
        let mut made = self.create_all(&missing, false)?.into_iter();
        let mut partitions = Vec::with_capacity(names.len());
        for (name, layout) in names.iter().zip(found) {
            partitions.push(match layout {
                Ok(Some(layout)) => Ok(layout.partitions),
                Ok(None) => match made.next() {
                    Some(Err(error)) => Err(error),
                    _ => self.wait_shown(name),
                },
                Err(error) => Err(error),
            });
        }
        let whole: Vec<&str> = names
            .iter()
            .zip(&partitions)
            .filter(|(_, partitions)| partitions.is_ok())
            .map(|(name, _)| &**name)
            .collect();
        let mut settings = self.settings(&whole)?.into_iter();
        Ok(partitions
            .into_iter()
            .map(|partitions| {
                let partitions = partitions?;
                let settings = settings.next().unwrap_or_else(|| Ok(TopicSettings::default()))?;
                let limit = settings.message_max_bytes;
                Ok(TopicInfo {
                    partitions,
                    message_max_bytes: limit.unwrap_or(MESSAGE_MAX_BYTES_DEFAULT),
                })
            })
            .collect())
    }

    /// The same as `layout`, where an error that all topics would have is the outer one.
    fn layout_or_silence(&self, name: &str) -> Result<Result<Option<TopicLayout>>> {
        match self.layout(name) {
            Err(error) if error.is_silence() => Err(error),
            answer => Ok(answer),
        }
    }

    fn options(&self) -> AdminOptions {
        AdminOptions::new()
            .request_timeout(Some(self.config.request_timeout))
            .operation_timeout(Some(self.config.request_timeout))
    }

    /// Waits until a topic that was made shows; its partitions.
    fn wait_shown(&self, name: &str) -> Result<u32> {
        tracing::info!(topic = name, "topic created");
        let begun = Instant::now();
        loop {
            match self.layout(name) {
                Ok(Some(layout)) => return Ok(layout.partitions),
                Ok(None) | Err(KafkaSinkError::Unavailable { .. }) if begun.elapsed() < SHOW_LIMIT => {
                    std::thread::sleep(SHOW_LOOK);
                }
                Ok(None) => {
                    let reason = format!("topic `{name}` was created but does not show");
                    return Err(unavailable(reason));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a topic, or only asks whether it could be made.
    pub(crate) fn create(&self, name: &str, only_asks: bool) -> Result<()> {
        let made = self.create_all(&[name], only_asks)?;
        made.into_iter().collect()
    }

    /// Makes topics, or only asks whether they could be made; what became of each, in their
    /// order.
    fn create_all(&self, names: &[&str], only_asks: bool) -> Result<Vec<Result<()>>> {
        let Some(wanted) = self.config.create_topics else {
            let missing = |name: &&str| {
                Err(KafkaSinkError::TopicMissing {
                    topic: (*name).to_owned(),
                })
            };
            return Ok(names.iter().map(missing).collect());
        };
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let partitions = i32::try_from(wanted.partitions).unwrap_or(i32::MAX);
        let replicas = wanted.replication_factor.map_or(-1, i32::from);
        let topics: Vec<_> = names
            .iter()
            .map(|name| NewTopic::new(name, partitions, TopicReplication::Fixed(replicas)))
            .collect();
        let options = self.options().validate_only(only_asks);
        let made = self.administer(|admin| self.runtime.block_on(admin.create_topics(&topics, &options)))?;
        let mut codes: HashMap<String, RDKafkaErrorCode> =
            made.into_iter().filter_map(std::result::Result::err).collect();
        Ok(names
            .iter()
            .map(|name| match codes.remove(*name) {
                None | Some(RDKafkaErrorCode::TopicAlreadyExists) => Ok(()),
                Some(code) if is_passing(code) => Err(unavailable(code)),
                Some(code) => Err(KafkaSinkError::TopicNotCreated {
                    topic: (*name).to_owned(),
                    partitions: wanted.partitions,
                    replication: wanted.replication_factor.map_or_else(
                        || "the cluster's own replication".to_owned(),
                        |factor| format!("{factor} replicas"),
                    ),
                    reason: code.to_string(),
                }),
            })
            .collect())
    }

    /// Does something with the client for administration.
    fn administer<T>(
        &self,
        ask: impl FnOnce(&AdminClient<AskContext>) -> std::result::Result<T, KafkaError>,
    ) -> Result<T> {
        let mut admin = self.admin();
        let client = match admin.take() {
            Some(client) => client,
            None => properties::client(&self.config)
                .create_with_context(AskContext::default())
                .map_err(|error| property_error(&error))?,
        };
        ask(admin.insert(client)).map_err(unavailable)
    }

    /// Settings of topics, in their order.
    ///
    /// # Errors
    /// The cluster does not answer. What has no answer yet for one topic is in its place.
    pub(crate) fn settings(&self, names: &[&str]) -> Result<Vec<Result<TopicSettings>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let resources: Vec<_> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
        let none = || vec![Ok(TopicSettings::default()); names.len()];
        if self.unanswered.load(Ordering::Relaxed) >= UNANSWERED_MAX {
            return Ok(none());
        }
        let options = self.options();
        let asked = self.administer(|admin| {
            self.runtime
                .block_on(admin.describe_configs(&resources, &options))
        });
        let asked = match asked {
            Ok(asked) => asked,
            // Who answers all but this has no answer to it.
            Err(error) if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED_MAX => {
                self.tell(&error);
                return Ok(none());
            }
            Err(error) => return Err(error),
        };
        self.unanswered.store(0, Ordering::Relaxed);
        let mut settings = Vec::with_capacity(names.len());
        for answer in asked {
            settings.push(match answer {
                Ok(found) => Ok(TopicSettings {
                    message_max_bytes: setting(&found, "max.message.bytes"),
                    min_insync: setting(&found, "min.insync.replicas"),
                }),
                Err(code) if is_passing(code) => Err(unavailable(code)),
                Err(code) => {
                    self.tell(&code);
                    Ok(TopicSettings::default())
                }
            });
        }
        Ok(settings)
    }

    /// Says once that settings of topics cannot be read.
    fn tell(&self, reason: &dyn std::fmt::Display) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %reason,
                assumed = MESSAGE_MAX_BYTES_DEFAULT,
                "the size of messages that topics take cannot be read"
            );
        }
    }
}

/// A number among the settings of a topic.
fn setting<T: std::str::FromStr>(settings: &ConfigResource, name: &str) -> Option<T> {
    settings.get(name)?.value.as_deref()?.parse().ok()
}

const fn is_passing(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::RequestTimedOut
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::MessageTimedOut
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::NotController
            | RDKafkaErrorCode::NetworkException
            | RDKafkaErrorCode::LeaderNotAvailable
            | RDKafkaErrorCode::BrokerNotAvailable
            | RDKafkaErrorCode::CoordinatorLoadInProgress
            | RDKafkaErrorCode::UnknownTopicOrPartition
    )
}
