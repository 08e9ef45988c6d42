use std::path::PathBuf;

use proptest::prelude::*;

use crate::tests::MINIMAL;
use crate::*;

#[test]
fn sizes_and_durations() {
    for (text, bytes) in [
        ("0", 0),
        ("64MiB", 64 << 20),
        ("1 GiB", 1 << 30),
        ("5kB", 5_000),
        ("7B", 7),
        ("2TiB", 2 << 40),
    ] {
        assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
    }
    for text in ["", "MiB", "1.5GiB", "-1", "1mib", "99999999999TiB", "1 2"] {
        assert_eq!(ByteSize::parse(text), None, "{text}");
    }
    for (text, ms) in [
        ("200ms", 200),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
    ] {
        assert_eq!(
            HumanDuration::parse(text),
            Some(HumanDuration::millis(ms)),
            "{text}"
        );
    }
    for text in ["", "30", "s", "1.5s", "-1s", "999999999999999999d"] {
        assert_eq!(HumanDuration::parse(text), None, "{text}");
    }
    for text in ["+08:00", "-03:30", "UTC", "+14:00"] {
        assert_eq!(UtcOffset::parse(text).unwrap().to_string(), text);
    }
    for text in ["", "8", "+8:00", "+15:00", "+14:01", "+01:60", "CET"] {
        assert_eq!(UtcOffset::parse(text), None, "{text}");
    }
}

#[test]
fn rfc_3339() {
    for (text, ms) in [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-30T12:00:00Z", 1_796_040_000_000),
        ("2026-11-30T13:30:00.25+01:30", 1_796_040_000_250),
        ("2024-02-29 23:59:59.9999Z", 1_709_251_199_999),
        ("1969-12-31T23:00:00-02:00", 3_600_000),
    ] {
        assert_eq!(parse_rfc3339(text), Some(ms), "{text}");
    }
    for text in [
        "",
        "2026-11-30",
        "2026-11-30T12:00:00",
        "2025-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-11-31T00:00:00Z",
        "2026-11-30T24:00:00Z",
        "2026-11-30T12:00:00.Z",
        "2026-11-30T12:00:00Zx",
        "1969-12-31T23:59:59Z",
        "２026-11-30T12:00:00Z",
    ] {
        assert_eq!(parse_rfc3339(text), None, "{text}");
    }
}

#[test]
fn passwords_are_masked() {
    for (uri, masked) in [
        ("mysql://u:p@h:1/x", "mysql://u:***@h:1/x"),
        ("mysql://u:p@ss@h", "mysql://u:***@h"),
        ("mysql://u:p/w@h", "mysql://u:***@h"),
        ("mysql://u@h", "mysql://u@h"),
        ("file:///a", "file:///a"),
        ("text", "text"),
    ] {
        assert_eq!(mask_secrets(uri), masked);
    }
    let (_, message) =
        crate::tests::refused(&MINIMAL.replace("file:///var/lib/weir/out/", "pg://u:topsecret@h"));
    assert!(
        message.contains("***") && !message.contains("topsecret"),
        "{message}"
    );
}

proptest! {
    #[test]
    fn times_round_trip(ms in 0_u64..253_402_300_800_000) {
        prop_assert_eq!(parse_rfc3339(&format_rfc3339(ms)), Some(ms));
    }

    #[test]
    fn sizes_and_durations_round_trip(n in any::<u64>(), ms in 0_u64..u64::MAX / 2) {
        prop_assert_eq!(ByteSize::parse(&ByteSize(n).to_string()), Some(ByteSize(n)));
        let d = HumanDuration::millis(ms);
        prop_assert_eq!(HumanDuration::parse(&d.to_string()), Some(d));
    }

    #[test]
    fn folders_round_trip(name in "[^/\\x00]{1,20}") {
        let dir = PathBuf::from(format!("/{name}"));
        let uri = SinkUri::File { dir };
        prop_assert_eq!(SinkUri::parse(&uri.to_string()), Ok(uri));
    }
}
