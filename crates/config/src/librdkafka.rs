//! `[sink.kafka.librdkafka]`: properties of the client library that are passed on.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};

/// Properties of librdkafka that Weir sets itself, and what to use instead.
const OURS: [(&str, &str); 40] = [
    ("bootstrap.servers", BROKERS),
    ("metadata.broker.list", BROKERS),
    (
        "security.protocol",
        "`sink.tls.mode` and the user in `sink.uri` decide",
    ),
    ("sasl.mechanism", MECHANISM),
    ("sasl.mechanisms", MECHANISM),
    ("sasl.username", "name the user in `sink.uri`"),
    ("sasl.password", "use `sink.password-env` or `sink.password-file`"),
    ("ssl.ca.location", AUTHORITY),
    ("ssl.ca.pem", AUTHORITY),
    ("ssl.certificate.location", CERTIFICATE),
    ("ssl.certificate.pem", CERTIFICATE),
    ("ssl.keystore.location", CERTIFICATE),
    ("ssl.keystore.password", CERTIFICATE),
    ("ssl.key.location", KEY),
    ("ssl.key.pem", KEY),
    ("ssl.key.password", KEY),
    ("enable.ssl.certificate.verification", "use `sink.tls.mode`"),
    ("ssl.endpoint.identification.algorithm", "use `sink.tls.mode`"),
    ("client.software.name", "it is always `weir`"),
    ("client.software.version", "it is always Weir's"),
    ("log.connection.close", "it is always off"),
    ("allow.auto.create.topics", "use `sink.kafka.create-topics`"),
    ("enable.idempotence", "it is always on"),
    (
        "transactional.id",
        "messages are not written in transactions of Kafka",
    ),
    ("acks", "it is always `all`"),
    ("request.required.acks", "it is always `all`"),
    ("message.timeout.ms", NEVER),
    ("delivery.timeout.ms", NEVER),
    ("message.send.max.retries", NEVER),
    ("retries", NEVER),
    (
        "delivery.report.only.error",
        "progress is what the broker has confirmed",
    ),
    ("queuing.strategy", "messages are sent in order"),
    ("message.max.bytes", "the limits of the topics decide"),
    ("queue.buffering.max.messages", QUOTA),
    ("queue.buffering.max.kbytes", QUOTA),
    ("partitioner", PARTITION),
    ("partitioner_cb", PARTITION),
    ("sticky.partitioning.linger.ms", PARTITION),
    ("plugin.library.paths", "no libraries are loaded"),
    (
        "enable.sasl.oauthbearer.unsecure.jwt",
        "logins by OAuth are not supported",
    ),
];
const BROKERS: &str = "`sink.uri` names the brokers";
const MECHANISM: &str = "use `sink.kafka.sasl-mechanism`";
const AUTHORITY: &str = "use `sink.tls.ca`";
const CERTIFICATE: &str = "use `sink.tls.cert` and `sink.tls.key`, PEM files";
const KEY: &str = "use `sink.tls.key`, a PEM file that is not encrypted";
const NEVER: &str = "no message is ever given up";
const QUOTA: &str = "`flow-control.memory-quota` decides";
const PARTITION: &str = "use `sink.kafka.partition`";

/// Requests under way to one broker whose order an idempotent producer can keep
/// (<https://kafka.apache.org/documentation/#producerconfigs_max.in.flight.requests.per.connection>).
const IN_FLIGHT_MAX: u32 = 5;

/// Words in the names of properties whose values are secret.
const SECRETS: [&str; 7] = [
    "password",
    "passphrase",
    "secret",
    "credential",
    "oauthbearer",
    "jaas",
    ".pem",
];

/// Texts, numbers and booleans; `a.b = 1` without quotes is a table in a table.
pub(crate) fn properties<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    // The message of a mismatch would show the value.
    let toml::Value::Table(table) = toml::Value::deserialize(deserializer)? else {
        return Err(de::Error::custom("it is a table of properties"));
    };
    let mut flat = BTreeMap::new();
    flatten("", &table, &mut flat).map_err(de::Error::custom)?;
    Ok(flat)
}

fn flatten(head: &str, table: &toml::Table, flat: &mut BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in table {
        let name = match head {
            "" => name.clone(),
            head => format!("{head}.{name}"),
        };
        let text = match value {
            toml::Value::Table(inner) => {
                flatten(&name, inner, flat)?;
                continue;
            }
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(is) => is.to_string(),
            _ => return Err(format!("`{name}` is a text, a number or a boolean")),
        };
        if flat.insert(name.clone(), text).is_some() {
            return Err(format!("`{name}` is given twice, with quotes and without"));
        }
    }
    Ok(())
}

/// Whether the value of a property of librdkafka must not be shown.
pub(crate) fn is_secret(property: &str) -> bool {
    SECRETS.iter().any(|word| property.contains(word))
}

/// Why a property cannot be passed on.
pub(crate) fn check_property(name: &str, value: &str) -> Result<(), String> {
    if let Some((_, instead)) = OURS.iter().find(|(ours, _)| *ours == name) {
        return Err((*instead).to_owned());
    }
    if is_secret(name) {
        return Err(
            "secrets come from `sink.password-env` or `sink.password-file`, keys from `sink.tls.key`; other \
                    logins are not supported"
                .to_owned(),
        );
    }
    let in_flight = matches!(name, "max.in.flight" | "max.in.flight.requests.per.connection");
    if in_flight
        && value
            .parse::<u32>()
            .is_ok_and(|requests| requests > IN_FLIGHT_MAX)
    {
        return Err(format!("idempotent producers take at most {IN_FLIGHT_MAX}"));
    }
    if name.is_empty() || [name, value].iter().any(|text| text.contains('\0')) {
        return Err("librdkafka has no empty names and no NUL characters".to_owned());
    }
    Ok(())
}
