//! From the changefeed file to the stages' own options.

use std::path::Path;
use std::sync::Arc;

use weir_config::{Changefeed, EnumAs, SinkUri, Start, Until, UtcOffset};
use weir_filter::{Router, TableFilter};
use weir_sink::{BlackholeConfig, FileConfig, SinkConfig};
use weir_source::files::{FilesOptions, StartAt, StopAt};
use weir_types::{DdlEvent, ErrorReport, LineageId, SourcePosition, TableName};

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

/// Options of the sink. `continued`: it has been opened in this lineage before.
pub(crate) fn sink_config(
    changefeed: &Changefeed,
    lineage: LineageId,
    continued: bool,
    router: &Arc<Router>,
) -> Option<SinkConfig> {
    Some(match &changefeed.sink.uri {
        SinkUri::File { dir } => {
            let file = &changefeed.sink.file;
            let mut config = FileConfig::new(dir.clone(), changefeed.id.clone(), lineage, Arc::clone(router));
            config.continued = continued;
            config.rotate_bytes = file.rotate_size.bytes();
            config.rotate_age = file.rotate_age.get();
            config.canal.enum_as = match file.enum_as {
                EnumAs::Text => weir_codec::EnumAs::Text,
                EnumAs::Index => weir_codec::EnumAs::Index,
            };
            config.canal.time_zone = codec_offset(file.time_zone);
            SinkConfig::File(config)
        }
        SinkUri::Blackhole { delay, stall } => {
            let mut config = BlackholeConfig::new(changefeed.id.clone());
            config.delay = *delay;
            config.stall = *stall;
            SinkConfig::Blackhole(config)
        }
        SinkUri::Mysql(_) => return None,
    })
}

/// Something that is not wired.
pub(crate) fn unsupported(what: &str) -> ErrorReport {
    ErrorReport::new(&weir_config::ConfigError::Unsupported {
        what: what.to_owned(),
        place: weir_config::Place { line: 1, column: 1 },
    })
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

/// The codec prints whole minutes; the configuration accepts nothing finer.
fn codec_offset(offset: UtcOffset) -> weir_codec::UtcOffset {
    weir_codec::UtcOffset::parse(&offset.to_string()).unwrap_or(weir_codec::UtcOffset::UTC)
}
