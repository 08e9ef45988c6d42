//! Values as `mysqlbinlog -v` prints them.

use weir_binlog::{json, write_decimal};
use weir_types::{Column, Value};

/// Longer values are kept as length and CRC in the expectation files (with `@n=`, lines
/// of more than 200 bytes).
const LINE_MAX: usize = 200;

/// All forms that count as right.
pub(crate) fn texts(column: &Column, value: &Value<'_>) -> Vec<Vec<u8>> {
    let digits = usize::from(column.meta);
    let one = |text: String| vec![text.into_bytes()];
    match value {
        Value::Null => one("NULL".to_owned()),
        Value::Int(v) => {
            let mut texts = one(v.to_string());
            texts.extend([8, 16, 24, 32].map(|bits| paired(*v, bits)));
            texts.push(format!("{v} ({})", v.cast_unsigned()).into_bytes());
            texts
        }
        Value::UInt(v) => {
            let mut texts = one(v.to_string());
            texts.extend([8, 16, 24, 32].map(|bits| {
                let wrapped = v.cast_signed().wrapping_sub(1_i64 << bits);
                format!("{wrapped} ({v})").into_bytes()
            }));
            texts.push(format!("{} ({v})", v.cast_signed()).into_bytes());
            texts
        }
        Value::Float(v) => one(six_digits(f64::from(*v))),
        Value::Double(v) => one(format!("{v:e}")),
        Value::Decimal(v) => {
            let mut out = Vec::new();
            write_decimal(v, &mut out);
            vec![out]
        }
        Value::Bytes(v) | Value::Geometry(v) => vec![long(quoted(v))],
        Value::Date { .. } | Value::Time { .. } | Value::DateTime { .. } => one(temporal(value, digits)),
        Value::Timestamp { seconds, micros } => {
            let mut texts = one(format!("{seconds}{}", fraction(*micros, digits)));
            // The zero timestamp is shown without fraction.
            if *seconds == 0 {
                texts.push(b"0".to_vec());
            }
            texts
        }
        // `mysqlbinlog` adds 1900 to the zero year, too.
        Value::Year(0) => one("1900".to_owned()),
        Value::Year(v) => one(v.to_string()),
        Value::Bit(v) => {
            let all: String = v.iter().map(|b| format!("{b:08b}")).collect();
            one(format!("b'{}'", &all[all.len() - digits..]))
        }
        Value::Enum(v) => one(v.to_string()),
        Value::Set(v) => one(format!("b'{v:0width$b}'", width = 8 * digits)),
        Value::Json(v) => {
            let mut out = Vec::new();
            if json::write_text(v, &mut out).is_err() {
                return one("broken".to_owned());
            }
            // A string at the top is shown without its quotes.
            if out.first() == Some(&b'"') {
                out = out[1..out.len() - 1].to_vec();
            }
            vec![long(quoted(&out))]
        }
        Value::Vector(v) => {
            let floats: Vec<String> = v
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| exponent(f32::from_le_bytes(*b)))
                .collect();
            one(format!("[{}]", floats.join(",")))
        }
    }
}

fn temporal(value: &Value<'_>, digits: usize) -> String {
    match value {
        Value::Date { year, month, day } => format!("'{year:04}:{month:02}:{day:02}'"),
        Value::Time {
            negative,
            hours,
            minutes,
            seconds,
            micros,
        } => {
            let sign = if *negative { "-" } else { "" };
            let fraction = fraction(*micros, digits);
            format!("'{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}'")
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
            let fraction = fraction(*micros, digits);
            format!("'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}'")
        }
        _ => unreachable!("not a temporal value"),
    }
}

fn paired(v: i64, bits: u32) -> Vec<u8> {
    format!("{v} ({})", v.wrapping_add(1_i64 << bits)).into_bytes()
}

/// `%g`.
fn six_digits(v: f64) -> String {
    if v == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{v:.5e}");
    let (mantissa, exponent) = text.split_once('e').expect("exponent");
    let exponent: i32 = exponent.parse().expect("number");
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).expect("range");
        let plain = format!("{v:.decimals$}");
        return if plain.contains('.') {
            plain.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            plain
        };
    }
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `%.5e`.
fn exponent(v: f32) -> String {
    let text = format!("{v:.5e}");
    let (mantissa, exponent) = text.split_once('e').expect("exponent");
    let exponent: i32 = exponent.parse().expect("number");
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn fraction(micros: u32, digits: usize) -> String {
    if digits == 0 {
        return String::new();
    }
    format!(".{}", &format!("{micros:06}")[..digits])
}

fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in bytes {
        match byte {
            0..=0x1f => out.extend(format!("\\x{byte:02x}").bytes()),
            b'\'' | b'\\' => out.extend([b'\\', *byte]),
            _ => out.push(*byte),
        }
    }
    out.push(b'\'');
    out
}

/// Every form a long value may have beside its name.
fn long(text: Vec<u8>) -> Vec<u8> {
    if text.len() + 4 <= LINE_MAX {
        return text;
    }
    format!("~{} {:08x}", text.len(), crc32fast::hash(&text)).into_bytes()
}
