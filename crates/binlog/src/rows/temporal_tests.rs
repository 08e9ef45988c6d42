use proptest::prelude::*;

use super::*;

fn time(bytes: &[u8]) -> Option<String> {
    let fraction = u8::try_from(bytes.len() - 3).unwrap();
    match time2(&mut Cursor::new(bytes), fraction)? {
        Value::Time {
            negative,
            hours,
            minutes,
            seconds,
            micros,
        } => Some(format!(
            "{}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}",
            if negative { "-" } else { "" }
        )),
        other => panic!("{other:?}"),
    }
}

/// The server's packing: sign-magnitude to a number with the fraction below, plus offset.
fn pack_time(negative: bool, (h, m, s): (u64, u64, u64), fraction: u64, bytes: u32) -> Vec<u8> {
    let magnitude = (((h << 12) | (m << 6) | s) << (8 * bytes)) | fraction;
    let offset = 0x80_0000_u64 << (8 * bytes);
    let packed = if negative {
        offset - magnitude
    } else {
        offset + magnitude
    };
    packed.to_be_bytes()[5 - bytes as usize..].to_vec()
}

#[test]
fn times_of_the_internals_manual() {
    // "Date and Time Data Type Representation", examples of TIME(2) and TIME(4).
    assert_eq!(time(&[0x7f, 0xff, 0xff, 0xff]).unwrap(), "-00:00:00.010000");
    assert_eq!(time(&[0x7f, 0xff, 0xff, 0xf6]).unwrap(), "-00:00:00.100000");
    assert_eq!(time(&[0x7f, 0xff, 0xfe, 0xff]).unwrap(), "-00:00:01.010000");
    assert_eq!(time(&[0x7f, 0xff, 0xff, 0x00]).unwrap(), "-00:00:01.000000");
    assert_eq!(time(&[0x80, 0x00, 0x00, 0x01]).unwrap(), "00:00:00.010000");
    assert_eq!(time(&[0x80, 0x00, 0x00]).unwrap(), "00:00:00.000000");
    assert_eq!(time(&[0x7f, 0xff, 0xff, 0xff, 0xff]).unwrap(), "-00:00:00.000100");
}

#[test]
fn parts_out_of_range_are_refused() {
    assert_eq!(time(&[0x80, 0x00, 0x3c]), None);
    assert_eq!(time(&[0x80, 0x00, 0x00, 100]), None);
    assert!(datetime2(&mut Cursor::new(&[0; 5]), 0).is_none());
    assert!(time_old(&mut Cursor::new(&[99, 0, 0])).is_none());
    assert!(datetime_old(&mut Cursor::new(&u64::MAX.to_le_bytes())).is_none());
}

#[test]
fn old_forms() {
    let hhmmss = |n: i32| n.to_le_bytes()[..3].to_vec();
    assert_eq!(
        time_old(&mut Cursor::new(&hhmmss(-8_385_958))),
        Some(Value::Time {
            negative: true,
            hours: 838,
            minutes: 59,
            seconds: 58,
            micros: 0
        })
    );
    assert_eq!(
        datetime_old(&mut Cursor::new(&20_240_229_123_456_u64.to_le_bytes())),
        Some(Value::DateTime {
            year: 2024,
            month: 2,
            day: 29,
            hour: 12,
            minute: 34,
            second: 56,
            micros: 0
        })
    );
}

proptest! {
    #[test]
    fn times_turn_back(negative: bool, h in 0_u64..839, m in 0_u64..60, s in 0_u64..60, n in 0_u32..4, f in 0_u64..1_000_000) {
        let fraction = f / 10_u64.pow(6 - 2 * n);
        let packed = pack_time(negative, (h, m, s), fraction, n);
        let micros = fraction * 10_u64.pow(6 - 2 * n);
        let sign = if negative && (h, m, s, micros) != (0, 0, 0, 0) { "-" } else { "" };
        prop_assert_eq!(time(&packed).unwrap(), format!("{sign}{h:02}:{m:02}:{s:02}.{micros:06}"));
    }

    #[test]
    fn datetimes_turn_back(y in 0_u64..10_000, mo in 0_u64..13, d in 0_u64..32, h in 0_u64..24, m in 0_u64..60, s in 0_u64..60) {
        let whole = (((y * 13 + mo) << 5 | d) << 17) | (h << 12) | (m << 6) | s;
        let packed = (whole + 0x80_0000_0000).to_be_bytes();
        let read = datetime2(&mut Cursor::new(&packed[3..]), 0);
        let (year, month, day) = (y as u16, mo as u8, d as u8);
        let (hour, minute, second) = (h as u8, m as u8, s as u8);
        prop_assert_eq!(read, Some(Value::DateTime { year, month, day, hour, minute, second, micros: 0 }));
    }
}
