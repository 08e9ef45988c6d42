//! Security, topics, sizes of messages and numbers of partitions at a real broker: what works, and that the rest is one
//! clear error that concerns nobody else.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use weir_integration::pair::{run_to_end, start_position};
use weir_integration::topics::{Topics, compare};
use weir_integration::{
    Broker, Certificate, Changefeed, Client, End, Kind, Recording, TestServer, wait_until,
};
use weir_test_servers::{KafkaOptions, free_port};

const HOST: &str = "127.0.0.1";
const USER: &str = "app";
const PASSWORD: &str = "pa ss/w0rd";
/// The same within a URI.
const PASSWORD_ESCAPED: &str = "pa%20ss%2Fw0rd";
const LIMIT: Duration = Duration::from_secs(60);
/// A topic's partitions are read again that often, and a little more.
const REFRESH_LIMIT: Duration = Duration::from_secs(60);

/// A broker with every kind of listener.
struct Secured {
    broker: Broker,
    authority: Certificate,
    other_authority: Certificate,
    ports: [u16; 3],
    _dir: tempfile::TempDir,
}

impl Secured {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Certificate::authority(dir.path(), "authority").unwrap();
        let other_authority = Certificate::authority(dir.path(), "other").unwrap();
        let own = authority.sign(dir.path(), "broker", HOST).unwrap();
        let keystore = dir.path().join("keystore.pem");
        let pem = [&own.key_file, &own.cert_file].map(|file| std::fs::read_to_string(file).unwrap());
        std::fs::write(&keystore, pem.concat()).unwrap();
        let ports = [(); 3].map(|()| free_port().unwrap());
        let mut properties = vec![
            "ssl.keystore.type=PEM".to_owned(),
            format!("ssl.keystore.location={}", keystore.display()),
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned(),
        ];
        let package = "org.apache.kafka.common.security";
        for listener in ["sasl_plaintext", "sasl_ssl"] {
            let key = |mechanism: &str| format!("listener.name.{listener}.{mechanism}.sasl.jaas.config");
            properties.push(format!(
                "{}={package}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";",
                key("plain")
            ));
            for mechanism in ["scram-sha-256", "scram-sha-512"] {
                properties.push(format!(
                    "{}={package}.scram.ScramLoginModule required;",
                    key(mechanism)
                ));
            }
        }
        let broker = Broker::own(KafkaOptions {
            properties,
            listeners: vec![
                ("SSL", ports[0]),
                ("SASL_PLAINTEXT", ports[1]),
                ("SASL_SSL", ports[2]),
            ],
            scram_users: vec![(USER.to_owned(), PASSWORD.to_owned())],
            ..KafkaOptions::default()
        });
        Self {
            broker: broker.unwrap(),
            authority,
            other_authority,
            ports,
            _dir: dir,
        }
    }

    /// A changefeed from a recording through one of the listeners.
    fn feed(&self, recording: &Recording, port: u16, login: &str, topic: &str, settings: &str) -> Changefeed {
        let from = format!("binlog-files://{}", recording.folder.display());
        let to = format!("kafka://{login}{HOST}:{port}/");
        let settings = format!("[sink.kafka]\ntopic = \"{topic}\"\nddl-topic = \"\"\n{settings}");
        Changefeed::between(&from, &to, "", &settings).unwrap()
    }

    fn tls(&self, mode: &str, authority: Option<&Certificate>) -> String {
        let ca = authority.map_or_else(String::new, |authority| {
            format!("ca = \"{}\"\n", authority.cert_file.display())
        });
        format!("[sink.tls]\nmode = \"{mode}\"\n{ca}")
    }
}

#[test]
fn listeners_with_tls_and_logins() {
    let _machine = crate::shared();
    let secured = Secured::start();
    let recording = Recording::open("mysql-9.7").unwrap();
    let [ssl, sasl, sasl_ssl] = secured.ports;
    let login = format!("{USER}:{PASSWORD_ESCAPED}@");
    let ours = Some(&secured.authority);
    let good = [
        (ssl, "", String::new(), secured.tls("required", None)),
        (ssl, "", String::new(), secured.tls("verify-identity", ours)),
        (sasl, &*login, "plain".to_owned(), String::new()),
        (sasl, &*login, "scram-sha-256".to_owned(), String::new()),
        (sasl, &*login, "scram-sha-512".to_owned(), String::new()),
        (
            sasl_ssl,
            &*login,
            "scram-sha-512".to_owned(),
            secured.tls("verify-ca", ours),
        ),
    ];
    for (number, (port, login, mechanism, tls)) in good.iter().enumerate() {
        let topic = format!("good{number}");
        let mut settings = String::new();
        if !mechanism.is_empty() {
            settings.push_str(&format!("sasl-mechanism = \"{mechanism}\"\n"));
        }
        settings.push_str(tls);
        let feed = secured.feed(&recording, *port, login, &topic, &settings);
        run_to_end(&feed).unwrap_or_else(|error| panic!("{settings}: {error:#}"));
        let topics = Topics::read(secured.broker.address(), &topic).unwrap();
        assert_eq!(topics.rows() as u64, recording.total().all(), "{settings}");
    }
    let bad = [
        (sasl, "app:wrong@", String::new(), "WEIR-KFK-003", 3),
        (
            ssl,
            "",
            secured.tls("verify-ca", Some(&secured.other_authority)),
            "WEIR-KFK-004",
            3,
        ),
        // Clear text at a listener that is encrypted.
        (ssl, "", String::new(), "WEIR-KFK-002", 1),
    ];
    for (port, login, tls, code, status) in bad {
        let feed = secured.feed(&recording, port, login, "bad", &tls);
        let finished = feed
            .start(&["--until", "caught-up", "--connect-timeout", "5s"])
            .unwrap()
            .finish(LIMIT)
            .unwrap();
        let (found, message) = finished.error();
        assert_eq!((found.as_str(), finished.code()), (code, status), "{message}");
        assert!(!format!("{}{}", finished.stdout, finished.stderr).contains("wrong@"));
    }
}

/// A source with one table of each test, and the shared broker.
struct Small {
    source: TestServer,
    broker: Broker,
    schema: String,
    start: String,
}

impl Small {
    fn new(name: &str) -> Self {
        let source = TestServer::get(Kind::Mysql, End::Source).unwrap();
        let schema = format!("ks{}{name}", std::process::id());
        let mut client = source.client().unwrap();
        let start = start_position(&mut client).unwrap();
        client
            .run_all([
                format!("CREATE DATABASE {schema} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
                format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, v LONGTEXT)"),
                format!("CREATE TABLE {schema}.other (id INT PRIMARY KEY, v INT)"),
            ])
            .unwrap();
        Self {
            source,
            broker: Broker::get().unwrap(),
            schema,
            start,
        }
    }

    fn client(&self) -> Client {
        self.source.client().unwrap()
    }

    fn feed(&self, settings: &str) -> Changefeed {
        let settings = format!(
            "[filter]\nrules = [\"{}.*\"]\n[sink.kafka]\n{settings}",
            self.schema
        );
        Changefeed::between(self.source.uri(), &self.broker.uri(), &self.start, &settings).unwrap()
    }

    /// Rewrites the settings of a changefeed that has run.
    fn change(&self, feed: &Changefeed, before: &str, after: &str) {
        let text = std::fs::read_to_string(&feed.file).unwrap();
        assert!(text.contains(before));
        std::fs::write(&feed.file, text.replace(before, after)).unwrap();
    }

    fn insert(&self, from: u32, to: u32) {
        let mut client = self.client();
        for id in from..to {
            client
                .run(&format!("INSERT INTO {}.t VALUES ({id}, 'v{id}')", self.schema))
                .unwrap();
            client
                .run(&format!("INSERT INTO {}.other VALUES ({id}, {id})", self.schema))
                .unwrap();
        }
    }

    fn topics(&self) -> Topics {
        Topics::read(self.broker.address(), &self.schema).unwrap()
    }

    fn assert_equal(&self, tables: &[&str]) {
        let tables: Vec<String> = tables
            .iter()
            .map(|table| format!("{}.{table}", self.schema))
            .collect();
        compare(&mut self.client(), &tables, &self.topics()).unwrap();
    }

    fn raise_partitions(&self, table: &str, to: usize) {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", self.broker.address())
            .create()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let topic = format!("{}.{table}", self.schema);
        let more = NewPartitions::new(&topic, to);
        let options = AdminOptions::new().operation_timeout(Some(LIMIT));
        let made = runtime
            .block_on(admin.create_partitions([&more], &options))
            .unwrap();
        assert!(made.iter().all(Result::is_ok), "{made:?}");
    }
}

fn fails_with(feed: &Changefeed, code: &str) {
    let finished = feed.catch_up().unwrap();
    let (found, message) = finished.error();
    assert_eq!((found.as_str(), finished.code()), (code, 3), "{message}");
}

#[test]
fn a_missing_topic_stops_its_table_only() {
    let _machine = crate::shared();
    let small = Small::new("missing");
    small.insert(0, 20);
    let feed = small.feed("create-topics = false\nddl-topic = \"\"\n");
    fails_with(&feed, "WEIR-KFK-006");
    assert!(small.topics().messages.is_empty());
    small.change(&feed, "create-topics = false", "partitions = 2");
    run_to_end(&feed).unwrap();
    assert!(
        small
            .topics()
            .partitions
            .values()
            .all(|partitions| *partitions == 2)
    );
    small.assert_equal(&["t", "other"]);
}

/// A table that is made while Weir runs, and may have no topic, stops alone; its statement has nowhere to go.
#[test]
fn a_new_table_without_topic_stops_alone() {
    let _machine = crate::shared();
    let small = Small::new("new");
    small.insert(0, 20);
    let feed = small.feed("partitions = 3\n");
    run_to_end(&feed).unwrap();
    small.change(&feed, "partitions = 3", "create-topics = false");
    let mut running = feed.start(&[]).unwrap();
    let table = format!("{}.new", small.schema);
    small
        .client()
        .run_all([
            format!("CREATE TABLE {table} (id INT PRIMARY KEY, v INT)"),
            format!("INSERT INTO {table} VALUES (1, 1)"),
        ])
        .unwrap();
    small.insert(20, 40);
    let equal = weir_integration::wait_until("the other tables", LIMIT, || {
        let tables = ["t", "other"].map(|table| format!("{}.{table}", small.schema));
        Ok(compare(&mut small.client(), &tables, &small.topics()).is_ok())
    });
    assert!(
        equal.is_ok() && running.is_running().unwrap(),
        "{}",
        running.trouble()
    );
    running.signal("TERM").unwrap();
    running.finish(LIMIT).unwrap();
    fails_with(&feed, "WEIR-KFK-006");
    small.change(&feed, "create-topics = false", "partitions = 3");
    run_to_end(&feed).unwrap();
    small.assert_equal(&["t", "other", "new"]);
}

#[test]
fn a_topic_that_the_cluster_refuses_stops_its_table() {
    let _machine = crate::shared();
    let small = Small::new("replicas");
    small.insert(0, 5);
    let feed = small.feed("replication-factor = 7\n");
    fails_with(&feed, "WEIR-KFK-007");
    small.change(&feed, "replication-factor = 7", "replication-factor = 1");
    run_to_end(&feed).unwrap();
    small.assert_equal(&["t", "other"]);
}

fn too_large(policy: &str) {
    let _machine = crate::shared();
    let small = Small::new(&policy.replace('-', ""));
    small.insert(0, 20);
    let large = format!(
        "INSERT INTO {}.t VALUES (1000, REPEAT('abcdefgh', 300000))",
        small.schema
    );
    small.client().run(&large).unwrap();
    small.insert(20, 40);
    let feed = small.feed(&format!("message-too-large = \"{policy}\"\n"));
    if policy == "error" {
        fails_with(&feed, "WEIR-KFK-011");
        small.assert_equal(&["other"]);
        // Another policy gets it over the row.
        small.change(&feed, "\"error\"", "\"skip-and-log\"");
    }
    run_to_end(&feed).unwrap();
    let topics = small.topics();
    let found: Vec<_> = topics
        .messages
        .iter()
        .filter(|message| message.key.as_deref() == Some("[\"1000\"]"))
        .collect();
    if policy == "keys-only" {
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].value["data"][0].to_string(), "{\"id\":\"1000\"}");
        assert_eq!(found[0].value["_weir"]["keys-only"], true);
    } else {
        assert!(found.is_empty());
    }
    small
        .client()
        .run(&format!("DELETE FROM {}.t WHERE id = 1000", small.schema))
        .unwrap();
    // Its key tells a consumer that it is gone.
    run_to_end(&feed).unwrap();
    small.assert_equal(&["t", "other"]);
}

#[test]
fn a_message_that_is_too_large_stops_its_table() {
    too_large("error");
}

#[test]
fn a_message_that_is_too_large_is_left_out() {
    too_large("skip-and-log");
}

#[test]
fn a_message_that_is_too_large_is_sent_with_its_key() {
    too_large("keys-only");
}

#[test]
fn more_partitions_are_refused_or_flushed() {
    let _machine = crate::shared();
    let small = Small::new("more");
    small.insert(0, 50);
    let feed = small.feed("partition-count-change = \"refuse\"\n");
    run_to_end(&feed).unwrap();
    small.raise_partitions("t", 6);
    small.insert(50, 100);
    fails_with(&feed, "WEIR-KFK-010");
    small.assert_equal(&["other"]);
    small.change(&feed, "\"refuse\"", "\"flush\"");
    run_to_end(&feed).unwrap();
    small.assert_equal(&["t", "other"]);
    // While it runs, under load.
    let running = feed.start(&[]).unwrap();
    small.insert(100, 150);
    small.raise_partitions("other", 9);
    let mut next = 150;
    wait_until("rows on the new partitions", REFRESH_LIMIT, || {
        small.insert(next, next + 50);
        next += 50;
        let topics = small.topics();
        let new = |message: &weir_integration::topics::Message| {
            message.topic.ends_with(".other") && message.partition >= 3
        };
        Ok(topics.messages.iter().any(new))
    })
    .unwrap();
    weir_integration::caught_up(&feed, running).unwrap();
    small.assert_equal(&["t", "other"]);
}

/// `weir check` changes nothing at the cluster, and says what a run would do.
#[test]
fn a_check_makes_no_topics() {
    let _machine = crate::shared();
    let small = Small::new("check");
    // Disk that any machine has: a check asks for as much as the quota.
    let store = "[store]\ndisk-quota = \"1GiB\"\n";
    let feed = small.feed(store);
    let check = |feed: &Changefeed| {
        let arguments = [
            std::ffi::OsStr::new("check"),
            feed.file.as_os_str(),
            std::ffi::OsStr::new("--output"),
            std::ffi::OsStr::new("json"),
        ];
        let running = weir_integration::Running::start(&arguments, feed.dir.path()).unwrap();
        running.finish(LIMIT).unwrap()
    };
    let finished = check(&feed);
    assert_eq!(finished.code(), 0, "{}\n{}", finished.stdout, finished.stderr);
    assert!(
        finished.stdout.contains("2 will be created"),
        "{}",
        finished.stdout
    );
    assert!(small.topics().partitions.is_empty());
    let feed = small.feed(&format!("create-topics = false\n{store}"));
    let finished = check(&feed);
    assert_eq!(finished.code(), 1, "{}", finished.stdout);
    assert!(finished.stdout.contains("does not exist"), "{}", finished.stdout);
}
