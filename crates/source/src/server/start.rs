//! Where a new store begins. The place is found before anything is stored, so that the
//! store knows the whole GTID set from its beginning.

use std::time::{Duration, Instant};

use weir_types::{Classified, ErrorClass, Flavor, GtidSet, SourcePosition};

use super::backoff::{Backoff, patience};
use super::facts::Facts;
use super::interrupt::Interrupt;
use super::place::Place;
use super::plan::{Dump, check_start};
use super::refusal::{Refusal, sort};
use super::scan::{Found, Scan, Wanted};
use super::session::{FIRST_EVENT_OFFSET, Session};
use super::stream::{EventStream, Next};
use super::{ServerOptions, StartAt};
use crate::error::{Result, SourceError};

/// What tells the id of a look at the binlog from the run's.
const PROBE_ID_BIT: u32 = 1 << 31;

/// Finds the configured start. Transient failures are tried again until the endpoint's
/// `connect_timeout` has passed.
///
/// # Errors
/// The connection's; a start that is purged, not known, or inside a transaction; a
/// server whose settings do not allow replication.
pub fn resolve_start(options: &ServerOptions) -> Result<SourcePosition> {
    patiently(options.endpoint.connect_timeout, &Interrupt::default(), || {
        find(options)
    })
}

/// Repeats an attempt while it fails for a transient reason, for so long.
pub(crate) fn patiently<T>(
    limit: Duration,
    interrupt: &Interrupt,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let begun = Instant::now();
    let mut backoff = Backoff::new(u64::from(std::process::id()));
    loop {
        match attempt() {
            Err(error) if error.class() == ErrorClass::Transient => {
                let pause = backoff.next();
                if interrupt.is_stopped() || begun.elapsed() + pause > limit {
                    return Err(error);
                }
                tracing::info!(code = error.code(), %error, "no connection to the source yet");
                interrupt.sleep(pause);
            }
            other => return other,
        }
    }
}

fn find(options: &ServerOptions) -> Result<SourcePosition> {
    let mut session = Session::open(&options.endpoint)?;
    let facts = session.facts()?;
    facts.check(options.server_id)?;
    let found = match &options.start {
        StartAt::Latest => Found {
            place: facts.end.clone(),
            gtids: facts.executed.clone(),
        },
        StartAt::Earliest => {
            let files = session.files()?;
            let first = files.first().cloned().unwrap_or_default();
            let found = search(options, &first, Wanted::Offset(FIRST_EVENT_OFFSET))?;
            with_purged(found, &facts)
        }
        StartAt::Gtids(set) => {
            check_start(set, &facts)?;
            Found {
                place: first_place(options, session, &facts, &Dump::Gtids(set.clone()), set)?,
                gtids: set.clone(),
            }
        }
        StartAt::File { name, offset } => {
            if !session.files()?.contains(name) {
                return Err(SourceError::Purged { file: name.clone() });
            }
            with_purged(search(options, name, Wanted::Offset(*offset))?, &facts)
        }
        StartAt::Time(time_ms) => {
            let files = session.files()?;
            let first = file_of_time(options, &files, *time_ms)?;
            with_purged(search(options, &first, Wanted::Time(*time_ms))?, &facts)
        }
    };
    Ok(SourcePosition {
        identity: facts.identity,
        file: found.place.file,
        offset: found.place.offset,
        gtids: found.gtids,
    })
}

/// What is purged may hold more than the files' own lists: `SET GLOBAL gtid_purged` adds
/// what a copy of the data brought along. A dump by GTIDs must name it.
fn with_purged(mut found: Found, facts: &Facts) -> Found {
    if facts.flavor == Flavor::Mysql {
        found.gtids.union(&facts.purged);
    }
    found
}

/// The place at which the server begins to send what is asked for; it says so first.
///
/// # Errors
/// The server's reason why it does not send it.
pub(crate) fn first_place(
    options: &ServerOptions,
    session: Session,
    facts: &Facts,
    dump: &Dump,
    seen: &GtidSet,
) -> Result<Place> {
    let from = match dump {
        Dump::Gtids(_) => Place::new("", FIRST_EVENT_OFFSET),
        Dump::File(place) => place.clone(),
    };
    let mut stream = session.dump(&probing(options), facts, dump, patience(options.silence(), 0))?;
    let told = |error| explain(error, &from, seen);
    loop {
        match stream.next(options.event_bytes_max).map_err(told)? {
            Next::File(place) => return Ok(place),
            Next::Ended => {
                return Err(SourceError::Answer {
                    statement: "COM_BINLOG_DUMP",
                });
            }
            Next::Format { .. } | Next::Event { .. } | Next::Heartbeat | Next::Nothing | Next::Dry => {}
        }
    }
}

/// A look at the binlog uses another id than the run, whose connection the server would
/// end otherwise.
fn probing(options: &ServerOptions) -> ServerOptions {
    ServerOptions {
        server_id: (options.server_id ^ PROBE_ID_BIT).max(1),
        ..options.clone()
    }
}

/// Turns the server's reason to end a dump into ours.
pub(crate) fn explain(error: SourceError, place: &Place, seen: &GtidSet) -> SourceError {
    match &error {
        SourceError::Wire(weir_wire::WireError::DumpRefused { message, .. }) => {
            match sort(message, place, seen) {
                Refusal::Definite(error) => error,
                Refusal::Kicked => error,
            }
        }
        _ => error,
    }
}

/// A dump of one file from its beginning, on a connection of its own.
fn open_file(options: &ServerOptions, file: &str) -> Result<(EventStream, Facts)> {
    let mut session = Session::open(&options.endpoint)?;
    let facts = session.facts()?;
    let place = Place::new(file, FIRST_EVENT_OFFSET);
    let patience = patience(options.silence(), 0);
    let stream = session.dump(&probing(options), &facts, &Dump::File(place), patience)?;
    Ok((stream, facts))
}

fn search(options: &ServerOptions, file: &str, wanted: Wanted) -> Result<Found> {
    let (mut stream, facts) = open_file(options, file)?;
    let mut scan = Scan::new(wanted);
    let mut file = file.to_owned();
    let told = |error, file: &str| explain(error, &Place::new(file, FIRST_EVENT_OFFSET), &GtidSet::default());
    loop {
        let before = stream.place().offset;
        let at_end = |place: &Place| *place.file == *facts.end.file && place.offset >= facts.end.offset;
        match stream.next(options.event_bytes_max).map_err(|e| told(e, &file))? {
            Next::File(place) => {
                if *place.file != *file && !file.is_empty() && before > 0 && !scan.crosses_files() {
                    return scan.at_end(&file, before, false);
                }
                place.file.as_ref().clone_into(&mut file);
            }
            Next::Format { header, format } => {
                let event = weir_binlog::Event::FormatDescription(Box::new(format.clone()));
                scan.event(&file, FIRST_EVENT_OFFSET, &header, &event)?;
            }
            Next::Event {
                start, raw, format, ..
            } => {
                let place = format!("{file}:{start}");
                let event = raw
                    .decode(format)
                    .map_err(|source| SourceError::Binlog { place, source })?;
                if let Some(found) = scan.event(&file, start, &raw.header, &event)? {
                    return Ok(found);
                }
            }
            Next::Heartbeat => return scan.at_end(&file, stream.place().offset, false),
            Next::Nothing | Next::Dry => {}
            Next::Ended => {
                return Err(SourceError::Answer {
                    statement: "COM_BINLOG_DUMP",
                });
            }
        }
        if at_end(stream.place()) {
            return scan.at_end(&file, stream.place().offset, false);
        }
    }
}

/// The last file that was begun at the time or before.
fn file_of_time(options: &ServerOptions, files: &[String], time_ms: u64) -> Result<String> {
    let mut failure = None;
    let behind = files.partition_point(|file| match begun_ms(options, file) {
        Ok(begun) => begun <= time_ms,
        Err(error) => {
            failure.get_or_insert(error);
            false
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let file = files.get(behind.saturating_sub(1)).cloned();
    file.ok_or(SourceError::Purged { file: String::new() })
}

/// When a file was begun, milliseconds since the Unix epoch.
fn begun_ms(options: &ServerOptions, file: &str) -> Result<u64> {
    let (mut stream, _) = open_file(options, file)?;
    loop {
        match stream.next(options.event_bytes_max)? {
            Next::Format { header, .. } => return Ok(u64::from(header.timestamp) * 1000),
            Next::Ended => {
                return Err(SourceError::Answer {
                    statement: "COM_BINLOG_DUMP",
                });
            }
            Next::File(_) | Next::Event { .. } | Next::Heartbeat | Next::Nothing | Next::Dry => {}
        }
    }
}
