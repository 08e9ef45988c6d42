//! Messages of rows that real servers have written, byte for byte as in `tests/golden`,
//! each read by a JSON parser that is not ours.
//!
//! `WEIR_GOLDEN=write cargo test -p weir-codec --test messages` writes the files anew; what
//! changed has to be looked at. The recordings are those of `weir-binlog`; its
//! `tests/data/README.md` says how they were made.

mod keys;
mod types;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;
use weir_binlog::{BinlogFile, Event, FileOptions, RowImages, Rows, Step, TableMapCache};
use weir_codec::{CanalJson, CanalOptions, CodecError, EnumAs, TableEncoder, UtcOffset};
use weir_types::{CommitTs, Flavor, OrderKey, RowEvent, TableVersion};

/// Larger messages are parsed, but not kept: they are one value repeated.
const KEPT_MESSAGE_BYTES: usize = 16 << 10;

/// A record key and its message.
struct Message {
    key: Option<Vec<u8>>,
    value: Vec<u8>,
}

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../binlog/tests/data")
        .join(name)
}

/// Encodes the rows of one event of a recording.
fn encode(
    encoder: &mut TableEncoder,
    rows: &Rows<'_>,
    key: OrderKey,
    messages: &mut Vec<(TableVersion, Message)>,
    version: &TableVersion,
) {
    let event = RowEvent {
        key,
        kind: rows.kind,
        flags: rows.block_flags(),
        body: rows.body,
        offset: 0,
        end: 0,
    };
    let encoded = encoder.for_each_row(&event, &mut RowImages::default(), |encoder, change| {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let keyed = encoder.write_change_key(&mut key, change)?;
        encoder.write_message(&mut value, change)?;
        let key = keyed.then_some(key);
        messages.push((version.clone(), Message { key, value }));
        Ok::<_, CodecError>(())
    });
    encoded.expect("rows of a real server can be encoded");
}

/// All row changes of a recording.
fn messages(name: &str, flavor: Flavor, options: CanalOptions) -> Vec<(TableVersion, Message)> {
    let mut file = BinlogFile::open(recording(name), FileOptions::default()).expect("recording");
    let mut maps = TableMapCache::new(flavor);
    let mut tables: HashMap<u64, (Arc<TableVersion>, TableEncoder)> = HashMap::new();
    let mut messages = Vec::new();
    let mut ordinal = 0;
    while let Step::Event(step) = file.next().expect("events") {
        match step.decode().expect("event") {
            Event::TableMap(map) => {
                let version = maps.get(&map).expect("table map");
                let encoder = CanalJson::new(options).table(&version, &version.name);
                tables.insert(map.table_id, (version, encoder.expect("encoder")));
            }
            Event::Rows(rows) => {
                let key = OrderKey::new(CommitTs::from_millis(1_764_500_000_000), ordinal);
                ordinal += 1;
                let (version, encoder) = tables.get_mut(&rows.table_id).expect("table map");
                encode(encoder, &rows, key, &mut messages, version);
            }
            _ => {}
        }
    }
    messages
}

fn names(object: &Json) -> BTreeSet<String> {
    let object = object.as_object().expect("object");
    object.keys().cloned().collect()
}

/// What must hold of every message, whatever its values: that of Flink's `canal-json`
/// among it.
fn check(version: &TableVersion, message: &Message) {
    assert!(!message.value.contains(&b'\n'), "a line feed");
    let json: Json = serde_json::from_slice(&message.value).expect("valid JSON");
    let columns: BTreeSet<String> = version.columns.iter().map(|c| c.name.to_string()).collect();
    assert_eq!(json["database"], Json::from(&*version.name.schema));
    assert_eq!(json["table"], Json::from(&*version.name.table));
    assert_eq!(names(&json["sqlType"]), columns);
    assert!(
        names(&json["sqlType"])
            .iter()
            .all(|c| json["sqlType"][c].is_i64())
    );
    assert_eq!(names(&json["mysqlType"]), columns);
    assert!(json["es"].is_u64() && json["ts"].is_u64());
    let [row] = json["data"].as_array().expect("array").as_slice() else {
        panic!("not one row");
    };
    assert!(names(row).is_subset(&columns));
    let is_text = |value: &Json| value.is_null() || value.is_string();
    assert!(row.as_object().expect("object").values().all(is_text));
    match json["type"].as_str().expect("type") {
        "UPDATE" => {
            let old = &json["old"][0];
            assert!(names(old).is_subset(&columns));
            assert!(old.as_object().expect("object").values().all(is_text));
        }
        "INSERT" | "DELETE" => assert_eq!(json["old"], Json::Null),
        other => panic!("type {other}"),
    }
    match &message.key {
        Some(key) => {
            let key: Json = serde_json::from_slice(key).expect("valid JSON");
            let of_row = json["pkNames"].as_array().expect("names").iter();
            let of_row: Vec<&Json> = of_row.map(|name| &row[name.as_str().expect("name")]).collect();
            let key: Vec<&Json> = key.as_array().expect("array").iter().collect();
            assert_eq!(key, of_row, "the record key is that of the row");
        }
        None => assert_eq!(json["pkNames"], Json::Null),
    }
}

/// Compares with a golden file, or writes it.
pub(crate) fn compare(name: &str, text: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("WEIR_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, text).expect("golden file");
    }
    let golden = fs::read(&path).expect("golden file");
    let mut lines = golden.split(|b| *b == b'\n').zip(text.split(|b| *b == b'\n'));
    let different = lines.position(|(golden, ours)| golden != ours);
    if let Some(at) = different {
        panic!("`{name}` differs from line {} on", at + 1);
    }
    assert_eq!(golden.len(), text.len(), "`{name}` is longer or shorter");
}

fn golden(name: &str, file: &str, flavor: Flavor, options: CanalOptions) {
    let mut text = Vec::new();
    let messages = messages(file, flavor, options);
    assert!(messages.len() > 5, "{} rows", messages.len());
    for (version, message) in &messages {
        check(version, message);
        if message.value.len() <= KEPT_MESSAGE_BYTES {
            text.extend_from_slice(message.key.as_deref().unwrap_or(b"null"));
            text.push(b'\t');
            text.extend_from_slice(&message.value);
            text.push(b'\n');
        }
    }
    compare(name, &text);
}

#[test]
fn mysql() {
    golden(
        "mysql-9.7.txt",
        "mysql97-plain.bin",
        Flavor::Mysql,
        CanalOptions::default(),
    );
}

#[test]
fn mariadb() {
    let (flavor, options) = (Flavor::Mariadb, CanalOptions::default());
    golden("mariadb-11.8.txt", "mariadb118-plain.bin", flavor, options);
    golden("mariadb-10.11.txt", "mariadb1011-plain.bin", flavor, options);
}

#[test]
fn indexes_and_another_zone() {
    let options = CanalOptions {
        enum_as: EnumAs::Index,
        time_zone: UtcOffset::parse("+05:30").expect("offset"),
    };
    golden("mysql-9.7-index.txt", "mysql97-plain.bin", Flavor::Mysql, options);
}
