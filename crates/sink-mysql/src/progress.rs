//! The schema `weir` at the target: what has been written there, kept beside the rows.
//!
//! | table | a row says |
//! |---|---|
//! | `changefeeds` | which history the changefeed's order keys belong to, how many sessions it had, and which process writes |
//! | `progress` | a table's rows up to and including `order_key` are there and must not be written again; with an empty table name, those of all tables of a schema |
//! | `ddl_begun` | a DDL was about to run; what its tables looked like before. Noted together with their progress up to it |
//!
//! Rows of an exact table and its `progress` are committed together; a DDL sets it for
//! all tables that it writes, makes or reads, in one transaction with the removal of its
//! row in `ddl_begun`. It never moves back.

use std::collections::HashMap;

use mysql_async::{Error, Row};
use weir_types::{LineageId, OrderKey, TableName};

use crate::client::{Client, own};
use crate::config::MysqlSinkConfig;
use crate::connect::{own_error, text, value};
use crate::error::{MysqlSinkError, Result};
use crate::reply::{Problem, ServerReply, Verdict, judge};
use crate::sql::{literal, literals, push_text};

/// Weir's schema at the target. Never replicated.
pub const SCHEMA: &str = "weir";

/// Layout of the tables below.
const LAYOUT_VERSION: u32 = 1;

const CREATE: [&str; 4] = [
    "CREATE DATABASE IF NOT EXISTS weir CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS weir.changefeeds (
        changefeed VARCHAR(64) NOT NULL PRIMARY KEY,
        lineage CHAR(32) NOT NULL,
        slots INT UNSIGNED NOT NULL,
        layout INT UNSIGNED NOT NULL,
        run CHAR(32) NOT NULL DEFAULT '',
        updated TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
    ) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS weir.progress (
        changefeed VARCHAR(64) NOT NULL,
        target_schema VARCHAR(64) NOT NULL,
        target_table VARCHAR(64) NOT NULL,
        source_schema VARCHAR(64) NOT NULL,
        source_table VARCHAR(64) NOT NULL,
        lineage CHAR(32) NOT NULL,
        order_key CHAR(24) NOT NULL,
        updated TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
        PRIMARY KEY (changefeed, target_schema, target_table)
    ) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS weir.ddl_begun (
        changefeed VARCHAR(64) NOT NULL,
        order_key CHAR(24) NOT NULL,
        step INT UNSIGNED NOT NULL,
        before_it LONGTEXT NOT NULL,
        begun TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        PRIMARY KEY (changefeed, order_key, step)
    ) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
];

const LOOK: &str = "SELECT 1 FROM weir.changefeeds, weir.progress, weir.ddl_begun LIMIT 0";

/// What a user needs on the schema.
pub(crate) fn grant(user: &str) -> String {
    format!("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.* TO {user}")
}

/// A table at both ends, or a schema, with an empty table name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) source: TableName,
    pub(crate) target: TableName,
}

/// What the target says of a changefeed's progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    /// Per target table; per schema where the table name is empty.
    by_target: HashMap<TableName, OrderKey>,
    by_source: HashMap<TableName, OrderKey>,
}

fn covered(map: &HashMap<TableName, OrderKey>, table: &TableName) -> OrderKey {
    let of = |name: &TableName| map.get(name).copied().unwrap_or(OrderKey::MIN);
    let schema = TableName::new(std::sync::Arc::clone(&table.schema), "");
    of(table).max(of(&schema))
}

impl Saved {
    fn insert(&mut self, place: Place, key: OrderKey) {
        raise(&mut self.by_source, place.source, key);
        raise(&mut self.by_target, place.target, key);
    }

    /// Rows of a target table up to here must not be written again.
    pub(crate) fn of_target(&self, table: &TableName) -> OrderKey {
        covered(&self.by_target, table)
    }

    /// The same by the table's name at the source.
    pub(crate) fn of_source(&self, table: &TableName) -> OrderKey {
        covered(&self.by_source, table)
    }

    /// All entries by name at the source; of whole schemas where the table is empty.
    pub(crate) const fn by_source(&self) -> &HashMap<TableName, OrderKey> {
        &self.by_source
    }
}

fn raise(map: &mut HashMap<TableName, OrderKey>, name: TableName, key: OrderKey) {
    let known = map.entry(name).or_insert(OrderKey::MIN);
    *known = key.max(*known);
}

/// Makes the schema if it is not there.
pub(crate) async fn prepare(conn: &mut Client, user: &str) -> Result<()> {
    match conn.query_drop(LOOK).await {
        Ok(()) => return Ok(()),
        Err(error) => match judge(&error) {
            Verdict::Definite(Problem::MissingTable, _) => {}
            // A schema that may not be seen is denied, not missing.
            Verdict::Definite(Problem::Denied, _) => {}
            _ => return Err(own_error("read the schema `weir`", &error)),
        },
    }
    for statement in CREATE {
        if let Err(error) = conn.query_drop(statement).await {
            return Err(denied(&error, user).unwrap_or_else(|| own_error("create the schema `weir`", &error)));
        }
    }
    own("read the schema `weir`", conn.query_drop(LOOK)).await
}

fn denied(error: &Error, user: &str) -> Option<MysqlSinkError> {
    match judge(error) {
        Verdict::Definite(Problem::Denied, reply) => Some(missing_privilege(reply, user)),
        _ => None,
    }
}

fn missing_privilege(reply: ServerReply, user: &str) -> MysqlSinkError {
    MysqlSinkError::Privilege {
        user: user.to_owned(),
        what: "create or use the schema `weir`",
        reply,
        grant: grant(user),
    }
}

/// Claims the changefeed for this history. Returns the number of row sessions that any
/// earlier run may have left behind.
pub(crate) async fn claim(conn: &mut Client, config: &MysqlSinkConfig, user: &str) -> Result<usize> {
    let changefeed = literal(&config.changefeed.0);
    let lineage = config.lineage.to_string();
    let insert = format!(
        "INSERT IGNORE INTO weir.changefeeds (changefeed, lineage, slots, layout) VALUES ({changefeed}, '{lineage}', 0, \
         {LAYOUT_VERSION})"
    );
    conn.query_drop(insert).await.map_err(|error| {
        denied(&error, user).unwrap_or_else(|| own_error("write to the schema `weir`", &error))
    })?;
    let query =
        format!("SELECT lineage, slots, layout, run FROM weir.changefeeds WHERE changefeed = {changefeed}");
    let row: Option<Row> = own("read `weir.changefeeds`", conn.query_first(query)).await?;
    let damaged = |reason: &str| MysqlSinkError::Progress {
        table: "changefeeds",
        reason: reason.to_owned(),
    };
    let row = row.ok_or_else(|| damaged("the row of the changefeed is gone"))?;
    let found = text(&row, 0);
    if found != lineage {
        return Err(MysqlSinkError::OtherLineage {
            changefeed: config.changefeed.to_string(),
            found,
            expected: lineage,
        });
    }
    if value::<u32>(&row, 2) != Some(LAYOUT_VERSION) {
        return Err(damaged("it was written by another version of Weir"));
    }
    let slots = value::<usize>(&row, 1).ok_or_else(|| damaged("`slots` is no number"))?;
    let run = &config.run;
    if !run.has_claimed() {
        let update = format!(
            "UPDATE weir.changefeeds SET run = '{}' WHERE changefeed = {changefeed}",
            run.id()
        );
        own("write `weir.changefeeds`", conn.query_drop(update)).await?;
        run.set_claimed();
    } else if text(&row, 3) != run.id() {
        return Err(superseded(config));
    }
    Ok(slots)
}

fn superseded(config: &MysqlSinkConfig) -> MysqlSinkError {
    MysqlSinkError::Superseded {
        changefeed: config.changefeed.to_string(),
    }
}

/// Checks that no other process has begun to write for the changefeed.
///
/// # Errors
/// Another one has; it cannot be read.
pub(crate) async fn check_run(conn: &mut Client, config: &MysqlSinkConfig) -> Result<()> {
    let query = format!(
        "SELECT run FROM weir.changefeeds WHERE changefeed = {}",
        literal(&config.changefeed.0)
    );
    let row: Option<Row> = own("read `weir.changefeeds`", conn.query_first(query)).await?;
    let row = row.ok_or_else(|| MysqlSinkError::Progress {
        table: "changefeeds",
        reason: "the row of the changefeed is gone".to_owned(),
    })?;
    if text(&row, 0) == config.run.id() {
        Ok(())
    } else {
        Err(superseded(config))
    }
}

/// The history that the changefeed's progress belongs to; none if there is no progress.
/// Writes nothing.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn owner(conn: &mut Client, config: &MysqlSinkConfig) -> Result<Option<String>> {
    let query = format!(
        "SELECT lineage FROM weir.changefeeds WHERE changefeed = {}",
        literal(&config.changefeed.0)
    );
    let row: std::result::Result<Option<Row>, Error> = conn.query_first(query).await;
    match row {
        Ok(row) => Ok(row.map(|row| text(&row, 0))),
        Err(error) => match judge(&error) {
            Verdict::Definite(Problem::MissingTable, _) => Ok(None),
            _ => Err(own_error("read the schema `weir`", &error)),
        },
    }
}

/// Remembers how many row sessions there may be, before the first is opened.
pub(crate) async fn set_slots(conn: &mut Client, config: &MysqlSinkConfig, slots: usize) -> Result<()> {
    let update = format!(
        "UPDATE weir.changefeeds SET slots = {slots} WHERE changefeed = {}",
        literal(&config.changefeed.0)
    );
    own("write `weir.changefeeds`", conn.query_drop(update)).await
}

/// Reads all progress of the changefeed.
pub(crate) async fn read(conn: &mut Client, config: &MysqlSinkConfig) -> Result<Saved> {
    let query = format!(
        "SELECT source_schema, source_table, target_schema, target_table, lineage, order_key FROM weir.progress WHERE \
         changefeed = {}",
        literal(&config.changefeed.0)
    );
    let rows: Vec<Row> = own("read `weir.progress`", conn.query(query)).await?;
    let mut saved = Saved::default();
    for row in rows {
        let (place, key) = parse(&row, config)?;
        saved.insert(place, key);
    }
    Ok(saved)
}

fn parse(row: &Row, config: &MysqlSinkConfig) -> Result<(Place, OrderKey)> {
    let place = Place {
        source: TableName::new(text(row, 0), text(row, 1)),
        target: TableName::new(text(row, 2), text(row, 3)),
    };
    let damaged = || MysqlSinkError::Progress {
        table: "progress",
        reason: format!("the row of `{}` holds no order key", place.target),
    };
    let found = LineageId::parse(&text(row, 4)).ok_or_else(damaged)?;
    if found != config.lineage {
        return Err(MysqlSinkError::OtherLineage {
            changefeed: config.changefeed.to_string(),
            found: found.to_string(),
            expected: config.lineage.to_string(),
        });
    }
    let key = OrderKey::parse(&text(row, 5)).ok_or_else(damaged)?;
    Ok((place, key))
}

/// Reads the progress of a target table now, that of its schema included.
pub(crate) async fn read_covering(
    conn: &mut Client,
    config: &MysqlSinkConfig,
    target: &TableName,
) -> Result<OrderKey> {
    let query = format!(
        "SELECT source_schema, source_table, target_schema, target_table, lineage, order_key FROM weir.progress WHERE \
         changefeed = {} AND target_schema = {} AND target_table IN ('', {})",
        literal(&config.changefeed.0),
        literal(&target.schema),
        literal(&target.table)
    );
    let rows: Vec<Row> = own("read `weir.progress`", conn.query(query)).await?;
    let mut covered = OrderKey::MIN;
    for row in rows {
        covered = covered.max(parse(&row, config)?.1);
    }
    Ok(covered)
}

/// The statement that sets the progress of tables; none for no tables.
pub(crate) fn upsert<'a>(
    config: &MysqlSinkConfig,
    places: impl IntoIterator<Item = (&'a TableName, &'a TableName, OrderKey)>,
) -> Option<String> {
    let mut out = String::from(
        "INSERT INTO weir.progress (changefeed, source_schema, source_table, target_schema, target_table, lineage, \
         order_key) VALUES ",
    );
    let lineage = config.lineage.to_string();
    let mut any = false;
    for (source, target, key) in places {
        out.push_str(if any { ",(" } else { "(" });
        any = true;
        let key = key.to_string();
        let values = [
            &config.changefeed.0,
            &source.schema,
            &source.table,
            &target.schema,
            &target.table,
            lineage.as_str(),
            key.as_str(),
        ];
        out.push_str(&literals(values));
        out.push(')');
    }
    out.push_str(" ON DUPLICATE KEY UPDATE order_key = GREATEST(order_key, VALUES(order_key))");
    any.then_some(out)
}

/// What the tables of a DDL looked like before it, if it was begun.
pub(crate) async fn read_begun(
    conn: &mut Client,
    config: &MysqlSinkConfig,
    key: OrderKey,
    step: usize,
) -> Result<Option<String>> {
    let query = format!(
        "SELECT before_it FROM weir.ddl_begun WHERE changefeed = {} AND order_key = '{key}' AND step = {step}",
        literal(&config.changefeed.0)
    );
    let row: Option<Row> = own("read `weir.ddl_begun`", conn.query_first(query)).await?;
    Ok(row.map(|row| text(&row, 0)))
}

/// Notes that a DDL is about to run, and that all rows of `places` from before it are there: a run that finds the DDL
/// begun does not write them again, before it knows whether the DDL took them or their columns away.
pub(crate) async fn begin(
    conn: &mut Client,
    config: &MysqlSinkConfig,
    key: OrderKey,
    step: usize,
    before: &str,
    places: &[Place],
) -> Result<()> {
    let mut text = String::from("BEGIN; ");
    if let Some(floors) = upsert(
        config,
        places.iter().map(|p| (&p.source, &p.target, key.before())),
    ) {
        text.push_str(&floors);
        text.push_str("; ");
    }
    text.push_str(&format!(
        "REPLACE INTO weir.ddl_begun (changefeed, order_key, step, before_it) VALUES ({}, '{key}', {step}, ",
        literal(&config.changefeed.0)
    ));
    push_text(&mut text, before);
    text.push_str("); COMMIT");
    together(conn, "write `weir.ddl_begun`", text).await
}

/// Runs a transaction of several statements.
async fn together(conn: &mut Client, what: &'static str, text: String) -> Result<()> {
    let ended = own(what, conn.query_drop(text)).await;
    if ended.is_err() {
        // What is left of the transaction must not stay open.
        drop(own("undo a transaction", conn.query_drop("ROLLBACK")).await);
    }
    ended
}

/// Forgets that a DDL was begun.
pub(crate) async fn forget_begun(
    conn: &mut Client,
    config: &MysqlSinkConfig,
    key: OrderKey,
    step: usize,
) -> Result<()> {
    let delete = format!(
        "DELETE FROM weir.ddl_begun WHERE changefeed = {} AND order_key = '{key}' AND step = {step}",
        literal(&config.changefeed.0)
    );
    own("write `weir.ddl_begun`", conn.query_drop(delete)).await
}

/// Notes that a DDL is done: its tables' progress, and the end of its begin, at once.
pub(crate) async fn finish(
    conn: &mut Client,
    config: &MysqlSinkConfig,
    key: OrderKey,
    step: usize,
    places: &[Place],
) -> Result<()> {
    let mut text = String::from("BEGIN; ");
    if let Some(floors) = upsert(config, places.iter().map(|p| (&p.source, &p.target, key))) {
        text.push_str(&floors);
        text.push_str("; ");
    }
    text.push_str(&format!(
        "DELETE FROM weir.ddl_begun WHERE changefeed = {} AND order_key = '{key}' AND step = {step}; COMMIT",
        literal(&config.changefeed.0)
    ));
    together(conn, "write `weir.progress`", text).await
}

#[cfg(test)]
mod tests {
    use weir_types::{ChangefeedId, CommitTs};

    use super::*;

    fn config() -> MysqlSinkConfig {
        MysqlSinkConfig::new(
            ChangefeedId("c".into()),
            LineageId(7),
            "h".to_owned(),
            3306,
            "u".to_owned(),
        )
    }

    #[test]
    fn a_schema_covers_its_tables_and_progress_never_moves_back() {
        let key = |ts| OrderKey::new(CommitTs(ts), 1);
        let place = |table: &str| Place {
            source: TableName::new("s", table),
            target: TableName::new("x", table),
        };
        let mut saved = Saved::default();
        saved.insert(place("t"), key(5));
        saved.insert(place("t"), key(4));
        assert_eq!(saved.of_target(&TableName::new("x", "t")), key(5));
        assert_eq!(saved.of_source(&TableName::new("s", "t")), key(5));
        assert_eq!(saved.of_source(&TableName::new("s", "other")), OrderKey::MIN);
        saved.insert(place(""), key(9));
        assert_eq!(saved.of_source(&TableName::new("s", "other")), key(9));
        assert_eq!(saved.of_target(&TableName::new("x", "t")), key(9));
    }

    #[test]
    fn progress_is_one_statement() {
        let (source, target) = (TableName::new("s", "t'"), TableName::new("x", "t"));
        let statement = upsert(&config(), [(&source, &target, OrderKey::MIN)]).unwrap();
        assert!(statement.contains(
            "('c','s','t''','x','t','00000000000000000000000000000007','000000000000000000000000')"
        ));
        assert!(upsert(&config(), []).is_none());
    }
}
