//! Checks before a run. They change nothing at the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_types::{Check, TableName};

use crate::client::{Asker, TopicLayout, TopicSettings};
use crate::config::{KafkaSinkConfig, PartitionCountChange};
use crate::error::{KafkaSinkError, Result};
use crate::names::Names;
use crate::topics::TopicBook;

/// Topics that a finding names.
const NAMED_MAX: usize = 5;
/// Topics whose settings are asked for at once.
const ASKED_AT_ONCE: usize = 500;
/// The least size of batches that librdkafka can be held to.
const MESSAGE_BYTES_MIN: usize = 1000;

fn check(name: &'static str, setting: &'static str, expected: &str, found: Result<String>) -> Check {
    let (actual, ok) = match found {
        Ok(actual) => (actual, true),
        Err(error) => (error.to_string(), false),
    };
    Check {
        name,
        setting,
        expected: expected.to_owned(),
        actual,
        ok,
    }
}

/// Makes all checks of a cluster. `targets`: names at the target of the tables that the
/// source has now.
pub fn preflight(config: &KafkaSinkConfig, targets: &[TableName]) -> Vec<Check> {
    let asker = Asker::new(config);
    let reached = asker.and_then(|asker| asker.probe().map(|brokers| (asker, brokers)));
    let (asker, brokers) = match reached {
        Ok(reached) => reached,
        Err(error) => return vec![check("cluster answers", "sink.uri", "it does", Err(error))],
    };
    let topics = topics(config, targets);
    let mut checks = vec![check(
        "cluster answers",
        "sink.uri",
        "it does",
        Ok(format!("{brokers} brokers")),
    )];
    checks.push(check(
        "topics have names",
        "sink.kafka.topic",
        "names that Kafka takes, a topic for each table",
        topics
            .as_ref()
            .map(|topics| format!("{} topics", topics.len()))
            .map_err(Clone::clone),
    ));
    let topics = topics.unwrap_or_default();
    let expected = match config.create_topics {
        Some(_) => "they exist or can be created",
        None => "they exist",
    };
    let found = find(&asker, &topics);
    let (found, existing) = match found {
        Ok((found, missing)) => (found, Ok(existing(&topics, &missing))),
        Err(error) => (Vec::new(), Err(error)),
    };
    checks.push(check(
        "topics of the tables",
        "sink.kafka.create-topics",
        expected,
        existing,
    ));
    checks.push(check(
        "partitions of the topics",
        "sink.kafka.partition-count-change",
        "as many as rows have been spread over",
        partitions(config, &found),
    ));
    if !found.is_empty() {
        checks.extend(settings(&asker, &found));
    }
    checks
}

fn topics(config: &KafkaSinkConfig, targets: &[TableName]) -> Result<BTreeSet<Arc<str>>> {
    let names = Names::new(config)?;
    targets.iter().map(|target| names.enter(target)).collect()
}

type Found<'t> = Vec<(&'t str, TopicLayout)>;

/// Topics that there are, and those that will be created.
fn find<'t>(asker: &Asker, topics: &'t BTreeSet<Arc<str>>) -> Result<(Found<'t>, Vec<&'t str>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for topic in topics {
        if let Some(layout) = asker.layout(topic)? {
            found.push((&**topic, layout));
        } else {
            asker.create(topic, true)?;
            missing.push(&**topic);
        }
    }
    Ok((found, missing))
}

fn existing(topics: &BTreeSet<Arc<str>>, missing: &[&str]) -> String {
    if missing.is_empty() {
        format!("all {}", topics.len())
    } else {
        format!("{} will be created: {}", missing.len(), named(missing))
    }
}

/// The first of some names.
fn named(names: &[&str]) -> String {
    let more = if names.len() > NAMED_MAX { ", …" } else { "" };
    let first = names.get(..NAMED_MAX).unwrap_or(names);
    format!("{}{more}", first.join(", "))
}

fn partitions(config: &KafkaSinkConfig, topics: &Found<'_>) -> Result<String> {
    let book = TopicBook::open(&config.state_file, config.partition_count_change)?;
    let mut changed = 0;
    for (topic, layout) in topics {
        let Some(expected) = book.expected(topic) else {
            continue;
        };
        if expected == layout.partitions {
            continue;
        }
        if config.partition_count_change == PartitionCountChange::Refuse {
            return Err(KafkaSinkError::PartitionsChanged {
                topic: (*topic).to_owned(),
                found: layout.partitions,
                expected,
            });
        }
        changed += 1;
    }
    Ok(match changed {
        0 => "unchanged".to_owned(),
        changed => format!("changed for {changed} topics: rows are spread anew"),
    })
}

/// Sizes that topics take, and whether they have the replicas that a message needs.
fn settings(asker: &Asker, topics: &Found<'_>) -> Vec<Check> {
    let names: Vec<&str> = topics.iter().map(|(name, _)| *name).collect();
    let mut settings = Vec::with_capacity(names.len());
    for names in names.chunks(ASKED_AT_ONCE) {
        match asker
            .settings(names)
            .and_then(|some| some.into_iter().collect::<Result<Vec<_>>>())
        {
            Ok(some) => settings.extend(some),
            Err(error) => {
                return vec![check(
                    "settings of the topics",
                    "sink.uri",
                    "they can be read",
                    Err(error),
                )];
            }
        }
    }
    judge(topics, &settings)
}

fn judge(topics: &Found<'_>, settings: &[TopicSettings]) -> Vec<Check> {
    let pairs = || topics.iter().zip(settings);
    let small: Vec<&str> = pairs()
        .filter(|(_, settings)| {
            settings
                .message_max_bytes
                .is_some_and(|limit| limit < MESSAGE_BYTES_MIN)
        })
        .map(|((name, _), _)| *name)
        .collect();
    let starved: Vec<&str> = pairs()
        .filter(|((_, layout), settings)| settings.min_insync.is_some_and(|least| least > layout.replicas))
        .map(|((name, _), _)| *name)
        .collect();
    let smallest = pairs()
        .filter_map(|(_, settings)| settings.message_max_bytes)
        .min();
    let smallest = smallest.map_or_else(
        || "not known: the broker's default is assumed".to_owned(),
        |limit| format!("{limit} bytes or more"),
    );
    let result = |name, setting, expected: String, bad: &[&str], good: String| Check {
        name,
        setting,
        expected,
        actual: if bad.is_empty() {
            good
        } else {
            format!("not so for {}: {}", bad.len(), named(bad))
        },
        ok: bad.is_empty(),
    };
    vec![
        result(
            "message sizes",
            "max.message.bytes",
            format!("{MESSAGE_BYTES_MIN} bytes or more for every topic"),
            &small,
            smallest,
        ),
        result(
            "replicas",
            "min.insync.replicas",
            "not more than a topic has replicas".to_owned(),
            &starved,
            "enough".to_owned(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_that_can_never_take_a_message_are_named() {
        let layout = TopicLayout {
            partitions: 3,
            replicas: 1,
        };
        let topics = vec![("a", layout), ("b", layout), ("c", layout)];
        let of = |bytes, least| TopicSettings {
            message_max_bytes: Some(bytes),
            min_insync: Some(least),
        };
        let good = judge(
            &topics,
            &[of(1_000_000, 1), of(2000, 1), TopicSettings::default()],
        );
        assert!(good.iter().all(|check| check.ok), "{good:?}");
        assert_eq!(good[0].actual, "2000 bytes or more");
        let bad = judge(&topics, &[of(1_000_000, 2), of(999, 1), of(2000, 1)]);
        assert_eq!((bad[0].ok, bad[0].actual.as_str()), (false, "not so for 1: b"));
        assert_eq!((bad[1].ok, bad[1].actual.as_str()), (false, "not so for 1: a"));
    }
}
