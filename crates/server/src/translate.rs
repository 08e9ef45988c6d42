//! From the changefeed file to the stages' own options.

use std::path::Path;

use weir_config::{Changefeed, Start, Until};
use weir_filter::TableFilter;
use weir_source::files::{FilesOptions, StartAt, StopAt};
use weir_types::{DdlEvent, SourcePosition, TableName};

/// Where the source starts without a saved position.
pub(crate) fn start_at(start: &Start) -> StartAt {
    match start {
        Start::Latest => StartAt::Latest,
        Start::Earliest => StartAt::Earliest,
        Start::Gtid(set) => StartAt::Gtids(set.clone()),
        Start::File { name, offset } => StartAt::File {
            name: name.clone(),
            offset: *offset,
        },
        Start::Time(ms) => StartAt::Time(*ms),
    }
}

pub(crate) fn stop_at(until: &Until) -> StopAt {
    match until {
        Until::CaughtUp => StopAt::CaughtUp,
        Until::Gtid(set) => StopAt::Gtids(set.clone()),
        Until::File { name, offset } => StopAt::File {
            name: name.clone(),
            offset: *offset,
        },
        Until::Time(ms) => StopAt::Time(*ms),
    }
}

/// Options of a source of files, in a folder with or without an index file: where it
/// ends, and where it goes on.
pub fn files_options(
    changefeed: &Changefeed,
    (folder, index): (&Path, Option<&str>),
    until: Option<&Until>,
    resume: Option<SourcePosition>,
) -> FilesOptions {
    FilesOptions {
        folder: folder.to_owned(),
        index: index.map(str::to_owned),
        start: start_at(changefeed.start()),
        stop: until.map(stop_at),
        poll_interval: changefeed.source.follow.poll_interval.get(),
        event_bytes_max: changefeed.source.max_event_size.bytes(),
        resume,
    }
}

/// Whether the filter lets something that the statement writes through.
pub(crate) fn ddl_wanted(filter: &TableFilter, event: &DdlEvent) -> bool {
    let wanted = |name: &TableName| {
        if name.table.is_empty() {
            filter.may_match_schema(&name.schema)
        } else {
            filter.matches(name)
        }
    };
    event.writes.iter().chain(&event.makes).any(wanted)
}
