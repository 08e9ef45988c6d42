//! Where a server is and how it is reached.

use std::time::Duration;

use weir_types::{Flavor, Secret, TlsOptions};

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
