//! Checks before a run. They change nothing at the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_types::{Check, TableName};

use crate::client::Asker;
use crate::config::KafkaSinkConfig;
use crate::error::{KafkaSinkError, Result};
use crate::names::Names;
use crate::topics::TopicBook;

/// Topics that a finding names.
const NAMED_MAX: usize = 5;

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
    checks.push(check(
        "topics of the tables",
        "sink.kafka.create-topics",
        expected,
        existing(&asker, &topics),
    ));
    checks.push(check(
        "partitions of the topics",
        "sink.kafka.partition-count-change",
        "as many as rows have been spread over",
        partitions(config, &asker, &topics),
    ));
    checks
}

fn topics(config: &KafkaSinkConfig, targets: &[TableName]) -> Result<BTreeSet<Arc<str>>> {
    let names = Names::new(config)?;
    targets.iter().map(|target| names.enter(target)).collect()
}

fn existing(asker: &Asker, topics: &BTreeSet<Arc<str>>) -> Result<String> {
    let mut missing = Vec::new();
    for topic in topics {
        if asker.partitions(topic)?.is_none() {
            asker.create(topic, true)?;
            missing.push(topic.to_string());
        }
    }
    Ok(if missing.is_empty() {
        format!("all {}", topics.len())
    } else {
        let more = if missing.len() > NAMED_MAX { ", …" } else { "" };
        let first: Vec<String> = missing.iter().take(NAMED_MAX).cloned().collect();
        format!("{} will be created: {}{more}", missing.len(), first.join(", "))
    })
}

fn partitions(config: &KafkaSinkConfig, asker: &Asker, topics: &BTreeSet<Arc<str>>) -> Result<String> {
    let book = TopicBook::open(&config.state_file, config.partition_count_change)?;
    let mut changed = 0;
    for topic in topics {
        if let (Some(expected), Some(found)) = (book.expected(topic), asker.partitions(topic)?)
            && expected != found
        {
            if config.partition_count_change == crate::PartitionCountChange::Refuse {
                return Err(KafkaSinkError::PartitionsChanged {
                    topic: topic.to_string(),
                    found,
                    expected,
                });
            }
            changed += 1;
        }
    }
    Ok(match changed {
        0 => "unchanged".to_owned(),
        changed => format!("changed for {changed} topics: rows are spread anew"),
    })
}
