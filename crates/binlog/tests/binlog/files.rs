//! Reading files: torn tails, growth, limits, positions, seeking, large events.

use std::io::Write as _;
use std::path::Path;

use weir_binlog::file::{Ending, FIRST_EVENT_OFFSET};
use weir_binlog::{BinlogError, BinlogFile, EventBytes, EventType, FileOptions, Step};

use crate::walk::data;

fn write(folder: &tempfile::TempDir, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.path().join("b.000001");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(path: &Path) -> BinlogFile {
    BinlogFile::open(path, FileOptions::default()).unwrap()
}

/// Offsets of all events that can be read, and what is behind them.
fn read(file: &mut BinlogFile) -> (Vec<u64>, (u64, u64)) {
    let mut offsets = Vec::new();
    loop {
        match file.next().unwrap() {
            Step::Event(event) => offsets.push(event.offset),
            Step::NeedMore { have, need } => return (offsets, (have, need)),
        }
    }
}

/// An event with a right header and checksum at `offset`.
fn event(event_type: EventType, body: &[u8], offset: u64) -> Vec<u8> {
    let length = u32::try_from(19 + body.len() + 4).unwrap();
    let mut out = vec![0; 4];
    out.push(event_type.number());
    out.extend(1_u32.to_le_bytes());
    out.extend(length.to_le_bytes());
    out.extend(((offset + u64::from(length)) as u32).to_le_bytes());
    out.extend([0, 0]);
    out.extend(body);
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out
}

/// Magic and format description of a MySQL file with checksums.
fn prefix() -> Vec<u8> {
    let bytes = std::fs::read(data("mysql97-minimal-metadata.bin")).unwrap();
    let length = u32::from_le_bytes(bytes[13..17].try_into().unwrap()) as usize;
    bytes[..4 + length].to_vec()
}

#[test]
fn every_cut_says_what_is_there_and_reading_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(data("mysql97-minimal-metadata.bin")).unwrap();
    let (all, _) = read(&mut open(&data("mysql97-minimal-metadata.bin")));
    for cut in 0..whole.len() {
        let path = write(&folder, &whole[..cut]);
        let mut file = open(&path);
        let (offsets, (have, need)) = read(&mut file);
        let border = file.offset();
        assert_eq!(border + have, cut as u64, "cut {cut}");
        assert!(have < need, "cut {cut}");
        assert_eq!(offsets, all[..offsets.len()]);
        // The same reader, once the rest is written.
        let mut writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        writer.write_all(&whole[cut..]).unwrap();
        let (rest, end) = read(&mut file);
        assert_eq!([offsets, rest].concat(), all, "cut {cut}");
        assert_eq!(end.0, 0);
        assert!(matches!(file.ending(), Some(Ending::Rotate { position: 4, .. })));
    }
}

#[test]
fn seeking_reads_the_format_first() {
    let path = data("mariadb118-plain.bin");
    let (all, _) = read(&mut open(&path));
    for at in [1, 7, all.len() - 1] {
        let mut file = open(&path);
        file.seek(all[at]).unwrap();
        assert_eq!(read(&mut file).0, all[at..]);
    }
    let mut file = open(&path);
    assert!(file.seek(3).is_err());
    assert!(file.seek(1 << 40).is_err());
    file.seek(FIRST_EVENT_OFFSET).unwrap();
    assert_eq!(read(&mut file).0, all);
}

#[test]
fn an_event_inside_another_is_corruption() {
    let mut file = open(&data("mariadb118-plain.bin"));
    file.seek(FIRST_EVENT_OFFSET + 30).unwrap();
    assert!(file.next().is_err());
}

#[test]
fn large_events_are_owned_and_exact() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = prefix();
    let offset = bytes.len() as u64;
    let large = event(EventType::RowsQuery, &vec![b'x'; 3 << 20], offset);
    bytes.extend(&large);
    let after = bytes.len() as u64;
    bytes.extend(event(EventType::RowsQuery, b"small", after));
    let path = write(&folder, &bytes);
    let mut file = open(&path);
    file.next().unwrap();
    let Step::Event(read) = file.next().unwrap() else {
        panic!("no event");
    };
    assert_eq!(read.next_offset, after);
    let EventBytes::Owned(own) = read.event.bytes else {
        panic!("not owned");
    };
    assert!(own == large && own.capacity() == own.len());
    assert!(matches!(file.next().unwrap(), Step::Event(_)));

    // Cut inside the large event, then whole again.
    let path = write(&folder, &bytes[..bytes.len() - 100]);
    let mut file = open(&path);
    let (offsets, (have, need)) = crate::files::read(&mut file);
    assert_eq!((offsets.len(), need), (1, large.len() as u64));
    assert_eq!(have, bytes.len() as u64 - 100 - offset);
    write(&folder, &bytes);
    assert_eq!(crate::files::read(&mut file).0.len(), 2);
}

#[test]
fn events_above_the_limit_are_refused_before_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = prefix();
    let offset = bytes.len() as u64;
    bytes.extend(&event(EventType::RowsQuery, &[b'x'; 5000], offset)[..19]);
    let path = write(&folder, &bytes);
    let options = FileOptions {
        max_event_bytes: 4096,
        ..FileOptions::default()
    };
    let mut file = BinlogFile::open(&path, options).unwrap();
    file.next().unwrap();
    assert!(matches!(
        file.next(),
        Err(BinlogError::EventTooLarge { limit: 4096, .. })
    ));
}

#[test]
fn end_log_pos_is_checked_modulo_its_32_bits() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = prefix();
    let offset = bytes.len() as u64;
    bytes.extend(event(EventType::RowsQuery, b"wrapped", offset + (1 << 32)));
    let path = write(&folder, &bytes);
    assert_eq!(read(&mut open(&path)).0.len(), 2);

    let offset = bytes.len() as u64;
    bytes.extend(event(EventType::RowsQuery, b"moved", offset + 1));
    let path = write(&folder, &bytes);
    let mut file = open(&path);
    file.next().unwrap();
    file.next().unwrap();
    let error = file.next().unwrap_err();
    assert!(matches!(error, BinlogError::Position { .. }), "{error}");
    // The place of the broken event stays.
    assert_eq!(file.offset(), offset);
    assert!(file.next().is_err());
}

#[test]
fn the_in_use_flag_is_no_corruption_and_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = prefix();
    bytes[4 + 17] |= 1;
    let path = write(&folder, &bytes);
    let mut file = open(&path);
    assert!(matches!(file.next().unwrap(), Step::Event(_)));
    assert!(file.was_in_use());
    assert!(file.is_in_use().unwrap());
    bytes[4 + 17] &= !1;
    let offset = bytes.len() as u64;
    bytes.extend(event(EventType::Stop, b"", offset));
    write(&folder, &bytes);
    assert!(!file.is_in_use().unwrap());
    assert!(matches!(file.next().unwrap(), Step::Event(event) if event.offset == offset));
    assert_eq!(file.ending(), Some(&Ending::Stop));
}

#[test]
fn other_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, &[0xfd, b'b', b'i', b'n', 1, 2]);
    let error = BinlogFile::open(&path, FileOptions::default()).err().unwrap();
    assert!(matches!(error, BinlogError::Encrypted { .. }));
    let path = write(&folder, b"ustar");
    let error = BinlogFile::open(&path, FileOptions::default()).err().unwrap();
    assert!(matches!(error, BinlogError::NotABinlog { .. }));
    let missing = folder.path().join("none");
    let error = BinlogFile::open(missing, FileOptions::default()).err().unwrap();
    assert!(matches!(error, BinlogError::Io { .. }));

    let mut bytes = prefix();
    let offset = bytes.len() as u64;
    bytes.extend(event(EventType::StartEncryption, &[0; 17], offset));
    let path = write(&folder, &bytes);
    let mut file = open(&path);
    file.next().unwrap();
    assert!(matches!(file.next(), Err(BinlogError::Encrypted { .. })));
}
