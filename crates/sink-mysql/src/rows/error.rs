//! Why row changes cannot become statements.

use weir_binlog::BinlogError;
use weir_types::block::BlockError;
use weir_types::{Classified, ErrorClass, TableName};

/// Why row changes cannot become statements. Never holds row values.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The rows do not follow the binlog's format.
    #[error("cannot decode rows of `{table}`")]
    Decode {
        /// Table at the source.
        table: TableName,
        /// Why not.
        #[source]
        error: BinlogError,
    },
    /// A block does not follow its layout.
    #[error("cannot read a block of rows of `{table}`")]
    Block {
        /// Table at the source.
        table: TableName,
        /// Where.
        #[source]
        error: BlockError,
    },
    /// A row image without all columns.
    #[error("a row of `{table}` does not hold every column (`binlog_row_image` is not `FULL`)")]
    PartialImage {
        /// Table at the source.
        table: TableName,
    },
    /// A value that the source column cannot have.
    #[error("a value of column `{column}` of `{table}` is not valid: {what}")]
    Value {
        /// Table at the source.
        table: TableName,
        /// Name of the column.
        column: String,
        /// What is wrong.
        what: &'static str,
    },
    /// One row is too large for the target.
    #[error(
        "one row of `{table}` takes {bytes} bytes as a statement, the target accepts {packet_max} (`max_allowed_packet`)"
    )]
    TooLarge {
        /// Table at the target.
        table: TableName,
        /// Bytes of the statement.
        bytes: usize,
        /// Most bytes that the target accepts.
        packet_max: usize,
    },
}

impl Classified for RowsError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Table
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Decode { .. } => "WEIR-MYS-111",
            Self::Block { .. } => "WEIR-MYS-112",
            Self::PartialImage { .. } => "WEIR-MYS-113",
            Self::Value { .. } => "WEIR-MYS-114",
            Self::TooLarge { .. } => "WEIR-MYS-115",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Decode { .. } | Self::Block { .. } => {
                "check the store's folder and the source's binlog for damage".to_owned()
            }
            Self::PartialImage { .. } => "set `binlog_row_image=FULL` at the source".to_owned(),
            Self::Value { .. } => {
                "correct the row at the source, or leave the table out by a filter".to_owned()
            }
            Self::TooLarge { .. } => "raise `max_allowed_packet` at the target".to_owned(),
        }
    }
}
