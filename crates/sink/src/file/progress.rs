//! What a folder of finished files says about the progress of its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use weir_types::{OrderKey, TableName};

use super::naming::{self, Parsed};
use crate::error::{Result, SinkError};

/// Progress by finished files: a rename, synced with its folder, *is* progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileProgress {
    /// Last key by begin of name.
    tables: BTreeMap<String, OrderKey>,
    ddl: BTreeSet<OrderKey>,
    files: u64,
}

pub(super) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SinkError {
    let path = path.to_path_buf();
    move |source| SinkError::Io { what, path, source }
}

impl FileProgress {
    /// Reads the names in `dir`. Changes nothing.
    ///
    /// # Errors
    /// The folder cannot be read; finished files of a table overlap.
    pub fn scan(dir: &Path) -> Result<Self> {
        let mut progress = Self::default();
        let mut rows: Vec<(String, OrderKey, OrderKey)> = Vec::new();
        for entry in fs::read_dir(dir).map_err(io_error("read folder", dir))? {
            let entry = entry.map_err(io_error("read folder", dir))?;
            // Names of ours are ASCII.
            let Some(parsed) = entry.file_name().to_str().and_then(naming::parse) else {
                continue;
            };
            progress.files += 1;
            match parsed {
                Parsed::Rows { stem, first, last } => rows.push((stem, first, last)),
                Parsed::Ddl(key) => {
                    progress.ddl.insert(key);
                }
            }
        }
        rows.sort();
        for pair in rows.windows(2) {
            if let [(stem, first, last), (next_stem, next_first, next_last)] = pair
                && stem == next_stem
                && next_first <= last
            {
                return Err(SinkError::Overlap {
                    first: naming::finished(stem, *first, *last),
                    second: naming::finished(next_stem, *next_first, *next_last),
                });
            }
        }
        progress.tables = rows.into_iter().map(|(stem, _, last)| (stem, last)).collect();
        Ok(progress)
    }

    /// Last key that is finished of a table, by its name at the target.
    pub fn last(&self, target: &TableName) -> Option<OrderKey> {
        self.last_of(&naming::stem(target))
    }

    pub(super) fn last_of(&self, stem: &str) -> Option<OrderKey> {
        self.tables.get(stem).copied()
    }

    /// Greatest key of anything that is finished, DDL included.
    pub fn greatest(&self) -> Option<OrderKey> {
        self.tables.values().chain(&self.ddl).max().copied()
    }

    /// Whether a DDL has been written.
    pub fn has_ddl(&self, key: OrderKey) -> bool {
        self.ddl.contains(&key)
    }

    /// Number of finished files, those of DDL included.
    pub const fn files(&self) -> u64 {
        self.files
    }

    /// Number of tables with finished files.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }
}
