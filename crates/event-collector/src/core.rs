//! State machine of the event collector: one stream per dispatcher, accepted exactly
//! once and in order, and the byte ledger of the changefeed. Pure: time is a parameter,
//! what is to be done comes back as effects.
//!
//! A stream is accepted message by message: the next seq of the current epoch, from the
//! service whose handshake began it. What came already is ignored; a gap makes one
//! reset, which resumes behind the last accepted key: rows in the sink stay there and
//! stay charged, nothing is delivered twice.
//!
//! While a dispatcher waits at a DDL its stream is not reset: a new epoch would know
//! nothing of the barrier and run past it. The reset is remembered and made when the
//! barrier has passed; until then nothing of the stream is missing.

mod accept;

use std::collections::{BTreeMap, VecDeque};

use weir_protocol::collector::{ServiceIncarnation, StreamBody, StreamMessage};
use weir_protocol::dispatcher::Deliver;
use weir_protocol::service::{GrantCredit, PassBarrier, Remove, Reset, Span};
use weir_protocol::sink::Released;
use weir_types::{CommitTs, DispatcherId, Epoch, Generation, OrderKey, SeqNo};

use crate::backoff::Jitter;
use crate::ledger::{Grant, Ledger, WindowPolicy};

/// Streams that wait for a handshake at once; others queue.
pub const REGISTRATIONS_MAX: usize = 64;
/// A stream of which nothing was heard for this long is asked, milliseconds. The
/// service repeats itself every second.
pub const SILENCE_MS: u64 = 5_000;
/// Least time between two repetitions of one grant, milliseconds.
pub const REGRANT_MS: u64 = 200;
/// How often time is looked at, milliseconds.
pub const TICK_MS: u64 = 100;
/// How often credit that should have come back is looked for, milliseconds.
pub const SWEEP_MS: u64 = 1_000;
/// Epochs of a generation lie above those of the one before.
const EPOCHS_PER_GENERATION_BITS: u32 = 32;

/// Why a stream was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// A message is missing.
    Gap,
    /// The service does not know the stream.
    Unknown,
    /// Another life of the service speaks.
    Restarted,
    /// What came contradicts what was accepted.
    Order,
}

impl ResetReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Gap, Self::Unknown, Self::Restarted, Self::Order];

    /// Value of the metric label `reason`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Unknown => "unknown",
            Self::Restarted => "service_restarted",
            Self::Order => "order",
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// To the service.
    Reset(Reset),
    /// To the service.
    Grant(GrantCredit),
    /// To the service.
    Pass(PassBarrier),
    /// To the service.
    Remove(Remove),
    /// To the dispatcher.
    Deliver(Deliver),
}

/// Limits of one collector.
#[derive(Clone, Copy, Debug)]
pub struct CollectorConfig {
    /// Pipeline that the collector belongs to: epochs go on from those of the pipelines
    /// before.
    pub generation: Generation,
    /// Memory for row events between the service and the sink, bytes; one row event in
    /// the reserved lane comes on top.
    pub budget_bytes: u64,
    /// Seed of the jitter.
    pub seed: u64,
    /// How much of the budget one dispatcher may have.
    pub windows: WindowPolicy,
}

/// Counters for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectorCounters {
    /// Row events accepted.
    pub events: u64,
    /// Charged bytes accepted.
    pub bytes: u64,
    /// Messages of other epochs, or that had been accepted already.
    pub ignored: u64,
    /// Resets by reason, as in `ResetReason::ALL`.
    pub resets: [u64; ResetReason::ALL.len()],
    /// Milliseconds that dispatchers waited for budget, summed.
    pub budget_wait_ms: u64,
    /// Milliseconds that streams waited for their handshake, summed.
    pub register_wait_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the queue for a registration.
    Queued,
    /// The reset is sent.
    Registering { retry_ms: u64 },
    /// The handshake was accepted.
    Live {
        service: ServiceIncarnation,
        last: SeqNo,
    },
    /// Ended by the service.
    Failed,
}

/// A barrier that has passed; the service is told until it moves.
#[derive(Clone, Copy, Debug)]
struct Passed {
    key: OrderKey,
    retry_ms: u64,
    attempt: u32,
}

#[derive(Clone, Debug)]
struct Stream {
    span: Span,
    epoch: Epoch,
    phase: Phase,
    /// Last accepted key, or the start.
    accepted: OrderKey,
    resolved: CommitTs,
    /// The dispatcher waits at this DDL.
    barrier: Option<OrderKey>,
    /// A reset that waits for the barrier.
    reset_due: bool,
    passed: Option<Passed>,
    attempt: u32,
    heard_ms: u64,
    asked_ms: u64,
    granted_ms: u64,
}

/// The event collector.
#[derive(Debug)]
pub struct CollectorCore {
    streams: BTreeMap<DispatcherId, Stream>,
    ledger: Ledger,
    queue: VecDeque<DispatcherId>,
    registering: usize,
    last_epoch: Epoch,
    jitter: Jitter,
    now_ms: u64,
    swept_ms: u64,
    counters: CollectorCounters,
    grants: Vec<Grant>,
}

impl CollectorCore {
    /// A collector without dispatchers.
    pub fn new(config: &CollectorConfig) -> Self {
        Self {
            streams: BTreeMap::new(),
            ledger: Ledger::with_windows(config.budget_bytes, config.windows),
            queue: VecDeque::new(),
            registering: 0,
            last_epoch: Epoch(config.generation.0 << EPOCHS_PER_GENERATION_BITS),
            jitter: Jitter::new(config.seed),
            now_ms: 0,
            swept_ms: 0,
            counters: CollectorCounters::default(),
            grants: Vec::new(),
        }
    }

    /// A new dispatcher, whose stream starts behind `after`.
    pub fn add(&mut self, now_ms: u64, id: DispatcherId, span: Span, after: OrderKey, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        if self.streams.contains_key(&id) {
            return;
        }
        let stream = Stream {
            span,
            epoch: self.last_epoch,
            phase: Phase::Queued,
            accepted: after,
            resolved: CommitTs::ZERO,
            barrier: None,
            reset_due: false,
            passed: None,
            attempt: 0,
            heard_ms: self.now_ms,
            asked_ms: self.now_ms,
            granted_ms: 0,
        };
        self.streams.insert(id, stream);
        self.ledger.add(id);
        self.queue.push_back(id);
        self.register(out);
    }

    /// The dispatcher is gone.
    pub fn remove(&mut self, now_ms: u64, id: DispatcherId, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        if matches!(stream.phase, Phase::Registering { .. }) {
            self.registering -= 1;
        }
        let epoch = stream.epoch;
        out.push(Effect::Remove(Remove {
            dispatcher: id,
            epoch,
        }));
        self.ledger.remove(id, &mut self.grants);
        self.flush_grants(out);
        self.register(out);
    }

    /// The dispatcher's barrier has passed.
    pub fn resume(&mut self, now_ms: u64, id: DispatcherId, key: OrderKey, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        let waits_there = |stream: &&mut Stream| stream.barrier == Some(key);
        let Some(stream) = self.streams.get_mut(&id).filter(waits_there) else {
            return;
        };
        stream.barrier = None;
        if stream.reset_due {
            stream.reset_due = false;
            self.requeue(id, out);
            return;
        }
        stream.heard_ms = self.now_ms;
        stream.passed = Some(Passed {
            key,
            retry_ms: self.now_ms + self.jitter.delay_ms(0),
            attempt: 0,
        });
        let epoch = stream.epoch;
        out.push(Effect::Pass(PassBarrier {
            dispatcher: id,
            epoch,
            key,
        }));
    }

    /// The sink has released rows.
    pub fn released(&mut self, now_ms: u64, released: &Released, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        self.ledger.release(
            released.dispatcher,
            released.bytes as u64,
            released.lane,
            &mut self.grants,
        );
        self.flush_grants(out);
    }

    /// A message of a stream.
    pub fn message(&mut self, now_ms: u64, message: StreamMessage, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        let (id, epoch) = (message.dispatcher, message.epoch);
        let Some(stream) = self.streams.get_mut(&id) else {
            // Unless that is what it says, the service does not know that it is gone.
            if !matches!(message.body, StreamBody::Unknown) {
                out.push(Effect::Remove(Remove {
                    dispatcher: id,
                    epoch,
                }));
            }
            return;
        };
        if stream.epoch != epoch {
            self.counters.ignored += 1;
            return;
        }
        match stream.phase {
            Phase::Registering { .. } => self.handshake(id, &message, out),
            Phase::Live { service, .. } if service != message.service => {
                self.reset(id, ResetReason::Restarted, out);
            }
            Phase::Live { last, .. } => {
                stream.heard_ms = self.now_ms;
                self.live(id, last, message, out);
            }
            Phase::Queued | Phase::Failed => self.counters.ignored += 1,
        }
        self.flush_grants(out);
    }

    /// One reset per broken epoch; later when the dispatcher waits at a barrier.
    fn reset(&mut self, id: DispatcherId, reason: ResetReason, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.reset_due {
            return;
        }
        self.counters.resets[reason as usize] += 1;
        if stream.barrier.is_some() {
            stream.reset_due = true;
        } else {
            self.requeue(id, out);
        }
    }

    fn requeue(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Queued;
            stream.passed = None;
            self.ledger.begin_epoch(id);
            self.queue.push_back(id);
            self.register(out);
        }
    }

    /// Sends resets, so many at a time.
    fn register(&mut self, out: &mut Vec<Effect>) {
        while self.registering < REGISTRATIONS_MAX {
            let Some(id) = self.queue.pop_front() else {
                return;
            };
            let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == Phase::Queued) else {
                continue;
            };
            self.last_epoch = Epoch(self.last_epoch.0 + 1);
            stream.epoch = self.last_epoch;
            stream.phase = Phase::Registering {
                retry_ms: self.now_ms + self.jitter.delay_ms(stream.attempt),
            };
            self.registering += 1;
            out.push(Effect::Reset(stream.reset(id)));
        }
    }

    /// Time has passed: what was not answered is said again.
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        let mut ask = Vec::new();
        for (id, stream) in &mut self.streams {
            match stream.phase {
                Phase::Registering { retry_ms } if self.now_ms >= retry_ms => {
                    stream.attempt += 1;
                    stream.phase = Phase::Registering {
                        retry_ms: self.now_ms + self.jitter.delay_ms(stream.attempt),
                    };
                    out.push(Effect::Reset(stream.reset(*id)));
                }
                Phase::Live { .. } => {
                    let epoch = stream.epoch;
                    if let Some(passed) = stream.passed.as_mut().filter(|p| self.now_ms >= p.retry_ms) {
                        passed.attempt += 1;
                        passed.retry_ms = self.now_ms + self.jitter.delay_ms(passed.attempt);
                        let key = passed.key;
                        out.push(Effect::Pass(PassBarrier {
                            dispatcher: *id,
                            epoch,
                            key,
                        }));
                    }
                    let quiet_ms = self.now_ms - stream.heard_ms.max(stream.asked_ms);
                    if quiet_ms >= SILENCE_MS && !stream.reset_due {
                        stream.asked_ms = self.now_ms;
                        ask.push(*id);
                    }
                }
                Phase::Registering { .. } | Phase::Queued | Phase::Failed => {}
            }
        }
        // A grant is answered by `Unknown` if the service has lost the stream.
        for id in ask {
            self.regrant(id);
        }
        if self.now_ms >= self.swept_ms + SWEEP_MS {
            self.swept_ms = self.now_ms;
            self.ledger.sweep(&mut self.grants);
        }
        self.flush_grants(out);
    }

    fn regrant(&mut self, id: DispatcherId) {
        let now_ms = self.now_ms;
        if let Some(stream) = self.streams.get(&id)
            && now_ms >= stream.granted_ms + REGRANT_MS
        {
            self.grants.extend(self.ledger.last_grant(id));
        }
    }

    fn flush_grants(&mut self, out: &mut Vec<Effect>) {
        for grant in self.grants.drain(..) {
            let Some(stream) = self.streams.get_mut(&grant.dispatcher) else {
                continue;
            };
            let Phase::Live { service, .. } = stream.phase else {
                continue;
            };
            stream.granted_ms = self.now_ms;
            out.push(Effect::Grant(GrantCredit {
                dispatcher: grant.dispatcher,
                epoch: stream.epoch,
                service,
                grant_seq: grant.grant_seq,
                granted_bytes: grant.granted,
                keep_bytes: grant.keep,
                lane_rows: grant.lane_rows,
            }));
        }
    }

    fn advance(&mut self, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.now_ms);
        if passed > 0 {
            self.now_ms = now_ms;
            self.counters.budget_wait_ms += passed * self.ledger.waiting() as u64;
            let registering = self.registering + self.queue.len();
            self.counters.register_wait_ms += passed * registering as u64;
        }
    }

    /// The books.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Counters for metrics.
    pub const fn counters(&self) -> &CollectorCounters {
        &self.counters
    }

    /// Number of dispatchers.
    pub fn dispatchers(&self) -> usize {
        self.streams.len()
    }

    /// Dispatchers and what they cover.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (DispatcherId, &Span)> {
        self.streams.iter().map(|(id, stream)| (*id, &stream.span))
    }

    /// Epoch and last accepted key of a stream.
    pub fn accepted(&self, id: DispatcherId) -> Option<(Epoch, OrderKey)> {
        self.streams
            .get(&id)
            .map(|stream| (stream.epoch, stream.accepted))
    }
}

impl Stream {
    fn reset(&self, dispatcher: DispatcherId) -> Reset {
        Reset {
            dispatcher,
            epoch: self.epoch,
            span: self.span.clone(),
            after: self.accepted,
        }
    }
}
