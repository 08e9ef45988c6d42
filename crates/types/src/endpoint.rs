//! How a server is reached: the password, encryption, and what was found before a run.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What shows instead of a secret.
pub const MASK: &str = "***";

/// A text that is shown nowhere: every form of output has [`MASK`] in its place.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the login only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// How a connection is encrypted, as the `--ssl-mode` of MySQL's own clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsMode {
    /// Never.
    Disabled,
    /// Where the server offers it; no certificate is checked. A handshake that fails is an
    /// error, not a reason to go on in clear.
    #[default]
    Preferred,
    /// Always; no certificate is checked.
    Required,
    /// Always, and the server's certificate is signed by a known authority.
    VerifyCa,
    /// As `verify-ca`, and it is made out to the host.
    VerifyIdentity,
}

impl TlsMode {
    /// Its name in a changefeed file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::VerifyCa => "verify-ca",
            Self::VerifyIdentity => "verify-identity",
        }
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// TLS of one end: `[source.tls]` and `[sink.tls]`. All files are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TlsOptions {
    /// Whether and how.
    pub mode: TlsMode,
    /// Authorities that are trusted, and no others; without it those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Our certificate, then its intermediate ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Key of our certificate, not encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// One requirement of an end, and whether it is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is checked, for people.
    pub name: &'static str,
    /// Setting of the server or key of the changefeed file.
    pub setting: &'static str,
    /// What it must be.
    pub expected: String,
    /// What it is.
    pub actual: String,
    /// Whether that will do.
    pub ok: bool,
}

impl Check {
    /// A check with its outcome.
    pub fn new(
        name: &'static str,
        setting: &'static str,
        expected: impl Into<String>,
        actual: impl Into<String>,
        ok: bool,
    ) -> Self {
        Self {
            name,
            setting,
            expected: expected.into(),
            actual: actual.into(),
            ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_masked() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(
            format!("{secret} {secret:?} {:?}", Some(&secret)),
            "*** *** Some(***)"
        );
        assert_eq!(secret.expose(), "hunter2");
    }
}
