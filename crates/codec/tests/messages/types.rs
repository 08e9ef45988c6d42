//! Limits of each type, written out by hand.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use weir_codec::canal::{Image, Presence, RowChange};
use weir_codec::{CanalJson, TableEncoder};
use weir_types::value::Decimal;
use weir_types::{Column, CommitTs, Flavor, OrderKey, RowKind, TableName, TableVersion, Value, WireType};

const LATIN1: u16 = 8;
const GBK: u16 = 28;
pub(crate) const UTF8MB4: u16 = 45;
const BINARY: u16 = 63;

pub(crate) fn column(wire: WireType, meta: u16, collation: u16) -> Column {
    Column {
        name: "c".into(),
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

fn unsigned(wire: WireType) -> Column {
    Column {
        unsigned: true,
        ..column(wire, 0, 0)
    }
}

fn members(wire: WireType, members: &[&str]) -> Column {
    Column {
        members: members.iter().map(|m| Arc::from(m.as_bytes())).collect(),
        ..column(wire, 1, UTF8MB4)
    }
}

pub(crate) fn table(columns: Vec<Column>, primary_key: Vec<u16>) -> TableVersion {
    let named = columns.into_iter().enumerate().map(|(i, column)| Column {
        name: format!("c{i}").as_str().into(),
        ..column
    });
    TableVersion {
        name: TableName::new("s", "t"),
        flavor: Flavor::Mysql,
        columns: named.collect(),
        primary_key,
    }
}

pub(crate) fn encoder(version: &TableVersion) -> TableEncoder {
    let encoder = CanalJson::default().table(version, &version.name);
    encoder.expect("encoder")
}

pub(crate) fn image<'r, 'a>(values: &'r [Value<'a>]) -> Option<Image<'r, 'a>> {
    Some(Image {
        values,
        present: Presence::All,
    })
}

pub(crate) fn update<'r, 'a>(before: &'r [Value<'a>], after: &'r [Value<'a>]) -> RowChange<'r, 'a> {
    RowChange {
        key: OrderKey::new(CommitTs::from_millis(1_764_500_000_123), 7),
        row: 2,
        kind: RowKind::Update,
        before: image(before),
        after: image(after),
    }
}

pub(crate) fn insert<'r, 'a>(values: &'r [Value<'a>]) -> RowChange<'r, 'a> {
    RowChange {
        kind: RowKind::Insert,
        before: None,
        ..update(&[], values)
    }
}

pub(crate) fn message(encoder: &mut TableEncoder, change: &RowChange<'_, '_>) -> Json {
    let mut out = Vec::new();
    encoder.write_message(&mut out, change).expect("message");
    serde_json::from_slice(&out).expect("valid JSON")
}

const fn date(year: u16, month: u8, day: u8) -> Value<'static> {
    Value::Date { year, month, day }
}

const fn datetime(date: (u16, u8, u8), (hour, minute, second): (u8, u8, u8), micros: u32) -> Value<'static> {
    let (year, month, day) = date;
    Value::DateTime {
        year,
        month,
        day,
        hour,
        minute,
        second,
        micros,
    }
}

const fn time(negative: bool, hours: u16, minutes: u8, seconds: u8, micros: u32) -> Value<'static> {
    Value::Time {
        negative,
        hours,
        minutes,
        seconds,
        micros,
    }
}

const fn timestamp(seconds: u32, micros: u32) -> Value<'static> {
    Value::Timestamp { seconds, micros }
}

type Case = (Column, i32, &'static str, Vec<(Value<'static>, &'static str)>);

fn numbers() -> Vec<Case> {
    use Value::{Double, Float, Int, UInt};
    use WireType as W;
    let decimal = |bytes| {
        Value::Decimal(Decimal {
            bytes,
            precision: 5,
            scale: 2,
        })
    };
    let signed = |wire| column(wire, 0, 0);
    vec![
        (
            signed(W::Tiny),
            -6,
            "tinyint",
            vec![(Int(-128), "-128"), (Int(127), "127")],
        ),
        (
            unsigned(W::Tiny),
            5,
            "tinyint unsigned",
            vec![(UInt(0), "0"), (UInt(255), "255")],
        ),
        (signed(W::Short), 5, "smallint", vec![(Int(-32768), "-32768")]),
        (
            unsigned(W::Short),
            4,
            "smallint unsigned",
            vec![(UInt(65535), "65535")],
        ),
        (
            signed(W::Int24),
            4,
            "mediumint",
            vec![(Int(-8_388_608), "-8388608")],
        ),
        (
            unsigned(W::Int24),
            4,
            "mediumint unsigned",
            vec![(UInt(16_777_215), "16777215")],
        ),
        (
            signed(W::Long),
            4,
            "int",
            vec![(Int(-2_147_483_648), "-2147483648")],
        ),
        (
            unsigned(W::Long),
            -5,
            "int unsigned",
            vec![(UInt(4_294_967_295), "4294967295")],
        ),
        (
            signed(W::LongLong),
            -5,
            "bigint",
            vec![
                (Int(i64::MIN), "-9223372036854775808"),
                (Int(i64::MAX), "9223372036854775807"),
            ],
        ),
        (
            unsigned(W::LongLong),
            3,
            "bigint unsigned",
            vec![(UInt(u64::MAX), "18446744073709551615")],
        ),
        (
            column(W::Float, 4, 0),
            7,
            "float",
            vec![
                (Float(0.1), "0.1"),
                (Float(-0.0), "-0"),
                (Float(16_777_216.0), "16777216"),
            ],
        ),
        (
            column(W::Double, 8, 0),
            8,
            "double",
            vec![(Double(1e15), "1000000000000000"), (Double(2.5e-7), "0.00000025")],
        ),
        (
            column(W::NewDecimal, (5 << 8) | 2, 0),
            3,
            "decimal(5,2)",
            vec![
                (decimal(&[0x83, 0xe7, 0x63]), "999.99"),
                (decimal(&[0x80, 0, 0]), "0.00"),
                (decimal(&[0x7f, 0xff, 0xfa]), "-0.05"),
            ],
        ),
        (
            column(W::Bit, 64, 0),
            -7,
            "bit(64)",
            vec![
                (Value::Bit(&[0xff; 8]), "18446744073709551615"),
                (Value::Bit(&[0; 8]), "0"),
            ],
        ),
        (
            signed(W::Year),
            12,
            "year",
            vec![(Value::Year(0), "0000"), (Value::Year(2155), "2155")],
        ),
    ]
}

fn temporal() -> Vec<Case> {
    use WireType as W;
    vec![
        (
            column(W::Date, 0, 0),
            91,
            "date",
            vec![
                (date(0, 0, 0), "0000-00-00"),
                (date(2024, 0, 0), "2024-00-00"),
                (date(9999, 12, 31), "9999-12-31"),
            ],
        ),
        (
            column(W::Time2, 6, 0),
            92,
            "time(6)",
            vec![
                (time(true, 838, 59, 58, 999_999), "-838:59:58.999999"),
                (time(false, 0, 0, 0, 0), "00:00:00.000000"),
            ],
        ),
        (
            column(W::Time2, 0, 0),
            92,
            "time",
            vec![(time(false, 7, 8, 9, 0), "07:08:09")],
        ),
        (
            column(W::Datetime2, 6, 0),
            93,
            "datetime(6)",
            vec![
                (
                    datetime((9999, 12, 31), (23, 59, 59), 999_999),
                    "9999-12-31 23:59:59.999999",
                ),
                (datetime((0, 0, 0), (0, 0, 0), 0), "0000-00-00 00:00:00.000000"),
            ],
        ),
        (
            column(W::Datetime2, 1, 0),
            93,
            "datetime(1)",
            vec![(
                datetime((1000, 1, 1), (0, 0, 0), 900_000),
                "1000-01-01 00:00:00.9",
            )],
        ),
        (
            column(W::Timestamp2, 3, 0),
            93,
            "timestamp(3)",
            vec![
                (timestamp(0, 0), "0000-00-00 00:00:00.000"),
                (timestamp(1, 0), "1970-01-01 00:00:01.000"),
                (timestamp(2_147_483_647, 999_000), "2038-01-19 03:14:07.999"),
            ],
        ),
    ]
}

fn texts() -> Vec<Case> {
    use Value::Bytes;
    use WireType as W;
    vec![
        (
            column(W::VarChar, 80, UTF8MB4),
            12,
            "varchar(20)",
            vec![
                (Bytes(b""), ""),
                (
                    Bytes("\u{0}\u{1f}\t\"\\/\u{7f}\u{2028}😀".as_bytes()),
                    "\u{0}\u{1f}\t\"\\/\u{7f}\u{2028}😀",
                ),
                // Something to escape at each place of a word, and behind it.
                (
                    Bytes(b"0123456\"89abcde\\ghijklm\n"),
                    "0123456\"89abcde\\ghijklm\n",
                ),
            ],
        ),
        (
            column(W::String, 5, LATIN1),
            1,
            "char(5)",
            vec![(Bytes(b"na\xefve"), "naïve")],
        ),
        (
            column(W::Blob, 2, GBK),
            2005,
            "text",
            vec![(Bytes(b"\xd6\xd0\xce\xc4"), "中文")],
        ),
        (
            column(W::String, 4, BINARY),
            2004,
            "binary(4)",
            vec![(Bytes(&[0xff, 1]), "ÿ\u{1}\0\0")],
        ),
        (
            column(W::VarChar, 4, BINARY),
            2004,
            "varbinary(4)",
            vec![(Bytes(&[0x7f, 0x80]), "\u{7f}\u{80}"), (Bytes(b""), "")],
        ),
        (
            column(W::Blob, 2, BINARY),
            2004,
            "blob",
            vec![(Bytes(b"\0\"\\"), "\0\"\\")],
        ),
        (
            members(W::Enum, &["a,b", "it's"]),
            12,
            "enum('a,b','it''s')",
            vec![
                (Value::Enum(0), ""),
                (Value::Enum(1), "a,b"),
                (Value::Enum(2), "it's"),
            ],
        ),
        (
            members(W::Set, &["x", "y"]),
            12,
            "set('x','y')",
            vec![(Value::Set(0), ""), (Value::Set(3), "x,y")],
        ),
        // The object `{"a":null}`: its size, the place and length of the key, the literal.
        (
            column(W::Json, 4, 0),
            12,
            "json",
            vec![(
                Value::Json(&[0, 1, 0, 12, 0, 11, 0, 1, 0, 4, 0, 0, b'a']),
                "{\"a\": null}",
            )],
        ),
        (
            column(W::Geometry, 4, 0),
            2004,
            "geometry",
            vec![(Value::Geometry(&[0xe6, 0x10, 0, 0, 1]), "æ\u{10}\0\0\u{1}")],
        ),
        (
            column(W::Vector, 4, 0),
            12,
            "vector",
            vec![(Value::Vector(&[0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0]), "[1.5e0,-2e0]")],
        ),
    ]
}

#[test]
fn limits_of_each_type() {
    let mut lines = Vec::new();
    for (column, sql_type, mysql_type, values) in numbers().into_iter().chain(temporal()).chain(texts()) {
        let mut encoder = encoder(&table(vec![column], vec![]));
        for (value, expected) in values {
            let json = message(&mut encoder, &insert(&[value]));
            assert_eq!(json["data"], json!([{"c0": expected}]), "{mysql_type}");
            assert_eq!(json["sqlType"], json!({"c0": sql_type}), "{mysql_type}");
            assert_eq!(json["mysqlType"], json!({"c0": mysql_type}));
            encoder
                .write_message(&mut lines, &insert(&[value]))
                .expect("message");
            lines.push(b'\n');
        }
        let null = message(&mut encoder, &insert(&[Value::Null]));
        assert_eq!(null["data"], json!([{"c0": null}]), "{mysql_type}");
    }
    crate::compare("limits.txt", &lines);
}
