//! Errors of statements.

use weir_types::{Classified, ErrorClass};

/// A statement that is not understood. Holds its first words only: a statement may hold
/// literals and secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A string, name or comment that does not end, or a character that starts nothing.
    #[error("statement `{words} …` is not readable as SQL")]
    Text {
        /// First words.
        words: String,
    },
    /// A DDL whose tables cannot be told.
    #[error("cannot tell which tables the statement `{words} …` concerns")]
    Names {
        /// First words.
        words: String,
    },
    /// A statement that begins with no known word.
    #[error("statement `{words} …` is not known")]
    Unknown {
        /// First words.
        words: String,
    },
    /// A name without schema, in a session without default schema.
    #[error("statement `{words} …` names a table without schema, and the session had no default schema")]
    NoSchema {
        /// First words.
        words: String,
    },
    /// A statement that has no sure result at another database.
    #[error("statement `{words} …` is not replicated to a database: {reason}")]
    NotOrdinary {
        /// First words.
        words: String,
        /// What keeps it.
        reason: &'static str,
    },
    /// A name that may or may not have to change for the routes.
    #[error("cannot tell where the routes put the names of the statement `{words} …`")]
    Unplaced {
        /// First words.
        words: String,
    },
}

impl Classified for SchemaError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Changefeed
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Text { .. } => "WEIR-SCH-001",
            Self::Names { .. } => "WEIR-SCH-002",
            Self::Unknown { .. } => "WEIR-SCH-003",
            Self::NoSchema { .. } => "WEIR-SCH-004",
            Self::NotOrdinary { .. } => "WEIR-SCH-005",
            Self::Unplaced { .. } => "WEIR-SCH-006",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Text { .. } | Self::Names { .. } | Self::Unknown { .. } => {
                "report the statement's first words and the server version; to go on, start the changefeed behind this place"
            }
            Self::NoSchema { .. } => "start the changefeed behind this place, and run such statements with a default schema",
            Self::NotOrdinary { .. } | Self::Unplaced { .. } => {
                "do by hand at the target what the statement did, and start the changefeed behind it; or exclude the table by a filter rule"
            }
        }
        .to_owned()
    }
}
