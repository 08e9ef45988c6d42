//! Errors of rules and routes.

use weir_types::{Classified, ErrorClass};

/// A rule or a route that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A rule or pattern that is not `schema.table`.
    #[error("`{rule}` is not a table pattern: {reason}")]
    Pattern {
        /// The text as given.
        rule: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Rules that only exclude: since a table needs a rule that includes it, they would
    /// replicate nothing at all.
    #[error("all rules exclude tables, so that none would be replicated")]
    OnlyExclusions,
    /// A target template that cannot make a name.
    #[error("`{template}` is not a name template: {reason}")]
    Template {
        /// The text as given.
        template: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A route that changes nothing.
    #[error("the route for `{pattern}` has neither `target-schema` nor `target-table`")]
    NoTarget {
        /// Pattern of the route.
        pattern: String,
    },
}

/// Result of this crate.
pub type Result<T, E = FilterError> = std::result::Result<T, E>;

impl Classified for FilterError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Usage
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Pattern { .. } => "WEIR-FIL-001",
            Self::OnlyExclusions => "WEIR-FIL-002",
            Self::Template { .. } => "WEIR-FIL-003",
            Self::NoTarget { .. } => "WEIR-FIL-004",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Pattern { .. } => {
                "write the pattern as `schema.table`, with `*` and `?` as wildcards and backticks around odd names"
            }
            Self::OnlyExclusions => "put a rule that includes tables first, for example `*.*`",
            Self::Template { .. } => "use plain text with `{schema}` and `{table}`",
            Self::NoTarget { .. } => "name at least one of `target-schema` and `target-table`, or remove the route",
        }
        .to_owned()
    }
}
