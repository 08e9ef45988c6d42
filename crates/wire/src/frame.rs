//! Packets: three bytes of length, one of sequence number, payload; a payload of 16 MiB − 1
//! goes on in the next packet (MySQL source documentation, "MySQL Packets").

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use crate::cursor::Cursor;
use crate::error::{ServerError, WireError};
use crate::socket::{Closer, Socket, Transport};
use crate::tls;

/// Bytes before a payload.
pub(crate) const HEADER_BYTES: usize = 4;
/// Longest payload of one packet.
pub(crate) const PAYLOAD_MAX: usize = 0xff_ffff;
/// First byte of an error packet.
pub(crate) const ERROR_BYTE: u8 = 0xff;
/// First byte of an end-of-file packet, which has fewer than nine bytes.
pub(crate) const EOF_BYTE: u8 = 0xfe;
/// Bytes of an end-of-file packet, at most.
pub(crate) const EOF_BYTES_MAX: usize = 8;
/// Bytes that one read asks for at most: many small events per system call, and few
/// enough that they are still in the processor's cache when they are decoded.
const READ_BYTES: usize = 256 << 10;
/// Buffer of a connection that is used for queries.
const QUERY_BUFFER_BYTES: usize = 16 << 10;
/// Command to end the connection.
const COM_QUIT: u8 = 0x01;

/// A connection as a sequence of packets.
pub(crate) struct Framed {
    transport: Transport,
    address: String,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Sequence number of the next packet, ours or theirs.
    sequence: u8,
    waiting_for: &'static str,
    waited: Duration,
    /// Whether the server is told when this is dropped: it waits for a command.
    pub(crate) quit_on_drop: bool,
}

impl Framed {
    pub(crate) fn new(socket: Socket, address: String) -> Self {
        Self {
            transport: Transport::Plain(socket),
            address,
            buffer: vec![0; QUERY_BUFFER_BYTES],
            start: 0,
            end: 0,
            sequence: 0,
            waiting_for: "the greeting",
            waited: Duration::ZERO,
            quit_on_drop: false,
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What a timeout will say it waited for.
    pub(crate) fn expect(&mut self, waiting_for: &'static str) {
        self.waiting_for = waiting_for;
    }

    pub(crate) fn set_deadline(&mut self, limit: Duration) -> Result<(), WireError> {
        self.waited = limit;
        match self.transport.socket_mut() {
            Ok(socket) => {
                socket.set_deadline(limit);
                Ok(())
            }
            Err(error) => Err(self.io(error)),
        }
    }

    pub(crate) fn set_timeout(&mut self, limit: Duration) -> Result<(), WireError> {
        self.waited = limit;
        let done = self
            .transport
            .socket_mut()
            .and_then(|socket| socket.set_timeout(limit));
        done.map_err(|error| self.io(error))
    }

    pub(crate) fn closer(&self) -> Result<Closer, WireError> {
        let closer = self.transport.socket().and_then(Socket::closer);
        closer.map_err(|error| self.io(error))
    }

    /// Makes room for `bytes` in the buffer.
    pub(crate) fn grow_buffer(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Goes on under TLS. Nothing may have come from the server that is not read yet: it
    /// would have been sent in clear, by whomever.
    pub(crate) fn start_tls(&mut self, handshake: &tls::Handshake<'_>) -> Result<(), WireError> {
        if self.start != self.end {
            return Err(self.malformed("bytes in clear before the TLS handshake"));
        }
        let Transport::Plain(socket) = std::mem::replace(&mut self.transport, Transport::Closed) else {
            return Err(self.malformed("a second TLS handshake"));
        };
        match handshake.run(socket) {
            Ok(stream) => {
                self.transport = Transport::Tls(Box::new(stream));
                Ok(())
            }
            Err(tls::Failure::Io(error)) => Err(self.io(error)),
            Err(tls::Failure::Tls(error)) => Err(error),
        }
    }

    pub(crate) fn malformed(&self, what: &'static str) -> WireError {
        WireError::Malformed {
            address: self.address.clone(),
            what,
        }
    }

    /// Sorts an error of the transport.
    pub(crate) fn io(&self, error: io::Error) -> WireError {
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            return WireError::ReadTimeout {
                address: self.address.clone(),
                waiting_for: self.waiting_for,
                waited: self.waited,
            };
        }
        if let Some(what) = tls::certificate_alert(&error) {
            return WireError::Certificate {
                address: self.address.clone(),
                what,
            };
        }
        WireError::Disconnected {
            address: self.address.clone(),
            source: Some(tls::plain_error(error)),
        }
    }

    fn ended(&self) -> WireError {
        WireError::Disconnected {
            address: self.address.clone(),
            source: None,
        }
    }

    /// Bytes that were read and not consumed.
    pub(crate) fn held(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes held bytes and says where in the buffer they are; the next `fill`
    /// overwrites them.
    pub(crate) fn consume(&mut self, count: usize) -> std::ops::Range<usize> {
        let from = self.start;
        self.start = (from + count).min(self.end);
        from..self.start
    }

    /// Bytes of the buffer.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// Reads until `need` bytes are held, which the buffer must have room for. A timeout
    /// loses nothing: the next call goes on.
    pub(crate) fn fill(&mut self, need: usize) -> Result<(), WireError> {
        while self.end - self.start < need {
            if self.start == self.end {
                self.start = 0;
                self.end = 0;
            } else if self.start + need > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let limit = self.buffer.len().min(self.end + READ_BYTES);
            match self.transport.read(&mut self.buffer[self.end..limit]) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    /// Reads the next packet's header without consuming it: length of the payload. Of the
    /// payload the first byte is held too, if there is one.
    pub(crate) fn peek_header(&mut self) -> Result<usize, WireError> {
        self.fill(HEADER_BYTES)?;
        let &[a, b, c, sequence, ..] = self.held() else {
            return Err(self.malformed("packet header"));
        };
        let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        if length > 0 {
            self.fill(HEADER_BYTES + 1)?;
        }
        // A server that ends the connection on its own account (shutdown, KILL, idle for
        // too long) numbers its error packet as it likes.
        if sequence != self.sequence && self.held().get(HEADER_BYTES) != Some(&ERROR_BYTE) {
            return Err(self.malformed("packet out of order"));
        }
        Ok(length)
    }

    /// Consumes the header that was peeked.
    pub(crate) fn consume_header(&mut self) {
        self.sequence = self.held().get(3).map_or(0, |sequence| sequence.wrapping_add(1));
        self.consume(HEADER_BYTES);
    }

    /// Reads one payload, joined from its packets, into `out`; `limit` bytes at most.
    pub(crate) fn read_payload(&mut self, out: &mut Vec<u8>, limit: usize) -> Result<(), WireError> {
        out.clear();
        loop {
            let length = self.peek_header()?;
            self.consume_header();
            if out.len() + length > limit {
                return Err(WireError::AnswerTooLarge {
                    address: self.address.clone(),
                    limit: limit as u64,
                });
            }
            let mut left = length;
            while left > 0 {
                self.fill(1)?;
                let range = self.consume(left);
                left -= range.len();
                out.extend_from_slice(self.bytes(range));
            }
            if length < PAYLOAD_MAX {
                return Ok(());
            }
        }
    }

    /// Appends up to `left` bytes of a payload to `out`, past the buffer as far as
    /// possible; says how many are still to come. On an error, a timeout too, `out` holds
    /// what came until then.
    pub(crate) fn read_directly(&mut self, out: &mut Vec<u8>, left: usize) -> Result<(), WireError> {
        let range = self.consume(left);
        let left = left - range.len();
        out.extend_from_slice(self.bytes(range));
        if left == 0 {
            return Ok(());
        }
        let mut part = (&mut self.transport).take(left as u64);
        match part.read_to_end(out) {
            Ok(count) if count == left => Ok(()),
            Ok(_) => Err(self.ended()),
            Err(error) => Err(self.io(error)),
        }
    }

    /// Sends one payload, in as many packets as it needs.
    pub(crate) fn write_payload(&mut self, payload: &[u8]) -> Result<(), WireError> {
        let mut bytes = Vec::with_capacity(payload.len() + HEADER_BYTES);
        let mut rest = payload;
        loop {
            let part = rest.get(..PAYLOAD_MAX).unwrap_or(rest);
            let length = u32::try_from(part.len()).unwrap_or_default().to_le_bytes();
            bytes.extend_from_slice(&length[..3]);
            bytes.push(self.sequence);
            bytes.extend_from_slice(part);
            self.sequence = self.sequence.wrapping_add(1);
            rest = rest.get(part.len()..).unwrap_or_default();
            if part.len() < PAYLOAD_MAX {
                break;
            }
        }
        let sent = self
            .transport
            .write_all(&bytes)
            .and_then(|()| self.transport.flush());
        sent.map_err(|error| self.write_error(error))
    }

    /// Sorts an error of a write. A server that refuses our certificate under TLS 1.3 says
    /// so and closes while we already send the login: the reason is still there to be read.
    fn write_error(&mut self, error: io::Error) -> WireError {
        let timed_out = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        if let Transport::Tls(stream) = &mut self.transport
            && !timed_out
            && let Err(behind) = stream.read(&mut [0])
            && tls::certificate_alert(&behind).is_some()
        {
            return self.io(behind);
        }
        self.io(error)
    }

    /// Sends a command: a payload that starts a new sequence.
    pub(crate) fn command(&mut self, payload: &[u8]) -> Result<(), WireError> {
        self.sequence = 0;
        self.write_payload(payload)
    }

    /// Reads an error packet, its first byte included.
    pub(crate) fn server_error(&self, payload: &[u8]) -> Result<ServerError, WireError> {
        parse_error(payload).ok_or_else(|| self.malformed("error packet"))
    }
}

fn parse_error(payload: &[u8]) -> Option<ServerError> {
    let mut c = Cursor::new(payload);
    if c.u8()? != ERROR_BYTE {
        return None;
    }
    let code = c.u16()?;
    let rest = c.take_all();
    // Before the login there is no SQLSTATE.
    let (sql_state, message) = match rest {
        [b'#', state @ ..] => state.split_at_checked(5)?,
        message => (&[][..], message),
    };
    Some(ServerError::new(code, sql_state, message))
}

impl Drop for Framed {
    fn drop(&mut self) {
        if self.quit_on_drop {
            // Courtesy only: without it the server counts an aborted connection.
            self.command(&[COM_QUIT]).unwrap_or_default();
        }
    }
}
