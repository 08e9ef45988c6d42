//! Writes one span.
//!
//! `write` gathers the row events of a pull, `settle` executes them: those of a keyed
//! table as groups that run side by side on several connections, all of which must
//! commit; those of exact tables as one transaction with the tables' progress. So nothing
//! of one pull is left when the next one begins, and what a pull reports is durable.
//!
//! A failure that passes is tried again here, for ever. After a lost connection it is not
//! known what was committed: groups are made anew, so that they may run over any later
//! state; of an exact transaction the tables' progress tells. Before that the session that
//! was lost is ended, since the slot's next connection takes its lock.
//!
//! Memory of a pull: its row events (4 MiB, or one larger event), about three times as
//! much as SQL text, and 1 MiB for each connection in use.

use std::sync::Arc;

use weir_codec::RowCounts;
use weir_protocol::collector::EventBatch;
use weir_sink::contract::{DdlDone, Reached, SpanWriter, WorkerContext};
use weir_sink::{Result as SinkResult, SpanTable};
use weir_types::{DdlEvent, DdlKind, DispatcherId, OrderKey, TableName, TableVersion};

use crate::attempts::{Attempts, Failure};
use crate::backend::Shared;
use crate::catalogue;
use crate::ddl;
use crate::error::{MysqlSinkError, Result};
use crate::execute::{Transaction, packet_max};
use crate::plan::{Mode, TablePlan};
use crate::pool::Lease;
use crate::progress;
use crate::reply::Retry;
use crate::rounds::run_round;
use crate::rows::{ExactWork, KeyedWork, Limits, Pull};

/// A table of the span.
struct Table {
    source: TableName,
    target: TableName,
    /// Rows up to here are at the target.
    after: OrderKey,
    plan: Option<Planned>,
    /// It was said that its engine has no transactions.
    warned: bool,
}

/// A plan, and what it was made from.
struct Planned {
    plan: Arc<TablePlan>,
    changes: u64,
}

/// Writer of one span.
pub(crate) struct MysqlSpan {
    shared: Arc<Shared>,
    dispatcher: DispatcherId,
    tables: Vec<Table>,
    pull: Pull,
    durable: OrderKey,
    /// Last key that was handed over.
    last: OrderKey,
    /// The last lock wait is not over: no connection but one.
    alone: bool,
}

impl MysqlSpan {
    pub(crate) fn new(shared: Arc<Shared>, dispatcher: DispatcherId, tables: &[SpanTable]) -> Self {
        let tables = tables
            .iter()
            .map(|table| Table {
                source: table.source.clone(),
                target: table.target.clone(),
                after: table.after.max(shared.saved.of_target(&table.target)),
                plan: None,
                warned: false,
            })
            .collect();
        Self {
            shared,
            dispatcher,
            tables,
            pull: Pull::default(),
            durable: OrderKey::MIN,
            last: OrderKey::MIN,
            alone: false,
        }
    }

    /// Index and plan of the table of a version.
    fn plan(
        &mut self,
        version: &Arc<TableVersion>,
        worker: &WorkerContext,
    ) -> Result<(usize, Arc<TablePlan>)> {
        let at = self.tables.iter().position(|table| table.source == version.name);
        let at = at.ok_or_else(|| MysqlSinkError::WrongTable {
            found: version.name.clone(),
        })?;
        let Some(table) = self.tables.get_mut(at) else {
            return Err(MysqlSinkError::Panicked);
        };
        let changes = self.shared.changes_of(&table.target);
        if let Some(planned) = &table.plan {
            let known = planned.plan.version();
            if planned.changes == changes && (Arc::ptr_eq(known, version) || known == version) {
                return Ok((at, Arc::clone(&planned.plan)));
            }
        }
        let target = read_table(&self.shared, &table.target, worker)?;
        let plan = Arc::new(TablePlan::new(version, &target)?);
        if !target.transactional && !table.warned && plan.mode() != Mode::Keyed {
            table.warned = true;
            tracing::warn!(table = %table.target,
                "the table has no key, and its engine no transactions: after a crash rows may be there twice");
        }
        table.plan = Some(Planned {
            plan: Arc::clone(&plan),
            changes,
        });
        Ok((at, plan))
    }

    fn gather(&mut self, batch: &EventBatch, worker: &WorkerContext) -> Result<()> {
        for slice in &batch.slices {
            let (at, plan) = self.plan(&slice.block.version, worker)?;
            let other_mode = self
                .pull
                .tables()
                .first()
                .is_some_and(|first| (first.plan.mode() == Mode::Keyed) != (plan.mode() == Mode::Keyed));
            if other_mode && self.tables.len() == 1 {
                self.execute(worker)?;
            }
            let after = self.tables.get(at).map_or(OrderKey::MIN, |table| table.after);
            self.pull.push(slice.clone(), &plan, after);
        }
        self.last = self.last.max(batch.last);
        Ok(())
    }

    /// Writes what was gathered.
    fn execute(&mut self, worker: &WorkerContext) -> Result<()> {
        let pull = std::mem::take(&mut self.pull);
        if !pull.is_empty() {
            let keyed = self.tables.len() == 1 && pull.tables().iter().all(|t| t.plan.mode() == Mode::Keyed);
            let counts = if keyed {
                self.execute_keyed(&pull, worker)?
            } else {
                self.execute_exact(&pull, worker)?
            };
            let bytes = pull.bytes() as u64;
            worker.count_rows(counts, bytes);
            self.shared.counters.add_rows(counts, bytes);
            self.durable = self.durable.max(pull.last());
        }
        Ok(())
    }

    fn limits(&self, groups: usize) -> Limits {
        Limits {
            groups,
            packet_max: packet_max(self.shared.info.max_allowed_packet),
        }
    }

    fn lease(&self) -> Result<Lease> {
        self.shared.pool.take().ok_or(MysqlSinkError::Panicked)
    }

    fn execute_keyed(&mut self, pull: &Pull, worker: &WorkerContext) -> Result<RowCounts> {
        let mut counts = RowCounts::default();
        let replayed = pull.first() <= self.shared.connector.config().replay_upto;
        let mut leases = vec![self.lease()?];
        for table in 0..pull.tables().len() {
            let Some(mut work) = KeyedWork::gather(pull, table)? else {
                continue;
            };
            let target = pull.tables().get(table).map(|table| table.plan.target().clone());
            let targets: Arc<[TableName]> = (0..=table).filter_map(|_| target.clone()).collect();
            self.write_keyed(&mut work, &targets, replayed, &mut leases, worker)?;
            let of_table = work.counts();
            counts.inserts += of_table.inserts;
            counts.updates += of_table.updates;
            counts.deletes += of_table.deletes;
        }
        Ok(counts)
    }

    fn write_keyed(
        &mut self,
        work: &mut KeyedWork<'_>,
        targets: &Arc<[TableName]>,
        mut replay: bool,
        leases: &mut Vec<Lease>,
        worker: &WorkerContext,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let name = targets.first().map_or_else(String::new, ToString::to_string);
        let mut attempts = Attempts::new(format!("rows of `{name}`"));
        let most = if self.alone { 1 } else { shared.pool.share() + 1 };
        let mut groups = work.groups(self.limits(most), replay)?;
        if groups.len() > leases.len() {
            leases.extend(shared.pool.borrow(groups.len() - leases.len()));
        }
        loop {
            let round = run_round(&shared, leases, groups, targets)?;
            let Some(failure) = round.failure else {
                break;
            };
            let lost = failure.lost();
            if matches!(failure, Failure::Retry(Retry::Locked, _)) {
                self.alone = true;
                // Nobody knows the outcome of a lost one: those stay until they are opened
                // again.
                leases.truncate(1);
            }
            attempts.after(failure, &shared, worker)?;
            if lost {
                replay = true;
                reopen(&shared, leases, &mut attempts, worker)?;
                groups = work.groups(self.limits(most), replay)?;
            } else {
                groups = round.left;
            }
        }
        attempts.succeeded(&shared);
        self.alone = false;
        Ok(())
    }

    fn execute_exact(&mut self, pull: &Pull, worker: &WorkerContext) -> Result<RowCounts> {
        let work = ExactWork::new(pull, self.limits(1))?;
        if work.statements.is_empty() {
            return Ok(work.counts);
        }
        let config = self.shared.connector.config();
        let targets: Vec<TableName> = pull
            .tables()
            .iter()
            .map(|table| table.plan.target().clone())
            .collect();
        let progress = progress::upsert(
            config,
            pull.tables()
                .iter()
                .map(|table| (&table.plan.version().name, table.plan.target(), table.last)),
        );
        let name = targets.first().map_or_else(String::new, ToString::to_string);
        let mut attempts = Attempts::new(format!("rows of `{name}`"));
        let mut lease = self.lease()?;
        let mut unknown = false;
        loop {
            let transaction = Transaction {
                statements: &work.statements,
                targets: &targets,
                last: progress.as_deref(),
            };
            let check = unknown.then_some(pull);
            let attempt = exact_attempt(&self.shared, &mut lease, &transaction, check);
            match self.shared.block_on(attempt) {
                Ok(()) => break,
                Err(failure) => {
                    if failure.lost() {
                        unknown = true;
                        lease.discard();
                    }
                    attempts.after(failure, &self.shared, worker)?;
                }
            }
        }
        attempts.succeeded(&self.shared);
        Ok(work.counts)
    }
}

/// Reads a table at the target.
fn read_table(
    shared: &Shared,
    target: &TableName,
    worker: &WorkerContext,
) -> Result<crate::target::TargetTable> {
    let mut attempts = Attempts::new(format!("the definition of `{target}`"));
    let mut lease = shared.pool.take().ok_or(MysqlSinkError::Panicked)?;
    loop {
        let read = async {
            let link = lease.link().await?;
            catalogue::table(&mut link.conn, &link.info, target).await
        };
        match shared.block_on::<_, MysqlSinkError>(read) {
            Ok(table) => {
                attempts.succeeded(shared);
                return Ok(table);
            }
            Err(error) => {
                let failure = Failure::of(error);
                if failure.lost() {
                    lease.discard();
                }
                attempts.after(failure, shared, worker)?;
            }
        }
    }
}

/// One attempt at an exact transaction. `check`: an attempt before may have committed.
async fn exact_attempt(
    shared: &Shared,
    lease: &mut Lease,
    transaction: &Transaction<'_>,
    check: Option<&Pull>,
) -> std::result::Result<(), Failure> {
    let link = lease.link().await.map_err(Failure::of)?;
    if let Some(table) = check.and_then(|pull| pull.tables().first()) {
        let config = shared.connector.config();
        let reached = progress::read_covering(&mut link.conn, config, table.plan.target()).await;
        if reached.map_err(Failure::of)? >= table.last {
            return Ok(());
        }
    }
    transaction.run(link, &shared.metrics).await
}

/// Opens lost connections anew, so that what they did has ended.
fn reopen(
    shared: &Shared,
    leases: &mut [Lease],
    attempts: &mut Attempts,
    worker: &WorkerContext,
) -> Result<()> {
    for lease in leases {
        loop {
            let opened = async { lease.link().await.map(drop) };
            match shared.block_on::<_, MysqlSinkError>(opened) {
                Ok(()) => break,
                Err(error) => attempts.after(Failure::of(error), shared, worker)?,
            }
        }
    }
    Ok(())
}

impl SpanWriter for MysqlSpan {
    fn write(&mut self, batch: &EventBatch, worker: &mut WorkerContext) -> SinkResult<()> {
        Ok(self.gather(batch, worker)?)
    }

    fn settle(&mut self, worker: &mut WorkerContext) -> SinkResult<()> {
        self.execute(worker)?;
        self.durable = self.durable.max(self.last);
        Ok(())
    }

    fn flush(&mut self, worker: &mut WorkerContext) -> SinkResult<()> {
        self.settle(worker)
    }

    fn ddl(&mut self, key: OrderKey, event: &DdlEvent, worker: &mut WorkerContext) -> SinkResult<DdlDone> {
        self.settle(worker)?;
        if event.kind == DdlKind::ImplicitCreate {
            return Ok(DdlDone::default());
        }
        Ok(ddl::run(&self.shared, key, event, worker)?)
    }

    fn tick(&mut self, _: &mut WorkerContext) -> SinkResult<()> {
        Ok(())
    }

    fn reached(&mut self) -> Reached {
        Reached {
            durable: self.durable,
            needs_commit: false,
        }
    }

    fn due(&self) -> Option<u64> {
        None
    }
}

impl Drop for MysqlSpan {
    fn drop(&mut self) {
        self.shared.leave(self.dispatcher);
    }
}
