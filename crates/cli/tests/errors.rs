//! Every error code of the sources is described in `docs/errors.md`, and the other way
//! round.

#![allow(clippy::unwrap_used)] // a failed helper is a failed test

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Area of codes that tests make up.
const TEST_AREA: &str = "TST";

/// Codes (`WEIR-` three capitals, `-`, three digits) in a text.
fn codes(text: &str, out: &mut BTreeSet<String>) {
    for (at, _) in text.match_indices("WEIR-") {
        let Some(code) = text.get(at..at + 12) else {
            continue;
        };
        let (area, number) = (&code[5..8], &code[9..]);
        let good = area != TEST_AREA
            && area.bytes().all(|b| b.is_ascii_uppercase())
            && code.as_bytes()[8] == b'-'
            && number.bytes().all(|b| b.is_ascii_digit());
        if good {
            out.insert(code.to_owned());
        }
    }
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

#[test]
fn every_code_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut used = BTreeSet::new();
    for file in &files {
        codes(&fs::read_to_string(file).unwrap(), &mut used);
    }
    assert!(used.len() > 30, "{used:?}");
    let mut documented = BTreeSet::new();
    codes(
        &fs::read_to_string(root.join("docs/errors.md")).unwrap(),
        &mut documented,
    );
    let missing: Vec<_> = used.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&used).collect();
    assert!(missing.is_empty(), "not in docs/errors.md: {missing:?}");
    assert!(stale.is_empty(), "in docs/errors.md only: {stale:?}");
}

#[test]
fn codes_are_found() {
    let mut found = BTreeSet::new();
    codes("x WEIR-ABC-123, WEIR-ABC-12 WEIR-abc-123 WEIR-", &mut found);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["WEIR-ABC-123"]);
}
