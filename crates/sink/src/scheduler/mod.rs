//! Spans, their work, and the threads that do it.

pub mod core;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use weir_protocol::sink::{Released, SinkFailed, SinkWork, SinkWrite};
use weir_types::{DispatcherId, ErrorReport};

use self::core::{SchedulerCore, work_bytes};
use crate::contract::{
    Backend, OpenSpan, ReleaseTo, SpanReplies, SpanWaker, SpanWriter, StopSignal, WakeSpan,
};
use crate::error::{Result, SinkError};
use crate::metrics::SinkMetrics;

/// The writer of a span with the way back.
struct OpenedSpan {
    writer: Box<dyn SpanWriter>,
    replies: Arc<dyn SpanReplies>,
}

/// What the sender and the workers share.
struct Shared {
    core: Mutex<SchedulerCore<OpenedSpan>>,
    wake: Condvar,
    stop: Arc<StopSignal>,
    backend: Box<dyn Backend>,
    released: Box<dyn ReleaseTo>,
    metrics: SinkMetrics,
    started: Instant,
}

impl Shared {
    /// Never held while working. Nothing panics under it; were it poisoned, the state
    /// would still be whole.
    fn core(&self) -> MutexGuard<'_, SchedulerCore<OpenedSpan>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Drops work and returns the credit of batches.
    fn release(&self, dispatcher: DispatcherId, work: SinkWork) {
        if let SinkWork::Rows(batch) = work {
            let (bytes, lane) = (batch.bytes, batch.lane);
            drop(batch);
            self.metrics.in_flight(-(bytes as i64));
            self.released.released(Released {
                dispatcher,
                bytes,
                lane,
            });
        }
    }
}

impl WakeSpan for Shared {
    fn wake(&self, dispatcher: DispatcherId) {
        self.core().wake(dispatcher);
        self.wake.notify_one();
    }
}

/// Takes work from dispatchers and has it done by its threads.
pub struct Scheduler {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Scheduler {
    /// Starts `workers` threads (at least one) that write through `backend`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        backend: Box<dyn Backend>,
        released: Box<dyn ReleaseTo>,
        changefeed: &str,
        workers: usize,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            core: Mutex::new(SchedulerCore::new(backend.pull_limits())),
            wake: Condvar::new(),
            stop: Arc::default(),
            backend,
            released,
            metrics: SinkMetrics::new(changefeed),
            started: Instant::now(),
        });
        let waker: Weak<dyn WakeSpan> = Arc::downgrade(&(Arc::clone(&shared) as Arc<dyn WakeSpan>));
        shared.backend.attach(SpanWaker(waker));
        let mut scheduler = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
        };
        for number in 0..workers.max(1) {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("weir-sink-{number}"))
                .spawn(move || worker::run(&shared))
                .map_err(SinkError::Thread)?;
            scheduler.threads.push(thread);
        }
        Ok(scheduler)
    }

    /// Registers a span. What is wrong with it is answered by `SinkFailed`.
    pub fn open(&self, span: OpenSpan) {
        let OpenSpan {
            dispatcher,
            tables,
            replies,
        } = span;
        let opened = if self.shared.core().knows(dispatcher) {
            Err(SinkError::Registration {
                dispatcher: dispatcher.0,
                what: "is registered already",
            })
        } else {
            self.shared.backend.open(dispatcher, &tables)
        };
        match opened {
            Ok(writer) => {
                let opened = OpenedSpan { writer, replies };
                // One caller opens spans, so that it is still unknown.
                drop(self.shared.core().open(dispatcher, opened));
            }
            Err(error) => replies.failed(SinkFailed {
                dispatcher,
                error: ErrorReport::new(&error),
            }),
        }
    }

    /// Takes work; never blocks. Work of a span that has failed is dropped, its credit
    /// returned.
    pub fn write(&self, write: SinkWrite) {
        let SinkWrite { dispatcher, work } = write;
        let bytes = work_bytes(&work);
        if bytes > 0 {
            self.shared.metrics.in_flight(bytes as i64);
        }
        let pushed = self.shared.core().push(dispatcher, work);
        match pushed {
            Ok(()) => self.shared.wake.notify_one(),
            Err(work) => self.shared.release(dispatcher, work),
        }
    }

    /// Ends the threads after what they are doing now. What is not durable is not
    /// finished: flush first for a clean stop. Blocks until they have ended.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.shared.stop.stop();
        self.shared.backend.stopping();
        // A worker looks at the signal under this lock before it waits.
        drop(self.shared.core());
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a sink worker ended by a panic");
            }
        }
        let rest = self.shared.core().drain();
        for (dispatcher, work) in rest {
            self.shared.release(dispatcher, work);
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shut_down();
    }
}
