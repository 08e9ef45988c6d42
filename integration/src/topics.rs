//! A consumer that reads topics whole and builds the tables again. It knows the messages by their documentation only,
//! and reads them with a JSON parser that is not Weir's.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;

mod order;
mod tables;

pub use order::Repeats;
pub use tables::{Table, compare};

const ASK_LIMIT: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(100);
/// Longest wait for the next message.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// A place in the source: order key, row in the event, and which part of a row that changed its key.
pub type Place = (String, u64, u8);

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its key as text.
    pub key: Option<String>,
    /// Its value.
    pub value: Value,
    /// When the producer took it, milliseconds since the Unix epoch.
    pub millis: i64,
}

impl Message {
    /// Text of a field.
    pub fn text(&self, field: &str) -> &str {
        self.value[field].as_str().unwrap_or_default()
    }

    /// `database.table`.
    pub fn table(&self) -> String {
        format!("{}.{}", self.text("database"), self.text("table"))
    }

    /// Whether it is a DDL.
    pub fn is_ddl(&self) -> bool {
        self.value["isDdl"] == Value::Bool(true)
    }

    /// Where the change stands.
    pub fn place(&self) -> Place {
        let weir = &self.value["_weir"];
        // Of a key that changes the end comes first.
        let part = u8::from(self.text("type") != "DELETE");
        let key = weir["key"].as_str().unwrap_or_default().to_owned();
        (key, weir["row"].as_u64().unwrap_or_default(), part)
    }
}

/// Topics, read from begin to end.
#[derive(Debug)]
pub struct Topics {
    /// Messages in the order of their partitions.
    pub messages: Vec<Message>,
    /// Partitions of each topic.
    pub partitions: BTreeMap<String, usize>,
}

/// A consumer of a broker without login.
///
/// # Errors
/// When librdkafka does not take the settings.
pub fn consumer(address: &str, isolation: &str) -> Result<BaseConsumer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("group.id", "weir-test")
        .set("enable.auto.commit", "false")
        .set("isolation.level", isolation)
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "20")
        .create()?)
}

/// First and next offset of a partition. One that has just been made, or whose broker has just come back, has no leader
/// for a moment.
fn watermarks(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<(i64, i64)> {
    let begun = Instant::now();
    loop {
        match consumer.fetch_watermarks(topic, partition, ASK_LIMIT) {
            Err(error) if begun.elapsed() > ASK_LIMIT => return Err(error.into()),
            Err(_) => std::thread::sleep(RETRY),
            Ok(found) => return Ok(found),
        }
    }
}

impl Topics {
    /// Reads all topics whose names begin with `prefix`, up to what they hold now.
    ///
    /// # Errors
    /// When the broker does not answer, or a message is not JSON.
    pub fn read(address: &str, prefix: &str) -> Result<Self> {
        Self::read_isolated(address, prefix, "read_committed")
    }

    /// The same with an isolation level.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_isolated(address: &str, prefix: &str, isolation: &str) -> Result<Self> {
        let consumer = consumer(address, isolation)?;
        let metadata = consumer.fetch_metadata(None, ASK_LIMIT)?;
        let mut partitions = BTreeMap::new();
        let mut ends: HashMap<(String, i32), i64> = HashMap::new();
        let mut list = TopicPartitionList::new();
        for topic in metadata
            .topics()
            .iter()
            .filter(|topic| topic.name().starts_with(prefix))
        {
            partitions.insert(topic.name().to_owned(), topic.partitions().len());
            for partition in topic.partitions() {
                let (low, high) = watermarks(&consumer, topic.name(), partition.id())?;
                if high > low {
                    ends.insert((topic.name().to_owned(), partition.id()), high);
                    list.add_partition_offset(topic.name(), partition.id(), Offset::Beginning)?;
                }
            }
        }
        let mut messages = Vec::new();
        if !ends.is_empty() {
            consumer.assign(&list)?;
        }
        drop(list);
        let mut last = Instant::now();
        while !ends.is_empty() {
            let Some(message) = consumer.poll(Duration::from_millis(200)) else {
                ensure!(last.elapsed() < READ_LIMIT, "nothing comes any more of {ends:?}");
                continue;
            };
            last = Instant::now();
            let message = message?;
            let of = (message.topic().to_owned(), message.partition());
            if ends.get(&of).is_some_and(|end| message.offset() + 1 >= *end) {
                ends.remove(&of);
            }
            let payload = message.payload().context("a message without value")?;
            let value = serde_json::from_slice(payload)
                .with_context(|| format!("no JSON: {}", String::from_utf8_lossy(payload)))?;
            let key = message.key().map(|key| String::from_utf8_lossy(key).into_owned());
            messages.push(Message {
                topic: of.0,
                partition: of.1,
                key,
                value,
                millis: message.timestamp().to_millis().unwrap_or_default(),
            });
        }
        Ok(Self { messages, partitions })
    }

    /// Distinct row changes; one that changes a key is one.
    pub fn rows(&self) -> usize {
        let places: std::collections::BTreeSet<(String, String, u64)> = self
            .messages
            .iter()
            .filter(|message| !message.is_ddl())
            .map(|message| {
                let (key, row, _) = message.place();
                (message.table(), key, row)
            })
            .collect();
        places.len()
    }
}
