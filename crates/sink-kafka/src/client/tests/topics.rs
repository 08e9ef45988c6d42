//! Questions about topics.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use weir_types::TlsMode;

use super::super::Cluster;
use super::{LIMIT, config, mock, wait_for};
use crate::error::KafkaSinkError;

/// Asks for a topic and waits for the call.
#[track_caller]
fn asked(cluster: &Cluster, topic: &str) -> Result<u32, KafkaSinkError> {
    let (call, called) = mpsc::channel();
    cluster.request(&Arc::from(topic), Box::new(move || call.send(()).unwrap()));
    called.recv_timeout(LIMIT).unwrap();
    cluster.known(topic).unwrap().map(|info| info.partitions)
}

#[test]
fn topics_are_found_and_errors_asked_for_anew() {
    let mock = mock(1, &[("a", 3), ("b", 5)]);
    let cluster = Cluster::connect(&config(&mock.bootstrap_servers())).unwrap();
    assert_eq!(cluster.known("a"), None);
    assert_eq!(asked(&cluster, "a"), Ok(3));
    assert_eq!(asked(&cluster, "b"), Ok(5));
    assert_eq!(asked(&cluster, "a"), Ok(3));
    // The stand-in has no answer to questions about settings.
    let limit = cluster.known("a").unwrap().unwrap().message_max_bytes;
    assert_eq!(limit, 1_048_588);
    let missing = KafkaSinkError::TopicMissing { topic: "c".into() };
    assert_eq!(asked(&cluster, "c"), Err(missing));
    mock.create_topic("c", 2, 1).unwrap();
    wait_for("oblivion", || cluster.known("c").is_none());
    assert_eq!(asked(&cluster, "c"), Ok(2));
}

/// No question may be lost between two rounds of the thread.
#[test]
fn every_question_is_answered_soon() {
    let names: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let mock = mock(1, &[]);
    for name in &names {
        mock.create_topic(name, 1, 1).unwrap();
    }
    let cluster = Cluster::connect(&config(&mock.bootstrap_servers())).unwrap();
    let (call, called) = mpsc::channel();
    for name in &names {
        let call = call.clone();
        cluster.request(
            &Arc::from(name.as_str()),
            Box::new(move || call.send(()).unwrap()),
        );
        std::thread::sleep(Duration::from_micros(300));
    }
    for _ in &names {
        called.recv_timeout(LIMIT).unwrap();
    }
}

#[test]
fn a_question_waits_for_brokers_that_are_gone() {
    let mock = mock(1, &[("a", 3)]);
    let cluster = Cluster::connect(&config(&mock.bootstrap_servers())).unwrap();
    mock.broker_down(1).unwrap();
    let (call, called) = mpsc::channel();
    cluster.request(&Arc::from("a"), Box::new(move || call.send(()).unwrap()));
    assert!(called.recv_timeout(Duration::from_secs(3)).is_err());
    mock.broker_up(1).unwrap();
    called.recv_timeout(LIMIT).unwrap();
    assert_eq!(cluster.known("a").unwrap().unwrap().partitions, 3);
}

#[test]
fn a_cluster_that_does_not_answer_is_told_within_the_time() {
    let mut config = config("127.0.0.1:1");
    config.request_timeout = Duration::from_millis(1500);
    let begun = Instant::now();
    let error = Cluster::connect(&config).err().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(
        matches!(&error, KafkaSinkError::Unreachable { reason, .. } if reason.contains("refused")),
        "{error}"
    );
}

#[test]
fn tls_to_a_port_without_it_says_so() {
    let mock = mock(1, &[]);
    let mut config = config(&mock.bootstrap_servers());
    config.tls.mode = TlsMode::Required;
    let error = Cluster::connect(&config).err().unwrap();
    assert!(error.to_string().to_lowercase().contains("ssl"), "{error}");
}

#[test]
fn a_property_that_there_is_not_is_named() {
    let mut config = config("127.0.0.1:1");
    config.librdkafka.insert("no.such".into(), "1".into());
    let error = Cluster::connect(&config).err().unwrap();
    assert!(
        matches!(&error, KafkaSinkError::Property { property, .. } if property == "no.such"),
        "{error}"
    );
}
