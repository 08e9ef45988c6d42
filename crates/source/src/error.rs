//! Errors of the source.

use weir_binlog::error::BinlogError;
use weir_schema::SchemaError;
use weir_types::{Classified, ErrorClass, TableName};
use weir_wire::WireError;

/// Why the source cannot go on. `place` is file and offset of the event.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The bytes are not a binlog, or damaged.
    #[error("cannot read the binlog at `{place}`")]
    Binlog {
        /// File and offset.
        place: String,
        /// What is wrong.
        #[source]
        source: BinlogError,
    },
    /// A statement is not understood.
    #[error("cannot understand the statement at `{place}`")]
    Statement {
        /// File and offset.
        place: String,
        /// What is wrong.
        #[source]
        source: SchemaError,
    },
    /// A statement's text is not in the charset that its session declared, or in one
    /// that is not known.
    #[error("text of the statement at `{place}` cannot be read as collation {collation}")]
    StatementText {
        /// File and offset.
        place: String,
        /// Collation id of the client, 0 if not known.
        collation: u16,
    },
    /// Rows of a table were changed by a statement instead of by row events.
    #[error("rows{table} were changed in statement format at `{place}`")]
    StatementFormat {
        /// File and offset.
        place: String,
        /// ` of` and the table, if it can be told.
        table: String,
    },
    /// A transaction begins before the one before it ended.
    #[error("a transaction begins at `{place}` before the one before it has ended")]
    Unended {
        /// File and offset.
        place: String,
    },
    /// An event stands where it cannot.
    #[error("`{event}` event outside of a transaction at `{place}`")]
    OutsideTransaction {
        /// File and offset.
        place: String,
        /// Name of the event.
        event: &'static str,
    },
    /// A row event without the table map that describes it.
    #[error("row event without table map (table id {table_id}) at `{place}`")]
    NoTableMap {
        /// File and offset.
        place: String,
        /// The id.
        table_id: u64,
    },
    /// A rollback to a savepoint that was not set.
    #[error("rollback to an unknown savepoint at `{place}`")]
    UnknownSavepoint {
        /// File and offset.
        place: String,
    },
    /// More row events in one transaction than ordinals.
    #[error("the transaction at `{place}` has more than 4 billion row events")]
    TooManyEvents {
        /// File and offset.
        place: String,
    },
    /// The server says that events were lost.
    #[error("the server reports an incident at `{place}`: events may be missing")]
    Incident {
        /// File and offset.
        place: String,
    },
    /// The rest of the file is encrypted.
    #[error("the binlog is encrypted from `{place}` on")]
    Encrypted {
        /// File and offset.
        place: String,
    },
    /// The file to resume from, or the oldest one needed, is gone.
    #[error("binlog file `{file}` is not there any more")]
    Purged {
        /// Name of the file.
        file: String,
    },
    /// Transactions between the start and the oldest file are gone.
    #[error("the binlog begins behind the start: transactions `{missing}` are purged")]
    PurgedGtids {
        /// What is missing.
        missing: String,
    },
    /// The files, or the server, are others than those of the saved position, and nothing
    /// tells the place in them.
    #[error("the binlog files are not those that the saved position belongs to")]
    OtherSource,
    /// A position behind the end of a file, or inside a transaction.
    #[error("`{place}` is not a place where a transaction begins")]
    BadPosition {
        /// File and offset.
        place: String,
    },
    /// A file ends without its end marker, and the next one does not follow it.
    #[error("binlog file `{file}` is cut: {what}")]
    CutFile {
        /// Name of the file.
        file: String,
        /// What is missing.
        what: &'static str,
    },
    /// The last file ends inside a transaction and nothing more is waited for.
    #[error("the source ends inside a transaction at `{place}`")]
    CutTransaction {
        /// File and offset of the end.
        place: String,
    },
    /// The connection to the server failed.
    #[error(transparent)]
    Wire(WireError),
    /// The account may not do what is needed.
    #[error("the account lacks a privilege: {message}")]
    Privilege {
        /// What the server said.
        message: String,
    },
    /// A setting of the server under which its binlog cannot be replicated.
    #[error("`{setting}` of the server is `{actual}`, it must be {expected}")]
    Setting {
        /// Name of the variable.
        setting: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        actual: String,
    },
    /// Another replica of the server has our id; each connection of one ends the other's.
    #[error("another replica of the server uses server id {server_id}")]
    ServerIdInUse {
        /// The id.
        server_id: u32,
    },
    /// The server itself has our id.
    #[error("the server itself has server id {server_id}")]
    OwnServerId {
        /// The id.
        server_id: u32,
    },
    /// The server does not send its binlog, for a reason of its own.
    #[error("the server refuses to send its binlog: {message}")]
    Refused {
        /// What it said.
        message: String,
    },
    /// Transactions that were read are not there any more: the server lost them, or it is
    /// another one that never had them.
    #[error("the server lacks transactions `{missing}`, which were read from it before")]
    TransactionsLost {
        /// What it lacks.
        missing: String,
    },
    /// Another server has the address, and lags behind what was read before.
    #[error("the server at the address is another one and lacks transactions `{missing}` as yet")]
    Behind {
        /// What it lacks.
        missing: String,
    },
    /// The configured start names what the server does not have.
    #[error("the start names transactions `{missing}`, which the server does not have")]
    UnknownStart {
        /// What it does not have.
        missing: String,
    },
    /// An answer of the server is not understood.
    #[error("the server's answer to `{statement}` is not understood")]
    Answer {
        /// What was asked.
        statement: &'static str,
    },
    /// A release that is not supported.
    #[error("server version `{version}` is not supported")]
    Version {
        /// What the server says.
        version: String,
    },
    /// The catalogue of the server does not describe rows whose binlog names no columns.
    #[error("rows of `{table}` at `{place}` do not fit the catalogue: {what}")]
    CatalogueMisfit {
        /// The table.
        table: TableName,
        /// File and offset.
        place: String,
        /// What does not fit.
        what: String,
    },
    /// The table was changed after the rows, so that nothing tells what they were.
    #[error("the catalogue describes `{table}` as it was changed later than its rows before `{place}`")]
    CatalogueAhead {
        /// The table.
        table: TableName,
        /// File and offset of rows, or of the statement that changed it.
        place: String,
    },
    /// The reading thread could not be started, or ended by a panic.
    #[error("the thread that reads the binlog could not start or ended by a panic")]
    Panicked,
}

/// ER_SPECIFIC_ACCESS_DENIED_ERROR and ER_TABLEACCESS_DENIED_ERROR.
const PRIVILEGE_CODES: [u16; 2] = [1227, 1142];

impl From<WireError> for SourceError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Server { error, .. } if PRIVILEGE_CODES.contains(&error.code) => Self::Privilege {
                message: error.message,
            },
            error => Self::Wire(error),
        }
    }
}

/// Result of this crate.
pub(crate) type Result<T, E = SourceError> = std::result::Result<T, E>;

impl Classified for SourceError {
    fn class(&self) -> ErrorClass {
        match self {
            // A table whose rows cannot be taken must not be left out silently.
            Self::Binlog { source, .. } if source.class() == ErrorClass::Table => ErrorClass::Changefeed,
            Self::Binlog { source, .. } => source.class(),
            Self::Wire(source) => source.class(),
            Self::Behind { .. } => ErrorClass::Transient,
            Self::Panicked => ErrorClass::Bug,
            _ => ErrorClass::Changefeed,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Binlog { source, .. } => source.code(),
            Self::Statement { source, .. } => source.code(),
            Self::StatementText { .. } => "WEIR-SRC-001",
            Self::StatementFormat { .. } => "WEIR-SRC-002",
            Self::Unended { .. } => "WEIR-SRC-003",
            Self::OutsideTransaction { .. } => "WEIR-SRC-004",
            Self::NoTableMap { .. } => "WEIR-SRC-005",
            Self::UnknownSavepoint { .. } => "WEIR-SRC-006",
            Self::TooManyEvents { .. } => "WEIR-SRC-007",
            Self::Incident { .. } => "WEIR-SRC-008",
            Self::Encrypted { .. } => "WEIR-SRC-009",
            Self::Purged { .. } => "WEIR-SRC-010",
            Self::PurgedGtids { .. } => "WEIR-SRC-011",
            Self::OtherSource => "WEIR-SRC-012",
            Self::BadPosition { .. } => "WEIR-SRC-013",
            Self::CutFile { .. } => "WEIR-SRC-014",
            Self::CutTransaction { .. } => "WEIR-SRC-015",
            Self::Panicked => "WEIR-SRC-016",
            Self::Wire(source) => source.code(),
            Self::Setting { .. } => "WEIR-SRC-017",
            Self::ServerIdInUse { .. } => "WEIR-SRC-018",
            Self::OwnServerId { .. } => "WEIR-SRC-019",
            Self::Refused { .. } => "WEIR-SRC-020",
            Self::TransactionsLost { .. } => "WEIR-SRC-021",
            Self::Behind { .. } => "WEIR-SRC-022",
            Self::UnknownStart { .. } => "WEIR-SRC-023",
            Self::Answer { .. } => "WEIR-SRC-024",
            Self::Version { .. } => "WEIR-SRC-025",
            Self::Privilege { .. } => "WEIR-SRC-026",
            Self::CatalogueMisfit { .. } => "WEIR-SRC-027",
            Self::CatalogueAhead { .. } => "WEIR-SRC-028",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Binlog { source, .. } => return source.action(),
            Self::Statement { source, .. } => return source.action(),
            Self::Wire(source) => return source.action(),
            Self::Setting { setting, expected, .. } => {
                return format!("set `{setting}` to {expected} on the server, for all sessions, and run again");
            }
            Self::StatementText { .. } => "report the collation and the server version; to go on, start behind this place",
            Self::StatementFormat { .. } => {
                "set `binlog_format=ROW` on the server for all sessions, or exclude the table by a filter rule, and start behind this place"
            }
            Self::Unended { .. } | Self::OutsideTransaction { .. } | Self::NoTableMap { .. } | Self::UnknownSavepoint { .. } => {
                "check the files with `mysqlbinlog`, and start at the beginning of a transaction"
            }
            Self::TooManyEvents { .. } => "split the change into smaller transactions",
            Self::Incident { .. } => "take a new copy of the data, and start behind this place",
            Self::Encrypted { .. } => "read files written with `encrypt_binlog=OFF`",
            Self::Purged { .. } | Self::PurgedGtids { .. } => {
                "bring the missing files back, or take a new copy of the data and start from there with a new data directory"
            }
            Self::OtherSource => {
                "point the source at the same server (or the folder of its files), use `gtid_mode=ON`, or use a new data directory"
            }
            Self::BadPosition { .. } => "name the offset behind the last event of a transaction, as `mysqlbinlog` prints it",
            Self::CutFile { .. } => "replace the file by an intact copy; the run goes on from the last whole transaction",
            Self::CutTransaction { .. } => {
                "copy the rest of the file and run again; everything whole before this place was delivered"
            }
            Self::ServerIdInUse { .. } | Self::OwnServerId { .. } => {
                "set `source.server-id` to a number that no other server or replica uses"
            }
            Self::Refused { .. } => "see the message of the server; its manual explains it under error 1236",
            Self::TransactionsLost { .. } => {
                "point the source at a server that has these transactions, or take a new copy of the data and start with a new data directory"
            }
            Self::Behind { .. } => "wait until the server has caught up, or point the source at one that has",
            Self::UnknownStart { .. } => "name a GTID set that is part of the server's executed set",
            Self::Answer { .. } => "report this with the version of the server",
            Self::Privilege { .. } => {
                "grant the account REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: REPLICATION SLAVE and BINLOG MONITOR) on *.*"
            }
            Self::CatalogueMisfit { .. } | Self::CatalogueAhead { .. } => {
                "set `binlog_row_metadata=FULL` on the server, and start behind this place from a new copy of the data, or exclude the table by a filter rule"
            }
            Self::Version { .. } => "use MySQL 8.0 or later, or MariaDB 10.5 or later",
            Self::Panicked => "report the log of this run",
        }
        .to_owned()
    }
}
