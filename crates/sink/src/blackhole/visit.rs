//! A checksum over all values of a row: proof that each was decoded and looked at, and
//! equal for equal rows whatever their order.

use weir_binlog::RowImages;
use weir_types::Value;

/// Odd constants with well-spread bits (the golden ratio and a prime, in 64 bits).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const FOLD: u64 = 0xff51_afd7_ed55_8ccd;

const fn mix(sum: u64, value: u64) -> u64 {
    (sum.rotate_left(23) ^ value).wrapping_mul(STEP)
}

fn mix_bytes(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(mix(sum, bytes.len() as u64), |sum, word| {
        mix(sum, u64::from_le_bytes(*word))
    });
    rest.iter().fold(sum, |sum, &byte| mix(sum, u64::from(byte)))
}

/// Number of the kind of value, so that a 1 and a `'\x01'` differ.
fn visit(sum: u64, value: &Value<'_>) -> u64 {
    match *value {
        Value::Null => mix(sum, 1),
        Value::Int(number) => mix(mix(sum, 2), number as u64),
        Value::UInt(number) => mix(mix(sum, 3), number),
        Value::Float(number) => mix(mix(sum, 4), u64::from(number.to_bits())),
        Value::Double(number) => mix(mix(sum, 5), number.to_bits()),
        Value::Decimal(decimal) => mix_bytes(mix(sum, 6), decimal.bytes),
        Value::Bytes(bytes) => mix_bytes(mix(sum, 7), bytes),
        Value::Date { year, month, day } => mix(
            mix(sum, 8),
            (u64::from(year) << 16) | (u64::from(month) << 8) | u64::from(day),
        ),
        Value::Time {
            negative,
            hours,
            minutes,
            seconds,
            micros,
        } => {
            let clock = (u64::from(hours) << 16) | (u64::from(minutes) << 8) | u64::from(seconds);
            mix(
                mix(mix(sum, 9), (clock << 1) | u64::from(negative)),
                u64::from(micros),
            )
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
            let date = (u64::from(year) << 16) | (u64::from(month) << 8) | u64::from(day);
            let clock = (u64::from(hour) << 16) | (u64::from(minute) << 8) | u64::from(second);
            mix(mix(mix(sum, 10), (date << 24) | clock), u64::from(micros))
        }
        Value::Timestamp { seconds, micros } => {
            mix(mix(sum, 11), (u64::from(seconds) << 32) | u64::from(micros))
        }
        Value::Year(year) => mix(mix(sum, 12), u64::from(year)),
        Value::Bit(bytes) => mix_bytes(mix(sum, 13), bytes),
        Value::Enum(index) => mix(mix(sum, 14), u64::from(index)),
        Value::Set(bits) => mix(mix(sum, 15), bits),
        Value::Json(bytes) => mix_bytes(mix(sum, 16), bytes),
        Value::Geometry(bytes) => mix_bytes(mix(sum, 17), bytes),
        Value::Vector(bytes) => mix_bytes(mix(sum, 18), bytes),
    }
}

/// Checksum of one row, both images. Sums of it do not depend on the order of rows.
pub fn row_checksum(images: &RowImages<'_>) -> u64 {
    let sum = images.before.iter().fold(STEP, visit);
    let sum = images.after.iter().fold(mix(sum, 0), visit);
    (sum ^ (sum >> 33)).wrapping_mul(FOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[Value<'static>]) -> u64 {
        let images = RowImages {
            after: values.to_vec(),
            ..RowImages::default()
        };
        row_checksum(&images)
    }

    #[test]
    fn every_value_counts() {
        let values = [
            vec![Value::Null],
            vec![Value::Int(1)],
            vec![Value::UInt(1)],
            vec![Value::Bytes(b"\x01")],
            vec![Value::Bytes(b"12345678")],
            vec![Value::Bytes(b"123456789")],
            vec![Value::Json(b"\x01")],
            vec![Value::Null, Value::Null],
            vec![Value::Int(1), Value::Int(2)],
            vec![Value::Int(2), Value::Int(1)],
        ];
        let mut sums: Vec<u64> = values.iter().map(|values| of(values)).collect();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), values.len());
    }
}
