//! Counts what lies in the finished output files, line by line.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use super::data::{Expected, RowCounts};
use crate::error::CliError;

/// Extension of finished files.
const EXTENSION: &str = "ndjson";

/// Hexadecimal digits of the commit-ts at the start of an order key.
const COMMIT_TS_DIGITS: usize = 16;

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// By `schema.table`.
    pub(crate) tables: BTreeMap<String, RowCounts>,
    /// Transactions with rows.
    pub(crate) transactions: u64,
    /// DDL statements.
    pub(crate) ddl: u64,
    /// Bytes of all finished files.
    pub(crate) bytes: u64,
    /// Finished files with rows or DDL.
    pub(crate) files: u64,
}

/// The keys of a canal-json line that are counted.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    database: Cow<'a, str>,
    #[serde(borrow)]
    table: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "isDdl")]
    is_ddl: bool,
    #[serde(rename = "_weir", borrow)]
    place: Place<'a>,
}

/// Where the row stands in the stream.
#[derive(Deserialize)]
struct Place<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
}

impl Counts {
    /// Counts a folder. One that is not there is empty.
    pub(crate) fn of_folder(dir: &Path) -> Result<Self, CliError> {
        let read = |source| CliError::Read {
            path: dir.to_owned(),
            source,
        };
        let mut counts = Self::default();
        let mut transactions = HashSet::new();
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(counts),
            Err(error) => return Err(read(error)),
        };
        for entry in entries {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|e| e == EXTENSION) {
                counts.add_file(&path, &mut transactions)?;
            }
        }
        counts.transactions = transactions.len() as u64;
        Ok(counts)
    }

    fn add_file(&mut self, path: &Path, transactions: &mut HashSet<String>) -> Result<(), CliError> {
        let read = |source| CliError::Read {
            path: path.to_owned(),
            source,
        };
        let mut lines = BufReader::new(File::open(path).map_err(read)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = lines.read_until(b'\n', &mut line).map_err(read)?;
            if length == 0 {
                break;
            }
            self.bytes += length as u64;
            let commit_ts = self
                .add_line(&line)
                .ok_or_else(|| CliError::BadOutput(path.to_owned()))?;
            if let Some(commit_ts) = commit_ts {
                transactions.insert(commit_ts);
            }
        }
        self.files += 1;
        Ok(())
    }

    /// Counts one line and gives the commit-ts of a row, none of a DDL. None for a line
    /// that is neither.
    fn add_line(&mut self, line: &[u8]) -> Option<Option<String>> {
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        if line.is_ddl {
            self.ddl += 1;
            return Some(None);
        }
        let commit_ts = line.place.key.get(..COMMIT_TS_DIGITS)?.to_owned();
        let name = format!("{}.{}", line.database, line.table);
        let counts = self.tables.entry(name).or_default();
        match line.kind.as_ref() {
            "INSERT" => counts.insert += 1,
            "UPDATE" => counts.update += 1,
            "DELETE" => counts.delete += 1,
            _ => return None,
        }
        Some(Some(commit_ts))
    }

    /// Rows of all tables by kind.
    pub(crate) fn total(&self) -> RowCounts {
        let mut total = RowCounts::default();
        for table in self.tables.values() {
            total.insert += table.insert;
            total.update += table.update;
            total.delete += table.delete;
        }
        total
    }

    /// Compares the rows per table and kind with what was recorded.
    pub(crate) fn compare(&self, expected: &Expected) -> Result<(), CliError> {
        let names = expected.tables.keys().chain(self.tables.keys());
        for name in names {
            let wanted = expected.tables.get(name).copied().unwrap_or_default();
            let found = self.tables.get(name).copied().unwrap_or_default();
            for (kind, expected, actual) in [
                ("inserts", wanted.insert, found.insert),
                ("updates", wanted.update, found.update),
                ("deletes", wanted.delete, found.delete),
            ] {
                if expected != actual {
                    return Err(CliError::Counts {
                        what: format!("{kind} of `{name}`"),
                        expected,
                        actual,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, table: &str, ts: u64) -> String {
        format!(
            r#"{{"id":0,"database":"s","table":"{table}","isDdl":false,"type":"{kind}","data":[{{"type":"x"}}],"_weir":{{"key":"{ts:016x}00000001","row":0}}}}"#
        )
    }

    #[test]
    fn finished_files_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, lines: &[String]| {
            std::fs::write(dir.path().join(name), lines.join("\n") + "\n").unwrap();
        };
        write(
            "s.t.1.ndjson",
            &[
                row("INSERT", "t", 1),
                row("UPDATE", "t", 1),
                row("DELETE", "t", 2),
            ],
        );
        write("s.u.1.ndjson", &[row("INSERT", "u", 2)]);
        write("s.u.2.ndjson.tmp", &[row("INSERT", "u", 3)]);
        let ddl = row("CREATE", "t", 1).replace("\"isDdl\":false", "\"isDdl\":true");
        write("_ddl.1.ndjson", &[ddl]);
        write("_weir.json", &["{}".to_owned()]);
        let counts = Counts::of_folder(dir.path()).unwrap();
        assert_eq!((counts.transactions, counts.ddl, counts.files), (2, 1, 3));
        let total = RowCounts {
            insert: 2,
            update: 1,
            delete: 1,
        };
        assert_eq!(counts.total(), total);
        let mut expected = Expected {
            tables: counts.tables.clone(),
        };
        assert!(counts.compare(&expected).is_ok());
        expected.tables.remove("s.u");
        let error = counts.compare(&expected).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the output has 1 inserts of `s.u`, mysqlbinlog counted 0"
        );
    }

    #[test]
    fn other_lines_are_refused() {
        let mut counts = Counts::default();
        assert!(counts.add_line(row("MERGE", "t", 1).as_bytes()).is_none());
        assert!(counts.add_line(b"{}").is_none());
        assert!(counts.add_line(b"{\"id\":").is_none());
        let nowhere = std::path::Path::new("/no/such/folder");
        assert_eq!(Counts::of_folder(nowhere).unwrap().files, 0);
    }
}
