//! Where the stream stands, and which of its events are in the file at all.

use std::sync::Arc;

use weir_binlog::event_type::EventType;
use weir_binlog::header::{EventHeader, FLAG_ARTIFICIAL};

/// How far behind the expected offset an event may claim to end and still count as an
/// overshoot of the sum, instead of a jump forward over events that were left out.
const OVERSHOOT_MAX: u32 = 64 << 20;

/// What an event of the stream is to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Made up: names the file whose events follow.
    NextFile,
    /// The format of a file, repeated because the stream begins in the file's middle.
    Format,
    /// Nothing to send at the moment.
    Heartbeat,
    /// Made up for this connection; says nothing about the file.
    MadeUp,
    /// An event of the file.
    InFile,
}

/// Tells by the header what an event is.
pub(crate) fn kind(header: &EventHeader) -> Kind {
    let number = header.type_number;
    let is = |event_type: EventType| number == event_type.number();
    let made_up = header.flags & FLAG_ARTIFICIAL != 0;
    if is(EventType::Heartbeat) || is(EventType::HeartbeatV2) {
        Kind::Heartbeat
    } else if is(EventType::Rotate) && (made_up || header.timestamp == 0 || header.end_log_pos == 0) {
        Kind::NextFile
    } else if is(EventType::FormatDescription) && (made_up || header.end_log_pos == 0) {
        Kind::Format
    } else if made_up {
        Kind::MadeUp
    } else {
        Kind::InFile
    }
}

/// File and offset of the next event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Arc<str>,
    pub(crate) offset: u64,
}

impl Place {
    pub(crate) fn new(file: &str, offset: u64) -> Self {
        Self {
            file: Arc::from(file),
            offset,
        }
    }

    /// Goes behind an event of the file; gives the offsets of the event and behind it.
    /// Servers leave events out, so that the sum of the lengths alone is not enough;
    /// `end_log_pos` has 32 bits, and MariaDB 11.8 leaves it 0 inside transactions.
    pub(crate) fn pass(&mut self, header: &EventHeader) -> (u64, u64) {
        let length = u64::from(header.event_length);
        let summed = self.offset.saturating_add(length);
        let end = match header.end_log_pos {
            0 => summed,
            told => widen(told, summed),
        };
        self.offset = end;
        (end.saturating_sub(length), end)
    }

    /// A heartbeat tells where the server stands; only forward in the same file counts.
    pub(crate) fn heartbeat(&mut self, file: &[u8], position: u64, is_exact: bool) {
        if file != self.file.as_bytes() || position == 0 {
            return;
        }
        let at = if is_exact {
            position
        } else {
            // Cut to 32 bits on purpose.
            widen(position as u32, self.offset)
        };
        self.offset = self.offset.max(at);
    }
}

/// The offset near or behind `expected` whose lower 32 bits are `told`.
fn widen(told: u32, expected: u64) -> u64 {
    // Cut to 32 bits on purpose.
    let ahead = told.wrapping_sub(expected as u32);
    let behind = ahead.wrapping_neg();
    if ahead != 0 && behind < OVERSHOOT_MAX && u64::from(behind) <= expected {
        expected - u64::from(behind)
    } else {
        expected.saturating_add(u64::from(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(event_type: EventType, length: u32, end_log_pos: u32) -> EventHeader {
        EventHeader {
            timestamp: 1,
            type_number: event_type.number(),
            server_id: 1,
            event_length: length,
            end_log_pos,
            flags: 0,
        }
    }

    #[test]
    fn the_place_is_summed_and_anchored() {
        let mut place = Place::new("b.000001", 4);
        assert_eq!(place.pass(&header(EventType::Gtid, 100, 104)), (4, 104));
        // MariaDB 11.8 inside a transaction.
        assert_eq!(place.pass(&header(EventType::TableMap, 50, 0)), (104, 154));
        // An event in between was left out.
        assert_eq!(place.pass(&header(EventType::Xid, 31, 300)), (269, 300));
    }

    #[test]
    fn offsets_go_on_behind_32_bits() {
        let mut place = Place::new("b.000001", u64::from(u32::MAX) - 10);
        assert_eq!(
            place.pass(&header(EventType::WriteRows, 111, 100)),
            ((1 << 32) - 11, (1 << 32) + 100)
        );
        assert_eq!(place.pass(&header(EventType::Xid, 31, 131)).1, (1 << 32) + 131);
        // More than 2 GiB were left out.
        assert_eq!(
            place.pass(&header(EventType::Gtid, 31, 3 << 30)).1,
            (1 << 32) + (3 << 30)
        );
        // A sum that went too far is taken back.
        let mut place = Place::new("b.000001", 1_000);
        assert_eq!(place.pass(&header(EventType::Xid, 31, 900)).1, 900);
    }

    #[test]
    fn a_heartbeat_moves_forward_in_its_file_only() {
        let mut place = Place::new("b.000001", (1 << 32) + 500);
        place.heartbeat(b"b.000002", 9_000, false);
        place.heartbeat(b"b.000001", 0, false);
        place.heartbeat(b"b.000001", 400, true);
        assert_eq!(place.offset, (1 << 32) + 500);
        place.heartbeat(b"b.000001", 700, false);
        assert_eq!(place.offset, (1 << 32) + 700);
        place.heartbeat(b"b.000001", 5 << 32, true);
        assert_eq!(place.offset, 5 << 32);
    }

    #[test]
    fn made_up_events_are_not_of_the_file() {
        let rotate = header(EventType::Rotate, 40, 400);
        assert_eq!(kind(&rotate), Kind::InFile);
        assert_eq!(
            kind(&EventHeader {
                timestamp: 0,
                ..rotate
            }),
            Kind::NextFile
        );
        let marked = EventHeader {
            flags: FLAG_ARTIFICIAL,
            ..rotate
        };
        assert_eq!(kind(&marked), Kind::NextFile);
        assert_eq!(kind(&header(EventType::FormatDescription, 120, 0)), Kind::Format);
        assert_eq!(
            kind(&header(EventType::FormatDescription, 120, 124)),
            Kind::InFile
        );
        assert_eq!(kind(&header(EventType::HeartbeatV2, 40, 0)), Kind::Heartbeat);
        let list = EventHeader {
            flags: FLAG_ARTIFICIAL,
            ..header(EventType::GtidList, 40, 0)
        };
        assert_eq!(kind(&list), Kind::MadeUp);
    }
}
