//! Compressed events: MySQL's transaction payloads, inflated as a stream, and MariaDB's
//! compressed queries and rows.

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};

use crate::cursor::Cursor;
use crate::error::BinlogError;
use crate::event::Rows;
use crate::header::{EventHeader, HEADER_BYTES};
use crate::query::Query;
use crate::raw::{EventBytes, RawEvent};
use crate::rows::skip_preamble;

/// Largest zstd window, as a power of two: what the server's highest compression level
/// (22) uses, and the default bound of zstd's own decoder.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Inner events above this many bytes get an allocation of their own.
const LARGE_EVENT_BYTES: usize = 1 << 20;
/// Bytes of output that one byte of deflate input makes at most (zlib's manual).
const DEFLATE_RATIO_MAX: u64 = 1032;

/// How a transaction payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadCompression {
    /// zstd.
    Zstd,
    /// Not at all.
    None,
}

/// TRANSACTION_PAYLOAD_EVENT: all events of a transaction behind its GTID event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionPayload<'a> {
    /// Number of the method as it is in the event; `compression` names it.
    pub method: u64,
    /// Bytes of the inner events; `None` if the event does not say.
    pub uncompressed_bytes: Option<u64>,
    /// Inner events, compressed.
    pub payload: &'a [u8],
}

impl TransactionPayload<'_> {
    /// How it is compressed.
    ///
    /// # Errors
    /// `UnknownCompression`.
    pub const fn compression(&self) -> Result<PayloadCompression, BinlogError> {
        match self.method {
            0 => Ok(PayloadCompression::Zstd),
            255 => Ok(PayloadCompression::None),
            number => Err(BinlogError::UnknownCompression { number }),
        }
    }
}

/// Fields as type, length, value; type 0 ends them and has neither length nor value.
pub(crate) fn parse_transaction_payload(body: &[u8]) -> Option<TransactionPayload<'_>> {
    let mut c = Cursor::new(body);
    let (mut size, mut method, mut uncompressed_bytes) = (None, None, None);
    loop {
        let field = c.lenenc()?;
        if field == 0 {
            break;
        }
        let mut value = Cursor::new(c.lenenc_bytes()?);
        match field {
            1 => size = Some(value.lenenc()?),
            2 => method = Some(value.lenenc()?),
            3 => uncompressed_bytes = Some(value.lenenc()?),
            // Later releases may add fields; the length says where they end.
            _ => {}
        }
    }
    let payload = c.take_rest();
    (size? == payload.len() as u64).then_some(TransactionPayload {
        method: method?,
        uncompressed_bytes,
        payload,
    })
}

enum Inner<'a> {
    Zstd(Box<zstd::stream::read::Decoder<'static, &'a [u8]>>),
    Plain(&'a [u8]),
}

/// Inner events of a transaction payload, one after another, in bounded memory: the zstd
/// window, one buffer, and at most one large event.
pub struct PayloadReader<'a> {
    inner: Inner<'a>,
    /// Bytes of inner events that are still to come, if known.
    left: Option<u64>,
    max_event_bytes: u64,
    buffer: Vec<u8>,
    ended: bool,
}

impl<'a> PayloadReader<'a> {
    /// Starts reading. Events above `max_event_bytes` are an error.
    ///
    /// # Errors
    /// `UnknownCompression`; `Decompress` if the decoder cannot be made.
    pub fn new(payload: &TransactionPayload<'a>, max_event_bytes: u64) -> Result<Self, BinlogError> {
        let inner = match payload.compression()? {
            PayloadCompression::None => Inner::Plain(payload.payload),
            PayloadCompression::Zstd => {
                let fail = |_| BinlogError::Decompress { what: "zstd set-up" };
                let mut decoder = zstd::stream::read::Decoder::with_buffer(payload.payload).map_err(fail)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(fail)?;
                Inner::Zstd(Box::new(decoder))
            }
        };
        Ok(Self {
            inner,
            left: payload.uncompressed_bytes,
            max_event_bytes,
            buffer: Vec::new(),
            ended: false,
        })
    }

    /// The next inner event; `None` behind the last one. Inner events carry no checksum.
    ///
    /// # Errors
    /// `Decompress` for data that end early or go on behind the announced end;
    /// `EventTooLarge`; `Malformed`. After an error there is no next event.
    #[allow(clippy::should_implement_trait)] // lends from its buffer
    pub fn next(&mut self) -> Result<Option<RawEvent<'_>>, BinlogError> {
        if self.ended {
            return Ok(None);
        }
        // Reset below where an event was read.
        self.ended = true;
        let Some(header_bytes) = self.read_header()? else {
            return Ok(None);
        };
        let header = EventHeader::parse(&header_bytes)?;
        let length = u64::from(header.event_length);
        if length > self.max_event_bytes {
            return Err(BinlogError::EventTooLarge {
                bytes: length,
                limit: self.max_event_bytes,
            });
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(length).ok_or(BinlogError::Decompress {
                what: "transaction payload ends inside an event",
            })?;
        }
        let bytes = self.read_event(&header_bytes, header.event_length as usize)?;
        Ok(Some(RawEvent {
            header,
            bytes,
            checksum_bytes: 0,
        }))
    }

    /// The next header; `None` at a proper end.
    fn read_header(&mut self) -> Result<Option<[u8; HEADER_BYTES]>, BinlogError> {
        let mut header = [0_u8; HEADER_BYTES];
        let mut have = 0;
        while let Some(room) = header.get_mut(have..).filter(|room| !room.is_empty()) {
            let read = match &mut self.inner {
                Inner::Plain(rest) => rest.read(room),
                Inner::Zstd(decoder) => decoder.read(room),
            };
            match read {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(_) => return Err(BinlogError::Decompress { what: "zstd data" }),
            }
        }
        match (have, self.left) {
            (0, None | Some(0)) => Ok(None),
            (HEADER_BYTES, Some(0)) | (1.., Some(0)) => Err(BinlogError::Decompress {
                what: "transaction payload goes on behind its end",
            }),
            (HEADER_BYTES, _) => Ok(Some(header)),
            _ => Err(BinlogError::Decompress {
                what: "transaction payload ends early",
            }),
        }
    }

    fn read_event(&mut self, header: &[u8], length: usize) -> Result<EventBytes<'_>, BinlogError> {
        let early = BinlogError::Decompress {
            what: "transaction payload ends early",
        };
        let large = length > LARGE_EVENT_BYTES;
        let mut own = Vec::new();
        let target = if large { &mut own } else { &mut self.buffer };
        target.clear();
        target
            .try_reserve_exact(length)
            .map_err(|_| BinlogError::OutOfMemory { bytes: length })?;
        target.extend_from_slice(header);
        let body = length.saturating_sub(HEADER_BYTES);
        match &mut self.inner {
            Inner::Plain(rest) => {
                let (bytes, behind) = rest.split_at_checked(body).ok_or(early)?;
                target.extend_from_slice(bytes);
                *rest = behind;
            }
            Inner::Zstd(decoder) => {
                let read = decoder
                    .take(body as u64)
                    .read_to_end(target)
                    .map_err(|_| BinlogError::Decompress { what: "zstd data" })?;
                if read != body {
                    return Err(early);
                }
            }
        }
        self.ended = false;
        Ok(if large {
            EventBytes::Owned(own)
        } else {
            EventBytes::Borrowed(&self.buffer)
        })
    }
}

/// Appends what MariaDB's record compression holds: a byte with method and size of the
/// length, the length big-endian, zlib data.
fn inflate_record(record: &[u8], max_bytes: u64, out: &mut Vec<u8>) -> Result<(), BinlogError> {
    let short = || BinlogError::Decompress {
        what: "compressed record ends early",
    };
    let mut c = Cursor::new(record);
    let head = c.u8().ok_or_else(short)?;
    if head & 0x80 == 0 {
        return Err(BinlogError::Decompress {
            what: "compressed record without its mark",
        });
    }
    let method = (head & 0x70) >> 4;
    if method != 0 {
        return Err(BinlogError::UnknownCompression {
            number: method.into(),
        });
    }
    let width = usize::from(head & 0x07);
    if !(1..=4).contains(&width) {
        return Err(BinlogError::Decompress {
            what: "compressed record with a broken length",
        });
    }
    let length = c.uint_be(width).ok_or_else(short)?;
    if length > max_bytes {
        return Err(BinlogError::EventTooLarge {
            bytes: length,
            limit: max_bytes,
        });
    }
    if length > (c.len() as u64 + 1).saturating_mul(DEFLATE_RATIO_MAX) {
        return Err(BinlogError::Decompress {
            what: "length that so few bytes cannot make",
        });
    }
    // One byte more than announced, to see data that go on.
    let length = usize::try_from(length).map_err(|_| short())?;
    let room = length.saturating_add(1);
    out.try_reserve_exact(room)
        .map_err(|_| BinlogError::OutOfMemory { bytes: room })?;
    let before = out.len();
    let mut zlib = Decompress::new(true);
    let status = zlib
        .decompress_vec(c.rest(), out, FlushDecompress::Finish)
        .map_err(|_| BinlogError::Decompress { what: "zlib data" })?;
    let whole = status == Status::StreamEnd && out.len() - before == length;
    if whole && zlib.total_in() == c.len() as u64 {
        Ok(())
    } else {
        Err(BinlogError::Decompress {
            what: "zlib data of another length than announced",
        })
    }
}

/// Inflates the text of MariaDB's QUERY_COMPRESSED_EVENT into `out`, which is cleared,
/// and gives the query with that text.
///
/// # Errors
/// `Decompress`, `UnknownCompression`, `EventTooLarge` (above `max_bytes`).
pub fn inflate_query<'b>(
    query: &Query<'b>,
    max_bytes: u64,
    out: &'b mut Vec<u8>,
) -> Result<Query<'b>, BinlogError> {
    out.clear();
    inflate_record(query.sql, max_bytes, out)?;
    let out: &'b [u8] = out;
    Ok(Query { sql: out, ..*query })
}

/// Inflates the rows of one of MariaDB's compressed row events into `out`, which is
/// cleared, and gives the event as if it had not been compressed. Column count and
/// bitmaps are not compressed.
///
/// # Errors
/// `Decompress`, `UnknownCompression`, `EventTooLarge` (above `max_bytes`).
pub fn inflate_rows<'b>(
    rows: &Rows<'_>,
    max_bytes: u64,
    out: &'b mut Vec<u8>,
) -> Result<Rows<'b>, BinlogError> {
    out.clear();
    let preamble = skip_preamble(rows.kind, rows.body).ok_or(BinlogError::Malformed {
        what: "bitmaps of a compressed row event",
    })?;
    let (head, record) = rows.body.split_at_checked(preamble).unwrap_or((rows.body, &[]));
    out.extend_from_slice(head);
    inflate_record(record, max_bytes, out)?;
    Ok(Rows {
        kind: rows.kind,
        table_id: rows.table_id,
        flags: rows.flags,
        partial_json: rows.partial_json,
        body: out,
    })
}
