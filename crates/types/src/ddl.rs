//! DDL as it travels from the source to the sink.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::TableName;
use crate::table::Flavor;

/// What a statement does, as far as order and registration depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DdlKind {
    /// A table first met by its rows; no statement was seen. Nothing is executed.
    ImplicitCreate,
    /// CREATE TABLE in any form.
    CreateTable,
    /// ALTER TABLE that keeps the name.
    AlterTable,
    /// CREATE INDEX or DROP INDEX.
    Index,
    /// RENAME TABLE, or ALTER TABLE … RENAME.
    RenameTable,
    /// TRUNCATE TABLE.
    TruncateTable,
    /// DROP TABLE.
    DropTable,
    /// CREATE DATABASE.
    CreateDatabase,
    /// ALTER DATABASE.
    AlterDatabase,
    /// DROP DATABASE.
    DropDatabase,
    /// Views, routines, triggers, events, accounts, maintenance: touches no replicated
    /// table's rows or shape.
    Other,
}

impl DdlKind {
    /// Whether it makes, drops or renames a table or database, so that the schema
    /// dispatcher takes part.
    pub const fn is_structural(self) -> bool {
        matches!(
            self,
            Self::ImplicitCreate
                | Self::CreateTable
                | Self::RenameTable
                | Self::DropTable
                | Self::CreateDatabase
                | Self::AlterDatabase
                | Self::DropDatabase
        )
    }
}

/// Session that ran a statement at the source, as far as the statement's meaning depends
/// on it (MySQL `Query_event_status_vars`). What the binlog does not tell is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DdlSession {
    /// Server family that wrote the statement; tells which comments are executed.
    pub flavor: Option<Flavor>,
    /// `sql_mode` bits.
    pub sql_mode: Option<u64>,
    /// `character_set_client`, as a collation id. The text itself has been decoded.
    pub character_set_client: Option<u16>,
    /// `collation_connection`: collation of literals.
    pub collation_connection: Option<u16>,
    /// `collation_server`.
    pub collation_server: Option<u16>,
    /// `collation_database` of the default schema: what a table without a charset gets.
    pub collation_database: Option<u16>,
    /// `default_collation_for_utf8mb4` (MySQL).
    pub default_collation_utf8mb4: Option<u16>,
    /// `character_set_collations` (MariaDB from 11.2 on): pairs of a charset, as the id
    /// of its default collation, and the collation that it stands for. None if the
    /// statement does not depend on it, or if the server has no such setting: the empty
    /// setting means the same then.
    pub character_set_collations: Option<Vec<(u16, u16)>>,
    /// `time_zone`.
    pub time_zone: Option<Arc<str>>,
    /// `explicit_defaults_for_timestamp`.
    pub explicit_defaults_for_timestamp: Option<bool>,
    /// Foreign keys were not checked (`foreign_key_checks=0`).
    pub no_foreign_key_checks: bool,
    /// `TIMESTAMP`, seconds since the Unix epoch: what `CURRENT_TIMESTAMP` gives in the
    /// rows that an ALTER fills.
    pub timestamp: Option<u32>,
}

/// One DDL statement, or the implicit creation of a table. Its order key stands beside
/// it where it travels.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DdlEvent {
    /// What it does.
    pub kind: DdlKind,
    /// Default schema of the session, empty for none.
    pub schema: Arc<str>,
    /// The session beside it.
    #[serde(default)]
    pub session: Arc<DdlSession>,
    /// Text as the server wrote it; empty for `ImplicitCreate`.
    pub sql: Arc<str>,
    /// Tables that it writes: made, changed, dropped, both names of a rename. An empty
    /// table name stands for every table of the schema.
    pub writes: Vec<TableName>,
    /// Tables that exist afterwards and may not have existed before.
    pub makes: Vec<TableName>,
    /// Tables that it reads: LIKE, SELECT, foreign-key parents.
    pub reads: Vec<TableName>,
    /// Original commit time, milliseconds since the Unix epoch.
    pub commit_time_ms: u64,
}

/// Counts only: a statement may hold literals.
impl std::fmt::Debug for DdlEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DdlEvent")
            .field("kind", &self.kind)
            .field("writes", &self.writes)
            .field("reads", &self.reads)
            .field("sql_bytes", &self.sql.len())
            .finish()
    }
}

impl DdlEvent {
    /// Whether the statement writes or reads `table`, by name or by its whole schema.
    pub fn concerns(&self, table: &TableName) -> bool {
        self.writes
            .iter()
            .chain(&self.reads)
            .any(|name| name.schema == table.schema && (name.table.is_empty() || name.table == table.table))
    }
}
