//! The recorded binlog files that are part of the command, and what mysqlbinlog counted
//! in them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Name of the index file.
pub(crate) const INDEX: &str = "binlog.index";

/// Name and content of every file of the source folder, the index last.
pub(crate) const FILES: [(&str, &[u8]); 4] = [
    (
        "binlog.000001",
        include_bytes!("../../../../../integration/data/quickstart/binlog.000001"),
    ),
    (
        "binlog.000002",
        include_bytes!("../../../../../integration/data/quickstart/binlog.000002"),
    ),
    (
        "binlog.000003",
        include_bytes!("../../../../../integration/data/quickstart/binlog.000003"),
    ),
    (
        INDEX,
        include_bytes!("../../../../../integration/data/quickstart/binlog.index"),
    ),
];

/// Counts by `mysqlbinlog -vv`, as recorded.
pub(crate) const EXPECTED: &str = include_str!("../../../../../integration/data/quickstart/expected.json");

/// Rows by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct RowCounts {
    pub(crate) insert: u64,
    pub(crate) update: u64,
    pub(crate) delete: u64,
}

/// The part of `EXPECTED` that the output must agree with.
#[derive(Debug, Deserialize)]
pub(crate) struct Expected {
    /// By `schema.table`.
    pub(crate) tables: BTreeMap<String, RowCounts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_lists_the_files() {
        let index = std::str::from_utf8(FILES[FILES.len() - 1].1).unwrap();
        let listed: Vec<&str> = index.lines().map(|l| l.trim_start_matches("./")).collect();
        let embedded: Vec<&str> = FILES[..FILES.len() - 1].iter().map(|f| f.0).collect();
        assert_eq!(listed, embedded);
    }

    #[test]
    fn the_counts_are_there() {
        let expected: Expected = serde_json::from_str(EXPECTED).unwrap();
        assert_eq!(expected.tables.len(), 9);
        assert!(expected.tables.values().all(|t| t.insert > 0));
    }
}
