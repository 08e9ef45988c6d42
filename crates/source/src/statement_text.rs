//! Text of statements: bytes in the charset of the session that sent them.

use std::borrow::Cow;

use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, Encoding, GB18030, SHIFT_JIS, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252,
};

/// Charset of a client collation, for those that can be a client's (UTF-16 and UTF-32
/// cannot) and are known; collation ids as in MySQL's `information_schema.COLLATIONS`.
fn encoding(collation: u16) -> Option<&'static Encoding> {
    Some(match collation {
        1 | 84 => BIG5,
        5 | 8 | 15 | 31 | 47..=49 | 94 => WINDOWS_1252,
        12 | 91 | 97 | 98 => EUC_JP,
        13 | 88 | 95 | 96 => SHIFT_JIS,
        14 | 23 | 50..=52 => WINDOWS_1251,
        19 | 85 => EUC_KR,
        24 | 28 | 86 | 87 | 248..=250 => GB18030,
        26 | 34 | 44 | 66 | 99 => WINDOWS_1250,
        _ => return None,
    })
}

/// Reads a statement. `collation`: the client's, if the event tells it.
pub(crate) fn decode(bytes: &[u8], collation: Option<u16>) -> Option<Cow<'_, str>> {
    if bytes.is_ascii() {
        return std::str::from_utf8(bytes).ok().map(Cow::Borrowed);
    }
    match collation.and_then(encoding) {
        Some(encoding) => encoding.decode_without_bom_handling_and_without_replacement(bytes),
        None => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_in_the_clients_charset() {
        assert_eq!(decode(b"DROP TABLE a", Some(28)).as_deref(), Some("DROP TABLE a"));
        assert_eq!(decode(b"\xd6\xd0\xce\xc4", Some(28)).as_deref(), Some("中文"));
        assert_eq!(decode("größe".as_bytes(), Some(255)).as_deref(), Some("größe"));
        assert_eq!(decode(b"gr\xf6\xdfe", Some(8)).as_deref(), Some("größe"));
        assert_eq!(decode(b"gr\xf6\xdfe", Some(255)), None);
        // The second byte of this character is a backslash.
        assert_eq!(decode(b"\x95\x5c", Some(13)).as_deref(), Some("表"));
    }
}
