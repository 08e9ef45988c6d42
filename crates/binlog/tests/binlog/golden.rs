//! Binlog files of real servers against what the servers' own tools print of them.
//! `tests/data/README.md` says how both were made.

use std::collections::HashSet;

use crate::walk::{Line, data, walk};
use weir_binlog::BinlogError;

/// `(kind, text)` of each line of an expectation file.
fn expected(name: &str) -> Vec<(u8, Vec<u8>)> {
    let bytes = std::fs::read(data(&format!("{name}.expected"))).unwrap();
    bytes
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| (line[0], line[2..].to_vec()))
        .collect()
}

fn texts(expected: &[(u8, Vec<u8>)], kind: u8) -> Vec<String> {
    expected
        .iter()
        .filter(|(k, _)| *k == kind)
        .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
        .collect()
}

/// Rows one line after another. Behind a value that the tool cannot print, it leaves out
/// the rest of the event.
fn compare_rows(name: &str, expected: &[Vec<u8>], ours: &[Line]) {
    let mut ours = ours.iter().peekable();
    let border = |line: &&Line| **line == Line::Border;
    let mut values = 0_usize;
    for (at, want) in expected.iter().enumerate() {
        while ours.next_if(border).is_some() {}
        let place = format!("{name}, row line {at}: {}", String::from_utf8_lossy(want));
        let Some(split) = want.iter().position(|b| *b == b'=').filter(|_| want[0] == b'@') else {
            let have = ours.next().unwrap_or_else(|| panic!("{place}: nothing left"));
            assert_eq!(
                have,
                &Line::Text(String::from_utf8_lossy(want).into_owned()),
                "{place}"
            );
            continue;
        };
        let number: usize = std::str::from_utf8(&want[1..split]).unwrap().parse().unwrap();
        let want = &want[split + 1..];
        if want == b"?" {
            while ours.next_if(|line| !border(line)).is_some() {}
            continue;
        }
        match ours.next() {
            Some(Line::Value(have, texts)) if *have == number => {
                assert!(
                    texts.iter().any(|text| same(text, want)),
                    "{place}: ours {}",
                    show(texts)
                );
                values += 1;
            }
            other => panic!("{place}: ours {other:?}"),
        }
    }
    assert_eq!(ours.next(), None, "{name}");
    assert!(values > 2, "{name}: {values} values compared");
}

fn show(texts: &[Vec<u8>]) -> String {
    String::from_utf8_lossy(texts.first().unwrap()).into_owned()
}

fn same(ours: &[u8], theirs: &[u8]) -> bool {
    // DOUBLE is printed with 20 digits: equal if it reads back the same.
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|t| t.parse::<f64>().ok());
    ours == theirs || (ours.contains(&b'e') && number(ours).is_some() && number(ours) == number(theirs))
}

fn check(name: &str) -> crate::walk::Walk {
    let expected = expected(name);
    let walk = walk(&data(&format!("{name}.bin")));
    assert!(walk.errors.is_empty(), "{name}: {:?}", walk.errors);
    assert_eq!(walk.unknown_settings, 0, "{name}");
    for (ours, theirs) in walk.events.iter().zip(texts(&expected, b'E')) {
        assert_eq!(ours, &theirs, "{name}");
    }
    assert_eq!(walk.events, texts(&expected, b'E'), "{name}");
    assert_eq!(walk.gtids, texts(&expected, b'G'), "{name}");
    assert_eq!(walk.ddl, texts(&expected, b'Q'), "{name}");
    let rows: Vec<Vec<u8>> = expected
        .into_iter()
        .filter(|(kind, _)| *kind == b'R')
        .map(|(_, text)| text)
        .collect();
    compare_rows(name, &rows, &walk.rows);
    walk
}

#[test]
fn mysql_plain() {
    let walk = check("mysql97-plain");
    let tags: HashSet<&str> = walk.gtids.iter().filter_map(|g| g.split(':').nth(1)).collect();
    assert!(tags.contains("tag_a") && tags.contains("weir"), "{tags:?}");
}

#[test]
fn mysql_compressed_transactions() {
    let walk = check("mysql97-compressed");
    let payloads = walk
        .events
        .iter()
        .filter(|e| e.starts_with("Transaction_Payload"));
    assert!(payloads.count() > 30);
    // The file follows the plain one, which was the server's first.
    let mut before = weir_types::GtidSet::default();
    for gtid in check("mysql97-plain").gtids {
        before.union(&weir_types::GtidSet::parse(&gtid).unwrap());
    }
    assert_eq!(walk.sets, [before]);
}

#[test]
fn mysql_without_checksum() {
    check("mysql97-nocrc");
}

#[test]
fn mariadb_plain() {
    check("mariadb1011-plain");
    check("mariadb118-plain");
}

#[test]
fn mariadb_compressed_events() {
    for name in ["mariadb1011-compressed", "mariadb118-compressed"] {
        let walk = check(name);
        let compressed = walk.events.iter().filter(|e| e.contains("_compressed"));
        assert!(compressed.count() > 30, "{name}");
    }
}

#[test]
fn mariadb_without_checksum() {
    check("mariadb1011-nocrc");
    check("mariadb118-nocrc");
}

#[test]
fn minimal_metadata_are_an_error_that_says_what_to_set() {
    let walk = walk(&data("mysql97-minimal-metadata.bin"));
    assert!(!walk.errors.is_empty());
    for error in &walk.errors {
        assert!(
            matches!(error, BinlogError::NoColumnNames { table } if table == "g.nopk"),
            "{error}"
        );
    }
    assert_eq!(walk.events, texts(&expected("mysql97-minimal-metadata"), b'E'));
}

/// The third update leaves the JSON column as it is, which the server writes as a list of
/// no differences and its tool shows as `@2=@2`.
#[test]
fn partial_json_is_an_error_where_there_is_a_difference() {
    let name = "mysql97-partial-json";
    let walk = walk(&data(&format!("{name}.bin")));
    assert_eq!(walk.errors.len(), 2);
    for error in &walk.errors {
        assert!(
            matches!(error, BinlogError::PartialJson { table } if table == "g.js"),
            "{error}"
        );
    }
    let expected = expected(name);
    assert_eq!(walk.events, texts(&expected, b'E'));
    let last = walk.rows.iter().rposition(|line| *line == Line::Border).unwrap();
    let theirs = texts(&expected, b'R');
    let update = theirs
        .iter()
        .rposition(|line| line.starts_with("UPDATE"))
        .unwrap();
    let before = theirs.iter().rfind(|line| line.starts_with("@2='")).unwrap();
    let theirs: Vec<Vec<u8>> = theirs[update..]
        .iter()
        .map(|line| if line == "@2=@2" { before } else { line }.clone().into_bytes())
        .collect();
    compare_rows(name, &theirs, &walk.rows[last..]);
}

#[test]
fn mariadb_two_phase_alter_sequences_and_mixed_engines() {
    for name in ["mariadb1011-alter", "mariadb118-alter"] {
        let halves = check(name).alter_halves;
        assert_eq!(
            halves,
            [
                (5, None),
                (6, Some(5)),
                (8, None),
                (9, Some(8)),
                (11, None),
                (12, Some(11))
            ]
        );
    }
}
