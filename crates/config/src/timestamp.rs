//! Times as RFC 3339 text (`2026-11-30T12:00:00Z`).

use weir_types::calendar::{date_from_days, days_from_date};

const MS_PER_DAY: i64 = 86_400_000;

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (head, rest) = self.0.split_at_checked(digits)?;
        let mut value = 0;
        for byte in head {
            if !byte.is_ascii_digit() {
                return None;
            }
            value = value * 10 + i64::from(byte - b'0');
        }
        self.0 = rest;
        Some(value)
    }

    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        if !bytes.contains(first) {
            return None;
        }
        self.0 = rest;
        Some(*first)
    }

    /// Fraction of a second in milliseconds; further digits are cut.
    fn millis(&mut self) -> Option<i64> {
        if self.0.first() != Some(&b'.') {
            return Some(0);
        }
        self.0 = self.0.get(1..)?;
        let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (fraction, rest) = self
            .0
            .split_at_checked(digits)
            .filter(|_| (1..=9).contains(&digits))?;
        self.0 = rest;
        let mut padded = fraction.iter().chain(b"00").take(3);
        Some(
            padded
                .by_ref()
                .fold(0, |value, b| value * 10 + i64::from(b - b'0')),
        )
    }
}

/// Reads an RFC 3339 time with its offset into milliseconds since the Unix epoch. None
/// if it is not one, or lies before 1970. A leap second counts as the second after it.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let mut c = Cursor(text.as_bytes());
    let year = c.number(4)?;
    c.one_of(b"-")?;
    let month = c.number(2).filter(|m| (1..=12).contains(m))?;
    c.one_of(b"-")?;
    let day = c.number(2).filter(|d| *d >= 1)?;
    c.one_of(b"Tt ")?;
    let hour = c.number(2).filter(|h| *h < 24)?;
    c.one_of(b":")?;
    let minute = c.number(2).filter(|m| *m < 60)?;
    c.one_of(b":")?;
    let second = c.number(2).filter(|s| *s <= 60)?;
    let millis = c.millis()?;
    let offset_minutes = match c.one_of(b"Zz+-")? {
        sign @ (b'+' | b'-') => {
            let hours = c.number(2).filter(|h| *h < 24)?;
            c.one_of(b":")?;
            let minutes = c.number(2).filter(|m| *m < 60)?;
            let total = hours * 60 + minutes;
            if sign == b'+' { total } else { -total }
        }
        _ => 0,
    };
    let days = days_from_date(year, month, day);
    let (real_year, real_month, real_day) = date_from_days(days);
    let real = (real_year, i64::from(real_month), i64::from(real_day));
    if !c.0.is_empty() || real != (year, month, day) {
        return None;
    }
    let of_day = ((hour * 60 + minute - offset_minutes) * 60 + second) * 1_000 + millis;
    u64::try_from(days * MS_PER_DAY + of_day).ok()
}

/// Writes milliseconds since the Unix epoch as RFC 3339 in UTC, with a fraction where
/// there is one.
pub fn format_rfc3339(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    let (year, month, day) = date_from_days(millis.div_euclid(MS_PER_DAY));
    let of_day = millis.rem_euclid(MS_PER_DAY);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    let mut out = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if of_day % 1_000 != 0 {
        out.push_str(&format!(".{:03}", of_day % 1_000));
    }
    out.push('Z');
    out
}
