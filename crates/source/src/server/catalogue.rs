//! Reads what the server's catalogue says of a table, on a connection of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use weir_types::{Flavor, TableName};
use weir_wire::{Endpoint, Rows};

use super::Interrupt;
use super::session::{Session, text};
use crate::catalogue::{Describe, Described, Description};
use crate::error::{Result, SourceError};

/// Columns of a table, in the order of the rows.
const COLUMNS: &str = "SELECT COLUMN_NAME AS n, DATA_TYPE AS t, COLUMN_TYPE AS ct, IS_NULLABLE AS nullable, \
    CHARACTER_OCTET_LENGTH AS octets, NUMERIC_PRECISION AS p, NUMERIC_SCALE AS s, DATETIME_PRECISION AS fd, \
    CHARACTER_SET_NAME AS cs, COLLATION_NAME AS co, EXTRA AS extra, COLUMN_KEY AS k \
    FROM information_schema.COLUMNS";
/// Columns of its unique keys, in key order.
const KEYS: &str = "SELECT INDEX_NAME AS i, COLUMN_NAME AS n FROM information_schema.STATISTICS";
/// When it was changed.
const TABLES: &str = "SELECT UNIX_TIMESTAMP(CREATE_TIME) AS changed FROM information_schema.TABLES";

/// The catalogue of a server.
pub(crate) struct ServerCatalogue {
    endpoint: Endpoint,
    interrupt: Interrupt,
    open: Option<Open>,
}

/// A connection, and the collations of its server.
struct Open {
    session: Session,
    flavor: Flavor,
    version: String,
    collations: HashMap<String, u16>,
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn number(rows: &Rows, row: usize, column: &str) -> Option<u64> {
    rows.text(row, column)?.parse().ok()
}

impl ServerCatalogue {
    pub(crate) const fn new(endpoint: Endpoint, interrupt: Interrupt) -> Self {
        Self {
            endpoint,
            interrupt,
            open: None,
        }
    }
}

impl Describe for ServerCatalogue {
    fn describe(&mut self, name: &TableName) -> Result<Option<Description>> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(&self.endpoint)?,
        };
        let found = match open.table(name) {
            // It was idle for long: the server has closed it.
            Err(SourceError::Wire(_)) => {
                open = Open::new(&self.endpoint)?;
                open.table(name)?
            }
            found => found?,
        };
        self.open = Some(open);
        Ok(found)
    }

    fn pause(&mut self, time: Duration) {
        self.interrupt.sleep(time);
    }
}

impl Open {
    fn new(endpoint: &Endpoint) -> Result<Self> {
        let mut session = Session::open(endpoint)?;
        let server = session.connection.server();
        let (flavor, version) = (server.flavor, server.version.clone());
        // Whatever the defaults of the server are, text is utf8 and quotes are quotes.
        session
            .connection
            .execute("SET NAMES utf8mb4, SESSION sql_mode = ''")?;
        if flavor == Flavor::Mysql {
            // Keys that the server made up count as columns in the binlog (8.0.30).
            let wanted = "SET SESSION show_gipk_in_create_table_and_information_schema = ON";
            match session.connection.execute(wanted) {
                Ok(()) | Err(weir_wire::WireError::Server { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let collations = collations(&mut session, flavor, &version)?;
        Ok(Self {
            session,
            flavor,
            version,
            collations,
        })
    }

    fn table(&mut self, name: &TableName) -> Result<Option<Description>> {
        let of = format!(
            " WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
            literal(&name.schema),
            literal(&name.table)
        );
        let connection = &mut self.session.connection;
        let columns = connection.query(&format!("{COLUMNS}{of} ORDER BY ORDINAL_POSITION"))?;
        if columns.is_empty() {
            return Ok(None);
        }
        let keys = connection.query(&format!(
            "{KEYS}{of} AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        ))?;
        let tables = connection.query(&format!("{TABLES}{of}"))?;
        let changed = text(&tables, 0, "changed");
        let seconds = changed.split('.').next().and_then(|s| s.parse::<u64>().ok());
        let (end, _) = self.session.end_of_log(self.flavor, &self.version)?;
        let described = (0..columns.len()).map(|row| self.column(&columns, row));
        Ok(Some(Description {
            columns: described.collect(),
            primary_key: primary_key(&columns, &keys),
            changed_ms: seconds.unwrap_or(0).saturating_mul(1000),
            read_at: (Arc::clone(&end.file), end.offset),
        }))
    }

    fn column(&self, rows: &Rows, row: usize) -> Described {
        let collation = text(rows, row, "co");
        Described {
            name: text(rows, row, "n"),
            data_type: text(rows, row, "t").to_ascii_lowercase(),
            column_type: text(rows, row, "ct"),
            nullable: text(rows, row, "nullable").eq_ignore_ascii_case("YES"),
            octets: number(rows, row, "octets"),
            precision: number(rows, row, "p"),
            scale: number(rows, row, "s"),
            fraction_digits: number(rows, row, "fd"),
            charset: text(rows, row, "cs"),
            collation: self.collations.get(&collation).copied().unwrap_or(0),
            visible: !text(rows, row, "extra").contains("INVISIBLE"),
        }
    }
}

/// The primary key, or the unique key that the server takes for it: the one of whose
/// columns it says `PRI`.
fn primary_key(columns: &Rows, keys: &Rows) -> Vec<u16> {
    let at = |name: &str| {
        let found = (0..columns.len()).find(|row| text(columns, *row, "n").eq_ignore_ascii_case(name));
        found.and_then(|row| u16::try_from(row).ok())
    };
    let is_key = |row: &usize| text(columns, *row, "k") == "PRI";
    let wanted: Vec<usize> = (0..columns.len()).filter(is_key).collect();
    let mut by_name: Vec<(String, Vec<u16>)> = Vec::new();
    for row in 0..keys.len() {
        let name = text(keys, row, "i");
        let column = at(&text(keys, row, "n")).unwrap_or(u16::MAX);
        match by_name.last_mut().filter(|(last, _)| *last == name) {
            Some((_, key)) => key.push(column),
            None => by_name.push((name, vec![column])),
        }
    }
    let is_wanted = |key: &[u16]| {
        let mut sorted: Vec<usize> = key.iter().map(|column| usize::from(*column)).collect();
        sorted.sort_unstable();
        sorted == wanted
    };
    let primary = by_name.iter().find(|(name, _)| name == "PRIMARY");
    let promoted = || by_name.iter().find(|(_, key)| is_wanted(key));
    primary
        .or_else(promoted)
        .map(|(_, key)| key.clone())
        .unwrap_or_default()
}

/// Ids of collations by name. Newer releases of MariaDB name some without their charset.
fn collations(session: &mut Session, flavor: Flavor, version: &str) -> Result<HashMap<String, u16>> {
    let full = flavor == Flavor::Mariadb && super::facts::version(version) >= (10, 10);
    let sql = if full {
        "SELECT FULL_COLLATION_NAME AS n, ID AS id FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
    } else {
        "SELECT COLLATION_NAME AS n, ID AS id FROM information_schema.COLLATIONS"
    };
    let rows = session.connection.query(sql)?;
    let pair = |row| {
        let id = u16::try_from(number(&rows, row, "id")?).ok()?;
        Some((text(&rows, row, "n"), id))
    };
    Ok((0..rows.len()).filter_map(pair).collect())
}
