//! Which crate may know which: stages meet only in `protocol`, and only `server` knows
//! both ends of a hop. A new edge is a design decision; make it here first.

#![allow(clippy::unwrap_used)] // a test: a panic is its failure

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crate → crates of ours that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("protocol", &["types"]),
    ("actor", &["types"]),
    ("binlog", &["types"]),
    ("schema", &["types"]),
    ("filter", &["types"]),
    ("config", &["types", "filter"]),
    ("segment", &["types"]),
    ("wire", &["types"]),
    ("event-store", &["types", "protocol", "actor", "segment"]),
    (
        "source",
        &[
            "types",
            "protocol",
            "actor",
            "binlog",
            "schema",
            "filter",
            "event-store",
            "wire",
        ],
    ),
    ("event-service", &["types", "protocol", "actor", "event-store"]),
    ("event-collector", &["types", "protocol", "actor"]),
    ("dispatcher", &["types", "protocol", "actor"]),
    ("changefeed", &["types", "protocol", "actor"]),
    ("codec", &["types", "binlog"]),
    (
        "sink",
        &["types", "protocol", "actor", "codec", "binlog", "filter"],
    ),
    (
        "sink-mysql",
        &["types", "protocol", "binlog", "codec", "filter", "schema", "sink"],
    ),
];

/// Outside libraries that only the named crates may use.
const RESERVED: &[(&str, &[&str])] = &[
    ("redb", &["changefeed"]),
    ("sqlparser", &["schema"]),
    ("mysql_common", &["bench"]),
    ("mysql_async", &["sink-mysql", "bench", "xtask", "integration"]),
    ("openssl", &["wire", "sink-mysql"]),
    ("clap", &["cli", "bench", "xtask"]),
    ("actix-web", &["server"]),
    (
        "anyhow",
        &["cli", "bench", "xtask", "test-servers", "integration"],
    ),
];

fn dependencies(crates: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else {
            continue;
        };
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let mut inside = false;
        let mut names = BTreeSet::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                inside = line.trim() == "[dependencies]";
            } else if inside && let Some(end) = line.find(['.', ' ', '=']) {
                names.insert(line[..end].to_owned());
            }
        }
        found.insert(name, names);
    }
    found
}

#[test]
fn no_forbidden_edge() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let found = dependencies(crates);
    assert!(
        found.len() >= ALLOWED.len(),
        "crates were not found below {}",
        crates.display()
    );
    let mut wrong = Vec::new();
    for (name, allowed) in ALLOWED {
        let names = &found[*name];
        for dependency in names.iter().filter_map(|n| n.strip_prefix("weir-")) {
            if !allowed.contains(&dependency) {
                wrong.push(format!("{name} -> {dependency}"));
            }
        }
    }
    for (library, users) in RESERVED {
        for (name, names) in &found {
            if names.contains(*library) && !users.contains(&name.as_str()) {
                wrong.push(format!("{name} -> {library}"));
            }
        }
    }
    assert!(wrong.is_empty(), "forbidden edges: {wrong:?}");
}
