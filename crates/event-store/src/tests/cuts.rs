//! Large blocks read in small pieces.

use weir_protocol::store::{StoreInput, TxnGroup, TxnMeta};
use weir_types::{AttemptId, BlockBuilder, OrderKey, RowKind};

use super::log::{request, sync, table, upto, version};
use super::*;

fn meta() -> TxnMeta {
    TxnMeta {
        commit_time_ms: 1,
        gtid: None,
        end_offset: 9,
    }
}

/// Row events of about a hundred bytes; the body says which.
fn large(bytes: usize) -> BlockBuilder {
    let mut block = BlockBuilder::new(version(0));
    while block.payload.len() < bytes {
        let ordinal = block.events + 1;
        let body = format!("{ordinal:>84}");
        block.push(0, ordinal, RowKind::Insert, 0, body.as_bytes());
    }
    block
}

/// Reads all from `after` on; every row event must be the next one. Between the scans
/// another reader goes elsewhere every now and then.
fn read_through(reader: &LogReader, mut after: OrderKey, other: bool) -> u32 {
    let mut last = after.ordinal;
    loop {
        let outcome = reader.scan(&request(reader, table(0), after, 7_000)).unwrap();
        for event in outcome.slices.iter().flat_map(|slice| slice.iter()) {
            let event = event.unwrap();
            assert_eq!(event.key.ordinal, last + 1);
            assert_eq!(event.body, format!("{:>84}", last + 1).as_bytes());
            last += 1;
            after = event.key;
        }
        if outcome.end == ScanEnd::Exhausted {
            return last;
        }
        if other && last.is_multiple_of(3) {
            let elsewhere = OrderKey::new(after.commit_ts, last / 2);
            let found = reader
                .scan(&request(reader, table(0), elsewhere, 90_000))
                .unwrap();
            let first = found.slices.first().map(|slice| slice.first.ordinal);
            assert_eq!(first, Some(last / 2 + 1));
        }
    }
}

fn options(memory_bytes: usize) -> LogOptions {
    LogOptions {
        memory_bytes,
        segment_bytes: 64 << 10,
        ..small()
    }
}

#[test]
fn from_the_tail_and_from_disk() {
    for memory_bytes in [64 << 20, 1 << 20] {
        let volume = FaultVolume::new();
        let options = options(memory_bytes);
        let (_, mut writer, reader) =
            LogStore::open_volume(Arc::new(volume.clone()), options.clone()).unwrap();
        let block = large(5 << 20);
        let events = block.events;
        let mut group = TxnGroup::default();
        group.txns.push(meta());
        group.blocks.push(block);
        let input = StoreInput::Group { group, upto: upto(9) };
        writer.append(input, 5).unwrap();
        sync(&mut writer);
        assert_eq!(read_through(&reader, OrderKey::MIN, false), events);
        assert_eq!(read_through(&reader, OrderKey::MIN, true), events);
        drop((writer, reader));
        let (_, _writer, reader) = LogStore::open_volume(Arc::new(volume), options).unwrap();
        assert_eq!(read_through(&reader, OrderKey::MIN, true), events);
    }
}

#[test]
fn from_fragments() {
    let (_, mut writer, reader) =
        LogStore::open_volume(Arc::new(FaultVolume::new()), options(1 << 20)).unwrap();
    let block = large(3 << 20);
    let (events, attempt) = (block.events, AttemptId(1));
    let undone = events + 1..events + 2_001;
    let mut rest = BlockBuilder::new(version(0));
    for ordinal in undone.clone() {
        rest.push(0, ordinal, RowKind::Insert, 0, b"undone");
    }
    for blocks in [vec![block], vec![rest]] {
        let input = StoreInput::Fragment { attempt, blocks };
        writer.append(input, 5).unwrap();
        sync(&mut writer);
    }
    let input = StoreInput::Commit {
        attempt,
        meta: meta(),
        blocks: Vec::new(),
        ddls: Vec::new(),
        aborted: vec![undone],
        upto: upto(9),
    };
    writer.append(input, 5).unwrap();
    sync(&mut writer);
    assert_eq!(read_through(&reader, OrderKey::MIN, false), events);
    assert_eq!(read_through(&reader, OrderKey::MIN, true), events);
}
