//! Whether the end that was asked for is reached. Pure.

use weir_types::{GtidSet, SourceIdentity};

use super::place::Place;
use crate::files::{StopAt, file_number};

/// The end of a server's binlog at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndOfLog {
    pub(crate) identity: SourceIdentity,
    pub(crate) place: Place,
    pub(crate) executed: GtidSet,
}

/// Where the reading is, between two events.
pub(crate) struct Reading<'a> {
    pub(crate) identity: &'a SourceIdentity,
    pub(crate) file: &'a str,
    /// Behind the last whole transaction.
    pub(crate) offset: u64,
    pub(crate) seen: &'a GtidSet,
    pub(crate) in_transaction: bool,
    /// Commit time of the open transaction, milliseconds since the Unix epoch.
    pub(crate) open_ms: Option<u64>,
    /// The server has nothing more to send, and this is its time, milliseconds since the
    /// Unix epoch.
    pub(crate) idle_ms: Option<u64>,
}

/// Whether nothing more is to be read. An open transaction then lies behind the end.
pub(crate) fn is_reached(stop: &StopAt, caught_up: Option<&EndOfLog>, reading: &Reading<'_>) -> bool {
    let between = !reading.in_transaction;
    match stop {
        StopAt::CaughtUp => caught_up.is_some_and(|end| between && is_caught_up(end, reading)),
        StopAt::Gtids(set) => between && reading.seen.contains_all(set),
        StopAt::File { name, offset } => between && is_behind(reading.file, reading.offset, name, *offset),
        StopAt::Time(time_ms) => {
            let beyond = |at: Option<u64>| at.is_some_and(|at| at > *time_ms);
            beyond(reading.open_ms) || (between && beyond(reading.idle_ms))
        }
    }
}

fn is_caught_up(end: &EndOfLog, reading: &Reading<'_>) -> bool {
    let by_set = !end.executed.is_empty() && reading.seen.contains_all(&end.executed);
    let same = end.identity == *reading.identity;
    by_set || (same && is_behind(reading.file, reading.offset, &end.place.file, end.place.offset))
}

/// Whether a place is at or behind another one of the same server.
fn is_behind(file: &str, offset: u64, end_file: &str, end_offset: u64) -> bool {
    if file == end_file {
        return offset >= end_offset;
    }
    match (file_number(file), file_number(end_file)) {
        (Some(at), Some(end)) => at > end,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading<'a>(file: &'a str, offset: u64, seen: &'a GtidSet) -> Reading<'a> {
        Reading {
            identity: &SourceIdentity::Digest(1),
            file,
            offset,
            seen,
            in_transaction: false,
            open_ms: None,
            idle_ms: None,
        }
    }

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(text).expect("a set")
    }

    #[test]
    fn caught_up_is_a_place_or_a_set() {
        let end = EndOfLog {
            identity: SourceIdentity::Digest(1),
            place: Place::new("b.999999", 500),
            executed: set("0-1-9"),
        };
        let reached = |r: &Reading<'_>| is_reached(&StopAt::CaughtUp, Some(&end), r);
        let (before, all) = (set("0-1-8"), set("0-1-9"));
        assert!(!reached(&reading("b.999999", 499, &before)));
        assert!(reached(&reading("b.999999", 500, &before)));
        assert!(reached(&reading("b.1000000", 4, &before)));
        assert!(reached(&reading("b.000001", 4, &all)));
        let open = Reading {
            in_transaction: true,
            ..reading("b.999999", 500, &all)
        };
        assert!(!reached(&open));
        let elsewhere = Reading {
            identity: &SourceIdentity::Digest(2),
            ..reading("b.999999", 500, &before)
        };
        assert!(!reached(&elsewhere));
    }

    #[test]
    fn a_time_is_passed_by_a_transaction_or_an_idle_server() {
        let seen = GtidSet::default();
        let stop = StopAt::Time(100);
        let at = |open_ms, idle_ms, in_transaction| {
            let reading = Reading {
                open_ms,
                idle_ms,
                in_transaction,
                ..reading("b.1", 4, &seen)
            };
            is_reached(&stop, None, &reading)
        };
        assert!(!at(Some(100), None, true));
        assert!(at(Some(101), None, true));
        assert!(at(None, Some(101), false));
        assert!(!at(None, Some(100), false));
        assert!(!at(Some(50), Some(101), true));
    }

    #[test]
    fn sets_and_files_end_between_transactions() {
        let seen = set("0-1-9");
        let reading = reading("b.000002", 4, &seen);
        assert!(is_reached(&StopAt::Gtids(set("0-1-9")), None, &reading));
        assert!(!is_reached(&StopAt::Gtids(set("0-1-10")), None, &reading));
        let file = |name: &str, offset| StopAt::File {
            name: name.to_owned(),
            offset,
        };
        assert!(is_reached(&file("b.000001", 900), None, &reading));
        assert!(!is_reached(&file("b.000002", 5), None, &reading));
    }
}
