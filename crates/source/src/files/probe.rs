//! The head of a binlog file: format, what was before it, and whose it is.

use std::path::Path;

use weir_binlog::event::Event;
use weir_binlog::file::{BinlogFile, FileOptions, Step};
use weir_binlog::header::FLAG_BINLOG_IN_USE;
use weir_types::{GtidSet, SourceIdentity};

use crate::digest::Digest;
use crate::error::{Result, SourceError};

/// Events at a file's head among which the list of earlier transactions stands: format,
/// MariaDB's encryption mark, the list.
const HEAD_EVENTS: usize = 4;
/// Offset of the flags in an event.
const FLAGS_AT: usize = 17;

/// What a file's head says.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Seconds since the Unix epoch of the server start, if the file is its first.
    pub(crate) created: u32,
    /// When the file was begun, milliseconds since the Unix epoch.
    pub(crate) time_ms: u64,
    /// Transactions before the file; none if the file has no such list.
    pub(crate) previous: Option<GtidSet>,
    /// Digest of the format description and the list.
    pub(crate) identity: SourceIdentity,
}

/// An event with the in-use flag taken away.
fn masked(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if let Some(flag) = out.get_mut(FLAGS_AT) {
        *flag &= !(FLAG_BINLOG_IN_USE as u8);
    }
    out
}

/// Reads the head; none while it is not wholly written.
///
/// # Errors
/// The file is not a binlog, or damaged.
pub(crate) fn probe(path: &Path, options: FileOptions) -> Result<Option<Head>> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let at = |offset: u64| format!("{name}:{offset}");
    let error = |offset: u64, source| SourceError::Binlog {
        place: at(offset),
        source,
    };
    let small = FileOptions {
        read_buffer_bytes: 0,
        ..options
    };
    let mut file = BinlogFile::open(path, small).map_err(|e| error(0, e))?;
    let mut hash = Digest::new();
    let mut head: Option<Head> = None;
    for _ in 0..HEAD_EVENTS {
        let offset = file.offset();
        let step = file.next().map_err(|e| error(offset, e))?;
        let Step::Event(read) = step else {
            break;
        };
        let (raw, format) = (read.event, read.format);
        let Some(found) = &mut head else {
            hash.add(&masked(&raw.bytes));
            let time_ms = u64::from(raw.header.timestamp) * 1000;
            let created = format.map_or(0, |format| format.created);
            head = Some(Head {
                created,
                time_ms,
                previous: None,
                identity: SourceIdentity::Digest(hash.value()),
            });
            continue;
        };
        let event = raw.decode(format).map_err(|e| error(offset, e))?;
        if let Event::PreviousGtids(set) | Event::GtidList(set) = event {
            hash.add(&raw.bytes);
            found.previous = Some(set);
            found.identity = SourceIdentity::Digest(hash.value());
            return Ok(head);
        }
    }
    // A file of an old server has no list; a young file does not have it yet.
    Ok(head.filter(|_| file.offset() > weir_binlog::file::FIRST_EVENT_OFFSET && !is_young(&mut file)))
}

/// Whether nothing stands behind the head yet while the server still writes.
fn is_young(file: &mut BinlogFile) -> bool {
    file.was_in_use() && matches!(file.next(), Ok(Step::NeedMore { .. }))
}
