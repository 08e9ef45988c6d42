//! Reads binlog files event by event, payloads and compressed events opened, and shows
//! everything to a visitor.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use weir_binlog::header::HEADER_BYTES;
use weir_binlog::{
    BinlogError, BinlogFile, Event, EventHeader, EventType, FileOptions, FormatDescription, PayloadReader,
    RawEvent, Rows, Step, TransactionPayload, inflate_query, inflate_rows,
};
use weir_types::{ErrorReport, Flavor};

use super::tables::{Table, Tables};
use crate::error::CliError;
use crate::outcome::Failure;

/// Where an event lies.
#[derive(Clone, Copy)]
pub(crate) struct Located<'a> {
    /// Name of the file, without folder.
    pub(crate) file: &'a str,
    /// Offset in the file; inside a transaction payload that of the payload.
    pub(crate) offset: u64,
    /// Inside a transaction payload.
    pub(crate) inner: bool,
    /// Header of the event.
    pub(crate) header: EventHeader,
}

/// A row event of a known table, not compressed any more.
pub(crate) struct RowsSeen<'a> {
    pub(crate) table: &'a Table,
    pub(crate) rows: Rows<'a>,
    /// Bytes of its body as it was stored, if it was compressed.
    pub(crate) compressed_bytes: Option<u64>,
}

/// Whether to go on.
pub(crate) type Flow = Result<ControlFlow<()>, Failure>;

/// Go on.
pub(crate) const ON: Flow = Ok(ControlFlow::Continue(()));

/// What looks at the events.
pub(crate) trait Visitor {
    /// A file begins.
    fn file(&mut self, name: &str);
    /// An event that is no row event, or one of no known table.
    fn event(&mut self, at: &Located<'_>, event: &Event<'_>) -> Flow;
    /// A row event.
    fn rows(&mut self, at: &Located<'_>, seen: &RowsSeen<'_>) -> Flow;
}

/// Shows all events of the files, in order.
pub(crate) fn walk(files: &[PathBuf], visitor: &mut dyn Visitor) -> Result<(), Failure> {
    let mut walker = Walker {
        visitor,
        tables: Tables::new(Flavor::Mysql),
        format: None,
        max_event_bytes: FileOptions::default().max_event_bytes,
        scratch: Vec::new(),
    };
    for path in files {
        if walker.file(path)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The last part of a path.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Names the place of an error of the decoder.
pub(crate) fn located(file: &str, offset: u64, error: &BinlogError) -> Failure {
    let mut report = ErrorReport::new(error);
    report.message = format!("`{file}` at offset {offset}: {}", report.message);
    Failure(report)
}

struct Walker<'v> {
    visitor: &'v mut dyn Visitor,
    tables: Tables,
    /// The last format description.
    format: Option<FormatDescription>,
    max_event_bytes: u64,
    /// Inflated text or rows of one event.
    scratch: Vec<u8>,
}

impl Walker<'_> {
    fn file(&mut self, path: &Path) -> Flow {
        let name = name_of(path);
        self.visitor.file(&name);
        let mut file = BinlogFile::open(path, FileOptions::default())?;
        loop {
            let offset = file.offset();
            let (have, need) = match file.next().map_err(|error| located(&name, offset, &error))? {
                Step::Event(read) => {
                    let at = Located {
                        file: &name,
                        offset,
                        inner: false,
                        header: read.event.header,
                    };
                    if self.event(&at, &read.event)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    continue;
                }
                Step::NeedMore { have, need } => (have, need),
            };
            if have == 0 {
                return ON;
            }
            if file.was_in_use() {
                tracing::warn!(
                    file = name,
                    offset,
                    have,
                    "the file is open and ends inside an event"
                );
                return ON;
            }
            return Err(CliError::CutFile {
                file: name,
                offset,
                have,
                need,
            }
            .into());
        }
    }

    fn event(&mut self, at: &Located<'_>, raw: &RawEvent<'_>) -> Flow {
        let failed = |error: BinlogError| located(at.file, at.offset, &error);
        if at.header.type_number == EventType::FormatDescription.number() {
            let behind_header = raw.bytes.get(HEADER_BYTES..).unwrap_or_default();
            let format = FormatDescription::parse(behind_header).map_err(failed)?;
            if self
                .format
                .as_ref()
                .is_none_or(|known| known.flavor != format.flavor)
            {
                self.tables = Tables::new(format.flavor);
            }
            self.format = Some(format);
        }
        let event = Event::decode(&at.header, raw.body(), self.format.as_ref()).map_err(failed)?;
        match &event {
            Event::TableMap(map) => {
                self.tables.learn(map).map_err(failed)?;
                self.visitor.event(at, &event)
            }
            Event::Rows(rows) => self.rows_of(at, &event, rows, None),
            Event::RowsCompressed(rows) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                let inflated = inflate_rows(rows, self.max_event_bytes, &mut scratch).map_err(failed)?;
                let compressed = rows.body.len() as u64;
                let shown = self.rows_of(at, &event, &inflated, Some(compressed));
                self.scratch = scratch;
                shown
            }
            Event::QueryCompressed(query) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                let inflated = inflate_query(query, self.max_event_bytes, &mut scratch).map_err(failed)?;
                let shown = self
                    .visitor
                    .event(at, &Event::QueryCompressed(Box::new(inflated)));
                self.scratch = scratch;
                shown
            }
            Event::TransactionPayload(payload) => match self.visitor.event(at, &event)? {
                ControlFlow::Continue(()) => self.payload(at, payload),
                stop @ ControlFlow::Break(()) => Ok(stop),
            },
            _ => self.visitor.event(at, &event),
        }
    }

    /// Row events of no known table end a statement without rows, or follow a table map
    /// in an earlier file that was not read.
    fn rows_of(
        &mut self,
        at: &Located<'_>,
        event: &Event<'_>,
        rows: &Rows<'_>,
        compressed_bytes: Option<u64>,
    ) -> Flow {
        let Some(table) = self.tables.get(rows.table_id) else {
            return self.visitor.event(at, event);
        };
        let seen = RowsSeen {
            table: &table,
            rows: *rows,
            compressed_bytes,
        };
        self.visitor.rows(at, &seen)
    }

    fn payload(&mut self, at: &Located<'_>, payload: &TransactionPayload<'_>) -> Flow {
        let failed = |error: BinlogError| located(at.file, at.offset, &error);
        let mut reader = PayloadReader::new(payload, self.max_event_bytes).map_err(failed)?;
        while let Some(inner) = reader.next().map_err(failed)? {
            if inner.header.type_number == EventType::TransactionPayload.number() {
                // The server never nests them; a file that does could nest them for ever.
                return Err(failed(BinlogError::Malformed {
                    what: "transaction payload inside another",
                }));
            }
            let at = Located {
                inner: true,
                header: inner.header,
                ..*at
            };
            if self.event(&at, &inner)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        ON
    }
}
