//! What can go wrong between us and a server.

use std::fmt;
use std::io;
use std::time::Duration;

use weir_types::{Classified, ErrorClass};

/// Characters of a server's message that are kept.
const MESSAGE_CHARS_MAX: usize = 1024;

/// Error of a server, as its error packet says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// Number, e.g. 1045.
    pub code: u16,
    /// Five characters of SQLSTATE; empty if the server did not send one.
    pub sql_state: String,
    /// Message; control characters replaced, cut to 1024 characters.
    pub message: String,
}

impl ServerError {
    pub(crate) fn new(code: u16, sql_state: &[u8], message: &[u8]) -> Self {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        Self {
            code,
            sql_state: String::from_utf8_lossy(sql_state).chars().map(plain).collect(),
            message: String::from_utf8_lossy(message)
                .chars()
                .take(MESSAGE_CHARS_MAX)
                .map(plain)
                .collect(),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sql_state.is_empty() {
            write!(f, "{}: {}", self.code, self.message)
        } else {
            write!(f, "{} ({}): {}", self.code, self.sql_state, self.message)
        }
    }
}

/// Why a connection, a query or a dump failed. Never holds a password.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No address of the host took the connection, or its name is not known.
    #[error("cannot connect to `{address}`")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why, of the last address.
        #[source]
        source: io::Error,
    },
    /// Nothing came for as long as we were ready to wait: the server is stuck, or the
    /// connection is half-open.
    #[error("`{address}` sent nothing for {waited:?} while {waiting_for} was expected")]
    ReadTimeout {
        /// Host and port.
        address: String,
        /// What should have come.
        waiting_for: &'static str,
        /// The limit.
        waited: Duration,
    },
    /// The server, or something on the way, closed the connection.
    #[error("`{address}` closed the connection")]
    Disconnected {
        /// Host and port.
        address: String,
        /// What the operating system or TLS said; `None` for an orderly end.
        #[source]
        source: Option<io::Error>,
    },
    /// The bytes do not follow the protocol.
    #[error("`{address}` does not speak the expected protocol: {what}")]
    Malformed {
        /// Host and port.
        address: String,
        /// Part of the protocol that is broken.
        what: &'static str,
    },
    /// The account may not log in.
    #[error("`{address}` refused the login of `{user}`: {error}")]
    AccessDenied {
        /// Host and port.
        address: String,
        /// Account.
        user: String,
        /// What the server said.
        error: ServerError,
    },
    /// The account uses an authentication method that Weir does not know, or one that
    /// needs an encrypted connection.
    #[error("the account `{user}` at `{address}` uses the authentication plugin `{plugin}`, {why}")]
    AuthPlugin {
        /// Host and port.
        address: String,
        /// Account.
        user: String,
        /// Name of the plugin.
        plugin: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The server takes no further connection now: too many, or our host is blocked.
    #[error("`{address}` takes no connection now: {error}")]
    Busy {
        /// Host and port.
        address: String,
        /// What the server said.
        error: ServerError,
    },
    /// The mode asks for TLS and the server has none.
    #[error("`{address}` does not offer TLS, which mode `{mode}` demands")]
    NoTls {
        /// Host and port.
        address: String,
        /// The mode.
        mode: &'static str,
    },
    /// The server takes no connection without TLS.
    #[error("`{address}` demands TLS: {error}")]
    TlsDemanded {
        /// Host and port.
        address: String,
        /// What the server said.
        error: ServerError,
    },
    /// The certificate of the server is not one that the mode accepts, or it refused ours.
    #[error("certificate check with `{address}` failed: {what}")]
    Certificate {
        /// Host and port.
        address: String,
        /// Verdict of the check.
        what: String,
    },
    /// The TLS handshake failed otherwise.
    #[error("TLS handshake with `{address}` failed: {what}")]
    TlsHandshake {
        /// Host and port.
        address: String,
        /// What TLS said.
        what: String,
    },
    /// A file of the TLS options cannot be used.
    #[error("TLS file `{path}` cannot be used: {what}")]
    TlsFile {
        /// Path of the file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// The server answered with an error.
    #[error("`{address}` answered with error {error}")]
    Server {
        /// Host and port.
        address: String,
        /// The error.
        error: ServerError,
    },
    /// The server refused the dump or ended it with error 1236, which has many reasons;
    /// its message tells which.
    #[error("`{address}` ended the binlog dump: {message}")]
    DumpRefused {
        /// Host and port.
        address: String,
        /// The server's message.
        message: String,
    },
    /// An event is larger than the caller allows.
    #[error("event of {bytes} bytes is larger than the limit of {limit} bytes")]
    EventTooLarge {
        /// Bytes of the event, at least.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An answer is larger than this client takes.
    #[error("answer of `{address}` is larger than the limit of {limit} bytes")]
    AnswerTooLarge {
        /// Host and port.
        address: String,
        /// The limit.
        limit: u64,
    },
    /// The dump command has four bytes for an offset.
    #[error("a dump cannot start at `{file}` offset {offset}: the protocol ends at 4294967295")]
    OffsetTooLarge {
        /// Binlog file.
        file: String,
        /// Offset in it.
        offset: u64,
    },
    /// The caller asks for something that cannot be said in the protocol.
    #[error("request cannot be encoded: {what}")]
    Request {
        /// What is wrong with it.
        what: &'static str,
    },
    /// Memory for one event could not be had.
    #[error("cannot allocate {bytes} bytes for one event")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
}

impl WireError {
    /// Sorts what a server answered to a command. `1236` is left to the dump.
    pub(crate) fn from_server(address: &str, error: ServerError) -> Self {
        Self::Server {
            address: address.to_owned(),
            error,
        }
    }

    /// Sorts what a server answered to a login.
    pub(crate) fn from_login(address: &str, user: &str, error: ServerError) -> Self {
        let address = address.to_owned();
        match error.code {
            1040 | 1129 | 1203 | 1226 => Self::Busy { address, error },
            1044 | 1045 | 1130 | 1698 | 1862 | 3118 | 3955 | 4151 => Self::AccessDenied {
                address,
                user: user.to_owned(),
                error,
            },
            3159 => Self::TlsDemanded { address, error },
            _ => Self::Server { address, error },
        }
    }

    /// Sorts what a server answered to a dump command or sent in the stream.
    pub(crate) fn from_dump(address: &str, error: ServerError) -> Self {
        if error.code == 1236 {
            Self::DumpRefused {
                address: address.to_owned(),
                message: error.message,
            }
        } else {
            Self::from_server(address, error)
        }
    }
}

/// Errors that pass by themselves: the server is short of something, is being stopped or
/// started, or somebody ended the statement or the connection (MySQL "Server Error Message
/// Reference"; MariaDB "Error Codes").
const TRANSIENT: [u16; 22] = [
    1037, // ER_OUTOFMEMORY
    1040, // ER_CON_COUNT_ERROR
    1041, // ER_OUT_OF_RESOURCES
    1053, // ER_SERVER_SHUTDOWN
    1077, // ER_NORMAL_SHUTDOWN
    1079, // ER_SHUTDOWN_COMPLETE
    1129, // ER_HOST_IS_BLOCKED
    1135, // ER_CANT_CREATE_THREAD
    1152, // ER_ABORTING_CONNECTION
    1158, // ER_NET_READ_ERROR
    1159, // ER_NET_READ_INTERRUPTED
    1160, // ER_NET_ERROR_ON_WRITE
    1161, // ER_NET_WRITE_INTERRUPTED
    1203, // ER_TOO_MANY_USER_CONNECTIONS
    1205, // ER_LOCK_WAIT_TIMEOUT
    1213, // ER_LOCK_DEADLOCK
    1226, // ER_USER_LIMIT_REACHED
    1317, // ER_QUERY_INTERRUPTED
    1927, // MariaDB ER_CONNECTION_KILLED
    3032, // ER_SERVER_OFFLINE_MODE
    3169, // ER_SESSION_WAS_KILLED
    4031, // ER_CLIENT_INTERACTION_TIMEOUT
];

impl Classified for WireError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. }
            | Self::ReadTimeout { .. }
            | Self::Disconnected { .. }
            | Self::Busy { .. }
            | Self::TlsHandshake { .. }
            | Self::OutOfMemory { .. } => ErrorClass::Transient,
            Self::Server { error, .. } if TRANSIENT.contains(&error.code) => ErrorClass::Transient,
            Self::Server { .. }
            | Self::Malformed { .. }
            | Self::AccessDenied { .. }
            | Self::AuthPlugin { .. }
            | Self::NoTls { .. }
            | Self::TlsDemanded { .. }
            | Self::Certificate { .. }
            | Self::TlsFile { .. }
            | Self::DumpRefused { .. }
            | Self::EventTooLarge { .. }
            | Self::AnswerTooLarge { .. }
            | Self::OffsetTooLarge { .. } => ErrorClass::Changefeed,
            Self::Request { .. } => ErrorClass::Bug,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "WEIR-WIR-001",
            Self::ReadTimeout { .. } => "WEIR-WIR-002",
            Self::Disconnected { .. } => "WEIR-WIR-003",
            Self::Malformed { .. } => "WEIR-WIR-004",
            Self::AccessDenied { .. } => "WEIR-WIR-005",
            Self::AuthPlugin { .. } => "WEIR-WIR-006",
            Self::Busy { .. } => "WEIR-WIR-007",
            Self::NoTls { .. } => "WEIR-WIR-008",
            Self::TlsDemanded { .. } => "WEIR-WIR-009",
            Self::Certificate { .. } => "WEIR-WIR-010",
            Self::TlsHandshake { .. } => "WEIR-WIR-011",
            Self::TlsFile { .. } => "WEIR-WIR-012",
            Self::Server { .. } => "WEIR-WIR-013",
            Self::DumpRefused { .. } => "WEIR-WIR-014",
            Self::EventTooLarge { .. } => "WEIR-WIR-015",
            Self::AnswerTooLarge { .. } => "WEIR-WIR-016",
            Self::OffsetTooLarge { .. } => "WEIR-WIR-017",
            Self::Request { .. } => "WEIR-WIR-018",
            Self::OutOfMemory { .. } => "WEIR-WIR-019",
        }
    }

    fn action(&self) -> String {
        match self {
            Self::Unreachable { .. } => "check host, port and network, and that the server is running",
            Self::ReadTimeout { .. } => "check the network between Weir and the server, and the server's load",
            Self::Disconnected { .. } => "check the server's error log and the network on the way",
            Self::Malformed { .. } => {
                "check that the port is the one of the MySQL protocol and that nothing on the way changes it"
            }
            Self::AccessDenied { .. } => "check user, password and the hosts that the account may come from",
            Self::AuthPlugin { .. } => {
                "use an account with `caching_sha2_password`, `mysql_native_password`, `ed25519` or `parsec`"
            }
            Self::Busy { .. } => {
                "raise `max_connections` or the account's limit, or unblock the host with `mysqladmin flush-hosts`"
            }
            Self::NoTls { .. } => "enable TLS at the server, or set `tls.mode` to `preferred` or `disabled`",
            Self::TlsDemanded { .. } => "set `tls.mode` to `required` or stricter",
            Self::Certificate { .. } => {
                "set `tls.ca` to the authority of the server's certificate and check `tls.cert` and `tls.key`, or choose a weaker `tls.mode`"
            }
            Self::TlsHandshake { .. } => "check the TLS versions and ciphers that the server allows",
            Self::TlsFile { .. } => "name a PEM file that exists, may be read and is not encrypted",
            Self::Server { error, .. } if matches!(error.code, 1044 | 1142 | 1143 | 1227 | 1370) => {
                "grant the account the privilege that the message names"
            }
            Self::Server { .. } => "see the server's manual for this error",
            Self::DumpRefused { .. } => "see the server's message; check the start position and the server id",
            Self::EventTooLarge { .. } => "raise the event size limit, or make the server write smaller rows",
            Self::AnswerTooLarge { .. } => "narrow the filter, so that fewer tables are looked up at once",
            Self::OffsetTooLarge { .. } => "start from a GTID set, or from the begin of a binlog file",
            Self::Request { .. } => "report this with the log",
            Self::OutOfMemory { .. } => "give the process more memory",
        }
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16) -> ServerError {
        ServerError::new(code, b"HY000", b"text")
    }

    #[test]
    fn logins_are_sorted_by_what_can_be_done() {
        let sort = |code| WireError::from_login("h:1", "u", server(code));
        assert!(matches!(sort(1045), WireError::AccessDenied { .. }));
        assert!(matches!(sort(1044), WireError::AccessDenied { .. }));
        assert!(matches!(sort(3159), WireError::TlsDemanded { .. }));
        assert_eq!(sort(1040).class(), ErrorClass::Transient);
        assert_eq!(sort(1129).class(), ErrorClass::Transient);
        assert_eq!(sort(1053).class(), ErrorClass::Transient);
        assert_eq!(sort(1524).class(), ErrorClass::Changefeed);
    }

    #[test]
    fn a_dump_error_keeps_the_message() {
        let error = WireError::from_dump("h:1", server(1236));
        assert_eq!(error.to_string(), "`h:1` ended the binlog dump: text");
        assert!(matches!(
            WireError::from_dump("h:1", server(1053)),
            WireError::Server { .. }
        ));
    }

    #[test]
    fn a_servers_text_is_tamed() {
        let long = "é\n".repeat(1024);
        let error = ServerError::new(1, b"", long.as_bytes());
        assert_eq!(error.message.chars().count(), MESSAGE_CHARS_MAX);
        assert!(error.message.chars().all(|c| !c.is_control()));
        assert!(error.to_string().starts_with("1: é "));
    }
}
