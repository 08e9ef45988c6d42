//! `kafka`: messages/s of the whole pipeline (`weir run`, files → store → service → collector → dispatchers → canal-json
//! → a real broker, until progress says that everything has arrived) ÷ a bare idempotent producer that sends the very
//! same messages from memory to the same partitions.
//!
//! The messages are those that a first run of Weir wrote, read back and put into the order of the source. Topics are new
//! for each run, made before the clock starts and deleted behind it. After each run the broker is asked how many
//! messages it has; what Weir wrote is read back and its checksum compared.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;
use weir_bench::encode;
use weir_bench::process::children_cpu_seconds;
use weir_bench::{Report, Side, measure};

/// Partitions of each topic.
const PARTITIONS: i32 = 3;
/// Longest wait for the broker.
const LIMIT: Duration = Duration::from_secs(60);
/// Settings of the bare producer besides those that promise the same as Weir's: what was fastest.
const BARE: [(&str, &str); 5] = [
    ("compression.type", "lz4"),
    ("linger.ms", "20"),
    ("batch.size", "1000000"),
    ("queue.buffering.max.messages", "10000000"),
    ("queue.buffering.max.kbytes", "2097151"),
];

#[derive(Parser, Debug)]
struct Arguments {
    /// Folder with one folder of binlog files per shape.
    #[arg(long)]
    data: PathBuf,
    /// Which shape.
    #[arg(long, default_value = "tpcc")]
    shape: String,
    /// `host:port` of a broker.
    #[arg(long)]
    broker: String,
    /// The command to measure.
    #[arg(long)]
    weir: PathBuf,
    /// Folder for Weir's state; on a disk.
    #[arg(long)]
    work: PathBuf,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Runs Weir once and keeps nothing: for a profiler.
    #[arg(long)]
    once: bool,
}

/// A message to send again.
struct Kept {
    /// Order key and row, as text.
    place: (String, u64),
    topic: usize,
    partition: i32,
    key: Option<Box<[u8]>>,
    value: Box<[u8]>,
}

/// What a run of Weir wrote.
struct Written {
    /// Names without the prefix of the run.
    topics: Vec<String>,
    messages: Vec<Kept>,
    bytes: u64,
    checksum: u64,
}

struct Bench {
    arguments: Arguments,
    admin: AdminClient<DefaultClientContext>,
    runtime: tokio::runtime::Runtime,
    runs: u32,
    cpu_us: Vec<f64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &arguments.broker);
    let mut bench = Bench {
        admin: client.create()?,
        runtime: tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?,
        runs: 0,
        cpu_us: Vec::new(),
        arguments,
    };
    if bench.arguments.once {
        let (seconds, prefix) = bench.weir(&[])?;
        println!("{seconds:.2} s into topics {prefix}*");
        return Ok(());
    }
    bench.run()
}

/// Counts what arrived, and what did not.
#[derive(Default)]
struct Delivered {
    arrived: AtomicU64,
    failed: AtomicU64,
}

struct Counting(Arc<Delivered>);

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = match result {
            Ok(_) => &self.0.arrived,
            Err(_) => &self.0.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn checksum_of(value: &[u8]) -> u64 {
    // The same in every process: order does not count, since the sum is taken.
    let mut hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().build_hasher();
    hasher.write(value);
    hasher.finish()
}

impl Bench {
    fn prefix(&mut self) -> String {
        self.runs += 1;
        format!("bench{}x{}.", std::process::id(), self.runs)
    }

    fn create(&self, topics: &[String]) -> Result<()> {
        let new: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)))
            .collect();
        let options = AdminOptions::new().operation_timeout(Some(LIMIT));
        for made in self.runtime.block_on(self.admin.create_topics(&new, &options))? {
            made.map_err(|(name, code)| anyhow::anyhow!("topic {name}: {code}"))?;
        }
        Ok(())
    }

    fn delete(&self, topics: &[String]) -> Result<()> {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let options = AdminOptions::new().operation_timeout(Some(LIMIT));
        for deleted in self
            .runtime
            .block_on(self.admin.delete_topics(&names, &options))?
        {
            deleted.map_err(|(name, code)| anyhow::anyhow!("topic {name}: {code}"))?;
        }
        Ok(())
    }

    fn consumer(&self) -> Result<BaseConsumer> {
        Ok(ClientConfig::new()
            .set("bootstrap.servers", &self.arguments.broker)
            .set("group.id", "bench")
            .set("enable.auto.commit", "false")
            .create()?)
    }

    /// Ends of all partitions of topics with a prefix.
    fn ends(&self, consumer: &BaseConsumer, prefix: &str) -> Result<BTreeMap<(String, i32), i64>> {
        let metadata = consumer.fetch_metadata(None, LIMIT)?;
        let mut ends = BTreeMap::new();
        for topic in metadata
            .topics()
            .iter()
            .filter(|topic| topic.name().starts_with(prefix))
        {
            for partition in topic.partitions() {
                let (_, high) = consumer.fetch_watermarks(topic.name(), partition.id(), LIMIT)?;
                ends.insert((topic.name().to_owned(), partition.id()), high);
            }
        }
        Ok(ends)
    }

    /// Runs Weir on the files into topics of its own, which exist; seconds and the prefix of the topics.
    fn weir(&mut self, topics: &[String]) -> Result<(f64, String)> {
        let prefix = self.prefix();
        if !topics.is_empty() {
            let names: Vec<String> = topics.iter().map(|name| format!("{prefix}{name}")).collect();
            self.create(&names)?;
        }
        let dir = tempfile::tempdir_in(&self.arguments.work)?;
        let file = dir.path().join("feed.toml");
        let data = std::path::absolute(self.arguments.data.join(&self.arguments.shape))?;
        let text = format!(
            "id = \"bench\"\n[source]\nuri = \"binlog-files://{}\"\n[sink]\nuri = \"kafka://{}/\"\n[sink.kafka]\n\
             topic = \"{prefix}{{schema}}.{{table}}\"\nddl-topic = \"\"\npartitions = {PARTITIONS}\n[metrics]\nlisten = \"\"\n",
            data.display(),
            self.arguments.broker,
        );
        std::fs::write(&file, text)?;
        let cpu_before = children_cpu_seconds()?;
        let start = Instant::now();
        let mut child = Command::new(&self.arguments.weir)
            .arg("run")
            .arg(&file)
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--until", "caught-up", "--output", "json", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {}", self.arguments.weir.display()))?;
        let stdout = child.stdout.take().context("standard output")?;
        let lines: Vec<String> = BufReader::new(stdout).lines().collect::<Result<_, _>>()?;
        let status = child.wait()?;
        let seconds = start.elapsed().as_secs_f64();
        let last = lines.last().map_or("", String::as_str);
        if !status.success() {
            bail!("weir ended with {status}: {last}");
        }
        let result: Value = serde_json::from_str(last).context("the result of weir")?;
        let kinds = ["inserts", "updates", "deletes"];
        let rows: u64 = kinds.iter().filter_map(|kind| result[*kind].as_u64()).sum();
        let cpu = children_cpu_seconds()? - cpu_before;
        self.cpu_us.push(cpu * 1e6 / rows as f64);
        Ok((seconds, prefix))
    }

    /// Reads everything below a prefix; keeps it if asked to.
    fn read(&self, prefix: &str, keep: bool) -> Result<Written> {
        let consumer = self.consumer()?;
        let mut ends = self.ends(&consumer, prefix)?;
        ends.retain(|_, end| *end > 0);
        let mut list = TopicPartitionList::new();
        for (topic, partition) in ends.keys() {
            list.add_partition_offset(topic, *partition, Offset::Beginning)?;
        }
        consumer.assign(&list)?;
        drop(list);
        let mut written = Written {
            topics: Vec::new(),
            messages: Vec::new(),
            bytes: 0,
            checksum: 0,
        };
        while !ends.is_empty() {
            let message = consumer.poll(LIMIT).context("the broker says nothing")??;
            let of = (message.topic().to_owned(), message.partition());
            if ends.get(&of).is_some_and(|end| message.offset() + 1 >= *end) {
                ends.remove(&of);
            }
            let value = message.payload().context("a value")?;
            written.bytes += value.len() as u64;
            written.checksum = written.checksum.wrapping_add(checksum_of(value));
            if keep {
                let name = of.0.strip_prefix(prefix).unwrap_or_default();
                let topic = match written.topics.iter().position(|known| known == name) {
                    Some(topic) => topic,
                    None => {
                        written.topics.push(name.to_owned());
                        written.topics.len() - 1
                    }
                };
                let parsed: Value = serde_json::from_slice(value)?;
                let place = &parsed["_weir"];
                written.messages.push(Kept {
                    place: (
                        place["key"].as_str().unwrap_or_default().to_owned(),
                        place["row"].as_u64().unwrap_or_default(),
                    ),
                    topic,
                    partition: of.1,
                    key: message.key().map(Into::into),
                    value: value.into(),
                });
            }
        }
        written.messages.sort_by(|a, b| a.place.cmp(&b.place));
        Ok(written)
    }

    /// Messages/s of the bare producer.
    fn bare(&mut self, written: &Written) -> Result<f64> {
        let prefix = self.prefix();
        let topics: Vec<String> = written
            .topics
            .iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        self.create(&topics)?;
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.arguments.broker)
            .set("enable.idempotence", "true")
            .set("acks", "all");
        for (name, value) in BARE {
            config.set(name, value);
        }
        let delivered = Arc::new(Delivered::default());
        let start = Instant::now();
        let producer: ThreadedProducer<Counting, NoCustomPartitioner> =
            config.create_with_context(Counting(Arc::clone(&delivered)))?;
        for message in &written.messages {
            let topic = topics.get(message.topic).context("a topic")?;
            let mut record = BaseRecord::to(topic)
                .partition(message.partition)
                .payload(&*message.value);
            if let Some(key) = &message.key {
                record = record.key(&**key);
            }
            while let Err((error, back)) = producer.send(record) {
                if !matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(1));
                record = back;
            }
        }
        producer.flush(LIMIT)?;
        let seconds = start.elapsed().as_secs_f64();
        let arrived = delivered.arrived.load(Ordering::Relaxed);
        ensure!(
            arrived == written.messages.len() as u64 && delivered.failed.load(Ordering::Relaxed) == 0,
            "{arrived} of {} messages arrived",
            written.messages.len()
        );
        drop(producer);
        self.check_count(&prefix, arrived)?;
        self.delete(&topics)?;
        Ok(arrived as f64 / seconds)
    }

    fn check_count(&self, prefix: &str, expected: u64) -> Result<()> {
        let ends = self.ends(&self.consumer()?, prefix)?;
        let found: i64 = ends.values().sum();
        ensure!(
            u64::try_from(found).ok() == Some(expected),
            "the broker has {found} messages of {expected}"
        );
        Ok(())
    }

    /// Messages/s of Weir.
    fn ours(&mut self, written: &Written) -> Result<f64> {
        let (seconds, prefix) = self.weir(&written.topics)?;
        self.check_count(&prefix, written.messages.len() as u64)?;
        let again = self.read(&prefix, false)?;
        ensure!(
            again.checksum == written.checksum,
            "what arrived is not what arrived before"
        );
        let topics: Vec<String> = written
            .topics
            .iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        self.delete(&topics)?;
        Ok(written.messages.len() as f64 / seconds)
    }

    fn run(&mut self) -> Result<()> {
        let (_, prefix) = self.weir(&[])?;
        let written = self.read(&prefix, true)?;
        let first: Vec<String> = written
            .topics
            .iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        self.delete(&first)?;
        self.cpu_us.clear();
        let pairs = measure(|side| match side {
            Side::Ours => self.ours(&written),
            Side::Other => self.bare(&written),
        })?;
        let count = written.messages.len();
        let cpu = self.cpu_us.iter().sum::<f64>() / self.cpu_us.len().max(1) as f64;
        let settings: Vec<String> = BARE
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let narrow = encode::narrow()?;
        narrow.print(self.arguments.json)?;
        let notes = format!(
            "{count} messages of {} bytes on average, checksum {:016x}, {} topics of {PARTITIONS} partitions; ours: process \
             start to end, binlog files read, store synced, default changefeed, {cpu:.2} cpu us/row; other: the same messages \
             from memory, enable.idempotence=true acks=all {}; encoding alone: {:.0} narrow rows/s, {:.0} MB/s on one core",
            written.bytes / count.max(1) as u64,
            written.checksum,
            written.topics.len(),
            settings.join(" "),
            narrow.rows_per_second,
            narrow.mb_per_second,
        );
        let command = "cargo xtask bench kafka --json";
        Report::rates("kafka", "messages/s", &pairs, command, notes).print(self.arguments.json);
        Ok(())
    }
}
