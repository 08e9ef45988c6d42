//! Checks before a run: every requirement names setting, expected and actual.

use std::sync::Arc;

use weir_binlog::error::BinlogError;
use weir_filter::TableFilter;
use weir_types::{AttemptId, Check};

use crate::assembler::AssemblerOptions;
use crate::error::SourceError;
use crate::files::{End, FilesOptions, FilesReader, Progress, StartAt, StopAt};
use crate::skip::Skip;

/// Bytes of binlog that are read to find out how it is written.
pub const SAMPLE_BYTES: u64 = 32 << 20;
/// Memory for the sample's transactions.
const SAMPLE_BUFFER_BYTES: usize = 4 << 20;

fn message(error: &SourceError) -> String {
    weir_types::ErrorReport::new(error).message
}

/// Checks the folder, the start, and a sample of the events behind the start.
pub fn preflight(options: &FilesOptions, filter: &Arc<TableFilter>) -> Vec<Check> {
    let expected = "a folder with binlog files";
    let index = match options.list() {
        Ok(index) => index,
        Err(error) => {
            return vec![Check::new(
                "binlog files",
                "source.uri",
                expected,
                message(&error),
                false,
            )];
        }
    };
    let files = format!("{} files", index.names().len());
    let mut checks = vec![Check::new("binlog files", "source.uri", expected, files, true)];
    let sample = FilesOptions {
        stop: Some(StopAt::CaughtUp),
        // The end of the source has no events to look at.
        start: match &options.start {
            StartAt::Latest => StartAt::Earliest,
            other => other.clone(),
        },
        ..options.clone()
    };
    let settings = AssemblerOptions {
        filter: Arc::clone(filter),
        known: Vec::new(),
        next_attempt: AttemptId(1),
        transaction_buffer_bytes: SAMPLE_BUFFER_BYTES,
        event_bytes_max: options.event_bytes_max,
        skip: Skip::Nothing,
    };
    let expected = "a place that the files still hold";
    match FilesReader::open(sample, settings) {
        Ok(mut reader) => {
            let place = reader.position();
            let actual = format!("{}:{}", place.file, place.offset);
            checks.push(Check::new("start", "source.start", expected, actual, true));
            checks.extend(events(&mut reader));
        }
        Err(error) => checks.push(Check::new(
            "start",
            "source.start",
            expected,
            message(&error),
            false,
        )),
    }
    checks
}

/// Reads the sample.
fn events(reader: &mut FilesReader) -> Vec<Check> {
    let mut failure = None;
    while reader.bytes().0 < SAMPLE_BYTES {
        match reader.step(u64::MAX, &mut |_, _| true) {
            Ok(Progress::More) => {}
            Ok(Progress::Dry | Progress::Ended(End::Reached | End::Refused)) => break,
            Ok(Progress::Ended(End::Cut(error))) | Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let counts = reader.counts();
    let seen = format!(
        "{} row events in {} transactions",
        counts.row_events, counts.transactions
    );
    let text = |matching: fn(&SourceError) -> bool| failure.as_ref().filter(|e| matching(e)).map(message);
    let row_format = text(|e| matches!(e, SourceError::StatementFormat { .. }));
    let metadata = text(|e| {
        matches!(
            e,
            SourceError::Binlog {
                source: BinlogError::NoColumnNames { .. },
                ..
            }
        )
    });
    let other = failure
        .as_ref()
        .filter(|_| row_format.is_none() && metadata.is_none())
        .map(message);
    let row = |name, setting, expected: &str, found: Option<String>, fine: &str| {
        let ok = found.is_none();
        Check::new(
            name,
            setting,
            expected,
            found.unwrap_or_else(|| fine.to_owned()),
            ok,
        )
    };
    vec![
        row(
            "row format",
            "binlog_format",
            "ROW",
            row_format,
            "ROW in the events read",
        ),
        row(
            "row metadata",
            "binlog_row_metadata",
            "FULL",
            metadata,
            "FULL in the events read",
        ),
        row(
            "events",
            "binlog files",
            "events that can be replicated",
            other,
            &seen,
        ),
    ]
}
