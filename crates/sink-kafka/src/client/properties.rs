//! Settings of librdkafka
//! (<https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md>).

use rdkafka::ClientConfig;
use weir_types::TlsMode;

use crate::config::{KafkaSinkConfig, SaslMechanism};
use crate::error::{KafkaSinkError, Result};

/// Messages that librdkafka may hold: above what the ledger lets through.
const QUEUE_MESSAGES: &str = "10000000";
/// The same in KiB: its greatest value.
const QUEUE_KBYTES: &str = "2097151";
/// Largest batch, bytes before compression, where the topic takes as much.
const BATCH_BYTES_MAX: usize = 1_000_000;
/// What librdkafka takes for `message.max.bytes`.
const MESSAGE_BYTES: std::ops::RangeInclusive<usize> = 1_000..=1_000_000_000;

/// What reaches the cluster.
pub(crate) fn client(config: &KafkaSinkConfig) -> ClientConfig {
    let mut client = ClientConfig::new();
    for (name, value) in &config.librdkafka {
        client.set(name, value);
    }
    client
        .set("bootstrap.servers", config.brokers.join(","))
        .set("client.software.name", "weir")
        .set("client.software.version", env!("CARGO_PKG_VERSION"))
        // Topics are made with what is configured, or not at all.
        .set("allow.auto.create.topics", "false")
        // The log says what happened; a closed idle connection is nothing.
        .set("log.connection.close", "false");
    let default = |client: &mut ClientConfig, name: &str, value: &str| {
        if !config.librdkafka.contains_key(name) {
            client.set(name, value);
        }
    };
    default(&mut client, "client.id", &format!("weir-{}", config.changefeed));
    default(&mut client, "reconnect.backoff.max.ms", "2000");
    default(&mut client, "socket.keepalive.enable", "true");
    let encrypted = !matches!(config.tls.mode, TlsMode::Disabled | TlsMode::Preferred);
    client.set(
        "security.protocol",
        match (encrypted, config.sasl.is_some()) {
            (false, false) => "plaintext",
            (false, true) => "sasl_plaintext",
            (true, false) => "ssl",
            (true, true) => "sasl_ssl",
        },
    );
    if encrypted {
        encryption(&mut client, config);
    }
    if let Some(sasl) = &config.sasl {
        let mechanism = match sasl.mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        client
            .set("sasl.mechanism", mechanism)
            .set("sasl.username", &sasl.user)
            .set("sasl.password", sasl.password.expose());
    }
    client
}

/// Tells which file of `[sink.tls]` cannot be read: librdkafka only tells that something cannot.
///
/// # Errors
/// With the first such file.
pub(crate) fn check_files(config: &KafkaSinkConfig) -> Result<()> {
    let tls = &config.tls;
    let files = [&tls.ca, &tls.cert, &tls.key];
    if matches!(tls.mode, TlsMode::Disabled | TlsMode::Preferred) {
        return Ok(());
    }
    for path in files.into_iter().flatten() {
        std::fs::read(path).map_err(|error| KafkaSinkError::Tls {
            reason: format!("`{}` cannot be read: {error}", path.display()),
        })?;
    }
    Ok(())
}

fn encryption(client: &mut ClientConfig, config: &KafkaSinkConfig) {
    let mode = config.tls.mode;
    let verifies = matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyIdentity);
    client.set(
        "enable.ssl.certificate.verification",
        if verifies { "true" } else { "false" },
    );
    let identity = if mode == TlsMode::VerifyIdentity {
        "https"
    } else {
        "none"
    };
    client.set("ssl.endpoint.identification.algorithm", identity);
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    // Without authorities of its own: those of the system, wherever they are.
    client.set(
        "ssl.ca.location",
        config.tls.ca.as_deref().map_or_else(|| "probe".to_owned(), path),
    );
    if let (Some(cert), Some(key)) = (&config.tls.cert, &config.tls.key) {
        client
            .set("ssl.certificate.location", path(cert))
            .set("ssl.key.location", path(key));
    }
}

/// A producer for topics that take batches of `message_max_bytes`.
pub(crate) fn producer(config: &KafkaSinkConfig, message_max_bytes: usize) -> ClientConfig {
    let mut producer = client(config);
    let limit = message_max_bytes.clamp(*MESSAGE_BYTES.start(), *MESSAGE_BYTES.end());
    producer
        // Order through retries, and no message twice within this producer's life.
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", "0")
        .set("queue.buffering.max.messages", QUEUE_MESSAGES)
        .set("queue.buffering.max.kbytes", QUEUE_KBYTES)
        .set("message.max.bytes", limit.to_string());
    let default = |producer: &mut ClientConfig, name: &str, value: &str| {
        if !config.librdkafka.contains_key(name) {
            producer.set(name, value);
        }
    };
    if !config.librdkafka.contains_key("compression.codec") {
        default(&mut producer, "compression.type", "lz4");
    }
    if !config.librdkafka.contains_key("queue.buffering.max.ms") {
        default(&mut producer, "linger.ms", "5");
    }
    // A batch of acceptable messages must not be refused for its size.
    let batch = config
        .librdkafka
        .get("batch.size")
        .and_then(|given| given.parse::<usize>().ok())
        .unwrap_or(BATCH_BYTES_MAX);
    producer.set("batch.size", batch.min(limit).to_string());
    producer
}

#[cfg(test)]
mod tests {
    use weir_types::{ChangefeedId, LineageId, Secret};

    use super::*;
    use crate::config::Sasl;

    fn config() -> KafkaSinkConfig {
        let id = ChangefeedId("c".into());
        KafkaSinkConfig::new(id, LineageId(1), vec!["a:1".into(), "b:2".into()], "state".into())
    }

    #[test]
    fn batches_stay_below_the_limit_of_the_topic() {
        let mut config = config();
        let of = |config: &KafkaSinkConfig, limit| {
            let made = producer(config, limit);
            let get = |name| made.get(name).map(str::to_owned);
            (get("message.max.bytes").unwrap(), get("batch.size").unwrap())
        };
        assert_eq!(of(&config, 1_048_588), ("1048588".into(), "1000000".into()));
        assert_eq!(of(&config, 50_000), ("50000".into(), "50000".into()));
        assert_eq!(of(&config, 1), ("1000".into(), "1000".into()));
        config.librdkafka.insert("batch.size".into(), "2000".into());
        assert_eq!(of(&config, 50_000).1, "2000");
    }

    #[test]
    fn given_properties_count_but_for_ours() {
        let mut config = config();
        config.librdkafka.insert("linger.ms".into(), "50".into());
        config.librdkafka.insert("acks".into(), "1".into());
        let made = producer(&config, 1_000_000);
        assert_eq!(made.get("linger.ms"), Some("50"));
        assert_eq!(made.get("acks"), Some("all"));
        assert_eq!(made.get("bootstrap.servers"), Some("a:1,b:2"));
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let mut config = config();
        config.tls.ca = Some("/nope.pem".into());
        assert_eq!(check_files(&config), Ok(()), "not needed without TLS");
        config.tls.mode = TlsMode::VerifyCa;
        let error = check_files(&config).unwrap_err().to_string();
        assert!(error.contains("/nope.pem"), "{error}");
    }

    #[test]
    fn security_follows_tls_and_login() {
        let mut config = config();
        let protocol = |config: &KafkaSinkConfig| client(config).get("security.protocol").unwrap().to_owned();
        assert_eq!(protocol(&config), "plaintext");
        config.tls.mode = TlsMode::VerifyCa;
        assert_eq!(protocol(&config), "ssl");
        assert_eq!(client(&config).get("ssl.ca.location"), Some("probe"));
        config.sasl = Some(Sasl {
            mechanism: SaslMechanism::ScramSha512,
            user: "u".into(),
            password: Secret::new("p"),
        });
        assert_eq!(protocol(&config), "sasl_ssl");
        config.tls.mode = TlsMode::Preferred;
        assert_eq!(protocol(&config), "sasl_plaintext");
    }
}
