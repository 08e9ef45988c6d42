//! Why a change cannot be encoded.

use weir_binlog::BinlogError;
use weir_types::block::BlockError;
use weir_types::{Classified, ErrorClass};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, CodecError>;

/// Why a change cannot be encoded. Never holds row values.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The output failed.
    #[error("cannot write the encoded rows")]
    Output(#[from] std::io::Error),
    /// The rows do not follow the binlog's format.
    #[error("cannot decode rows")]
    Rows(#[from] BinlogError),
    /// A block does not follow its layout.
    #[error("cannot read a block of rows")]
    Block(#[from] BlockError),
    /// The column's collation is not known to this version.
    #[error("column `{column}` of `{table}` has the unknown collation id {collation}")]
    UnknownCollation {
        /// Schema and table name.
        table: String,
        /// Name of the column.
        column: String,
        /// Collation id.
        collation: u16,
    },
    /// The column's charset is known, but cannot be turned into UTF-8.
    #[error("column `{column}` of `{table}` has the charset `{charset}`, which is not supported")]
    UnsupportedCharset {
        /// Schema and table name.
        table: String,
        /// Name of the column.
        column: String,
        /// Name of the charset.
        charset: &'static str,
    },
    /// Bytes that are no text in the column's charset.
    #[error("a value of column `{column}` of `{table}` is not valid `{charset}`")]
    InvalidText {
        /// Schema and table name.
        table: String,
        /// Name of the column.
        column: String,
        /// Name of the charset.
        charset: &'static str,
    },
    /// An ENUM index or SET bit beyond the members of the column.
    #[error("a value of column `{column}` of `{table}` has no such ENUM or SET member")]
    NoMember {
        /// Schema and table name.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A row with another number of values than its table has columns.
    #[error("a row of `{table}` has {values} values for {columns} columns")]
    RowShape {
        /// Schema and table name.
        table: String,
        /// Values in the row.
        values: usize,
        /// Columns of the table version.
        columns: usize,
    },
}

impl Classified for CodecError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Output(_) => ErrorClass::Transient,
            Self::Rows(error) => error.class(),
            Self::Block(_) | Self::RowShape { .. } => ErrorClass::Bug,
            Self::UnknownCollation { .. }
            | Self::UnsupportedCharset { .. }
            | Self::InvalidText { .. }
            | Self::NoMember { .. } => ErrorClass::Table,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Output(_) => "WEIR-COD-001",
            Self::Rows(error) => error.code(),
            Self::Block(_) => "WEIR-COD-003",
            Self::UnknownCollation { .. } => "WEIR-COD-004",
            Self::UnsupportedCharset { .. } => "WEIR-COD-005",
            Self::InvalidText { .. } => "WEIR-COD-006",
            Self::NoMember { .. } => "WEIR-COD-007",
            Self::RowShape { .. } => "WEIR-COD-008",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Output(_) => "check that the output can be written".to_owned(),
            Self::Rows(error) => error.action(),
            Self::Block(_) | Self::RowShape { .. } => "report this as a bug of Weir, with the log".to_owned(),
            Self::UnknownCollation { .. } | Self::UnsupportedCharset { .. } => {
                "convert the column to `utf8mb4`, or exclude the table by a filter rule".to_owned()
            }
            Self::InvalidText { .. } => {
                "correct the value at the source (or make the column binary) and start the \
                 table again behind it, or exclude the table by a filter rule"
                    .to_owned()
            }
            Self::NoMember { .. } => {
                "start the table again from a fresh position, or exclude it by a filter rule".to_owned()
            }
        }
    }
}
