//! The source as an actor. Reading blocks (files, sockets, the window to the store), so a
//! thread of its own reads; the actor takes `Persisted` and the order to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use actix::{Actor, ActorContext, Context, Handler, Message, Recipient};
use weir_actor::{ExitGuard, Outlet, post};
use weir_protocol::store::{AppendBatch, Persisted, ReadPosition, StageFailed};
use weir_types::ErrorReport;

use crate::assembler::AssemblerOptions;
use crate::error::SourceError;
use crate::files::{End, FilesOptions, Progress, file_number};
use crate::input::Reader;
use crate::metrics::SourceMetrics;
use crate::server::{Interrupt, ServerOptions};
use crate::window::Window;

/// Stage name in reports.
pub const STAGE: &str = "source";
/// How often the position is told to the store while no wanted transaction passes.
pub const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Orders the source to stop. What it has sent stays sent.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopSource;

/// Why the source ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The end that was asked for.
    Reached,
    /// The files end inside a transaction, which was left out.
    Cut(ErrorReport),
}

/// Source → pipeline owner: nothing more will come, and everything that was sent is
/// durable in the store.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct SourceEnded {
    /// Why.
    pub reason: EndReason,
    /// Read position behind the last transaction.
    pub upto: ReadPosition,
}

/// How far the source is, for progress bars.
#[derive(Debug, Default)]
pub struct ReadProgress {
    /// Bytes of events read.
    pub bytes_read: AtomicU64,
    /// Bytes that there were at the start.
    pub bytes_total: AtomicU64,
    /// Transactions read to their end.
    pub transactions: AtomicU64,
    /// There is no connection to the server.
    pub away: AtomicBool,
}

/// What is read.
#[derive(Clone, Debug)]
pub enum SourceInput {
    /// Binlog files of a folder.
    Files(FilesOptions),
    /// A server.
    Server(ServerOptions),
}

/// Everything that the source needs.
pub struct SourceOptions {
    /// Changefeed, for metrics.
    pub changefeed: String,
    /// Files or server, and places.
    pub input: SourceInput,
    /// Transaction assembly.
    pub assembler: AssemblerOptions,
    /// Bytes on the way to the store.
    pub window_bytes: usize,
    /// Progress to write to.
    pub progress: Arc<ReadProgress>,
}

/// Where the source sends to.
#[derive(Clone)]
pub struct SourceOutlets {
    /// The event store.
    pub store: Recipient<AppendBatch>,
    /// The pipeline's owner, at the end of a run.
    pub ended: Recipient<SourceEnded>,
    /// The pipeline's owner, at an error.
    pub failed: Recipient<StageFailed>,
}

/// The actor.
pub struct BinlogReader {
    window: Arc<Window>,
    interrupt: Interrupt,
    start: Option<(SourceOptions, SourceOutlets)>,
    thread: Option<JoinHandle<()>>,
    exit: ExitGuard,
}

impl BinlogReader {
    /// An actor that reads from its start on.
    pub fn new(options: SourceOptions, outlets: SourceOutlets, exit: ExitGuard) -> Self {
        Self {
            window: Arc::new(Window::new(options.window_bytes)),
            interrupt: Interrupt::default(),
            start: Some((options, outlets)),
            thread: None,
            exit,
        }
    }
}

impl Actor for BinlogReader {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        let Some((options, outlets)) = self.start.take() else {
            return;
        };
        let window = Arc::clone(&self.window);
        let interrupt = self.interrupt.clone();
        let failed = outlets.failed.clone();
        let spawned = std::thread::Builder::new()
            .name("weir-source".to_owned())
            .spawn(move || {
                let _guard = PanicGuard {
                    failed: outlets.failed.clone(),
                };
                Reading::run(options, outlets, &window, interrupt);
            });
        match spawned {
            Ok(thread) => self.thread = Some(thread),
            Err(_) => fail(&failed, &SourceError::Panicked),
        }
    }
}

impl Drop for BinlogReader {
    fn drop(&mut self) {
        self.window.stop();
        self.interrupt.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported by its guard.
            let _ended = thread.join();
        }
    }
}

impl Handler<Persisted> for BinlogReader {
    type Result = ();

    fn handle(&mut self, persisted: Persisted, _: &mut Self::Context) {
        self.window.give_back(persisted.bytes);
    }
}

impl Handler<StopSource> for BinlogReader {
    type Result = ();

    fn handle(&mut self, _: StopSource, ctx: &mut Self::Context) {
        self.window.stop();
        self.interrupt.stop();
        self.exit.mark_clean();
        ctx.stop();
    }
}

fn fail(failed: &Recipient<StageFailed>, error: &SourceError) {
    let error = ErrorReport::new(error);
    post(failed, StageFailed { stage: STAGE, error });
}

/// Reports a panic of the reading thread.
struct PanicGuard {
    failed: Recipient<StageFailed>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fail(&self.failed, &SourceError::Panicked);
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Posts batches as far as the window lets them.
struct Sender<'a> {
    window: &'a Window,
    store: Outlet<AppendBatch>,
    seq: u64,
    metrics: SourceMetrics,
}

impl Sender<'_> {
    fn send(&mut self, inputs: Vec<weir_protocol::store::StoreInput>, bytes: usize) -> bool {
        let Some(waited) = self.window.take(bytes) else {
            return false;
        };
        self.metrics.blocked(waited);
        self.seq += 1;
        self.store.push(AppendBatch {
            seq: self.seq,
            inputs,
            bytes,
        });
        true
    }
}

/// The reading thread.
struct Reading<'a> {
    reader: Reader,
    sender: Sender<'a>,
    window: &'a Window,
    progress: Arc<ReadProgress>,
}

impl Reading<'_> {
    fn run(options: SourceOptions, outlets: SourceOutlets, window: &Window, interrupt: Interrupt) {
        let opened = Reader::open(options.input, options.assembler, &options.changefeed, interrupt);
        let reader = match opened {
            Ok(reader) => reader,
            // Whoever stopped it does not wait for a server that cannot be reached.
            Err(_) if window.is_stopped() => return,
            Err(error) => return fail(&outlets.failed, &error),
        };
        let sender = Sender {
            window,
            store: Outlet::new(outlets.store),
            seq: 0,
            metrics: SourceMetrics::new(&options.changefeed),
        };
        let mut reading = Reading {
            reader,
            sender,
            window,
            progress: options.progress,
        };
        let ended = reading.read();
        reading.report();
        // Everything whole is durable before the end or the error is told.
        if !window.wait_empty() {
            return;
        }
        match ended {
            Ok(None) => {}
            Ok(Some(reason)) => {
                let upto = reading.reader.position();
                post(&outlets.ended, SourceEnded { reason, upto });
            }
            Err(error) => fail(&outlets.failed, &error),
        }
    }

    /// Reads to the end; none if it was stopped.
    fn read(&mut self) -> Result<Option<EndReason>, SourceError> {
        let mut ticked = Instant::now();
        while !self.window.is_stopped() {
            let sender = &mut self.sender;
            let mut handover = |inputs, bytes| sender.send(inputs, bytes);
            let progress = self.reader.step(now_ms(), &mut handover)?;
            self.report();
            match progress {
                Progress::More => {}
                Progress::Dry => {
                    let pause = self.reader.pause();
                    self.window.sleep(pause);
                    self.sender.metrics.idled(pause);
                }
                Progress::Ended(End::Reached) => return Ok(Some(EndReason::Reached)),
                Progress::Ended(End::Cut(error)) => {
                    return Ok(Some(EndReason::Cut(ErrorReport::new(&error))));
                }
                Progress::Ended(End::Refused) => return Ok(None),
            }
            if ticked.elapsed() >= TICK_INTERVAL {
                ticked = Instant::now();
                let sender = &mut self.sender;
                if !self.reader.tick(&mut |inputs, bytes| sender.send(inputs, bytes)) {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn report(&mut self) {
        let (read, total) = self.reader.bytes();
        let counts = self.reader.counts();
        self.progress.bytes_read.store(read, Ordering::Relaxed);
        self.progress.bytes_total.store(total, Ordering::Relaxed);
        self.progress
            .transactions
            .store(counts.transactions, Ordering::Relaxed);
        self.progress
            .away
            .store(!self.reader.is_connected(), Ordering::Relaxed);
        let position = self.reader.position();
        let lag = Duration::from_millis(now_ms().saturating_sub(self.reader.time_ms()));
        let lag = if self.reader.is_dry() { Duration::ZERO } else { lag };
        self.sender.metrics.read(read, counts);
        let number = file_number(&position.file).unwrap_or(0);
        self.sender.metrics.place(number, position.offset, lag);
        self.sender.metrics.in_flight(self.window.in_flight());
    }
}
