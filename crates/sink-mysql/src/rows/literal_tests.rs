use weir_types::{Decimal, Flavor, Value, WireType};

use super::*;
use crate::rows::testing as t;
use crate::target::TargetColumn;

fn written(literal: &Literal, value: Value<'_>, place: Place) -> String {
    let mut out = Vec::new();
    literal.write(&value, place, &mut Vec::new(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn plain(value: Value<'_>) -> String {
    written(&Literal::Plain, value, Place::Row)
}

fn text(collation: u16, bytes: &[u8], flavor: Flavor) -> String {
    let column = t::text("c", WireType::VarChar, 80, collation);
    let literal = Literal::new(&column, &t::at_target("c", "varchar"), flavor).unwrap();
    written(&literal, Value::Bytes(bytes), Place::Row)
}

#[test]
fn numbers() {
    assert_eq!(plain(Value::Null), "NULL");
    assert_eq!(plain(Value::Int(i64::MIN)), "-9223372036854775808");
    assert_eq!(plain(Value::UInt(u64::MAX)), "18446744073709551615");
    let decimal = Decimal {
        bytes: &[0x80 | 12, 5],
        precision: 3,
        scale: 1,
    };
    assert_eq!(plain(Value::Decimal(decimal)), "12.5");
    assert_eq!(plain(Value::Bit(&[0xff; 8])), "18446744073709551615");
    assert_eq!(plain(Value::Bit(&[1, 0])), "256");
    assert_eq!(plain(Value::Year(0)), "'0000'");
    assert_eq!(plain(Value::Year(2155)), "2155");
    assert_eq!(plain(Value::Set(u64::MAX)), "18446744073709551615");
}

#[test]
fn floats_are_read_back_by_way_of_a_double() {
    assert_eq!(plain(Value::Float(0.1)), "1e-1");
    // The shortest text is above the largest FLOAT.
    assert_eq!(plain(Value::Float(f32::MAX)), "3.4028234663852886e38");
    assert_eq!(plain(Value::Float(f32::MIN)), "-3.4028234663852886e38");
    assert_eq!(plain(Value::Float(f32::from_bits(1))), "1e-45");
    assert_eq!(plain(Value::Float(-0.0)), "'-0'");
    assert_eq!(
        written(&Literal::Plain, Value::Float(0.1), Place::Condition),
        "1.0000000149011612e-1"
    );
    assert_eq!(
        written(&Literal::Plain, Value::Double(-0.0), Place::Condition),
        "0e0"
    );
    assert_eq!(plain(Value::Double(f64::MAX)), "1.7976931348623157e308");
    assert_eq!(plain(Value::Double(5e-324)), "5e-324");
    assert_eq!(plain(Value::Double(100.0)), "1e2");
    let mut out = Vec::new();
    let none = Literal::Plain.write(&Value::Double(f64::NAN), Place::Row, &mut Vec::new(), &mut out);
    assert!(none.is_err());
}

proptest::proptest! {
    #[test]
    fn any_float_comes_back(bits: u32) {
        let number = f32::from_bits(bits);
        proptest::prop_assume!(number.is_finite() && number != 0.0);
        for place in [Place::Row, Place::Condition] {
            let wide: f64 = written(&Literal::Plain, Value::Float(number), place).parse().unwrap();
            proptest::prop_assert!(wide.abs() <= f64::from(f32::MAX));
            proptest::prop_assert_eq!((wide as f32).to_bits(), bits);
        }
    }
}

#[test]
fn temporal_values() {
    let date = |year, month, day| plain(Value::Date { year, month, day });
    assert_eq!(date(0, 0, 0), "'0000-00-00'");
    assert_eq!(date(2024, 2, 30), "'2024-02-30'");
    let time = |negative, hours, micros| {
        plain(Value::Time {
            negative,
            hours,
            minutes: 0,
            seconds: 9,
            micros,
        })
    };
    assert_eq!(time(true, 0, 1), "'-00:00:09.000001'");
    assert_eq!(time(false, 838, 0), "'838:00:09'");
    let value = Value::DateTime {
        year: 1,
        month: 0,
        day: 3,
        hour: 4,
        minute: 5,
        second: 6,
        micros: 70,
    };
    assert_eq!(plain(value), "'0001-00-03 04:05:06.000070'");
    let timestamp = |seconds, micros| plain(Value::Timestamp { seconds, micros });
    assert_eq!(timestamp(0, 0), "'0000-00-00 00:00:00'");
    assert_eq!(timestamp(1, 0), "'1970-01-01 00:00:01'");
    assert_eq!(timestamp(0, 500_000), "'1970-01-01 00:00:00.500000'");
    assert_eq!(
        timestamp(i32::MAX as u32, 999_999),
        "'2038-01-19 03:14:07.999999'"
    );
}

#[test]
fn text_keeps_its_bytes() {
    use Flavor::{Mariadb, Mysql};
    assert_eq!(text(255, "é'\\\n".as_bytes(), Mysql), "'é\\'\\\\\n'");
    assert_eq!(text(33, "é".as_bytes(), Mysql), "'é'");
    assert_eq!(text(8, b"cafe", Mysql), "'cafe'");
    assert_eq!(text(8, b"caf\xe9", Mysql), "_latin1 x'636166E9'");
    // The second byte is a backslash.
    assert_eq!(text(28, b"\xd5\x5c", Mysql), "_gbk x'D55C'");
    // The server writes `\` as two bytes in sjis.
    assert_eq!(text(13, b"\\", Mysql), "_sjis x'5C'");
    // ASCII bytes that are no ASCII.
    assert_eq!(text(54, b"\x4e\x2d", Mariadb), "_utf16 x'4E2D'");
    assert_eq!(text(10, b"[", Mysql), "_swe7 x'5B'");
    assert_eq!(text(54, b"", Mysql), "''");
    assert_eq!(text(248, b"\x94\x39\xfc\x36", Mysql), "_gb18030 x'9439FC36'");
    assert_eq!(text(248, b"\x94\x39\xfc\x36", Mariadb), "'😀'");
    let column = t::text("c", WireType::VarChar, 80, 3500);
    assert!(Literal::new(&column, &t::at_target("c", "varchar"), Mysql).is_none());
}

#[test]
fn binary_values() {
    let literal = |wire, meta| {
        let column = t::text("c", wire, meta, 63);
        Literal::new(&column, &t::at_target("c", "binary"), Flavor::Mysql).unwrap()
    };
    let value = Value::Bytes(b"a'\\");
    assert_eq!(
        written(&literal(WireType::VarChar, 9), value, Place::Row),
        "_binary'a\\'\\\\'"
    );
    assert_eq!(
        written(&literal(WireType::String, 5), value, Place::Row),
        "_binary'a\\'\\\\\0\0'"
    );
    assert_eq!(
        written(&Literal::Plain, Value::Vector(b"\x01"), Place::Row),
        "_binary'\x01'"
    );
}

fn members(wire: WireType, collation: u16) -> weir_types::Column {
    weir_types::Column {
        members: [&b"a"[..], b"it's", b"c,d"].map(Into::into).to_vec(),
        ..t::text("c", wire, 1, collation)
    }
}

fn enum_at_target(column_type: &str) -> TargetColumn {
    TargetColumn {
        column_type: column_type.to_owned(),
        ..t::at_target("c", column_type.split('(').next().unwrap())
    }
}

#[test]
fn members_are_numbers_only_where_they_mean_the_same() {
    let literal = |target: &str| {
        let target = enum_at_target(target);
        Literal::new(&members(WireType::Enum, 8), &target, Flavor::Mysql).unwrap()
    };
    let same = literal("enum('a','it''s','c,d','more')");
    assert_eq!(written(&same, Value::Enum(2), Place::Row), "2");
    assert!(same.needs_lenience(&Value::Enum(0)) && !same.needs_lenience(&Value::Enum(1)));
    let other = literal("enum('it''s','a','c,d')");
    assert_eq!(written(&other, Value::Enum(2), Place::Row), "'it\\'s'");
    assert_eq!(written(&other, Value::Enum(0), Place::Row), "0");
    assert!(other.needs_lenience(&Value::Enum(0)));
    let text = literal("varchar(20)");
    assert_eq!(written(&text, Value::Enum(0), Place::Row), "''");
    assert!(!text.needs_lenience(&Value::Enum(0)));
    let mut out = Vec::new();
    assert!(
        text.write(&Value::Enum(9), Place::Row, &mut Vec::new(), &mut out)
            .is_err()
    );

    let set = Literal::new(
        &members(WireType::Set, 8),
        &enum_at_target("set('x')"),
        Flavor::Mysql,
    )
    .unwrap();
    assert_eq!(written(&set, Value::Set(0b11), Place::Row), "'a,it\\'s'");
    assert_eq!(written(&set, Value::Set(0), Place::Row), "''");
}

#[test]
fn json_is_text_or_what_makes_the_same_document() {
    let column = t::column("c", WireType::Json, 4);
    let json = |flavor, bytes: &[u8]| {
        let literal = Literal::new(&column, &t::at_target("c", "json"), flavor).unwrap();
        written(&literal, Value::Json(bytes), Place::Row)
    };
    // `"it's"`, then `[1, DECIMAL 1.5]`.
    let string = b"\x0c\x04it's";
    let array: &[u8] = &[
        0x02, 2, 0, 16, 0, 0x05, 1, 0, 0x0f, 10, 0, 246, 4, 2, 1, 0x81, 0x05,
    ];
    assert_eq!(json(Flavor::Mysql, string), "'\"it\\'s\"'");
    assert_eq!(json(Flavor::Mysql, b""), "'null'");
    assert_eq!(json(Flavor::Mysql, array), "JSON_ARRAY(CAST('1' AS JSON),1.5)");
    assert_eq!(json(Flavor::Mariadb, array), "'[1, 1.5]'");
    let decimal: &[u8] = &[0x0f, 246, 4, 2, 1, 0x81, 0x05];
    assert_eq!(
        json(Flavor::Mysql, decimal),
        "JSON_EXTRACT(JSON_ARRAY(1.5),'$[0]')"
    );
}
