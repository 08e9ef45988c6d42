//! TCP connection with time limits, in clear or under TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use openssl::ssl::SslStream;
use socket2::{SockRef, TcpKeepalive};

use crate::endpoint::Endpoint;
use crate::error::WireError;

/// Idle time before the operating system probes the other side.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between its probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Read ahead below TLS, which asks for five bytes before each record of 16 KiB at most.
const TLS_READ_AHEAD_BYTES: usize = 64 << 10;
/// Shortest time limit that is set; the system takes zero for "none".
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// TCP connection. Dropping it ends the connection for every handle.
pub(crate) struct Socket {
    stream: TcpStream,
    /// All reads and writes must be done by then; `None`: each has its own limit.
    deadline: Option<Instant>,
    /// Bytes read ahead, empty without TLS.
    ahead: Vec<u8>,
    ahead_start: usize,
    ahead_end: usize,
}

impl Socket {
    /// Connects to the first address of the host that answers.
    pub(crate) fn connect(endpoint: &Endpoint) -> Result<Self, WireError> {
        let unreachable = |source| WireError::Unreachable {
            address: endpoint.address(),
            source,
        };
        let addresses: Vec<SocketAddr> = (endpoint.host.as_str(), endpoint.port)
            .to_socket_addrs()
            .map_err(unreachable)?
            .collect();
        let stream = connect_any(&addresses, endpoint.connect_timeout).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL);
        SockRef::from(&stream)
            .set_tcp_keepalive(&keepalive)
            .map_err(unreachable)?;
        Ok(Self {
            stream,
            deadline: None,
            ahead: Vec::new(),
            ahead_start: 0,
            ahead_end: 0,
        })
    }

    /// From now on everything must be done within `limit`.
    pub(crate) fn set_deadline(&mut self, limit: Duration) {
        self.deadline = Some(Instant::now() + limit);
    }

    /// From now on each read and write has the limit `limit`.
    pub(crate) fn set_timeout(&mut self, limit: Duration) -> io::Result<()> {
        self.deadline = None;
        let limit = Some(limit.max(TIMEOUT_MIN));
        self.stream.set_read_timeout(limit)?;
        self.stream.set_write_timeout(limit)
    }

    /// Reads ahead, as TLS needs it.
    pub(crate) fn read_ahead(&mut self) {
        self.ahead.resize(TLS_READ_AHEAD_BYTES, 0);
    }

    pub(crate) fn closer(&self) -> io::Result<Closer> {
        self.stream.try_clone().map(Closer)
    }

    fn remaining(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else {
            return Ok(None);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left.max(TIMEOUT_MIN)))
    }

    fn read_stream(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(left) = self.remaining()? {
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(into)
    }

    fn fill_ahead(&mut self) -> io::Result<()> {
        let mut ahead = std::mem::take(&mut self.ahead);
        let outcome = self.read_stream(&mut ahead);
        self.ahead = ahead;
        self.ahead_start = 0;
        self.ahead_end = 0;
        self.ahead_end = outcome?;
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ahead_start == self.ahead_end {
            if into.len() >= self.ahead.len() {
                return self.read_stream(into);
            }
            self.fill_ahead()?;
        }
        let held = &self.ahead[self.ahead_start..self.ahead_end];
        let count = held.len().min(into.len());
        into[..count].copy_from_slice(&held[..count]);
        self.ahead_start += count;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(left) = self.remaining()? {
            self.stream.set_write_timeout(Some(left))?;
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A `Closer` keeps the file descriptor open; the connection must not outlive us.
        // It fails when the other side has ended the connection, which is as good.
        self.stream.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

/// Tries the addresses one after another; each gets its share of the time that is left.
fn connect_any(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (index, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share.max(TIMEOUT_MIN)) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Ends a connection from another thread, so that a blocked read returns.
#[derive(Debug)]
pub struct Closer(TcpStream);

impl Closer {
    /// Ends the connection. Any read or write on it, blocked ones too, ends with
    /// `WireError::Disconnected`. May be called more than once.
    pub fn close(&self) {
        // It fails when the connection is closed already.
        self.0.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

/// A connection in clear or under TLS.
pub(crate) enum Transport {
    /// In clear.
    Plain(Socket),
    /// Under TLS.
    Tls(Box<SslStream<Socket>>),
    /// Given up in the middle of a TLS handshake.
    Closed,
}

impl Transport {
    pub(crate) fn socket(&self) -> io::Result<&Socket> {
        match self {
            Self::Plain(socket) => Ok(socket),
            Self::Tls(stream) => Ok(stream.get_ref()),
            Self::Closed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(crate) fn socket_mut(&mut self) -> io::Result<&mut Socket> {
        match self {
            Self::Plain(socket) => Ok(socket),
            Self::Tls(stream) => Ok(stream.get_mut()),
            Self::Closed => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
            Self::Closed => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Closed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
            Self::Closed => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn every_address_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        let stream = connect_any(&[closed, open], LIMIT).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
        let error = connect_any(&[closed, closed], LIMIT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = connect_any(&[], LIMIT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
