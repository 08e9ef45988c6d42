//! DECIMAL: groups of nine digits in four bytes, the rest in as few bytes as hold them
//! (MySQL source, `decimal2bin`).

use weir_types::Decimal;

use crate::cursor::Cursor;

const GROUP_DIGITS: u8 = 9;
const GROUP_BYTES: usize = 4;

/// Bytes that hold so many digits below a group.
const fn rest_bytes(digits: u8) -> usize {
    (digits as usize).div_ceil(2)
}

/// Bytes of a packed value; `None` for a scale above the precision.
pub(crate) fn packed_bytes(precision: u8, scale: u8) -> Option<u8> {
    let side =
        |digits: u8| usize::from(digits / GROUP_DIGITS) * GROUP_BYTES + rest_bytes(digits % GROUP_DIGITS);
    let whole = precision.checked_sub(scale)?;
    u8::try_from(side(whole) + side(scale))
        .ok()
        .filter(|bytes| *bytes > 0)
}

/// Appends the value as text: no leading zeros but one before the point, every digit of
/// the scale, no sign of a zero.
///
/// ```
/// use weir_binlog::write_decimal;
/// use weir_types::Decimal;
///
/// let mut text = Vec::new();
/// // DECIMAL(3,1): two digits in one byte, one in another.
/// let packed = Decimal { bytes: &[0x80 | 12, 5], precision: 3, scale: 1 };
/// write_decimal(&packed, &mut text);
/// assert_eq!(text, b"12.5");
/// ```
pub fn write_decimal(decimal: &Decimal<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    if write(decimal, out).is_none() {
        // Bytes that no reader makes: shorter than the precision needs.
        out.truncate(start);
        out.push(b'0');
    }
}

fn write(decimal: &Decimal<'_>, out: &mut Vec<u8>) -> Option<()> {
    let first = *decimal.bytes.first()?;
    // The sign bit is inverted; below zero all others are, too.
    let negative = first & 0x80 == 0;
    let mask = if negative { 0xff } else { 0x00 };
    let mut digits = Digits {
        bytes: Cursor::new(decimal.bytes),
        mask,
        first: true,
    };
    let sign_at = out.len();
    let whole = decimal.precision.checked_sub(decimal.scale)?;
    if !whole.is_multiple_of(GROUP_DIGITS) {
        digits.group(whole % GROUP_DIGITS, out)?;
    }
    for _ in 0..whole / GROUP_DIGITS {
        digits.group(GROUP_DIGITS, out)?;
    }
    trim_zeros(out, sign_at);
    if decimal.scale > 0 {
        out.push(b'.');
        for _ in 0..decimal.scale / GROUP_DIGITS {
            digits.group(GROUP_DIGITS, out)?;
        }
        if !decimal.scale.is_multiple_of(GROUP_DIGITS) {
            digits.group(decimal.scale % GROUP_DIGITS, out)?;
        }
    }
    let written = out.get(sign_at..).unwrap_or_default();
    if negative && written.iter().any(|b| matches!(b, b'1'..=b'9')) {
        out.insert(sign_at, b'-');
    }
    Some(())
}

/// Leaves one digit at least.
fn trim_zeros(out: &mut Vec<u8>, start: usize) {
    let written = out.get(start..).unwrap_or_default();
    let zeros = written.iter().take_while(|b| **b == b'0').count();
    if zeros == written.len() {
        out.truncate(start);
        out.push(b'0');
    } else {
        out.drain(start..start + zeros);
    }
}

struct Digits<'a> {
    bytes: Cursor<'a>,
    mask: u8,
    first: bool,
}

impl Digits<'_> {
    /// Appends one group, padded with zeros to `count` digits.
    fn group(&mut self, count: u8, out: &mut Vec<u8>) -> Option<()> {
        let width = if count == GROUP_DIGITS {
            GROUP_BYTES
        } else {
            rest_bytes(count)
        };
        let mut value = 0_u32;
        for byte in self.bytes.take(width)? {
            let mut byte = *byte ^ self.mask;
            if std::mem::take(&mut self.first) {
                byte ^= 0x80;
            }
            value = (value << 8) | u32::from(byte);
        }
        let mut text = [b'0'; GROUP_DIGITS as usize];
        for digit in text.iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
        }
        let skip = usize::from(GROUP_DIGITS.checked_sub(count)?);
        out.extend_from_slice(text.get(skip..)?);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8], precision: u8, scale: u8) -> String {
        assert_eq!(packed_bytes(precision, scale), u8::try_from(bytes.len()).ok());
        let mut out = Vec::new();
        let decimal = Decimal {
            bytes,
            precision,
            scale,
        };
        write_decimal(&decimal, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn example_of_the_server_source() {
        // decimal2bin's comment: 1234567890.1234 in DECIMAL(14,4), both signs.
        let plus = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        let minus = [0x7e, 0xf2, 0x04, 0xc7, 0x2d, 0xfb, 0x2d];
        assert_eq!(text(&plus, 14, 4), "1234567890.1234");
        assert_eq!(text(&minus, 14, 4), "-1234567890.1234");
    }

    #[test]
    fn zeros_have_one_digit_and_no_sign() {
        assert_eq!(text(&[0x80], 1, 0), "0");
        assert_eq!(text(&[0x7f], 1, 0), "0");
        assert_eq!(text(&[0x80, 0, 0, 0, 0], 10, 2), "0.00");
        assert_eq!(text(&[0x80, 0, 0], 5, 5), "0.00000");
    }

    #[test]
    fn short_bytes_do_not_panic() {
        let mut out = Vec::new();
        let decimal = Decimal {
            bytes: &[0x80],
            precision: 65,
            scale: 30,
        };
        write_decimal(&decimal, &mut out);
        assert_eq!(out, b"0");
    }

    /// The server's packing of digit strings.
    fn pack(negative: bool, whole: &str, fraction: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut push = |digits: &str| {
            if digits.is_empty() {
                return;
            }
            let width = if digits.len() == 9 {
                4
            } else {
                digits.len().div_ceil(2)
            };
            let value: u32 = digits.parse().unwrap();
            out.extend_from_slice(&value.to_be_bytes()[4 - width..]);
        };
        let (rest, groups) = whole.split_at(whole.len() % 9);
        push(rest);
        (0..groups.len() / 9).for_each(|i| push(&groups[i * 9..i * 9 + 9]));
        let (groups, rest) = fraction.split_at(fraction.len() / 9 * 9);
        (0..groups.len() / 9).for_each(|i| push(&groups[i * 9..i * 9 + 9]));
        push(rest);
        if negative {
            out.iter_mut().for_each(|b| *b = !*b);
        }
        out[0] ^= 0x80;
        out
    }

    proptest! {
        #[test]
        fn texts_turn_back(negative: bool, whole in "[0-9]{0,35}", fraction in "[0-9]{0,30}") {
            prop_assume!(!whole.is_empty() || !fraction.is_empty());
            let precision = u8::try_from(whole.len() + fraction.len()).unwrap();
            let scale = u8::try_from(fraction.len()).unwrap();
            let read = text(&pack(negative, &whole, &fraction), precision, scale);
            let trimmed = whole.trim_start_matches('0');
            let mut expected = if trimmed.is_empty() { "0".to_owned() } else { trimmed.to_owned() };
            if !fraction.is_empty() {
                expected = format!("{expected}.{fraction}");
            }
            if negative && expected.contains(|c: char| ('1'..='9').contains(&c)) {
                expected.insert(0, '-');
            }
            prop_assert_eq!(read, expected);
        }
    }
}
