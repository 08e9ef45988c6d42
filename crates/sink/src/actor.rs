//! The sink as an actor: takes messages, hands them to the scheduler, never works
//! itself.

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Message, Recipient, ResponseFuture};
use weir_protocol::sink::{Released, SinkWrite};

use crate::blackhole::{BlackholeBackend, BlackholeConfig};
use crate::contract::{Backend, OpenSpan, ReleaseTo};
use crate::counters::SinkCounters;
use crate::error::Result;
use crate::file::{FileBackend, FileConfig, FileProgress};
use crate::scheduler::Scheduler;

/// Which sink, with its settings.
#[derive(Clone, Debug)]
pub enum SinkConfig {
    /// canal-json files.
    File(FileConfig),
    /// Visits and counts.
    Blackhole(BlackholeConfig),
}

/// A sink that is ready, but does not run yet: its progress can be read before
/// dispatchers are made.
pub struct PreparedSink {
    backend: Box<dyn Backend>,
    changefeed: String,
    workers: usize,
    counters: Arc<SinkCounters>,
    progress: FileProgress,
}

impl PreparedSink {
    /// Prepares the sink: checks and cleans the output's folder. `counters` may be those
    /// of an earlier generation of the same run, and then go on.
    ///
    /// # Errors
    /// The output cannot be used.
    pub fn new(config: SinkConfig, counters: Arc<SinkCounters>) -> Result<Self> {
        Ok(match config {
            SinkConfig::File(config) => {
                let (changefeed, workers) = (config.changefeed.to_string(), config.workers);
                let (backend, progress) = FileBackend::open(config, Arc::clone(&counters))?;
                Self {
                    backend: Box::new(backend),
                    changefeed,
                    workers,
                    counters,
                    progress,
                }
            }
            SinkConfig::Blackhole(config) => Self {
                changefeed: config.changefeed.to_string(),
                workers: config.workers,
                backend: Box::new(BlackholeBackend::new(config, Arc::clone(&counters))),
                counters,
                progress: FileProgress::default(),
            },
        })
    }

    /// What the output itself says about the progress of its tables; empty for a sink
    /// without memory.
    pub const fn progress(&self) -> &FileProgress {
        &self.progress
    }

    /// Counters of the sink.
    pub const fn counters(&self) -> &Arc<SinkCounters> {
        &self.counters
    }

    /// Starts the worker threads. `released` gets a message for each batch.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn into_scheduler(self, released: impl ReleaseTo + 'static) -> Result<Scheduler> {
        Scheduler::start(self.backend, Box::new(released), &self.changefeed, self.workers)
    }

    /// Starts the sink as an actor on the current arbiter.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self, released: Recipient<Released>) -> Result<Addr<SinkActor>> {
        let scheduler = self.into_scheduler(released)?;
        Ok(SinkActor {
            scheduler: Some(scheduler),
        }
        .start())
    }
}

/// Server → Sink: end the workers after what they are doing. Answered when they have
/// ended and every batch is released; the actor takes nothing after it. What was not
/// flushed before is not durable.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopSink;

/// Takes `OpenSpan`, `SinkWrite` and `StopSink`.
pub struct SinkActor {
    scheduler: Option<Scheduler>,
}

impl Actor for SinkActor {
    type Context = Context<Self>;
}

impl Handler<OpenSpan> for SinkActor {
    type Result = ();

    fn handle(&mut self, message: OpenSpan, _: &mut Context<Self>) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.open(message);
        }
    }
}

impl Handler<SinkWrite> for SinkActor {
    type Result = ();

    fn handle(&mut self, message: SinkWrite, _: &mut Context<Self>) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.write(message);
        }
    }
}

impl Handler<StopSink> for SinkActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: StopSink, _: &mut Context<Self>) -> Self::Result {
        let scheduler = self.scheduler.take();
        Box::pin(async move {
            let Some(scheduler) = scheduler else {
                return;
            };
            // Joining threads blocks: not on the arbiter.
            let stopped = tokio::task::spawn_blocking(move || scheduler.stop()).await;
            if stopped.is_err() {
                tracing::error!("stopping the sink panicked");
            }
        })
    }
}
