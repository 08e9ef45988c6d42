//! One value as a SQL literal.
//!
//! Sessions run with `sql_mode=STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,
//! ALLOW_INVALID_DATES`, `time_zone='+00:00'` and `NAMES utf8mb4`; a literal means the
//! same value under it on MySQL 9 and MariaDB 10.11 and later:
//!
//! * FLOAT and DOUBLE carry an exponent, which makes them approximate literals. A FLOAT is
//!   its shortest text only if the server's double of that text becomes the same FLOAT: the
//!   shortest text of the largest FLOAT is out of its range.
//! * BIT, and ENUM and SET with the members of the source, are numbers. Other ENUMs and
//!   SETs are text.
//! * Text of other charsets than UTF-8 is hexadecimal behind an introducer, unless it is
//!   ASCII and ASCII comes through the server's conversion unchanged.
//! * Binary values, geometries (SRID and WKB) and vectors are `_binary'…'`.
//! * JSON is text. A document of MySQL with a DECIMAL, a date or bytes inside, which text
//!   would turn into a DOUBLE or a string, is an expression of `JSON_OBJECT` and
//!   `JSON_ARRAY` for MySQL ([`super::json`]).

use std::io::Write;

use weir_codec::charset::{self, Charset};
use weir_types::{Column, Flavor, Value, WireType};

use super::json;
use crate::target::TargetColumn;

/// A value that cannot be written, in words.
pub(crate) type Fault = &'static str;

/// Where a literal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Assigned to a column.
    Row,
    /// Compared with a column.
    Condition,
}

/// How text of a charset is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextAs {
    /// UTF-8, as it is.
    Utf8,
    /// As it is if all bytes are ASCII, else behind the introducer of the charset.
    AsciiOr(&'static str),
    /// Always behind the introducer: some ASCII bytes mean something else there.
    Introduced(&'static str),
    /// Converted: the target does not have the charset.
    Converted(Charset),
}

/// How the values of a column are written.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    /// Numbers and temporal values.
    Plain,
    /// CHAR, VARCHAR, TEXT.
    Text(TextAs),
    /// BINARY, VARBINARY, BLOB.
    Binary {
        /// Bytes of a BINARY column: the binlog leaves out the zero bytes at the end.
        pad: usize,
    },
    /// ENUM by text.
    Enum {
        /// The literal of each member.
        members: Box<[Box<[u8]>]>,
        /// The target's column is an ENUM, too.
        to_enum: bool,
    },
    /// JSON to a JSON column of MySQL.
    Json,
    /// SET as members, joined by commas.
    Set(TextAs, Box<[Box<[u8]>]>),
}

impl Literal {
    /// The literal of a source column at a target column; none for an unknown collation.
    pub(crate) fn new(column: &Column, target: &TargetColumn, flavor: Flavor) -> Option<Self> {
        Some(match column.wire {
            WireType::String if column.is_binary() => Self::Binary {
                pad: usize::from(column.meta),
            },
            WireType::VarChar | WireType::VarCharCompressed | WireType::Blob | WireType::BlobCompressed
                if column.is_binary() =>
            {
                Self::Binary { pad: 0 }
            }
            WireType::String
            | WireType::VarChar
            | WireType::VarCharCompressed
            | WireType::Blob
            | WireType::BlobCompressed => Self::Text(text_as(column.collation, flavor)?),
            WireType::Enum | WireType::Set if same_members(column, target) => Self::Plain,
            WireType::Enum => {
                let text = text_as(column.collation, flavor)?;
                let member = |bytes: &std::sync::Arc<[u8]>| {
                    let mut out = Vec::new();
                    text.write(bytes, &mut out).ok()?;
                    Some(out.into_boxed_slice())
                };
                Self::Enum {
                    members: column.members.iter().map(member).collect::<Option<_>>()?,
                    to_enum: target.data_type == "enum",
                }
            }
            WireType::Set => {
                let members = column.members.iter().map(|m| m.as_ref().into()).collect();
                Self::Set(text_as(column.collation, flavor)?, members)
            }
            WireType::Json if target.data_type == "json" && flavor == Flavor::Mysql => Self::Json,
            _ => Self::Plain,
        })
    }

    /// Whether the value can be assigned only without strict mode: the error value of an
    /// ENUM.
    pub(crate) const fn needs_lenience(&self, value: &Value<'_>) -> bool {
        matches!(value, Value::Enum(0)) && !matches!(self, Self::Enum { to_enum: false, .. })
    }

    /// Appends the literal of a value. `scratch` is working room, empty before and after.
    ///
    /// # Errors
    /// The column cannot have such a value; `out` may hold a part of it.
    pub(crate) fn write(
        &self,
        value: &Value<'_>,
        place: Place,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match (value, self) {
            (Value::Null, _) => out.extend_from_slice(b"NULL"),
            (Value::Bytes(bytes), Self::Text(text)) => text.write(bytes, out)?,
            (Value::Bytes(bytes), Self::Binary { pad }) => {
                binary(bytes, pad.saturating_sub(bytes.len()), out);
            }
            (Value::Bytes(bytes) | Value::Geometry(bytes) | Value::Vector(bytes), _) => binary(bytes, 0, out),
            (Value::Enum(index), Self::Enum { members, to_enum }) => match usize::from(*index).checked_sub(1)
            {
                // Compared, a number is the index; assigned, see `needs_lenience`.
                None => out.extend_from_slice(if *to_enum { b"0" } else { b"''" }),
                Some(at) => out.extend_from_slice(members.get(at).ok_or("no such ENUM member")?),
            },
            (Value::Set(bits), Self::Set(text, members)) => set(*bits, *text, members, scratch, out)?,
            (Value::Enum(index), _) => integer(u64::from(*index), out),
            (Value::Set(bits), _) => integer(*bits, out),
            (Value::Json(bytes), Self::Json) => json::document(bytes, scratch, out)?,
            (Value::Json(bytes), _) => json::text(bytes, scratch, out)?,
            _ => plain(value, place, out)?,
        }
        Ok(())
    }
}

/// Charsets whose text the server may write with other bytes when it converts ASCII to
/// them (`CONVERT(_utf8mb4'\\~[' USING …)`), or that are no superset of ASCII.
const NOT_ASCII: &[&str] = &["sjis", "swe7", "ucs2", "utf16", "utf16le", "utf32"];

fn text_as(collation: u16, flavor: Flavor) -> Option<TextAs> {
    let charset = charset::of_collation(collation)?;
    Some(match introducer(charset.name()) {
        Introducer::Utf8 => TextAs::Utf8,
        Introducer::Text(_) if charset.name() == "gb18030" && flavor == Flavor::Mariadb => {
            TextAs::Converted(charset)
        }
        Introducer::Text(name) if NOT_ASCII.contains(&charset.name()) => TextAs::Introduced(name),
        Introducer::Text(name) => TextAs::AsciiOr(name),
    })
}

enum Introducer {
    Utf8,
    Text(&'static str),
}

fn introducer(charset: &'static str) -> Introducer {
    match charset {
        "utf8mb3" | "utf8mb4" => Introducer::Utf8,
        other => Introducer::Text(other),
    }
}

impl TextAs {
    fn write(self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Utf8 => quoted(bytes, out),
            Self::AsciiOr(_) if bytes.is_ascii() => quoted(bytes, out),
            Self::Introduced(_) if bytes.is_empty() => quoted(bytes, out),
            Self::AsciiOr(name) | Self::Introduced(name) => {
                out.push(b'_');
                out.extend_from_slice(name.as_bytes());
                hexadecimal(bytes, out);
            }
            Self::Converted(charset) => {
                let text = charset.to_utf8(bytes).ok_or("it is no text of its charset")?;
                quoted(text.as_bytes(), out);
            }
        }
        Ok(())
    }
}

/// Whether every member of the source stands at its place at the target, so that numbers
/// mean the same. Only what is certain counts: members of UTF-8 or ASCII.
fn same_members(column: &Column, target: &TargetColumn) -> bool {
    let expected = if column.wire == WireType::Enum {
        "enum"
    } else {
        "set"
    };
    if target.data_type != expected {
        return false;
    }
    let utf8 = charset::of_collation(column.collation)
        .is_some_and(|charset| matches!(introducer(charset.name()), Introducer::Utf8));
    let mut members = Members(target.column_type.as_bytes());
    column.members.iter().all(|member| {
        (utf8 || member.is_ascii())
            && members
                .next()
                .is_some_and(|found| found.as_slice() == member.as_ref())
    })
}

/// Members out of a column type: `enum('a','it''s')`.
struct Members<'a>(&'a [u8]);

impl Iterator for Members<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let start = self.0.iter().position(|b| *b == b'\'')?;
        let mut rest = self.0.get(start + 1..)?;
        let mut member = Vec::new();
        loop {
            let (byte, behind) = rest.split_first()?;
            rest = behind;
            match (byte, rest.first()) {
                (b'\'', Some(b'\'')) => {
                    member.push(b'\'');
                    rest = rest.get(1..)?;
                }
                (b'\'', _) => break,
                _ => member.push(*byte),
            }
        }
        self.0 = rest;
        Some(member)
    }
}

/// Text between quotes. The session's charset is UTF-8, whose later bytes are never a
/// quote or a backslash.
pub(super) fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    escaped(bytes, out);
    out.push(b'\'');
}

pub(super) fn escaped(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = bytes.iter().position(|b| matches!(b, b'\'' | b'\\')) {
        let (head, tail) = bytes.split_at(at);
        out.extend_from_slice(head);
        out.push(b'\\');
        out.extend(tail.first());
        bytes = tail.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(bytes);
}

pub(super) fn binary(bytes: &[u8], zeros: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"_binary'");
    escaped(bytes, out);
    out.resize(out.len() + zeros, 0);
    out.push(b'\'');
}

fn hexadecimal(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b" x'");
    out.reserve(bytes.len() * 2 + 1);
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out.push(b'\'');
}

fn integer(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn set(
    bits: u64,
    text: TextAs,
    members: &[Box<[u8]>],
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    scratch.clear();
    let mut rest = bits;
    while rest != 0 {
        let bit = rest.trailing_zeros() as usize;
        let member = members.get(bit).ok_or("no such SET member")?;
        if !scratch.is_empty() {
            scratch.push(b',');
        }
        scratch.extend_from_slice(member);
        rest &= rest - 1;
    }
    let written = text.write(scratch, out);
    scratch.clear();
    written
}

/// Appending to a vector does not fail.
macro_rules! put {
    ($out:expr, $($part:tt)*) => {
        write!($out, $($part)*).map_err(|_| "no room for it")
    };
}

fn plain(value: &Value<'_>, place: Place, out: &mut Vec<u8>) -> Result<(), Fault> {
    match *value {
        Value::Int(number) => integer(number, out),
        Value::UInt(number) => integer(number, out),
        Value::Float(number) => float(number, place, out)?,
        Value::Double(number) => double(number, place, out)?,
        Value::Decimal(decimal) => weir_binlog::write_decimal(&decimal, out),
        Value::Bit(bytes) => {
            let number = bytes.iter().fold(0_u64, |n, byte| (n << 8) | u64::from(*byte));
            integer(number, out);
        }
        // The number 0 compares as the year 2000 with MySQL.
        Value::Year(0) => out.extend_from_slice(b"'0000'"),
        Value::Year(year) => integer(year, out),
        Value::Date { year, month, day } => {
            out.push(b'\'');
            date(year, month, day, out);
            out.push(b'\'');
        }
        Value::Time {
            negative,
            hours,
            minutes,
            seconds,
            micros,
        } => {
            out.extend_from_slice(if negative { b"'-" } else { b"'" });
            if hours >= 100 {
                out.push(b'0' + (hours / 100) as u8);
            }
            clock((hours % 100) as u8, minutes, seconds, micros, out);
        }
        Value::DateTime {
            year,
            month,
            day,
            hour,
            minute,
            second,
            micros,
        } => {
            out.push(b'\'');
            date(year, month, day, out);
            out.push(b' ');
            clock(hour, minute, second, micros, out);
        }
        Value::Timestamp { seconds, micros } => timestamp(seconds, micros, out),
        // Written by the caller.
        Value::Null
        | Value::Bytes(_)
        | Value::Enum(_)
        | Value::Set(_)
        | Value::Json(_)
        | Value::Geometry(_)
        | Value::Vector(_) => return Err("it does not belong to the type"),
    }
    Ok(())
}

/// Two decimal digits; values of the server are below 100.
fn two(number: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'0' + number / 10 % 10, b'0' + number % 10]);
}

fn date(year: u16, month: u8, day: u8, out: &mut Vec<u8>) {
    two((year / 100 % 100) as u8, out);
    two((year % 100) as u8, out);
    out.push(b'-');
    two(month, out);
    out.push(b'-');
    two(day, out);
}

/// Clock, fraction and closing quote.
fn clock(hours: u8, minutes: u8, seconds: u8, micros: u32, out: &mut Vec<u8>) {
    two(hours, out);
    out.push(b':');
    two(minutes, out);
    out.push(b':');
    two(seconds, out);
    if micros != 0 {
        out.push(b'.');
        for unit in [10_000, 100, 1] {
            two((micros / unit % 100) as u8, out);
        }
    }
    out.push(b'\'');
}

fn timestamp(seconds: u32, micros: u32, out: &mut Vec<u8>) {
    const SECONDS_PER_DAY: u32 = 86_400;
    if seconds == 0 && micros == 0 {
        out.extend_from_slice(b"'0000-00-00 00:00:00'");
        return;
    }
    let (year, month, day) = weir_types::calendar::date_from_days((seconds / SECONDS_PER_DAY).into());
    out.push(b'\'');
    // From 1970 to 2106.
    date(year as u16, month, day, out);
    out.push(b' ');
    let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    clock(hour as u8, minute as u8, second as u8, micros, out);
}

fn float(number: f32, place: Place, out: &mut Vec<u8>) -> Result<(), Fault> {
    let wide = f64::from(number);
    if place == Place::Condition || number == 0.0 {
        // The server compares a FLOAT as the DOUBLE that it is.
        return double(wide, place, out);
    }
    let start = out.len();
    put!(out, "{number:e}")?;
    let text = out.get(start..).and_then(|text| std::str::from_utf8(text).ok());
    let read = text.and_then(|text| text.parse::<f64>().ok());
    let same = read.is_some_and(|read| read.abs() <= f64::from(f32::MAX) && read as f32 == number);
    if !same {
        out.truncate(start);
        double(wide, place, out)?;
    }
    Ok(())
}

fn double(number: f64, place: Place, out: &mut Vec<u8>) -> Result<(), Fault> {
    if !number.is_finite() {
        return Err("it is not a finite number");
    }
    if number == 0.0 {
        // MariaDB takes the sign off `-0e0`; a string keeps it.
        let negative = number.is_sign_negative() && place == Place::Row;
        out.extend_from_slice(if negative { b"'-0'" } else { b"0e0" });
        return Ok(());
    }
    put!(out, "{number:e}")
}

#[cfg(test)]
#[path = "literal_tests.rs"]
mod tests;
