//! The types that canal names beside the values: the column type as MySQL writes it and
//! the number of `java.sql.Types`.

use weir_types::{Column, WireType};

use super::EnumAs;
use crate::charset;

/// `java.sql.Types`.
mod sql {
    pub(super) const BIT: i32 = -7;
    pub(super) const TINYINT: i32 = -6;
    pub(super) const BIGINT: i32 = -5;
    pub(super) const CHAR: i32 = 1;
    pub(super) const DECIMAL: i32 = 3;
    pub(super) const INTEGER: i32 = 4;
    pub(super) const SMALLINT: i32 = 5;
    pub(super) const REAL: i32 = 7;
    pub(super) const DOUBLE: i32 = 8;
    pub(super) const VARCHAR: i32 = 12;
    pub(super) const DATE: i32 = 91;
    pub(super) const TIME: i32 = 92;
    pub(super) const TIMESTAMP: i32 = 93;
    pub(super) const BLOB: i32 = 2004;
    pub(super) const CLOB: i32 = 2005;
}

/// Number of `java.sql.Types`. It depends on the column only: an unsigned integer has
/// the type that holds all of its values, whatever the row's.
pub(super) fn sql_type(column: &Column, enum_as: EnumAs) -> i32 {
    let wide = |signed, unsigned| if column.unsigned { unsigned } else { signed };
    let text = |text| if column.is_binary() { sql::BLOB } else { text };
    match column.wire {
        WireType::Tiny => wide(sql::TINYINT, sql::SMALLINT),
        WireType::Short => wide(sql::SMALLINT, sql::INTEGER),
        WireType::Int24 => sql::INTEGER,
        WireType::Long => wide(sql::INTEGER, sql::BIGINT),
        WireType::LongLong => wide(sql::BIGINT, sql::DECIMAL),
        WireType::Float => sql::REAL,
        WireType::Double => sql::DOUBLE,
        WireType::NewDecimal => sql::DECIMAL,
        WireType::Year | WireType::Json | WireType::Vector => sql::VARCHAR,
        WireType::Date => sql::DATE,
        WireType::Time | WireType::Time2 => sql::TIME,
        WireType::Datetime | WireType::Datetime2 | WireType::Timestamp | WireType::Timestamp2 => {
            sql::TIMESTAMP
        }
        WireType::VarChar | WireType::VarCharCompressed => text(sql::VARCHAR),
        WireType::String => text(sql::CHAR),
        WireType::Blob | WireType::BlobCompressed => text(sql::CLOB),
        WireType::Enum => match enum_as {
            EnumAs::Text => sql::VARCHAR,
            EnumAs::Index => sql::INTEGER,
        },
        WireType::Set => match enum_as {
            EnumAs::Text => sql::VARCHAR,
            EnumAs::Index => sql::BIT,
        },
        WireType::Bit => sql::BIT,
        WireType::Geometry => sql::BLOB,
    }
}

/// Characters that a column of `meta` bytes holds.
fn characters(column: &Column) -> u16 {
    let bytes_max = charset::of_collation(column.collation).map_or(1, |charset| charset.bytes_max());
    column.meta / u16::from(bytes_max).max(1)
}

fn blob(column: &Column) -> &'static str {
    match (column.meta, column.is_binary()) {
        (1, true) => "tinyblob",
        (1, false) => "tinytext",
        (3, true) => "mediumblob",
        (3, false) => "mediumtext",
        (4, true) => "longblob",
        (4, false) => "longtext",
        (_, true) => "blob",
        (_, false) => "text",
    }
}

fn geometry(number: u8) -> &'static str {
    match number {
        1 => "point",
        2 => "linestring",
        3 => "polygon",
        4 => "multipoint",
        5 => "multilinestring",
        6 => "multipolygon",
        7 => "geometrycollection",
        _ => "geometry",
    }
}

fn members(keyword: &str, column: &Column) -> String {
    let charset = charset::of_collation(column.collation);
    let mut text = format!("{keyword}(");
    for (i, member) in column.members.iter().enumerate() {
        let member = charset.and_then(|charset| charset.to_utf8(member));
        let separator = if i == 0 { "'" } else { ",'" };
        text.push_str(separator);
        text.push_str(&member.unwrap_or_default().replace('\'', "''"));
        text.push('\'');
    }
    text.push(')');
    text
}

/// The type as far as the binlog tells it: display widths and default charsets are not
/// in there.
pub(super) fn mysql_type(column: &Column) -> String {
    let numeric = |name: &str| {
        let unsigned = if column.unsigned { " unsigned" } else { "" };
        format!("{name}{unsigned}")
    };
    let temporal = |name: &str| match column.meta {
        0 => name.to_owned(),
        digits => format!("{name}({digits})"),
    };
    match column.wire {
        WireType::Tiny => numeric("tinyint"),
        WireType::Short => numeric("smallint"),
        WireType::Int24 => numeric("mediumint"),
        WireType::Long => numeric("int"),
        WireType::LongLong => numeric("bigint"),
        WireType::Float => numeric("float"),
        WireType::Double => numeric("double"),
        WireType::NewDecimal => {
            let name = format!("decimal({},{})", column.meta >> 8, column.meta & 0xff);
            numeric(&name)
        }
        WireType::Year => "year".to_owned(),
        WireType::Date => "date".to_owned(),
        WireType::Time | WireType::Time2 => temporal("time"),
        WireType::Datetime | WireType::Datetime2 => temporal("datetime"),
        WireType::Timestamp | WireType::Timestamp2 => temporal("timestamp"),
        WireType::VarChar | WireType::VarCharCompressed if column.is_binary() => {
            format!("varbinary({})", column.meta)
        }
        WireType::VarChar | WireType::VarCharCompressed => format!("varchar({})", characters(column)),
        WireType::String if column.is_binary() => format!("binary({})", column.meta),
        WireType::String => format!("char({})", characters(column)),
        WireType::Blob | WireType::BlobCompressed => blob(column).to_owned(),
        WireType::Enum => members("enum", column),
        WireType::Set => members("set", column),
        WireType::Bit => format!("bit({})", column.meta),
        WireType::Json => "json".to_owned(),
        WireType::Geometry => geometry(column.geometry).to_owned(),
        WireType::Vector => "vector".to_owned(),
    }
}
