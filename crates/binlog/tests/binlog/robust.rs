//! No bytes make the decoder panic, hang or allocate without bound.

use crate::walk::{MAX_BYTES, Walk, data};
use proptest::prelude::*;
use weir_binlog::{
    BinlogFile, ChecksumAlgorithm, Decoder, Event, EventHeader, EventType, FileOptions, FormatDescription,
    Query, RowImages, RowPlan, Rows, Step, TransactionPayload, inflate_query, inflate_rows,
};
use weir_types::{Flavor, RowKind};

/// All events of a file as whole events.
fn events(name: &str) -> Vec<Vec<u8>> {
    let mut file = BinlogFile::open(data(name), FileOptions::default()).unwrap();
    let mut out = Vec::new();
    while let Step::Event(event) = file.next().unwrap() {
        out.push(event.event.bytes.into_vec());
    }
    out
}

/// Reads events one after another as long as they are framed; errors are expected.
fn read_all(events: &[Vec<u8>]) -> Walk {
    let mut decoder = Decoder::new(ChecksumAlgorithm::Crc32).without_verification();
    let mut walk = Walk::default();
    for event in events {
        let read = decoder
            .frame(event)
            .and_then(|(header, body)| walk.event(decoder.format(), &header, body));
        if let Err(error) = read {
            walk.errors.push(error);
        }
    }
    walk
}

/// Puts the right length into the header of a cut or changed event.
fn set_length(event: &mut [u8]) {
    let length = u32::try_from(event.len()).unwrap();
    if let Some(field) = event.get_mut(9..13) {
        field.copy_from_slice(&length.to_le_bytes());
    }
}

const FILES: [&str; 6] = [
    "mysql97-nocrc.bin",
    "mariadb1011-nocrc.bin",
    "mariadb118-nocrc.bin",
    "mysql97-minimal-metadata.bin",
    "mariadb118-oldtime.bin",
    "mariadb1011-oldtime.bin",
];

#[test]
fn every_flipped_byte_of_small_files() {
    for name in FILES {
        let events = events(name);
        for at in 0..events.len() {
            for byte in 0..events[at].len() {
                for flip in [0x01, 0x80, 0xff] {
                    let mut changed = events.clone();
                    changed[at][byte] ^= flip;
                    read_all(&changed);
                }
            }
        }
    }
}

#[test]
fn every_cut_of_every_event_of_small_files() {
    for name in FILES {
        let events = events(name);
        for at in 0..events.len() {
            for length in 0..events[at].len() {
                let mut changed = events.clone();
                changed[at].truncate(length);
                set_length(&mut changed[at]);
                read_all(&changed);
            }
        }
    }
}

/// The large files hold every type of column. Each row event and table map alone is
/// changed, behind the right table map.
#[test]
fn flipped_bytes_of_all_types() {
    for name in [
        "mysql97-plain.bin",
        "mariadb118-compressed.bin",
        "mysql97-compressed.bin",
    ] {
        let events = events(name);
        let mut previous = Vec::new();
        for event in events.iter().filter(|event| event.len() < 3000) {
            for byte in (19..event.len()).step_by(if event.len() > 400 { 13 } else { 3 }) {
                let mut changed = event.clone();
                changed[byte] ^= 0xff;
                read_all(&[events[0].clone(), previous.clone(), changed]);
            }
            if event[4] == EventType::TableMap.number() {
                previous.clone_from(event);
            }
        }
    }
}

#[test]
fn checksums_catch_every_flip() {
    let events = events("mysql97-minimal-metadata.bin");
    for event in &events[1..] {
        for byte in (0..9).chain(13..event.len()) {
            let mut decoder = Decoder::new(ChecksumAlgorithm::None);
            decoder.frame(&events[0]).unwrap();
            let mut changed = event.clone();
            changed[byte] ^= 0x10;
            assert!(decoder.frame(&changed).is_err(), "byte {byte}");
            decoder.frame(event).unwrap();
        }
    }
}

fn format() -> FormatDescription {
    let mut decoder = Decoder::new(ChecksumAlgorithm::None);
    decoder.frame(&events("mysql97-nocrc.bin")[0]).unwrap();
    decoder.format().unwrap().clone()
}

fn header(type_number: u8) -> EventHeader {
    EventHeader {
        timestamp: 0,
        type_number,
        server_id: 1,
        event_length: 19,
        end_log_pos: 0,
        flags: 0,
    }
}

proptest! {
    #[test]
    fn random_events(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut decoder = Decoder::new(ChecksumAlgorithm::None).without_verification();
        let mut event = bytes;
        set_length(&mut event);
        drop(decoder.event(&event));
        drop(FormatDescription::parse(&event));
    }

    #[test]
    fn random_bodies_of_every_type(body in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..6], 0..120)) {
        let format = format();
        for event_type in EventType::ALL {
            let header = header(event_type.number());
            drop(Event::decode(&header, &body, Some(&format)));
            drop(Event::decode(&header, &body, None));
            drop(Walk::default().event(Some(&format), &header, &body));
        }
    }

    #[test]
    fn random_table_maps(
        types in prop::collection::vec(any::<u8>(), 0..12),
        rest in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..14], 0..80),
        rows in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0, 1, b's', 0, 1, b't', 0];
        body.push(u8::try_from(types.len()).unwrap());
        body.extend(&types);
        body.extend(&rest);
        let header = header(EventType::TableMap.number());
        if let Ok(Event::TableMap(map)) = Event::decode(&header, &body, Some(&format())) {
            for flavor in [Flavor::Mysql, Flavor::Mariadb] {
                if let Ok(version) = map.to_version(flavor) {
                    let plan = RowPlan::new(&version);
                    for kind in [RowKind::Insert, RowKind::Update, RowKind::Delete] {
                        read_rows(plan.as_ref().ok(), kind, &rows);
                    }
                }
            }
        }
    }

    #[test]
    fn random_rows_of_real_tables(rows in prop::collection::vec(any::<u8>(), 0..200), partial: bool) {
        let walk = read_all(&events("mysql97-nocrc.bin"));
        for version in &walk.versions {
            let plan = RowPlan::new(version).unwrap();
            let columns = u8::try_from(version.columns.len()).unwrap();
            let mut body = vec![columns];
            body.extend(&rows);
            for kind in [RowKind::Insert, RowKind::Update, RowKind::Delete] {
                let mut images = RowImages::default();
                if let Ok(mut reader) = plan.rows(kind, u8::from(partial), &body) {
                    while let Ok(true) = reader.next(&mut images) {}
                }
            }
        }
    }

    #[test]
    fn random_payloads(payload in prop::collection::vec(any::<u8>(), 0..200), method in prop_oneof![Just(0_u64), Just(255), any::<u64>()], size in prop::option::of(0_u64..500)) {
        let payload = TransactionPayload { method, uncompressed_bytes: size, payload: &payload };
        if let Ok(mut reader) = weir_binlog::PayloadReader::new(&payload, MAX_BYTES) {
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    #[test]
    fn random_compressed_records(record in prop::collection::vec(any::<u8>(), 0..100), head in 0x80_u8..0x88) {
        let mut sql = vec![head];
        sql.extend(&record);
        let mut out = Vec::new();
        let query = Query { thread: 0, exec_seconds: 0, error_code: 0, schema: b"", settings: Default::default(), sql: &sql };
        drop(inflate_query(&query, MAX_BYTES, &mut out));
        let rows = Rows { kind: RowKind::Update, table_id: 1, flags: 0, partial_json: false, body: &sql };
        let mut out = Vec::new();
        drop(inflate_rows(&rows, MAX_BYTES, &mut out));
    }
}

fn read_rows(plan: Option<&RowPlan>, kind: RowKind, rows: &[u8]) {
    let Some(plan) = plan else { return };
    let mut body = vec![u8::try_from(plan.columns()).unwrap()];
    body.extend(rows);
    let mut images = RowImages::default();
    if let Ok(mut reader) = plan.rows(kind, 0, &body) {
        while let Ok(true) = reader.next(&mut images) {}
    }
}
