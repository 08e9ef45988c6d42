//! From the bytes of one event to header and `Event`: checksum, then body. The same for
//! files and for the replication protocol.

use crate::error::BinlogError;
use crate::event::Event;
use crate::event_type::EventType;
use crate::format::{CHECKSUM_BYTES, ChecksumAlgorithm, FormatDescription};
use crate::header::{EventHeader, FLAG_BINLOG_IN_USE, HEADER_BYTES};

/// Offset of the flags inside the header.
const FLAGS_AT: usize = 17;

/// What the events seen so far say about the ones that follow.
#[derive(Clone, Debug)]
pub struct Decoder {
    format: Option<FormatDescription>,
    /// Checksum before the first format description (a made-up ROTATE comes first on the
    /// wire).
    initial_checksum: ChecksumAlgorithm,
    verify: bool,
}

impl Decoder {
    /// A decoder that has seen nothing. `initial_checksum` is what the replica agreed
    /// on; it holds until the first format description.
    pub const fn new(initial_checksum: ChecksumAlgorithm) -> Self {
        Self {
            format: None,
            initial_checksum,
            verify: true,
        }
    }

    /// Leaves checksums unchecked, for bytes that were checked before.
    pub const fn without_verification(mut self) -> Self {
        self.verify = false;
        self
    }

    /// The last format description.
    pub const fn format(&self) -> Option<&FormatDescription> {
        self.format.as_ref()
    }

    /// Reads header and checksum of one whole event, takes in a format description, and
    /// gives the body: behind the header, without checksum.
    ///
    /// # Errors
    /// `Malformed`, `Checksum`, and those of `FormatDescription::parse`.
    pub fn frame<'a>(&mut self, bytes: &'a [u8]) -> Result<(EventHeader, &'a [u8]), BinlogError> {
        let header = EventHeader::parse(bytes)?;
        if header.event_length as usize != bytes.len() {
            return Err(BinlogError::Malformed { what: "event length" });
        }
        let behind = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let is_format = header.type_number == EventType::FormatDescription.number();
        let tail = if is_format {
            let format = FormatDescription::parse(behind)?;
            let tail = format.checksum_bytes(true);
            self.check(&header, bytes, tail)?;
            self.format = Some(format);
            tail
        } else {
            let tail = match &self.format {
                Some(format) => format.checksum_bytes(false),
                None if self.initial_checksum == ChecksumAlgorithm::Crc32 => CHECKSUM_BYTES,
                None => 0,
            };
            self.check(&header, bytes, tail)?;
            tail
        };
        let body = behind
            .len()
            .checked_sub(tail)
            .and_then(|end| behind.get(..end))
            .ok_or(BinlogError::Malformed {
                what: "event without room for its checksum",
            })?;
        Ok((header, body))
    }

    /// Reads one whole event.
    ///
    /// # Errors
    /// Those of `frame` and `decode`.
    pub fn event<'a>(&mut self, bytes: &'a [u8]) -> Result<(EventHeader, Event<'a>), BinlogError> {
        let (header, body) = self.frame(bytes)?;
        let event = self.decode(&header, body)?;
        Ok((header, event))
    }

    /// Reads the body of an event that `frame` or a payload reader gave.
    ///
    /// # Errors
    /// `MalformedEvent`, `UnknownEvent`, `UnsupportedFormat`; `Malformed` before the
    /// first format description (a ROTATE may come before it).
    pub fn decode<'a>(&self, header: &EventHeader, body: &'a [u8]) -> Result<Event<'a>, BinlogError> {
        Event::decode(header, body, self.format.as_ref())
    }

    fn check(&self, header: &EventHeader, bytes: &[u8], tail: usize) -> Result<(), BinlogError> {
        if tail == 0 || !self.verify {
            return Ok(());
        }
        let Some((covered, stored)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
            return Err(BinlogError::Malformed { what: "checksum" });
        };
        let stored = u32::from_le_bytes(*stored);
        let computed = checksum(header, covered);
        if stored == computed {
            Ok(())
        } else {
            Err(BinlogError::Checksum {
                event: header.type_name(),
                stored,
                computed,
            })
        }
    }
}

/// CRC-32 of an event. The server computes the format description's before it sets the
/// in-use flag, so that flag counts as unset.
fn checksum(header: &EventHeader, covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let in_use =
        header.type_number == EventType::FormatDescription.number() && header.flags & FLAG_BINLOG_IN_USE != 0;
    match covered.split_at_checked(FLAGS_AT) {
        Some((before, flags_on)) if in_use => {
            let [low, high] = (header.flags & !FLAG_BINLOG_IN_USE).to_le_bytes();
            hasher.update(before);
            hasher.update(&[low, high]);
            hasher.update(flags_on.get(2..).unwrap_or_default());
        }
        _ => hasher.update(covered),
    }
    hasher.finalize()
}
