//! What only the log has: segments, quota, locks.

use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{BlockBuilder, Flavor, OrderKey, RowKind, SourceIdentity, TableName, TableVersion};

use super::*;

pub(super) fn table(number: usize) -> TableName {
    TableName::new("s", format!("t{number}"))
}

pub(super) fn version(number: usize) -> Arc<TableVersion> {
    Arc::new(TableVersion {
        name: table(number),
        flavor: Flavor::Mysql,
        columns: Vec::new(),
        primary_key: Vec::new(),
    })
}

pub(super) fn upto(offset: u64) -> ReadPosition {
    ReadPosition {
        identity: SourceIdentity::Digest(1),
        file: Arc::from("bin.1"),
        offset,
    }
}

/// One transaction with one row event per table.
pub(super) fn input(tables: std::ops::Range<usize>, offset: u64, body: &[u8]) -> StoreInput {
    let blocks = tables.map(|n| {
        let mut block = BlockBuilder::new(version(n));
        block.push(0, 1, RowKind::Insert, 0, body);
        block
    });
    let group = TxnGroup {
        txns: vec![TxnMeta {
            commit_time_ms: 1,
            gtid: None,
            end_offset: offset,
        }],
        blocks: blocks.collect(),
        ddls: Vec::new(),
    };
    StoreInput::Group {
        group,
        upto: upto(offset),
    }
}

pub(super) fn sync(writer: &mut LogWriter) {
    if let Some(ticket) = writer.commit_group().unwrap() {
        ticket.wait().unwrap();
    }
}

pub(super) fn request(
    reader: &LogReader,
    table: TableName,
    after: OrderKey,
    bytes_max: usize,
) -> ScanRequest {
    ScanRequest {
        table,
        after,
        upto: OrderKey::end_of(reader.resolved()),
        bytes_max,
        events_max: usize::MAX,
        lane: false,
    }
}

fn count(reader: &LogReader, table: TableName, mut after: OrderKey) -> usize {
    let mut rows = 0;
    loop {
        let outcome = reader
            .scan(&request(reader, table.clone(), after, 1 << 20))
            .unwrap();
        rows += outcome.slices.iter().map(|s| s.events as usize).sum::<usize>();
        match (outcome.end, outcome.slices.last()) {
            (ScanEnd::More, Some(slice)) => after = slice.last,
            _ => return rows,
        }
    }
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = LogStore::open(dir.path(), LogOptions::default()).unwrap();
    assert!(matches!(
        LogStore::open(dir.path(), LogOptions::default()),
        Err(StoreError::Locked(_))
    ));
    drop(first);
    LogStore::open(dir.path(), LogOptions::default()).unwrap();
}

#[test]
fn the_history_of_a_log_is_told_while_it_is_open_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("store");
    assert_eq!(LogStore::lineage(&folder).unwrap(), None);
    assert!(!folder.exists());
    let (recovered, _writer, _reader) = LogStore::open(&folder, LogOptions::default()).unwrap();
    assert_eq!(LogStore::lineage(&folder).unwrap(), Some(recovered.lineage));
    assert_eq!(LogStore::lineage(dir.path()).unwrap(), None);
}

#[test]
fn small_groups_are_coalesced_and_read_the_same() {
    let volume = FaultVolume::new();
    let options = LogOptions {
        segment_bytes: 100 << 10,
        memory_bytes: 0,
        background_seal: false,
        ..LogOptions::default()
    };
    let open = || LogStore::open_volume(Arc::new(volume.clone()), options.clone()).unwrap();
    let (_, mut writer, reader) = open();
    let rounds = 1_500;
    for round in 0..rounds {
        writer
            .append(input(0..3, round + 1, &[round as u8; 20]), 5)
            .unwrap();
        sync(&mut writer);
    }
    assert!(reader.segments() > 3);
    let sealed: Vec<String> = volume
        .files()
        .into_keys()
        .filter(|n| n.ends_with(".seg"))
        .collect();
    assert!(sealed.len() >= 2);
    let largest = sealed.iter().map(|n| volume.files()[n].len()).max().unwrap();
    assert!(largest < 60 << 10, "coalesced segments are smaller: {largest}");
    for table_number in 0..3 {
        assert_eq!(
            count(&reader, table(table_number), OrderKey::MIN),
            rounds as usize
        );
    }
    drop((writer, reader));
    let (_, _writer, reader) = open();
    assert_eq!(count(&reader, table(1), OrderKey::MIN), rounds as usize);
}

#[test]
fn a_missing_or_damaged_segment_is_an_error() {
    let volume = FaultVolume::new();
    let options = small();
    let (_, mut writer, reader) = LogStore::open_volume(Arc::new(volume.clone()), options.clone()).unwrap();
    for round in 0..400_u64 {
        writer
            .append(input(0..2, round + 1, &[round as u8; 50]), 5)
            .unwrap();
        sync(&mut writer);
    }
    drop((writer, reader));
    let files = volume.files();
    let segments: Vec<&String> = files
        .keys()
        .filter(|n| n.ends_with(".seg") || n.ends_with(".log"))
        .collect();
    assert!(segments.len() > 3);
    for name in &segments {
        let mut files = files.clone();
        files.remove(*name);
        let volume = FaultVolume::with_files(files);
        let opened = LogStore::open_volume(Arc::new(volume), options.clone());
        assert!(opened.is_err_and(|e| e.is_corrupt()), "without {name}");
    }
    for name in &segments {
        for keep in [0, 30, 60, 2_000] {
            let mut files = files.clone();
            if files[*name].len() <= keep || (name.ends_with(".log") && keep == 2_000) {
                continue;
            }
            files.get_mut(*name).unwrap().truncate(keep);
            let volume = FaultVolume::with_files(files);
            let opened = LogStore::open_volume(Arc::new(volume), options.clone());
            assert!(opened.is_err_and(|e| e.is_corrupt()), "{name} cut to {keep}");
        }
    }
}

#[test]
fn the_quota_holds_and_gc_makes_room() {
    let volume = FaultVolume::new();
    let options = LogOptions {
        disk_quota: 200 << 10,
        ..small()
    };
    let (_, mut writer, reader) = LogStore::open_volume(Arc::new(volume), options).unwrap();
    let mut noise = Rng::new(3);
    let body: Vec<u8> = (0..5_000).map(|_| noise.draw() as u8).collect();
    let (mut offset, mut refused, mut taken) = (0, 0, 0);
    while refused < 3 {
        offset += 1;
        match writer.append(input(0..1, offset, &body), 5) {
            Ok(()) => {
                sync(&mut writer);
                taken += 1;
            }
            Err(error) => {
                assert!(error.error.is_full());
                assert!(writer.disk_bytes() <= 200 << 10);
                refused += 1;
                let upto = OrderKey::end_of(reader.resolved());
                assert!(writer.advance_gc(&[(table(0), upto)], upto).unwrap() > 50 << 10);
                writer.append(*error.input, 5).unwrap();
                sync(&mut writer);
            }
        }
        assert!(writer.disk_bytes() < 210 << 10);
    }
    assert!(taken > 60, "{taken}");
    let large = writer
        .append(input(0..1, offset, &vec![1; 300 << 10]), 5)
        .unwrap_err();
    assert!(matches!(large.error, StoreError::TransactionTooLarge { .. }));
    let old = reader.scan(&request(&reader, table(0), OrderKey::MIN, 1 << 20));
    assert!(matches!(old, Err(StoreError::NotCovered { .. })));
}

#[test]
fn a_slow_table_keeps_its_own_rows_only() {
    let volume = FaultVolume::new();
    let (_, mut writer, reader) = LogStore::open_volume(Arc::new(volume.clone()), small()).unwrap();
    let mut noise = Rng::new(3);
    for round in 0..300_u64 {
        let body: Vec<u8> = (0..300).map(|_| noise.draw() as u8).collect();
        writer.append(input(0..1, round * 2 + 1, &body), 5).unwrap();
        if round % 5 == 0 {
            writer.append(input(1..2, round * 2 + 2, &body[..40]), 5).unwrap();
        }
        sync(&mut writer);
    }
    let before = writer.disk_bytes();
    let upto = OrderKey::end_of(reader.resolved());
    for _ in 0..60 {
        writer
            .advance_gc(&[(table(0), upto), (table(1), OrderKey::MIN)], OrderKey::MIN)
            .unwrap();
    }
    assert!(
        writer.disk_bytes() * 2 < before,
        "{} of {before}",
        writer.disk_bytes()
    );
    assert_eq!(count(&reader, table(1), OrderKey::MIN), 60);
    assert!(
        reader
            .scan(&request(&reader, table(0), OrderKey::MIN, 1 << 20))
            .is_err()
    );
    assert_eq!(count(&reader, table(0), upto), 0);
    assert!(reader.live_bytes()[&table(1)] < 20_000);
    writer.detach(&table(1)).unwrap();
    assert!(matches!(
        reader.scan(&request(&reader, table(1), OrderKey::MIN, 1 << 20)),
        Err(StoreError::Detached(_))
    ));
    writer.advance_gc(&[(table(0), upto)], upto).unwrap();
    assert!(writer.disk_bytes() < 12 << 10);
    drop((writer, reader));
    let (_, _writer, reader) = LogStore::open_volume(Arc::new(volume), small()).unwrap();
    assert!(
        reader
            .scan(&request(&reader, table(0), OrderKey::MIN, 1 << 20))
            .is_err()
    );
    assert!(reader.scan(&request(&reader, table(1), upto, 1 << 20)).is_err());
}

#[test]
fn a_row_beyond_the_limit_goes_by_the_lane() {
    let volume = FaultVolume::new();
    let options = LogOptions {
        memory_bytes: 1 << 20,
        ..small()
    };
    let (_, mut writer, reader) = LogStore::open_volume(Arc::new(volume), options).unwrap();
    let body = vec![7_u8; 3 << 20];
    writer.append(input(0..1, 1, &body), 5).unwrap();
    sync(&mut writer);
    let mut scan = request(&reader, table(0), OrderKey::MIN, 64 << 10);
    let refused = reader.scan(&scan).unwrap();
    let ScanEnd::TooLarge { bytes, .. } = refused.end else {
        panic!("{:?}", refused.end);
    };
    assert!(refused.slices.is_empty() && bytes > body.len());
    scan.lane = true;
    let passed = reader.scan(&scan).unwrap();
    let row = passed.slices[0].iter().next().unwrap().unwrap();
    assert!(row.body == body);
}

#[test]
fn xa_commit_without_prepare_is_refused() {
    let (_, mut writer, _reader) = LogStore::open_volume(Arc::new(FaultVolume::new()), small()).unwrap();
    let meta = TxnMeta {
        commit_time_ms: 1,
        gtid: None,
        end_offset: 9,
    };
    let xid = weir_types::Xid(Arc::from("X'1'"));
    let input = StoreInput::CommitPrepared {
        xid,
        meta,
        upto: upto(9),
    };
    let refused = writer.append(input, 5).unwrap_err();
    assert!(matches!(refused.error, StoreError::UnknownXid(_)));
    writer.append(self::input(0..1, 10, b"x"), 5).unwrap();
    sync(&mut writer);
}
