//! Looks for a place in the stream of events: an offset where a transaction begins, or
//! the first transaction that was committed at a time or later. Pure.

use weir_binlog::event::Event;
use weir_binlog::header::EventHeader;
use weir_types::{Gtid, GtidSet};

use super::place::Place;
use crate::error::{Result, SourceError};

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This offset of the file.
    Offset(u64),
    /// The first transaction committed at this time or later, milliseconds since the
    /// Unix epoch.
    Time(u64),
}

/// A place and the transactions before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) gtids: GtidSet,
}

/// The search. Fed with the events of a file from its beginning.
#[derive(Debug)]
pub(crate) struct Scan {
    wanted: Wanted,
    gtids: GtidSet,
    /// An event at the wanted offset was met, before which a transaction may begin.
    hit: bool,
}

impl Scan {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            gtids: GtidSet::default(),
            hit: false,
        }
    }

    fn found(&self, file: &str, offset: u64) -> Found {
        Found {
            place: Place::new(file, offset),
            gtids: self.gtids.clone(),
        }
    }

    /// Takes in an event of the file that lies at `start`.
    ///
    /// # Errors
    /// `BadPosition`: the offset lies inside of an event or of a transaction.
    pub(crate) fn event(
        &mut self,
        file: &str,
        start: u64,
        header: &EventHeader,
        event: &Event<'_>,
    ) -> Result<Option<Found>> {
        let began = began(header, event);
        match self.wanted {
            Wanted::Offset(offset) => {
                let is_head = is_head(event);
                let is_border = began.is_some() || is_head || ends_file(event);
                self.hit |= start == offset && is_border;
                // The list of what was before stands in the head, behind the offset 4.
                if start >= offset && !is_head {
                    return self.at_end(file, start, true).map(Some);
                }
            }
            Wanted::Time(time_ms) => {
                if began
                    .as_ref()
                    .is_some_and(|(_, committed_ms)| *committed_ms >= time_ms)
                {
                    return Ok(Some(self.found(file, start)));
                }
            }
        }
        match (event, began) {
            (Event::PreviousGtids(set) | Event::GtidList(set), _) => self.gtids.union(set),
            (_, Some((Some(gtid), _))) => self.gtids.insert(&gtid),
            _ => {}
        }
        Ok(None)
    }

    /// There is nothing more: the binlog ends at `end`. `behind`: an event behind the
    /// wanted place was met, so that `end` itself is no candidate.
    ///
    /// # Errors
    /// `BadPosition`.
    pub(crate) fn at_end(&self, file: &str, end: u64, behind: bool) -> Result<Found> {
        match self.wanted {
            Wanted::Offset(offset) if self.hit || (offset == end && !behind) => Ok(self.found(file, offset)),
            Wanted::Offset(offset) => Err(SourceError::BadPosition {
                place: format!("{file}:{offset}"),
            }),
            Wanted::Time(_) => Ok(self.found(file, end)),
        }
    }

    /// Whether the search goes on in the next file.
    pub(crate) const fn crosses_files(&self) -> bool {
        matches!(self.wanted, Wanted::Time(_))
    }
}

const fn is_head(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::FormatDescription(_) | Event::PreviousGtids(_) | Event::GtidList(_) | Event::StartEncryption
    )
}

const fn ends_file(event: &Event<'_>) -> bool {
    matches!(event, Event::Rotate(_) | Event::Stop | Event::BinlogCheckpoint(_))
}

/// Identifier (none for anonymous transactions) and commit time of an event that begins
/// a transaction.
fn began(header: &EventHeader, event: &Event<'_>) -> Option<(Option<Gtid>, u64)> {
    let header_ms = u64::from(header.timestamp) * 1000;
    match event {
        Event::Gtid(gtid) | Event::AnonymousGtid(gtid) => {
            let committed_ms = match gtid.original_commit_micros {
                0 => header_ms,
                micros => micros / 1000,
            };
            Some((gtid.gtid(), committed_ms))
        }
        Event::MariadbGtid(gtid) => Some((Some(gtid.gtid()), header_ms)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use weir_binlog::format::FormatDescription;
    use weir_binlog::gtid::MariadbGtid;
    use weir_types::Flavor;

    use super::*;

    fn header(seconds: u32) -> EventHeader {
        EventHeader {
            timestamp: seconds,
            type_number: 162,
            server_id: 1,
            event_length: 50,
            end_log_pos: 0,
            flags: 0,
        }
    }

    fn gtid(sequence: u64) -> Event<'static> {
        Event::MariadbGtid(Box::new(MariadbGtid {
            domain: 0,
            server: 1,
            sequence,
            flags: 0,
            flags2: 0,
            flags_extra: 0,
            commit_id: None,
            xid: None,
            start_alter_sequence: None,
        }))
    }

    fn format() -> Event<'static> {
        Event::FormatDescription(Box::new(FormatDescription {
            server_version: String::new(),
            flavor: Flavor::Mariadb,
            created: 0,
            post_header_lengths: Vec::new(),
            checksum: weir_binlog::ChecksumAlgorithm::None,
            own_checksum: false,
        }))
    }

    /// Head 4–104, list 104–150, transactions at 150 (1 s) and 300 (2 s), end 400.
    fn search(wanted: Wanted) -> Result<Found> {
        let mut scan = Scan::new(wanted);
        let list = GtidSet::parse("0-1-7").expect("a set");
        let events = [
            (4, 0, format()),
            (104, 0, Event::GtidList(list)),
            (150, 1, gtid(8)),
            (200, 1, Event::Xid(1)),
            (300, 2, gtid(9)),
            (350, 2, Event::Xid(2)),
        ];
        for (start, seconds, event) in &events {
            if let Some(found) = scan.event("b.1", *start, &header(*seconds), event)? {
                return Ok(found);
            }
        }
        scan.at_end("b.1", 400, false)
    }

    #[test]
    fn an_offset_is_found_with_what_was_before() {
        for (offset, gtids) in [
            (4, "0-1-7"),
            (104, "0-1-7"),
            (150, "0-1-7"),
            (300, "0-1-8"),
            (400, "0-1-9"),
        ] {
            let found = search(Wanted::Offset(offset)).expect("found");
            assert_eq!(
                (found.place.offset, found.gtids.to_string().as_str()),
                (offset, gtids)
            );
        }
        for offset in [5, 160, 200, 350, 399, 401] {
            assert!(search(Wanted::Offset(offset)).is_err(), "{offset}");
        }
    }

    #[test]
    fn a_time_is_found_before_its_transaction() {
        for (time_ms, offset, gtids) in [
            (0, 150, "0-1-7"),
            (1_000, 150, "0-1-7"),
            (1_001, 300, "0-1-8"),
            (9_000, 400, "0-1-9"),
        ] {
            let found = search(Wanted::Time(time_ms)).expect("found");
            assert_eq!(
                (found.place.offset, found.gtids.to_string().as_str()),
                (offset, gtids)
            );
        }
    }
}
