//! Values as text, in the forms that MySQL prints.

use std::fmt;
use std::io::{self, Write};

use weir_types::calendar::date_from_days;

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;
/// Furthest that a fixed offset may lie from UTC (MySQL accepts ±13:59 to +14:00).
const OFFSET_MINUTES_MAX: i32 = 14 * 60;
/// Most digits of a fraction of a second.
const FRACTION_DIGITS_MAX: u16 = 6;

/// The zone in which TIMESTAMP values are printed: a fixed distance from UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UtcOffset {
    minutes: i32,
}

impl UtcOffset {
    /// UTC itself.
    pub const UTC: Self = Self { minutes: 0 };

    /// Reads `UTC`, `Z` or `+HH:MM` / `-HH:MM` up to 14 hours.
    pub fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("z") {
            return Some(Self::UTC);
        }
        let (sign, rest) = match text.as_bytes().first()? {
            b'+' => (1, text.get(1..)?),
            b'-' => (-1, text.get(1..)?),
            _ => return None,
        };
        let (hours, minutes) = rest.split_once(':')?;
        let part = |digits: &str| -> Option<i32> {
            let plain = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let (hours, minutes) = (part(hours)?, part(minutes)?);
        let total = hours * 60 + minutes;
        (minutes < 60 && total <= OFFSET_MINUTES_MAX).then_some(Self {
            minutes: sign * total,
        })
    }
}

impl fmt::Display for UtcOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.minutes < 0 { '-' } else { '+' };
        let total = self.minutes.abs();
        write!(f, "{sign}{:02}:{:02}", total / 60, total % 60)
    }
}

/// A short text on the stack.
struct Short {
    bytes: [u8; 40],
    used: usize,
}

impl Short {
    const fn new() -> Self {
        Self {
            bytes: [0; 40],
            used: 0,
        }
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.used] = byte;
        self.used += 1;
    }

    /// Decimal digits of `value`, at least `width`.
    fn number(&mut self, value: u32, width: usize) {
        let mut digits = [b'0'; 10];
        let mut rest = value;
        let mut first = digits.len();
        while rest > 0 || digits.len() - first < width {
            first -= 1;
            // A remainder of a division by ten fits.
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        digits[first..].iter().for_each(|&digit| self.push(digit));
    }

    /// `.` and the first `digits` digits of the microseconds; nothing for 0.
    fn fraction(&mut self, micros: u32, digits: u16) {
        if digits == 0 {
            return;
        }
        let digits = digits.min(FRACTION_DIGITS_MAX);
        self.push(b'.');
        let dropped = u32::from(FRACTION_DIGITS_MAX - digits);
        self.number(micros.min(999_999) / 10_u32.pow(dropped), usize::from(digits));
    }

    fn date(&mut self, year: u32, month: u8, day: u8) {
        self.number(year, 4);
        self.push(b'-');
        self.number(u32::from(month), 2);
        self.push(b'-');
        self.number(u32::from(day), 2);
    }

    fn clock(&mut self, hours: u32, minutes: u8, seconds: u8) {
        self.number(hours, 2);
        self.push(b':');
        self.number(u32::from(minutes), 2);
        self.push(b':');
        self.number(u32::from(seconds), 2);
    }

    fn write<W: Write>(&self, out: &mut W) -> io::Result<()> {
        out.write_all(&self.bytes[..self.used])
    }
}

pub(crate) fn write_date<W: Write>(out: &mut W, year: u16, month: u8, day: u8) -> io::Result<()> {
    let mut text = Short::new();
    text.date(u32::from(year), month, day);
    text.write(out)
}

/// A point of the day or a span of time.
pub(crate) struct Clock {
    pub(crate) hours: u16,
    pub(crate) minutes: u8,
    pub(crate) seconds: u8,
    pub(crate) micros: u32,
}

pub(crate) fn write_time<W: Write>(
    out: &mut W,
    negative: bool,
    clock: &Clock,
    digits: u16,
) -> io::Result<()> {
    let mut text = Short::new();
    if negative {
        text.push(b'-');
    }
    text.clock(u32::from(clock.hours), clock.minutes, clock.seconds);
    text.fraction(clock.micros, digits);
    text.write(out)
}

pub(crate) fn write_datetime<W: Write>(
    out: &mut W,
    (year, month, day): (u16, u8, u8),
    clock: &Clock,
    digits: u16,
) -> io::Result<()> {
    let mut text = Short::new();
    text.date(u32::from(year), month, day);
    text.push(b' ');
    text.clock(u32::from(clock.hours), clock.minutes, clock.seconds);
    text.fraction(clock.micros, digits);
    text.write(out)
}

pub(crate) fn write_timestamp<W: Write>(
    out: &mut W,
    seconds: u32,
    micros: u32,
    offset: UtcOffset,
    digits: u16,
) -> io::Result<()> {
    let mut text = Short::new();
    if seconds == 0 && micros == 0 {
        text.date(0, 0, 0);
        text.push(b' ');
        text.clock(0, 0, 0);
    } else {
        let local = i64::from(seconds) + i64::from(offset.minutes) * 60;
        let (year, month, day) = date_from_days(local.div_euclid(DAY_SECONDS));
        // 1969 to 2106, whatever the offset.
        let year = u32::try_from(year).unwrap_or(0);
        let second = u32::try_from(local.rem_euclid(DAY_SECONDS)).unwrap_or(0);
        text.date(year, month, day);
        text.push(b' ');
        // Remainders of 60 fit.
        text.clock(second / 3600, (second / 60 % 60) as u8, (second % 60) as u8);
    }
    text.fraction(micros, digits);
    text.write(out)
}

/// YEAR, four digits.
pub(crate) fn write_year<W: Write>(out: &mut W, year: u16) -> io::Result<()> {
    let mut text = Short::new();
    text.number(u32::from(year), 4);
    text.write(out)
}

/// The number that the bits of a BIT value make.
pub(crate) fn bit_number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| (number << 8) | u64::from(byte))
}

/// VECTOR as MySQL's `VECTOR_TO_STRING` lays it out, numbers in their shortest form.
pub(crate) fn write_vector<W: Write>(out: &mut W, bytes: &[u8]) -> io::Result<()> {
    let (floats, _) = bytes.as_chunks::<4>();
    let mut separator = "[";
    for &float in floats {
        write!(out, "{separator}{:e}", f32::from_le_bytes(float))?;
        separator = ",";
    }
    out.write_all(if floats.is_empty() { b"[]" } else { b"]" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn timestamps() {
        let at = |seconds, micros, offset: &str, digits| {
            let offset = UtcOffset::parse(offset).unwrap();
            text(|out| write_timestamp(out, seconds, micros, offset, digits))
        };
        assert_eq!(at(0, 0, "UTC", 3), "0000-00-00 00:00:00.000");
        assert_eq!(at(1, 0, "-01:00", 0), "1969-12-31 23:00:01");
        assert_eq!(at(951_782_400, 5, "Z", 6), "2000-02-29 00:00:00.000005");
        assert_eq!(at(1_709_210_096, 789_000, "+08:00", 3), "2024-02-29 20:34:56.789");
        assert_eq!(at(u32::MAX, 0, "UTC", 0), "2106-02-07 06:28:15");
    }

    #[test]
    fn offsets() {
        assert_eq!(UtcOffset::parse("-05:30").unwrap().to_string(), "-05:30");
        for bad in [
            "",
            "+1:00",
            "+15:00",
            "05:00",
            "+05:60",
            "+0a:00",
            "++1:00",
            "Europe/Berlin",
        ] {
            assert_eq!(UtcOffset::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn times() {
        let clock = Clock {
            hours: 838,
            minutes: 59,
            seconds: 1,
            micros: 120_000,
        };
        assert_eq!(text(|out| write_time(out, true, &clock, 2)), "-838:59:01.12");
        assert_eq!(text(|out| write_time(out, false, &clock, 0)), "838:59:01");
        assert_eq!(text(|out| write_date(out, 0, 0, 0)), "0000-00-00");
        assert_eq!(
            text(|out| write_datetime(out, (2024, 2, 30), &clock, 6)),
            "2024-02-30 838:59:01.120000"
        );
        assert_eq!(text(|out| write_year(out, 0)), "0000");
    }

    #[test]
    fn bits_and_vectors() {
        assert_eq!(bit_number(&[1, 0]), 256);
        assert_eq!(bit_number(&[0xff; 8]), u64::MAX);
        let bytes: Vec<u8> = [1.5_f32, -200.0].iter().flat_map(|f| f.to_le_bytes()).collect();
        assert_eq!(text(|out| write_vector(out, &bytes)), "[1.5e0,-2e2]");
        assert_eq!(text(|out| write_vector(out, &[])), "[]");
    }
}
