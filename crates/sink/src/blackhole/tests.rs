//! What the blackhole counts, and how slow it can be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_protocol::collector::EventBatch;
use weir_protocol::sink::SinkWork;
use weir_types::{Block, BlockBuilder, BlockSlice, CommitTs, OrderKey, RowKind};

use super::*;
use crate::conformance::{Running, changefeed, table};
use crate::testing::{Answer, body, key, rows, version};
use crate::{PreparedSink, SinkConfig};

fn sink(config: BlackholeConfig) -> PreparedSink {
    PreparedSink::new(SinkConfig::Blackhole(config), Arc::default()).expect("prepares")
}

/// One insert of two rows, one update of three, one delete of one.
fn mixed(values: [&[u8]; 3]) -> SinkWork {
    let mut builder = BlockBuilder::new(version("t1", 63));
    let kinds = [RowKind::Insert, RowKind::Update, RowKind::Delete];
    let ids: [&[i32]; 3] = [&[1, 2], &[1, 2, 3], &[3]];
    for (i, kind) in kinds.into_iter().enumerate() {
        builder.push(0, i as u32 + 1, kind, 0, &body(kind, ids[i], values[i]));
    }
    let block = Block {
        version: builder.version,
        txns: vec![CommitTs(9)],
        payload: builder.payload,
        events: 3,
        first: OrderKey::new(CommitTs(9), 1),
        last: OrderKey::new(CommitTs(9), 3),
    };
    let slice = BlockSlice::whole(Arc::new(block));
    SinkWork::Rows(Arc::new(EventBatch {
        events: 3,
        bytes: slice.pinned_bytes(),
        first: slice.first,
        last: slice.last,
        slices: vec![slice],
        lane: false,
    }))
}

#[test]
fn rows_are_counted_by_kind_and_every_value_is_visited() {
    let mut sums = Vec::new();
    for values in [[b"a", b"b", b"c"], [b"a", b"b", b"c"], [b"a", b"b", b"d"]] {
        let sink = sink(BlackholeConfig::new(changefeed()));
        let counters = Arc::clone(sink.counters());
        let running = Running::start(sink, 1);
        running.write(1, mixed(values.map(|value| &value[..])));
        running.until(|answer| matches!(answer, Answer::Durable(durable) if durable.upto.ordinal == 3));
        let totals = counters.totals();
        assert_eq!(
            (totals.rows.inserts, totals.rows.updates, totals.rows.deletes),
            (2, 3, 1)
        );
        sums.push(totals.checksum);
    }
    assert!(sums[0] == sums[1] && sums[0] != sums[2], "{sums:?}");
}

#[test]
fn a_slow_one_holds_each_batch_and_ends_at_once() {
    let config = BlackholeConfig {
        delay: Duration::from_millis(30),
        ..BlackholeConfig::new(changefeed())
    };
    let running = Running::start(sink(config), 1);
    let started = Instant::now();
    for i in 1..=3 {
        running.write(1, rows(&version("t1", 45), &[i], b"x"));
    }
    running.until(|answer| matches!(answer, Answer::Durable(durable) if durable.upto == key(3)));
    assert!(started.elapsed() >= Duration::from_millis(90));
}

#[test]
fn a_stalled_one_can_be_stopped() {
    let config = BlackholeConfig {
        stall: Duration::from_secs(3600),
        ..BlackholeConfig::new(changefeed())
    };
    let running = Running::start(sink(config), 3);
    for span in 1..=3 {
        running.write(span, rows(&version(&table(span), 45), &[1], b"x"));
    }
    assert!(
        running.answers.recv_timeout(Duration::from_millis(200)).is_err(),
        "all spans stand still"
    );
    let started = Instant::now();
    running.scheduler.stop();
    assert!(started.elapsed() < Duration::from_secs(60));
    let answers: Vec<_> = running.answers.try_iter().collect();
    assert_eq!(
        answers.len(),
        3,
        "each batch is released, nothing fails: {answers:?}"
    );
}
