//! How an error is to be treated.

/// What an error concerns, and whether a later attempt can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// About the world: retried with backoff.
    Transient,
    /// About the data or settings of one table: that table stops, others go on.
    Table,
    /// About the changefeed's data or configuration: the changefeed stops.
    Changefeed,
    /// Wrong command line or changefeed file.
    Usage,
    /// A broken invariant of Weir itself.
    Bug,
}

/// Implemented by every error that can reach a user.
pub trait Classified: std::error::Error {
    /// How to treat it.
    fn class(&self) -> ErrorClass;
    /// Stable code, `WEIR-…`, listed in `docs/errors.md`.
    fn code(&self) -> &'static str;
    /// What the operator can do, one sentence.
    fn action(&self) -> String;
}

/// An error as it travels in messages and to the user: no sources, no row values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ErrorReport {
    /// How to treat it.
    pub class: ErrorClass,
    /// Stable code.
    pub code: &'static str,
    /// What happened, one sentence, sources included.
    pub message: String,
    /// What to do, one sentence.
    pub action: String,
}

impl ErrorReport {
    /// Flattens an error and its sources.
    pub fn new(error: &dyn Classified) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self {
            class: error.class(),
            code: error.code(),
            message,
            action: error.action(),
        }
    }
}

impl Classified for ErrorReport {
    fn class(&self) -> ErrorClass {
        self.class
    }
    fn code(&self) -> &'static str {
        self.code
    }
    fn action(&self) -> String {
        self.action.clone()
    }
}
