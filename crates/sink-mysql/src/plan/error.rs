//! Why a table cannot be written.

use weir_binlog::BinlogError;
use weir_types::{Classified, ErrorClass, TableName};

/// Why the rows of a table do not fit the table at the target.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A source column has no column at the target.
    #[error("column `{column}` of `{source_table}` is missing in `{target}` at the target")]
    MissingColumn {
        /// Table at the source.
        source_table: TableName,
        /// Table at the target.
        target: TableName,
        /// Name of the column.
        column: String,
    },
    /// A target column that the source does not have must be given a value.
    #[error(
        "column `{column}` of `{target}` at the target is not in `{source_table}`, has no default and does not accept NULL"
    )]
    UnknownColumn {
        /// Table at the source.
        source_table: TableName,
        /// Table at the target.
        target: TableName,
        /// Name of the column.
        column: String,
    },
    /// All columns are generated at the target.
    #[error("`{target}` at the target has no column that can be written")]
    NothingToWrite {
        /// Table at the target.
        target: TableName,
    },
    /// The collation id of a text column is not known.
    #[error("column `{column}` of `{source_table}` has the unknown collation id {collation}")]
    UnknownCollation {
        /// Table at the source.
        source_table: TableName,
        /// Name of the column.
        column: String,
        /// Collation id.
        collation: u16,
    },
    /// The rows cannot be decoded.
    #[error("cannot decode the rows of `{source_table}`")]
    Rows {
        /// Table at the source.
        source_table: TableName,
        /// Why not.
        #[source]
        error: BinlogError,
    },
}

impl Classified for PlanError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Table
    }

    fn code(&self) -> &'static str {
        match self {
            Self::MissingColumn { .. } => "WEIR-MYS-101",
            Self::UnknownColumn { .. } => "WEIR-MYS-102",
            Self::NothingToWrite { .. } => "WEIR-MYS-103",
            Self::UnknownCollation { .. } => "WEIR-MYS-104",
            Self::Rows { .. } => "WEIR-MYS-105",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::MissingColumn { .. } => {
                "add the column at the target, or leave the table out by a filter".to_owned()
            }
            Self::UnknownColumn { .. } => {
                "give the column a default or let it accept NULL at the target".to_owned()
            }
            Self::NothingToWrite { .. } => "let a column of the table be written at the target".to_owned(),
            Self::UnknownCollation { .. } => {
                "change the collation of the column at the source, or leave the table out by a filter"
                    .to_owned()
            }
            Self::Rows { .. } => {
                "leave the table out by a filter, or change the column at the source".to_owned()
            }
        }
    }
}
