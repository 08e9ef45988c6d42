//! What tables look like, so that after a crash it can be told whether a DDL ran.
//!
//! A table's mark is its engine, a digest of its definition (without the next
//! AUTO_INCREMENT value, which rows move) and InnoDB's ids of it and its partitions:
//! TRUNCATE, swaps by RENAME and EXCHANGE PARTITION leave definitions as they were, but
//! not the ids.
//!
//! When a DDL is found begun, the session that ran it has been ended (it holds a named
//! lock), so that it has run or will never run. Then:
//!
//! | statement | it ran if |
//! |---|---|
//! | TRUNCATE TABLE | never mind: it runs again. Nothing was written behind it |
//! | DROP DATABASE | the schema is gone. Where only some tables are gone (MariaDB drops one by one) it runs again |
//! | CREATE DATABASE | the schema is there, and was not before |
//! | ALTER DATABASE | never mind: it runs again, with the same result |
//! | CREATE TABLE, also LIKE and OR REPLACE | the mark of the table is another |
//! | DROP TABLE (one table a step) | the mark is another: the table is gone |
//! | RENAME TABLE, ALTER … RENAME | the mark of one of its names is another. Several renames in one statement are one to InnoDB on both servers. In a swap through a third name that name is unchanged, the others are not |
//! | ALTER TABLE, CREATE INDEX, DROP INDEX | the mark is another. A statement that changes no mark changes nothing, and may run again: IF NOT EXISTS forms, an instant change to what is there |
//!
//! Tables of engines other than InnoDB have no ids: there a swap of two tables with one
//! definition cannot be seen, and is refused before it is begun.

use std::collections::BTreeMap;

use mysql_async::{Error, Row};
use serde::{Deserialize, Serialize};
use weir_types::{DdlKind, Flavor, TableName};

use crate::client::{Client, own};
use crate::connect::{ServerInfo, own_error, text, value};
use crate::error::Result;
use crate::reply::{Problem, Verdict, judge};
use crate::sql::{literal, qualified};

const WHAT: &str = "read the ids of InnoDB tables, which needs the privilege PROCESS";

/// What a table looks like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    engine: String,
    /// SHA-256 of the definition.
    definition: String,
    /// InnoDB's ids by the part of the name behind the table's.
    ids: BTreeMap<String, u64>,
}

/// What the tables and schemas of a DDL look like. Names are `schema/table`; a schema
/// has no table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    tables: BTreeMap<String, Option<Mark>>,
    schemas: BTreeMap<String, bool>,
}

/// Whether a DDL that was begun has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It ran.
    Ran,
    /// It did not, or it does no harm to run it again.
    Run,
}

impl Fingerprint {
    /// Looks at tables (with an empty table name: at a schema).
    pub(crate) async fn take<'a>(
        conn: &mut Client,
        info: &ServerInfo,
        names: impl IntoIterator<Item = &'a TableName>,
    ) -> Result<Self> {
        let mut taken = Self::default();
        for name in names {
            if name.table.is_empty() {
                taken
                    .schemas
                    .insert(name.schema.to_string(), schema_exists(conn, name).await?);
            } else {
                let mark = mark(conn, info, name).await?;
                taken
                    .tables
                    .insert(format!("{}/{}", name.schema, name.table), mark);
            }
        }
        Ok(taken)
    }

    /// Whether a DDL ran, from what was before it and what is now.
    pub(crate) fn found(kind: DdlKind, before: &Self, now: &Self) -> Found {
        match kind {
            DdlKind::TruncateTable | DdlKind::AlterDatabase => Found::Run,
            DdlKind::DropDatabase => {
                if now.schemas.values().any(|exists| *exists) {
                    Found::Run
                } else {
                    Found::Ran
                }
            }
            DdlKind::CreateDatabase
            | DdlKind::CreateTable
            | DdlKind::AlterTable
            | DdlKind::Index
            | DdlKind::RenameTable
            | DdlKind::DropTable
            | DdlKind::ImplicitCreate
            | DdlKind::Other => {
                if before == now {
                    Found::Run
                } else {
                    Found::Ran
                }
            }
        }
    }

    /// Whether two existing tables look the same, so that changing their places would not
    /// be seen.
    pub(crate) fn has_twins(&self) -> bool {
        let mut marks: Vec<&Mark> = self
            .tables
            .values()
            .flatten()
            .filter(|mark| mark.ids.is_empty())
            .collect();
        marks.sort_by(|a, b| a.definition.cmp(&b.definition));
        marks
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a.definition == b.definition))
    }
}

async fn schema_exists(conn: &mut Client, name: &TableName) -> Result<bool> {
    let query = format!(
        "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {}",
        literal(&name.schema)
    );
    let row: Option<Row> = own("read the catalogue", conn.query_first(query)).await?;
    Ok(row.is_some())
}

async fn mark(conn: &mut Client, info: &ServerInfo, name: &TableName) -> Result<Option<Mark>> {
    let shown: std::result::Result<Option<Row>, Error> = conn
        .query_first(format!("SHOW CREATE TABLE {}", qualified(name)))
        .await;
    let row = match shown {
        Ok(row) => row,
        Err(error) => match judge(&error) {
            Verdict::Definite(Problem::MissingTable, _) => return Ok(None),
            _ => return Err(own_error("read a table's definition", &error)),
        },
    };
    let Some(row) = row else { return Ok(None) };
    // The definition names the table: a rename must show by the ids, or by what is left.
    let definition = without_auto_increment(&text(&row, 1));
    let definition = definition
        .split_once('(')
        .map_or(definition.as_str(), |(_, columns)| columns);
    let query = format!(
        "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        literal(&name.schema),
        literal(&name.table)
    );
    let engine: Option<Row> = own("read the catalogue", conn.query_first(query)).await?;
    let engine = engine.map_or_else(String::new, |row| text(&row, 0));
    let ids = if engine.eq_ignore_ascii_case("innodb") {
        ids(conn, info, name).await?
    } else {
        BTreeMap::new()
    };
    let digest = openssl::sha::sha256(definition.as_bytes());
    Ok(Some(Mark {
        engine,
        definition: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        ids,
    }))
}

async fn ids(conn: &mut Client, info: &ServerInfo, name: &TableName) -> Result<BTreeMap<String, u64>> {
    let table = match info.flavor {
        Flavor::Mysql => "INNODB_TABLES",
        Flavor::Mariadb => "INNODB_SYS_TABLES",
    };
    let pattern = format!("{}/{}%", encoded(&name.schema).like, encoded(&name.table).like);
    let query = format!(
        "SELECT NAME, TABLE_ID FROM information_schema.{table} WHERE NAME LIKE {}",
        literal(&pattern)
    );
    let rows: std::result::Result<Vec<Row>, Error> = conn.query(query).await;
    let rows = rows.map_err(|error| own_error(WHAT, &error))?;
    let mut ids = BTreeMap::new();
    for row in rows {
        let stored = text(&row, 0);
        if let Some(rest) = belongs(&stored, name, info.fold_names)
            && let Some(id) = value::<u64>(&row, 1)
        {
            ids.insert(rest.to_owned(), id);
        }
    }
    Ok(ids)
}

/// A name in the encoding of file names, in which InnoDB keeps it.
struct Encoded {
    /// Pieces: plain text, or none for a character whose code is not known here.
    pieces: Vec<Option<String>>,
    /// A pattern that all forms match.
    like: String,
}

/// ASCII letters, digits and `_` stand for themselves, other ASCII characters as `@` and
/// four hexadecimal digits, others as `@` and two or four characters ("Mapping of
/// Identifiers to File Names" in MySQL's manual).
fn encoded(name: &str) -> Encoded {
    let mut pieces: Vec<Option<String>> = Vec::new();
    let mut like = String::new();
    for character in name.chars() {
        if !character.is_ascii() {
            pieces.push(None);
            like.push_str("@%");
            continue;
        }
        let piece = if character.is_ascii_alphanumeric() || character == '_' {
            character.to_string()
        } else {
            format!("@{:04x}", u32::from(character))
        };
        like.push_str(&piece.replace('_', "\\_"));
        match pieces.last_mut() {
            Some(Some(last)) => last.push_str(&piece),
            _ => pieces.push(Some(piece)),
        }
    }
    Encoded { pieces, like }
}

/// What stands behind an encoded name at the begin of `stored`; none if another name does.
fn behind<'a>(stored: &'a str, name: &str, fold: bool) -> Option<&'a str> {
    let mut rest = stored;
    for piece in encoded(name).pieces {
        rest = match piece {
            Some(piece) => {
                let start = rest.get(..piece.len())?;
                let same = if fold {
                    start.eq_ignore_ascii_case(&piece)
                } else {
                    start == piece
                };
                if !same {
                    return None;
                }
                rest.get(piece.len()..)?
            }
            None => {
                let code = rest.strip_prefix('@')?;
                let is_hex = |length: usize| {
                    let digits = code.get(..length);
                    digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
                };
                let is_short = code
                    .get(..2)
                    .is_some_and(|two| two.bytes().all(|b| b.is_ascii_alphanumeric()));
                // Two hexadecimal digits never make a short code: its second is a letter
                // from `g` on.
                let length = match (is_hex(4), is_short) {
                    (true, _) => 4,
                    (false, true) => 2,
                    (false, false) => return None,
                };
                code.get(length..)?
            }
        };
    }
    Some(rest)
}

/// The part of a stored name behind the table's: empty, or that of a partition. None if
/// it is another table's.
fn belongs<'a>(stored: &'a str, name: &TableName, fold: bool) -> Option<&'a str> {
    let rest = behind(stored, &name.schema, fold)?.strip_prefix('/')?;
    let rest = behind(rest, &name.table, fold)?;
    let start = rest.get(..3).map(str::to_ascii_lowercase);
    (rest.is_empty() || start.as_deref() == Some("#p#")).then_some(rest)
}

/// A definition without the table option `AUTO_INCREMENT=n`.
fn without_auto_increment(definition: &str) -> String {
    const OPTION: &str = " AUTO_INCREMENT=";
    // Options stand behind the last closing bracket at the begin of a line; comments of
    // columns, which may hold the words, before it.
    let options = definition.rfind("\n)").unwrap_or(0);
    let (columns, options) = definition.split_at(options);
    let Some(at) = options.find(OPTION) else {
        return definition.to_owned();
    };
    let (before, after) = options.split_at(at);
    let after = after.get(OPTION.len()..).unwrap_or_default();
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{columns}{before}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(definition: &str, id: Option<u64>) -> Option<Mark> {
        Some(Mark {
            engine: "InnoDB".to_owned(),
            definition: definition.to_owned(),
            ids: id.into_iter().map(|id| (String::new(), id)).collect(),
        })
    }

    fn print(tables: &[(&str, Option<Mark>)], schemas: &[(&str, bool)]) -> Fingerprint {
        Fingerprint {
            tables: tables
                .iter()
                .map(|(name, mark)| ((*name).to_owned(), mark.clone()))
                .collect(),
            schemas: schemas
                .iter()
                .map(|(name, is)| ((*name).to_owned(), *is))
                .collect(),
        }
    }

    #[test]
    fn a_swap_of_equal_tables_is_seen_by_the_ids() {
        let before = print(
            &[
                ("s/a", mark("d", Some(1))),
                ("s/b", mark("d", Some(2))),
                ("s/tmp", None),
            ],
            &[],
        );
        let after = print(
            &[
                ("s/a", mark("d", Some(2))),
                ("s/b", mark("d", Some(1))),
                ("s/tmp", None),
            ],
            &[],
        );
        assert_eq!(
            Fingerprint::found(DdlKind::RenameTable, &before, &after),
            Found::Ran
        );
        assert_eq!(
            Fingerprint::found(DdlKind::RenameTable, &before, &before),
            Found::Run
        );
        assert!(!before.has_twins());
        let without_ids = print(&[("s/a", mark("d", None)), ("s/b", mark("d", None))], &[]);
        assert!(without_ids.has_twins());
    }

    #[test]
    fn each_kind_has_its_rule() {
        let there = print(&[("s/a", mark("d", Some(1)))], &[]);
        let emptied = print(&[("s/a", mark("d", Some(2)))], &[]);
        let gone = print(&[("s/a", None)], &[]);
        let altered = print(&[("s/a", mark("e", Some(1)))], &[]);
        let found = Fingerprint::found;
        assert_eq!(found(DdlKind::TruncateTable, &there, &emptied), Found::Run);
        assert_eq!(found(DdlKind::DropTable, &there, &gone), Found::Ran);
        assert_eq!(found(DdlKind::DropTable, &there, &there), Found::Run);
        assert_eq!(
            found(DdlKind::DropTable, &gone, &gone),
            Found::Run,
            "IF EXISTS of what is not there"
        );
        assert_eq!(found(DdlKind::CreateTable, &gone, &there), Found::Ran);
        assert_eq!(found(DdlKind::AlterTable, &there, &altered), Found::Ran);
        assert_eq!(found(DdlKind::Index, &there, &altered), Found::Ran);
        let (schema, no_schema) = (print(&[], &[("s", true)]), print(&[], &[("s", false)]));
        assert_eq!(found(DdlKind::DropDatabase, &schema, &no_schema), Found::Ran);
        assert_eq!(found(DdlKind::DropDatabase, &schema, &schema), Found::Run);
        assert_eq!(found(DdlKind::CreateDatabase, &no_schema, &schema), Found::Ran);
        assert_eq!(found(DdlKind::CreateDatabase, &schema, &schema), Found::Run);
        assert_eq!(found(DdlKind::AlterDatabase, &schema, &schema), Found::Run);
    }

    #[test]
    fn stored_names_are_told_apart() {
        let name = TableName::new("d-ä", "t x$");
        assert_eq!(belongs("d@002d@0k/t@0020x@0024", &name, false), Some(""));
        assert_eq!(
            belongs("d@002d@0k/t@0020x@0024#p#p0", &name, false),
            Some("#p#p0")
        );
        assert_eq!(
            belongs("d@002d@0k/t@0020x@0024#P#p1", &name, false),
            Some("#P#p1")
        );
        assert_eq!(belongs("d@002d@0k/t@0020x@0024y", &name, false), None);
        assert_eq!(belongs("d@002d/t@0020x@0024", &name, false), None);
        let wide = TableName::new("s", "日T");
        assert_eq!(belongs("s/@65e5T", &wide, false), Some(""));
        assert_eq!(belongs("s/@65e5t", &wide, false), None);
        assert_eq!(belongs("s/@65e5t", &wide, true), Some(""));
        assert_eq!(belongs("s/t1", &TableName::new("s", "t"), false), None);
    }

    #[test]
    fn the_next_number_does_not_count() {
        let with = "CREATE TABLE `t` (\n  `a` int COMMENT ' AUTO_INCREMENT=7'\n) ENGINE=InnoDB AUTO_INCREMENT=12 DEFAULT CHARSET=utf8mb4";
        let without = "CREATE TABLE `t` (\n  `a` int COMMENT ' AUTO_INCREMENT=7'\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
        assert_eq!(without_auto_increment(with), without);
        assert_eq!(without_auto_increment(without), without);
    }

    #[test]
    fn what_was_kept_is_read_back() {
        let kept = print(
            &[("s/a", mark("d", Some(u64::MAX))), ("s/b", None)],
            &[("s", true)],
        );
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), kept);
    }
}
