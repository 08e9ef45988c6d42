//! A consumer that reads topics whole and builds the tables again. It knows the messages by their documentation only,
//! and reads them with a JSON parser that is not Weir's.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mysql_async::Value as SqlValue;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;

use crate::client::Client;

const ASK_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for the next message.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// Differences shown.
const SHOWN: usize = 8;
/// Characters of a row or value that are shown.
const SHOWN_CHARS: usize = 200;

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

/// What repeats of messages there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Messages that had come before.
    pub messages: usize,
    /// Bytes of their values.
    pub bytes: usize,
    /// How often a key, or a partition of rows without keys, went back; the most of all.
    pub steps_back: usize,
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
                let (low, high) = consumer.fetch_watermarks(topic.name(), partition.id(), ASK_LIMIT)?;
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

    /// Checks the order of what arrived: all messages of a key are on one partition; the key of a message is that of
    /// its row; the sequence of states of a key goes on without a gap, and goes back only as a replay that ends where
    /// it was.
    ///
    /// # Errors
    /// Names what is out of order.
    pub fn check_order(&self) -> Result<Repeats> {
        let mut homes: HashMap<(&str, &str), i32> = HashMap::new();
        let mut lanes: BTreeMap<(&str, i32, Option<&str>), Vec<(Place, usize)>> = BTreeMap::new();
        for message in self.messages.iter().filter(|message| !message.is_ddl()) {
            if let Some(key) = &message.key {
                let home = homes.entry((&message.topic, key)).or_insert(message.partition);
                ensure!(
                    *home == message.partition,
                    "{key} of {} is on two partitions",
                    message.topic
                );
                check_key(message, key)?;
            }
            let lane = (message.topic.as_str(), message.partition, message.key.as_deref());
            let bytes = message.value.to_string().len();
            lanes.entry(lane).or_default().push((message.place(), bytes));
        }
        let mut repeats = Repeats::default();
        for (lane, states) in &lanes {
            let of_lane = check_lane(states).with_context(|| format!("{lane:?}"))?;
            repeats.messages += of_lane.messages;
            repeats.bytes += of_lane.bytes;
            repeats.steps_back = repeats.steps_back.max(of_lane.steps_back);
        }
        Ok(repeats)
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

    /// The tables that the messages make, as a consumer knows them: rows by their keys, or as often as they are there.
    ///
    /// # Errors
    /// When a row is taken away that was not there.
    pub fn tables(&self) -> Result<BTreeMap<String, Table>> {
        // Distinct messages in the order of the source, so that DDL falls between the rows.
        let mut ordered: BTreeMap<(Place, String), &Message> = BTreeMap::new();
        for message in &self.messages {
            ordered.insert((message.place(), message.table()), message);
        }
        let mut tables: BTreeMap<String, Table> = BTreeMap::new();
        for message in ordered.values() {
            let table = tables.entry(message.table()).or_default();
            if message.is_ddl() {
                if matches!(message.text("type"), "TRUNCATE" | "ERASE") {
                    *table = Table::default();
                }
                continue;
            }
            let what = || format!("{:?} of {}", message.place(), message.table());
            table.apply(message).with_context(what)?;
        }
        Ok(tables)
    }
}

fn check_key(message: &Message, key: &str) -> Result<()> {
    let names = message.value["pkNames"]
        .as_array()
        .context("a keyed message names its key")?;
    let row = &message.value["data"][0];
    let expected: Vec<&Value> = names
        .iter()
        .map(|name| &row[name.as_str().unwrap_or_default()])
        .collect();
    ensure!(
        serde_json::to_string(&expected)? == serde_json::from_str::<Value>(key)?.to_string(),
        "the key {key} is not that of {row}"
    );
    Ok(())
}

fn check_lane(states: &[(Place, usize)]) -> Result<Repeats> {
    let mut known: Vec<&Place> = Vec::new();
    let mut repeats = Repeats::default();
    // Index in `known` of the state that the consumer holds.
    let mut at: Option<usize> = None;
    for (place, bytes) in states {
        let next = at.map_or(0, |at| at + 1);
        if next == known.len() {
            if known.last().is_none_or(|last| *last < place) {
                known.push(place);
                at = Some(next);
                continue;
            }
        } else if known.get(next) == Some(&place) {
            repeats.messages += 1;
            repeats.bytes += bytes;
            at = Some(next);
            continue;
        }
        let Some(back) = known.iter().position(|known| *known == place) else {
            bail!("{place:?} comes behind {:?}", at.and_then(|at| known.get(at)));
        };
        ensure!(
            at.is_some_and(|at| back <= at),
            "a replay leaves out states before {place:?}"
        );
        repeats.messages += 1;
        repeats.bytes += bytes;
        repeats.steps_back += 1;
        at = Some(back);
    }
    ensure!(at.is_none_or(|at| at + 1 == known.len()), "a replay ends early");
    Ok(repeats)
}

/// A table made from messages.
#[derive(Debug, Default)]
pub struct Table {
    keyed: BTreeMap<String, Value>,
    counted: BTreeMap<String, (Value, i64)>,
}

impl Table {
    fn apply(&mut self, message: &Message) -> Result<()> {
        let kind = message.text("type");
        let new = message.value["data"][0].clone();
        if let Some(key) = &message.key {
            match kind {
                "DELETE" => drop(self.keyed.remove(key)),
                _ => drop(self.keyed.insert(key.clone(), new)),
            }
            return Ok(());
        }
        let mut old = new.clone();
        for (name, value) in message.value["old"][0].as_object().into_iter().flatten() {
            old[name] = value.clone();
        }
        if kind != "INSERT" {
            let entry = self.counted.entry(old.to_string()).or_insert((old, 0));
            entry.1 -= 1;
        }
        if kind != "DELETE" {
            let entry = self.counted.entry(new.to_string()).or_insert((new, 0));
            entry.1 += 1;
        }
        Ok(())
    }

    /// Sum of a column over all rows.
    pub fn sum(&self, column: &str) -> u64 {
        let value = |row: &Value| {
            row[column]
                .as_str()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        self.keyed.values().map(value).sum()
    }

    /// Rows, as often as they are there.
    fn rows(&self) -> Result<Vec<&Value>> {
        let mut rows: Vec<&Value> = self.keyed.values().collect();
        for (row, count) in self.counted.values() {
            ensure!(
                *count >= 0,
                "a row was taken away {} times too often: {row}",
                -count
            );
            rows.extend((0..*count).map(|_| row));
        }
        Ok(rows)
    }
}

/// Compares tables of a source with those that messages make.
///
/// # Errors
/// Names the differences.
pub fn compare(source: &mut Client, tables: &[String], topics: &Topics) -> Result<()> {
    let made = topics.tables()?;
    let nothing = Table::default();
    let mut found = Vec::new();
    for table in tables {
        let columns = columns(source, table)?;
        let wanted = source_rows(source, table, &columns)?;
        let made = made
            .get(table)
            .unwrap_or(&nothing)
            .rows()
            .with_context(|| table.clone())?;
        let mut got = BTreeMap::new();
        for row in made {
            *got.entry(message_row(row, &columns)?).or_insert(0_i64) += 1;
        }
        let mut missing = Vec::new();
        for (row, count) in &wanted {
            let there = got.remove(row).unwrap_or(0);
            if there != *count {
                missing.push((row, *count, there));
            }
        }
        for (row, count, there) in missing {
            // Beside a row that is the topic's only and begins alike, what differs is enough.
            let begin = row.split(" | ").next().unwrap_or_default();
            let other = got.keys().find(|other| other.split(" | ").next() == Some(begin));
            let parts = |other: &String| -> Vec<String> {
                let pairs = row.split(" | ").zip(other.split(" | ")).zip(&columns);
                let differing = pairs.filter(|((one, other), _)| one != other);
                differing
                    .map(|((one, other), (name, _))| format!("{name}: {} / {}", short(one), short(other)))
                    .collect()
            };
            found.push(format!(
                "{table}: {count} times at the source, {there} in the topic: {} {:?}",
                short(row),
                other.map(parts).unwrap_or_default()
            ));
        }
        found.extend(
            got.iter()
                .map(|(row, count)| format!("{table}: {count} times in the topic only: {}", short(row))),
        );
    }
    ensure!(
        found.is_empty(),
        "{} differences:\n{}",
        found.len(),
        found.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n")
    );
    Ok(())
}

fn short(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

/// Name and type of the columns that are not generated.
fn columns(source: &mut Client, table: &str) -> Result<Vec<(String, String)>> {
    let (schema, name) = table.split_once('.').context("database.table")?;
    let rows = source.text(&format!(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{schema}' AND \
         TABLE_NAME = '{name}' AND IFNULL(GENERATION_EXPRESSION, '') = '' ORDER BY ORDINAL_POSITION"
    ))?;
    let pair = |row: Vec<String>| {
        (
            row.first().cloned().unwrap_or_default(),
            row.get(1).cloned().unwrap_or_default(),
        )
    };
    Ok(rows.into_iter().map(pair).collect())
}

fn source_rows(
    source: &mut Client,
    table: &str,
    columns: &[(String, String)],
) -> Result<BTreeMap<String, i64>> {
    let list: Vec<String> = columns.iter().map(|(name, _)| format!("`{name}`")).collect();
    let mut rows = BTreeMap::new();
    for row in source.rows(&format!("SELECT {} FROM {table}", list.join(", ")))? {
        let texts: Result<Vec<String>> = row
            .iter()
            .zip(columns)
            .map(|(value, (_, kind))| canonical(&source_text(value, kind), kind))
            .collect();
        *rows.entry(texts?.join(" | ")).or_insert(0) += 1;
    }
    Ok(rows)
}

fn message_row(row: &Value, columns: &[(String, String)]) -> Result<String> {
    let mut texts = Vec::new();
    for (name, kind) in columns {
        let text = match row.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => bail!("`{name}` is no text: {other}"),
        };
        texts.push(canonical(&text, kind)?);
    }
    Ok(texts.join(" | "))
}

/// A value of the source as canal-json is documented to print it.
fn source_text(value: &SqlValue, kind: &str) -> Option<String> {
    Some(match value {
        SqlValue::NULL => return None,
        SqlValue::Int(number) => number.to_string(),
        SqlValue::UInt(number) => number.to_string(),
        SqlValue::Float(number) => number.to_string(),
        SqlValue::Double(number) => number.to_string(),
        SqlValue::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            match kind {
                "date" => date,
                _ => format!("{date} {hour:02}:{minute:02}:{second:02}.{micros:06}"),
            }
        }
        SqlValue::Time(negative, days, hours, minutes, seconds, micros) => {
            let sign = if *negative { "-" } else { "" };
            let hours = days * 24 + u32::from(*hours);
            format!("{sign}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}")
        }
        SqlValue::Bytes(bytes) => match kind {
            "bit" => bytes
                .iter()
                .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte))
                .to_string(),
            "binary" | "varbinary" | "blob" | "tinyblob" | "mediumblob" | "longblob" => {
                bytes.iter().map(|byte| char::from(*byte)).collect()
            }
            _ => String::from_utf8_lossy(bytes).into_owned(),
        },
    })
}

/// The same text for the same value, however it is printed.
fn canonical(text: &Option<String>, kind: &str) -> Result<String> {
    let Some(text) = text else {
        return Ok("NULL".to_owned());
    };
    Ok(match kind {
        "float" => format!("{:08x}", text.parse::<f32>()?.to_bits()),
        "double" => format!("{:016x}", text.parse::<f64>()?.to_bits()),
        "json" => serde_json::from_str::<Value>(text)?.to_string(),
        "datetime" | "timestamp" | "time" => match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.clone(),
        },
        _ => format!("{text:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(numbers: &[u64]) -> Result<Repeats> {
        let states: Vec<(Place, usize)> = numbers.iter().map(|n| ((format!("{n:04}"), 0, 1), 1)).collect();
        check_lane(&states)
    }

    #[test]
    fn replays_are_told_from_disorder() {
        assert_eq!(lane(&[1, 2, 5]).unwrap(), Repeats::default());
        assert_eq!(lane(&[1, 2, 5, 2, 5, 6]).unwrap().messages, 2);
        assert_eq!(lane(&[1, 2, 5, 1, 2, 1, 2, 5]).unwrap().steps_back, 2);
        // Twice the same: sent again at once.
        assert_eq!(lane(&[1, 1, 2]).unwrap().steps_back, 1);
        assert!(lane(&[2, 1]).is_err());
        assert!(lane(&[1, 2, 5, 1]).is_err());
        assert!(lane(&[1, 2, 5, 1, 5]).is_err());
        assert!(lane(&[1, 3, 2, 3]).is_err());
    }
}
