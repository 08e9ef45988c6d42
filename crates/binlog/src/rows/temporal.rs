//! Temporal values: the packed forms of MySQL 5.6 and later, and the older ones (MySQL
//! internals manual, "Date and Time Data Type Representation").

use weir_types::Value;

use crate::cursor::Cursor;

const MICROS_PER_SECOND: u32 = 1_000_000;

/// Microseconds of a fraction in so many bytes, two digits each; `None` above 999999.
#[inline]
fn micros(raw: u64, bytes: u8) -> Option<u32> {
    let unit = match bytes {
        0 => 0,
        1 => 10_000,
        2 => 100,
        _ => 1,
    };
    let micros = u32::try_from(raw).ok()?.checked_mul(unit)?;
    (micros < MICROS_PER_SECOND).then_some(micros)
}

/// Three bytes: 15 bits year, 4 month, 5 day.
#[inline]
pub(super) fn date<'a>(c: &mut Cursor<'_>) -> Option<Value<'a>> {
    let raw = c.u24()?;
    Some(Value::Date {
        year: u16::try_from(raw >> 9).ok()?,
        month: ((raw >> 5) & 0x0f) as u8,
        day: (raw & 0x1f) as u8,
    })
}

/// Three bytes, signed: decimal digits `hhmmss`.
pub(super) fn time_old<'a>(c: &mut Cursor<'_>) -> Option<Value<'a>> {
    let raw = c.u24()?;
    let signed = (raw << 8).cast_signed() >> 8;
    let digits = signed.unsigned_abs();
    clock(signed < 0, digits / 10_000, digits / 100 % 100, digits % 100, 0)
}

/// Eight bytes: decimal digits `yyyymmddhhmmss`.
pub(super) fn datetime_old<'a>(c: &mut Cursor<'_>) -> Option<Value<'a>> {
    let raw = c.u64()?;
    let (day_part, time_part) = (raw / 1_000_000, raw % 1_000_000);
    calendar(
        day_part / 10_000,
        day_part / 100 % 100,
        day_part % 100,
        (time_part / 10_000, time_part / 100 % 100, time_part % 100),
        0,
    )
}

/// Three bytes and the fraction, big-endian, plus an offset that makes the sign: 1 bit
/// sign, 1 unused, 10 hours, 6 minutes, 6 seconds. Integer and fraction are one number
/// in two's complement, so that a value below zero is negated as a whole.
#[inline]
pub(super) fn time2<'a>(c: &mut Cursor<'_>, fraction: u8) -> Option<Value<'a>> {
    let bits = u32::from(fraction) * 8;
    let raw = c.uint_be(3 + usize::from(fraction))?.cast_signed();
    let signed = raw - (0x80_0000_i64 << bits);
    let magnitude = signed.unsigned_abs();
    let whole = magnitude >> bits;
    let micros = micros(magnitude & ((1 << bits) - 1), fraction)?;
    clock(
        signed < 0,
        ((whole >> 12) & 0x3ff) as u32,
        ((whole >> 6) & 0x3f) as u32,
        (whole & 0x3f) as u32,
        micros,
    )
}

#[inline]
fn clock<'a>(negative: bool, hours: u32, minutes: u32, seconds: u32, micros: u32) -> Option<Value<'a>> {
    if minutes > 59 || seconds > 59 {
        return None;
    }
    Some(Value::Time {
        negative,
        hours: u16::try_from(hours).ok()?,
        minutes: minutes as u8,
        seconds: seconds as u8,
        micros,
    })
}

/// Five bytes and the fraction, big-endian, plus an offset: 1 bit sign (never below
/// zero), 17 year × 13 + month, 5 day, 5 hour, 6 minute, 6 second.
#[inline]
pub(super) fn datetime2<'a>(c: &mut Cursor<'_>, fraction: u8) -> Option<Value<'a>> {
    let whole = c.uint_be(5)?.checked_sub(0x80_0000_0000)?;
    let fraction_raw = c.uint_be(fraction.into())?;
    let (days, time) = (whole >> 17, whole & 0x1_ffff);
    let months = days >> 5;
    calendar(
        months / 13,
        months % 13,
        days & 0x1f,
        (time >> 12, (time >> 6) & 0x3f, time & 0x3f),
        micros(fraction_raw, fraction)?,
    )
}

#[inline]
fn calendar<'a>(
    year: u64,
    month: u64,
    day: u64,
    (hour, minute, second): (u64, u64, u64),
    micros: u32,
) -> Option<Value<'a>> {
    if year > 9999 || month > 12 || day > 31 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // In range by the line above.
    Some(Value::DateTime {
        year: year as u16,
        month: month as u8,
        day: day as u8,
        hour: hour as u8,
        minute: minute as u8,
        second: second as u8,
        micros,
    })
}

/// Four bytes big-endian, and the fraction.
#[inline]
pub(super) fn timestamp2<'a>(c: &mut Cursor<'_>, fraction: u8) -> Option<Value<'a>> {
    let seconds = c.u32_be()?;
    let raw = c.uint_be(fraction.into())?;
    Some(Value::Timestamp {
        seconds,
        micros: micros(raw, fraction)?,
    })
}

#[cfg(test)]
#[path = "temporal_tests.rs"]
mod tests;
