//! Recordings of real servers, sent as a server sends them, over connections that end
//! anywhere: what becomes visible is the same as in one piece.

use std::path::PathBuf;
use std::sync::Arc;

use weir_binlog::event::Event;
use weir_binlog::event_type::EventType;
use weir_binlog::file::{BinlogFile, FIRST_EVENT_OFFSET, FileOptions, Step};
use weir_binlog::header::{EventHeader, FLAG_ARTIFICIAL, HEADER_BYTES};
use weir_binlog::index::FileIndex;
use weir_binlog::raw::EventBytes;
use weir_filter::{NameCase, TableFilter};
use weir_types::{AttemptId, GtidSet, SourceIdentity};

use super::intake::Intake;
use super::place::Place;
use super::stream::{Framing, Next};
use crate::assembler::{AssemblerOptions, TransactionAssembler};
use crate::error::Result;
use crate::files::hand_over;
use crate::skip::Skip;

#[path = "../../tests/model/mod.rs"]
mod model;

use model::Model;

const RECORDINGS: [&str; 8] = [
    "mysql-9.7",
    "mysql-9.7-compressed",
    "mysql-9.7-no-checksum",
    "mysql-9.7-tagged",
    "mysql-9.7-xa",
    "mariadb-10.11",
    "mariadb-11.8-compressed",
    "mariadb-11.8-xa",
];
/// So small that transactions go to the store in fragments.
const BUFFER_BYTES: usize = 4 << 10;

/// Where a dump begins.
enum Begin<'a> {
    Gtids(&'a GtidSet),
    Place(&'a Place),
}

/// A file as the server holds it.
struct File {
    name: String,
    /// Offset, bytes, and the GTID of the transaction that the event belongs to.
    events: Vec<(u64, Vec<u8>, Option<weir_types::Gtid>)>,
    previous: GtidSet,
    has_checksum: bool,
}

fn load(recording: &str) -> Vec<File> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../integration/data")
        .join(recording);
    let index = FileIndex::read(&folder, "binlog.index").expect("an index");
    index
        .names()
        .iter()
        .map(|name| {
            let mut file = BinlogFile::open(index.path(name), FileOptions::default()).expect("a file");
            let mut out = File {
                name: name.clone(),
                events: Vec::new(),
                previous: GtidSet::default(),
                has_checksum: false,
            };
            let mut current = None;
            while let Step::Event(read) = file.next().expect("intact") {
                out.has_checksum = read.event.checksum_bytes > 0;
                match read.decode().expect("decodes") {
                    Event::PreviousGtids(set) | Event::GtidList(set) => out.previous = set,
                    Event::Gtid(gtid) => current = gtid.gtid(),
                    Event::MariadbGtid(gtid) => current = Some(gtid.gtid()),
                    Event::Rotate(_) | Event::Stop => current = None,
                    _ => {}
                }
                out.events
                    .push((read.offset, read.event.bytes.to_vec(), current.clone()));
            }
            out
        })
        .collect()
}

/// An event that the server makes up.
fn made_up(event_type: EventType, body: &[u8], end_log_pos: u32, has_checksum: bool) -> Vec<u8> {
    let length = HEADER_BYTES + body.len() + if has_checksum { 4 } else { 0 };
    let mut out = vec![0; 4];
    out.push(event_type.number());
    out.extend(1_u32.to_le_bytes());
    out.extend(u32::try_from(length).expect("small").to_le_bytes());
    out.extend(end_log_pos.to_le_bytes());
    out.extend(FLAG_ARTIFICIAL.to_le_bytes());
    out.extend(body);
    if has_checksum {
        out.extend(crc32fast::hash(&out).to_le_bytes());
    }
    out
}

/// A format description as it comes in the middle of a file: without place.
fn format_in_middle(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[13..17].fill(0);
    out[17] &= !1;
    let covered = out.len() - 4;
    let sum = crc32fast::hash(&out[..covered]);
    out[covered..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Everything that the server sends, in order.
fn dump(files: &[File], from: &Begin<'_>) -> Vec<Vec<u8>> {
    let first = match from {
        Begin::Gtids(seen) => files.iter().rposition(|file| seen.contains_all(&file.previous)),
        Begin::Place(place) => files.iter().position(|file| *file.name == *place.file),
    };
    let first = first.expect("the start is there");
    let mut out = Vec::new();
    for (i, file) in files.iter().enumerate().skip(first) {
        let begin = match from {
            Begin::Place(place) if i == first => place.offset,
            _ => FIRST_EVENT_OFFSET,
        };
        let mut body = begin.to_le_bytes().to_vec();
        body.extend(file.name.as_bytes());
        out.push(made_up(EventType::Rotate, &body, 0, file.has_checksum));
        for (offset, bytes, gtid) in &file.events {
            let is_format = *offset == FIRST_EVENT_OFFSET;
            if is_format && begin > FIRST_EVENT_OFFSET {
                out.push(format_in_middle(bytes));
            }
            let is_had = match (from, gtid) {
                (Begin::Gtids(seen), Some(gtid)) => seen.contains(gtid),
                _ => false,
            };
            if *offset >= begin && !is_had {
                out.push(bytes.clone());
            }
        }
        let end = file
            .events
            .last()
            .map_or(0, |(offset, bytes, _)| offset + bytes.len() as u64);
        let position = u32::try_from(end).expect("small");
        out.push(made_up(
            EventType::Heartbeat,
            file.name.as_bytes(),
            position,
            file.has_checksum,
        ));
    }
    out
}

/// Takes one event in; gives the place behind it where the server has nothing more.
fn take(framing: &mut Framing, intake: &mut Intake, model: &mut Model, bytes: &[u8]) -> Result<()> {
    let mut handover = |inputs: Vec<_>, _: usize| {
        inputs.into_iter().for_each(|input| model.append(input));
        true
    };
    match framing.take(EventBytes::Borrowed(bytes))? {
        Next::File(place) => intake.file(place),
        Next::Format { header, format } => intake.format(&header, format)?,
        Next::Event {
            start,
            end,
            raw,
            format,
        } => assert!(intake.event((start, end), raw, format, &mut handover)?),
        Next::Heartbeat => {
            hand_over(&mut intake.assembler, 1, &mut handover);
        }
        Next::Nothing | Next::Dry | Next::Ended => {}
    }
    Ok(())
}

fn intake(files: &[File]) -> Intake {
    let options = AssemblerOptions {
        filter: Arc::new(TableFilter::all(NameCase::Sensitive)),
        known: Vec::new(),
        next_attempt: AttemptId(1),
        transaction_buffer_bytes: BUFFER_BYTES,
        event_bytes_max: 1 << 30,
        skip: Skip::Nothing,
    };
    let mut assembler = TransactionAssembler::new(SourceIdentity::Digest(1), options);
    let first = files.first().expect("files");
    assembler.add_seen(&first.previous);
    assembler
        .begin_file(Arc::from(first.name.as_str()), FIRST_EVENT_OFFSET)
        .expect("nothing is open");
    Intake::new(assembler)
}

/// Reads all, with a connection that ends after every so many events.
fn replay(files: &[File], by_gtid: bool, lengths: &[usize]) -> (Model, Place) {
    let (mut intake, mut model) = (intake(files), Model::default());
    for connection in 0.. {
        let position = intake.assembler.position();
        let place = Place {
            file: position.file,
            offset: position.offset,
        };
        let seen = intake.assembler.seen().clone();
        let from = if by_gtid {
            Begin::Gtids(&seen)
        } else {
            Begin::Place(&place)
        };
        let events = dump(files, &from);
        let length = lengths.get(connection % lengths.len().max(1)).copied();
        let length = length.map_or(usize::MAX, |length| length + connection);
        let mut framing = Framing::new();
        for bytes in events.iter().take(length) {
            take(&mut framing, &mut intake, &mut model, bytes).expect("replicates");
        }
        intake.cut();
        intake.assembler.flush();
        hand_over(&mut intake.assembler, 1, &mut |inputs: Vec<_>, _| {
            inputs.into_iter().for_each(|input| model.append(input));
            true
        });
        if events.len() <= length {
            break;
        }
    }
    let position = intake.assembler.position();
    let place = Place {
        file: position.file,
        offset: position.offset,
    };
    (model, place)
}

#[test]
fn connections_that_end_anywhere_change_nothing() {
    let mut fragments = 0;
    for recording in RECORDINGS {
        let files = load(recording);
        let (whole, end) = replay(&files, true, &[]);
        assert!(whole.txns.iter().any(|txn| !txn.rows.is_empty()), "{recording}");
        fragments += whole.fragments;
        for (by_gtid, lengths) in [(true, [40, 7, 90]), (false, [33, 5, 120])] {
            let (cut, cut_end) = replay(&files, by_gtid, &lengths);
            assert!(cut.txns == whole.txns, "{recording}, by GTID: {by_gtid}");
            assert_eq!(cut_end, end, "{recording}, by GTID: {by_gtid}");
        }
    }
    assert!(fragments > 0, "no transaction went to the store in parts");
}

#[test]
fn a_restart_of_the_server_leaves_an_open_transaction_out() {
    let files = load("mysql-9.7");
    let file = files.first().expect("a file");
    let (mut framing, mut intake, mut model) = (Framing::new(), intake(&files), Model::default());
    let mut events = dump(&files, &Begin::Gtids(&file.previous));
    // The server goes down behind the first row event.
    let is_rows = |bytes: &Vec<u8>| {
        let number = EventHeader::parse(bytes).expect("a header").type_number;
        number == EventType::WriteRows.number()
    };
    let at = events.iter().position(is_rows).expect("row events");
    events.truncate(at + 1);
    for bytes in &events {
        take(&mut framing, &mut intake, &mut model, bytes).expect("replicates");
    }
    assert!(intake.assembler.in_transaction());
    let mut body = FIRST_EVENT_OFFSET.to_le_bytes().to_vec();
    body.extend(b"binlog.000099");
    let rotate = made_up(EventType::Rotate, &body, 0, file.has_checksum);
    let format = &file.events.first().expect("a format").1;
    let created = |seconds: u32| {
        let mut out = format.clone();
        out[17] &= !1;
        let at = HEADER_BYTES + 2 + 50;
        out[at..at + 4].copy_from_slice(&seconds.to_le_bytes());
        let covered = out.len() - 4;
        let sum = crc32fast::hash(&out[..covered]);
        out[covered..].copy_from_slice(&sum.to_le_bytes());
        out
    };
    take(&mut framing, &mut intake, &mut model, &rotate).expect("announced");
    // Without a restart a transaction does not end in the next file.
    assert!(take(&mut framing, &mut intake, &mut model, &created(0)).is_err());
    intake.file(Place::new("binlog.000099", FIRST_EVENT_OFFSET));
    take(&mut framing, &mut intake, &mut model, &created(1_700_000_000)).expect("goes on");
    assert!(!intake.assembler.in_transaction());
    assert_eq!(&*intake.assembler.position().file, "binlog.000099");
}
