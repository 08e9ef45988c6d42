//! `weir binlog cat SOURCE`: one line per event, as it is read.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::ops::ControlFlow;

use serde_json::{Map, Value, json};
use weir_binlog::{Event, RowImages};
use weir_codec::{CanalJson, CanalOptions, CodecError};
use weir_config::format_rfc3339;
use weir_types::{CommitTs, OrderKey, RowEvent, RowKind};

use super::tables::Layout;
use super::walk::{Flow, Located, ON, RowsSeen, Visitor, walk};
use super::{describe, files};
use crate::args::{CatArgs, Output};
use crate::error::CliError;
use crate::outcome::{Failure, Outcome};

/// Bytes collected before a write.
const BUFFER_BYTES: usize = 64 * 1024;

/// Prints all events.
pub(crate) fn run(output: Output, args: &CatArgs) -> Result<Outcome, Failure> {
    let files = files::resolve(&args.source)?;
    let mut cat = Cat {
        out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()),
        json: output == Output::Json,
        with_rows: args.rows,
        ordinal: 0,
    };
    let walked = walk(&files, &mut cat);
    // What was read before an error is shown before it.
    let flushed = cat.out.flush();
    walked?;
    match flushed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Stdout(error).into()),
        _ => Ok(Outcome::silent()),
    }
}

struct Cat {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    with_rows: bool,
    /// Row events since the last start of a group.
    ordinal: u32,
}

impl Cat {
    fn line(&mut self, at: &Located<'_>, details: Map<String, Value>) -> Flow {
        let time = format_rfc3339(u64::from(at.header.timestamp) * 1_000);
        let result = if self.json {
            let mut object = Map::new();
            object.insert("file".to_owned(), json!(at.file));
            object.insert("offset".to_owned(), json!(at.offset));
            object.insert("in-payload".to_owned(), json!(at.inner));
            object.insert("type".to_owned(), json!(at.header.type_name()));
            object.insert("bytes".to_owned(), json!(at.header.event_length));
            object.insert("time".to_owned(), json!(time));
            object.insert("server-id".to_owned(), json!(at.header.server_id));
            object.extend(details);
            writeln!(self.out, "{}", Value::Object(object))
        } else {
            let details: Vec<String> = details.iter().filter_map(shown).collect();
            writeln!(
                self.out,
                "{}:{}{} {} {} {time} {}",
                at.file,
                at.offset,
                if at.inner { "+" } else { "" },
                at.header.type_name(),
                at.header.event_length,
                details.join(" "),
            )
        };
        wrote(result)
    }

    /// Prints every row of an event as canal-json. Its order key stands for the event's
    /// time and its place in the group: there is no store that gives another.
    fn print_rows(&mut self, at: &Located<'_>, layout: &Layout, seen: &RowsSeen<'_>) -> Flow {
        let name = &layout.version.name;
        let mut encoder = CanalJson::new(CanalOptions::default()).table(&layout.version, name)?;
        let key = OrderKey::new(
            CommitTs::from_millis(u64::from(at.header.timestamp) * 1_000),
            self.ordinal,
        );
        let event = RowEvent {
            key,
            kind: seen.rows.kind,
            flags: seen.rows.block_flags(),
            body: seen.rows.body,
            offset: 0,
            end: seen.rows.body.len(),
        };
        match encoder.write_event(&mut self.out, &event, &mut RowImages::default()) {
            Ok(_) => ON,
            Err(CodecError::Output(error)) => wrote(Err(error)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Goes on after a write. A reader that went away (`| head`) wants no more: the end,
/// and no error.
fn wrote(result: io::Result<()>) -> Flow {
    match result {
        Ok(()) => ON,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(CliError::Stdout(error).into()),
    }
}

/// A detail as text; none for one that says nothing.
fn shown((key, value): (&String, &Value)) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(format!("{key}={text}")),
        other => Some(format!("{key}={other}")),
    }
}

const fn kind_name(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Insert => "insert",
        RowKind::Update => "update",
        RowKind::Delete => "delete",
    }
}

impl Visitor for Cat {
    fn file(&mut self, _name: &str) {}

    fn event(&mut self, at: &Located<'_>, event: &Event<'_>) -> Flow {
        if matches!(
            event,
            Event::Gtid(_) | Event::AnonymousGtid(_) | Event::MariadbGtid(_)
        ) {
            self.ordinal = 0;
        }
        self.line(at, describe::details(event, self.with_rows))
    }

    fn rows(&mut self, at: &Located<'_>, seen: &RowsSeen<'_>) -> Flow {
        self.ordinal += 1;
        let mut details = Map::new();
        details.insert("table".to_owned(), json!(seen.table.name));
        details.insert("kind".to_owned(), json!(kind_name(seen.rows.kind)));
        details.insert("rows".to_owned(), json!(seen.table.count(&seen.rows)?));
        details.insert("statement-end".to_owned(), json!(seen.rows.is_statement_end()));
        if self.line(at, details)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        match &seen.table.layout {
            Some(layout) if self.with_rows => self.print_rows(at, layout, seen),
            _ => ON,
        }
    }
}
