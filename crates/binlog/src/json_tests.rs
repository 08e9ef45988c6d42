use proptest::prelude::*;

use super::*;
use crate::json_scalar::write_double;

fn text(bytes: &[u8]) -> Result<String, BinlogError> {
    let mut out = Vec::new();
    write_text(bytes, &mut out).map(|()| String::from_utf8_lossy(&out).into_owned())
}

fn double(value: f64) -> String {
    let mut out = Vec::new();
    write_double(value, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn doubles_as_the_server_prints_them() {
    // SELECT JSON_ARRAY(1e-14, …) on MySQL 9.7.
    for (value, expected) in [
        (1e-14, "0.00000000000001"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1e14, "100000000000000.0"),
        (123_456_789_012_345.6, "123456789012345.6"),
        (1.5e300, "1.5e300"),
        (-1.5e-300, "-1.5e-300"),
        (1_234_567_890_123_456.0, "1.234567890123456e15"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e22, "1e22"),
        (1.5e15, "1.5e15"),
        (9.99e14, "999000000000000.0"),
        (1234.5e-15, "0.0000000000012345"),
        (100.0, "100.0"),
        (5e-324, "5e-324"),
        (-1.5, "-1.5"),
    ] {
        assert_eq!(double(value), expected);
    }
}

#[test]
fn small_array_with_inlined_values() {
    // [1, true, -2]
    let bytes = [2, 3, 0, 13, 0, 5, 1, 0, 4, 1, 0, 5, 0xfe, 0xff];
    assert_eq!(text(&bytes).unwrap(), "[1, true, -2]");
}

#[test]
fn nothing_is_the_json_null() {
    assert_eq!(text(&[]).unwrap(), "null");
}

#[test]
fn control_characters_are_escaped() {
    let bytes = [0x0c, 5, b'a', 0x01, b'"', b'\n', 0x1f];
    assert_eq!(text(&bytes).unwrap(), "\"a\\u0001\\\"\\n\\u001f\"");
}

#[test]
fn deep_nesting_is_an_error() {
    let mut bytes = vec![4_u8, 0];
    let mut kind = LITERAL;
    for _ in 0..150 {
        // A large array of one element behind its entry.
        let size = u32::try_from(13 + bytes.len()).unwrap();
        let mut outer = 1_u32.to_le_bytes().to_vec();
        outer.extend(size.to_le_bytes());
        outer.push(kind);
        outer.extend(13_u32.to_le_bytes());
        outer.extend(bytes);
        bytes = outer;
        kind = LARGE_ARRAY;
    }
    bytes.insert(0, kind);
    assert!(matches!(
        text(&bytes),
        Err(BinlogError::Json {
            what: "nested too deep"
        })
    ));
}

#[test]
fn shared_offsets_do_not_multiply() {
    // Arrays whose two elements are the same inner array, 40 levels deep, would make
    // 2^40 values.
    let mut bytes = 0_u32.to_le_bytes().to_vec();
    bytes.extend(8_u32.to_le_bytes());
    for _ in 0..40 {
        let size = u32::try_from(18 + bytes.len()).unwrap();
        let mut outer = 2_u32.to_le_bytes().to_vec();
        outer.extend(size.to_le_bytes());
        for _ in 0..2 {
            outer.push(LARGE_ARRAY);
            outer.extend(18_u32.to_le_bytes());
        }
        outer.extend(bytes);
        bytes = outer;
    }
    bytes.insert(0, LARGE_ARRAY);
    assert!(text(&bytes).is_err());
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(text(&bytes));
    }

    #[test]
    fn random_containers_do_not_panic(kind in 0_u8..4, bytes in prop::collection::vec(0_u8..24, 0..120)) {
        let mut whole = vec![kind];
        whole.extend(bytes);
        drop(text(&whole));
    }

    #[test]
    fn doubles_read_back(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
        prop_assert_eq!(double(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
    }
}

/// A small array with one string (of any length) and a number.
fn array_with(string: &str) -> Vec<u8> {
    let mut value = vec![LARGE_ARRAY];
    let (header, entries) = (8, 2 * 5);
    let mut length = string.len();
    let mut encoded = Vec::new();
    while length >= 0x80 {
        encoded.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    encoded.push(length as u8);
    encoded.extend_from_slice(string.as_bytes());
    let size = header + entries + encoded.len();
    value.extend_from_slice(&2_u32.to_le_bytes());
    value.extend_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
    value.push(STRING);
    value.extend_from_slice(&u32::try_from(header + entries).unwrap().to_le_bytes());
    value.push(INT32);
    value.extend_from_slice(&7_i32.to_le_bytes());
    value.extend_from_slice(&encoded);
    value
}

#[test]
fn pieces_make_the_text_and_end_between_characters() {
    for string in [
        "short".to_owned(),
        "é中😀\u{1}\"".repeat(30_000),
        "x".repeat(PIECE_BYTES + 1),
    ] {
        let value = array_with(&string);
        let (mut scratch, mut pieces) = (Vec::new(), Vec::new());
        write_text_in_pieces(&value, &mut scratch, &mut |piece| pieces.push(piece.to_vec())).unwrap();
        let whole: String = pieces
            .iter()
            .map(|piece| std::str::from_utf8(piece).unwrap())
            .collect();
        assert_eq!(whole, text(&value).unwrap());
        assert!(pieces.iter().all(|piece| piece.len() <= 3 * PIECE_BYTES));
        assert_eq!(pieces.len() > 1, string.len() > PIECE_BYTES);
    }
    let (mut scratch, mut pieces) = (Vec::new(), Vec::new());
    write_text_in_pieces(&[], &mut scratch, &mut |piece| pieces.push(piece.to_vec())).unwrap();
    assert_eq!(pieces.concat(), b"null");
    assert!(write_text_in_pieces(&[STRING, 5, b'a'], &mut scratch, &mut |_| {}).is_err());
}
