//! Recordings of real servers in `integration/data`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::output::Rows;

/// One recording and what `mysqlbinlog -vv` counted in it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Folder with the files.
    pub folder: PathBuf,
    /// Rows by `schema.table`, rollbacks left out.
    pub tables: BTreeMap<String, Rows>,
    /// Committed transactions with rows.
    pub transactions: u64,
    /// DDL statements on tables and databases; views are not replicated.
    pub ddl: u64,
}

impl Recording {
    /// Opens a recording of `integration/data` by name.
    ///
    /// # Errors
    /// When it is not there or its `expected.json` cannot be read.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_in("data", name)
    }

    /// Opens a recording of `integration/refused`: binlogs that end in an error.
    ///
    /// # Errors
    /// As `open`.
    pub fn refused(name: &str) -> Result<Self> {
        Self::open_in("refused", name)
    }

    fn open_in(kind: &str, name: &str) -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(name);
        let text = std::fs::read_to_string(folder.join("expected.json"))
            .with_context(|| format!("`cargo xtask record {name}` makes it"))?;
        let value: Value = serde_json::from_str(&text)?;
        let number =
            |value: &Value, key: &str| value[key].as_u64().with_context(|| format!("`{key}` is missing"));
        let mut tables = BTreeMap::new();
        for (name, rows) in value["tables"].as_object().context("`tables` is missing")? {
            let rows = Rows {
                inserts: number(rows, "insert")?,
                updates: number(rows, "update")?,
                deletes: number(rows, "delete")?,
            };
            tables.insert(name.clone(), rows);
        }
        Ok(Self {
            transactions: number(&value, "transactions")?,
            ddl: number(&value, "ddl")?,
            folder,
            tables,
        })
    }

    /// All recordings by name.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn names() -> Result<Vec<String>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// The binlog files in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|end| end.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
            {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Rows of all tables.
    pub fn total(&self) -> Rows {
        let mut total = Rows::default();
        self.tables.values().for_each(|rows| total.add(*rows));
        total
    }
}
