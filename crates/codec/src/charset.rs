//! Charsets of MySQL and MariaDB: which one a collation id belongs to, and how its
//! text becomes UTF-8.
//!
//! Collation ids: `information_schema.COLLATIONS` of MySQL 9.7 and MariaDB 11.8.
//! MariaDB gives `…_nopad_…` collations the id of their padding twin + 1024, and
//! builds the ids of its UCA 14.0.0 collations as 2048 + 256 × charset + tailoring.

use std::io::{self, Write};

use encoding_rs::{DecoderResult, Encoding};

use crate::escape;

/// Bytes of UTF-8 made at a time by a converter.
const CHUNK_BYTES: usize = 2048;
/// What MariaDB adds for a collation without padding.
const NOPAD_OFFSET: u16 = 1024;
/// First id of MariaDB's UCA 14.0.0 collations.
const UCA1400_FIRST: u16 = 2048;
/// Ids that each charset has there.
const UCA1400_PER_CHARSET: u16 = 256;

/// How bytes become characters.
#[derive(Clone, Copy, Debug)]
enum Conversion {
    /// UTF-8 already.
    Utf8,
    /// 7-bit only.
    Ascii,
    /// Each byte is a character (`binary`).
    Latin1,
    /// A converter of the Encoding Standard; its first 128 codes are ASCII.
    Standard(&'static Encoding),
    /// Two bytes a unit, with surrogate pairs.
    Utf16 { big_endian: bool },
    /// Four bytes a character, big-endian.
    Utf32,
    /// Not supported.
    None,
}

/// A charset of the server.
#[derive(Clone, Copy, Debug)]
pub struct Charset {
    name: &'static str,
    bytes_max: u8,
    conversion: Conversion,
}

/// Why text could not be written.
#[derive(Debug)]
pub(crate) enum TextError {
    /// The writer failed.
    Output(io::Error),
    /// The bytes are no text in the charset.
    Invalid,
}

impl From<io::Error> for TextError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

const fn charset(name: &'static str, bytes_max: u8, conversion: Conversion) -> Charset {
    Charset {
        name,
        bytes_max,
        conversion,
    }
}

fn standard(name: &'static str, bytes_max: u8, encoding: &'static Encoding) -> Charset {
    charset(name, bytes_max, Conversion::Standard(encoding))
}

/// The charset of a collation id; none if the id is not known.
pub fn of_collation(id: u16) -> Option<Charset> {
    match id {
        NOPAD_OFFSET..UCA1400_FIRST => base_charset(id - NOPAD_OFFSET),
        UCA1400_FIRST.. => match (id - UCA1400_FIRST) / UCA1400_PER_CHARSET {
            0 => base_charset(33),
            1 => base_charset(45),
            2 => base_charset(35),
            3 => base_charset(54),
            4 => base_charset(60),
            _ => None,
        },
        _ => base_charset(id),
    }
}

fn base_charset(id: u16) -> Option<Charset> {
    use encoding_rs as e;
    Some(match id {
        33 | 76 | 83 | 192..=215 | 223 | 576..=578 => charset("utf8mb3", 3, Conversion::Utf8),
        45 | 46 | 224..=247 | 255..=323 | 608..=610 => charset("utf8mb4", 4, Conversion::Utf8),
        63 => charset("binary", 1, Conversion::Latin1),
        11 | 65 => charset("ascii", 1, Conversion::Ascii),
        // Its name notwithstanding, MySQL's latin1 is cp1252, with the five codes
        // without a character there as control characters, as in the standard.
        5 | 8 | 15 | 31 | 47..=49 | 94 => standard("latin1", 1, e::WINDOWS_1252),
        2 | 9 | 21 | 27 | 77 => standard("latin2", 1, e::ISO_8859_2),
        7 | 74 => standard("koi8r", 1, e::KOI8_R),
        22 | 75 => standard("koi8u", 1, e::KOI8_U),
        14 | 23 | 50..=52 => standard("cp1251", 1, e::WINDOWS_1251),
        16 | 71 => standard("hebrew", 1, e::ISO_8859_8),
        18 | 89 => standard("tis620", 1, e::WINDOWS_874),
        20 | 41 | 42 | 79 => standard("latin7", 1, e::ISO_8859_13),
        25 | 70 => standard("greek", 1, e::ISO_8859_7),
        26 | 34 | 44 | 66 | 99 => standard("cp1250", 1, e::WINDOWS_1250),
        29 | 58 | 59 => standard("cp1257", 1, e::WINDOWS_1257),
        30 | 78 => standard("latin5", 1, e::WINDOWS_1254),
        36 | 68 => standard("cp866", 1, e::IBM866),
        39 | 53 => standard("macroman", 1, e::MACINTOSH),
        57 | 67 => standard("cp1256", 1, e::WINDOWS_1256),
        1 | 84 => standard("big5", 2, e::BIG5),
        12 | 91 => standard("ujis", 3, e::EUC_JP),
        97 | 98 => standard("eucjpms", 3, e::EUC_JP),
        13 | 88 => standard("sjis", 2, e::SHIFT_JIS),
        95 | 96 => standard("cp932", 2, e::SHIFT_JIS),
        19 | 85 => standard("euckr", 2, e::EUC_KR),
        24 | 86 => standard("gb2312", 2, e::GBK),
        28 | 87 => standard("gbk", 2, e::GBK),
        248..=250 => standard("gb18030", 4, e::GB18030),
        35 | 90 | 128..=151 | 159 | 640..=642 => charset("ucs2", 2, Conversion::Utf16 { big_endian: true }),
        54 | 55 | 101..=124 | 672..=674 => charset("utf16", 4, Conversion::Utf16 { big_endian: true }),
        56 | 62 => charset("utf16le", 4, Conversion::Utf16 { big_endian: false }),
        60 | 61 | 160..=183 | 736..=738 => charset("utf32", 4, Conversion::Utf32),
        3 | 69 => charset("dec8", 1, Conversion::None),
        4 | 80 => charset("cp850", 1, Conversion::None),
        6 | 72 => charset("hp8", 1, Conversion::None),
        10 | 82 => charset("swe7", 1, Conversion::None),
        32 | 64 => charset("armscii8", 1, Conversion::None),
        37 | 73 => charset("keybcs2", 1, Conversion::None),
        38 | 43 => charset("macce", 1, Conversion::None),
        40 | 81 => charset("cp852", 1, Conversion::None),
        92 | 93 => charset("geostd8", 1, Conversion::None),
        _ => return None,
    })
}

impl Charset {
    /// Name at the server.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Most bytes of one character.
    pub const fn bytes_max(&self) -> u8 {
        self.bytes_max
    }

    /// Whether its text can be turned into UTF-8.
    pub const fn is_supported(&self) -> bool {
        !matches!(self.conversion, Conversion::None)
    }

    /// Writes text of this charset as the inside of a JSON string.
    pub(crate) fn write_escaped<W: Write>(self, out: &mut W, bytes: &[u8]) -> Result<(), TextError> {
        match self.conversion {
            Conversion::Latin1 => Ok(escape::write_latin1(out, bytes)?),
            _ => self.pieces(bytes, &mut |piece| escape::write_utf8(out, piece)),
        }
    }

    /// Text of this charset as UTF-8; none if it is not valid.
    pub(crate) fn to_utf8(self, bytes: &[u8]) -> Option<String> {
        let mut text = Vec::with_capacity(bytes.len());
        let mut keep = |piece: &[u8]| {
            text.extend_from_slice(piece);
            Ok(())
        };
        self.pieces(bytes, &mut keep).ok()?;
        String::from_utf8(text).ok()
    }

    /// Hands the text on as UTF-8, in pieces of bounded size where it is converted.
    fn pieces(self, bytes: &[u8], piece: Piece<'_>) -> Result<(), TextError> {
        match self.conversion {
            Conversion::Utf8 => {
                let text = std::str::from_utf8(bytes).map_err(|_| TextError::Invalid)?;
                Ok(piece(text.as_bytes())?)
            }
            Conversion::Ascii | Conversion::Standard(_) if bytes.is_ascii() => Ok(piece(bytes)?),
            Conversion::Standard(encoding) => convert(piece, encoding, bytes),
            Conversion::Utf16 { big_endian } => convert_utf16(piece, bytes, big_endian),
            Conversion::Utf32 => convert_utf32(piece, bytes),
            Conversion::Latin1 => {
                let mut characters = Characters::new(piece);
                bytes
                    .iter()
                    .try_for_each(|&byte| characters.put(char::from(byte)))?;
                Ok(characters.flush()?)
            }
            Conversion::Ascii | Conversion::None => Err(TextError::Invalid),
        }
    }
}

/// Takes a piece of UTF-8.
type Piece<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

fn convert(piece: Piece<'_>, encoding: &'static Encoding, bytes: &[u8]) -> Result<(), TextError> {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut chunk = [0_u8; CHUNK_BYTES];
    let mut rest = bytes;
    loop {
        let (result, read, written) = decoder.decode_to_utf8_without_replacement(rest, &mut chunk, true);
        piece(chunk.get(..written).ok_or(TextError::Invalid)?)?;
        rest = rest.get(read..).ok_or(TextError::Invalid)?;
        match result {
            DecoderResult::InputEmpty => return Ok(()),
            DecoderResult::OutputFull => {}
            DecoderResult::Malformed(..) => return Err(TextError::Invalid),
        }
    }
}

/// Collects characters into pieces.
struct Characters<'a> {
    piece: Piece<'a>,
    chunk: [u8; CHUNK_BYTES],
    used: usize,
}

impl<'a> Characters<'a> {
    fn new(piece: Piece<'a>) -> Self {
        Self {
            piece,
            chunk: [0; CHUNK_BYTES],
            used: 0,
        }
    }

    fn put(&mut self, c: char) -> io::Result<()> {
        if self.used + c.len_utf8() > CHUNK_BYTES {
            self.flush()?;
        }
        self.used += c.encode_utf8(&mut self.chunk[self.used..]).len();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.piece)(&self.chunk[..self.used])?;
        self.used = 0;
        Ok(())
    }
}

fn convert_utf16(piece: Piece<'_>, bytes: &[u8], big_endian: bool) -> Result<(), TextError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(TextError::Invalid);
    }
    let units = pairs.iter().map(|&pair| match big_endian {
        true => u16::from_be_bytes(pair),
        false => u16::from_le_bytes(pair),
    });
    let mut characters = Characters::new(piece);
    for c in char::decode_utf16(units) {
        characters.put(c.map_err(|_| TextError::Invalid)?)?;
    }
    Ok(characters.flush()?)
}

fn convert_utf32(piece: Piece<'_>, bytes: &[u8]) -> Result<(), TextError> {
    let (units, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(TextError::Invalid);
    }
    let mut characters = Characters::new(piece);
    for &unit in units {
        characters.put(char::from_u32(u32::from_be_bytes(unit)).ok_or(TextError::Invalid)?)?;
    }
    Ok(characters.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(collation: u16, bytes: &[u8]) -> Option<String> {
        of_collation(collation).unwrap().to_utf8(bytes)
    }

    #[test]
    fn known_texts() {
        assert_eq!(text(8, b"caf\xe9 \x80\x81").as_deref(), Some("café €\u{81}"));
        assert_eq!(text(28, b"\xd6\xd0\xce\xc4").as_deref(), Some("中文"));
        assert_eq!(text(248, b"\x94\x39\xfc\x36").as_deref(), Some("😀"));
        assert_eq!(text(1, b"\xa4\xa4\xa4\xe5").as_deref(), Some("中文"));
        assert_eq!(text(13, b"\x93\xfa\x96\x7b\xb1").as_deref(), Some("日本ｱ"));
        assert_eq!(text(12, b"\xc6\xfc\xcb\xdc").as_deref(), Some("日本"));
        assert_eq!(text(19, b"\xc7\xd1\xb1\xdb").as_deref(), Some("한글"));
        assert_eq!(text(54, b"\xd8\x3d\xde\x00\x00a").as_deref(), Some("😀a"));
        assert_eq!(text(56, b"a\0\"\0").as_deref(), Some("a\""));
        assert_eq!(text(60, b"\0\x01\xf6\0\0\0\0\n").as_deref(), Some("😀\n"));
        assert_eq!(text(2304, "ü".as_bytes()).as_deref(), Some("ü"));
        assert_eq!(text(1069, "ü".as_bytes()).as_deref(), Some("ü"));
    }

    #[test]
    fn what_is_not_text_is_refused() {
        assert_eq!(text(45, b"a\xff"), None);
        assert_eq!(text(11, b"\x80"), None);
        assert_eq!(text(28, b"a\xd6"), None);
        assert_eq!(text(54, b"\xd8\x3d"), None);
        assert_eq!(text(54, b"a"), None);
        assert_eq!(text(60, b"\0\x11\0\0"), None);
        assert!(!of_collation(4).unwrap().is_supported());
        for unknown in [0, 17, 100, 500, 1024, 3500, u16::MAX] {
            assert!(of_collation(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn long_texts_pass_in_pieces() {
        let long = "é中".repeat(CHUNK_BYTES);
        let utf16: Vec<u8> = long.encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(text(54, &utf16).as_deref(), Some(long.as_str()));
        let (gbk, _, _) = encoding_rs::GBK.encode(&long);
        assert_eq!(text(28, &gbk).as_deref(), Some(long.as_str()));
    }
}
