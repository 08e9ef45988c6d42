//! The 19 bytes before every event (binlog format version 4; MySQL internals manual,
//! "Binlog Event Header").

use crate::cursor::Cursor;
use crate::error::BinlogError;
use crate::event_type::EventType;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 19;

/// The file was not closed cleanly, or is still being written (FORMAT_DESCRIPTION only).
pub const FLAG_BINLOG_IN_USE: u16 = 0x0001;
/// Statement depends on the thread (temporary tables).
pub const FLAG_THREAD_SPECIFIC: u16 = 0x0004;
/// Made up by the server for this connection, not in the file.
pub const FLAG_ARTIFICIAL: u16 = 0x0020;
/// Written to a relay log by a replica.
pub const FLAG_RELAY_LOG: u16 = 0x0040;
/// A reader that does not know the type may skip the event.
pub const FLAG_IGNORABLE: u16 = 0x0080;

/// Header of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// Seconds since the Unix epoch when the statement began.
    pub timestamp: u32,
    /// Number of the event type; see `event_type`.
    pub type_number: u8,
    /// Server id of the origin.
    pub server_id: u32,
    /// Bytes of the event, header and checksum included.
    pub event_length: u32,
    /// Offset behind the event modulo 2³²; 0 where the server did not know.
    pub end_log_pos: u32,
    /// `FLAG_*`.
    pub flags: u16,
}

impl EventHeader {
    /// Reads the header.
    ///
    /// # Errors
    /// `Malformed` if there are fewer than 19 bytes or the length is below 19.
    pub fn parse(bytes: &[u8]) -> Result<Self, BinlogError> {
        let header = Self::read(bytes).ok_or(BinlogError::Malformed { what: "event header" })?;
        if (header.event_length as usize) < HEADER_BYTES {
            return Err(BinlogError::Malformed {
                what: "event length below the header's",
            });
        }
        Ok(header)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut c = Cursor::new(bytes);
        Some(Self {
            timestamp: c.u32()?,
            type_number: c.u8()?,
            server_id: c.u32()?,
            event_length: c.u32()?,
            end_log_pos: c.u32()?,
            flags: c.u16()?,
        })
    }

    /// The type; `None` for a number that is not known but may be ignored.
    ///
    /// # Errors
    /// `UnknownEvent` for a number that is not known and must not be ignored.
    pub fn event_type(&self) -> Result<Option<EventType>, BinlogError> {
        match EventType::from_number(self.type_number) {
            Some(event_type) => Ok(Some(event_type)),
            None if self.flags & FLAG_IGNORABLE != 0 => Ok(None),
            None => Err(BinlogError::UnknownEvent {
                number: self.type_number,
            }),
        }
    }

    /// Name of the type for messages.
    pub fn type_name(&self) -> &'static str {
        EventType::from_number(self.type_number).map_or("unknown", EventType::name)
    }
}
