//! One conformance suite for both stores, and damage to the file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use weir_types::{CommitTs, ErrorClass, LineageId, OrderKey, SourceIdentity, SourcePosition};

use super::*;
use weir_types::Classified as _;

fn token(ts: u64) -> Token {
    Token {
        lineage: LineageId(7),
        key: OrderKey::new(CommitTs(ts), 3),
        position: Some(SourcePosition {
            identity: SourceIdentity::Digest(9),
            file: "bin.000001".into(),
            offset: 5_000_000_000,
            gtids: weir_types::GtidSet::default(),
        }),
        gtid: Some("0-1-5".to_owned()),
        open_xa: vec![weir_types::Xid("X'01',X'',1".into())],
    }
}

fn name(table: &str) -> TableName {
    TableName::new("shop", table)
}

fn conformance(store: &mut dyn MetaStore) {
    assert_eq!(store.load().unwrap(), None);
    let update = TokenUpdate {
        schema: token(20),
        changed: vec![(name("b"), token(21)), (name("c"), token(22))],
        removed: vec![name("a"), name("never")],
    };
    assert!(matches!(store.save(&update), Err(Error::NotInitialised)));
    let mut progress = Progress::fresh(&token(10), [name("a"), name("b")]);
    store.init(&progress).unwrap();
    assert_eq!(store.load().unwrap(), Some(progress.clone()));

    store.save(&update).unwrap();
    progress.schema = token(20);
    progress.tables = [(name("b"), token(21)), (name("c"), token(22))].into();
    assert_eq!(store.load().unwrap(), Some(progress.clone()));

    let mut other = update;
    other.changed[1].1.lineage = LineageId(8);
    assert!(matches!(store.save(&other), Err(Error::OtherLineage { .. })));
    assert_eq!(
        store.load().unwrap(),
        Some(progress),
        "a refused save changes nothing"
    );

    let first = store.next_generation().unwrap();
    assert!(store.next_generation().unwrap() > first);
    let fresh = Progress::fresh(&token(30), []);
    store.init(&fresh).unwrap();
    assert_eq!(store.load().unwrap(), Some(fresh));
    assert_eq!(store.next_generation().unwrap(), Generation(first.0 + 2));
}

#[test]
fn memory_conforms() {
    conformance(&mut MemoryMetaStore::default());
}

#[test]
fn redb_conforms_and_keeps_it_over_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let mut store = RedbMetaStore::open(&path).unwrap();
    conformance(&mut store);
    drop(store);
    let mut store = RedbMetaStore::open(&path).unwrap();
    assert_eq!(store.load().unwrap(), Some(Progress::fresh(&token(30), [])));
    assert_eq!(store.next_generation().unwrap(), Generation(4));
}

#[test]
fn a_second_opening_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let _store = RedbMetaStore::open(&path).unwrap();
    let error = RedbMetaStore::open(&path).unwrap_err();
    assert!(matches!(error, Error::MetaLocked { .. }), "{error}");
}

#[test]
fn an_unwritable_place_is_transient() {
    let error = RedbMetaStore::open(Path::new("/proc/no-such-folder/meta.redb")).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");
}

/// A file with 50 tables, as a crash after the last save leaves it.
fn crashed_file() -> (Vec<u8>, Progress) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let mut store = RedbMetaStore::open(&path).unwrap();
    let tables: Vec<_> = (0..50).map(|n| name(&format!("t{n}"))).collect();
    store
        .init(&Progress::fresh(&token(1), tables.iter().cloned()))
        .unwrap();
    for ts in 2..20 {
        let changed = tables.iter().map(|table| (table.clone(), token(ts))).collect();
        let schema = token(ts);
        store
            .save(&TokenUpdate {
                schema,
                changed,
                removed: Vec::new(),
            })
            .unwrap();
    }
    let progress = store.load().unwrap().unwrap();
    (std::fs::read(&path).unwrap(), progress)
}

#[test]
fn a_crash_keeps_the_last_save() {
    let (bytes, progress) = crashed_file();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    std::fs::write(&path, bytes).unwrap();
    let mut store = RedbMetaStore::open(&path).unwrap();
    assert!(store.load().unwrap() == Some(progress));
}

/// Either what was saved last, or one clear definite error; never other tokens.
#[test]
fn damage_is_a_definite_error_or_harmless() {
    let (bytes, progress) = crashed_file();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let mut refused = 0;
    let mut try_bytes = |damaged: &[u8], what: &str| {
        std::fs::write(&path, damaged).unwrap();
        let opened = catch_unwind(AssertUnwindSafe(|| {
            RedbMetaStore::open(&path).and_then(|mut store| store.load())
        }));
        match opened.unwrap_or_else(|_| panic!("{what}: panicked")) {
            Ok(loaded) => assert!(loaded.as_ref() == Some(&progress), "{what}: other progress"),
            Err(error) => {
                assert_eq!(error.class(), ErrorClass::Changefeed, "{what}: {error}");
                assert_eq!(error.code(), "WEIR-CHF-004", "{what}");
                refused += 1;
            }
        }
    };
    let mut damaged = bytes.clone();
    let used: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    for at in used.iter().step_by(used.len() / 300 + 1) {
        damaged[*at] ^= 0x10;
        try_bytes(&damaged, &format!("byte {at}"));
        damaged[*at] ^= 0x10;
    }
    for cut in (0..bytes.len()).step_by(bytes.len() / 50 + 1) {
        try_bytes(&bytes[..cut], &format!("cut at {cut}"));
    }
    assert!(refused > 50, "{refused} refused: most damage must be seen");
}
