//! How one column is read.

use weir_types::{Column, Decimal, Value, WireType};

use super::decimal::packed_bytes;
use super::temporal as t;
use crate::cursor::Cursor;

/// One column's reading, compiled from its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    I8,
    U8,
    I16,
    U16,
    I24,
    U24,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    Decimal {
        precision: u8,
        scale: u8,
        bytes: u8,
    },
    Year,
    Date,
    TimeOld,
    DatetimeOld,
    TimestampOld,
    /// With the bytes of the fraction.
    Time2(u8),
    Datetime2(u8),
    Timestamp2(u8),
    /// One byte of length; at most so many bytes.
    Bytes1(u16),
    /// Two bytes of length; at most so many bytes.
    Bytes2(u16),
    /// With the bytes of the length.
    Blob(u8),
    Json(u8),
    Geometry(u8),
    Vector(u8),
    /// With the bytes of the value.
    Bit(u8),
    Enum(u8),
    Set(u8),
}

impl Op {
    /// The reading of a column; `Err` names a type that cannot be read.
    pub(super) fn new(column: &Column) -> Result<Self, &'static str> {
        let pick = |signed, unsigned| if column.unsigned { unsigned } else { signed };
        let [high, low] = column.meta.to_be_bytes();
        Ok(match column.wire {
            WireType::Tiny => pick(Self::I8, Self::U8),
            WireType::Short => pick(Self::I16, Self::U16),
            WireType::Int24 => pick(Self::I24, Self::U24),
            WireType::Long => pick(Self::I32, Self::U32),
            WireType::LongLong => pick(Self::I64, Self::U64),
            WireType::Float => Self::F32,
            WireType::Double => Self::F64,
            WireType::NewDecimal => Self::Decimal {
                precision: high,
                scale: low,
                bytes: packed_bytes(high, low).ok_or("DECIMAL with a broken precision")?,
            },
            WireType::Year => Self::Year,
            WireType::Date => Self::Date,
            WireType::Time => Self::TimeOld,
            WireType::Datetime => Self::DatetimeOld,
            WireType::Timestamp => Self::TimestampOld,
            WireType::Time2 => Self::Time2(fraction_bytes(low)?),
            WireType::Datetime2 => Self::Datetime2(fraction_bytes(low)?),
            WireType::Timestamp2 => Self::Timestamp2(fraction_bytes(low)?),
            WireType::VarChar | WireType::String if column.meta > 0xff => Self::Bytes2(column.meta),
            WireType::VarChar | WireType::String => Self::Bytes1(column.meta),
            WireType::Blob => Self::Blob(width(low, 4)?),
            WireType::Json => Self::Json(width(low, 4)?),
            WireType::Geometry => Self::Geometry(width(low, 4)?),
            WireType::Vector => Self::Vector(width(low, 4)?),
            WireType::Bit => {
                let bytes = u8::try_from(column.meta.div_ceil(8)).map_err(|_| "BIT of more than 64 bits")?;
                Self::Bit(width(bytes, 8)?)
            }
            WireType::Enum => Self::Enum(width(low, 2)?),
            WireType::Set => Self::Set(width(low, 8)?),
            WireType::VarCharCompressed => return Err("compressed VARCHAR or VARBINARY"),
            WireType::BlobCompressed => return Err("compressed TEXT or BLOB"),
        })
    }

    /// Reads one value; `None` if the bytes run out or cannot be one.
    #[inline]
    pub(super) fn read<'a>(self, c: &mut Cursor<'a>) -> Option<Value<'a>> {
        Some(match self {
            Self::I8 => Value::Int(c.i8()?.into()),
            Self::U8 => Value::UInt(c.u8()?.into()),
            Self::I16 => Value::Int(c.i16()?.into()),
            Self::U16 => Value::UInt(c.u16()?.into()),
            Self::I24 => Value::Int(sign_extend_24(c.u24()?)),
            Self::U24 => Value::UInt(c.u24()?.into()),
            Self::I32 => Value::Int(c.i32()?.into()),
            Self::U32 => Value::UInt(c.u32()?.into()),
            Self::I64 => Value::Int(c.i64()?),
            Self::U64 => Value::UInt(c.u64()?),
            Self::F32 => Value::Float(c.f32()?),
            Self::F64 => Value::Double(c.f64()?),
            Self::Decimal {
                precision,
                scale,
                bytes,
            } => Value::Decimal(Decimal {
                bytes: c.take(bytes.into())?,
                precision,
                scale,
            }),
            Self::Year => Value::Year(match c.u8()? {
                0 => 0,
                year => 1900 + u16::from(year),
            }),
            Self::Date => t::date(c)?,
            Self::TimeOld => t::time_old(c)?,
            Self::DatetimeOld => t::datetime_old(c)?,
            Self::TimestampOld => Value::Timestamp {
                seconds: c.u32()?,
                micros: 0,
            },
            Self::Time2(fraction) => t::time2(c, fraction)?,
            Self::Datetime2(fraction) => t::datetime2(c, fraction)?,
            Self::Timestamp2(fraction) => t::timestamp2(c, fraction)?,
            Self::Bytes1(most) => {
                let length = c.u8()?;
                Value::Bytes(at_most(c.take(length.into())?, most)?)
            }
            Self::Bytes2(most) => {
                let length = c.u16()?;
                Value::Bytes(at_most(c.take(length.into())?, most)?)
            }
            Self::Blob(width) => Value::Bytes(sized(c, width)?),
            Self::Json(width) => Value::Json(sized(c, width)?),
            Self::Geometry(width) => Value::Geometry(sized(c, width)?),
            Self::Vector(width) => Value::Vector(sized(c, width)?),
            Self::Bit(bytes) => Value::Bit(c.take(bytes.into())?),
            Self::Enum(1) => Value::Enum(c.u8()?.into()),
            Self::Enum(_) => Value::Enum(c.u16()?),
            Self::Set(bytes) => Value::Set(c.uint_le(bytes.into())?),
        })
    }
}

/// A value longer than its column is a sign of rows read out of step.
#[inline]
fn at_most(bytes: &[u8], most: u16) -> Option<&[u8]> {
    (bytes.len() <= usize::from(most)).then_some(bytes)
}

#[inline]
fn sized<'a>(c: &mut Cursor<'a>, width: u8) -> Option<&'a [u8]> {
    let length = c.uint_le(width.into())?;
    c.take_u64(length)
}

const fn sign_extend_24(raw: u32) -> i64 {
    ((raw << 8).cast_signed() >> 8) as i64
}

fn width(bytes: u8, most: u8) -> Result<u8, &'static str> {
    if (1..=most).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("a type with a broken length")
    }
}

/// Two digits take a byte.
fn fraction_bytes(digits: u8) -> Result<u8, &'static str> {
    if digits <= 6 {
        Ok(digits.div_ceil(2))
    } else {
        Err("a temporal type with more than 6 fraction digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mediumint_keeps_its_sign() {
        assert_eq!(sign_extend_24(0x80_0000), -8_388_608);
        assert_eq!(sign_extend_24(0xff_ffff), -1);
        assert_eq!(sign_extend_24(0x7f_ffff), 8_388_607);
    }
}
