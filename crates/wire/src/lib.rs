//! The client side of the MySQL and MariaDB protocol as a replica needs it: login, TLS,
//! text queries and the binlog dump. Blocking, one thread per connection.
//!
//! Everything that comes from the other side is untrusted: malformed bytes are an error,
//! never a panic, and lengths are checked before memory is taken for them.
//!
//! Sources: MySQL internals manual ("Client/Server Protocol", "Replication Protocol"),
//! MariaDB knowledge base ("Client/Server Protocol", "Replication Protocol").

mod auth;
mod capability;
mod connection;
mod cursor;
mod dump;
mod endpoint;
mod error;
mod frame;
mod handshake;
mod result;
mod socket;
mod tls;

#[cfg(test)]
mod fake_server;
#[cfg(test)]
mod tests;

pub use connection::Connection;
pub use dump::{DumpRequest, DumpStream, EventBuf};
pub use endpoint::{Endpoint, ServerInfo};
pub use error::{ServerError, WireError};
pub use result::Rows;
pub use socket::Closer;
