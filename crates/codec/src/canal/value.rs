//! One value as canal-json prints it.

use std::io::Write;

use weir_types::{Column, TableVersion, Value, WireType};

use super::{CanalOptions, EnumAs};
use crate::charset::{self, Charset, TextError};
use crate::error::{CodecError, Result};
use crate::{escape, text};

/// How the bytes of a column become characters.
#[derive(Debug)]
enum Shape {
    /// Numbers, temporal values, JSON: the value says it all.
    Plain,
    /// Text of a charset.
    Text(Charset),
    /// Bytes; BINARY(n) is padded with zero bytes to `pad`, since the binlog leaves
    /// them out.
    Binary { pad: usize },
    /// ENUM and SET: the members as the inside of JSON strings.
    Members(Vec<Box<[u8]>>),
}

/// What does not change from row to row.
#[derive(Debug)]
pub(super) struct ColumnPlan {
    /// `"name":`.
    pub(super) key: Box<[u8]>,
    name: Box<str>,
    table: Box<str>,
    shape: Shape,
    fraction: u16,
}

fn text_charset(table: &TableVersion, column: &Column) -> Result<Charset> {
    let found = charset::of_collation(column.collation);
    let charset = found.ok_or_else(|| CodecError::UnknownCollation {
        table: table.name.to_string(),
        column: column.name.to_string(),
        collation: column.collation,
    })?;
    if charset.is_supported() {
        Ok(charset)
    } else {
        Err(CodecError::UnsupportedCharset {
            table: table.name.to_string(),
            column: column.name.to_string(),
            charset: charset.name(),
        })
    }
}

fn shape(table: &TableVersion, column: &Column) -> Result<Shape> {
    Ok(match column.wire {
        WireType::String if column.is_binary() => Shape::Binary {
            pad: usize::from(column.meta),
        },
        WireType::VarChar | WireType::VarCharCompressed | WireType::Blob | WireType::BlobCompressed
            if column.is_binary() =>
        {
            Shape::Binary { pad: 0 }
        }
        WireType::String
        | WireType::VarChar
        | WireType::VarCharCompressed
        | WireType::Blob
        | WireType::BlobCompressed => Shape::Text(text_charset(table, column)?),
        WireType::Enum | WireType::Set => {
            let charset = text_charset(table, column)?;
            let mut members = Vec::with_capacity(column.members.len());
            for member in &column.members {
                let mut escaped = Vec::new();
                charset
                    .write_escaped(&mut escaped, member)
                    .map_err(|error| match error {
                        TextError::Output(error) => CodecError::Output(error),
                        TextError::Invalid => CodecError::InvalidText {
                            table: table.name.to_string(),
                            column: column.name.to_string(),
                            charset: charset.name(),
                        },
                    })?;
                members.push(escaped.into_boxed_slice());
            }
            Shape::Members(members)
        }
        _ => Shape::Plain,
    })
}

fn fraction_digits(column: &Column) -> u16 {
    match column.wire {
        WireType::Time
        | WireType::Time2
        | WireType::Datetime
        | WireType::Datetime2
        | WireType::Timestamp
        | WireType::Timestamp2 => column.meta,
        _ => 0,
    }
}

impl ColumnPlan {
    pub(super) fn new(table: &TableVersion, column: &Column) -> Result<Self> {
        let mut key = Vec::new();
        escape::write_string(&mut key, &column.name)?;
        key.push(b':');
        Ok(Self {
            key: key.into_boxed_slice(),
            name: column.name.as_ref().into(),
            table: table.name.to_string().into_boxed_str(),
            shape: shape(table, column)?,
            fraction: fraction_digits(column),
        })
    }

    #[cold]
    fn text_error(&self, error: TextError, charset: &'static str) -> CodecError {
        match error {
            TextError::Output(error) => CodecError::Output(error),
            TextError::Invalid => CodecError::InvalidText {
                table: self.table.to_string(),
                column: self.name.to_string(),
                charset,
            },
        }
    }

    #[cold]
    fn no_member(&self) -> CodecError {
        CodecError::NoMember {
            table: self.table.to_string(),
            column: self.name.to_string(),
        }
    }

    /// Writes `null` or the value as a JSON string. `scratch` is working room.
    pub(super) fn write<W: Write>(
        &self,
        out: &mut W,
        value: &Value<'_>,
        options: &CanalOptions,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        if matches!(value, Value::Null) {
            return Ok(out.write_all(b"null")?);
        }
        out.write_all(b"\"")?;
        match *value {
            Value::Null => {}
            Value::Int(number) => out.write_all(itoa::Buffer::new().format(number).as_bytes())?,
            Value::UInt(number) => out.write_all(itoa::Buffer::new().format(number).as_bytes())?,
            // Shortest digits that give the same number again, without exponent.
            Value::Float(number) => write!(out, "{number}")?,
            Value::Double(number) => write!(out, "{number}")?,
            Value::Decimal(decimal) => {
                scratch.clear();
                weir_binlog::write_decimal(&decimal, scratch);
                out.write_all(scratch)?;
            }
            Value::Bytes(bytes) => self.write_bytes(out, bytes)?,
            Value::Bit(bytes) => {
                out.write_all(itoa::Buffer::new().format(text::bit_number(bytes)).as_bytes())?;
            }
            Value::Enum(index) => self.write_enum(out, index, options.enum_as)?,
            Value::Set(bits) => self.write_set(out, bits, options.enum_as)?,
            Value::Json(bytes) => {
                write_json(out, bytes, scratch).map_err(|error| self.text_error(error, "json"))?;
            }
            Value::Geometry(bytes) => escape::write_latin1(out, bytes)?,
            Value::Vector(bytes) => text::write_vector(out, bytes)?,
            Value::Date { .. }
            | Value::Time { .. }
            | Value::DateTime { .. }
            | Value::Timestamp { .. }
            | Value::Year(_) => self.write_temporal(out, value, options)?,
        }
        Ok(out.write_all(b"\"")?)
    }

    fn write_temporal<W: Write>(&self, out: &mut W, value: &Value<'_>, options: &CanalOptions) -> Result<()> {
        match *value {
            Value::Date { year, month, day } => text::write_date(out, year, month, day)?,
            Value::Year(year) => text::write_year(out, year)?,
            Value::Timestamp { seconds, micros } => {
                text::write_timestamp(out, seconds, micros, options.time_zone, self.fraction)?;
            }
            Value::Time {
                negative,
                hours,
                minutes,
                seconds,
                micros,
            } => {
                let clock = text::Clock {
                    hours,
                    minutes,
                    seconds,
                    micros,
                };
                text::write_time(out, negative, &clock, self.fraction)?;
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
                let clock = text::Clock {
                    hours: u16::from(hour),
                    minutes: minute,
                    seconds: second,
                    micros,
                };
                text::write_datetime(out, (year, month, day), &clock, self.fraction)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn write_bytes<W: Write>(&self, out: &mut W, bytes: &[u8]) -> Result<()> {
        match &self.shape {
            Shape::Text(charset) => {
                let written = charset.write_escaped(out, bytes);
                written.map_err(|error| self.text_error(error, charset.name()))
            }
            Shape::Binary { pad } => {
                escape::write_latin1(out, bytes)?;
                for _ in bytes.len()..*pad {
                    out.write_all(b"\\u0000")?;
                }
                Ok(())
            }
            Shape::Plain | Shape::Members(_) => Ok(escape::write_latin1(out, bytes)?),
        }
    }

    fn write_enum<W: Write>(&self, out: &mut W, index: u16, enum_as: EnumAs) -> Result<()> {
        match (enum_as, &self.shape) {
            // The error value of MySQL: index 0, text empty.
            (EnumAs::Text, _) if index == 0 => Ok(()),
            (EnumAs::Text, Shape::Members(members)) => {
                let member = members
                    .get(usize::from(index) - 1)
                    .ok_or_else(|| self.no_member())?;
                Ok(out.write_all(member)?)
            }
            _ => Ok(out.write_all(itoa::Buffer::new().format(index).as_bytes())?),
        }
    }

    fn write_set<W: Write>(&self, out: &mut W, bits: u64, enum_as: EnumAs) -> Result<()> {
        let (EnumAs::Text, Shape::Members(members)) = (enum_as, &self.shape) else {
            return Ok(out.write_all(itoa::Buffer::new().format(bits).as_bytes())?);
        };
        let mut separator: &[u8] = b"";
        let mut rest = bits;
        while rest != 0 {
            let bit = rest.trailing_zeros() as usize;
            let member = members.get(bit).ok_or_else(|| self.no_member())?;
            out.write_all(separator)?;
            out.write_all(member)?;
            separator = b",";
            rest &= rest - 1;
        }
        Ok(())
    }
}

/// Writes JSON in pieces: a large document is not held as text.
fn write_json<W: Write>(
    out: &mut W,
    bytes: &[u8],
    scratch: &mut Vec<u8>,
) -> std::result::Result<(), TextError> {
    let mut failed = None;
    let mut piece = |text: &[u8]| {
        if failed.is_none() {
            failed = match std::str::from_utf8(text) {
                Ok(text) => escape::write_utf8(out, text.as_bytes())
                    .err()
                    .map(TextError::Output),
                Err(_) => Some(TextError::Invalid),
            };
        }
    };
    // Malformed JSON is no text either.
    let written = weir_binlog::json::write_text_in_pieces(bytes, scratch, &mut piece);
    match failed {
        Some(error) => Err(error),
        None => written.map_err(|_| TextError::Invalid),
    }
}
