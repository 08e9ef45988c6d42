//! A cluster of two brokers, one of which stands still: the tables whose partitions it leads wait, the others do not.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use weir_integration::metrics::metric;
use weir_integration::pair::start_position;
use weir_integration::topics::{Topics, compare};
use weir_integration::{Broker, Changefeed, Client, End, Kind, TestServer, caught_up, wait_until};
use weir_test_servers::{KafkaOptions, free_port};

const LIMIT: Duration = Duration::from_secs(60);
/// How long the other broker stands still.
const STILL: Duration = Duration::from_secs(20);
/// Rows of 10 kB for the table that waits, between two looks at the other: far more than the memory quota in all.
const ROWS_PER_ROUND: u32 = 300;
/// The promise for tables that have nothing to do with one that waits, and what a look with a new consumer takes.
const LAG_MAX: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(500);

/// Makes a topic whose partitions are all on one broker.
fn create_topic(broker: &Broker, name: &str, node: i32) {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", broker.address())
        .create()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let replicas = [node];
    let partitions = [&replicas[..], &replicas[..]];
    let topic = NewTopic::new(name, 2, TopicReplication::Variable(&partitions));
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    wait_until("both brokers", LIMIT, || {
        let made = runtime.block_on(admin.create_topics([&topic], &options))?;
        Ok(made.iter().all(Result::is_ok))
    })
    .unwrap();
}

fn rows_of(broker: &Broker, topic: &str) -> usize {
    Topics::read(broker.address(), topic).map_or(0, |topics| topics.rows())
}

/// Writes one row into `fine` and waits for it at the consumer.
fn lag(client: &mut Client, broker: &Broker, schema: &str, id: usize) -> Duration {
    client
        .run(&format!("INSERT INTO {schema}.fine VALUES ({id}, 'x')"))
        .unwrap();
    let begun = Instant::now();
    let topic = format!("{schema}.fine");
    wait_until("a row of the other table", LIMIT, || {
        Ok(rows_of(broker, &topic) >= id)
    })
    .unwrap();
    begun.elapsed()
}

#[test]
fn a_leader_that_stands_still_holds_up_its_tables_only() {
    let _machine = crate::shared();
    let first = Broker::own(KafkaOptions::default()).unwrap();
    let second = first.second().unwrap();
    let source = TestServer::get(Kind::Mysql, End::Source).unwrap();
    let schema = format!("kl{}", std::process::id());
    let mut client = source.client().unwrap();
    let start = start_position(&mut client).unwrap();
    client
        .run_all([
            format!("CREATE DATABASE {schema}"),
            format!("CREATE TABLE {schema}.still (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)"),
            format!("CREATE TABLE {schema}.fine (id INT PRIMARY KEY, v LONGTEXT)"),
        ])
        .unwrap();
    create_topic(&first, &format!("{schema}.still"), 2);
    create_topic(&first, &format!("{schema}.fine"), 1);
    let port = free_port().unwrap();
    let settings = format!(
        "[flow-control]\nmemory-quota = \"64MiB\"\n[metrics]\nlisten = \"127.0.0.1:{port}\"\n\
         [filter]\nrules = [\"{schema}.*\"]\n[sink.kafka]\nddl-topic = \"\"\n"
    );
    let feed = Changefeed::between(source.uri(), &first.uri(), &start, &settings).unwrap();
    let mut running = feed.start(&[]).unwrap();
    let fill = format!(
        "INSERT INTO {schema}.still (v) SELECT REPEAT('y', 10000) FROM \
         (WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS_PER_ROUND}) \
         SELECT i FROM n) AS numbers"
    );
    client.run(&fill).unwrap();
    lag(&mut client, &first, &schema, 1);
    wait_until("rows of the table that will wait", LIMIT, || {
        Ok(rows_of(&first, &format!("{schema}.still")) == ROWS_PER_ROUND as usize)
    })
    .unwrap();
    second.signal("STOP").unwrap();
    let begun = Instant::now();
    let (mut rounds, mut worst) = (1, Duration::ZERO);
    while begun.elapsed() < STILL {
        client.run(&fill).unwrap();
        rounds += 1;
        worst = worst.max(lag(&mut client, &first, &schema, rounds as usize));
    }
    assert!(running.is_running().unwrap(), "{}", running.trouble());
    let held = metric(port, "weir_kafka_in_flight_bytes", "test").unwrap();
    println!("{rounds} rounds, worst lag {worst:?}, {held} bytes wait for the other broker");
    assert!(held > 0.0, "the other broker answers");
    assert!(worst < LAG_MAX + LOOK, "{worst:?}");
    second.signal("CONT").unwrap();
    wait_until("what waited", LIMIT, || {
        let rows = rows_of(&first, &format!("{schema}.still"));
        Ok(rows >= (rounds * ROWS_PER_ROUND) as usize)
    })
    .unwrap();
    caught_up(&feed, running).unwrap();
    let topics = Topics::read(first.address(), &schema).unwrap();
    let repeats = topics.check_order().unwrap();
    assert_eq!(repeats.messages, 0, "{repeats:?}");
    let tables = ["still", "fine"].map(|table| format!("{schema}.{table}"));
    compare(&mut client, &tables, &topics).unwrap();
}
