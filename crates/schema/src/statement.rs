//! What a statement is.

use weir_types::{DdlEvent, DdlKind, Flavor, TableName, Xid};

/// `sql_mode` bit of ANSI_QUOTES, the same on MySQL and MariaDB.
const ANSI_QUOTES: u64 = 0x4;
/// `sql_mode` bit of NO_BACKSLASH_ESCAPES, the same on MySQL and MariaDB.
const NO_BACKSLASH_ESCAPES: u64 = 0x10_0000;

/// What the text alone does not say: the session that ran the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session<'a> {
    /// Default schema, empty for none.
    pub default_schema: &'a str,
    /// Server family; tells which comments are executed.
    pub flavor: Flavor,
    /// `sql_mode` as the query event's status variables hold it.
    pub sql_mode: u64,
}

impl Default for Session<'_> {
    fn default() -> Self {
        Self {
            default_schema: "",
            flavor: Flavor::Mysql,
            sql_mode: 0,
        }
    }
}

impl<'a> Session<'a> {
    /// The session of a DDL on its way to a sink.
    pub fn of(event: &'a DdlEvent) -> Self {
        Self {
            default_schema: &event.schema,
            flavor: event.session.flavor.unwrap_or(Flavor::Mysql),
            sql_mode: event.session.sql_mode.unwrap_or(0),
        }
    }

    /// Whether `"` encloses names rather than strings.
    pub const fn ansi_quotes(&self) -> bool {
        self.sql_mode & ANSI_QUOTES != 0
    }

    /// Whether a backslash in a string is only a backslash.
    pub const fn no_backslash_escapes(&self) -> bool {
        self.sql_mode & NO_BACKSLASH_ESCAPES != 0
    }
}

/// A DDL statement, as far as order and registration depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ddl {
    /// What it does. MariaDB's CONVERT PARTITION … TO TABLE and CONVERT TABLE … TO
    /// PARTITION count as renames: they make or remove a table.
    pub kind: DdlKind,
    /// Tables that it makes, changes or drops, both names of a rename. An empty table
    /// name stands for every table of the schema.
    pub writes: Vec<TableName>,
    /// Tables that exist afterwards and may not have existed before.
    pub makes: Vec<TableName>,
    /// LIKE templates, foreign-key parents, merge members.
    pub reads: Vec<TableName>,
}

/// Why a statement has no effect on what is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IgnoreReason {
    /// Temporary tables belong to one session of the source.
    TemporaryTable,
    /// Views hold no rows.
    View,
    /// Triggers fired at the source already; their changes are rows in the binlog.
    Trigger,
    /// Procedures, functions and packages: likewise.
    Routine,
    /// Scheduled events: likewise.
    Event,
    /// MariaDB sequences: numbers were drawn at the source already.
    Sequence,
    /// Accounts, roles and privileges; their text holds secrets and is never kept.
    Account,
    /// ANALYZE, OPTIMIZE, FLUSH and others change neither rows nor shape.
    Maintenance,
    /// Tablespaces, servers, plugins, resource groups: belong to the source's instance.
    Instance,
    /// Session settings, and releases of savepoints.
    Session,
    /// Nothing but comments and blanks.
    Empty,
}

impl IgnoreReason {
    /// Label for metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TemporaryTable => "temporary_table",
            Self::View => "view",
            Self::Trigger => "trigger",
            Self::Routine => "routine",
            Self::Event => "event",
            Self::Sequence => "sequence",
            Self::Account => "account",
            Self::Maintenance => "maintenance",
            Self::Instance => "instance",
            Self::Session => "session",
            Self::Empty => "empty",
        }
    }
}

/// A statement of a query event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Changes the shape or existence of tables or schemas.
    Ddl(Ddl),
    /// BEGIN or START TRANSACTION.
    Begin,
    /// COMMIT.
    Commit,
    /// ROLLBACK of the whole transaction.
    Rollback,
    /// SAVEPOINT; the name in lower case, since servers compare it without case.
    Savepoint(String),
    /// ROLLBACK TO a savepoint; the name in lower case.
    RollbackTo(String),
    /// XA START.
    XaStart(Xid),
    /// XA END.
    XaEnd(Xid),
    /// XA PREPARE.
    XaPrepare(Xid),
    /// XA COMMIT.
    XaCommit {
        /// Which.
        xid: Xid,
        /// ONE PHASE: it was never prepared.
        one_phase: bool,
    },
    /// XA ROLLBACK.
    XaRollback(Xid),
    /// A change of rows written as a statement: what it changed cannot be told.
    Dml {
        /// Tables that it changes; none if they cannot be told from its beginning.
        tables: Option<Vec<TableName>>,
    },
    /// No effect on what is replicated.
    Ignored(IgnoreReason),
}
