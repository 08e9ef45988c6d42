//! One changefeed in the foreground: generations of its pipeline, until it ends, is
//! stopped, or fails for good.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_changefeed::{Command, GetStatus, MaintainerEvent, RedbMetaStore, State, StateMachine};
use weir_dispatcher::TableLabels;
use weir_source::actor::ReadProgress;
use weir_types::{Classified, ErrorClass, ErrorReport, Generation};

use crate::blueprint::{Blueprint, LOCK_FILE, STORE_DIR};
use crate::contact::{Answer, Contact, RETRY_INTERVAL, first_contact, off_thread, stopped};
use crate::error::ServerError;
use crate::filter_history::FilterHistory;
use crate::flow_page::FlowReporter;
use crate::http;
use crate::options::{Progress, RunOptions, RunSummary, StopReason};
use crate::owner::OwnerEvent;
use crate::pipeline::Pipeline;
use crate::watched::{Ended, Watched};

/// Time between two looks at the counters for the progress bar and `/debug/flow`.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Longest time between two attempts to open store and sink.
const OPEN_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Runs a changefeed. Blocks the thread, which becomes the control thread.
///
/// # Errors
/// A definite error, or one about the configuration. Transient ones are retried.
pub fn run(options: RunOptions) -> Result<RunSummary, ErrorReport> {
    actix::System::new().block_on(run_changefeed(options))
}

fn report(error: &dyn Classified) -> ErrorReport {
    ErrorReport::new(error)
}

/// Makes the data folder and locks it; the lock lives as long as the file.
fn lock(data_dir: &Path) -> Result<File, ServerError> {
    let at = |source| ServerError::DataDir {
        path: data_dir.to_owned(),
        source,
    };
    fs::create_dir_all(data_dir).map_err(at)?;
    let file = File::create(data_dir.join(LOCK_FILE)).map_err(at)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ServerError::Locked {
            path: data_dir.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(at(source)),
    }
}

/// What all generations share, once both ends have been reached.
fn blueprint(options: &RunOptions, contact: Contact) -> Result<Blueprint, ErrorReport> {
    let changefeed = contact.changefeed;
    let filter = changefeed.table_filter().map_err(|e| report(&e))?;
    let router = changefeed.router().map_err(|e| report(&e))?;
    let memory = changefeed.memory_plan().ok_or_else(|| {
        let quota = changefeed.flow_control.memory_quota;
        report(&ServerError::MemoryQuota {
            quota: quota.to_string(),
        })
    })?;
    let history = FilterHistory::load(&options.data_dir, &changefeed).map_err(|e| report(&e))?;
    let meta = RedbMetaStore::open(&options.data_dir.join("progress.redb")).map_err(|e| report(&e))?;
    Ok(Blueprint {
        ends: contact.ends,
        one_server: contact.one_server,
        filter: Arc::new(filter),
        history: Arc::new(history),
        router: Arc::new(router),
        memory,
        store_dir: options.data_dir.join(STORE_DIR),
        meta: Arc::new(Mutex::new(meta)),
        until: options.until.clone(),
        counters: Arc::default(),
        labels: TableLabels::new(changefeed.id.clone()),
        read: Arc::new(ReadProgress::default()),
        changefeed,
    })
}

async fn run_changefeed(options: RunOptions) -> Result<RunSummary, ErrorReport> {
    let started = Instant::now();
    let _lock = lock(&options.data_dir).map_err(|e| report(&e))?;
    let recorder = http::recorder().map_err(|e| report(&e))?;
    crate::metrics::describe_all();
    let page = http::FlowPage::default();
    let server = match options.changefeed.metrics.listen {
        Some(address) => {
            Some(http::serve(&address.to_string(), recorder, page.clone()).map_err(|e| report(&e))?)
        }
        None => None,
    };
    let ended = run_reachable(options, started, page).await;
    if let Some(server) = server {
        server.stop(false).await;
    }
    ended
}

async fn run_reachable(
    options: RunOptions,
    started: Instant,
    page: http::FlowPage,
) -> Result<RunSummary, ErrorReport> {
    let deadline = started + options.connect_timeout;
    let (feed, mut stop) = (&options.changefeed, options.stop.clone());
    let contact = first_contact(feed, options.connect_timeout, deadline, &mut stop).await?;
    let Answer::Done(contact) = contact else {
        return Ok(RunSummary {
            elapsed: started.elapsed(),
            ..RunSummary::default()
        });
    };
    let blueprint = Arc::new(blueprint(&options, contact)?);
    let mut run = Run {
        reporter: FlowReporter::new(page, blueprint.changefeed.id.clone()),
        stop: options.stop,
        deadline,
        progress: options.progress.unwrap_or_default(),
        blueprint,
        not_opened: 0,
        resumed: None,
        tables: 0,
        earlier: Earlier::default(),
        machine: StateMachine::new(Generation(0)),
        clock: started,
    };
    let reason = run.generations().await?;
    Ok(run.summary(started.elapsed(), reason))
}

struct Run {
    blueprint: Arc<Blueprint>,
    reporter: FlowReporter,
    stop: watch::Receiver<bool>,
    progress: Arc<Progress>,
    /// Until when the first generation is tried.
    deadline: Instant,
    /// Attempts in a row that did not open store and sink.
    not_opened: u32,
    /// Whether the first generation found progress.
    resumed: Option<bool>,
    tables: u64,
    /// What the sources of earlier generations have read.
    earlier: Earlier,
    machine: StateMachine,
    clock: Instant,
}

/// What generations that have ended have read. Each source counts from nothing.
#[derive(Default)]
struct Earlier {
    bytes: u64,
    transactions: u64,
}

impl Earlier {
    fn add(&mut self, read: &ReadProgress) {
        self.bytes += read.bytes_read.swap(0, Ordering::Relaxed);
        self.transactions += read.transactions.swap(0, Ordering::Relaxed);
        read.bytes_total.store(0, Ordering::Relaxed);
    }
}

impl Run {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// State of the changefeed, and why where all is not well. A pipeline that waits for
    /// one of its ends runs, and has nothing to do.
    fn state(&self) -> (&'static str, Option<&str>) {
        let away = |end: bool, why| end.then_some(("warning", Some(why)));
        match self.machine.state() {
            State::Warning { reason, .. } => ("warning", Some(reason.message.as_str())),
            State::Normal | State::Pending => {
                let source = self.blueprint.read.away.load(Ordering::Relaxed);
                let sink = self.blueprint.counters.is_away();
                away(source, "the source is not connected")
                    .or_else(|| away(sink, "the sink takes nothing"))
                    .unwrap_or_else(|| (self.machine.state().name(), None))
            }
            state => (state.name(), None),
        }
    }

    fn show_state(&self) {
        let (state, _) = self.state();
        weir_changefeed::metrics::set_state(&self.blueprint.changefeed.id, state);
    }

    fn stop_wanted(&self) -> bool {
        *self.stop.borrow()
    }

    /// Builds generations until one ends for good.
    async fn generations(&mut self) -> Result<StopReason, ErrorReport> {
        let mut command = self.machine.resume();
        loop {
            self.show_state();
            if let Some(Command::Start(_)) = command {
                match self.generation().await {
                    Ended::Finished { error: None } => return Ok(StopReason::Finished),
                    Ended::Finished { error: Some(error) } => return Err(error),
                    Ended::Stopped => return Ok(StopReason::Stopped),
                    // All is well; nothing waits.
                    Ended::Reform if !self.stop_wanted() => continue,
                    Ended::Reform => return Ok(StopReason::Stopped),
                    Ended::NotOpened(error) if error.class == ErrorClass::Transient => {
                        match self.open_again(error).await {
                            Ok(again) => command = again,
                            Err(ended) => return ended,
                        }
                        continue;
                    }
                    Ended::Failed(error) | Ended::NotOpened(error) => {
                        tracing::warn!(code = error.code, "pipeline failed: {error}; {}", error.action);
                        let (now_ms, random) = (self.now_ms(), u64::from(std::process::id()));
                        // The pipeline has been stopped already.
                        let _stop = self.machine.failed(error, now_ms, random);
                    }
                }
            }
            self.show_state();
            match self.machine.state() {
                State::Failed(error) => return Err(error.clone()),
                State::Warning { retry_at_ms, .. } => {
                    let wait = Duration::from_millis(retry_at_ms.saturating_sub(self.now_ms()));
                    if self.sleep(wait).await {
                        return Ok(StopReason::Stopped);
                    }
                }
                _ => {}
            }
            command = self.machine.tick(self.now_ms());
        }
    }

    /// Waits a moment for what cannot be opened now; the end of the run, if no generation
    /// has run yet and `connect_timeout` is over. An outage of the sink costs nothing but
    /// attempts: the backoff of a pipeline that fails would keep it waiting for minutes
    /// behind its end.
    async fn open_again(
        &mut self,
        error: ErrorReport,
    ) -> Result<Option<Command>, Result<StopReason, ErrorReport>> {
        let mut wait = OPEN_INTERVAL_MAX.min(RETRY_INTERVAL * (self.not_opened + 1));
        if self.resumed.is_none() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Err(error));
            }
            wait = RETRY_INTERVAL.min(left);
        }
        self.not_opened += 1;
        tracing::warn!(code = error.code, "not ready: {error}; trying again");
        let (now_ms, random) = (self.now_ms(), u64::from(std::process::id()));
        let _nothing_runs = self.machine.failed(error, now_ms, random);
        self.show_state();
        if self.sleep(wait).await {
            return Err(Ok(StopReason::Stopped));
        }
        Ok(self.machine.resume())
    }

    /// True if the stop came.
    async fn sleep(&mut self, wait: Duration) -> bool {
        if self.stop_wanted() {
            return true;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => false,
            () = stopped(&mut self.stop) => true,
        }
    }

    async fn generation(&mut self) -> Ended {
        let generation = {
            let mut meta = self
                .blueprint
                .meta
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            match meta.next_generation() {
                Ok(generation) => generation,
                Err(error) => return Ended::Failed(report(&error)),
            }
        };
        let blueprint = Arc::clone(&self.blueprint);
        let opened = match off_thread(&self.stop, move || blueprint.open()).await {
            Ok(Answer::Done(opened)) => opened,
            Ok(Answer::Stopped) => return Ended::Stopped,
            Err(error) => return Ended::NotOpened(error),
        };
        let mut pipeline = match Pipeline::build(&self.blueprint, opened, generation).await {
            Ok(pipeline) => pipeline,
            Err(error) => return Ended::Failed(error),
        };
        tracing::info!(changefeed = %self.blueprint.changefeed.id, generation = generation.0, "pipeline started");
        self.resumed.get_or_insert(pipeline.resumed);
        self.not_opened = 0;
        // It has just answered.
        self.blueprint.counters.set_away(false);
        let ended = self.watch(&mut pipeline).await;
        self.reporter.force();
        self.look(&pipeline).await;
        let stopped = pipeline.stop().await;
        self.earlier.add(&self.blueprint.read);
        match (ended, stopped) {
            (Ended::Failed(error), _) => Ended::Failed(error),
            (ended, Ok(())) => ended,
            (_, Err(error)) => Ended::Failed(error),
        }
    }

    /// Follows a running pipeline to its end.
    async fn watch(&mut self, pipeline: &mut Pipeline) -> Ended {
        let mut watched = Watched::default();
        let mut timer = tokio::time::interval(REPORT_INTERVAL);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut stop = self.stop.clone();
        loop {
            let event = tokio::select! {
                event = pipeline.events.recv() => event,
                _ = timer.tick() => {
                    self.look(pipeline).await;
                    continue;
                }
                () = stopped(&mut stop), if !watched.stopping => {
                    watched.stop(pipeline);
                    continue;
                }
            };
            let Some(event) = event else {
                return Ended::Failed(report(&ServerError::StageLost { stage: "owner" }));
            };
            if let OwnerEvent::Maintainer(MaintainerEvent::Progress { .. }) = event {
                self.machine.progress();
                self.show_state();
                continue;
            }
            if let OwnerEvent::Exited(exited) = &event {
                pipeline.exited(exited.stage);
            }
            if let Some(ended) = watched.take(event, pipeline) {
                return ended;
            }
        }
    }

    /// Copies counters to the progress bar and the debug page.
    async fn look(&mut self, pipeline: &Pipeline) {
        let now_ms = self.now_ms();
        let (read, rows) = (&self.blueprint.read, self.blueprint.counters.totals().rows.rows());
        let copy = |from: &AtomicU64, to: &AtomicU64, earlier: u64| {
            to.store(from.load(Ordering::Relaxed) + earlier, Ordering::Relaxed);
        };
        let earlier = &self.earlier;
        copy(&read.bytes_read, &self.progress.bytes_read, earlier.bytes);
        copy(&read.bytes_total, &self.progress.bytes_total, earlier.bytes);
        copy(
            &read.transactions,
            &self.progress.transactions,
            earlier.transactions,
        );
        self.progress.rows.store(rows, Ordering::Relaxed);
        let is_due = self.reporter.due(now_ms);
        if is_due {
            self.show_state();
        }
        if !is_due && !self.reporter.is_asked() {
            return;
        }
        if let Ok(status) = pipeline.maintainer.send(GetStatus).await {
            self.tables = self.tables.max(status.tables.len() as u64);
            if self.reporter.is_asked() {
                self.reporter
                    .show(&status, self.state(), &pipeline.collector, &pipeline.service)
                    .await;
            }
        }
    }

    fn summary(&self, elapsed: Duration, reason: StopReason) -> RunSummary {
        let totals = self.blueprint.counters.totals();
        RunSummary {
            transactions: self.earlier.transactions,
            inserts: totals.rows.inserts,
            updates: totals.rows.updates,
            deletes: totals.rows.deletes,
            tables: self.tables,
            ddl: totals.ddl,
            bytes: totals.bytes,
            source_bytes: self.earlier.bytes,
            output_files: totals.files,
            checksum: totals.checksum,
            elapsed,
            resumed: self.resumed.unwrap_or(false),
            reason,
        }
    }
}
