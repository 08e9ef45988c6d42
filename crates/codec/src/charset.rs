//! Charsets of MySQL and MariaDB: which one a collation id belongs to, and how its
//! text becomes UTF-8.
//!
//! Collation ids: `information_schema.COLLATIONS` of MySQL 9.7 and MariaDB 11.8.
//! MariaDB gives `…_nopad_…` collations the id of their padding twin + 1024, and
//! builds the ids of its UCA 14.0.0 collations as 2048 + 256 × charset + tailoring.

use std::io::{self, Write};

use encoding_rs::{DecoderResult, Encoding};

use crate::escape;
use crate::single_byte::{self, HighHalf, NONE};

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
    /// ASCII and a table of the other half.
    Single(&'static HighHalf),
    /// A converter of the Encoding Standard, whose first 128 codes are ASCII, and the
    /// characters that the server has where the standard has others.
    Standard(&'static Encoding, &'static [(char, char)]),
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

const fn single(name: &'static str, high: &'static HighHalf) -> Charset {
    charset(name, 1, Conversion::Single(high))
}

fn standard(name: &'static str, bytes_max: u8, encoding: &'static Encoding) -> Charset {
    charset(name, bytes_max, Conversion::Standard(encoding, &[]))
}

/// (standard's, server's) characters of the same code in sjis and ujis; cp932 and
/// eucjpms have the standard's.
const JIS: &[(char, char)] = &[
    ('＼', '\\'),
    ('～', '〜'),
    ('∥', '‖'),
    ('－', '−'),
    ('￠', '¢'),
    ('￡', '£'),
    ('￢', '¬'),
];
/// The same in gb2312.
const GB2312: &[(char, char)] = &[('·', '・'), ('—', '―')];

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
        33 | 76 | 83 | 192..=215 | 223 | 576..=579 => charset("utf8mb3", 3, Conversion::Utf8),
        45 | 46 | 224..=247 | 255..=323 | 608..=611 => charset("utf8mb4", 4, Conversion::Utf8),
        63 => charset("binary", 1, Conversion::Latin1),
        11 | 65 => charset("ascii", 1, Conversion::Ascii),
        // Its name notwithstanding, MySQL's latin1 is cp1252, with the five codes without
        // a character there as control characters.
        5 | 8 | 15 | 31 | 47..=49 | 94 => single("latin1", &single_byte::LATIN1),
        2 | 9 | 21 | 27 | 77 => single("latin2", &single_byte::LATIN2),
        7 | 74 => single("koi8r", &single_byte::KOI8R),
        22 | 75 => single("koi8u", &single_byte::KOI8U),
        14 | 23 | 50..=52 => single("cp1251", &single_byte::CP1251),
        16 | 71 => single("hebrew", &single_byte::HEBREW),
        18 | 89 => single("tis620", &single_byte::TIS620),
        20 | 41 | 42 | 79 => single("latin7", &single_byte::LATIN7),
        25 | 70 => single("greek", &single_byte::GREEK),
        26 | 34 | 44 | 66 | 99 => single("cp1250", &single_byte::CP1250),
        29 | 58 | 59 => single("cp1257", &single_byte::CP1257),
        30 | 78 => single("latin5", &single_byte::LATIN5),
        36 | 68 => single("cp866", &single_byte::CP866),
        39 | 53 => single("macroman", &single_byte::MACROMAN),
        57 | 67 => single("cp1256", &single_byte::CP1256),
        3 | 69 => single("dec8", &single_byte::DEC8),
        4 | 80 => single("cp850", &single_byte::CP850),
        6 | 72 => single("hp8", &single_byte::HP8),
        32 | 64 => single("armscii8", &single_byte::ARMSCII8),
        37 | 73 => single("keybcs2", &single_byte::KEYBCS2),
        38 | 43 => single("macce", &single_byte::MACCE),
        40 | 81 => single("cp852", &single_byte::CP852),
        92 | 93 => single("geostd8", &single_byte::GEOSTD8),
        1 | 84 => standard("big5", 2, e::BIG5),
        12 | 91 => charset("ujis", 3, Conversion::Standard(e::EUC_JP, JIS)),
        97 | 98 => standard("eucjpms", 3, e::EUC_JP),
        13 | 88 => charset("sjis", 2, Conversion::Standard(e::SHIFT_JIS, JIS)),
        95 | 96 => standard("cp932", 2, e::SHIFT_JIS),
        19 | 85 => standard("euckr", 2, e::EUC_KR),
        24 | 86 => charset("gb2312", 2, Conversion::Standard(e::GBK, GB2312)),
        28 | 87 => standard("gbk", 2, e::GBK),
        248..=250 => standard("gb18030", 4, e::GB18030),
        35 | 90 | 128..=151 | 159 | 640..=642 => charset("ucs2", 2, Conversion::Utf16 { big_endian: true }),
        54 | 55 | 101..=124 | 672..=674 => charset("utf16", 4, Conversion::Utf16 { big_endian: true }),
        56 | 62 => charset("utf16le", 4, Conversion::Utf16 { big_endian: false }),
        60 | 61 | 160..=183 | 736..=738 => charset("utf32", 4, Conversion::Utf32),
        10 | 82 => charset("swe7", 1, Conversion::None),
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
    pub fn to_utf8(self, bytes: &[u8]) -> Option<String> {
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
            Conversion::Ascii | Conversion::Single(_) | Conversion::Standard(..) if bytes.is_ascii() => {
                Ok(piece(bytes)?)
            }
            Conversion::Single(high) => convert_single(piece, high, bytes),
            Conversion::Standard(encoding, []) => convert(piece, encoding, bytes),
            Conversion::Standard(encoding, other) => {
                let mut characters = Characters::new(piece);
                let mut exchange = |piece: &[u8]| {
                    // A converter makes UTF-8 and ends its pieces between characters.
                    let text = std::str::from_utf8(piece).map_err(io::Error::other)?;
                    text.chars().try_for_each(|c| {
                        let server = other.iter().find(|(standard, _)| *standard == c);
                        characters.put(server.map_or(c, |(_, server)| *server))
                    })
                };
                convert(&mut exchange, encoding, bytes)?;
                Ok(characters.flush()?)
            }
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

fn convert_single(piece: Piece<'_>, high: &HighHalf, bytes: &[u8]) -> Result<(), TextError> {
    let mut characters = Characters::new(piece);
    for &byte in bytes {
        let c = match high.get(usize::from(byte).wrapping_sub(0x80)) {
            None => char::from(byte),
            Some(&NONE) => return Err(TextError::Invalid),
            Some(&unit) => char::from_u32(u32::from(unit)).ok_or(TextError::Invalid)?,
        };
        characters.put(c)?;
    }
    Ok(characters.flush()?)
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
        assert_eq!(text(13, b"\x81\x60\x81\x5f").as_deref(), Some("〜\\"));
        assert_eq!(text(95, b"\x81\x60\x81\x5f").as_deref(), Some("～＼"));
        assert_eq!(text(24, b"\xa1\xa4\xa1\xaa").as_deref(), Some("・―"));
        assert_eq!(text(22, b"\x95\xae\xbe").as_deref(), Some("•╝╬"));
        assert_eq!(text(4, b"caf\x82\xff").as_deref(), Some("café\u{a0}"));
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
        assert!(!of_collation(10).unwrap().is_supported());
        assert_eq!(text(25, b"a\xae"), None, "greek has a gap there");
        for unknown in [0, 17, 100, 500, 1024, 3500, u16::MAX] {
            assert!(of_collation(unknown).is_none(), "{unknown}");
        }
    }

    /// `information_schema.COLLATIONS` of MySQL 9.7.
    const MYSQL: &str = "armscii8 1 32 64; ascii 1 11 65; big5 2 1 84; binary 1 63; cp1250 1 26 34 44 66 99; \
        cp1251 1 14 23 50-52; cp1256 1 57 67; cp1257 1 29 58-59; cp850 1 4 80; cp852 1 40 81; cp866 1 36 68; \
        cp932 2 95-96; dec8 1 3 69; eucjpms 3 97-98; euckr 2 19 85; gb18030 4 248-250; gb2312 2 24 86; gbk 2 28 87; \
        geostd8 1 92-93; greek 1 25 70; hebrew 1 16 71; hp8 1 6 72; keybcs2 1 37 73; koi8r 1 7 74; koi8u 1 22 75; \
        latin1 1 5 8 15 31 47-49 94; latin2 1 2 9 21 27 77; latin5 1 30 78; latin7 1 20 41-42 79; macce 1 38 43; \
        macroman 1 39 53; sjis 2 13 88; swe7 1 10 82; tis620 1 18 89; ucs2 2 35 90 128-151 159; ujis 3 12 91; \
        utf16 4 54-55 101-124; utf16le 4 56 62; utf32 4 60-61 160-183; utf8mb3 3 33 76 83 192-215 223; \
        utf8mb4 4 45-46 224-247 255-271 273-275 277-294 296-298 300 303-323";

    /// What MariaDB 11.8 has beside the ids of MySQL.
    const MARIADB: &str = "armscii8 1 1056 1088; ascii 1 1035 1089; big5 2 1025 1108; cp1250 1 1050 1090; \
        cp1251 1 1074-1075; cp850 1 1028 1104; cp932 2 1119-1120; gbk 2 1052 1111; koi8r 1 1031 1098; \
        latin1 1 1032 1071; macce 1 1062 1067; macroman 1 1063 1077; swe7 1 1034 1106; \
        ucs2 2 640-642 1059 1114 1152 1174 2560-2727 2744-2759; ujis 3 1036 1115; \
        utf16 4 672-674 1078-1079 1125 1147 2816-2983 3000-3015; utf16le 4 1080 1086; \
        utf32 4 736-738 1084-1085 1184 1206 3072-3239 3256-3271; \
        utf8mb3 3 576-579 1057 1107 1216 1238 2048-2215 2232-2247; \
        utf8mb4 4 305 309 608-611 1069-1070 1248 1270 2304-2471 2488-2503";

    #[test]
    fn collations_are_those_of_the_servers() {
        for charset in MYSQL.split("; ").chain(MARIADB.split("; ")) {
            let mut words = charset.split_ascii_whitespace();
            let (name, bytes) = (
                words.next().unwrap(),
                words.next().unwrap().parse::<u8>().unwrap(),
            );
            for range in words {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                for id in first.parse::<u16>().unwrap()..=last.parse().unwrap() {
                    let found = of_collation(id).map(|charset| (charset.name(), charset.bytes_max()));
                    assert_eq!(found, Some((name, bytes)), "{id}");
                }
            }
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
