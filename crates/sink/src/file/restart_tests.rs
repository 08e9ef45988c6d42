//! Runs that end anywhere and are started again: every row and DDL is in the finished
//! files exactly once and in order.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use weir_protocol::sink::SinkWork;
use weir_types::{DdlKind, OrderKey, TableName};

use super::FileConfig;
use super::naming::{self, Parsed};
use crate::conformance::{Running, file_config, table};
use crate::error::SinkError;
use crate::testing::{Answer, ddl, key, rows, version};
use crate::{PreparedSink, SinkConfig};

const SPANS: u32 = 3;
/// Keys that each span gets; every tenth is a DDL.
const KEYS: u64 = 60;

fn is_ddl(at: u64) -> bool {
    at.is_multiple_of(10)
}

/// One piece of work per key or run of keys behind `after`, `step` rows at most, and a
/// flush before and after each DDL as a dispatcher has it.
fn send(running: &Running, span: u32, after: u64, upto: u64, step: u64) {
    let version = version(&table(span), 45);
    let mut run: Vec<u64> = Vec::new();
    let flush_run = |run: &mut Vec<u64>| {
        if !run.is_empty() {
            running.write(span, rows(&version, run, b"some value"));
            run.clear();
        }
    };
    for at in after + 1..=upto {
        if is_ddl(at) {
            flush_run(&mut run);
            running.write(span, SinkWork::Flush);
            // Each table has DDL of its own: their keys differ in the last digits.
            running.write(
                span,
                ddl(at * 1_000 + u64::from(span), DdlKind::AlterTable, &table(span)),
            );
        } else {
            run.push(at);
            if run.len() as u64 >= step {
                flush_run(&mut run);
            }
        }
    }
    flush_run(&mut run);
}

fn delivered(config: &FileConfig) -> (BTreeMap<String, Vec<u64>>, usize) {
    let (mut tables, mut ddl) = (BTreeMap::<String, Vec<(OrderKey, u64)>>::new(), 0);
    for entry in fs::read_dir(&config.dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        match naming::parse(&name) {
            Some(Parsed::Ddl(_)) => ddl += 1,
            Some(Parsed::Rows { stem, .. }) => {
                for line in fs::read_to_string(config.dir.join(&name)).unwrap().lines() {
                    let row: serde_json::Value = serde_json::from_str(line).expect("whole lines");
                    let place = OrderKey::parse(row["_weir"]["key"].as_str().unwrap()).unwrap();
                    let id = row["data"][0]["id"].as_str().unwrap().parse().unwrap();
                    tables.entry(stem.clone()).or_default().push((place, id));
                }
            }
            None => {}
        }
    }
    let sorted = tables.into_iter().map(|(stem, mut rows)| {
        rows.sort_unstable();
        (stem, rows.into_iter().map(|(_, id)| id).collect())
    });
    (sorted.collect(), ddl)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_once(stops in proptest::collection::vec((1_u64..=KEYS, 1_u64..8, 0_u64..15), 1..5),
        rotate_bytes in 300_u64..5_000, age_ms in 1_u64..30)
    {
        let dir = tempfile::tempdir().unwrap();
        let mut config = file_config(dir.path());
        config.rotate_bytes = rotate_bytes;
        config.rotate_age = Duration::from_millis(age_ms);
        let last = stops.len();
        let stops = stops.into_iter().chain([(KEYS, 5, 0)]);
        for (run, (upto, step, millis)) in stops.enumerate() {
            let sink = PreparedSink::new(SinkConfig::File(config.clone()), Arc::default()).expect("prepares");
            let progress = sink.progress().clone();
            let running = Running::start(sink, SPANS);
            for span in 1..=SPANS {
                let known = progress.last(&TableName::new("s", table(span)));
                // A saved position may lie before the output's own progress.
                let after = known.map_or(0, |key| key.commit_ts.0).saturating_sub(u64::from(span) * 2);
                send(&running, span, after, upto, step);
            }
            if run < last {
                // Ends with work in every state, nothing flushed.
                std::thread::sleep(Duration::from_millis(millis));
            } else {
                let mut left = SPANS;
                (1..=SPANS).for_each(|span| running.write(span, SinkWork::Flush));
                let end = key(KEYS - 1);
                let mut reached = vec![false; SPANS as usize + 1];
                running.until(|answer| {
                    if let Answer::Durable(durable) = answer
                        && durable.upto == end
                        && !std::mem::replace(&mut reached[durable.dispatcher.0 as usize], true)
                    {
                        left -= 1;
                    }
                    left == 0
                });
            }
            // Closes after what was sent; the last run has its DDL written, too.
            running.scheduler.stop();
        }
        let (tables, ddl) = delivered(&config);
        let expected: Vec<u64> = (1..=KEYS).filter(|&at| !is_ddl(at)).collect();
        for span in 1..=SPANS {
            prop_assert_eq!(&tables[&format!("s.t{span}")], &expected);
        }
        let all = SPANS as usize * KEYS as usize / 10;
        // The DDL at the very end is behind the last rows and may not have been done.
        prop_assert!((all - SPANS as usize..=all).contains(&ddl), "{ddl}");
    }
}

#[test]
fn a_changefeed_that_goes_on_needs_the_folder_that_it_has_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = file_config(dir.path());
    let open = |config: &FileConfig| PreparedSink::new(SinkConfig::File(config.clone()), Arc::default());
    let gone = |config: &FileConfig| matches!(open(config), Err(SinkError::OutputGone { .. }));
    config.continued = true;
    assert!(gone(&config));
    fs::create_dir_all(&config.dir).unwrap();
    assert!(gone(&config), "empty");
    config.continued = false;
    drop(open(&config).expect("a new one is claimed"));
    config.continued = true;
    drop(open(&config).expect("its own"));
    fs::remove_dir_all(&config.dir).unwrap();
    assert!(gone(&config));
    assert!(!config.dir.exists(), "nothing is left behind");
}
