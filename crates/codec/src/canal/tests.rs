//! Golden messages, and values that must survive a JSON parser.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value as Json;
use weir_types::value::Decimal;
use weir_types::{Column, CommitTs, DdlKind, Flavor, WireType};

use super::*;

fn column(name: &str, wire: WireType, meta: u16, collation: u16) -> Column {
    Column {
        name: name.into(),
        wire,
        meta,
        nullable: true,
        unsigned: false,
        collation,
        members: Vec::new(),
        geometry: 0,
        visible: true,
    }
}

fn unsigned(name: &str, wire: WireType) -> Column {
    Column {
        unsigned: true,
        ..column(name, wire, 0, 0)
    }
}

fn members(name: &str, wire: WireType, members: &[&str]) -> Column {
    Column {
        members: members.iter().map(|m| Arc::from(m.as_bytes())).collect(),
        ..column(name, wire, 1, 45)
    }
}

fn version(columns: Vec<Column>, primary_key: Vec<u16>) -> TableVersion {
    TableVersion {
        name: TableName::new("s", "t"),
        flavor: Flavor::Mysql,
        columns,
        primary_key,
    }
}

fn key() -> OrderKey {
    OrderKey::new(CommitTs::from_millis(1_764_500_000_123), 7)
}

fn all<'r, 'a>(values: &'r [Value<'a>]) -> Option<Image<'r, 'a>> {
    Some(Image {
        values,
        present: Presence::All,
    })
}

fn line(version: &TableVersion, options: CanalOptions, change: &RowChange<'_, '_>) -> Result<String> {
    let mut encoder = CanalJson::new(options).table(version, &version.name)?;
    let mut out = Vec::new();
    encoder.write_row(&mut out, change)?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

fn insert<'r, 'a>(values: &'r [Value<'a>]) -> RowChange<'r, 'a> {
    RowChange {
        key: key(),
        row: 0,
        kind: RowKind::Insert,
        before: None,
        after: all(values),
    }
}

/// `data[0]` of an inserted row, parsed.
fn data(version: &TableVersion, options: CanalOptions, values: &[Value<'_>]) -> Json {
    let line = line(version, options, &insert(values)).expect("encodes");
    assert_eq!(line.matches('\n').count(), 1);
    let mut message: Json = serde_json::from_str(&line).expect("valid JSON");
    message["data"][0].take()
}

#[test]
fn golden_update() {
    let version = version(
        vec![
            column("id", WireType::Long, 0, 0),
            column("a\"b", WireType::VarChar, 80, 255),
            unsigned("n", WireType::LongLong),
        ],
        vec![0],
    );
    let before = [
        Value::Int(-7),
        Value::Bytes("é".as_bytes()),
        Value::UInt(u64::MAX),
    ];
    let after = [Value::Int(-7), Value::Bytes(b"x\n"), Value::UInt(u64::MAX)];
    let change = RowChange {
        row: 3,
        kind: RowKind::Update,
        before: all(&before),
        ..insert(&after)
    };
    let encoder = CanalJson::default().table(&version, &TableName::new("copy", "t2"));
    let mut out = Vec::new();
    encoder.unwrap().write_row(&mut out, &change).unwrap();
    let expected = concat!(
        r#"{"id":0,"database":"copy","table":"t2","pkNames":["id"],"isDdl":false,"type":"UPDATE","#,
        r#""es":1764500000123,"ts":1764500000123,"sql":"","sqlType":{"id":4,"a\"b":12,"n":3},"#,
        r#""mysqlType":{"id":"int","a\"b":"varchar(20)","n":"bigint unsigned"},"#,
        r#""old":[{"a\"b":"é"}],"data":[{"id":"-7","a\"b":"x\n","n":"18446744073709551615"}],"#,
        r#""_weir":{"key":"066b519535ec000000000007","row":3}}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn golden_delete_without_key() {
    let version = version(vec![column("a", WireType::Tiny, 0, 0)], vec![]);
    let before = [Value::Null];
    let change = RowChange {
        kind: RowKind::Delete,
        before: all(&before),
        after: None,
        ..insert(&[])
    };
    let line = line(&version, CanalOptions::default(), &change).unwrap();
    assert!(line.contains(r#""pkNames":null,"#), "{line}");
    assert!(line.contains(r#""type":"DELETE","#), "{line}");
    assert!(line.contains(r#""old":null,"data":[{"a":null}],"#), "{line}");
}

#[test]
fn every_type_prints_as_canal_does() {
    let columns = vec![
        column("f", WireType::Float, 4, 0),
        column("d", WireType::Double, 8, 0),
        column("dd", WireType::NewDecimal, (5 << 8) | 2, 0),
        column("y", WireType::Year, 0, 0),
        column("da", WireType::Date, 0, 0),
        column("dt3", WireType::Datetime2, 3, 0),
        column("ti0", WireType::Time2, 0, 0),
        column("ts0", WireType::Timestamp2, 0, 0),
        column("bi", WireType::Bit, 12, 0),
        members("e", WireType::Enum, &["x", "y\"z"]),
        members("st", WireType::Set, &["p", "q", "r"]),
        column("c", WireType::String, 40, 255),
        column("bn", WireType::String, 4, 63),
        column("vb", WireType::VarChar, 9, 63),
        column("tx", WireType::Blob, 3, 45),
        column("l1", WireType::VarChar, 9, 8),
        column("g", WireType::Geometry, 4, 0),
        column("j", WireType::Json, 4, 0),
    ];
    let version = version(columns, vec![]);
    let values = [
        Value::Float(f32::MAX),
        Value::Double(-0.1),
        Value::Decimal(Decimal {
            // -0.05 as DECIMAL(5,2): digits 000 05 in groups of two bytes and one,
            // sign bit set, all inverted.
            bytes: &[0x7f, 0xff, 0xfa],
            precision: 5,
            scale: 2,
        }),
        Value::Year(1901),
        Value::Date {
            year: 1000,
            month: 1,
            day: 1,
        },
        Value::DateTime {
            year: 2024,
            month: 2,
            day: 29,
            hour: 12,
            minute: 34,
            second: 56,
            micros: 789_000,
        },
        Value::Time {
            negative: true,
            hours: 838,
            minutes: 59,
            seconds: 59,
            micros: 0,
        },
        Value::Timestamp {
            seconds: 1_709_210_096,
            micros: 0,
        },
        Value::Bit(&[0x08, 0x01]),
        Value::Enum(2),
        Value::Set(0b101),
        Value::Bytes(b"ab"),
        Value::Bytes(&[1]),
        Value::Bytes(b"\0ab\xff"),
        Value::Bytes("😀".as_bytes()),
        Value::Bytes(b"\x80"),
        Value::Geometry(&[0, 0, 0, 0, 1]),
        // A string: type, length, `a"`.
        Value::Json(&[0x0c, 2, b'a', b'"']),
    ];
    let options = CanalOptions::default();
    let expected = serde_json::json!({
        "f": "340282350000000000000000000000000000000", "d": "-0.1", "dd": "-0.05", "y": "1901",
        "da": "1000-01-01", "dt3": "2024-02-29 12:34:56.789", "ti0": "-838:59:59",
        "ts0": "2024-02-29 12:34:56", "bi": "2049", "e": "y\"z", "st": "p,r", "c": "ab",
        "bn": "\u{1}\0\0\0", "vb": "\0abÿ", "tx": "😀", "l1": "€", "g": "\0\0\0\0\u{1}",
        "j": "\"a\\\"\"",
    });
    assert_eq!(data(&version, options, &values), expected);
    let options = CanalOptions {
        enum_as: EnumAs::Index,
        time_zone: UtcOffset::parse("-01:00").unwrap(),
    };
    let indexed = data(&version, options, &values);
    assert_eq!(
        (&indexed["e"], &indexed["st"], &indexed["ts0"]),
        (&"2".into(), &"5".into(), &"2024-02-29 11:34:56".into())
    );
}

#[test]
fn zero_values() {
    let columns = vec![
        members("e", WireType::Enum, &["x"]),
        members("s", WireType::Set, &["x"]),
        column("t", WireType::Timestamp2, 2, 0),
        column("b", WireType::Bit, 1, 0),
    ];
    let zero = Value::Timestamp {
        seconds: 0,
        micros: 0,
    };
    let values = [Value::Enum(0), Value::Set(0), zero, Value::Bit(&[0])];
    let expected = serde_json::json!({"e": "", "s": "", "t": "0000-00-00 00:00:00.00", "b": "0"});
    assert_eq!(
        data(&version(columns, vec![]), CanalOptions::default(), &values),
        expected
    );
}

#[test]
fn types_are_named() {
    let columns = vec![
        unsigned("t", WireType::Tiny),
        members("e", WireType::Enum, &["it's", "b"]),
        column("b", WireType::Blob, 4, 63),
        column("x", WireType::Blob, 1, 8),
        column("d", WireType::Datetime2, 6, 0),
        column("v", WireType::VarChar, 300, 33),
    ];
    let version = version(columns, vec![0, 5]);
    let values = [Value::Null; 6];
    let line = line(&version, CanalOptions::default(), &insert(&values)).unwrap();
    let message: Json = serde_json::from_str(&line).unwrap();
    assert_eq!(message["pkNames"], serde_json::json!(["t", "v"]));
    assert_eq!(
        message["sqlType"],
        serde_json::json!({"t": 5, "e": 12, "b": 2004, "x": 2005, "d": 93, "v": 12})
    );
    assert_eq!(
        message["mysqlType"],
        serde_json::json!({"t": "tinyint unsigned", "e": "enum('it''s','b')", "b": "longblob",
            "x": "tinytext", "d": "datetime(6)", "v": "varchar(100)"})
    );
}

#[test]
fn a_minimal_image_takes_the_rest_from_the_other() {
    let columns = ["id", "a", "b"]
        .map(|name| column(name, WireType::Long, 0, 0))
        .to_vec();
    let version = version(columns, vec![0]);
    let (before, after) = (
        [Value::Int(1), Value::Null, Value::Null],
        [Value::Null, Value::Int(2), Value::Null],
    );
    let change = RowChange {
        kind: RowKind::Update,
        before: Some(Image {
            values: &before,
            present: Presence::Bitmap(&[0b001]),
        }),
        after: Some(Image {
            values: &after,
            present: Presence::Bitmap(&[0b010]),
        }),
        ..insert(&[])
    };
    let line = line(&version, CanalOptions::default(), &change).unwrap();
    assert!(
        line.contains(r#""old":[{}],"data":[{"id":"1","a":"2"}]"#),
        "{line}"
    );
}

#[test]
fn what_cannot_be_told_is_an_error() {
    let error = |column: Column, value: Value<'_>| {
        let version = version(vec![column], vec![]);
        line(&version, CanalOptions::default(), &insert(&[value])).expect_err("refused")
    };
    let unknown = error(column("a", WireType::VarChar, 9, 17), Value::Null);
    assert!(
        unknown.to_string().contains("`a` of `s.t`") && unknown.to_string().contains("17"),
        "{unknown}"
    );
    let swe7 = error(column("a", WireType::VarChar, 9, 10), Value::Null);
    assert!(matches!(
        swe7,
        CodecError::UnsupportedCharset { charset: "swe7", .. }
    ));
    let invalid = error(column("a", WireType::VarChar, 9, 45), Value::Bytes(b"\xff"));
    assert!(matches!(invalid, CodecError::InvalidText { .. }));
    let member = error(members("a", WireType::Enum, &["x"]), Value::Enum(2));
    assert!(matches!(member, CodecError::NoMember { .. }));
    let member = error(members("a", WireType::Set, &["x"]), Value::Set(2));
    assert!(matches!(member, CodecError::NoMember { .. }));
    let json = error(column("a", WireType::Json, 4, 0), Value::Json(&[0x0c, 2, b'a']));
    assert!(matches!(json, CodecError::InvalidText { charset: "json", .. }));
    let version = version(vec![column("a", WireType::Tiny, 0, 0)], vec![]);
    let shape = line(&version, CanalOptions::default(), &insert(&[])).expect_err("refused");
    assert!(matches!(shape, CodecError::RowShape { .. }));
}

#[test]
fn ddl_messages() {
    let event = |kind, sql: &str| DdlEvent {
        kind,
        schema: "s".into(),
        session: Arc::default(),
        sql: sql.into(),
        writes: vec![TableName::new("s", "t")],
        makes: Vec::new(),
        reads: Vec::new(),
        commit_time_ms: 1_764_500_000_100,
    };
    let message = |kind, sql: &str| -> Json {
        let mut out = Vec::new();
        CanalJson::default()
            .write_ddl(&mut out, key(), &event(kind, sql), &TableName::new("c", "t"))
            .unwrap();
        serde_json::from_slice(&out).unwrap()
    };
    let sql = "ALTER TABLE t ADD `x\"` INT /* \n */";
    assert_eq!(
        message(DdlKind::AlterTable, sql),
        serde_json::json!({"id": 0, "database": "c", "table": "t", "pkNames": null, "isDdl": true,
            "type": "ALTER", "es": 1_764_500_000_100_u64, "ts": 1_764_500_000_123_u64, "sql": sql,
            "sqlType": null, "mysqlType": null, "old": null, "data": null,
            "_weir": {"key": key().to_string()}})
    );
    assert_eq!(
        message(DdlKind::Index, "create index i on t (a)")["type"],
        "CINDEX"
    );
    assert_eq!(
        message(DdlKind::Index, "/* x */ Drop index i on t")["type"],
        "DINDEX"
    );
    assert_eq!(message(DdlKind::DropTable, "drop table t")["type"], "ERASE");
    assert_eq!(
        message(DdlKind::CreateDatabase, "create database c")["type"],
        "QUERY"
    );
}

proptest! {
    #[test]
    fn keys_are_printed_as_everywhere(commit_ts: u64, ordinal: u32) {
        let key = OrderKey::new(CommitTs(commit_ts), ordinal);
        prop_assert_eq!(String::from_utf8(hex_key(key).to_vec()), Ok(key.to_string()));
    }

    #[test]
    fn every_text_and_number_survives(name in "\\PC{1,20}", text in any::<String>(), bytes: Vec<u8>, int: i64,
        uint: u64, single in proptest::num::f32::ANY, double in proptest::num::f64::ANY)
    {
        prop_assume!(single.is_finite() && double.is_finite());
        let columns = vec![
            column(&format!("{name}0"), WireType::VarChar, 400, 45),
            column("1", WireType::VarChar, 400, 63),
            column("2", WireType::LongLong, 0, 0),
            unsigned("3", WireType::LongLong),
            column("4", WireType::Float, 4, 0),
            column("5", WireType::Double, 8, 0),
            column("6", WireType::Blob, 4, 54),
        ];
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let values = [
            Value::Bytes(text.as_bytes()),
            Value::Bytes(&bytes),
            Value::Int(int),
            Value::UInt(uint),
            Value::Float(single),
            Value::Double(double),
            Value::Bytes(&utf16),
        ];
        let row = data(&version(columns, vec![]), CanalOptions::default(), &values);
        let field = |name: &str| row[name].as_str().expect("text").to_owned();
        prop_assert_eq!(field(&format!("{name}0")), text.clone());
        let back: Option<Vec<u8>> = field("1").chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        prop_assert_eq!(back, Some(bytes));
        prop_assert_eq!(field("2").parse::<i64>(), Ok(int));
        prop_assert_eq!(field("3").parse::<u64>(), Ok(uint));
        prop_assert_eq!(field("4").parse::<f32>().map(f32::to_bits), Ok(single.to_bits()));
        prop_assert_eq!(field("5").parse::<f64>().map(f64::to_bits), Ok(double.to_bits()));
        prop_assert_eq!(field("6"), text);
    }
}
