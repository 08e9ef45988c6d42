//! What the file sink wrote.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Rows by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// `INSERT`.
    pub inserts: u64,
    /// `UPDATE`.
    pub updates: u64,
    /// `DELETE`.
    pub deletes: u64,
}

impl Rows {
    /// Adds another count.
    pub fn add(&mut self, other: Self) {
        self.inserts += other.inserts;
        self.updates += other.updates;
        self.deletes += other.deletes;
    }

    /// All kinds together.
    pub fn all(self) -> u64 {
        self.inserts + self.updates + self.deletes
    }
}

/// The finished files of an output folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Rows by `schema.table`.
    pub tables: BTreeMap<String, Rows>,
    /// Number of DDL messages.
    pub ddl: u64,
    /// Lines by `schema.table` in file order, without what differs between two runs over the same source: the time
    /// of writing and the message number. Equal streams mean that nothing is lost, doubled or reordered.
    pub streams: BTreeMap<String, Vec<String>>,
    /// DDL statements in order.
    pub statements: Vec<String>,
    /// Finished files.
    pub files: usize,
    /// Unfinished files.
    pub unfinished: usize,
}

impl Output {
    /// Reads a folder; one that is not there is empty.
    ///
    /// # Errors
    /// When a finished file holds something else than canal-json lines.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut output = Self::default();
        let mut names = Vec::new();
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(output),
            Err(error) => return Err(error.into()),
        };
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        // Names have fixed-width order keys, so this is the order of a table's rows.
        names.sort();
        for name in names {
            if name.ends_with(".tmp") {
                output.unfinished += 1;
            } else if name.ends_with(".ndjson") {
                output.files += 1;
                output.file(&folder.join(&name)).with_context(|| name.clone())?;
            }
        }
        Ok(output)
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        for line in BufReader::new(File::open(path)?).lines() {
            let mut message: Value = serde_json::from_str(&line?)?;
            if message["isDdl"].as_bool().context("`isDdl` is missing")? {
                self.ddl += 1;
                self.statements
                    .push(message["sql"].as_str().unwrap_or("").to_owned());
                continue;
            }
            let text = |key: &str| {
                message[key]
                    .as_str()
                    .with_context(|| format!("`{key}` is missing"))
            };
            let table = format!("{}.{}", text("database")?, text("table")?);
            let count = message["data"].as_array().context("`data` is missing")?.len() as u64;
            let rows = match text("type")? {
                "INSERT" => Rows {
                    inserts: count,
                    ..Rows::default()
                },
                "UPDATE" => Rows {
                    updates: count,
                    ..Rows::default()
                },
                "DELETE" => Rows {
                    deletes: count,
                    ..Rows::default()
                },
                other => anyhow::bail!("type `{other}`"),
            };
            self.tables.entry(table.clone()).or_default().add(rows);
            let object = message.as_object_mut().context("not an object")?;
            for key in ["ts", "id"] {
                object.remove(key);
            }
            // Last, so that it can be told from the text of a value.
            let place = object.remove("_weir").map(|place| place.to_string());
            let mut line = message.to_string();
            if let Some(place) = place {
                line.pop();
                line.push_str(",\"_weir\":");
                line.push_str(&place);
                line.push('}');
            }
            self.streams.entry(table).or_default().push(line);
        }
        Ok(())
    }

    /// Rows of all tables.
    pub fn total(&self) -> Rows {
        let mut total = Rows::default();
        self.tables.values().for_each(|rows| total.add(*rows));
        total
    }

    /// Fails unless the rows are those of another output, in the same order per table.
    ///
    /// # Panics
    /// With the first difference.
    pub fn assert_same_rows(&self, other: &Self, context: &str) {
        let tables: Vec<_> = self.streams.keys().collect();
        assert_eq!(
            tables,
            other.streams.keys().collect::<Vec<_>>(),
            "{context}: tables"
        );
        for (table, lines) in &self.streams {
            let wanted = &other.streams[table];
            let differs = lines.iter().zip(wanted).position(|(ours, theirs)| ours != theirs);
            assert!(
                differs.is_none() && lines.len() == wanted.len(),
                "{context}: `{table}` has {} rows, wanted {}; first difference at {differs:?}",
                lines.len(),
                wanted.len()
            );
        }
    }

    /// Fails if a row is there twice: the same order key and place in its row event.
    ///
    /// # Panics
    /// With the first row that is doubled, or that carries no key.
    pub fn assert_nothing_twice(&self, context: &str) {
        for (table, lines) in &self.streams {
            let mut seen = HashSet::new();
            for line in lines {
                let place = line.rsplit_once("\"_weir\":").map(|(_, place)| place);
                assert!(place.is_some(), "{context}: a row of `{table}` without its key");
                assert!(
                    seen.insert(place),
                    "{context}: a row of `{table}` is there twice: {place:?}"
                );
            }
        }
    }

    /// Whether each table's rows are the first rows of another output's.
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        self.streams.iter().all(|(table, lines)| {
            other
                .streams
                .get(table)
                .is_some_and(|wanted| wanted.starts_with(lines))
        })
    }
}
