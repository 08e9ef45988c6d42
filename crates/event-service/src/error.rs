//! Errors that end a stream.

use weir_types::{BlockSlice, Classified, ErrorClass, TableName};

/// Why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// A single row event is larger than the changefeed lets pass.
    #[error("a row event of `{table}` takes {bytes} bytes, more than `max-row-size` ({limit} bytes)")]
    RowTooLarge {
        /// The table.
        table: TableName,
        /// What it pins.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The store returned what the contract rules out.
    #[error("the event store broke its contract while scanning `{table}`: {what}")]
    StoreContract {
        /// The table.
        table: TableName,
        /// What it did.
        what: &'static str,
    },
    /// The system gives no more threads.
    #[error("the threads that scan the event store cannot be started")]
    Threads,
}

impl Classified for ServiceError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::RowTooLarge { .. } => ErrorClass::Table,
            Self::StoreContract { .. } => ErrorClass::Bug,
            Self::Threads => ErrorClass::Transient,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::RowTooLarge { .. } => "WEIR-EVS-001",
            Self::StoreContract { .. } => "WEIR-EVS-002",
            Self::Threads => "WEIR-EVS-003",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::RowTooLarge { .. } => {
                "Raise `max-row-size` and the memory quota, or leave the table out of the changefeed."
                    .to_owned()
            }
            Self::StoreContract { .. } => "Report this as a bug of Weir.".to_owned(),
            Self::Threads => "Raise the limit of threads for the user that runs Weir.".to_owned(),
        }
    }
}

/// Checks that slices ascend strictly and lie in `(after, upto]`.
pub(crate) fn check_slices(
    table: &TableName,
    slices: &[BlockSlice],
    after: weir_types::OrderKey,
    upto: weir_types::OrderKey,
) -> Result<(), ServiceError> {
    let mut last = after;
    for slice in slices {
        if slice.first <= last || slice.last < slice.first || slice.last > upto {
            return Err(ServiceError::StoreContract {
                table: table.clone(),
                what: "slices do not ascend inside the range that was asked for",
            });
        }
        last = slice.last;
    }
    Ok(())
}
