//! The store actor: appends what the source sends, syncs it in groups on a thread of
//! its own, and tells the source and the event service what is durable.
//!
//! Groups form by themselves: while a sync is under way the next group gathers, up to
//! `sync_bytes` of input. What the store has no room for waits in the queue, which the
//! source's in-flight window bounds.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient, WeakAddr, WeakRecipient,
};
use weir_actor::{ExitGuard, post, post_to};
use weir_protocol::store::{
    AdvanceGc, AppendBatch, Persisted, ResolvedAdvanced, StageFailed, StoreInput, TableDetached,
};
use weir_types::{Classified, ErrorReport, OrderKey, TableName};

use crate::contract::{StoreWriter, SyncTicket, Synced};
use crate::error::StoreError;
use crate::metrics::{Blocked, StoreMetrics};
use crate::share::{STUCK_MS, Shares};

mod room;

/// Name of the stage in reports and metrics.
pub const STAGE: &str = "event-store";
/// Input that makes a sync, in bytes of memory.
pub const SYNC_BYTES: usize = 4 << 20;
/// Time between two tries while there is no room.
pub const RETRY: Duration = Duration::from_millis(500);
/// Syncs that may be under way or waiting.
const SYNCS_MAX: usize = 3;

/// Where the store's signals go.
pub struct StoreOutlets {
    /// To the event service.
    pub resolved: Recipient<ResolvedAdvanced>,
    /// To the event service.
    pub detached: Recipient<TableDetached>,
    /// To the owner of the pipeline.
    pub failed: WeakRecipient<StageFailed>,
}

/// Names the source, which is started after the store.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AttachSource {
    /// Told what is durable.
    pub persisted: WeakRecipient<Persisted>,
}

/// Gives a table up; see [`StoreWriter::detach`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct DetachTable {
    /// The table.
    pub table: TableName,
}

/// Syncs everything that there is room for, marks the clean end and stops the actor.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopStore;

#[derive(Message)]
#[rtype(result = "()")]
struct CommitNow;

#[derive(Message)]
#[rtype(result = "()")]
struct SyncDone {
    result: Result<Synced, StoreError>,
    persisted: Option<Persisted>,
    seconds: f64,
}

struct Job {
    ticket: Box<dyn SyncTicket>,
    persisted: Option<Persisted>,
}

/// A batch whose inputs are not all appended.
struct Waiting {
    seq: u64,
    inputs: VecDeque<StoreInput>,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Waits for the syncs under way.
    Stopping,
    /// Nothing more is done.
    Ended,
}

/// See the module.
pub struct StoreActor {
    writer: Box<dyn StoreWriter>,
    outlets: StoreOutlets,
    persisted_to: Option<WeakRecipient<Persisted>>,
    metrics: StoreMetrics,
    exit: Option<ExitGuard>,
    queue: VecDeque<Waiting>,
    queued_bytes: usize,
    /// Last batch that was appended whole, and the bytes of all such since the last
    /// group.
    done: Option<Persisted>,
    /// Input since the last group.
    group_bytes: usize,
    dirty: bool,
    commit_posted: bool,
    syncs: usize,
    sync_to: Option<SyncSender<Job>>,
    blocked: Option<(Blocked, Instant)>,
    retry_posted: bool,
    shares: Shares,
    started: Instant,
    /// Last progress; garbage collection goes on with it while there is no room.
    floors: Option<AdvanceGc>,
    state: State,
}

impl StoreActor {
    /// An actor around a writer. `exit` reports its end.
    pub fn new(
        writer: Box<dyn StoreWriter>,
        outlets: StoreOutlets,
        changefeed: &str,
        exit: Option<ExitGuard>,
    ) -> Self {
        Self {
            writer,
            outlets,
            persisted_to: None,
            metrics: StoreMetrics::new(changefeed),
            exit,
            queue: VecDeque::new(),
            queued_bytes: 0,
            done: None,
            group_bytes: 0,
            dirty: false,
            commit_posted: false,
            syncs: 0,
            sync_to: None,
            blocked: None,
            retry_posted: false,
            shares: Shares::new(STUCK_MS),
            started: Instant::now(),
            floors: None,
            state: State::Open,
        }
    }

    /// Time after which a table counts as stuck; see [`STUCK_MS`].
    #[must_use]
    pub fn with_stuck_after(mut self, stuck: Duration) -> Self {
        self.shares = Shares::new(millis(stuck));
        self
    }

    fn fail(&mut self, error: &dyn Classified) {
        if self.state == State::Ended {
            return;
        }
        self.state = State::Ended;
        self.unblock();
        self.queue.clear();
        let report = StageFailed {
            stage: STAGE,
            error: ErrorReport::new(error),
        };
        if let Some(owner) = self.outlets.failed.upgrade() {
            post(&owner, report);
        }
    }

    fn block(&mut self, reason: Blocked) {
        if self.blocked.is_some_and(|(known, _)| known == reason) {
            return;
        }
        self.unblock();
        self.blocked = Some((reason, Instant::now()));
    }

    fn unblock(&mut self) {
        if let Some((reason, since)) = self.blocked.take() {
            self.metrics.blocked(reason, since.elapsed().as_secs_f64());
        }
    }

    /// Appends what waits, as far as there is room.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        let now_ms = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        while self.state != State::Ended {
            if self.group_bytes >= SYNC_BYTES && !self.commit(ctx) {
                break;
            }
            let Some(batch) = self.queue.front_mut() else {
                self.unblock();
                break;
            };
            let Some(input) = batch.inputs.pop_front() else {
                let (seq, bytes) = (batch.seq, batch.bytes);
                self.queue.pop_front();
                self.queued_bytes -= bytes;
                let before = self.done.take().map_or(0, |d| d.bytes);
                self.done = Some(Persisted {
                    seq,
                    bytes: before + bytes,
                });
                self.dirty = true;
                continue;
            };
            let bytes = input.pinned_bytes();
            match self.writer.append(input, now_ms) {
                Ok(()) => {
                    self.unblock();
                    self.group_bytes += bytes;
                    self.dirty = true;
                }
                Err(refused) => {
                    batch.inputs.push_front(*refused.input);
                    self.refused(&refused.error, ctx);
                    break;
                }
            }
        }
        self.want_commit(ctx);
    }

    fn refused(&mut self, error: &StoreError, ctx: &mut Context<Self>) {
        if !error.is_full() {
            self.fail(error);
            return;
        }
        let reason = match error {
            StoreError::QuotaExceeded { .. } => Blocked::Quota,
            _ => Blocked::DiskFull,
        };
        if self.blocked.is_none_or(|(known, _)| known != reason) {
            let error = ErrorReport::new(error);
            tracing::warn!(
                code = error.code,
                "the store waits for room: {error}; {}",
                error.action
            );
        }
        self.block(reason);
        if !self.retry_posted {
            self.retry_posted = true;
            ctx.run_later(RETRY, |actor, ctx| {
                actor.retry_posted = false;
                actor.make_room();
                actor.pump(ctx);
            });
        }
    }

    /// A commit at the end of the mailbox: what is in it joins the group.
    fn want_commit(&mut self, ctx: &Context<Self>) {
        if self.dirty && !self.commit_posted && self.state != State::Ended {
            self.commit_posted = true;
            post_to(&ctx.address(), CommitNow);
        }
    }

    /// Ends the group and hands it to the sync thread. False if it has to wait.
    fn commit(&mut self, ctx: &mut Context<Self>) -> bool {
        if self.syncs >= SYNCS_MAX {
            self.block(Blocked::Sync);
            return false;
        }
        let ticket = match self.writer.commit_group() {
            Ok(ticket) => ticket,
            Err(error) => {
                self.refused(&error, ctx);
                return false;
            }
        };
        self.group_bytes = 0;
        self.dirty = false;
        let persisted = self.done.take();
        let Some(ticket) = ticket else {
            self.tell_source(persisted);
            return true;
        };
        self.syncs += 1;
        let sent = self
            .sync_to
            .as_ref()
            .map(|to| to.try_send(Job { ticket, persisted }));
        match sent {
            Some(Ok(())) => true,
            // The channel holds as many as may be under way.
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => {
                self.fail(&StoreError::Poisoned);
                false
            }
        }
    }

    fn tell_source(&self, persisted: Option<Persisted>) {
        let source = self.persisted_to.as_ref().and_then(WeakRecipient::upgrade);
        if let (Some(source), Some(persisted)) = (source, persisted) {
            post(&source, persisted);
        }
    }

    fn stop_if_idle(&mut self, ctx: &mut Context<Self>) {
        if self.state != State::Stopping || self.syncs > 0 {
            return;
        }
        self.state = State::Ended;
        match self.writer.close() {
            Ok(()) => {
                if let Some(exit) = &mut self.exit {
                    exit.mark_clean();
                }
            }
            Err(error) => tracing::warn!(%error, "the store did not end cleanly"),
        }
        ctx.stop();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The sync thread: waits for tickets in their order.
fn serve(jobs: &Receiver<Job>, actor: &WeakAddr<StoreActor>) {
    while let Ok(job) = jobs.recv() {
        let start = Instant::now();
        let result = job.ticket.wait();
        let failed = result.is_err();
        let done = SyncDone {
            result,
            persisted: job.persisted,
            seconds: start.elapsed().as_secs_f64(),
        };
        let Some(actor) = actor.upgrade() else {
            return;
        };
        post_to(&actor, done);
        if failed {
            return;
        }
    }
}

impl Actor for StoreActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let (to, jobs) = sync_channel(SYNCS_MAX);
        let actor = ctx.address().downgrade();
        let thread = std::thread::Builder::new().name("store-sync".to_owned());
        match thread.spawn(move || serve(&jobs, &actor)) {
            Ok(_) => self.sync_to = Some(to),
            Err(source) => self.fail(&StoreError::Io {
                path: "the sync thread".to_owned(),
                source,
            }),
        }
    }
}

impl Handler<AttachSource> for StoreActor {
    type Result = ();
    fn handle(&mut self, message: AttachSource, _: &mut Self::Context) {
        self.persisted_to = Some(message.persisted);
    }
}

impl Handler<AppendBatch> for StoreActor {
    type Result = ();
    fn handle(&mut self, message: AppendBatch, ctx: &mut Self::Context) {
        if self.state != State::Open {
            return;
        }
        self.queued_bytes += message.bytes;
        self.queue.push_back(Waiting {
            seq: message.seq,
            inputs: message.inputs.into(),
            bytes: message.bytes,
        });
        if self.blocked.is_none() {
            self.pump(ctx);
        }
    }
}

impl Handler<CommitNow> for StoreActor {
    type Result = ();
    fn handle(&mut self, _: CommitNow, ctx: &mut Self::Context) {
        self.commit_posted = false;
        // While a sync is under way the group gathers; its end commits it.
        if self.dirty && self.syncs == 0 && self.state != State::Ended {
            self.commit(ctx);
        }
    }
}

impl Handler<SyncDone> for StoreActor {
    type Result = ();
    fn handle(&mut self, message: SyncDone, ctx: &mut Self::Context) {
        self.syncs -= 1;
        let synced = match message.result {
            Ok(synced) => synced,
            Err(error) => return self.fail(&error),
        };
        let usage = self.writer.usage();
        self.metrics
            .synced(&synced, message.seconds, usage, self.queued_bytes);
        self.tell_source(message.persisted);
        let resolved = synced.resolved;
        post(&self.outlets.resolved, ResolvedAdvanced { resolved });
        if self.blocked.is_some_and(|(reason, _)| reason == Blocked::Sync) {
            self.pump(ctx);
        }
        if self.dirty && self.syncs == 0 && self.state != State::Ended {
            self.commit(ctx);
        }
        self.stop_if_idle(ctx);
    }
}

impl Handler<AdvanceGc> for StoreActor {
    type Result = ();
    fn handle(&mut self, message: AdvanceGc, ctx: &mut Self::Context) {
        if self.state == State::Ended {
            return;
        }
        let (reader, now_ms) = (self.writer.reader(), millis(self.started.elapsed()));
        let last = |table: &TableName| reader.last_key(table, OrderKey::MIN);
        self.shares.advanced(now_ms, &message.tables, last);
        self.floors = Some(message);
        self.collect();
        if self.blocked.is_some() {
            self.pump(ctx);
        }
    }
}

impl Handler<DetachTable> for StoreActor {
    type Result = ();
    fn handle(&mut self, message: DetachTable, _: &mut Self::Context) {
        self.detach(&message.table);
    }
}

impl Handler<StopStore> for StoreActor {
    type Result = ();
    fn handle(&mut self, _: StopStore, ctx: &mut Self::Context) {
        if self.state == State::Ended {
            ctx.stop();
            return;
        }
        self.pump(ctx);
        if self.dirty && self.syncs == 0 {
            self.commit(ctx);
        }
        if self.state != State::Ended {
            self.state = State::Stopping;
            // What has no room was never acknowledged: the source sends it again.
            self.queue.clear();
        }
        self.stop_if_idle(ctx);
    }
}
