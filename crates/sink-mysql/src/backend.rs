//! What the spans of one sink share.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::Instant;
use weir_sink::contract::{Backend, PullLimits, SpanWriter, WorkerContext};
use weir_sink::{Result as SinkResult, SinkCounters, SpanTable};
use weir_types::{DispatcherId, TableName};

use crate::catalogue;
use crate::components::{components, folded};
use crate::connect::{Connector, ServerInfo};
use crate::ddl::DDL_SLOTS;
use crate::error::{MysqlSinkError, Result};
use crate::metrics::MysqlMetrics;
use crate::pool::{Link, Pool};
use crate::progress::Saved;
use crate::writer::MysqlSpan;

/// Threads that move bytes between Weir and the target.
const IO_THREADS: usize = 2;
/// How long what the target is at may still take once the sink stops. What is cut off
/// then is replayed: the next run ends its session first.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// The threads of the connections.
pub(crate) struct Engine(Option<Runtime>);

impl Engine {
    pub(crate) fn start() -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(IO_THREADS)
            .thread_name("weir-mysql-io")
            .enable_all();
        builder
            .build()
            .map(|runtime| Self(Some(runtime)))
            .map_err(MysqlSinkError::Threads)
    }

    /// Runs a future to its end on this thread. Not from within a future.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Option<F::Output> {
        self.0.as_ref().map(|runtime| runtime.block_on(future))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // May happen on a thread that must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Tables and spans of the changefeed, as far as the sink has heard of them.
#[derive(Default)]
struct Known {
    /// Source and target names.
    tables: BTreeMap<TableName, TableName>,
    /// Source tables of each open span.
    spans: HashMap<DispatcherId, Vec<TableName>>,
    /// Tables of each span of several that was opened, sorted.
    formed: BTreeSet<Vec<TableName>>,
    /// How often a DDL has changed what the catalogue says of a target table.
    changes: HashMap<TableName, u64>,
    /// What the log has said of the target already.
    told: BTreeSet<String>,
}

/// What the spans of one sink share.
pub(crate) struct Shared {
    pub(crate) connector: Connector,
    pub(crate) pool: Arc<Pool>,
    pub(crate) metrics: Arc<MysqlMetrics>,
    pub(crate) counters: Arc<SinkCounters>,
    pub(crate) info: ServerInfo,
    /// Progress at the target when this generation started.
    pub(crate) saved: Saved,
    ddl: Vec<Mutex<Option<Link>>>,
    known: Mutex<Known>,
    /// When the sink began to stop.
    stopping: watch::Sender<Option<Instant>>,
    /// Last, so that connections are dropped before.
    engine: Engine,
}

impl Shared {
    pub(crate) fn new(
        connector: Connector,
        metrics: Arc<MysqlMetrics>,
        info: ServerInfo,
        saved: Saved,
        counters: Arc<SinkCounters>,
        engine: Engine,
    ) -> Self {
        Self {
            pool: Pool::new(connector.clone(), Arc::clone(&metrics)),
            connector,
            metrics,
            counters,
            info,
            saved,
            ddl: (0..DDL_SLOTS).map(|_| Mutex::new(None)).collect(),
            known: Mutex::default(),
            stopping: watch::Sender::new(None),
            engine,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a future to its end, or until the sink has been stopping for long; only on
    /// threads of the sink's own.
    pub(crate) fn block_on<T, E: From<MysqlSinkError>>(
        &self,
        future: impl Future<Output = std::result::Result<T, E>>,
    ) -> std::result::Result<T, E> {
        let mut stopping = self.stopping.subscribe();
        let cut = async {
            let since = stopping.wait_for(Option::is_some).await;
            let since = since.ok().and_then(|since| *since).unwrap_or_else(Instant::now);
            tokio::time::sleep_until(since + STOP_GRACE).await;
        };
        let bounded = async {
            tokio::select! {
                biased;
                result = future => result,
                () = cut => Err(MysqlSinkError::Stopping.into()),
            }
        };
        self.engine
            .block_on(bounded)
            .unwrap_or_else(|| Err(MysqlSinkError::Stopping.into()))
    }

    /// A session that runs DDL, if one is free.
    pub(crate) fn ddl_slot(&self) -> Option<(usize, MutexGuard<'_, Option<Link>>)> {
        self.ddl
            .iter()
            .enumerate()
            .find_map(|(number, slot)| match slot.try_lock() {
                Ok(guard) => Some((number, guard)),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => {
                    let mut guard = poisoned.into_inner();
                    // What a panicked thread left in the session is not known.
                    *guard = None;
                    Some((number, guard))
                }
                Err(std::sync::TryLockError::WouldBlock) => None,
            })
    }

    /// Learns of tables.
    pub(crate) fn know(&self, tables: impl IntoIterator<Item = (TableName, TableName)>) {
        self.known().tables.extend(tables);
    }

    /// What the catalogue said of these target tables may be out of date.
    pub(crate) fn forget<'a>(&self, targets: impl IntoIterator<Item = &'a TableName>) {
        let mut known = self.known();
        for target in targets {
            *known.changes.entry(self.fold(target)).or_default() += 1;
        }
    }

    /// Whether the log is to say something that it has not said before.
    pub(crate) fn tells(&self, what: &str) -> bool {
        self.known().told.insert(what.to_owned())
    }

    /// Changes with each DDL of a target table.
    pub(crate) fn changes_of(&self, target: &TableName) -> u64 {
        let target = self.fold(target);
        self.known().changes.get(&target).copied().unwrap_or_default()
    }

    fn fold(&self, name: &TableName) -> TableName {
        folded(name, self.info.fold_names)
    }

    /// Whether another schema of the source has tables in a schema of the target.
    pub(crate) fn schema_is_shared(&self, source: &TableName, target: &TableName) -> bool {
        let known = self.known();
        let same = |name: &TableName| self.fold(name).schema == self.fold(target).schema;
        known
            .tables
            .iter()
            .any(|(known_source, known_target)| same(known_target) && known_source.schema != source.schema)
    }

    /// Groups of tables that foreign keys tie together at the target now.
    pub(crate) async fn tied(&self, link: &mut Link) -> Result<Vec<Vec<TableName>>> {
        let tables: Vec<(TableName, TableName)> = {
            let known = self.known();
            known.tables.iter().map(|(s, t)| (s.clone(), t.clone())).collect()
        };
        let schemas: BTreeSet<&str> = tables.iter().map(|(_, target)| &*target.schema).collect();
        let keys = catalogue::foreign_keys(&mut link.conn, schemas).await?;
        Ok(components(&tables, &keys, self.info.fold_names))
    }

    /// Whether the tables that foreign keys tie together are others than the spans have.
    pub(crate) async fn needs_reform(&self, link: &mut Link) -> Result<bool> {
        let tied = self.tied(link).await?;
        let known = self.known();
        Ok(!known.formed.iter().eq(&tied))
    }

    fn enter(&self, dispatcher: DispatcherId, tables: &[SpanTable]) -> Result<()> {
        let mut known = self.known();
        for table in tables {
            let target = self.fold(&table.target);
            let taken = known.spans.values().flatten().any(|source| {
                *source != table.source
                    && known
                        .tables
                        .get(source)
                        .is_some_and(|other| self.fold(other) == target)
            });
            if taken {
                return Err(MysqlSinkError::TargetInUse {
                    target: table.target.clone(),
                });
            }
        }
        for table in tables {
            known.tables.insert(table.source.clone(), table.target.clone());
        }
        let mut sources: Vec<TableName> = tables.iter().map(|table| table.source.clone()).collect();
        sources.sort();
        if sources.len() > 1 {
            known.formed.insert(sources.clone());
        }
        known.spans.insert(dispatcher, sources);
        Ok(())
    }

    /// A span has ended.
    pub(crate) fn leave(&self, dispatcher: DispatcherId) {
        self.known().spans.remove(&dispatcher);
    }
}

/// The MySQL sink behind the scheduler.
pub(crate) struct MysqlBackend {
    pub(crate) shared: Arc<Shared>,
}

impl Backend for MysqlBackend {
    fn pull_limits(&self) -> PullLimits {
        PullLimits::default()
    }

    fn open(&self, dispatcher: DispatcherId, tables: &[SpanTable]) -> SinkResult<Box<dyn SpanWriter>> {
        self.shared.enter(dispatcher, tables)?;
        Ok(Box::new(MysqlSpan::new(
            Arc::clone(&self.shared),
            dispatcher,
            tables,
        )))
    }

    fn stopping(&self) {
        self.shared.stopping.send_replace(Some(Instant::now()));
    }

    fn commit(&self, _: &mut WorkerContext) -> SinkResult<()> {
        // Each pull is committed by itself.
        Ok(())
    }
}
