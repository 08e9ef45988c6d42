//! The bytes of one event, borrowed from a reader's buffer or owned if they are many.

use std::ops::Deref;

use crate::error::BinlogError;
use crate::event::Event;
use crate::format::FormatDescription;
use crate::header::{EventHeader, HEADER_BYTES};

/// Bytes of an event.
#[derive(Debug)]
pub enum EventBytes<'a> {
    /// In the reader's buffer, which the next event overwrites.
    Borrowed(&'a [u8]),
    /// In an allocation of their own, of exactly their size: an event that is larger
    /// than the reader's buffer is read straight into it and need not be copied again.
    Owned(Vec<u8>),
}

impl Deref for EventBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl EventBytes<'_> {
    /// The bytes by value; copies only what is borrowed.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Borrowed(bytes) => bytes.to_vec(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// One whole event whose header was read and whose checksum was checked.
#[derive(Debug)]
pub struct RawEvent<'a> {
    /// Header.
    pub header: EventHeader,
    /// Header, body and checksum.
    pub bytes: EventBytes<'a>,
    /// Bytes of checksum at the end.
    pub checksum_bytes: usize,
}

impl RawEvent<'_> {
    /// Behind the header, without checksum.
    pub fn body(&self) -> &[u8] {
        let end = self.bytes.len().saturating_sub(self.checksum_bytes);
        self.bytes.get(HEADER_BYTES..end).unwrap_or_default()
    }

    /// Reads the body under the format description of the file or stream; `format` is
    /// `None` before the first one.
    ///
    /// # Errors
    /// Those of `Event::decode`.
    pub fn decode(&self, format: Option<&FormatDescription>) -> Result<Event<'_>, BinlogError> {
        Event::decode(&self.header, self.body(), format)
    }
}
