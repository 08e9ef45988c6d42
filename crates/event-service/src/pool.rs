//! Threads that scan the store, so that a cold read never holds up the actor.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use weir_event_store::{ScanEnd, StoreReader};
use weir_types::{ErrorReport, OrderKey, TableName};

use crate::error::ServiceError;
use crate::scan::{DdlFilter, ScanDone, ScanJob};

/// Takes results on a scan thread; must not block.
pub(crate) type OnDone = Arc<dyn Fn(ScanDone) + Send + Sync>;

/// A fixed number of threads behind one queue, which the core bounds.
#[derive(Debug)]
pub(crate) struct ScanPool {
    jobs: Option<Sender<ScanJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl ScanPool {
    pub(crate) fn start(
        threads: usize,
        store: &Arc<dyn StoreReader>,
        filter: &DdlFilter,
        on_done: &OnDone,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut pool = Self {
            jobs: Some(jobs),
            threads: Vec::new(),
        };
        for _ in 0..threads {
            let (queue, store) = (Arc::clone(&queue), Arc::clone(store));
            let (filter, on_done) = (Arc::clone(filter), Arc::clone(on_done));
            let body = move || work(&queue, &store, &filter, &on_done);
            pool.threads.push(
                std::thread::Builder::new()
                    .name("weir-scan".to_owned())
                    .spawn(body)?,
            );
        }
        Ok(pool)
    }

    /// Hands a job over. It is lost only while the pool ends.
    pub(crate) fn submit(&self, job: ScanJob) {
        if let Some(jobs) = &self.jobs
            && jobs.send(job).is_err()
        {
            tracing::debug!("scan refused: the scan threads have ended");
        }
    }
}

impl Drop for ScanPool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a scan thread has panicked");
            }
        }
    }
}

fn next(queue: &Mutex<Receiver<ScanJob>>) -> Option<ScanJob> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn work(
    queue: &Mutex<Receiver<ScanJob>>,
    store: &Arc<dyn StoreReader>,
    filter: &DdlFilter,
    on_done: &OnDone,
) {
    while let Some(job) = next(queue) {
        let mut report = Report::new(&job, on_done);
        report.done = Some(job.run(store.as_ref(), filter));
    }
}

/// Reports a scan once, also when it panics: the stream would wait for ever otherwise.
struct Report<'a> {
    on_done: &'a OnDone,
    failed: Option<ScanDone>,
    done: Option<ScanDone>,
}

impl<'a> Report<'a> {
    fn new(job: &ScanJob, on_done: &'a OnDone) -> Self {
        let error = ServiceError::StoreContract {
            table: TableName::new("", job.span.to_string()),
            what: "a scan panicked",
        };
        Self {
            on_done,
            failed: Some(failed(job, ErrorReport::new(&error))),
            done: None,
        }
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take().or_else(|| self.failed.take()) {
            (self.on_done)(done);
        }
    }
}

const fn failed(job: &ScanJob, error: ErrorReport) -> ScanDone {
    let end: Result<ScanEnd, ErrorReport> = Err(error);
    ScanDone {
        dispatcher: job.dispatcher,
        epoch: job.epoch,
        after: job.after,
        clear_upto: OrderKey::MIN,
        ddl: None,
        batch: None,
        large: None,
        end,
    }
}
