use std::sync::Arc;

use proptest::prelude::*;

use crate::fault::{Fault, FaultVolume};
use crate::*;

const NAME: &str = "1.log";
const ID: SegmentId = SegmentId {
    lineage: 7,
    number: 1,
};

fn body(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i / 9) * (seed + 3) + (i * i) / 777) as u8)
        .collect()
}

fn reader(volume: &FaultVolume) -> SegmentReader {
    SegmentReader::open(volume.open(NAME).unwrap(), NAME).unwrap()
}

/// Three groups of two frames, all synced before the next was written if `sync`.
fn written(sync: bool) -> (FaultVolume, Vec<u64>) {
    let volume = FaultVolume::new();
    let mut writer = SegmentWriter::create(&volume, NAME, ID).unwrap();
    volume.sync().unwrap();
    let mut ends = Vec::new();
    for group in 0..3 {
        writer
            .append(1, &[group as u8], Codec::Lz4, &body(group, 200))
            .unwrap();
        writer.append(2, b"", Codec::None, &body(group, 30)).unwrap();
        writer.end_group(b"m").unwrap();
        ends.push(writer.offset());
        if sync {
            writer.sync_handle().sync(writer.offset()).unwrap();
        }
    }
    (volume, ends)
}

fn walk(volume: &FaultVolume) -> Result<(u64, u64), SegmentError> {
    let reader = SegmentReader::open(volume.open(NAME).unwrap(), NAME)?;
    let mut groups = reader.groups(None, &|_| true)?;
    while let Some(group) = groups.next_group()? {
        let at = usize::try_from(group.number).unwrap();
        assert_eq!(group.frames.len(), 2);
        assert_eq!(group.frames[0].body.as_deref(), Some(&body(at, 200)[..]));
        assert_eq!(group.frames[1].body.as_deref(), Some(&body(at, 30)[..]));
    }
    groups.check_tail()?;
    Ok((groups.number(), groups.end()))
}

#[test]
fn frames_are_read_by_address_and_in_order() {
    let volume = FaultVolume::new();
    let mut writer = SegmentWriter::create(&volume, NAME, ID).unwrap();
    let sizes = [0, 1, 63, 64, 5_000, format::CHUNK_BYTES_MAX + 17, 3 << 20];
    let mut at = Vec::new();
    for (i, size) in sizes.into_iter().enumerate() {
        at.push(writer.append(i as u8, b"h", Codec::Lz4, &body(i, size)).unwrap());
    }
    writer.end_group(b"meta").unwrap();
    let reader = reader(&volume);
    for (i, size) in sizes.into_iter().enumerate() {
        let frame = reader.read(at[i]).unwrap();
        assert_eq!((frame.kind, &frame.head[..]), (i as u8, &b"h"[..]));
        assert_eq!(frame.body, body(i, size));
    }
    let mut groups = reader.groups(None, &|kind| kind == 3).unwrap();
    let group = groups.next_group().unwrap().unwrap();
    assert_eq!(group.meta, b"meta");
    assert_eq!(group.frames.iter().filter(|f| f.body.is_some()).count(), 1);
    assert!(groups.next_group().unwrap().is_none());
    assert!(groups.broken().is_none());
}

#[test]
fn every_cut_leaves_the_whole_groups_before_it() {
    let (volume, ends) = written(false);
    let whole = volume.files()[NAME].clone();
    for cut in format::FILE_HEADER_BYTES..=whole.len() {
        let mut files = volume.files();
        files.insert(NAME.to_owned(), whole[..cut].to_vec());
        let (groups, _) = walk(&FaultVolume::with_files(files)).unwrap();
        let expected = ends.iter().filter(|e| **e <= cut as u64).count() as u64;
        assert_eq!(groups, expected, "cut at {cut}");
    }
}

#[test]
fn every_flip_of_synced_data_is_an_error_and_of_the_last_group_a_cut() {
    let (volume, ends) = written(true);
    let whole = volume.files()[NAME].clone();
    for at in 0..whole.len() {
        let mut files = volume.files();
        files.get_mut(NAME).unwrap()[at] ^= 0x55;
        let result = walk(&FaultVolume::with_files(files));
        if (at as u64) < ends[1] {
            // The third group was written when the second was synced.
            let covered = at < format::FILE_HEADER_BYTES || (at as u64) < ends[1];
            assert!(covered && result.unwrap_err().is_corrupt(), "flip at {at}");
        } else {
            assert_eq!(result.unwrap().0, 2, "flip at {at}");
        }
    }
}

#[test]
fn a_damaged_group_before_an_unsynced_one_is_cut_with_it() {
    let (volume, ends) = written(false);
    let mut files = volume.files();
    let at = usize::try_from(ends[0]).unwrap() + 30;
    files.get_mut(NAME).unwrap()[at] ^= 1;
    assert_eq!(walk(&FaultVolume::with_files(files)).unwrap(), (1, ends[0]));
}

#[test]
fn without_room_the_group_can_be_taken_back_and_tried_again() {
    for at in 0..6 {
        for fault in [Fault::NoRoom, Fault::ShortWrite] {
            let volume = FaultVolume::new();
            let mut writer = SegmentWriter::create(&volume, NAME, ID).unwrap();
            volume.fail(at, fault);
            for number in 0..3 {
                let mark = writer.mark();
                let noise: Vec<u8> = (0..600_000_u32)
                    .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
                    .collect();
                while let Err(error) = writer.append(1, &[number], Codec::None, &noise) {
                    assert!(error.is_full());
                    writer.rollback(mark).unwrap();
                }
                while let Err(error) = writer.end_group(b"") {
                    assert!(error.is_full());
                }
            }
            assert!(!volume.pending());
            let reader = reader(&volume);
            let mut groups = reader.groups(None, &|_| false).unwrap();
            while let Some(group) = groups.next_group().unwrap() {
                assert_eq!(group.frames.len(), 1);
                assert_eq!(u64::from(group.frames[0].head[0]), group.number);
            }
            assert_eq!((groups.number(), groups.broken()), (3, None));
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_accepted() {
    let volume = FaultVolume::new();
    let mut writer = SegmentWriter::create(&volume, NAME, ID).unwrap();
    writer.append(1, b"", Codec::None, b"x").unwrap();
    writer.end_group(b"").unwrap();
    volume.fail(0, Fault::SyncError);
    assert!(writer.sync_handle().sync(writer.offset()).is_err());
    assert!(matches!(
        writer.append(1, b"", Codec::None, b"x"),
        Err(SegmentError::Poisoned { .. })
    ));
    assert!(writer.sync_handle().sync(writer.offset()).is_err());
}

#[test]
fn the_real_folder_works_too() {
    let dir = tempfile::tempdir().unwrap();
    let volume: Arc<dyn Volume> = Arc::new(Folder::open(&dir.path().join("new")).unwrap());
    let mut writer = SegmentWriter::create(&*volume, NAME, ID).unwrap();
    let address = writer.append(1, b"h", Codec::Lz4, &body(1, 2 << 20)).unwrap();
    writer.end_group(b"").unwrap();
    writer.sync_handle().sync(writer.offset()).unwrap();
    volume.rename(NAME, "2.log").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.list().unwrap(), ["2.log"]);
    let reader = SegmentReader::open(volume.open("2.log").unwrap(), "2.log").unwrap();
    assert_eq!(reader.id(), ID);
    assert_eq!(reader.read(address).unwrap().body, body(1, 2 << 20));
    volume.remove("2.log").unwrap();
    assert!(volume.list().unwrap().is_empty());
}

proptest! {
    #[test]
    fn any_bytes_end_in_an_error_or_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (volume, _) = written(true);
        let mut files = volume.files();
        let file = files.get_mut(NAME).unwrap();
        file.truncate(format::FILE_HEADER_BYTES);
        file.extend_from_slice(&bytes);
        prop_assert_eq!(walk(&FaultVolume::with_files(files)).unwrap().0, 0);
    }

    #[test]
    fn a_crash_leaves_what_was_synced(synced in 0_usize..3, seed in any::<u64>()) {
        let volume = FaultVolume::new();
        let mut writer = SegmentWriter::create(&volume, NAME, ID).unwrap();
        volume.sync().unwrap();
        for group in 0..3 {
            writer.append(1, &[group as u8], Codec::Lz4, &body(group, 200)).unwrap();
            writer.append(2, b"", Codec::None, &body(group, 30)).unwrap();
            writer.end_group(b"m").unwrap();
            if group <= synced {
                writer.sync_handle().sync(writer.offset()).unwrap();
            }
        }
        let mut state = seed | 1;
        let crashed = volume.crash(&mut || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63 == 1
        });
        prop_assert!(walk(&crashed).unwrap().0 > synced as u64);
    }
}
