//! A Kafka sink: addresses, settings, properties of librdkafka.

use proptest::prelude::*;
use weir_types::Secret;

use crate::tests::refused;
use crate::*;

const TO_KAFKA: &str =
    "id = \"a\"\n[source]\nuri = \"binlog-files:///b\"\n[sink]\nuri = \"kafka://k1:9093,k2/\"\n";

/// The keys of a Kafka sink.
pub(crate) const FULL_KAFKA: &str = r#"
id = "a"
[source]
uri = "binlog-files:///b"
[sink]
uri = "kafka://app@k1:9093,[::1]/"
password-file = "/run/secrets/sink"
[sink.tls]
mode = "verify-identity"
ca = "ca.pem"
[sink.kafka]
protocol = "canal-json"
topic = "cdc.{schema}.{table}"
ddl-topic = "cdc.ddl"
partition = "transaction"
partition-count-change = "flush"
create-topics = false
partitions = 12
replication-factor = 2
message-too-large = "keys-only"
enum-as = "index"
time-zone = "+08:00"
sasl-mechanism = "scram-sha-256"
[sink.kafka.librdkafka]
"compression.type" = "zstd"
batch.size = 500000
"#;

fn address(uri: &str) -> Result<KafkaAddress, String> {
    match SinkUri::parse(uri)? {
        SinkUri::Kafka(address) => Ok(address),
        other => Err(other.to_string()),
    }
}

fn with(extra: &str) -> Changefeed {
    Changefeed::parse(&format!("{TO_KAFKA}{extra}\n")).unwrap_or_else(|error| panic!("{extra}: {error}"))
}

#[test]
fn addresses_of_brokers() {
    for (uri, user, password, bootstrap) in [
        ("kafka://h", None, None, "h:9092"),
        ("kafka://h/", None, None, "h:9092"),
        ("kafka://a:1,b,[::1]:3/", None, None, "a:1,b:9092,[::1]:3"),
        ("kafka://u@h:1", Some("u"), None, "h:1"),
        ("kafka://u:@h:1", Some("u"), None, "h:1"),
        ("kafka://u:p,q@h,i", Some("u"), Some("p,q"), "h:9092,i:9092"),
        (
            "kafka://a%40b:%2F%3F%23%25@h",
            Some("a@b"),
            Some("/?#%"),
            "h:9092",
        ),
        (
            "kafka://[fe80::1],1.2.3.4:65535",
            None,
            None,
            "[fe80::1]:9092,1.2.3.4:65535",
        ),
    ] {
        let found = address(uri).unwrap_or_else(|reason| panic!("{uri}: {reason}"));
        assert_eq!(
            (
                found.user.as_deref(),
                found.password.as_ref().map(Secret::expose),
                found.bootstrap().join(",").as_str(),
            ),
            (user, password, bootstrap),
            "{uri}"
        );
    }
    for (uri, part) in [
        ("kafka://", "no host"),
        ("kafka:///", "no host"),
        ("kafka://a,", "no host"),
        ("kafka://,a", "no host"),
        ("kafka://a,,b", "no host"),
        ("kafka://:9092", "no host"),
        ("kafka://@h", "no user"),
        ("kafka://:p@h", "no user"),
        ("kafka://u@", "no host"),
        ("kafka://h:", "port"),
        ("kafka://h:0", "65535"),
        ("kafka://h:65536", "65535"),
        ("kafka://h:-1", "port"),
        ("kafka://h:1:2", "brackets"),
        ("kafka://::1", "brackets"),
        ("kafka://[::1", "closing"),
        ("kafka://h/orders", "sink.kafka.topic"),
        ("kafka://h/?topic=x", "sink.kafka.topic"),
        ("kafka://h?protocol=canal-json", "sink.kafka.topic"),
        ("kafka://a, b", "no host has"),
        ("kafka://a%2Cb:1", "no host has"),
        ("kafka://a%00", "no host has"),
        ("kafka://a%2Fb", "no host has"),
        ("kafka://u%00@h", "NUL"),
        ("kafka://u:p%00@h", "NUL"),
        ("kafka://u:%ff@h", "password is not UTF-8"),
        ("kafka://%ff@h", "user is not UTF-8"),
        ("kafka:h", "kafka://host:port/"),
    ] {
        let reason = address(uri).unwrap_err();
        assert!(reason.contains(part), "{uri}: {reason}");
    }
}

#[test]
fn a_broker_has_the_defaults() {
    let changefeed = with("");
    let kafka = &changefeed.sink.kafka;
    assert_eq!(*kafka, KafkaSink::default());
    assert_eq!(kafka.topic, "{schema}.{table}");
    assert_eq!((kafka.create_topics, kafka.partitions.get()), (true, 3));
    assert_eq!(
        (kafka.ddl_topic.as_deref(), kafka.replication_factor),
        (None, None)
    );
    assert_eq!(kafka.sasl_mechanism, SaslMechanism::ScramSha512);
    assert_eq!(changefeed.sink_password().unwrap(), None);
    assert_eq!(changefeed.sink.uri.to_string(), "kafka://k1:9093,k2:9092/");
}

#[test]
fn properties_are_texts_numbers_or_booleans_with_quotes_or_without() {
    let changefeed = with(
        "[sink.kafka.librdkafka]\n\"linger.ms\" = 20\ncompression.type = \"zstd\"\nsocket.keepalive.enable = false\n\"queue.buffering.backpressure.threshold\" = \"1\"\n\"queue.buffering.max.ms\" = 0.5\n",
    );
    let found: Vec<(&str, &str)> = changefeed
        .sink
        .kafka
        .librdkafka
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("compression.type", "zstd"),
            ("linger.ms", "20"),
            ("queue.buffering.backpressure.threshold", "1"),
            ("queue.buffering.max.ms", "0.5"),
            ("socket.keepalive.enable", "false"),
        ]
    );
}

#[test]
fn values_that_do_not_go_with_a_broker() {
    let kafka = |text: &str| format!("{TO_KAFKA}[sink.kafka]\n{text}\n");
    let long = format!("topic = \"{}\"", "x".repeat(250));
    for (text, parts) in [
        (
            kafka("protocol = \"avro\""),
            ["`sink.kafka.protocol`", "canal-json"],
        ),
        (kafka("topic = \"\""), ["`sink.kafka.topic`", "empty"]),
        (
            kafka("topic = \"{db}\""),
            ["`sink.kafka.topic`", "only `{schema}`"],
        ),
        (kafka("topic = \"a b\""), ["`sink.kafka.topic`", "letters"]),
        (kafka("topic = \"größe\""), ["`sink.kafka.topic`", "letters"]),
        (kafka("topic = \"..\""), ["`sink.kafka.topic`", "no names"]),
        (kafka(&long), ["`sink.kafka.topic`", "at most 249"]),
        (
            kafka("ddl-topic = \"{table\""),
            ["`sink.kafka.ddl-topic`", "closed"],
        ),
        (
            kafka("partition = \"column\""),
            ["`sink.kafka.partition`", "`transaction`"],
        ),
        (kafka("partitions = 0"), ["`sink.kafka.partitions`", "nonzero"]),
        (
            kafka("partitions = 2147483648"),
            ["`sink.kafka.partitions`", "at most"],
        ),
        (kafka("partitions = -1"), ["`sink.kafka.partitions`", "-1"]),
        (
            kafka("replication-factor = 40000"),
            ["`sink.kafka.replication-factor`", "at most"],
        ),
        (
            kafka("partition-count-change = \"ignore\""),
            ["`sink.kafka.partition-count-change`", "`flush`"],
        ),
        (
            kafka("message-too-large = \"dlq\""),
            ["`sink.kafka.message-too-large`", "`skip-and-log`"],
        ),
        (
            kafka("sasl-mechanism = \"gssapi\""),
            ["`sink.kafka.sasl-mechanism`", "`scram-sha-256`"],
        ),
        (
            kafka("create-topics = \"yes\""),
            ["`sink.kafka.create-topics`", "boolean"],
        ),
        (
            TO_KAFKA.replace("k1:", "u@k1:"),
            ["`sink.uri`", "`sink.password-env`"],
        ),
        (
            format!("{TO_KAFKA}password-env = \"X\"\n"),
            ["`sink.password-env`", "with a user"],
        ),
        (
            format!("{TO_KAFKA}[sink.tls]\nca = \"/ca.pem\"\n"),
            ["`sink.tls.ca`", "clear text"],
        ),
        (
            format!("{TO_KAFKA}[sink.tls]\ncert = \"/c\"\nkey = \"/k\"\n"),
            ["`sink.tls.cert`", "clear text"],
        ),
    ] {
        let (code, message) = refused(&text);
        assert_eq!(code, "WEIR-CFG-005", "{message}");
        for part in parts {
            assert!(message.contains(part), "{message} must contain {part}");
        }
    }
    for (key, nearest) in [
        ("partition_by = \"key\"", "`sink.kafka.partition"),
        ("topics = \"x\"", "`sink.kafka.topic`"),
        ("rdkafka.linger.ms = 4", "`sink.kafka.librdkafka`"),
        ("enum = \"index\"", "`sink.kafka.enum-as`"),
    ] {
        let (code, message) = refused(&kafka(key));
        assert_eq!(code, "WEIR-CFG-003", "{message}");
        assert!(message.contains(nearest), "{message}");
    }
}

#[test]
fn properties_that_are_set_otherwise_name_the_key_and_show_no_secret() {
    for (property, instead) in [
        ("\"bootstrap.servers\" = \"ZQX\"", "`sink.uri`"),
        ("acks = 1", "always `all`"),
        ("enable.idempotence = false", "always on"),
        ("\"transactional.id\" = \"x\"", "transactions"),
        ("retries = 3", "given up"),
        ("\"max.in.flight\" = 6", "at most 5"),
        ("sasl.username = \"u\"", "`sink.uri`"),
        ("sasl.password = \"ZQX\"", "`sink.password-env`"),
        ("\"ssl.key.password\" = \"ZQX\"", "`sink.tls.key`"),
        ("\"ssl.key.pem\" = \"ZQX\"", "`sink.tls.key`"),
        ("\"sasl.oauthbearer.config\" = \"ZQX\"", "not supported"),
        (
            "\"sasl.oauthbearer.client.credentials.client.secret\" = \"ZQX\"",
            "not supported",
        ),
        ("\"sasl.jaas.config\" = \"ZQX\"", "not supported"),
        ("\"ssl.keystore.password\" = \"ZQX\"", "`sink.tls.cert`"),
        ("\"sasl.password\" = [\"ZQX\"]", "a text"),
        ("\"linger.ms\" = [5]", "`linger.ms` is a text"),
        ("\"linger.ms\" = \"5\\u0000\"", "NUL"),
        ("\"\" = 1", "empty names"),
        ("\"linger.ms\" = 1\nlinger.ms = 2", "given twice"),
    ] {
        let (code, message) = refused(&format!("{TO_KAFKA}[sink.kafka.librdkafka]\n{property}\n"));
        assert_eq!(code, "WEIR-CFG-005", "{message}");
        assert!(
            message.contains("`sink.kafka.librdkafka") && message.contains(instead),
            "{property}: {message} must contain {instead}"
        );
        assert!(
            !message.contains("ZQX") || property.starts_with("\"bootstrap"),
            "{message}"
        );
    }
    for text in [
        "\"sasl.password=ZQX\"",
        "[\"ZQX\"]",
        "[{ \"sasl.password\" = \"ZQX\" }]",
    ] {
        let (_, message) = refused(&format!("{TO_KAFKA}[sink.kafka]\nlibrdkafka = {text}\n"));
        assert!(!message.contains("ZQX"), "{message}");
    }
}

#[test]
fn a_password_of_a_broker_is_shown_nowhere() {
    let text = TO_KAFKA.replace("k1:", "u:topsecret@k1:");
    let changefeed = Changefeed::parse(&text).unwrap();
    for form in [
        format!("{changefeed:?}"),
        changefeed.sink.uri.to_string(),
        toml::to_string(&changefeed).unwrap(),
    ] {
        assert!(!form.contains("topsecret") && form.contains("***"), "{form}");
    }
    assert_eq!(
        changefeed.sink_password().unwrap(),
        Some(Secret::new("topsecret"))
    );
    for (from, to) in [
        ("k2/", "k2/topic"),
        ("topsecret@", "topsecret/@"),
        ("topsecret@", "top#secret?@"),
        ("k2/", "k2:x"),
        ("k1:9093", ""),
    ] {
        let (_, message) = refused(&text.replace(from, to));
        assert!(!message.contains("secret"), "{message}");
    }
}

#[test]
fn the_client_queue_is_a_part_of_the_quota() {
    for mib in [32, 512, 100_000] {
        let plan = MemoryPlan::from_quota(ByteSize::mib(mib)).unwrap();
        let (ledger, client) = plan.with_client_queue();
        assert_eq!(ledger + client, plan.changefeed_queue);
        assert!(client >= 4_000_000 && client < ledger, "{client} {ledger}");
    }
}

proptest! {
    #[test]
    fn addresses_of_brokers_round_trip(
        user in proptest::option::of("[^\\x00]{1,12}"),
        brokers in proptest::collection::vec(("[a-zäé0-9.-]{1,12}", 1_u16..), 1..4),
    ) {
        let given = SinkUri::Kafka(KafkaAddress { user, password: None, brokers });
        prop_assert_eq!(SinkUri::parse(&given.to_string()), Ok(given));
    }

    #[test]
    fn no_address_of_a_broker_makes_the_parser_panic_or_shows_a_password(rest in "\\PC{0,30}") {
        match SinkUri::parse(&format!("kafka://u:ZQX{rest}")) {
            Ok(uri) => {
                let shown = format!("{uri} {uri:?}");
                prop_assert!(!shown.contains("ZQX"), "{}", shown);
            }
            Err(reason) => prop_assert!(!reason.contains("ZQX")),
        }
    }

    #[test]
    fn no_property_makes_the_parser_panic(name in "\\PC{0,20}", value in "\\PC{0,20}") {
        let mut table = toml::Table::new();
        table.insert(name.clone(), value.clone().into());
        let text = format!("{TO_KAFKA}[sink.kafka.librdkafka]\n{table}");
        if let Ok(changefeed) = Changefeed::parse(&text) {
            let found: Vec<_> = changefeed.sink.kafka.librdkafka.into_iter().collect();
            prop_assert_eq!(found, [(name, value)]);
        }
    }
}
