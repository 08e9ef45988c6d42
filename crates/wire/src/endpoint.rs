//! Where a server is and how it is reached.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use weir_types::Flavor;

use crate::secret::Secret;

/// How far TLS is asked for; the words of MySQL's `--ssl-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disabled,
    /// If the server offers it; any certificate is taken. A handshake that fails is an
    /// error, not a reason to go on in clear.
    Preferred,
    /// Always; any certificate is taken.
    Required,
    /// Always; the certificate must be signed by a trusted authority.
    VerifyCa,
    /// Always; the certificate must be signed by a trusted authority and name the host.
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

/// TLS of one endpoint. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// How far TLS is asked for.
    pub mode: TlsMode,
    /// Authorities that are trusted, and no others; without it those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate, then its intermediate ones.
    pub cert: Option<PathBuf>,
    /// Key of our certificate, not encrypted.
    pub key: Option<PathBuf>,
}

/// One server and our account there.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Host name or address, an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Account.
    pub user: String,
    /// Password; `None` is the same as an empty one.
    pub password: Option<Secret>,
    /// TLS.
    pub tls: TlsOptions,
    /// Longest wait for a TCP connection over all addresses of the host, and again for
    /// the whole login.
    pub connect_timeout: Duration,
    /// Longest wait for the next bytes of an answer.
    pub read_timeout: Duration,
}

impl Endpoint {
    /// `host:port`, for messages.
    pub(crate) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// What the server said of itself at login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Version text, without the `5.5.5-` that MariaDB puts before its own.
    pub version: String,
    /// Family.
    pub flavor: Flavor,
    /// Its number of this connection (`CONNECTION_ID()`, the low 32 bits).
    pub connection_id: u32,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}
