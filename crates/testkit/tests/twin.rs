//! The event store's twin in memory against the model, on the same histories.

#![allow(clippy::unwrap_used)] // helpers of tests

use weir_event_store::{MemoryOptions, MemoryStore, ScanEnd, ScanRequest, StoreReader, StoreWriter};
use weir_testkit::history::Mix;
use weir_testkit::{ModelStore, Rng};
use weir_types::{CommitTs, OrderKey};

#[test]
fn both_show_the_same() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mix = Mix {
            ddl_percent: 20,
            large_percent: 10,
            body_max: 3_000,
            revive: true,
        };
        let model = ModelStore::default();
        let (_, mut writer, reader) = MemoryStore::open(MemoryOptions::default()).unwrap();
        for _ in 0..60 {
            model.history_mut().step(&mut rng, &mix);
            if rng.percent(50) {
                sync(&model, &mut writer);
            }
            // Only what is synced can be compared.
            if model.history_mut().end == reader.resolved() {
                compare(&mut rng, &model, reader.as_ref(), seed);
            }
        }
    }
}

fn sync(model: &ModelStore, writer: &mut impl StoreWriter) {
    if let Some(input) = model.history_mut().take_group() {
        writer.append(input, u64::MAX / 2).unwrap();
        writer.commit_group().unwrap().expect("a group").wait().unwrap();
    }
}

fn random_key(rng: &mut Rng, end: CommitTs) -> OrderKey {
    let ts = CommitTs::from_millis(rng.below(end.millis() + 2));
    let ordinal = if rng.percent(30) {
        u32::MAX
    } else {
        u32::try_from(rng.below(7)).unwrap()
    };
    OrderKey::new(ts, ordinal)
}

fn compare(rng: &mut Rng, model: &ModelStore, reader: &dyn StoreReader, seed: u64) {
    let (end, tables) = {
        let history = model.history();
        (history.end, history.rows.keys().cloned().collect::<Vec<_>>())
    };
    for table in tables {
        let (a, b) = (random_key(rng, end), random_key(rng, end));
        let request = ScanRequest {
            table: table.clone(),
            after: a.min(b),
            upto: a.max(b).min(OrderKey::end_of(end)),
            bytes_max: usize::try_from(rng.below(5_000)).unwrap(),
            events_max: usize::try_from(rng.between(1, 10)).unwrap(),
            lane: rng.percent(20),
        };
        let outcome = reader.scan(&request).unwrap();
        let keys: Vec<_> = outcome
            .slices
            .iter()
            .flat_map(|slice| slice.iter())
            .map(|event| event.unwrap().key)
            .collect();
        let expected = model
            .history()
            .rows_between(&table, request.after, request.upto)
            .to_vec();
        assert_eq!(keys, expected[..keys.len()], "seed {seed}: {request:?}");
        match outcome.end {
            ScanEnd::Exhausted => assert_eq!(keys, expected, "seed {seed}: {request:?}"),
            ScanEnd::More => assert!(!keys.is_empty(), "seed {seed}: {request:?}"),
            ScanEnd::TooLarge { bytes, key } => {
                assert_eq!(Some(&key), expected.first(), "seed {seed}: {request:?}");
                assert!(keys.is_empty() && bytes > request.bytes_max && !request.lane);
            }
        }
        let pinned: usize = outcome
            .slices
            .iter()
            .map(weir_types::BlockSlice::pinned_bytes)
            .sum();
        assert!(
            pinned <= request.bytes_max || (request.lane && keys.len() == 1),
            "seed {seed}: {pinned} {request:?}"
        );
        let last = model.last_key(&table, request.after);
        assert!(
            reader.last_key(&table, request.after) >= last,
            "seed {seed}: last key of {table}"
        );
        let (after, upto) = (request.after, request.upto);
        let keys = |store: &dyn StoreReader| -> Vec<_> {
            store
                .ddls(after, upto, 0)
                .unwrap()
                .ddls
                .into_iter()
                .map(|(key, event)| (key, event.kind))
                .collect()
        };
        assert_eq!(keys(reader), keys(model), "seed {seed}: {after} {upto}");
    }
}
