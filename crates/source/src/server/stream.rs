//! Events of a dump, with checksums checked and their places in the files.

use std::time::Duration;

use weir_binlog::Decoder;
use weir_binlog::error::BinlogError;
use weir_binlog::event::Event;
use weir_binlog::event_type::EventType;
use weir_binlog::format::{ChecksumAlgorithm, FormatDescription};
use weir_binlog::header::{EventHeader, HEADER_BYTES};
use weir_binlog::raw::{EventBytes, RawEvent};
use weir_wire::{DumpStream, EventBuf, WireError};

use super::place::{Kind, Place, kind};
use crate::error::{Result, SourceError};

/// What comes next.
pub(crate) enum Next<'a> {
    /// The events of this file follow.
    File(Place),
    /// How the events that follow are written.
    Format {
        header: EventHeader,
        format: &'a FormatDescription,
    },
    /// An event of the file.
    Event {
        start: u64,
        end: u64,
        raw: RawEvent<'a>,
        format: Option<&'a FormatDescription>,
    },
    /// The server has nothing to send.
    Heartbeat,
    /// Made up by the server, without meaning for us.
    Nothing,
    /// Nothing more at the moment; the next call waits.
    Dry,
    /// The server ended the stream.
    Ended,
}

/// How long to wait for more before what was read is handed over.
const LULL: Duration = Duration::from_millis(2);

/// Tells what the bytes of a stream's events are.
pub(crate) struct Framing {
    decoder: Decoder,
    place: Place,
}

impl Framing {
    pub(crate) fn new() -> Self {
        Self {
            decoder: Decoder::new(ChecksumAlgorithm::Crc32),
            place: Place::new("", 0),
        }
    }

    /// Takes in one event.
    ///
    /// # Errors
    /// Those of the decoder.
    pub(crate) fn take<'a>(&'a mut self, bytes: EventBytes<'a>) -> Result<Next<'a>> {
        let Self { decoder, place } = self;
        let failed = |place: &Place, source: BinlogError| SourceError::Binlog {
            place: format!("{}:{}", place.file, place.offset),
            source,
        };
        let (header, body_bytes) = frame(decoder, &bytes).map_err(|e| failed(place, e))?;
        let checksum_bytes = bytes.len().saturating_sub(HEADER_BYTES + body_bytes);
        let raw = RawEvent {
            header,
            bytes,
            checksum_bytes,
        };
        let kind = kind(&header);
        if header.type_number == EventType::FormatDescription.number() {
            if kind == Kind::InFile {
                place.pass(&header);
            }
            return Ok(match decoder.format() {
                Some(format) => Next::Format { header, format },
                None => Next::Nothing,
            });
        }
        match kind {
            Kind::NextFile => {
                let Event::Rotate(rotate) = raw.decode(None).map_err(|e| failed(place, e))? else {
                    return Ok(Next::Nothing);
                };
                *place = Place::new(&String::from_utf8_lossy(rotate.file), rotate.position);
                Ok(Next::File(place.clone()))
            }
            Kind::Heartbeat => {
                if let Event::Heartbeat(heartbeat) = raw.decode(None).map_err(|e| failed(place, e))? {
                    let is_exact = header.type_number == EventType::HeartbeatV2.number();
                    place.heartbeat(heartbeat.file, heartbeat.position, is_exact);
                }
                Ok(Next::Heartbeat)
            }
            Kind::MadeUp => Ok(Next::Nothing),
            Kind::Format | Kind::InFile => {
                let (start, end) = place.pass(&header);
                Ok(Next::Event {
                    start,
                    end,
                    raw,
                    format: decoder.format(),
                })
            }
        }
    }
}

/// The stream of one connection.
pub(crate) struct EventStream {
    stream: DumpStream,
    framing: Framing,
    silence: Duration,
    /// The limit of a read that is set, and the one that the next read is to have.
    limit: Option<Duration>,
    wanted: Duration,
}

impl EventStream {
    /// `silence`: how long the server may send nothing, before its first event too.
    pub(crate) fn new(stream: DumpStream, silence: Duration) -> Self {
        Self {
            stream,
            framing: Framing::new(),
            silence,
            limit: None,
            wanted: silence,
        }
    }

    /// File and offset of the next event.
    pub(crate) const fn place(&self) -> &Place {
        &self.framing.place
    }

    /// From now on the server may be silent for so long.
    pub(crate) const fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
    }

    /// Reads on. `bytes_max`: largest event.
    ///
    /// # Errors
    /// The connection's, and those of the decoder.
    pub(crate) fn next(&mut self, bytes_max: u64) -> Result<Next<'_>> {
        if self.limit != Some(self.wanted) {
            self.stream.set_read_timeout(self.wanted)?;
            self.limit = Some(self.wanted);
        }
        let bytes = match self.stream.next(bytes_max) {
            Ok(Some(EventBuf::Borrowed(bytes))) => EventBytes::Borrowed(bytes),
            Ok(Some(EventBuf::Owned(bytes))) => EventBytes::Owned(bytes),
            Ok(None) => return Ok(Next::Ended),
            Err(WireError::ReadTimeout { .. }) if self.wanted == LULL => {
                self.wanted = self.silence;
                return Ok(Next::Dry);
            }
            Err(error) => return Err(error.into()),
        };
        self.wanted = LULL;
        self.framing.take(bytes)
    }
}

/// Reads header and checksum; gives the bytes of the body. Before the first format
/// description nothing tells whether the server adds checksums to what it makes up.
fn frame(decoder: &mut Decoder, bytes: &[u8]) -> Result<(EventHeader, usize), BinlogError> {
    let early = decoder.format().is_none();
    match decoder.frame(bytes) {
        Err(BinlogError::Checksum { .. }) if early => {
            let mut plain = Decoder::new(ChecksumAlgorithm::None);
            plain.frame(bytes).map(|(header, body)| (header, body.len()))
        }
        framed => framed.map(|(header, body)| (header, body.len())),
    }
}
