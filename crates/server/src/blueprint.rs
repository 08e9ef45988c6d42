//! What every generation of a run shares, and what it opens before any actor exists:
//! store, saved progress and sink, which must belong together.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use weir_changefeed::{Progress as SavedProgress, SharedMetaStore};
use weir_config::{Changefeed, MemoryPlan, Until};
use weir_dispatcher::TableLabels;
use weir_event_store::{LogOptions, LogReader, LogStore, LogWriter, Recovered, StoreReader};
use weir_filter::{Router, TableFilter};
use weir_sink::SinkCounters;
use weir_source::actor::{ReadProgress, SourceOptions};
use weir_source::{AssemblerOptions, Skip};
use weir_types::{CommitTs, ErrorReport, LineageId, OrderKey, SourcePosition, TableName, Token};

use crate::error::ServerError;
use crate::filter_history::FilterHistory;
use crate::sinks::OpenedSink;
use crate::{resume, sinks, translate};

/// What every generation of a run shares.
pub(crate) struct Blueprint {
    pub(crate) changefeed: Changefeed,
    pub(crate) filter: Arc<TableFilter>,
    pub(crate) history: Arc<FilterHistory>,
    pub(crate) router: Arc<Router>,
    pub(crate) memory: MemoryPlan,
    pub(crate) store_dir: PathBuf,
    pub(crate) meta: SharedMetaStore,
    pub(crate) until: Option<Until>,
    pub(crate) counters: Arc<SinkCounters>,
    pub(crate) labels: TableLabels,
    pub(crate) read: Arc<ReadProgress>,
}

/// The parts that are opened before any actor exists.
pub(crate) struct Opened {
    pub(crate) writer: LogWriter,
    pub(crate) reader: Arc<LogReader>,
    pub(crate) saved: SavedProgress,
    /// There was progress before this generation.
    pub(crate) resumed: bool,
    pub(crate) sink: OpenedSink,
    pub(crate) source: SourceOptions,
}

fn report(error: &dyn weir_types::Classified) -> ErrorReport {
    ErrorReport::new(error)
}

impl Blueprint {
    fn log_options(&self, start: Option<SourcePosition>) -> LogOptions {
        LogOptions {
            segment_bytes: self.changefeed.store.segment_size.bytes(),
            memory_bytes: to_usize(self.memory.store_tail),
            index_bytes: to_usize(self.memory.store_index),
            disk_quota: self.changefeed.store.disk_quota.bytes(),
            start,
            ..LogOptions::default()
        }
    }

    /// Opens store, saved progress and sink, and checks that they belong together.
    /// Blocks: on the disk, and on servers at both ends.
    pub(crate) fn open(&self) -> Result<Opened, ErrorReport> {
        let (recovered, writer, reader) =
            LogStore::open(&self.store_dir, self.log_options(None)).map_err(|e| report(&e))?;
        let (saved, resumed) = self.saved_progress(&recovered)?;
        let tables = known_tables(&recovered, &reader, &saved)?;
        let sink = sinks::open(self, &recovered, resumed, &tables)?;
        Ok(Opened {
            source: self.source_options(&recovered)?,
            writer,
            reader,
            saved,
            resumed,
            sink,
        })
    }

    /// Loads saved progress, or writes a start. The start is durable before the source
    /// reads, so that a store with rows always has one.
    fn saved_progress(&self, recovered: &Recovered) -> Result<(SavedProgress, bool), ErrorReport> {
        let mut meta = self
            .meta
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let loaded = meta.load().map_err(|e| report(&e))?;
        if let Some(saved) = loaded {
            if saved.start.lineage != recovered.lineage {
                return Err(report(&ServerError::LineageMismatch {
                    saved: saved.start.lineage.to_string(),
                    store: recovered.lineage.to_string(),
                }));
            }
            resume::check_saved(&saved, recovered.resolved).map_err(|e| report(&e))?;
            let resumed = recovered.resolved > CommitTs::ZERO;
            return Ok((saved, resumed));
        }
        if recovered.resolved > CommitTs::ZERO {
            let resolved = recovered.resolved;
            return Err(report(&ServerError::ProgressMissing { resolved }));
        }
        let fresh = SavedProgress::fresh(&beginning(recovered.lineage), []);
        meta.init(&fresh).map_err(|e| report(&e))?;
        Ok((fresh, false))
    }

    fn source_options(&self, recovered: &Recovered) -> Result<SourceOptions, ErrorReport> {
        let event_bytes_max = self.changefeed.source.max_event_size.bytes();
        let assembler = AssemblerOptions {
            filter: Arc::clone(&self.filter),
            known: recovered.tables.iter().map(|(name, _)| name.clone()).collect(),
            next_attempt: recovered.next_attempt,
            transaction_buffer_bytes: to_usize(self.memory.transaction_buffer),
            event_bytes_max,
            skip: Skip::Nothing,
        };
        let files =
            translate::files_options(&self.changefeed, self.until.as_ref(), recovered.position.clone());
        Ok(SourceOptions {
            changefeed: self.changefeed.id.to_string(),
            files: files.ok_or_else(|| translate::unsupported("source.uri = mysql://"))?,
            assembler,
            window_bytes: to_usize(self.memory.store_in_flight),
            progress: Arc::clone(&self.read),
        })
    }
}

/// Every table that may be registered: those that have a token, and all that the DDL
/// history behind the schema's token names (a table may have been made, filled and
/// dropped since the last save).
fn known_tables(
    recovered: &Recovered,
    reader: &LogReader,
    saved: &SavedProgress,
) -> Result<HashSet<TableName>, ErrorReport> {
    let mut tables: HashSet<TableName> = saved.tables.keys().cloned().collect();
    let upto = OrderKey::end_of(recovered.resolved);
    let history = reader.ddls(saved.schema.key, upto, 0).map_err(|e| report(&e))?;
    for (_, event) in &history.ddls {
        tables.extend(event.writes.iter().chain(&event.makes).cloned());
    }
    tables.retain(|table| !table.table.is_empty());
    Ok(tables)
}

/// The token before everything.
pub(crate) fn beginning(lineage: LineageId) -> Token {
    Token {
        lineage,
        key: OrderKey::MIN,
        position: None,
        gtid: None,
        open_xa: Vec::new(),
    }
}

pub(crate) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
