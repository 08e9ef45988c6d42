//! Scans over several tables: all their row events in one order, whatever the credit.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::sync::Arc;

use weir_event_service::scan::{DdlAhead, DdlFilter, ScanDone, ScanJob};
use weir_event_store::{MemoryOptions, MemoryStore, ScanEnd, StoreReader, StoreWriter};
use weir_protocol::collector::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, charge};
use weir_protocol::service::{Member, Span};
use weir_testkit::history::Mix;
use weir_testkit::{ModelStore, Rng};
use weir_types::{CommitTs, DispatcherId, Epoch, OrderKey, TableName};

struct Bench {
    model: ModelStore,
    reader: Arc<dyn StoreReader>,
    rng: Rng,
    seed: u64,
}

/// What a reader of a span has come to.
struct Reading {
    span: Span,
    cursor: OrderKey,
    upto: OrderKey,
    found: Vec<(OrderKey, TableName)>,
    needs: u64,
    lane: bool,
}

impl Bench {
    fn new(seed: u64, mix: &Mix, steps: u64, group_percent: u64) -> Self {
        let mut rng = Rng::new(seed);
        let model = ModelStore::default();
        let (_, mut writer, reader) = MemoryStore::open(MemoryOptions::default()).unwrap();
        for _ in 0..steps {
            model.history_mut().step(&mut rng, mix);
            if rng.percent(group_percent) {
                sync(&model, &mut writer);
            }
        }
        sync(&model, &mut writer);
        Self {
            model,
            reader,
            rng,
            seed,
        }
    }

    fn some_key(&mut self) -> OrderKey {
        let end = self.model.history().end.millis();
        let ts = CommitTs::from_millis(self.rng.below(end + 2));
        let ordinal = [0, 1, 2, 3, u32::MAX][usize::try_from(self.rng.below(5)).unwrap()];
        OrderKey::new(ts, ordinal)
    }

    /// A span of some of the tables, each behind a place of its own.
    fn reading(&mut self) -> Reading {
        let tables: Vec<_> = self.model.history().rows.keys().cloned().collect();
        let mut members = Vec::new();
        for table in tables {
            if self.rng.percent(70) {
                let after = if self.rng.percent(60) {
                    OrderKey::MIN
                } else {
                    self.some_key()
                };
                members.push(Member { table, after });
            }
        }
        while members.len() < 2 {
            let (table, after) = (
                TableName::new("idle", format!("t{}", members.len())),
                OrderKey::MIN,
            );
            members.push(Member { table, after });
        }
        let (a, b) = (self.some_key(), self.some_key());
        let end = OrderKey::end_of(self.model.history().end);
        let cursor = if self.rng.percent(50) {
            OrderKey::MIN
        } else {
            a.min(b)
        };
        Reading {
            span: Span::of(members),
            cursor,
            upto: if self.rng.percent(50) {
                end
            } else {
                a.max(b).min(end)
            },
            found: Vec::new(),
            needs: 0,
            lane: false,
        }
    }

    /// All rows of the span, sorted.
    fn expected(&self, reading: &Reading) -> Vec<(OrderKey, TableName)> {
        let history = self.model.history();
        let rows = |(table, after): (&TableName, OrderKey)| {
            let rows = history.rows_between(table, after, reading.upto.max(after));
            rows.iter().map(|key| (*key, table.clone())).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = reading.span.behind(reading.cursor).flat_map(rows).collect();
        all.sort();
        all
    }

    fn scan(&self, reading: &Reading, bytes_max: u64) -> ScanDone {
        let everything: DdlFilter = Arc::new(|_| true);
        let job = ScanJob {
            dispatcher: DispatcherId(1),
            epoch: Epoch(1),
            span: reading.span.clone(),
            after: reading.cursor,
            upto: reading.upto,
            ddl: DdlAhead::Clear,
            bytes_max,
            needs: reading.needs,
            lane: reading.lane,
        };
        job.run(self.reader.as_ref(), &everything)
    }

    /// One scan with some credit; true at the end.
    fn step(&mut self, reading: &mut Reading, credit: u64) -> bool {
        let seed = self.seed;
        let bytes_max = credit.max(reading.needs);
        let done = self.scan(reading, bytes_max);
        if let Some(batch) = &done.batch {
            assert_eq!(batch.bytes, charge(&batch.slices), "seed {seed}");
            let limit = usize::try_from(bytes_max).unwrap();
            let limit = limit.min(BATCH_BYTES_MAX.max(usize::try_from(reading.needs).unwrap()));
            assert!(
                batch.bytes <= limit || (batch.lane && batch.events == 1),
                "seed {seed}: {batch:?} of {bytes_max}"
            );
            assert!((1..=BATCH_EVENTS_MAX).contains(&batch.events));
            let before = reading.found.len();
            for slice in &batch.slices {
                let keys: Vec<_> = slice.iter().map(|event| event.unwrap().key).collect();
                assert_eq!(keys.len(), slice.events as usize, "seed {seed}");
                assert_eq!(
                    (keys.first(), keys.last()),
                    (Some(&slice.first), Some(&slice.last))
                );
                let name = &slice.block.version.name;
                reading
                    .found
                    .extend(keys.into_iter().map(|key| (key, name.clone())));
            }
            assert_eq!(reading.found.len() - before, batch.events, "seed {seed}");
            reading.cursor = batch.last;
            (reading.needs, reading.lane) = (0, false);
        }
        match done.end.unwrap() {
            ScanEnd::Exhausted => return true,
            ScanEnd::More => assert!(done.batch.is_some()),
            ScanEnd::TooLarge { bytes, .. } => {
                assert!(done.batch.is_none() && bytes as u64 > bytes_max && !reading.lane);
                assert!(done.large.is_some());
                reading.lane = self.rng.percent(50);
                reading.needs = bytes as u64;
            }
        }
        false
    }
}

fn sync(model: &ModelStore, writer: &mut impl StoreWriter) {
    if let Some(input) = model.history_mut().take_group() {
        writer.append(input, u64::MAX / 2).unwrap();
        writer.commit_group().unwrap().expect("a group").wait().unwrap();
    }
}

#[test]
fn any_credit_gives_all_row_events_in_order() {
    let mut large = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mix = Mix {
            ddl_percent: 5,
            large_percent: rng.below(15),
            body_max: rng.between(300, 30_000),
            revive: true,
        };
        let group_percent = *rng.pick(&[0, 10, 50, 100]);
        let mut bench = Bench::new(seed, &mix, rng.between(5, 120), group_percent);
        for _ in 0..4 {
            let mut reading = bench.reading();
            let expected = bench.expected(&reading);
            let most = *rng.pick(&[500, 4_000, 60_000, 4 << 20]);
            let mut ended = false;
            for _ in 0..=4 * expected.len() {
                ended = bench.step(&mut reading, rng.below(most));
                large += usize::from(reading.needs > 0);
                if ended {
                    break;
                }
            }
            assert!(ended, "seed {seed}");
            assert_eq!(reading.found, expected, "seed {seed}");
        }
    }
    assert!(large > 100);
}

#[test]
fn interleaved_small_transactions_fill_batches() {
    let mix = Mix {
        ddl_percent: 0,
        large_percent: 0,
        body_max: 300,
        revive: true,
    };
    let mut bench = Bench::new(7, &mix, 6_000, 2);
    let tables: Vec<_> = bench.model.history().rows.keys().cloned().collect();
    let member = |table| Member {
        table,
        after: OrderKey::MIN,
    };
    let mut reading = Reading {
        span: Span::of(tables.into_iter().map(member).collect()),
        cursor: OrderKey::MIN,
        upto: OrderKey::end_of(bench.model.history().end),
        found: Vec::new(),
        needs: 0,
        lane: false,
    };
    let expected = bench.expected(&reading);
    let mut scans = 1;
    while !bench.step(&mut reading, 4 << 20) {
        scans += 1;
    }
    assert_eq!(reading.found, expected);
    // Rows, and the runs that they are cut to, fill a batch by at least a third.
    let bytes = expected.len() * 250;
    assert!(
        scans <= 2 + 3 * bytes / BATCH_BYTES_MAX,
        "{scans} scans of {} rows",
        expected.len()
    );
}
