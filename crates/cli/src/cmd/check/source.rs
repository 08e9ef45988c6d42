//! Checks of a source: what the first events of its files say.

use std::ops::ControlFlow;
use std::path::PathBuf;

use weir_binlog::{BinlogError, ChecksumAlgorithm, Event, TableMap};
use weir_config::{Changefeed, SourceUri, Start};
use weir_filter::TableFilter;
use weir_types::{Flavor, TableName};

use super::Check;
use crate::cmd::binlog::describe::statement;
use crate::cmd::binlog::files::of_folder;
use crate::cmd::binlog::walk::{Flow, Located, ON, RowsSeen, Visitor, name_of, walk};
use crate::outcome::Failure;

/// Events that are looked at. Settings seldom change later, and the run itself checks
/// every event.
const EVENTS_MAX: u64 = 10_000;

/// Statements that change rows; in row format they are not in the binlog.
const ROW_STATEMENTS: [&str; 5] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"];

/// All checks of the source.
pub(super) fn checks(changefeed: &Changefeed) -> Vec<Check> {
    let SourceUri::BinlogFiles { dir, index } = &changefeed.source.uri;
    let files = match of_folder(dir, index.as_deref()) {
        Ok(files) => files,
        Err(Failure(report)) => {
            return vec![check(
                "binlog files",
                "source.uri",
                "readable",
                &report.message,
                false,
            )];
        }
    };
    let mut checks = vec![found(&files)];
    checks.extend(start(changefeed, &files));
    let filter = match changefeed.table_filter() {
        Ok(filter) => filter,
        Err(error) => {
            checks.push(check(
                "filter",
                "filter.rules",
                "patterns",
                &error.to_string(),
                false,
            ));
            return checks;
        }
    };
    let mut probe = Probe::new(filter);
    if let Err(Failure(report)) = walk(&files, &mut probe) {
        checks.push(check("events", "source.uri", "readable", &report.message, false));
        return checks;
    }
    checks.extend(probe.checks());
    checks
}

fn check(name: &str, setting: &str, expected: &str, actual: &str, ok: bool) -> Check {
    Check {
        end: "source",
        name: name.to_owned(),
        setting: setting.to_owned(),
        expected: expected.to_owned(),
        actual: actual.to_owned(),
        ok,
    }
}

fn found(files: &[PathBuf]) -> Check {
    let name = |file: Option<&PathBuf>| file.map_or_else(String::new, |path| name_of(path));
    let actual = format!(
        "{}, {} to {}",
        files.len(),
        name(files.first()),
        name(files.last())
    );
    check("binlog files", "source.uri", "readable", &actual, true)
}

/// The file that a start names is there, and long enough.
fn start(changefeed: &Changefeed, files: &[PathBuf]) -> Option<Check> {
    let Start::File { name, offset } = &changefeed.source.start else {
        return None;
    };
    let named = files.iter().find(|path| name_of(path) == *name);
    let length = named
        .and_then(|path| std::fs::metadata(path).ok())
        .map(|meta| meta.len());
    let (actual, ok) = match length {
        Some(length) => (format!("{length} bytes"), length >= *offset),
        None => ("no such file".to_owned(), false),
    };
    let expected = format!("`{name}` with at least {offset} bytes");
    Some(check("start", "source.start", &expected, &actual, ok))
}

/// What the events have shown so far.
struct Probe {
    filter: TableFilter,
    events: u64,
    server_version: Option<String>,
    flavor: Flavor,
    checksum: Option<ChecksumAlgorithm>,
    /// Transactions with and without identifier.
    with_gtid: u64,
    without_gtid: u64,
    /// Table maps of tables that the filter lets through.
    table_maps: u64,
    /// The first such table whose map has no column names.
    without_names: Option<String>,
    /// Why the rows of the first such table cannot be read.
    unreadable: Option<String>,
    /// What the first row change in statement format was.
    statement: Option<String>,
}

impl Probe {
    const fn new(filter: TableFilter) -> Self {
        Self {
            filter,
            events: 0,
            server_version: None,
            flavor: Flavor::Mysql,
            checksum: None,
            with_gtid: 0,
            without_gtid: 0,
            table_maps: 0,
            without_names: None,
            unreadable: None,
            statement: None,
        }
    }

    fn checks(&self) -> Vec<Check> {
        let version = self.server_version.as_deref().unwrap_or("no events");
        let mut out = vec![check(
            "binlog format",
            "binlog version",
            "4",
            &format!("4, server {version}"),
            self.server_version.is_some(),
        )];
        let checksum = match self.checksum {
            Some(ChecksumAlgorithm::Crc32) => "CRC32",
            Some(ChecksumAlgorithm::None) => "NONE: damage to a file may not be noticed",
            None => "not known",
        };
        out.push(check(
            "checksums",
            "binlog_checksum",
            "CRC32 or NONE",
            checksum,
            self.checksum.is_some(),
        ));
        let format = match &self.statement {
            Some(statement) => format!("`{statement}` as a statement"),
            None => "ROW".to_owned(),
        };
        out.push(check(
            "row format",
            "binlog_format",
            "ROW",
            &format,
            self.statement.is_none(),
        ));
        let metadata = match &self.without_names {
            Some(table) => format!("no column names for `{table}`"),
            None if self.table_maps == 0 => "no rows yet".to_owned(),
            None => "FULL".to_owned(),
        };
        out.push(check(
            "column names",
            "binlog_row_metadata",
            "FULL",
            &metadata,
            self.without_names.is_none(),
        ));
        let types = self.unreadable.as_deref().unwrap_or("supported");
        out.push(check(
            "column types",
            "filter.rules",
            "supported",
            types,
            self.unreadable.is_none(),
        ));
        let gtids = match (self.with_gtid, self.without_gtid) {
            (0, 0) => "no transactions yet",
            (_, 0) => "ON",
            (0, _) => "OFF: progress counts by file and offset",
            _ => "mixed: progress counts by file and offset where there are none",
        };
        out.push(check(
            "transaction identifiers",
            "gtid_mode",
            "ON or OFF",
            gtids,
            true,
        ));
        out
    }

    fn step(&mut self) -> Flow {
        self.events += 1;
        if self.events >= EVENTS_MAX {
            return Ok(ControlFlow::Break(()));
        }
        ON
    }

    fn table_map(&mut self, map: &TableMap<'_>) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let name = TableName::new(text(map.schema), text(map.table));
        if !self.filter.matches(&name) {
            return;
        }
        self.table_maps += 1;
        match map.to_version(self.flavor) {
            Ok(_) => {}
            Err(BinlogError::NoColumnNames { table }) => drop(self.without_names.get_or_insert(table)),
            Err(error) => {
                self.unreadable.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

impl Visitor for Probe {
    fn file(&mut self, _name: &str) {}

    fn event(&mut self, _at: &Located<'_>, event: &Event<'_>) -> Flow {
        match event {
            Event::FormatDescription(format) => {
                self.server_version
                    .get_or_insert_with(|| format.server_version.clone());
                self.flavor = format.flavor;
                // The weakest of all files.
                if self.checksum != Some(ChecksumAlgorithm::None) {
                    self.checksum = Some(format.checksum);
                }
            }
            Event::Gtid(_) | Event::MariadbGtid(_) => self.with_gtid += 1,
            Event::AnonymousGtid(_) => self.without_gtid += 1,
            Event::TableMap(map) => self.table_map(map),
            Event::Query(query) | Event::QueryCompressed(query) => {
                let text = statement(query);
                let word = text.split(' ').next().unwrap_or("");
                let schema = String::from_utf8_lossy(query.schema);
                if ROW_STATEMENTS.contains(&word) && self.filter.may_match_schema(&schema) {
                    self.statement.get_or_insert(text);
                }
            }
            _ => {}
        }
        self.step()
    }

    fn rows(&mut self, _at: &Located<'_>, _seen: &RowsSeen<'_>) -> Flow {
        self.step()
    }
}
