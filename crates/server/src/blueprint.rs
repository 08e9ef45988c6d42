//! What every generation of a run shares, and what it opens before any actor exists:
//! store, saved progress and sink, which must belong together.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use weir_changefeed::{MetaStore, Progress as SavedProgress, SharedMetaStore, TokenUpdate};
use weir_config::{Changefeed, MemoryPlan, SinkUri, SourceUri, Until};
use weir_dispatcher::TableLabels;
use weir_event_store::{LogOptions, LogReader, LogStore, LogWriter, Recovered, StoreReader};
use weir_filter::{Router, TableFilter};
use weir_sink::SinkCounters;
use weir_source::actor::{ReadProgress, SourceInput, SourceOptions};
use weir_source::server::resolve_start;
use weir_source::{AssemblerOptions, Skip};
use weir_types::{CommitTs, ErrorReport, LineageId, OrderKey, SourcePosition, TableName, Token};

use crate::ends::Ends;
use crate::error::ServerError;
use crate::filter_history::FilterHistory;
use crate::sinks::OpenedSink;
use crate::{resume, sinks, translate};

/// File of the data folder that the running process holds.
pub(crate) const LOCK_FILE: &str = "lock";
/// Folder of the store in the data folder.
pub(crate) const STORE_DIR: &str = "store";

/// How long a server that has been there once is waited for: ten years.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What every generation of a run shares.
pub(crate) struct Blueprint {
    pub(crate) changefeed: Changefeed,
    pub(crate) ends: Arc<Ends>,
    /// Both ends are one server.
    pub(crate) one_server: bool,
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
        let loaded = self.meta().load().map_err(|e| report(&e))?;
        let start = match loaded {
            Some(_) => None,
            None => self.start_position()?,
        };
        let (recovered, writer, reader) =
            LogStore::open(&self.store_dir, self.log_options(start)).map_err(|e| report(&e))?;
        let (mut saved, resumed) = self.saved_progress(&recovered, loaded)?;
        let tables = known_tables(&recovered, &reader, &saved)?;
        let begins = saved.tables.is_empty() && saved.schema == saved.start;
        let ahead = if begins { self.tables_there()? } else { Vec::new() };
        let sink = sinks::open(self, &recovered, resumed, &tables, &ahead)?;
        if begins {
            self.register_tied(&mut saved, &sink.components)?;
        }
        Ok(Opened {
            source: self.source_options(&recovered),
            writer,
            reader,
            saved,
            resumed,
            sink,
        })
    }

    /// Checks loaded progress, or writes a start. The start is durable before the source
    /// reads, so that a store with rows always has one.
    fn saved_progress(
        &self,
        recovered: &Recovered,
        loaded: Option<SavedProgress>,
    ) -> Result<(SavedProgress, bool), ErrorReport> {
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
        self.meta().init(&fresh).map_err(|e| report(&e))?;
        let position = recovered.position.as_ref().map(ToString::to_string);
        tracing::info!(
            start = %self.changefeed.start(),
            position = position.as_deref().unwrap_or("the first file"),
            "a new changefeed: rows from before its start are not copied yet"
        );
        Ok((fresh, false))
    }

    /// Tables that a database sink may get rows of although no statement makes them: those
    /// of the source, and those of the sink that have its names (the source may be files,
    /// or not show its tables).
    fn tables_there(&self) -> Result<Vec<TableName>, ErrorReport> {
        let SinkUri::Mysql(_) = &self.changefeed.sink.uri else {
            return Ok(Vec::new());
        };
        let mut tables = self.ends.wanted_tables(&self.changefeed, &self.filter)?;
        let of_sink = self.ends.tables_at_sink(&self.changefeed)?;
        tables.extend(
            of_sink
                .into_iter()
                .filter(|table| self.filter.matches(table) && self.router.route(table) == *table),
        );
        Ok(tables)
    }

    /// Tables that are tied to others from the beginning are registered before there is a
    /// row of theirs: one that is met only at its first row would find its partners ahead
    /// of it.
    fn register_tied(
        &self,
        saved: &mut SavedProgress,
        components: &[Vec<TableName>],
    ) -> Result<(), ErrorReport> {
        let update = tied_from(&saved.start, components);
        if update.changed.is_empty() {
            return Ok(());
        }
        saved.tables.extend(update.changed.iter().cloned());
        self.meta().save(&update).map_err(|e| report(&e))
    }

    fn meta(&self) -> MutexGuard<'_, dyn MetaStore + 'static> {
        self.meta.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn source_options(&self, recovered: &Recovered) -> SourceOptions {
        let mut input = self.source_input(recovered.position.clone());
        if let SourceInput::Server(options) = &mut input {
            // It has been reached before: an outage does not end the generation.
            options.endpoint.connect_timeout = FOR_EVER;
        }
        let event_bytes_max = self.changefeed.source.max_event_size.bytes();
        let assembler = AssemblerOptions {
            filter: Arc::clone(&self.filter),
            known: recovered.tables.iter().map(|(name, _)| name.clone()).collect(),
            next_attempt: recovered.next_attempt,
            transaction_buffer_bytes: to_usize(self.memory.transaction_buffer),
            event_bytes_max,
            skip: Skip::Nothing,
        };
        SourceOptions {
            changefeed: self.changefeed.id.to_string(),
            input,
            assembler,
            window_bytes: to_usize(self.memory.store_in_flight),
            progress: Arc::clone(&self.read),
        }
    }

    fn source_input(&self, resume: Option<SourcePosition>) -> SourceInput {
        let (changefeed, until) = (&self.changefeed, self.until.as_ref());
        match &changefeed.source.uri {
            SourceUri::BinlogFiles { dir, index } => {
                let folder = (dir.as_path(), index.as_deref());
                SourceInput::Files(translate::files_options(changefeed, folder, until, resume))
            }
            SourceUri::Mysql(address) => {
                SourceInput::Server(self.ends.server_options(changefeed, address, until, resume))
            }
        }
    }

    /// Where a new store begins, if its source is a server: found before anything is
    /// stored, so that the store knows from its beginning what came before it.
    fn start_position(&self) -> Result<Option<SourcePosition>, ErrorReport> {
        match self.source_input(None) {
            SourceInput::Files(_) => Ok(None),
            SourceInput::Server(options) => resolve_start(&options).map(Some).map_err(|e| report(&e)),
        }
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

/// All tables of the components, from the start of the changefeed on.
fn tied_from(start: &Token, components: &[Vec<TableName>]) -> TokenUpdate {
    let members = components.iter().flatten();
    TokenUpdate {
        schema: start.clone(),
        changed: members.map(|table| (table.clone(), start.clone())).collect(),
        removed: Vec::new(),
    }
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
