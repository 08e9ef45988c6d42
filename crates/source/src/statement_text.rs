//! Text of statements, bytes in the charset of the session that sent them, and what else
//! of that session their meaning depends on.

use std::borrow::Cow;
use std::sync::Arc;

use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, Encoding, GB18030, IBM866, ISO_8859_2, ISO_8859_7, ISO_8859_8, ISO_8859_13, KOI8_R,
    KOI8_U, MACINTOSH, SHIFT_JIS, WINDOWS_874, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1254,
    WINDOWS_1256, WINDOWS_1257,
};
use weir_binlog::query::QuerySettings;
use weir_types::{DdlSession, Flavor};

/// `OPTION_NO_FOREIGN_KEY_CHECKS` in the flags of a query event.
const NO_FOREIGN_KEY_CHECKS: u32 = 1 << 26;
/// `explicit_defaults_for_timestamp` in the flags of MariaDB; servers before 10.10 leave
/// it out, and have it off unless told otherwise.
const MARIADB_EXPLICIT_DEFAULTS: u32 = 1 << 24;

/// What a text of a client is written in.
enum Charset {
    /// UTF-8, ASCII, or not told.
    Utf8,
    Other(&'static Encoding),
    /// One whose letters are not known here.
    Unknown,
}

/// MariaDB's collations without padding, but for those of Unicode: the padding one's id
/// and this.
const NOPAD: std::ops::Range<u16> = 1024..2048;

/// Charset of a client collation, ids as in the servers' `information_schema.COLLATIONS`.
/// UTF-16 and UTF-32 cannot be a client's.
fn charset(collation: u16) -> Charset {
    let padding = if NOPAD.contains(&collation) {
        collation - NOPAD.start
    } else {
        collation
    };
    Charset::Other(match padding {
        1 | 84 => BIG5,
        2 | 9 | 21 | 27 | 77 => ISO_8859_2,
        5 | 8 | 15 | 31 | 47..=49 | 94 => WINDOWS_1252,
        7 | 74 => KOI8_R,
        12 | 91 | 97 | 98 => EUC_JP,
        13 | 88 | 95 | 96 => SHIFT_JIS,
        14 | 23 | 50..=52 => WINDOWS_1251,
        16 | 71 => ISO_8859_8,
        18 | 89 => WINDOWS_874,
        19 | 85 => EUC_KR,
        20 | 41 | 42 | 79 => ISO_8859_13,
        22 | 75 => KOI8_U,
        24 | 28 | 86 | 87 | 248..=250 => GB18030,
        25 | 70 => ISO_8859_7,
        26 | 34 | 44 | 66 | 99 => WINDOWS_1250,
        29 | 58 | 59 => WINDOWS_1257,
        30 | 78 => WINDOWS_1254,
        36 | 68 => IBM866,
        39 | 53 => MACINTOSH,
        57 | 67 => WINDOWS_1256,
        // dec8, cp850, hp8, swe7, armscii8, keybcs2, macce, cp852, geostd8.
        3 | 4 | 6 | 10 | 32 | 37 | 38 | 40 | 43 | 64 | 69 | 72 | 73 | 80..=82 | 92 | 93 => {
            return Charset::Unknown;
        }
        _ => return Charset::Utf8,
    })
}

/// Reads a statement. `collation`: the client's, if the event tells it.
pub(crate) fn decode(bytes: &[u8], collation: Option<u16>) -> Option<Cow<'_, str>> {
    let charset = if bytes.is_ascii() {
        Charset::Utf8
    } else {
        collation.map_or(Charset::Utf8, charset)
    };
    match charset {
        Charset::Utf8 => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Charset::Other(encoding) => encoding.decode_without_bom_handling_and_without_replacement(bytes),
        Charset::Unknown => None,
    }
}

/// Session of a statement, as far as its event tells. `timestamp`: seconds, of the
/// event's header.
pub(crate) fn session(flavor: Flavor, timestamp: u32, settings: &QuerySettings<'_>) -> DdlSession {
    let pairs = settings.charset_collations.unwrap_or_default();
    let pair = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => Some((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))),
        _ => None,
    };
    let flag = |bit: u32| settings.flags2.map(|flags| flags & bit != 0);
    DdlSession {
        flavor: Some(flavor),
        sql_mode: settings.sql_mode,
        character_set_client: settings.charset.map(|charset| charset.client),
        collation_connection: settings.charset.map(|charset| charset.connection),
        collation_server: settings.charset.map(|charset| charset.server),
        collation_database: settings.schema_collation,
        default_collation_utf8mb4: settings.utf8mb4_collation,
        character_set_collations: settings
            .charset_collations
            .map(|_| pairs.chunks_exact(4).filter_map(pair).collect()),
        time_zone: settings
            .time_zone
            .map(|zone| Arc::from(&*String::from_utf8_lossy(zone))),
        explicit_defaults_for_timestamp: match flavor {
            Flavor::Mysql => settings.explicit_defaults_for_timestamp,
            Flavor::Mariadb => flag(MARIADB_EXPLICIT_DEFAULTS),
        },
        no_foreign_key_checks: flag(NO_FOREIGN_KEY_CHECKS).unwrap_or(false),
        timestamp: Some(timestamp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_what_the_event_tells() {
        let empty = session(Flavor::Mysql, 7, &QuerySettings::default());
        let bare = DdlSession {
            flavor: Some(Flavor::Mysql),
            timestamp: Some(7),
            ..DdlSession::default()
        };
        assert_eq!(empty, bare);
        let settings = QuerySettings {
            flags2: Some(NO_FOREIGN_KEY_CHECKS | 1),
            time_zone: Some(b"+02:00"),
            charset_collations: Some(&[33, 0, 0, 9, 45, 0, 224, 0]),
            ..QuerySettings::default()
        };
        let told = session(Flavor::Mariadb, 7, &settings);
        assert!(told.no_foreign_key_checks);
        assert_eq!(told.explicit_defaults_for_timestamp, Some(false));
        let explicit = QuerySettings {
            flags2: Some(0x100_0000),
            ..QuerySettings::default()
        };
        let told_so = session(Flavor::Mariadb, 7, &explicit).explicit_defaults_for_timestamp;
        assert_eq!(told_so, Some(true));
        assert_eq!(
            session(Flavor::Mysql, 7, &explicit).explicit_defaults_for_timestamp,
            None
        );
        assert_eq!(told.time_zone.as_deref(), Some("+02:00"));
        assert_eq!(told.character_set_collations, Some(vec![(33, 0x900), (45, 224)]));
    }

    #[test]
    fn texts_are_read_in_the_clients_charset() {
        assert_eq!(decode(b"DROP TABLE a", Some(28)).as_deref(), Some("DROP TABLE a"));
        assert_eq!(decode(b"\xd6\xd0\xce\xc4", Some(28)).as_deref(), Some("中文"));
        assert_eq!(decode("größe".as_bytes(), Some(255)).as_deref(), Some("größe"));
        assert_eq!(decode(b"gr\xf6\xdfe", Some(8)).as_deref(), Some("größe"));
        assert_eq!(decode(b"gr\xf6\xdfe", Some(255)), None);
        assert_eq!(decode(b"\xb3\xf3d\xbc", Some(9)).as_deref(), Some("łódź"));
        assert_eq!(decode(b"gr\xf6\xdfe", Some(1071)).as_deref(), Some("größe"));
        // Valid UTF-8 by chance: two letters of cp850.
        assert_eq!(decode(b"\xc3\xa9", Some(4)), None);
        // The second byte of this character is a backslash.
        assert_eq!(decode(b"\x95\x5c", Some(13)).as_deref(), Some("表"));
    }
}
