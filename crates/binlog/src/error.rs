//! What can be wrong with a binlog.

use std::io::ErrorKind;

use weir_types::{Classified, ErrorClass};

/// Why a binlog, an event or a row cannot be read. Never holds row values.
#[derive(Debug, thiserror::Error)]
pub enum BinlogError {
    /// The bytes do not follow the format.
    #[error("malformed binlog: {what}")]
    Malformed {
        /// Part of the format that is broken.
        what: &'static str,
    },
    /// The body of an event does not follow its type's format.
    #[error("malformed `{event}` event of {length} bytes")]
    MalformedEvent {
        /// Name of the event type.
        event: &'static str,
        /// Length of the body in bytes.
        length: usize,
    },
    /// An event type that this version does not know and that must not be ignored.
    #[error("unknown binlog event type {number}")]
    UnknownEvent {
        /// Number of the type.
        number: u8,
    },
    /// The server wrote a binlog format version other than 4, or laid out an event as
    /// releases before MySQL 5.6 did.
    #[error("unsupported binlog format: {what}")]
    UnsupportedFormat {
        /// What is not supported.
        what: &'static str,
    },
    /// The checksum of an event is wrong.
    #[error("checksum of a `{event}` event is {stored:08x}, computed {computed:08x}")]
    Checksum {
        /// Name of the event type.
        event: &'static str,
        /// Value in the event.
        stored: u32,
        /// Value of the bytes.
        computed: u32,
    },
    /// `end_log_pos` contradicts the place of the event.
    #[error("event at offset {offset} says it ends at {stored} (modulo 2^32), but ends at {computed}")]
    Position {
        /// Offset of the event in the file.
        offset: u64,
        /// `end_log_pos` of the event.
        stored: u32,
        /// Offset behind the event in the file.
        computed: u64,
    },
    /// An event is larger than the configured limit.
    #[error("event of {bytes} bytes is larger than the limit of {limit} bytes")]
    EventTooLarge {
        /// Length of the event.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Memory for one event could not be had.
    #[error("cannot allocate {bytes} bytes for one event")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The file does not start with the binlog magic.
    #[error("`{path}` is not a binlog file")]
    NotABinlog {
        /// Path of the file.
        path: String,
    },
    /// The file is encrypted by the server.
    #[error("`{path}` is encrypted")]
    Encrypted {
        /// Path of the file.
        path: String,
    },
    /// A file or folder could not be read.
    #[error("cannot read `{path}`")]
    Io {
        /// Path of the file or folder.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The index names a file that is not there, or nothing at all.
    #[error("no binlog file {what} in `{path}`")]
    NoFiles {
        /// What was looked for.
        what: String,
        /// Folder.
        path: String,
    },
    /// The table map has no column names.
    #[error("the binlog has no column names for `{table}`")]
    NoColumnNames {
        /// Schema and table name.
        table: String,
    },
    /// The optional metadata of a table map contradicts its columns.
    #[error("table map of `{table}`: {what} does not fit its columns")]
    Metadata {
        /// Schema and table name.
        table: String,
        /// The metadata field.
        what: &'static str,
    },
    /// A column type that is not supported.
    #[error("column {column} of `{table}` has the unsupported type `{type_name}`")]
    UnsupportedType {
        /// Schema and table name.
        table: String,
        /// Name of the column, or its number where there is no name.
        column: String,
        /// Name of the type.
        type_name: &'static str,
    },
    /// The rows have another number of columns than the table version.
    #[error("rows of `{table}` have {rows} columns, its table map {columns}")]
    ColumnCount {
        /// Schema and table name.
        table: String,
        /// Columns in the row event.
        rows: u64,
        /// Columns of the table version.
        columns: usize,
    },
    /// The rows do not follow the format.
    #[error("malformed rows of `{table}`: {what}")]
    Rows {
        /// Schema and table name.
        table: String,
        /// Part that is broken.
        what: &'static str,
    },
    /// An update holds JSON differences instead of values.
    #[error("an update of `{table}` holds partial JSON values")]
    PartialJson {
        /// Schema and table name.
        table: String,
    },
    /// The value is not MySQL's binary JSON, or is nested deeper than the server allows.
    #[error("malformed binary JSON: {what}")]
    Json {
        /// Part that is broken.
        what: &'static str,
    },
    /// Compressed data that do not decompress, or to another length than announced.
    #[error("cannot decompress: {what}")]
    Decompress {
        /// What is wrong.
        what: &'static str,
    },
    /// A compression method that is not known.
    #[error("unknown compression method {number}")]
    UnknownCompression {
        /// Number of the method.
        number: u64,
    },
}

impl Classified for BinlogError {
    fn class(&self) -> ErrorClass {
        match self {
            // A path that is wrong stays wrong.
            Self::Io { source, .. }
                if matches!(
                    source.kind(),
                    ErrorKind::NotFound
                        | ErrorKind::PermissionDenied
                        | ErrorKind::NotADirectory
                        | ErrorKind::IsADirectory
                ) =>
            {
                ErrorClass::Changefeed
            }
            Self::Io { .. } | Self::OutOfMemory { .. } => ErrorClass::Transient,
            Self::NoColumnNames { .. }
            | Self::Metadata { .. }
            | Self::UnsupportedType { .. }
            | Self::ColumnCount { .. }
            | Self::Rows { .. }
            | Self::PartialJson { .. }
            | Self::Json { .. } => ErrorClass::Table,
            Self::Malformed { .. }
            | Self::MalformedEvent { .. }
            | Self::UnknownEvent { .. }
            | Self::UnsupportedFormat { .. }
            | Self::Checksum { .. }
            | Self::Position { .. }
            | Self::EventTooLarge { .. }
            | Self::NotABinlog { .. }
            | Self::Encrypted { .. }
            | Self::NoFiles { .. }
            | Self::Decompress { .. }
            | Self::UnknownCompression { .. } => ErrorClass::Changefeed,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "WEIR-BIN-001",
            Self::MalformedEvent { .. } => "WEIR-BIN-002",
            Self::UnknownEvent { .. } => "WEIR-BIN-003",
            Self::UnsupportedFormat { .. } => "WEIR-BIN-004",
            Self::Checksum { .. } => "WEIR-BIN-005",
            Self::Position { .. } => "WEIR-BIN-006",
            Self::EventTooLarge { .. } => "WEIR-BIN-007",
            Self::OutOfMemory { .. } => "WEIR-BIN-008",
            Self::NotABinlog { .. } => "WEIR-BIN-009",
            Self::Encrypted { .. } => "WEIR-BIN-010",
            Self::Io { .. } => "WEIR-BIN-011",
            Self::NoFiles { .. } => "WEIR-BIN-012",
            Self::NoColumnNames { .. } => "WEIR-BIN-013",
            Self::Metadata { .. } => "WEIR-BIN-014",
            Self::UnsupportedType { .. } => "WEIR-BIN-015",
            Self::ColumnCount { .. } => "WEIR-BIN-016",
            Self::Rows { .. } => "WEIR-BIN-017",
            Self::PartialJson { .. } => "WEIR-BIN-018",
            Self::Json { .. } => "WEIR-BIN-019",
            Self::Decompress { .. } => "WEIR-BIN-020",
            Self::UnknownCompression { .. } => "WEIR-BIN-021",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Malformed { .. }
            | Self::MalformedEvent { .. }
            | Self::Checksum { .. }
            | Self::Position { .. }
            | Self::Decompress { .. }
            | Self::Rows { .. }
            | Self::ColumnCount { .. }
            | Self::Metadata { .. }
            | Self::Json { .. } => "check the binlog with `mysqlbinlog --verify-binlog-checksum` and take an intact copy, \
                 or start again from a fresh snapshot".to_owned(),
            Self::UnknownEvent { .. } | Self::UnknownCompression { .. } => {
                "use a release of Weir that supports this server version".to_owned()
            }
            Self::UnsupportedFormat { .. } => {
                "replicate from MySQL 5.6 or later or MariaDB 10.0 or later".to_owned()
            }
            Self::EventTooLarge { .. } => {
                "raise the event size limit, or make the server write smaller rows".to_owned()
            }
            Self::OutOfMemory { .. } => "give the process more memory".to_owned(),
            Self::NotABinlog { .. } => "name a folder that holds binlog files of the server".to_owned(),
            Self::Encrypted { .. } => {
                "read from the server, which decrypts, or set `binlog_encryption=OFF` (MariaDB: `encrypt_binlog=OFF`) \
                 and write new files".to_owned()
            }
            Self::Io { .. } => "check that the path exists and may be read".to_owned(),
            Self::NoFiles { .. } => "check the folder and the `index` parameter of the source".to_owned(),
            Self::NoColumnNames { .. } => {
                "set `binlog_row_metadata=FULL` on the server and start from a position after the change".to_owned()
            }
            Self::UnsupportedType { .. } => "exclude the table by a filter rule".to_owned(),
            Self::PartialJson { .. } => {
                "set `binlog_row_value_options=''` on the server and start the table again from a position \
                 after the change".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_say_what_to_set() {
        let error = BinlogError::NoColumnNames {
            table: "s.t".to_owned(),
        };
        assert_eq!(error.class(), ErrorClass::Table);
        assert!(error.action().contains("binlog_row_metadata=FULL"));
    }
}
