//! Trouble at a running broker: what passes is waited for, what does not stops one table with one clear error, and after
//! the repair nothing is lost.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use weir_integration::metrics::metric;
use weir_integration::pair::{run_to_end, start_position};
use weir_integration::topics::{Topics, compare};
use weir_integration::{
    Broker, Changefeed, Client, End, Kind, Load, Names, Running, TestServer, caught_up, wait_until,
};
use weir_test_servers::{KafkaOptions, free_port};

const LIMIT: Duration = Duration::from_secs(60);
const ACLS: &str = "org.apache.kafka.tools.AclCommand";
const REFUSED: &str = "WEIR-KFK-012";
/// What a user of Weir needs, as the documentation says.
const RIGHTS: [&str; 4] = ["Write", "Describe", "Create", "DescribeConfigs"];

/// A broker that lets the user `app` do what it was granted, and nobody create topics by the way.
struct Guarded {
    broker: Broker,
    port: u16,
}

impl Guarded {
    fn start() -> Self {
        let port = free_port().unwrap();
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
        let broker = Broker::own(KafkaOptions {
            properties: vec![
                "auto.create.topics.enable=false".to_owned(),
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned(),
                // The broker itself, and the tests.
                "super.users=User:ANONYMOUS".to_owned(),
                "sasl.enabled.mechanisms=PLAIN".to_owned(),
                format!(
                    "listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required user_app=\"secret\";"
                ),
            ],
            listeners: vec![("SASL_PLAINTEXT", port)],
            ..KafkaOptions::default()
        });
        Self {
            broker: broker.unwrap(),
            port,
        }
    }

    fn acl(&self, arguments: &[&str], rights: &[&str]) {
        let mut all = arguments.to_vec();
        for right in rights {
            all.extend(["--operation", right]);
        }
        self.broker.tool(ACLS, &all).unwrap();
    }

    fn grant(&self, prefix: &str, rights: &[&str]) {
        let pattern = ["--topic", prefix, "--resource-pattern-type", "prefixed"];
        let arguments = [&["--add", "--allow-principal", "User:app"][..], &pattern].concat();
        self.acl(&arguments, rights);
    }

    fn delete_topic(&self, name: &str) {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", self.broker.address())
            .create()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let options = AdminOptions::new().operation_timeout(Some(LIMIT));
        let deleted = runtime.block_on(admin.delete_topics(&[name], &options)).unwrap();
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
    }
}

/// Two tables on a guarded broker; the changefeed writes as `app`.
struct Bench {
    guarded: Guarded,
    source: TestServer,
    schema: String,
    feed: Changefeed,
    rows: u32,
}

impl Bench {
    fn new(name: &str) -> Self {
        let guarded = Guarded::start();
        let source = TestServer::get(Kind::Mysql, End::Source).unwrap();
        let schema = format!("kt{}{name}", std::process::id());
        let mut client = source.client().unwrap();
        let start = start_position(&mut client).unwrap();
        client
            .run_all([
                format!("CREATE DATABASE {schema} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
                format!("CREATE TABLE {schema}.broken (id INT PRIMARY KEY, v INT)"),
                format!("CREATE TABLE {schema}.fine (id INT PRIMARY KEY, v INT)"),
            ])
            .unwrap();
        let uri = format!("kafka://app:secret@127.0.0.1:{}/", guarded.port);
        let settings = format!(
            "[filter]\nrules = [\"{schema}.*\"]\n[sink.kafka]\nsasl-mechanism = \"plain\"\nddl-topic = \"\"\n"
        );
        let feed = Changefeed::between(source.uri(), &uri, &start, &settings).unwrap();
        Self {
            guarded,
            source,
            schema,
            feed,
            rows: 0,
        }
    }

    fn client(&self) -> Client {
        self.source.client().unwrap()
    }

    fn write(&mut self, rows: u32) {
        let mut client = self.client();
        let schema = &self.schema;
        for _ in 0..rows {
            self.rows += 1;
            let id = self.rows;
            for table in ["broken", "fine"] {
                client
                    .run_all([
                        format!("INSERT INTO {schema}.{table} VALUES ({id}, 0)"),
                        format!("UPDATE {schema}.{table} SET v = v + 1 WHERE id >= {id} - 1"),
                    ])
                    .unwrap();
            }
        }
    }

    /// A topic that is just being made may have no leader yet.
    fn topics(&self) -> anyhow::Result<Topics> {
        Topics::read(self.guarded.broker.address(), &self.schema)
    }

    fn equal(&self, tables: &[&str]) -> anyhow::Result<()> {
        let tables: Vec<String> = tables
            .iter()
            .map(|table| format!("{}.{table}", self.schema))
            .collect();
        let topics = self.topics()?;
        topics.check_order()?;
        compare(&mut self.client(), &tables, &topics)
    }

    fn wait_equal(&self, running: &Running, tables: &[&str]) {
        let mut last = String::new();
        let equal = wait_until("the rows", LIMIT, || {
            let equal = self.equal(tables);
            last = equal
                .as_ref()
                .err()
                .map_or_else(String::new, |e| format!("{e:#}"));
            Ok(equal.is_ok())
        });
        assert!(equal.is_ok(), "{tables:?}: {last}\n{}", running.trouble());
    }

    /// The other table goes on, and the log tells of `broken` with its code.
    fn only_broken_stops(&mut self, running: &mut Running, code: &str) {
        self.write(10);
        self.wait_equal(running, &["fine"]);
        let told = wait_until("the error in the log", LIMIT, || {
            Ok(running
                .stderr()?
                .lines()
                .any(|line| line.contains(code) && line.contains("broken")))
        });
        assert!(told.is_ok(), "{told:?}\n{}", running.trouble());
        assert!(running.is_running().unwrap(), "{}", running.trouble());
        assert!(self.equal(&["broken"]).is_err(), "nothing was wrong");
    }
}

#[test]
fn rights_that_are_taken_away() {
    let _machine = crate::shared();
    let mut bench = Bench::new("rights");
    bench.write(5);
    // Without any right a topic cannot even be seen.
    let refused = bench.feed.catch_up().unwrap();
    refused.assert_code(3);
    let (code, message) = refused.error();
    println!("{code}: {message}");
    assert!(code.starts_with("WEIR-KFK-0"), "{code}: {message}");
    let schema = bench.schema.clone();
    bench.guarded.grant(&schema, &RIGHTS);
    let mut running = bench.feed.start(&[]).unwrap();
    bench.wait_equal(&running, &["broken", "fine"]);
    let topic = format!("{schema}.broken");
    let deny = ["--deny-principal", "User:app", "--topic", &topic];
    bench.guarded.acl(&[&["--add"][..], &deny].concat(), &["Write"]);
    bench.only_broken_stops(&mut running, REFUSED);
    running.signal("TERM").unwrap();
    running.finish(LIMIT).unwrap();
    let again = bench.feed.catch_up().unwrap();
    again.assert_code(3);
    let (code, message) = again.error();
    println!("{code}: {message}");
    assert_eq!(code, REFUSED, "{message}");
    assert!(message.contains(&topic), "{message}");
    bench
        .guarded
        .acl(&[&["--remove", "--force"][..], &deny].concat(), &["Write"]);
    run_to_end(&bench.feed).unwrap();
    bench.equal(&["broken", "fine"]).unwrap();
}

/// Topics are made many at once; one that may not be made is the trouble of its table.
#[test]
fn a_topic_that_may_not_be_made() {
    let _machine = crate::shared();
    let mut bench = Bench::new("made");
    let schema = bench.schema.clone();
    bench
        .guarded
        .grant(&schema, &["Write", "Describe", "DescribeConfigs"]);
    bench.guarded.grant(&format!("{schema}.fine"), &["Create"]);
    let mut running = bench.feed.start(&[]).unwrap();
    bench.only_broken_stops(&mut running, "WEIR-KFK-007");
    running.signal("TERM").unwrap();
    running.finish(LIMIT).unwrap();
    bench.guarded.grant(&schema, &["Create"]);
    run_to_end(&bench.feed).unwrap();
    bench.equal(&["broken", "fine"]).unwrap();
}

/// What was in the topic is lost with it; what had not arrived comes into the new one.
#[test]
fn a_topic_that_is_deleted() {
    let _machine = crate::shared();
    let mut bench = Bench::new("deleted");
    let schema = bench.schema.clone();
    bench.guarded.grant(&schema, &RIGHTS);
    bench.write(10);
    let mut running = bench.feed.start(&[]).unwrap();
    bench.wait_equal(&running, &["broken", "fine"]);
    let before = bench.rows;
    // The progress is saved once a second.
    std::thread::sleep(Duration::from_secs(3));
    bench.guarded.delete_topic(&format!("{schema}.broken"));
    bench.only_broken_stops(&mut running, REFUSED);
    running.signal("TERM").unwrap();
    running.finish(LIMIT).unwrap();
    run_to_end(&bench.feed).unwrap();
    bench.equal(&["fine"]).unwrap();
    let topics = bench.topics().unwrap();
    let new: std::collections::BTreeSet<u32> = topics
        .messages
        .iter()
        .filter(|message| message.table() == format!("{schema}.broken") && message.text("type") == "INSERT")
        .map(|message| message.value["data"][0]["id"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!((before + 1..=bench.rows).all(|id| new.contains(&id)), "{new:?}");
}

/// A broker that is gone shows itself, and is waited for.
#[test]
fn a_broker_that_is_gone_for_a_while() {
    let _machine = crate::shared();
    let broker = Broker::own(KafkaOptions::default()).unwrap();
    let source = TestServer::get(Kind::Mysql, End::Source).unwrap();
    let names = Names::new(&format!("kg{}", std::process::id()));
    let start = start_position(&mut source.client().unwrap()).unwrap();
    let port = free_port().unwrap();
    let more = format!(
        "[metrics]\nlisten = \"127.0.0.1:{port}\"\n{}",
        weir_integration::pair::filter(&names)
    );
    let feed = Changefeed::between(source.uri(), &broker.uri(), &start, &more).unwrap();
    weir_integration::load::setup(&mut source.client().unwrap(), &names).unwrap();
    let options = weir_integration::load::Options {
        family: false,
        ddl_pause: None,
        ..weir_integration::load::Options::default()
    };
    let load = Load::start(source.uri(), &names, &options).unwrap();
    let mut running = feed.start(&[]).unwrap();
    let shows = |name: &str, label: &str, wanted: f64| {
        let shown = wait_until(name, LIMIT, || Ok(metric(port, name, label) == Some(wanted)));
        assert!(shown.is_ok(), "{shown:?}");
    };
    let arrived = || metric(port, "weir_kafka_messages_delivered_total", "test").unwrap_or(0.0);
    wait_until("messages", LIMIT, || Ok(arrived() > 100.0)).unwrap();
    shows("weir_sink_connected", "test", 1.0);
    for _ in 0..2 {
        broker.kill().unwrap();
        shows("weir_sink_connected", "test", 0.0);
        shows("weir_changefeed_state", "warning", 1.0);
        let before = arrived();
        std::thread::sleep(Duration::from_secs(3));
        assert!(arrived() <= before, "messages arrived nowhere");
        assert!(metric(port, "weir_kafka_in_flight_bytes", "test").unwrap() > 0.0);
        assert!(running.is_running().unwrap(), "{}", running.trouble());
        broker.start_again().unwrap();
        shows("weir_sink_connected", "test", 1.0);
        shows("weir_changefeed_state", "normal", 1.0);
        wait_until("messages again", LIMIT, || Ok(arrived() > before)).unwrap();
    }
    load.stop().unwrap();
    caught_up(&feed, running).unwrap();
    let topics = Topics::read(broker.address(), &names.main).unwrap();
    let repeats = topics.check_order().unwrap();
    assert_eq!(repeats.messages, 0, "{repeats:?}");
    let tables = ["acct", "wide", "nokey", "beat"].map(|table| format!("{}.{table}", names.main));
    compare(&mut source.client().unwrap(), &tables, &topics).unwrap();
}
