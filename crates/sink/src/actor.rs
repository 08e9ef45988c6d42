//! The sink as an actor: takes messages, hands them to the scheduler, never works
//! itself.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, Context, Handler, Message, Recipient, ResponseActFuture,
};
use weir_actor::ExitGuard;
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

    /// A sink whose kind lives in a crate of its own. `workers`: threads, each of which
    /// works on one span at a time.
    pub fn from_backend(
        backend: Box<dyn Backend>,
        changefeed: String,
        workers: usize,
        counters: Arc<SinkCounters>,
    ) -> Self {
        Self {
            backend,
            changefeed,
            workers,
            counters,
            progress: FileProgress::default(),
        }
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

    /// Starts the sink as an actor on the current arbiter. `exit` reports when the actor
    /// and all of its workers have ended.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self, released: Recipient<Released>, exit: ExitGuard) -> Result<Addr<SinkActor>> {
        let scheduler = self.into_scheduler(released)?;
        Ok(SinkActor {
            scheduler: Some(scheduler),
            exit,
        }
        .start())
    }
}

/// Server → Sink: end the workers after what they are doing, then the actor. Answered
/// when every batch is released; nothing is taken after it. What was not flushed before
/// is not durable.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopSink;

/// Takes `OpenSpan`, `SinkWrite` and `StopSink`.
pub struct SinkActor {
    /// None while and after it stops. Dropped before the guard, so that the exit is
    /// reported when the workers have ended.
    scheduler: Option<Scheduler>,
    exit: ExitGuard,
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
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: StopSink, _: &mut Context<Self>) -> Self::Result {
        let scheduler = self.scheduler.take();
        // Joining threads blocks: not on the arbiter.
        let stopped = tokio::task::spawn_blocking(move || scheduler.map(Scheduler::stop));
        Box::pin(wrap_future::<_, Self>(stopped).map(|stopped, actor, ctx| {
            match stopped {
                Ok(_) => actor.exit.mark_clean(),
                Err(_) => tracing::error!("stopping the sink panicked"),
            }
            ctx.stop();
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use weir_actor::{ActorExited, post_to};
    use weir_protocol::sink::{DdlWritten, Durable, SinkFailed, SinkWork};
    use weir_types::{DispatcherId, Generation, TableName};

    use super::*;
    use crate::conformance::changefeed;
    use crate::contract::{SpanRecipients, SpanTable};
    use crate::testing::{key, rows, version};

    /// Keeps what it is told.
    #[derive(Clone, Default)]
    struct Listener {
        released: Arc<Mutex<Vec<Released>>>,
        durable: Arc<Mutex<Vec<Durable>>>,
        exits: Arc<Mutex<Vec<bool>>>,
    }

    impl Actor for Listener {
        type Context = Context<Self>;
    }

    impl Handler<Released> for Listener {
        type Result = ();
        fn handle(&mut self, message: Released, _: &mut Context<Self>) {
            self.released.lock().unwrap().push(message);
        }
    }

    impl Handler<Durable> for Listener {
        type Result = ();
        fn handle(&mut self, message: Durable, _: &mut Context<Self>) {
            self.durable.lock().unwrap().push(message);
        }
    }

    impl Handler<DdlWritten> for Listener {
        type Result = ();
        fn handle(&mut self, message: DdlWritten, _: &mut Context<Self>) {
            panic!("no DDL was written: {message:?}");
        }
    }

    impl Handler<SinkFailed> for Listener {
        type Result = ();
        fn handle(&mut self, message: SinkFailed, _: &mut Context<Self>) {
            panic!("nothing failed: {message:?}");
        }
    }

    impl Handler<ActorExited> for Listener {
        type Result = ();
        fn handle(&mut self, message: ActorExited, _: &mut Context<Self>) {
            self.exits.lock().unwrap().push(message.clean);
        }
    }

    async fn wait(condition: impl Fn() -> bool) {
        for _ in 0..1_000 {
            if condition() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it did not happen");
    }

    #[actix::test]
    async fn messages_go_both_ways_and_a_stop_is_clean() {
        let seen = Listener::default();
        let listener = seen.clone().start();
        let config = SinkConfig::Blackhole(BlackholeConfig::new(changefeed()));
        let sink = PreparedSink::new(config, Arc::default()).unwrap();
        let exit = ExitGuard::new("sink", Generation(1), listener.downgrade().recipient());
        let sink = sink.start(listener.clone().recipient(), exit).unwrap();
        let name = TableName::new("s", "t1");
        let open = OpenSpan {
            dispatcher: DispatcherId(1),
            tables: vec![SpanTable {
                source: name.clone(),
                target: name,
                after: weir_types::OrderKey::MIN,
            }],
            replies: Arc::new(SpanRecipients {
                durable: listener.clone().recipient(),
                ddl_written: listener.clone().recipient(),
                failed: listener.clone().recipient(),
            }),
        };
        post_to(&sink, open);
        let work = rows(&version("t1", 45), &[3], b"x");
        post_to(
            &sink,
            SinkWrite {
                dispatcher: DispatcherId(1),
                work,
            },
        );
        wait(|| {
            seen.durable
                .lock()
                .unwrap()
                .last()
                .is_some_and(|durable| durable.upto == key(3))
        })
        .await;
        assert_eq!(seen.released.lock().unwrap().len(), 1);
        sink.send(StopSink).await.unwrap();
        wait(|| *seen.exits.lock().unwrap() == [true]).await;
        let late = SinkWrite {
            dispatcher: DispatcherId(1),
            work: SinkWork::Flush,
        };
        assert!(sink.try_send(late).is_err(), "the actor has ended");
    }
}
