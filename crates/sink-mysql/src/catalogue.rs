//! Reads tables and foreign keys at the target.

use mysql_async::Row;
use weir_types::{Flavor, TableName};

use crate::client::{Client, own};
use crate::components::ForeignKey;
use crate::connect::{ServerInfo, own_error, text, value};
use crate::error::{MysqlSinkError, Result};
use crate::reply::{Problem, ServerReply, Verdict, judge};
use crate::sql::{literal, literals, qualified};
use crate::target::{TargetColumn, TargetKey, TargetTable};

const WHAT: &str = "read the catalogue";

/// Engines whose tables take part in transactions.
const TRANSACTIONAL_ENGINES: [&str; 4] = ["innodb", "ndbcluster", "rocksdb", "tokudb"];
/// What `EXTRA` says of a column that cannot be written.
const GENERATED: [&str; 3] = ["VIRTUAL GENERATED", "STORED GENERATED", "PERSISTENT"];

/// Reads a table.
///
/// # Errors
/// It does not exist, or the target cannot be asked.
pub(crate) async fn table(conn: &mut Client, info: &ServerInfo, name: &TableName) -> Result<TargetTable> {
    let place = format!(
        "TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        literal(&name.schema),
        literal(&name.table)
    );
    let query = format!("SELECT ENGINE FROM information_schema.TABLES WHERE {place}");
    let engine: Option<Row> = own(WHAT, conn.query_first(query)).await?;
    let Some(engine) = engine else {
        return Err(missing(name));
    };
    let engine = text(&engine, 0).to_ascii_lowercase();
    let query = format!(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, COLUMN_DEFAULT, \
         EXTRA FROM information_schema.COLUMNS WHERE {place} ORDER BY ORDINAL_POSITION"
    );
    let rows: Vec<Row> = own(WHAT, conn.query(query)).await?;
    let columns: Vec<TargetColumn> = rows.iter().map(column).collect();
    let keys = keys(conn, name, &columns).await?;
    let foreign = foreign(conn, name).await?;
    Ok(TargetTable {
        name: name.clone(),
        columns,
        keys,
        foreign,
        flavor: info.flavor,
        transactional: TRANSACTIONAL_ENGINES.contains(&engine.as_str()),
    })
}

fn missing(name: &TableName) -> MysqlSinkError {
    MysqlSinkError::Rejected {
        table: name.clone(),
        problem: Problem::MissingTable,
        reply: ServerReply {
            code: 1146,
            state: "42S02".into(),
            name: None,
        },
    }
}

fn column(row: &Row) -> TargetColumn {
    let optional = |at| value::<String>(row, at);
    let extra = text(row, 7).to_ascii_uppercase();
    TargetColumn {
        name: text(row, 0),
        data_type: text(row, 1).to_ascii_lowercase(),
        column_type: text(row, 2),
        charset: optional(3),
        collation: optional(4),
        nullable: text(row, 5) == "YES",
        generated: GENERATED.iter().any(|kind| extra.contains(kind)),
        has_default: value::<Vec<u8>>(row, 6).is_some() || extra.contains("DEFAULT_GENERATED"),
        auto_increment: extra.contains("AUTO_INCREMENT"),
    }
}

/// Unique keys in the order of `SHOW INDEX`, which is the server's own.
async fn keys(conn: &mut Client, name: &TableName, columns: &[TargetColumn]) -> Result<Vec<TargetKey>> {
    let query = format!("SHOW INDEX FROM {}", qualified(name));
    let rows: std::result::Result<Vec<Row>, _> = conn.query(query).await;
    let rows = rows.map_err(|error| match judge(&error) {
        Verdict::Definite(problem, reply) => MysqlSinkError::Rejected {
            table: name.clone(),
            problem,
            reply,
        },
        _ => own_error(WHAT, &error),
    })?;
    let mut keys: Vec<TargetKey> = Vec::new();
    for row in rows.iter().filter(|row| text(row, 1) == "0") {
        let key_name = text(row, 2);
        if keys.last().is_none_or(|key| key.name != key_name) {
            keys.push(TargetKey {
                primary: key_name == "PRIMARY",
                name: key_name,
                columns: Vec::new(),
                nullable: false,
                functional_or_prefix: false,
            });
        }
        let Some(key) = keys.last_mut() else { continue };
        let part = value::<String>(row, 4);
        let at = part.and_then(|part| columns.iter().position(|column| column.name == part));
        match at {
            Some(at) => key.columns.push(at),
            None => key.functional_or_prefix = true,
        }
        key.functional_or_prefix |= value::<u64>(row, 7).is_some();
        key.nullable |= text(row, 9) == "YES";
    }
    Ok(keys)
}

/// Whether a table has foreign keys or is referenced.
async fn foreign(conn: &mut Client, name: &TableName) -> Result<bool> {
    let (schema, table) = (literal(&name.schema), literal(&name.table));
    let query = format!(
        "SELECT 1 FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE (CONSTRAINT_SCHEMA = {schema} AND TABLE_NAME = \
         {table}) OR (UNIQUE_CONSTRAINT_SCHEMA = {schema} AND REFERENCED_TABLE_NAME = {table}) LIMIT 1"
    );
    let row: Option<Row> = own(WHAT, conn.query_first(query)).await?;
    Ok(row.is_some())
}

/// All foreign keys of and to tables of some schemas.
pub(crate) async fn foreign_keys<'a>(
    conn: &mut Client,
    schemas: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<ForeignKey>> {
    let schemas = literals(schemas);
    if schemas.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME FROM \
         information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA IN ({schemas})"
    );
    let rows: Vec<Row> = own(WHAT, conn.query(query)).await?;
    Ok(rows
        .iter()
        .map(|row| ForeignKey {
            child: TableName::new(text(row, 0), text(row, 1)),
            parent: TableName::new(text(row, 2), text(row, 3)),
        })
        .collect())
}

/// Triggers on tables of some schemas: they run for replicated rows too.
pub(crate) async fn triggers<'a>(
    conn: &mut Client,
    schemas: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<TableName>> {
    let schemas = literals(schemas);
    if schemas.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!(
        "SELECT DISTINCT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS WHERE \
         EVENT_OBJECT_SCHEMA IN ({schemas})"
    );
    let rows: Vec<Row> = own(WHAT, conn.query(query)).await?;
    Ok(rows
        .iter()
        .map(|row| TableName::new(text(row, 0), text(row, 1)))
        .collect())
}

/// Whether the target's family is MySQL.
pub(crate) fn is_mysql(info: &ServerInfo) -> bool {
    info.flavor == Flavor::Mysql
}
