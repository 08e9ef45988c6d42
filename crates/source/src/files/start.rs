//! Where reading begins.

use weir_binlog::event::Event;
use weir_binlog::event_type::EventType;
use weir_binlog::file::{BinlogFile, FIRST_EVENT_OFFSET, FileEvent, Step};
use weir_binlog::index::FileIndex;
use weir_types::{Gtid, GtidSet, SourceIdentity, SourcePosition};

use super::probe::Head;
use super::{FilesOptions, StartAt, probe};
use crate::error::{Result, SourceError};
use crate::skip::Skip;

/// A resolved start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) identity: SourceIdentity,
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) skip: Skip,
    /// Transactions before the place.
    pub(crate) seen: GtidSet,
    /// When the file was begun, milliseconds since the Unix epoch.
    pub(crate) time_ms: u64,
}

fn head(options: &FilesOptions, index: &FileIndex, name: &str) -> Result<Head> {
    probe(&index.path(name), options.file_options())?.ok_or_else(|| SourceError::CutFile {
        file: name.to_owned(),
        what: "its head is not whole",
    })
}

/// Says where to begin: at the saved position, or where the configuration says.
pub(crate) fn begin(options: &FilesOptions, index: &FileIndex) -> Result<Begin> {
    let Some(first) = index.names().first() else {
        return Err(SourceError::Purged { file: String::new() });
    };
    let first_head = head(options, index, first)?;
    if let Some(position) = &options.resume {
        return resume(options, index, position, &first_head);
    }
    let at = |file: &str, offset: u64, skip: Skip| {
        let head = head(options, index, file)?;
        Ok(Begin {
            identity: first_head.identity.clone(),
            file: file.to_owned(),
            offset,
            skip,
            seen: head.previous.unwrap_or_default(),
            time_ms: head.time_ms,
        })
    };
    match &options.start {
        StartAt::Earliest => at(first, FIRST_EVENT_OFFSET, Skip::Nothing),
        StartAt::Latest => {
            let last = index.names().last().unwrap_or(first);
            at(last, FIRST_EVENT_OFFSET, Skip::All)
        }
        StartAt::File { name, offset } => {
            if !index.names().contains(name) {
                return Err(SourceError::Purged { file: name.clone() });
            }
            let length = length(index, name)?;
            let within = *offset >= FIRST_EVENT_OFFSET && *offset <= length;
            if !within || !begins_group(options, index, name, *offset) {
                let place = format!("{name}:{offset}");
                return Err(SourceError::BadPosition { place });
            }
            at(name, *offset, Skip::Nothing)
        }
        StartAt::Gtids(set) => behind_gtids(options, index, set, at),
        StartAt::Time(time_ms) => {
            let mut file = first;
            for name in index.names() {
                if head(options, index, name)?.time_ms > *time_ms {
                    break;
                }
                file = name;
            }
            at(file, FIRST_EVENT_OFFSET, Skip::Before(*time_ms))
        }
    }
}

/// Whether an event may begin a transaction at the offset: bytes inside of an event can
/// look like anything, and an event behind its GTID has lost that. A file that cannot be
/// read up to there does not tell; somebody may start behind the damage.
fn begins_group(options: &FilesOptions, index: &FileIndex, name: &str, offset: u64) -> bool {
    let Ok(mut file) = BinlogFile::open(index.path(name), options.file_options()) else {
        return true;
    };
    let mut behind_gtid = false;
    while file.offset() < offset {
        match file.next() {
            Ok(Step::Event(read)) => {
                behind_gtid = read.event.header.event_type().is_ok_and(is_gtid);
            }
            Ok(Step::NeedMore { .. }) | Err(_) => return true,
        }
    }
    file.offset() == offset && !behind_gtid
}

fn is_gtid(kind: Option<EventType>) -> bool {
    matches!(
        kind,
        Some(EventType::Gtid | EventType::AnonymousGtid | EventType::GtidTagged | EventType::MariadbGtid)
    )
}

/// The last file that begins before anything that is not in the set.
fn behind_gtids(
    options: &FilesOptions,
    index: &FileIndex,
    set: &GtidSet,
    at: impl Fn(&str, u64, Skip) -> Result<Begin>,
) -> Result<Begin> {
    for name in index.names().iter().rev() {
        let previous = head(options, index, name)?.previous.unwrap_or_default();
        if set.contains_all(&previous) {
            return at(name, FIRST_EVENT_OFFSET, Skip::Gtids(set.clone()));
        }
    }
    let first = index.names().first().map_or("", String::as_str);
    let missing = head(options, index, first)?.previous.unwrap_or_default();
    Err(SourceError::PurgedGtids {
        missing: missing.to_string(),
    })
}

fn length(index: &FileIndex, name: &str) -> Result<u64> {
    let metadata = std::fs::metadata(index.path(name));
    metadata.map(|m| m.len()).map_err(|source| SourceError::Binlog {
        place: name.to_owned(),
        source: weir_binlog::error::BinlogError::Io {
            path: index.path(name).display().to_string(),
            source,
        },
    })
}

fn resume(
    options: &FilesOptions,
    index: &FileIndex,
    position: &SourcePosition,
    first: &Head,
) -> Result<Begin> {
    let file = position.file.to_string();
    let same = position.identity == first.identity;
    if !index.names().contains(&file) {
        return Err(if same || is_older(&file, index) {
            SourceError::Purged { file }
        } else {
            SourceError::OtherSource
        });
    }
    if position.offset > length(index, &file)? {
        return Err(if same {
            SourceError::CutFile {
                file,
                what: "it is shorter than the saved position",
            }
        } else {
            SourceError::OtherSource
        });
    }
    if !same && !fits(options, index, position)? {
        return Err(SourceError::OtherSource);
    }
    let head = head(options, index, &file)?;
    let mut seen = head.previous.unwrap_or_default();
    seen.union(&position.gtids);
    // A set of a start holds for good: its members need not stand together.
    let skip = match &options.start {
        StartAt::Gtids(set) => Skip::Gtids(set.clone()),
        StartAt::Latest | StartAt::Earliest | StartAt::File { .. } | StartAt::Time(_) => Skip::Nothing,
    };
    Ok(Begin {
        identity: position.identity.clone(),
        file,
        offset: position.offset,
        skip,
        seen,
        time_ms: head.time_ms,
    })
}

fn is_older(file: &str, index: &FileIndex) -> bool {
    let first = index.names().first().and_then(|name| super::file_number(name));
    matches!((super::file_number(file), first), (Some(saved), Some(first)) if saved < first)
}

/// The first file is another one than when the position was saved: purged since, or of
/// another server. The file of the position tells by its transactions: all that the
/// store has must stand before the offset, and the last one before it must be among
/// them.
fn fits(options: &FilesOptions, index: &FileIndex, position: &SourcePosition) -> Result<bool> {
    if position.gtids.is_empty() {
        return Ok(false);
    }
    let mut before = head(options, index, &position.file)?.previous.unwrap_or_default();
    let path = index.path(&position.file);
    let error = |offset: u64, source| SourceError::Binlog {
        place: format!("{}:{offset}", position.file),
        source,
    };
    let mut file = BinlogFile::open(path, options.file_options()).map_err(|e| error(0, e))?;
    let mut last = None;
    while file.offset() < position.offset {
        let offset = file.offset();
        let Step::Event(read) = file.next().map_err(|e| error(offset, e))? else {
            return Ok(false);
        };
        if let Some(gtid) = gtid_of(&read).map_err(|e| error(offset, e))? {
            before.insert(&gtid);
            last = Some(gtid);
        }
    }
    let ours = |gtid: &Gtid| {
        let skipped = options.start_set().is_some_and(|set| set.contains(gtid));
        skipped || position.gtids.contains(gtid)
    };
    Ok(file.offset() == position.offset
        && before.contains_all(&position.gtids)
        && last.as_ref().is_none_or(ours))
}

fn gtid_of(read: &FileEvent<'_>) -> Result<Option<Gtid>, weir_binlog::error::BinlogError> {
    let kind = read.event.header.event_type()?;
    if !matches!(
        kind,
        Some(EventType::Gtid | EventType::GtidTagged | EventType::MariadbGtid)
    ) {
        return Ok(None);
    }
    Ok(match read.decode()? {
        Event::Gtid(gtid) => gtid.gtid(),
        Event::MariadbGtid(gtid) => Some(gtid.gtid()),
        _ => None,
    })
}

impl FilesOptions {
    fn start_set(&self) -> Option<&GtidSet> {
        match &self.start {
            StartAt::Gtids(set) => Some(set),
            StartAt::Latest | StartAt::Earliest | StartAt::File { .. } | StartAt::Time(_) => None,
        }
    }
}
