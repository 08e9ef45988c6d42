//! Errors of a dispatcher.

use weir_types::{Classified, ErrorClass, OrderKey};

/// What a dispatcher refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stream went backwards.
    #[error("`{span}` got an event at {key}, not behind {last}")]
    OutOfOrder {
        /// Name of the span.
        span: String,
        /// Key of the event.
        key: OrderKey,
        /// Last key before it.
        last: OrderKey,
    },
    /// The stream did not stop at a barrier.
    #[error("`{span}` got an event at {key} while it waits at the DDL {barrier}")]
    BehindBarrier {
        /// Name of the span.
        span: String,
        /// Key of the event.
        key: OrderKey,
        /// Key of the DDL.
        barrier: OrderKey,
    },
    /// Rows came to the schema dispatcher.
    #[error("rows were delivered to the schema dispatcher at {key}")]
    RowsOnSchema {
        /// Key of the first row.
        key: OrderKey,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Classified for Error {
    fn class(&self) -> ErrorClass {
        ErrorClass::Bug
    }

    fn code(&self) -> &'static str {
        match self {
            Self::OutOfOrder { .. } => "WEIR-DIS-001",
            Self::BehindBarrier { .. } => "WEIR-DIS-002",
            Self::RowsOnSchema { .. } => "WEIR-DIS-003",
        }
    }

    fn action(&self) -> String {
        "report this with the log; the changefeed starts again from its checkpoint".to_owned()
    }
}
