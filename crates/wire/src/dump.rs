//! The binlog as the server sends it to a replica (MySQL source documentation, "Replication
//! Protocol"; MariaDB knowledge base, "Replication Protocol").

use std::fmt;
use std::ops::{Deref, Range};
use std::time::Duration;

use weir_types::GtidSet;

use crate::error::WireError;
use crate::frame::{EOF_BYTE, EOF_BYTES_MAX, ERROR_BYTE, Framed, HEADER_BYTES, PAYLOAD_MAX};
use crate::socket::Closer;

/// Command: dump from a file and an offset.
const COM_BINLOG_DUMP: u8 = 0x12;
/// Command: dump what is not in a GTID set.
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
/// Offset of a file's first event.
const FIRST_EVENT_OFFSET: u64 = 4;
/// Byte before each event.
const OK_BYTE: u8 = 0;
/// Bytes of an event's header.
const EVENT_HEADER_BYTES: usize = 19;
/// Where in it the event's length is.
const EVENT_LENGTH_AT: usize = 9;
/// Buffer of a dump. Larger events get an allocation of their own.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of an error packet, at most.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Format of an encoded GTID set with tags, in both outer bytes of the count.
const GTID_FORMAT_TAGGED: u64 = 1 << 56 | 1;

/// Where the binlog is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpRequest {
    /// MySQL: every transaction that is not in a set.
    MysqlGtid {
        /// Our server id.
        server_id: u32,
        /// What is not to be sent.
        executed: GtidSet,
    },
    /// From an offset of a file. MariaDB by GTID: no file and offset 4, after
    /// `SET @slave_connect_state = '…'`.
    File {
        /// Our server id.
        server_id: u32,
        /// Name of the file; empty for the first that the server has.
        file: String,
        /// Offset of an event, 4 at least.
        offset: u64,
    },
}

impl DumpRequest {
    /// The command's payload.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, WireError> {
        match self {
            Self::MysqlGtid { server_id, executed } => {
                let set = encode_gtid_set(executed)?;
                let length = u32::try_from(set.len()).map_err(|_| WireError::Request {
                    what: "the GTID set is larger than 4 GiB",
                })?;
                let mut out = vec![COM_BINLOG_DUMP_GTID, 0, 0];
                out.extend_from_slice(&server_id.to_le_bytes());
                // No file name.
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&FIRST_EVENT_OFFSET.to_le_bytes());
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(&set);
                Ok(out)
            }
            Self::File {
                server_id,
                file,
                offset,
            } => {
                let short = u32::try_from(*offset).map_err(|_| WireError::OffsetTooLarge {
                    file: file.clone(),
                    offset: *offset,
                })?;
                let mut out = vec![COM_BINLOG_DUMP];
                out.extend_from_slice(&short.to_le_bytes());
                // Flags.
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(&server_id.to_le_bytes());
                out.extend_from_slice(file.as_bytes());
                Ok(out)
            }
        }
    }
}

/// Encodes a set as MySQL does: count of sources, and per source uuid, tag (only in the
/// format that a set with tags needs and servers since 8.3 know), count of ranges, ranges
/// with exclusive ends.
fn encode_gtid_set(set: &GtidSet) -> Result<Vec<u8>, WireError> {
    if set.has_mariadb() {
        return Err(WireError::Request {
            what: "a MariaDB GTID in a set for MySQL",
        });
    }
    let tagged = set.mysql_ranges().any(|(source, _)| !source.tag.is_empty());
    let count = set.mysql_ranges().count() as u64;
    let head = if tagged {
        GTID_FORMAT_TAGGED | count << 8
    } else {
        count
    };
    let mut out = head.to_le_bytes().to_vec();
    for (source, ranges) in set.mysql_ranges() {
        out.extend_from_slice(&source.uuid);
        if tagged {
            // A number below 128 is one byte whose lowest bit is clear.
            let length = u8::try_from(source.tag.len()).ok().filter(|length| *length < 128);
            let length = length.ok_or(WireError::Request {
                what: "a GTID tag of more than 127 bytes",
            })?;
            out.push(length << 1);
            out.extend_from_slice(source.tag.as_bytes());
        }
        out.extend_from_slice(&(ranges.len() as u64).to_le_bytes());
        for &(first, last) in ranges {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&last.saturating_add(1).to_le_bytes());
        }
    }
    Ok(out)
}

/// Bytes of one event: header, body and, if the stream has them, checksum.
#[derive(Debug)]
pub enum EventBuf<'a> {
    /// In the stream's buffer, which the next event overwrites.
    Borrowed(&'a [u8]),
    /// In an allocation of its own: more than about 1 MiB.
    Owned(Vec<u8>),
}

impl Deref for EventBuf<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The running dump.
pub struct DumpStream {
    frame: Framed,
    state: State,
}

/// What the next bytes are.
enum State {
    /// An event's first packet.
    Between,
    /// More of a large event.
    Inside(Large),
    /// Nothing: the server has ended the stream.
    Ended,
    /// Not known: there was an error.
    Broken,
}

/// An event that does not fit the buffer, as far as it has come.
struct Large {
    bytes: Vec<u8>,
    /// Length by the event's header.
    length: usize,
    /// Length that `bytes` has at the end of the current packet.
    packet_end: usize,
    /// Whether the event ends with the current packet.
    last_packet: bool,
}

/// One step of reading an event.
enum Step {
    Event(Range<usize>),
    Large(Large),
    End,
}

impl DumpStream {
    pub(crate) fn new(mut frame: Framed) -> Self {
        frame.grow_buffer(BUFFER_BYTES);
        frame.expect("the next event or heartbeat");
        Self {
            frame,
            state: State::Between,
        }
    }

    /// The next event, heartbeats and artificial events included; `None` if the server has
    /// ended the stream. Blocks until it is there.
    ///
    /// # Errors
    /// `ReadTimeout` loses nothing: the next call goes on where this one stopped. After any
    /// other error the stream is of no use. `EventTooLarge` comes before the event is read.
    pub fn next(&mut self, bytes_max: u64) -> Result<Option<EventBuf<'_>>, WireError> {
        let large = match std::mem::replace(&mut self.state, State::Broken) {
            State::Between => match begin(&mut self.frame, bytes_max) {
                Ok(Step::Event(range)) => {
                    self.state = State::Between;
                    return Ok(Some(EventBuf::Borrowed(self.frame.bytes(range))));
                }
                Ok(Step::Large(large)) => large,
                Ok(Step::End) => {
                    self.state = State::Ended;
                    return Ok(None);
                }
                Err(error) => {
                    if matches!(error, WireError::ReadTimeout { .. }) {
                        self.state = State::Between;
                    }
                    return Err(error);
                }
            },
            State::Inside(large) => large,
            State::Ended => {
                self.state = State::Ended;
                return Ok(None);
            }
            State::Broken => {
                return Err(WireError::Disconnected {
                    address: self.frame.address().to_owned(),
                    source: None,
                });
            }
        };
        self.finish(large).map(Some)
    }

    /// Reads the rest of a large event.
    fn finish(&mut self, mut large: Large) -> Result<EventBuf<'static>, WireError> {
        match large.read(&mut self.frame) {
            Ok(()) => {
                self.state = State::Between;
                Ok(EventBuf::Owned(large.bytes))
            }
            Err(error) => {
                if matches!(error, WireError::ReadTimeout { .. }) {
                    self.state = State::Inside(large);
                }
                Err(error)
            }
        }
    }

    /// Changes the longest wait for the next bytes, heartbeats included.
    ///
    /// # Errors
    /// `Disconnected` if the socket is gone.
    pub fn set_read_timeout(&mut self, limit: Duration) -> Result<(), WireError> {
        self.frame.set_timeout(limit)
    }

    /// A handle that ends the stream from another thread.
    ///
    /// # Errors
    /// `Disconnected` if the system gives no further handle.
    pub fn closer(&self) -> Result<Closer, WireError> {
        self.frame.closer()
    }
}

impl fmt::Debug for DumpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpStream")
            .field("address", &self.frame.address())
            .finish_non_exhaustive()
    }
}

/// Reads an event's first packet; a small event whole. Consumes nothing unless it succeeds.
fn begin(frame: &mut Framed, bytes_max: u64) -> Result<Step, WireError> {
    let length = frame.peek_header()?;
    match frame.held().get(HEADER_BYTES).filter(|_| length > 0) {
        Some(&OK_BYTE) => {}
        Some(&ERROR_BYTE) => {
            let mut packet = Vec::new();
            frame.read_payload(&mut packet, ERROR_BYTES_MAX)?;
            let error = frame.server_error(&packet)?;
            return Err(WireError::from_dump(frame.address(), error));
        }
        Some(&EOF_BYTE) if length <= EOF_BYTES_MAX => return Ok(Step::End),
        _ => return Err(frame.malformed("packet of the binlog stream")),
    }
    let in_packet = length - 1;
    if in_packet < EVENT_HEADER_BYTES {
        return Err(frame.malformed("event shorter than its header"));
    }
    let event_at = HEADER_BYTES + 1;
    frame.fill(event_at + EVENT_HEADER_BYTES)?;
    let length_at = event_at + EVENT_LENGTH_AT;
    let Some(&[a, b, c, d]) = frame.held().get(length_at..length_at + 4) else {
        return Err(frame.malformed("event header"));
    };
    let bytes = u32::from_le_bytes([a, b, c, d]);
    if u64::from(bytes) > bytes_max {
        return Err(WireError::EventTooLarge {
            bytes: u64::from(bytes),
            limit: bytes_max,
        });
    }
    let last_packet = length < PAYLOAD_MAX;
    let event = bytes as usize;
    if event < in_packet || (last_packet && event != in_packet) {
        return Err(frame.malformed("event of another length than its header says"));
    }
    if HEADER_BYTES + length <= frame.buffer_bytes() {
        frame.fill(HEADER_BYTES + length)?;
        frame.consume_header();
        let packet = frame.consume(length);
        return Ok(Step::Event(packet.start + 1..packet.end));
    }
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(event)
        .map_err(|_| WireError::OutOfMemory { bytes: event as u64 })?;
    frame.consume_header();
    frame.consume(1);
    Ok(Step::Large(Large {
        bytes,
        length: event,
        packet_end: in_packet,
        last_packet,
    }))
}

impl Large {
    /// Reads to the end of the event.
    fn read(&mut self, frame: &mut Framed) -> Result<(), WireError> {
        loop {
            let left = self.packet_end.saturating_sub(self.bytes.len());
            frame.read_directly(&mut self.bytes, left)?;
            if self.last_packet {
                break;
            }
            let length = frame.peek_header()?;
            if self.bytes.len() + length > self.length {
                return Err(frame.malformed("event longer than its header says"));
            }
            frame.consume_header();
            self.packet_end = self.bytes.len() + length;
            self.last_packet = length < PAYLOAD_MAX;
        }
        if self.bytes.len() != self.length {
            return Err(frame.malformed("event of another length than its header says"));
        }
        Ok(())
    }
}
