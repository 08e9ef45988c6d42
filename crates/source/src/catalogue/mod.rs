//! What the server's catalogue says of tables whose binlog names no columns
//! (`binlog_row_metadata` of `MINIMAL`, and of MariaDB's `NO_LOG`).
//!
//! The catalogue tells what a table is now, the stream what it was. A description is read
//! at the first rows of a table that need it, and holds from there to the next DDL of the
//! table in the stream. Where it cannot be told to fit, reading ends with an error:
//!
//! * the catalogue has another number of columns, or other types, than the table map;
//! * the table was changed later than what the stream has reached;
//! * a DDL of the table turns up in the stream that had run already when the description
//!   was read.
//!
//! Memory: one version per table and shape, shared with the rows that it describes.

mod fit;
mod members;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use weir_binlog::TableMap;
use weir_types::{DdlKind, Flavor, TableName, TableVersion};

use crate::error::{Result, SourceError};
use crate::files::file_number;
use fit::fit;

/// How far behind the stream the time of a table's last change may lie: both are told in
/// whole seconds, and by the begin of one statement or the end of another.
const CHANGED_SLACK_MS: u64 = 10_000;
/// A row can be in the binlog a moment before the catalogue shows the table that it was
/// made with (`CREATE TABLE … SELECT`).
const ATTEMPTS: u32 = 10;
/// Between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// Shapes of one table that are kept.
const SHAPES_MAX: usize = 8;
/// Bytes of a statement in which `OR REPLACE` is looked for.
const HEAD_BYTES: usize = 64;

/// A column as the catalogue has it, in text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) name: String,
    /// `varchar`.
    pub(crate) data_type: String,
    /// `varchar(20)`.
    pub(crate) column_type: String,
    pub(crate) nullable: bool,
    /// Of strings, bytes.
    pub(crate) octets: Option<u64>,
    pub(crate) precision: Option<u64>,
    pub(crate) scale: Option<u64>,
    pub(crate) fraction_digits: Option<u64>,
    pub(crate) charset: String,
    /// Id; 0 where there is none.
    pub(crate) collation: u16,
    pub(crate) visible: bool,
}

/// A table as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) columns: Vec<Described>,
    /// Indexes into `columns`.
    pub(crate) primary_key: Vec<u16>,
    /// When it was made or changed last, milliseconds since the Unix epoch; 0 if not
    /// known.
    pub(crate) changed_ms: u64,
    /// End of the binlog after the reading: DDL up to there may be in the description.
    pub(crate) read_at: (Arc<str>, u64),
}

/// Reads descriptions.
pub(crate) trait Describe: Send {
    /// The table, or none if there is no such table.
    ///
    /// # Errors
    /// The connection's.
    fn describe(&mut self, name: &TableName) -> Result<Option<Description>>;

    /// Waits before a further attempt.
    fn pause(&mut self, time: Duration);
}

/// Where the stream stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) file: &'a str,
    /// Of the event.
    pub(crate) offset: u64,
    /// Behind the event.
    pub(crate) end: u64,
    /// Time that the source has reached, milliseconds since the Unix epoch.
    pub(crate) time_ms: u64,
}

impl At<'_> {
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.file, self.offset)
    }
}

/// A DDL in the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) kind: DdlKind,
    pub(crate) sql: &'a [u8],
    pub(crate) writes: &'a [TableName],
    pub(crate) makes: &'a [TableName],
}

impl Change<'_> {
    /// Whether columns or keys of the tables can be others after it.
    fn changes_shapes(&self) -> bool {
        match self.kind {
            DdlKind::Index | DdlKind::TruncateTable => false,
            DdlKind::CreateDatabase | DdlKind::AlterDatabase | DdlKind::ImplicitCreate => false,
            // Of a table that is there it does nothing, but for this form.
            DdlKind::CreateTable => {
                let head = self.sql.get(..HEAD_BYTES).unwrap_or(self.sql);
                head.to_ascii_uppercase()
                    .windows(7)
                    .any(|word| word == b"REPLACE")
            }
            DdlKind::AlterTable
            | DdlKind::DropTable
            | DdlKind::RenameTable
            | DdlKind::DropDatabase
            | DdlKind::Other => true,
        }
    }
}

/// What is known of a table.
struct Entry {
    /// Latest reading.
    read_at: (Arc<str>, u64),
    fitted: Vec<(Box<[u8]>, Arc<TableVersion>)>,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Catalogue {
    describe: Option<Box<dyn Describe>>,
    /// By names without case: a server may take a table by another spelling.
    entries: HashMap<TableName, Entry>,
}

fn key(name: &TableName) -> TableName {
    TableName::new(name.schema.to_lowercase(), name.table.to_lowercase())
}

/// Order of places in the files of a server.
fn order(file: &str, offset: u64) -> (u64, u64) {
    (file_number(file).unwrap_or(u64::MAX), offset)
}

impl Catalogue {
    /// Descriptions can be read from now on.
    pub(crate) fn set(&mut self, describe: Box<dyn Describe>) {
        self.describe = Some(describe);
    }

    /// Whether there is a server to ask.
    pub(crate) const fn is_there(&self) -> bool {
        self.describe.is_some()
    }

    /// Another server, whose places mean other things.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
    }

    /// The version that a table map without names stands for.
    ///
    /// # Errors
    /// `CatalogueMisfit`, `CatalogueAhead`; the connection's, and those of the table map.
    pub(crate) fn version(
        &mut self,
        name: &TableName,
        map: &TableMap<'_>,
        flavor: Flavor,
        at: At<'_>,
    ) -> Result<Arc<TableVersion>> {
        let key = key(name);
        if let Some(entry) = self.entries.get(&key)
            && let Some((_, version)) = entry.fitted.iter().find(|(shape, _)| **shape == *map.shape)
        {
            return Ok(Arc::clone(version));
        }
        let bare = map
            .to_bare_version(flavor)
            .map_err(|source| SourceError::Binlog {
                place: at.place(),
                source,
            })?;
        let (version, read_at) = self.read(name, at, |found| fit(name, flavor, &bare, found))?;
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            read_at: read_at.clone(),
            fitted: Vec::new(),
        });
        entry.read_at = read_at;
        if entry.fitted.len() >= SHAPES_MAX {
            entry.fitted.clear();
        }
        let version = Arc::new(version);
        entry.fitted.push((map.shape.into(), Arc::clone(&version)));
        Ok(version)
    }

    fn read(
        &mut self,
        name: &TableName,
        at: At<'_>,
        fit: impl Fn(&Description) -> Result<TableVersion, String>,
    ) -> Result<(TableVersion, (Arc<str>, u64))> {
        let misfit = |what| SourceError::CatalogueMisfit {
            table: name.clone(),
            place: at.place(),
            what,
        };
        let Some(describe) = &mut self.describe else {
            return Err(misfit("there is no server to ask".to_owned()));
        };
        let mut attempt = 1;
        loop {
            let error = match describe.describe(name)? {
                None => misfit("it is not there any more".to_owned()),
                Some(found) if found.changed_ms > at.time_ms.saturating_add(CHANGED_SLACK_MS) => {
                    return Err(SourceError::CatalogueAhead {
                        table: name.clone(),
                        place: at.place(),
                    });
                }
                Some(found) => match fit(&found) {
                    Ok(version) => return Ok((version, found.read_at)),
                    Err(what) => misfit(what),
                },
            };
            if attempt == ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
            describe.pause(ATTEMPT_PAUSE);
        }
    }

    /// A DDL passes: its tables are described anew at their next rows. Whether any
    /// description was dropped.
    ///
    /// # Errors
    /// `CatalogueAhead` if a description that was used before holds what the DDL did.
    pub(crate) fn pass(&mut self, change: &Change<'_>, at: At<'_>) -> Result<bool> {
        if self.entries.is_empty() || !change.changes_shapes() {
            return Ok(false);
        }
        let mut dropped = false;
        for name in change.writes.iter().chain(change.makes).map(key) {
            let concerned: Vec<TableName> = if name.table.is_empty() {
                let of_schema = |key: &&TableName| key.schema == name.schema;
                self.entries.keys().filter(of_schema).cloned().collect()
            } else {
                vec![name]
            };
            for table in concerned {
                let Some(entry) = self.entries.remove(&table) else {
                    continue;
                };
                dropped = true;
                let (file, offset) = &entry.read_at;
                if order(at.file, at.end) <= order(file, *offset) {
                    return Err(SourceError::CatalogueAhead {
                        table,
                        place: at.place(),
                    });
                }
            }
        }
        Ok(dropped)
    }
}
