//! The page on metrics names every metric of the stages.

#![allow(clippy::unwrap_used)] // a test: a panic is its failure

use std::path::Path;

#[test]
fn every_metric_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/metrics.md")).unwrap();
    let (mut known, mut missing) = (0, Vec::new());
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let Ok(source) = std::fs::read_to_string(entry.unwrap().path().join("src/metrics.rs")) else {
            continue;
        };
        let names = source
            .lines()
            .filter(|line| line.contains("const "))
            .filter_map(|line| {
                let (_, rest) = line.split_once("\"weir_")?;
                Some(format!("weir_{}", rest.split('"').next()?))
            });
        for name in names {
            known += 1;
            if !page.contains(&format!("`{name}`")) {
                missing.push(name);
            }
        }
    }
    assert!(known > 40, "metrics were not found in the sources: {known}");
    assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
}
