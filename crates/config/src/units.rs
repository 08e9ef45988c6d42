//! Sizes, durations and offsets as people write them.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// Units of sizes, the longest first so that `KiB` is not taken for `B`.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Units of durations in milliseconds, `ms` before `m` and `s`.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Splits a whole number and its unit, white space between them allowed.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let (unit, factor) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    let digits = text.strip_suffix(unit)?.trim_end();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A number of bytes: `64MiB`, `1GiB`, `500MB`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Whole mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Whole gibibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Reads a size; none if it is not one or does not fit.
    pub fn parse(text: &str) -> Option<Self> {
        text.trim()
            .parse()
            .ok()
            .or_else(|| scaled(text, &SIZE_UNITS))
            .map(Self)
    }
}

/// In the largest binary unit that divides it.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in SIZE_UNITS.iter().take(4) {
            if self.0 != 0 && self.0.is_multiple_of(*factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"64MiB\", \"1GiB\" or a number of bytes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        ByteSize::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(n))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<ByteSize, E> {
        u64::try_from(n)
            .map(ByteSize)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(n), &self))
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

/// A duration with its unit: `200ms`, `30s`, `5m`, `1h`, `2d`. A plain number is
/// refused, since its unit would be a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// Milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }

    /// Seconds.
    pub const fn seconds(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Reads a duration; none if it is not one or does not fit.
    pub fn parse(text: &str) -> Option<Self> {
        scaled(text, &DURATION_UNITS).map(Self::millis)
    }
}

/// In the largest unit that divides it.
impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        for (unit, factor) in DURATION_UNITS.iter().rev() {
            let factor = u128::from(*factor);
            if millis != 0 && millis.is_multiple_of(factor) {
                return write!(f, "{}{unit}", millis / factor);
            }
        }
        write!(f, "{millis}ms")
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::invalid_value(
                de::Unexpected::Str(&text),
                &"a duration such as \"200ms\", \"30s\" or \"5m\"",
            )
        })
    }
}

/// Distance from UTC that TIMESTAMP values are shown with: `UTC` or `+08:00`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UtcOffset {
    /// Seconds east of Greenwich, less than 15 hours in either direction.
    pub seconds: i32,
}

/// Servers accept `-13:59` to `+14:00`.
const OFFSET_MINUTES_MAX: i32 = 14 * 60;

impl UtcOffset {
    /// No distance.
    pub const UTC: Self = Self { seconds: 0 };

    /// Reads `UTC`, `Z` or `±hh:mm`.
    pub fn parse(text: &str) -> Option<Self> {
        if matches!(text, "UTC" | "Z") {
            return Some(Self::UTC);
        }
        let (sign, rest) = match text.as_bytes().first()? {
            b'+' => (1, text.get(1..)?),
            b'-' => (-1, text.get(1..)?),
            _ => return None,
        };
        let (hours, minutes) = rest.split_once(':')?;
        let two = |digits: &str| match digits.as_bytes() {
            [a, b] if a.is_ascii_digit() && b.is_ascii_digit() => {
                Some(i32::from(a - b'0') * 10 + i32::from(b - b'0'))
            }
            _ => None,
        };
        let minutes = two(minutes).filter(|m| *m < 60)?;
        let total = two(hours)? * 60 + minutes;
        (total <= OFFSET_MINUTES_MAX).then_some(Self {
            seconds: sign * total * 60,
        })
    }
}

impl fmt::Display for UtcOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seconds == 0 {
            return f.write_str("UTC");
        }
        let sign = if self.seconds < 0 { '-' } else { '+' };
        let minutes = self.seconds.unsigned_abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl Serialize for UtcOffset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UtcOffset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::invalid_value(
                de::Unexpected::Str(&text),
                &"\"UTC\" or an offset such as \"+08:00\"",
            )
        })
    }
}
