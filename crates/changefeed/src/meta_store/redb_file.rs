//! Progress in a redb file.
//!
//! Two tables. `meta`: `format` (number), `generation` (number), `start` and `schema`
//! (tokens). `tokens`: schema name, NUL, table name → token; identifiers hold no NUL.
//! All values are JSON. A new file is made under another name, and gets its own when it
//! is complete, so that a crash leaves no half of one. Opening checks every page.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_types::{Generation, TableName, Token};

use super::{MetaStore, Progress, TokenUpdate, check_update};
use crate::error::{Error, Result};

/// Format that this build writes.
const FORMAT: u64 = 1;
/// Page cache, bytes; the whole file is small.
const CACHE_BYTES: usize = 1 << 20;

const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
const TOKENS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("tokens");

/// Progress in one redb file, open in one process at a time.
pub struct RedbMetaStore {
    db: Database,
    path: PathBuf,
}

impl std::fmt::Debug for RedbMetaStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbMetaStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl RedbMetaStore {
    /// Opens the file, or makes a new one.
    ///
    /// # Errors
    /// Not writable, open elsewhere, damaged, of a later format.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.try_exists().map_err(|e| io(path, "opened", e))? {
            create(path)?;
        }
        let at = path.to_path_buf();
        // A damaged file can break redb's own assertions.
        let opened = catch_unwind(AssertUnwindSafe(|| open_checked(&at)));
        let db = opened.unwrap_or_else(|_| Err(corrupt(path, "its pages contradict each other")))?;
        let store = Self { db, path: at };
        let found: u64 = store
            .read_meta("format")?
            .ok_or_else(|| corrupt(path, "`format` is missing"))?;
        if found > FORMAT {
            return Err(Error::MetaFormat {
                path: store.path,
                found,
                known: FORMAT,
            });
        }
        Ok(store)
    }

    fn read_meta<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let read = || -> std::result::Result<Option<Vec<u8>>, redb::Error> {
            let table = self.db.begin_read()?.open_table(META)?;
            Ok(table.get(key)?.map(|value| value.value().to_vec()))
        };
        let bytes = read().map_err(|e| map(&self.path, "read", e))?;
        bytes.map(|bytes| self.parse(key, &bytes)).transpose()
    }

    fn read_tokens(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let read = || -> std::result::Result<Vec<_>, redb::Error> {
            let table = self.db.begin_read()?.open_table(TOKENS)?;
            let mut rows = Vec::new();
            for row in table.iter()? {
                let (key, value) = row?;
                rows.push((key.value().to_owned(), value.value().to_vec()));
            }
            Ok(rows)
        };
        read().map_err(|e| map(&self.path, "read", e))
    }

    fn parse<T: DeserializeOwned>(&self, key: &str, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|e| {
            corrupt(
                &self.path,
                &format!("`{}` is no valid record: {e}", key.replace('\0', ".")),
            )
        })
    }

    fn write(
        &self,
        change: impl FnOnce(&WriteTransaction) -> std::result::Result<(), redb::Error>,
    ) -> Result<()> {
        let commit = || {
            let mut txn = self.db.begin_write()?;
            // One sync more: else damage to the last save looks like a torn write, and
            // the save before it would be taken, whose places the store may have
            // forgotten.
            txn.set_two_phase_commit(true);
            change(&txn)?;
            txn.commit()?;
            Ok(())
        };
        commit().map_err(|e| map(&self.path, "written", e))
    }
}

impl MetaStore for RedbMetaStore {
    fn load(&mut self) -> Result<Option<Progress>> {
        let Some(start) = self.read_meta::<Token>("start")? else {
            return Ok(None);
        };
        let schema = self
            .read_meta::<Token>("schema")?
            .ok_or_else(|| corrupt(&self.path, "`schema` is missing"))?;
        let mut tables = std::collections::BTreeMap::new();
        for (key, value) in self.read_tokens()? {
            let (schema, table) = key
                .split_once('\0')
                .ok_or_else(|| corrupt(&self.path, "a table's name has no schema"))?;
            tables.insert(TableName::new(schema, table), self.parse(&key, &value)?);
        }
        let progress = Progress {
            start,
            schema,
            tables,
        };
        progress.check()?;
        Ok(Some(progress))
    }

    fn init(&mut self, progress: &Progress) -> Result<()> {
        progress.check()?;
        self.write(|txn| {
            txn.delete_table(TOKENS)?;
            let mut meta = txn.open_table(META)?;
            meta.insert("start", json(&progress.start)?.as_slice())?;
            meta.insert("schema", json(&progress.schema)?.as_slice())?;
            let mut tokens = txn.open_table(TOKENS)?;
            for (table, token) in &progress.tables {
                tokens.insert(row_key(table).as_str(), json(token)?.as_slice())?;
            }
            Ok(())
        })
    }

    fn save(&mut self, update: &TokenUpdate) -> Result<()> {
        let start = self.read_meta::<Token>("start")?.ok_or(Error::NotInitialised)?;
        check_update(&start, update)?;
        self.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("schema", json(&update.schema)?.as_slice())?;
            let mut tokens = txn.open_table(TOKENS)?;
            for table in &update.removed {
                tokens.remove(row_key(table).as_str())?;
            }
            for (table, token) in &update.changed {
                tokens.insert(row_key(table).as_str(), json(token)?.as_slice())?;
            }
            Ok(())
        })
    }

    fn next_generation(&mut self) -> Result<Generation> {
        let last: u64 = self.read_meta("generation")?.unwrap_or(0);
        let next = last.saturating_add(1);
        self.write(|txn| {
            txn.open_table(META)?
                .insert("generation", json(&next)?.as_slice())?;
            Ok(())
        })?;
        Ok(Generation(next))
    }
}

/// Makes a complete, empty file.
fn create(path: &Path) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let tmp = PathBuf::from(name);
    match std::fs::remove_file(&tmp) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(&tmp, "written", e)),
        _ => {}
    }
    let make = || -> std::result::Result<(), redb::Error> {
        let db = Database::create(&tmp)?;
        let txn = db.begin_write()?;
        txn.open_table(META)?
            .insert("format", json(&FORMAT)?.as_slice())?;
        txn.open_table(TOKENS)?;
        txn.commit()?;
        Ok(())
    };
    make().map_err(|e| map(&tmp, "written", e))?;
    std::fs::rename(&tmp, path).map_err(|e| io(path, "written", e))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| io(folder, "written", e))
}

fn open_checked(path: &Path) -> Result<Database> {
    let mut db = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .open(path)
        .map_err(|e| map(path, "opened", e.into()))?;
    // What an unclean end left was repaired by now; anything else is damage.
    match db.check_integrity() {
        Ok(true) => Ok(db),
        Ok(false) => Err(corrupt(path, "a checksum does not match")),
        Err(e) => Err(map(path, "read", e.into())),
    }
}

fn row_key(table: &TableName) -> String {
    format!("{}\0{}", table.schema, table.table)
}

fn json<T: Serialize>(value: &T) -> std::result::Result<Vec<u8>, redb::Error> {
    serde_json::to_vec(value).map_err(|e| redb::Error::Io(e.into()))
}

fn corrupt(path: &Path, what: &str) -> Error {
    Error::MetaCorrupt {
        path: path.to_path_buf(),
        what: what.to_owned(),
    }
}

fn io(path: &Path, doing: &'static str, source: std::io::Error) -> Error {
    Error::MetaIo {
        path: path.to_path_buf(),
        doing,
        source: Box::new(source),
    }
}

fn map(path: &Path, doing: &'static str, error: redb::Error) -> Error {
    use std::io::ErrorKind;
    match error {
        redb::Error::DatabaseAlreadyOpen => Error::MetaLocked {
            path: path.to_path_buf(),
        },
        redb::Error::Io(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            corrupt(path, &e.to_string())
        }
        redb::Error::Io(e) => io(path, doing, e),
        redb::Error::Corrupted(what) => corrupt(path, &what),
        error @ (redb::Error::UpgradeRequired(_)
        | redb::Error::RepairAborted
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::UnorderedKey) => corrupt(path, &error.to_string()),
        error => Error::MetaIo {
            path: path.to_path_buf(),
            doing,
            source: Box::new(error),
        },
    }
}
