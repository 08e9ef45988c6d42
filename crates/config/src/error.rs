//! Errors of the changefeed file and of arguments written like its values.

use std::fmt;
use std::path::PathBuf;

use weir_types::{Classified, ErrorClass};

/// A place in the file, both from 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a changefeed file or an argument cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("changefeed file `{}` cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the changefeed file is not valid TOML at {place}: {reason}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser says.
        reason: String,
    },
    /// A key that no build knows.
    #[error("unknown key `{key}` at {place}{}", did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// Dotted path.
        key: String,
        /// Where.
        place: Place,
        /// Known key that looks most like it.
        nearest: Option<String>,
    },
    /// A key that has no default is not there.
    #[error("key `{key}` is missing")]
    MissingKey {
        /// Dotted path.
        key: String,
    },
    /// A value that cannot be used.
    #[error("`{key}` is {value} at {place}: {reason}")]
    Value {
        /// Dotted path.
        key: String,
        /// The value as written, secrets masked.
        value: String,
        /// Where.
        place: Place,
        /// What is wrong with it.
        reason: String,
    },
    /// Something that Weir has, but not in this build.
    #[error("`{what}` at {place} is not supported by this build")]
    Unsupported {
        /// Key, or key and scheme.
        what: String,
        /// Where.
        place: Place,
    },
    /// An argument that is written like a value of the file.
    #[error("`{argument}` is `{value}`: {reason}")]
    Argument {
        /// Name of the argument.
        argument: &'static str,
        /// The value as given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A password cannot be read from where the file says that it is.
    #[error("the password of `{key}` cannot be read: {reason}")]
    Password {
        /// Dotted path.
        key: String,
        /// Why, without any part of a password.
        reason: String,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |key| format!("; the nearest known key is `{key}`"))
}

/// Result of this crate.
pub type Result<T, E = ConfigError> = std::result::Result<T, E>;

impl Classified for ConfigError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Usage
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Read { .. } => "WEIR-CFG-001",
            Self::Syntax { .. } => "WEIR-CFG-002",
            Self::UnknownKey { .. } => "WEIR-CFG-003",
            Self::MissingKey { .. } => "WEIR-CFG-004",
            Self::Value { .. } => "WEIR-CFG-005",
            Self::Unsupported { .. } => "WEIR-CFG-006",
            Self::Argument { .. } => "WEIR-CFG-007",
            Self::Password { .. } => "WEIR-CFG-008",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Read { .. } => "check the path and its permissions".to_owned(),
            Self::Syntax { place, .. } => format!("correct the text at {place}"),
            Self::UnknownKey {
                nearest: Some(key), ..
            } => format!("write `{key}`, or remove the key"),
            Self::UnknownKey { .. } => "remove the key; docs/configuration.md lists all".to_owned(),
            Self::MissingKey { key } => format!("add `{key}`; docs/configuration.md describes it"),
            Self::Value { key, .. } => format!("correct `{key}`; docs/configuration.md describes it"),
            Self::Unsupported { .. } => "remove it; docs/configuration.md lists what there is".to_owned(),
            Self::Password { key, .. } => {
                format!("set what `{key}` names, readable for the user that Weir runs as")
            }
            Self::Argument { argument, .. } => format!("correct `{argument}`; `--help` describes it"),
        }
    }
}
