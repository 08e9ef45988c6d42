//! Faults of the brokers, with librdkafka's own stand-in for a cluster.

mod topics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use weir_types::{ChangefeedId, CommitTs, DispatcherId, LineageId, OrderKey};

use super::{Away, Producer, Producers, Sent, properties};
use crate::config::KafkaSinkConfig;
use crate::delivery::{Ledger, SpanDelivery, message_cost};
use crate::error::KafkaSinkError;
use crate::metrics::KafkaMetrics;

/// Longest wait for what must come.
const LIMIT: Duration = Duration::from_secs(20);
const LIMIT_BYTES: usize = 1_000_000;

type Mock = MockCluster<'static, DefaultProducerContext>;

fn mock(brokers: i32, topics: &[(&str, i32)]) -> Mock {
    let mock = MockCluster::new(brokers).unwrap();
    for (topic, partitions) in topics {
        mock.create_topic(topic, *partitions, brokers).unwrap();
    }
    mock
}

fn config(bootstrap: &str) -> KafkaSinkConfig {
    let brokers = bootstrap.split(',').map(str::to_owned).collect();
    let id = ChangefeedId("c".into());
    let mut config = KafkaSinkConfig::new(id, LineageId(1), brokers, "unused".into());
    config.create_topics = None;
    config.request_timeout = Duration::from_millis(500);
    config
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Producers and what they have said.
struct Client {
    producers: Producers,
    ledger: Arc<Ledger>,
    away: Arc<AtomicBool>,
}

impl Client {
    fn new(mock: &Mock) -> Self {
        Self::with(&config(&mock.bootstrap_servers()))
    }

    fn with(config: &KafkaSinkConfig) -> Self {
        let away = Arc::new(AtomicBool::new(false));
        let told: Away = {
            let away = Arc::clone(&away);
            Arc::new(move |is| away.store(is, Ordering::SeqCst))
        };
        let metrics = Arc::new(KafkaMetrics::new("c"));
        Self {
            producers: Producers::new(config, told, metrics),
            ledger: Ledger::new(1 << 20),
            away,
        }
    }

    fn producer(&self) -> Producer {
        self.producers.of(LIMIT_BYTES).unwrap()
    }

    fn is_away(&self) -> bool {
        self.away.load(Ordering::SeqCst)
    }

    fn table(&self, number: u32, topic: &'static str) -> Table {
        Table {
            topic,
            span: SpanDelivery::new(DispatcherId(number), &self.ledger),
            producer: self.producer(),
            sent: 0,
        }
    }
}

fn place(number: u64) -> OrderKey {
    OrderKey::end_of(CommitTs(number))
}

/// A table that writes its messages' numbers.
struct Table {
    topic: &'static str,
    span: Arc<SpanDelivery>,
    producer: Producer,
    sent: u64,
}

impl Table {
    fn send(&mut self, partition: u32) -> Result<(), Sent> {
        let number = self.sent + 1;
        let text = number.to_string();
        let unit = self.span.begin(place(number));
        let cost = message_cost(1, text.len());
        unit.add(cost);
        let sent = self
            .producer
            .send(self.topic, partition, Some(b"k"), text.as_bytes(), &unit);
        if sent.is_ok() {
            self.sent = number;
        } else {
            unit.take_back(cost);
        }
        unit.seal();
        sent
    }

    fn send_all(&mut self, count: u64, partitions: u32) {
        for number in 0..count {
            self.send(number as u32 % partitions).unwrap();
        }
    }

    fn has_arrived(&self) -> bool {
        self.span.reached().unwrap() == place(self.sent)
    }

    fn wait(&self) {
        wait_for("arrival", || self.has_arrived());
    }

    fn wait_error(&self) -> KafkaSinkError {
        wait_for("failure", || self.span.reached().is_err());
        self.span.reached().unwrap_err()
    }
}

/// Numbers in a topic by partition.
fn read(mock: &Mock, topic: &str, partitions: i32, count: usize) -> Vec<Vec<u64>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", "reader")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    {
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(topic, partition, Offset::Beginning)
                .unwrap();
        }
        consumer.assign(&all).unwrap();
    }
    let mut read = vec![Vec::new(); partitions as usize];
    let mut seen = 0;
    let begun = Instant::now();
    // A little longer than until the last: none may come twice.
    let mut quiet = 0;
    while seen < count || quiet < 3 {
        assert!(begun.elapsed() < LIMIT, "{seen} of {count} messages in `{topic}`");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let text = std::str::from_utf8(message.payload().unwrap()).unwrap();
                read[message.partition() as usize].push(text.parse().unwrap());
                seen += 1;
                quiet = 0;
            }
            // A broker that is gone; the leaders are asked again.
            Some(Err(_)) => {}
            None => quiet += 1,
        }
    }
    read
}

/// What `Table::send_all` has sent, by partition.
fn expected(count: u64, partitions: u64) -> Vec<Vec<u64>> {
    let of = |partition| (1..=count).filter(move |number| (number - 1) % partitions == partition);
    (0..partitions).map(|partition| of(partition).collect()).collect()
}

#[test]
fn messages_come_once_and_in_order_through_errors_that_pass() {
    let mock = mock(3, &[("a", 3)]);
    let client = Client::new(&mock);
    let mut table = client.table(1, "a");
    table.send_all(30, 3);
    table.wait();
    mock.request_errors(
        RDKafkaApiKey::Produce,
        &[
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        ],
    );
    for _ in 0..27 {
        table.send_all(30, 3);
        std::thread::sleep(Duration::from_millis(7));
    }
    table.wait();
    assert_eq!(read(&mock, "a", 3, 840), expected(840, 3));
    assert_eq!(client.ledger.bytes(), 0);
}

#[test]
fn a_leader_that_moves_is_followed() {
    let mock = mock(3, &[("a", 1)]);
    let client = Client::new(&mock);
    let mut table = client.table(1, "a");
    for leader in [1, 2, 3, 1] {
        mock.partition_leader("a", 0, Some(leader)).unwrap();
        table.send_all(50, 1);
    }
    table.wait();
    assert_eq!(read(&mock, "a", 1, 200), expected(200, 1));
}

#[test]
fn a_full_queue_takes_messages_again_when_some_have_arrived() {
    let mock = mock(1, &[("a", 1)]);
    let client = Client::new(&mock);
    let mut properties = properties::producer(&config(&mock.bootstrap_servers()), LIMIT_BYTES);
    properties.set("queue.buffering.max.messages", "10");
    let mut table = client.table(1, "a");
    table.producer = client.producers.make(&properties).unwrap();
    mock.broker_down(1).unwrap();
    table.send_all(10, 1);
    assert!(matches!(table.send(0), Err(Sent::Full)));
    mock.broker_up(1).unwrap();
    let mut last = Err(Sent::Full);
    wait_for("room", || {
        last = table.send(0);
        !matches!(last, Err(Sent::Full))
    });
    last.unwrap();
    table.wait();
    assert_eq!(read(&mock, "a", 1, 11), expected(11, 1));
}

/// An error that does not pass stops the table that it is about; others go on.
fn definite(error: RDKafkaRespErr) -> KafkaSinkError {
    let mock = mock(1, &[("a", 1), ("b", 1)]);
    let client = Client::new(&mock);
    let (mut table, mut other) = (client.table(1, "a"), client.table(2, "b"));
    table.send_all(3, 1);
    other.send_all(3, 1);
    table.wait();
    other.wait();
    mock.request_errors(RDKafkaApiKey::Produce, &[error]);
    table.send(0).unwrap();
    let found = table.wait_error();
    other.send_all(100, 1);
    other.wait();
    assert_eq!(read(&mock, "b", 1, 103), expected(103, 1));
    assert_eq!(read(&mock, "a", 1, 3), expected(3, 1));
    assert_eq!(client.ledger.bytes(), 0);
    found
}

#[test]
fn authorization_that_is_lost_stops_its_table_only() {
    let found = definite(RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    assert!(
        matches!(&found, KafkaSinkError::Refused { topic, .. } if topic == "a"),
        "{found}"
    );
}

#[test]
fn a_batch_that_is_too_large_stops_its_table_only() {
    let found = definite(RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    assert!(
        matches!(&found, KafkaSinkError::Refused { reason, .. } if reason.contains("max.message.bytes")),
        "{found}"
    );
}

#[test]
fn a_policy_that_refuses_stops_its_table_only() {
    let found = definite(RDKafkaRespErr::RD_KAFKA_RESP_ERR_POLICY_VIOLATION);
    assert!(matches!(found, KafkaSinkError::Refused { .. }), "{found}");
}

#[test]
fn a_message_above_the_limit_is_not_taken() {
    let mock = mock(1, &[("a", 1)]);
    let client = Client::new(&mock);
    let producer = client.producers.of(10_000).unwrap();
    let span = SpanDelivery::new(DispatcherId(1), &client.ledger);
    let unit = span.begin(place(1));
    let sent = producer.send("a", 0, None, &[b'x'; 20_000], &unit);
    assert!(
        matches!(sent, Err(Sent::Failed(KafkaSinkError::Refused { .. }))),
        "{sent:?}"
    );
}

#[test]
fn messages_of_a_partition_that_there_is_not_fail_their_table_only() {
    let mock = mock(1, &[("a", 1), ("b", 1)]);
    let client = Client::new(&mock);
    let (mut table, mut other) = (client.table(1, "a"), client.table(2, "b"));
    // Whether it is noticed at once depends on whether the topic is known by then.
    let error = match table.send(7) {
        Ok(()) => table.wait_error(),
        Err(Sent::Failed(error)) => error,
        Err(Sent::Full) => panic!("full"),
    };
    assert!(matches!(error, KafkaSinkError::Refused { .. }), "{error}");
    other.send_all(10, 1);
    other.wait();
}

#[test]
fn messages_wait_for_brokers_that_are_gone() {
    let mock = mock(2, &[("a", 2)]);
    let client = Client::new(&mock);
    let mut table = client.table(1, "a");
    table.send_all(20, 2);
    table.wait();
    mock.broker_down(1).unwrap();
    mock.broker_down(2).unwrap();
    table.send_all(200, 2);
    wait_for("away", || client.is_away());
    std::thread::sleep(Duration::from_secs(2));
    assert!(!table.has_arrived());
    mock.broker_up(1).unwrap();
    mock.broker_up(2).unwrap();
    table.wait();
    wait_for("here", || !client.is_away());
    assert_eq!(read(&mock, "a", 2, 220), expected(220, 2));
}

#[test]
fn brokers_that_are_back_are_noticed_without_messages() {
    let mock = mock(1, &[("a", 1)]);
    let client = Client::new(&mock);
    let mut table = client.table(1, "a");
    table.send_all(1, 1);
    table.wait();
    mock.broker_down(1).unwrap();
    wait_for("away", || client.is_away());
    mock.broker_up(1).unwrap();
    wait_for("here", || !client.is_away());
}

#[test]
fn a_partition_without_leader_holds_up_its_own_tables_only() {
    let mock = mock(2, &[("a", 1), ("b", 1)]);
    let client = Client::new(&mock);
    mock.partition_leader("a", 0, Some(1)).unwrap();
    mock.partition_leader("b", 0, Some(2)).unwrap();
    let (mut table, mut other) = (client.table(1, "a"), client.table(2, "b"));
    table.send_all(5, 1);
    table.wait();
    mock.broker_down(1).unwrap();
    while table.span.has_room() {
        table.send(0).unwrap();
    }
    for _ in 0..20 {
        assert!(other.span.has_room());
        other.send_all(50, 1);
        other.wait();
    }
    assert!(!table.has_arrived());
    mock.partition_leader("a", 0, Some(2)).unwrap();
    table.wait();
    // The one that reads needs it.
    mock.broker_up(1).unwrap();
    let count = table.sent;
    assert_eq!(read(&mock, "a", 1, count as usize), expected(count, 1));
    assert_eq!(read(&mock, "b", 1, 1000), expected(1000, 1));
}

#[test]
fn a_producer_that_is_dropped_gives_everything_back_soon() {
    let mock = mock(1, &[("a", 1)]);
    let client = Client::new(&mock);
    let mut table = client.table(1, "a");
    table.send_all(1, 1);
    table.wait();
    mock.broker_down(1).unwrap();
    table.send_all(1000, 1);
    let Table { span, producer, .. } = table;
    let (ledger, begun) = (Arc::clone(&client.ledger), Instant::now());
    drop(producer);
    drop(client);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(ledger.bytes(), 0);
    assert_eq!(span.reached(), Err(KafkaSinkError::Stopping));
    assert!(span.is_empty());
    // Every message has let go of its unit, and every unit of its span.
    assert_eq!(Arc::strong_count(&span), 1);
}

#[test]
fn a_producer_that_has_lost_its_place_is_to_be_replaced() {
    let mock = mock(1, &[("a", 1), ("b", 1)]);
    let client = Client::new(&mock);
    let (mut table, mut other) = (client.table(1, "a"), client.table(2, "b"));
    table.send_all(3, 1);
    other.send_all(3, 1);
    table.wait();
    other.wait();
    mock.broker_round_trip_time(1, Duration::from_secs(1)).unwrap();
    mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    table.send(0).unwrap();
    // More than may be with the broker at once: the rest is thrown away by the client.
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(10));
        other.send(0).unwrap();
    }
    for error in [table.wait_error(), other.wait_error()] {
        assert!(
            matches!(&error, KafkaSinkError::Producer { reason } if reason.contains("sequence")),
            "{error}"
        );
    }
    let sent = table.send(0);
    assert!(
        matches!(&sent, Err(Sent::Failed(KafkaSinkError::Producer { reason })) if reason.contains("sequence")),
        "{sent:?}"
    );
    wait_for("nothing under way", || client.ledger.bytes() == 0);
}
