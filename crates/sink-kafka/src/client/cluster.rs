//! Questions about topics, asked on a thread of their own: whoever needs a topic is called
//! when it is known.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::runtime::{Builder, Runtime};

use super::context::AskContext;
use super::producer::property_error;
use super::properties;
use crate::config::KafkaSinkConfig;
use crate::error::{KafkaSinkError, Result};

/// Largest batch that a topic takes where the cluster does not tell: the broker's default.
const MESSAGE_MAX_BYTES_DEFAULT: usize = 1_048_588;
/// How often the partition counts of known topics are read again.
const REFRESH_EVERY: Duration = Duration::from_secs(30);
/// First wait after a question without an answer.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Longest wait between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Longest time for a topic that was made to show.
const SHOW_LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks at it.
const SHOW_LOOK: Duration = Duration::from_millis(50);
/// A topic that is asked for to see whether there is an answer. Consumers do not make it.
const PROBE: &str = "weir-probe";

/// A topic of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicInfo {
    pub(crate) partitions: u32,
    /// `max.message.bytes`.
    pub(crate) message_max_bytes: usize,
}

type Call = Box<dyn FnOnce() + Send>;

enum Entry {
    /// Who is called when it is known.
    Asked(Vec<Call>),
    Known(Result<TopicInfo>),
}

#[derive(Default)]
struct State {
    topics: HashMap<Arc<str>, Entry>,
    stopped: bool,
}

struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    /// Rises when a known topic has become another one.
    generation: AtomicU64,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits up to `limit` for a call of `wake`; false if all is over.
    fn wait(&self, limit: Duration) -> bool {
        let state = self.state();
        if state.stopped {
            return false;
        }
        let waited = self.wake.wait_timeout(state, limit);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    fn asked(&self) -> Vec<Arc<str>> {
        let state = self.state();
        let asked =
            |(name, entry): (&Arc<str>, &Entry)| matches!(entry, Entry::Asked(_)).then(|| Arc::clone(name));
        state.topics.iter().filter_map(asked).collect()
    }

    fn known(&self) -> Vec<(Arc<str>, TopicInfo)> {
        let state = self.state();
        let known = |(name, entry): (&Arc<str>, &Entry)| match entry {
            Entry::Known(Ok(info)) => Some((Arc::clone(name), *info)),
            _ => None,
        };
        state.topics.iter().filter_map(known).collect()
    }

    fn set(&self, name: &Arc<str>, answer: Result<TopicInfo>) {
        let before = self.state().topics.insert(Arc::clone(name), Entry::Known(answer));
        if let Some(Entry::Asked(calls)) = before {
            calls.into_iter().for_each(|call| call());
        }
    }
}

/// What is known of the topics of a cluster.
pub(crate) struct Cluster {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Reaches the cluster.
    ///
    /// # Errors
    /// No broker answers, or none takes the login.
    pub(crate) fn connect(config: &KafkaSinkConfig) -> Result<Self> {
        let asker = Asker::new(config)?;
        asker.probe()?;
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            wake: Condvar::new(),
            generation: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&inner);
        let thread = std::thread::Builder::new()
            .name("weir-kafka-topics".to_owned())
            .spawn(move || run(&weak, &asker))
            .map_err(|error| KafkaSinkError::Unavailable {
                reason: format!("a thread cannot be started: {error}"),
            })?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }

    /// What is known of a topic; none if it was not asked for or has not been answered.
    pub(crate) fn known(&self, name: &str) -> Option<Result<TopicInfo>> {
        match self.inner.state().topics.get(name) {
            Some(Entry::Known(answer)) => Some(answer.clone()),
            _ => None,
        }
    }

    /// Asks for a topic, makes it if it is missing and that is configured, and calls when
    /// it is known.
    pub(crate) fn request(&self, name: &Arc<str>, call: Call) {
        let mut state = self.inner.state();
        match state.topics.get_mut(name) {
            Some(Entry::Known(_)) => {
                drop(state);
                call();
            }
            Some(Entry::Asked(calls)) => calls.push(call),
            None => {
                state.topics.insert(Arc::clone(name), Entry::Asked(vec![call]));
                drop(state);
                self.inner.wake.notify_one();
            }
        }
    }

    /// Changes when a known topic has become another one.
    pub(crate) fn generation(&self) -> u64 {
        self.inner.generation.load(Ordering::Acquire)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.inner.state().stopped = true;
        self.inner.wake.notify_all();
        // It may be waiting for an answer, which is bounded; nobody waits for it.
        drop(self.thread.take());
    }
}

fn run(inner: &Weak<Inner>, asker: &Asker) {
    let mut refreshed = Instant::now();
    let mut wait = RETRY_MIN;
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let mut failed = None;
        for name in inner.asked() {
            match asker.topic(&name) {
                Err(error @ (KafkaSinkError::Unavailable { .. } | KafkaSinkError::Unreachable { .. })) => {
                    failed = Some((name, error));
                }
                answer => inner.set(&name, answer),
            }
        }
        if refreshed.elapsed() >= REFRESH_EVERY {
            refresh(&inner, asker);
            refreshed = Instant::now();
        }
        let limit = match failed {
            Some((topic, error)) => {
                tracing::debug!(%topic, %error, "a topic cannot be asked for; trying again");
                wait = (wait * 2).min(RETRY_MAX);
                wait
            }
            None => {
                wait = RETRY_MIN;
                REFRESH_EVERY.saturating_sub(refreshed.elapsed())
            }
        };
        if !inner.wait(limit) {
            return;
        }
    }
}

/// Reads the partition counts of known topics again.
fn refresh(inner: &Inner, asker: &Asker) {
    for (name, known) in inner.known() {
        // What cannot be read now keeps what it had; a topic that is gone shows where
        // messages are refused.
        if let Ok(Some(partitions)) = asker.partitions(&name)
            && partitions != known.partitions
        {
            tracing::info!(topic = %name, before = known.partitions, now = partitions, "a topic has another number of partitions");
            let changed = TopicInfo { partitions, ..known };
            inner.set(&name, Ok(changed));
            inner.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Asks the cluster; each question is bounded in time.
pub(crate) struct Asker {
    config: KafkaSinkConfig,
    /// Unlike those of producers, its questions do not make topics.
    reader: BaseConsumer<AskContext>,
    admin: AdminClient<AskContext>,
    runtime: Runtime,
}

impl Asker {
    pub(crate) fn new(config: &KafkaSinkConfig) -> Result<Self> {
        let client = properties::client(config);
        let mut reading = client.clone();
        reading.set("allow.auto.create.topics", "false");
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            reader: reading
                .create_with_context(AskContext::default())
                .map_err(|error| property_error(&error))?,
            admin: client
                .create_with_context(AskContext::default())
                .map_err(|error| property_error(&error))?,
            runtime: runtime.map_err(|error| KafkaSinkError::Unavailable {
                reason: error.to_string(),
            })?,
            config: config.clone(),
        })
    }

    /// Whether the cluster answers; its number of brokers.
    pub(crate) fn probe(&self) -> Result<usize> {
        let metadata = self
            .reader
            .fetch_metadata(Some(PROBE), self.config.request_timeout)
            .map_err(|error| self.explain(&error))?;
        Ok(metadata.brokers().len())
    }

    fn explain(&self, error: &KafkaError) -> KafkaSinkError {
        self.reader.context().trouble.explain(&self.config, error)
    }

    /// Partitions of a topic; none if there is no such topic.
    pub(crate) fn partitions(&self, name: &str) -> Result<Option<u32>> {
        let metadata = self
            .reader
            .fetch_metadata(Some(name), self.config.request_timeout)
            .map_err(|error| self.explain(&error))?;
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
            return Ok(None);
        };
        match topic.error().map(RDKafkaErrorCode::from) {
            None => {}
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                return Ok(None);
            }
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
            Some(code) => {
                return Err(KafkaSinkError::Unavailable {
                    reason: code.to_string(),
                });
            }
        }
        match topic.partitions().len() {
            // Just made: not all brokers know it.
            0 => Err(KafkaSinkError::Unavailable {
                reason: format!("topic `{name}` has no partitions yet"),
            }),
            partitions => Ok(Some(u32::try_from(partitions).unwrap_or(u32::MAX))),
        }
    }

    fn topic(&self, name: &str) -> Result<TopicInfo> {
        let partitions = match self.partitions(name)? {
            Some(partitions) => partitions,
            None => self.make(name)?,
        };
        Ok(TopicInfo {
            partitions,
            message_max_bytes: self.message_max_bytes(name)?.unwrap_or(MESSAGE_MAX_BYTES_DEFAULT),
        })
    }

    fn options(&self) -> AdminOptions {
        AdminOptions::new()
            .request_timeout(Some(self.config.request_timeout))
            .operation_timeout(Some(self.config.request_timeout))
    }

    /// Makes a topic and waits until it shows.
    fn make(&self, name: &str) -> Result<u32> {
        self.create(name, false)?;
        tracing::info!(topic = name, "topic created");
        let begun = Instant::now();
        loop {
            match self.partitions(name) {
                Ok(Some(partitions)) => return Ok(partitions),
                Ok(None) | Err(KafkaSinkError::Unavailable { .. }) if begun.elapsed() < SHOW_LIMIT => {
                    std::thread::sleep(SHOW_LOOK);
                }
                Ok(None) => {
                    return Err(KafkaSinkError::Unavailable {
                        reason: format!("topic `{name}` was created but does not show"),
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a topic, or only asks whether it could be made.
    pub(crate) fn create(&self, name: &str, only_asks: bool) -> Result<()> {
        let Some(wanted) = self.config.create_topics else {
            return Err(KafkaSinkError::TopicMissing {
                topic: name.to_owned(),
            });
        };
        let partitions = i32::try_from(wanted.partitions).unwrap_or(i32::MAX);
        let replication = wanted.replication_factor.map_or(-1, i32::from);
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replication));
        let options = self.options().validate_only(only_asks);
        let made = self
            .runtime
            .block_on(self.admin.create_topics([&topic], &options));
        let made = made.map_err(|error| self.unavailable(&error))?;
        for result in made {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) if is_passing(code) => {
                    return Err(KafkaSinkError::Unavailable {
                        reason: code.to_string(),
                    });
                }
                Err((_, code)) => {
                    return Err(KafkaSinkError::TopicNotCreated {
                        topic: name.to_owned(),
                        partitions: wanted.partitions,
                        replication: wanted.replication_factor.map_or_else(
                            || "the cluster's own replication".to_owned(),
                            |factor| format!("{factor} replicas"),
                        ),
                        reason: code.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn unavailable(&self, error: &KafkaError) -> KafkaSinkError {
        match error {
            KafkaError::AdminOp(code) => KafkaSinkError::Unavailable {
                reason: code.to_string(),
            },
            error => self.admin.inner().context().trouble.explain(&self.config, error),
        }
    }

    /// `max.message.bytes` of a topic; none if it may not be asked for.
    fn message_max_bytes(&self, name: &str) -> Result<Option<usize>> {
        let asked = self
            .runtime
            .block_on(
                self.admin
                    .describe_configs([&ResourceSpecifier::Topic(name)], &self.options()),
            )
            .map_err(|error| self.unavailable(&error))?;
        match asked.into_iter().next() {
            Some(Ok(resource)) => {
                let entry = resource.get("max.message.bytes");
                Ok(entry.and_then(|entry| entry.value.as_deref()?.parse().ok()))
            }
            Some(Err(code)) if is_passing(code) => Err(KafkaSinkError::Unavailable {
                reason: code.to_string(),
            }),
            Some(Err(code)) => {
                tracing::warn!(
                    topic = name,
                    reason = %code,
                    assumed = MESSAGE_MAX_BYTES_DEFAULT,
                    "the size of messages that the topic takes cannot be read"
                );
                Ok(None)
            }
            None => Ok(None),
        }
    }
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
