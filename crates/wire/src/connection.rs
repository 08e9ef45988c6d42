//! A logged-in connection.

use std::fmt;
use std::time::Duration;

use weir_types::TlsMode;

use crate::auth::Login;
use crate::capability as cap;
use crate::dump::{DumpRequest, DumpStream};
use crate::endpoint::{Endpoint, ServerInfo};
use crate::error::WireError;
use crate::frame::{ERROR_BYTE, Framed};
use crate::handshake::{Greeting, login_request, tls_request};
use crate::result::{self, Rows};
use crate::socket::{Closer, Socket};
use crate::tls;

/// Bytes of a greeting, at most.
const GREETING_BYTES_MAX: usize = 4096;
/// Command: statement in text.
const COM_QUERY: u8 = 0x03;
/// Command: tells the server that we are a replica.
const COM_REGISTER_SLAVE: u8 = 0x15;
/// Bytes of a replica's name that a server takes (`HOSTNAME_LENGTH` of older ones).
const REPLICA_HOST_BYTES_MAX: u8 = 60;

/// Connection to a server, after the login. Blocking. When it is dropped the server is told
/// and the socket is closed.
pub struct Connection {
    frame: Framed,
    info: ServerInfo,
    /// Set by an error after which the next bytes cannot be told apart.
    broken: bool,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// `Unreachable`, `Busy`, `ReadTimeout` and `Disconnected` may pass; `AccessDenied`,
    /// `AuthPlugin`, `NoTls`, `TlsDemanded`, `Certificate` and `TlsFile` will not.
    pub fn open(endpoint: &Endpoint) -> Result<Self, WireError> {
        if endpoint.user.contains('\0') {
            return Err(WireError::Request {
                what: "the user has a zero byte",
            });
        }
        // Bad files are an error even where the server turns out to have no TLS.
        let handshake = match endpoint.tls.mode {
            TlsMode::Disabled => None,
            _ => Some(tls::Handshake::new(endpoint)?),
        };
        let socket = Socket::connect(endpoint)?;
        let mut frame = Framed::new(socket, endpoint.address());
        frame.set_deadline(endpoint.connect_timeout)?;
        let greeting = read_greeting(&mut frame, endpoint)?;
        let mut capabilities = cap::WANTED & (greeting.capabilities | cap::LONG_PASSWORD);
        let offered = greeting.capabilities & cap::SSL != 0;
        let encrypted = match handshake {
            Some(handshake) if offered => {
                capabilities |= cap::SSL;
                frame.write_payload(&tls_request(capabilities))?;
                frame.expect("the TLS handshake");
                frame.start_tls(&handshake)?;
                true
            }
            Some(_) if endpoint.tls.mode != TlsMode::Preferred => {
                return Err(WireError::NoTls {
                    address: endpoint.address(),
                    mode: endpoint.tls.mode.name(),
                });
            }
            _ => false,
        };
        let info = ServerInfo {
            version: greeting.plain_version().to_owned(),
            flavor: greeting.flavor(),
            connection_id: greeting.connection_id,
            encrypted,
        };
        let login = Login::new(endpoint, encrypted, &greeting.plugin, greeting.nonce);
        let (plugin, auth) = login.first();
        let request = login_request(capabilities, &endpoint.user, &auth, plugin.as_bytes());
        frame.write_payload(&request)?;
        login.run(&mut frame)?;
        frame.set_timeout(endpoint.read_timeout)?;
        frame.quit_on_drop = true;
        Ok(Self {
            frame,
            info,
            broken: false,
        })
    }

    /// What the server said of itself.
    pub const fn server(&self) -> &ServerInfo {
        &self.info
    }

    /// Changes the longest wait for the next bytes of an answer.
    ///
    /// # Errors
    /// `Disconnected` if the socket is gone.
    pub fn set_read_timeout(&mut self, limit: Duration) -> Result<(), WireError> {
        self.frame.set_timeout(limit)
    }

    /// Runs a statement and reads its whole result, 64 MiB in memory at most. A statement without a
    /// result has no columns and no rows.
    ///
    /// # Errors
    /// `Server` leaves the connection usable; after any other error it is not.
    pub fn query(&mut self, sql: &str) -> Result<Rows, WireError> {
        self.frame.expect("the answer to a query");
        let mut request = Vec::with_capacity(sql.len() + 1);
        request.push(COM_QUERY);
        request.extend_from_slice(sql.as_bytes());
        self.call(&request)
    }

    /// Runs a statement whose result does not matter.
    ///
    /// # Errors
    /// As `query`.
    pub fn execute(&mut self, sql: &str) -> Result<(), WireError> {
        self.query(sql).map(|_| ())
    }

    /// Tells the server that this connection is a replica, so that it lists it
    /// (`SHOW REPLICAS`). `host`: name that is shown beside the id, at most 60 bytes.
    ///
    /// # Errors
    /// As `query`; `Request` for a name that is too long.
    pub fn register_replica(&mut self, server_id: u32, host: &str) -> Result<(), WireError> {
        self.frame.expect("the answer to the registration as a replica");
        let mut request = vec![COM_REGISTER_SLAVE];
        request.extend_from_slice(&server_id.to_le_bytes());
        let length = u8::try_from(host.len())
            .ok()
            .filter(|n| *n <= REPLICA_HOST_BYTES_MAX);
        request.push(length.ok_or(WireError::Request {
            what: "the name of the replica is longer than 60 bytes",
        })?);
        request.extend_from_slice(host.as_bytes());
        // User and password, both empty; port, rank and source id, all zero.
        request.extend_from_slice(&[0; 2 + 2 + 4 + 4]);
        self.call(&request).map(|_| ())
    }

    /// Asks for the binlog; the connection serves nothing else from then on. Whether the
    /// server accepts the request is known from the first `next`.
    ///
    /// # Errors
    /// `OffsetTooLarge` and `Request` for what cannot be asked; those of the connection.
    pub fn dump(mut self, request: &DumpRequest) -> Result<DumpStream, WireError> {
        let command = request.encode()?;
        self.check_usable()?;
        self.frame.quit_on_drop = false;
        self.frame.command(&command)?;
        Ok(DumpStream::new(self.frame))
    }

    /// A handle that ends the connection from another thread.
    ///
    /// # Errors
    /// `Disconnected` if the system gives no further handle.
    pub fn closer(&self) -> Result<Closer, WireError> {
        self.frame.closer()
    }

    fn check_usable(&self) -> Result<(), WireError> {
        if self.broken {
            return Err(WireError::Disconnected {
                address: self.frame.address().to_owned(),
                source: None,
            });
        }
        Ok(())
    }

    fn call(&mut self, request: &[u8]) -> Result<Rows, WireError> {
        self.check_usable()?;
        let outcome = self
            .frame
            .command(request)
            .and_then(|()| result::read(&mut self.frame));
        if matches!(&outcome, Err(error) if !matches!(error, WireError::Server { .. })) {
            self.broken = true;
            self.frame.quit_on_drop = false;
        }
        outcome
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("address", &self.frame.address())
            .field("server", &self.info)
            .finish_non_exhaustive()
    }
}

fn read_greeting(frame: &mut Framed, endpoint: &Endpoint) -> Result<Greeting, WireError> {
    let mut packet = Vec::new();
    frame.read_payload(&mut packet, GREETING_BYTES_MAX)?;
    if packet.first() == Some(&ERROR_BYTE) {
        let error = frame.server_error(&packet)?;
        return Err(WireError::from_login(frame.address(), &endpoint.user, error));
    }
    Greeting::parse(&packet).map_err(|what| frame.malformed(what))
}
