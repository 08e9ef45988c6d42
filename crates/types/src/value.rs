//! Row values, borrowed from the bytes that the server wrote.

/// One column value. Text and binary are told apart by the column's collation;
/// temporal values keep the fraction digits in the column's `meta`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// Signed integer of any width.
    Int(i64),
    /// Unsigned integer of any width.
    UInt(u64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL, still packed.
    Decimal(Decimal<'a>),
    /// CHAR, VARCHAR, TEXT, BINARY, VARBINARY, BLOB: raw bytes in the column's charset.
    Bytes(&'a [u8]),
    /// DATE; zero parts are kept.
    Date {
        /// 0–9999.
        year: u16,
        /// 0–12.
        month: u8,
        /// 0–31.
        day: u8,
    },
    /// TIME.
    Time {
        /// Below zero.
        negative: bool,
        /// 0–838.
        hours: u16,
        /// 0–59.
        minutes: u8,
        /// 0–59.
        seconds: u8,
        /// 0–999999.
        micros: u32,
    },
    /// DATETIME; zero parts are kept.
    DateTime {
        /// 0–9999.
        year: u16,
        /// 0–12.
        month: u8,
        /// 0–31.
        day: u8,
        /// 0–23.
        hour: u8,
        /// 0–59.
        minute: u8,
        /// 0–59.
        second: u8,
        /// 0–999999.
        micros: u32,
    },
    /// TIMESTAMP: UTC; 0 seconds and 0 micros is the zero timestamp.
    Timestamp {
        /// Seconds since the Unix epoch.
        seconds: u32,
        /// 0–999999.
        micros: u32,
    },
    /// YEAR: 0 or 1901–2155.
    Year(u16),
    /// BIT: most significant byte first, (bits + 7) / 8 bytes.
    Bit(&'a [u8]),
    /// ENUM index; 0 is the empty error value.
    Enum(u16),
    /// SET bitmap.
    Set(u64),
    /// MySQL's binary JSON; empty bytes stand for the JSON null of a broken value.
    Json(&'a [u8]),
    /// GEOMETRY: SRID and WKB.
    Geometry(&'a [u8]),
    /// VECTOR: little-endian 32-bit floats.
    Vector(&'a [u8]),
}

/// Packed DECIMAL of the binlog (MySQL `decimal2bin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal<'a> {
    /// Packed digits.
    pub bytes: &'a [u8],
    /// Digits in all, 1–65.
    pub precision: u8,
    /// Digits after the point, 0–38.
    pub scale: u8,
}
