//! Scalars inside MySQL's binary JSON.

use std::fmt::{Display, Write as _};

use weir_types::Decimal;

use crate::cursor::Cursor;
use crate::rows::write_decimal;

/// Most bytes of a variable-length size: five times seven bits.
const LENGTH_BYTES_MAX: usize = 5;
/// Powers of ten between which the server prints a double without exponent (`DBL_DIG`).
const PLAIN_POINT: std::ops::RangeInclusive<i32> = -14..=15;

/// Field types of opaque values.
pub(crate) const TYPE_TIMESTAMP: u8 = 7;
pub(crate) const TYPE_DATE: u8 = 10;
pub(crate) const TYPE_TIME: u8 = 11;
pub(crate) const TYPE_DATETIME: u8 = 12;
pub(crate) const TYPE_VARCHAR: u8 = 15;
pub(crate) const TYPE_NEWDECIMAL: u8 = 246;

pub(crate) fn write_display(value: impl Display, out: &mut Vec<u8>) {
    let mut adapter = Adapter(out);
    // The adapter never fails.
    write!(adapter, "{value}").unwrap_or(());
}

struct Adapter<'o>(&'o mut Vec<u8>);

impl std::fmt::Write for Adapter<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Seven bits a byte, lowest first; the highest bit says that more follow.
pub(crate) fn variable_length(c: &mut Cursor<'_>) -> Option<usize> {
    let mut length = 0_u64;
    for at in 0..LENGTH_BYTES_MAX {
        let byte = c.u8()?;
        length |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return usize::try_from(length).ok();
        }
    }
    None
}

/// A double as the server prints it in JSON: shortest digits that read back the same,
/// with `.0` if it is whole, with an exponent beyond 15 digits on either side.
pub(crate) fn write_double(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() {
        // The server stores no such value.
        out.extend_from_slice(b"null");
        return;
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !PLAIN_POINT.contains(&(exponent + 1)) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    // `Display` prints no exponent and the shortest digits, too.
    write_display(value, out);
    if i32::try_from(mantissa.bytes().filter(u8::is_ascii_digit).count()).unwrap_or(0) <= exponent + 1
        && exponent >= 0
        || value == 0.0
    {
        out.extend_from_slice(b".0");
    }
}

/// The inside of a string with JSON's escapes; other bytes are utf8mb4 and stay as they
/// are.
pub(crate) fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut plain_from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: Option<&[u8]> = match byte {
            b'"' => Some(b"\\\""),
            b'\\' => Some(b"\\\\"),
            0x08 => Some(b"\\b"),
            0x09 => Some(b"\\t"),
            0x0a => Some(b"\\n"),
            0x0c => Some(b"\\f"),
            0x0d => Some(b"\\r"),
            0x00..=0x1f => None,
            _ => continue,
        };
        out.extend_from_slice(bytes.get(plain_from..at).unwrap_or_default());
        plain_from = at + 1;
        match escape {
            Some(escape) => out.extend_from_slice(escape),
            None => write_display(format_args!("\\u{byte:04x}"), out),
        }
    }
    out.extend_from_slice(bytes.get(plain_from..).unwrap_or_default());
}

/// A value of an SQL type without JSON counterpart.
pub(crate) fn write_opaque(field_type: u8, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match field_type {
        TYPE_NEWDECIMAL => write_packed_decimal(bytes, out),
        TYPE_DATE | TYPE_DATETIME | TYPE_TIMESTAMP => write_packed_datetime(field_type, bytes, out),
        TYPE_TIME => write_packed_time(bytes, out),
        _ => {
            write_display(format_args!("\"base64:type{field_type}:"), out);
            write_base64(bytes, out);
            out.push(b'"');
            Some(())
        }
    }
}

/// Precision, scale, packed digits.
fn write_packed_decimal(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut c = Cursor::new(bytes);
    let (precision, scale) = (c.u8()?, c.u8()?);
    let expected = crate::rows::packed_bytes(precision, scale)?;
    if c.len() != usize::from(expected) {
        return None;
    }
    let decimal = Decimal {
        bytes: c.rest(),
        precision,
        scale,
    };
    write_decimal(&decimal, out);
    Some(())
}

/// Eight bytes: 24 bits of microseconds below the packed date and time.
fn write_packed_datetime(field_type: u8, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let packed = Cursor::new(bytes).u64()?;
    let (whole, micros) = (packed >> 24, packed & 0xff_ffff);
    let (days, time) = (whole >> 17, whole & 0x1_ffff);
    let (year, month, day) = ((days >> 5) / 13, (days >> 5) % 13, days & 0x1f);
    write_display(format_args!("\"{year:04}-{month:02}-{day:02}"), out);
    if field_type != TYPE_DATE {
        let (hour, minute, second) = (time >> 12, (time >> 6) & 0x3f, time & 0x3f);
        write_display(
            format_args!(" {hour:02}:{minute:02}:{second:02}.{micros:06}"),
            out,
        );
    }
    out.push(b'"');
    Some(())
}

/// Eight bytes, signed: 24 bits of microseconds below hours, minutes, seconds.
fn write_packed_time(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let packed = Cursor::new(bytes).i64()?;
    let magnitude = packed.unsigned_abs();
    let (whole, micros) = (magnitude >> 24, magnitude & 0xff_ffff);
    let sign = if packed < 0 { "-" } else { "" };
    let (hours, minutes, seconds) = ((whole >> 12) & 0x3ff, (whole >> 6) & 0x3f, whole & 0x3f);
    write_display(
        format_args!("\"{sign}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}\""),
        out,
    );
    Some(())
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| ALPHABET.get((bits & 0x3f) as usize).copied().unwrap_or(b'=');
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        out.push(letter(bits >> 18));
        out.push(letter(bits >> 12));
        out.push(if chunk.len() > 1 { letter(bits >> 6) } else { b'=' });
        out.push(if chunk.len() > 2 { letter(bits) } else { b'=' });
    }
}
