//! State machine of the event service: per dispatcher one stream with its own cursor,
//! window and credit account. Pure: time is a parameter, what is to be done comes back
//! as effects; scans run elsewhere and come back as [`ScanDone`].
//!
//! No stream reads another one's progress. A stream stops behind a DDL until that has
//! passed, so that no table holds memory for rows that it may not write yet.

mod say;
mod wake;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_event_store::{ScanEnd, StoreReader};
use weir_protocol::collector::{ServiceIncarnation, StreamBody, StreamMessage};
use weir_protocol::service::{GrantCredit, PassBarrier, Remove, Reset};
use weir_types::{CommitTs, DispatcherId, Epoch, OrderKey};

use crate::counters::ServiceCounters;
use crate::policy::ScanPolicy;
use crate::recent::RecentDdls;
use crate::scan::{DdlAhead, DdlFilter, ScanDone, ScanJob};
use crate::stream::{Credit, Phase, Stream};
use crate::waits::{WaitClock, WaitReason};

/// A stream that is silent for this long repeats its last resolved-ts, milliseconds, so
/// that a lost last message is noticed.
pub const REPEAT_MS: u64 = 1_000;
/// How often silent streams are looked for, milliseconds.
pub const REPEAT_CHECK_MS: u64 = 250;
/// Longest time between two looks at resting streams while the resolved-ts moves,
/// milliseconds.
pub const PASS_INTERVAL_MAX_MS: u64 = 50;
/// Streams per millisecond of that interval: few streams are looked at at once,
/// thousands 20 times a second.
pub const PASS_STREAMS_PER_MS: u64 = 40;
/// Scans that run at once.
pub const SCANS_MAX: usize = 2;

/// Limits of one service.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// This life of the service.
    pub incarnation: ServiceIncarnation,
    /// A single row event that takes more fails its table, bytes.
    pub max_row_bytes: u64,
    /// Scans that run at once.
    pub scans_max: usize,
    /// What bounds how far streams read, besides their credit.
    pub policy: ScanPolicy,
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Run it and report the result.
    Scan(ScanJob),
    /// Send it to the collector.
    Send(StreamMessage),
}

/// The event service.
pub struct ServiceCore {
    config: ServiceConfig,
    filter: DdlFilter,
    streams: BTreeMap<DispatcherId, Stream>,
    ready: VecDeque<(DispatcherId, Epoch)>,
    running: usize,
    resolved: CommitTs,
    recent: RecentDdls,
    pass_due: bool,
    passed_ms: u64,
    checked_ms: u64,
    now_ms: u64,
    waits: WaitClock,
    counters: ServiceCounters,
}

impl std::fmt::Debug for ServiceCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceCore")
            .field("streams", &self.streams.len())
            .field("running", &self.running)
            .field("resolved", &self.resolved)
            .finish_non_exhaustive()
    }
}

impl ServiceCore {
    /// A service without streams. `resolved`: what the store shows already.
    pub fn new(config: ServiceConfig, filter: DdlFilter, resolved: CommitTs) -> Self {
        Self {
            config,
            filter,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            running: 0,
            resolved,
            recent: RecentDdls::new(OrderKey::end_of(resolved)),
            pass_due: false,
            passed_ms: 0,
            checked_ms: 0,
            now_ms: 0,
            waits: WaitClock::default(),
            counters: ServiceCounters::default(),
        }
    }

    /// Starts a stream, or replaces it by one of a higher epoch.
    pub fn reset(&mut self, now_ms: u64, reset: &Reset, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        if let Some(stream) = self.streams.get(&reset.dispatcher) {
            let repeated = stream.epoch == reset.epoch && matches!(stream.phase, Phase::Unconfirmed);
            if reset.epoch <= stream.epoch && !repeated {
                return;
            }
            self.waits.change(stream.waited.reason(), None);
        }
        let before = self.streams.get(&reset.dispatcher);
        let mut waited = before.map(|stream| stream.waited).unwrap_or_default();
        waited.change(self.now_ms, None);
        let mut stream = Stream::new(reset);
        stream.waited = waited;
        self.streams.insert(reset.dispatcher, stream);
        self.set_wait(reset.dispatcher, Some(WaitReason::NotReady));
        self.repeat(reset.dispatcher, out);
        self.pump(out);
    }

    /// More credit, or the confirmation of the handshake.
    pub fn grant(
        &mut self,
        now_ms: u64,
        grant: &GrantCredit,
        store: &dyn StoreReader,
        out: &mut Vec<Effect>,
    ) {
        self.advance(now_ms);
        let known = self.config.incarnation == grant.service;
        match self.streams.get_mut(&grant.dispatcher) {
            Some(stream) if stream.epoch == grant.epoch && known => {
                if !stream.credit.take(grant) {
                    return;
                }
                if matches!(stream.phase, Phase::Unconfirmed) {
                    stream.phase = Phase::Resting;
                    self.check_start(grant.dispatcher, store, out);
                }
                self.look(grant.dispatcher, store, out);
                self.pump(out);
            }
            Some(stream) if stream.epoch > grant.epoch => {}
            _ => self.unknown(grant.dispatcher, grant.epoch, out),
        }
    }

    /// A DDL has passed.
    pub fn pass_barrier(
        &mut self,
        now_ms: u64,
        pass: &PassBarrier,
        store: &dyn StoreReader,
        out: &mut Vec<Effect>,
    ) {
        self.advance(now_ms);
        match self.streams.get_mut(&pass.dispatcher) {
            Some(stream) if stream.epoch == pass.epoch => {
                if !matches!(stream.phase, Phase::Barrier(key) if key == pass.key) {
                    return;
                }
                stream.phase = Phase::Resting;
                self.look(pass.dispatcher, store, out);
                self.pump(out);
            }
            Some(stream) if stream.epoch > pass.epoch => {}
            _ => self.unknown(pass.dispatcher, pass.epoch, out),
        }
    }

    /// The dispatcher is gone.
    pub fn remove(&mut self, now_ms: u64, remove: &Remove) {
        self.advance(now_ms);
        let known = self.streams.get(&remove.dispatcher);
        if let Some(stream) = known.filter(|stream| stream.epoch <= remove.epoch) {
            self.waits.change(stream.waited.reason(), None);
            self.streams.remove(&remove.dispatcher);
        }
    }

    /// The collector was replaced as a whole: its streams are not wanted any more.
    pub fn remove_all(&mut self) {
        for stream in self.streams.values() {
            self.waits.change(stream.waited.reason(), None);
        }
        self.streams.clear();
        self.ready.clear();
    }

    /// A scan has ended.
    pub fn scan_done(&mut self, now_ms: u64, done: ScanDone, store: &dyn StoreReader, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        self.running = self.running.saturating_sub(1);
        let id = done.dispatcher;
        let current = |s: &&mut Stream| s.epoch == done.epoch && matches!(s.phase, Phase::Scanning);
        if let Some(stream) = self.streams.get_mut(&id).filter(current) {
            stream.phase = Phase::Resting;
            self.apply(id, done, out);
            self.look(id, store, out);
        } else {
            self.counters.scans_stale += 1;
        }
        self.pump(out);
    }

    fn apply(&mut self, id: DispatcherId, done: ScanDone, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.clear_upto = stream.clear_upto.max(done.clear_upto);
        if let Some(ddl) = done.ddl {
            stream.clear_upto = ddl.0;
            stream.ddl = Some(ddl);
        }
        if let Some(batch) = done.batch {
            let bytes = batch.bytes as u64;
            if bytes > self.config.max_row_bytes && batch.events == 1 {
                let table = batch.slices.first().map(|slice| slice.block.version.name.clone());
                return self.too_large(id, table, bytes, out);
            }
            stream.needs = 0;
            stream.demanded = None;
            stream.cursor = batch.last;
            if batch.lane {
                stream.credit.lanes_used += 1;
                self.counters.lane_rows += 1;
            } else {
                stream.credit.sent += bytes;
            }
            self.counters.events += batch.events as u64;
            self.counters.bytes += bytes;
            self.counters.batches += 1;
            let seq = stream.next_seq();
            self.send(id, seq, StreamBody::Batch(batch), out);
        }
        match done.end {
            Ok(ScanEnd::Exhausted) => self.exhausted(id, done.clear_upto, out),
            Ok(ScanEnd::More) => {}
            Ok(ScanEnd::TooLarge { bytes, .. }) => {
                let bytes = bytes as u64;
                if bytes > self.config.max_row_bytes {
                    self.too_large(id, done.large, bytes, out);
                } else if let Some(stream) = self.streams.get_mut(&id) {
                    stream.needs = bytes.max(1);
                }
            }
            Err(report) => self.fail(id, report, out),
        }
    }

    /// All rows of the span before the next DDL, or up to `upto`, are sent.
    fn exhausted(&mut self, id: DispatcherId, upto: OrderKey, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.needs = 0;
        stream.demanded = None;
        let Some((key, event)) = stream.ddl.take() else {
            stream.cursor = stream.cursor.max(upto);
            return;
        };
        stream.cursor = key;
        stream.phase = Phase::Barrier(key);
        let seq = stream.next_seq();
        self.counters.ddls += 1;
        self.send(id, seq, StreamBody::Ddl { key, event }, out);
    }

    /// Decides what a resting stream does next.
    fn look(&mut self, id: DispatcherId, store: &dyn StoreReader, out: &mut Vec<Effect>) {
        let target = self.horizon();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        match stream.phase {
            Phase::Resting => {}
            Phase::Barrier(_) => {
                self.set_wait(id, Some(WaitReason::Barrier));
                return self.give_back(id, out);
            }
            Phase::Unconfirmed | Phase::Queued | Phase::Scanning | Phase::Failed(_) => return,
        }
        if stream.cursor >= target {
            return self.rest(id, out);
        }
        self.recent.refresh(stream, target, &self.filter);
        let cursor = stream.cursor;
        let has_rows = stream
            .span
            .behind(cursor)
            .any(|(table, after)| store.last_key(table, after).is_some_and(|key| key > after));
        if has_rows {
            if self.affordable(id) {
                self.enqueue(id);
            } else {
                self.demand(id, out);
            }
            return;
        }
        if stream.ddl.is_none() && stream.clear_upto < target {
            // The DDL history is read by the scan.
            return self.enqueue(id);
        }
        self.exhausted(id, target, out);
        self.look(id, store, out);
    }

    /// Whether the next scan can bring something: it probes if it does not know what
    /// the next row event needs.
    fn affordable(&self, id: DispatcherId) -> bool {
        let fits = |s: &Stream| s.credit.has_lane() || s.needs == 0 || s.credit.free() >= s.needs;
        self.streams.get(&id).is_some_and(fits)
    }

    fn enqueue(&mut self, id: DispatcherId) {
        self.set_wait(id, Some(WaitReason::ScanSlot));
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Queued;
            self.ready.push_back((id, stream.epoch));
        }
    }

    /// Starts scans in the order in which streams asked.
    fn pump(&mut self, out: &mut Vec<Effect>) {
        let horizon = self.horizon();
        while self.running < self.config.scans_max {
            let Some((id, epoch)) = self.ready.pop_front() else {
                return;
            };
            let queued = |s: &&mut Stream| s.epoch == epoch && matches!(s.phase, Phase::Queued);
            let Some(stream) = self.streams.get_mut(&id).filter(queued) else {
                continue;
            };
            let upto = horizon;
            self.recent.refresh(stream, upto, &self.filter);
            let ddl = match &stream.ddl {
                Some(ddl) => DdlAhead::At(ddl.clone()),
                None if stream.clear_upto >= upto => DdlAhead::Clear,
                None => DdlAhead::Unread(stream.clear_upto),
            };
            stream.phase = Phase::Scanning;
            let job = ScanJob {
                dispatcher: id,
                epoch,
                span: stream.span.clone(),
                after: stream.cursor,
                upto,
                ddl,
                bytes_max: stream.credit.free(),
                needs: stream.needs,
                lane: stream.credit.has_lane(),
            };
            self.set_wait(id, None);
            self.running += 1;
            self.counters.scans += 1;
            out.push(Effect::Scan(job));
        }
    }

    fn set_wait(&mut self, id: DispatcherId, wait: Option<WaitReason>) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.waited.reason() != wait
        {
            self.waits.change(stream.waited.reason(), wait);
            stream.waited.change(self.now_ms, wait);
        }
    }

    fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.waits.advance(self.now_ms);
    }

    /// The resolved-ts that streams may reach.
    pub const fn resolved(&self) -> CommitTs {
        self.resolved
    }

    /// Account of a stream.
    pub fn credit(&self, id: DispatcherId) -> Option<(Epoch, Credit)> {
        self.streams.get(&id).map(|stream| (stream.epoch, stream.credit))
    }

    pub(crate) fn stream(&self, id: DispatcherId) -> Option<&Stream> {
        self.streams.get(&id)
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Waiting time by reason.
    pub const fn waits(&self) -> &WaitClock {
        &self.waits
    }

    /// Counters for metrics.
    pub const fn counters(&self) -> &ServiceCounters {
        &self.counters
    }

    /// Credit that all streams may still use, bytes.
    pub fn free_credit(&self) -> u64 {
        self.streams.values().map(|stream| stream.credit.free()).sum()
    }

    /// The store, shared with scan threads, is asked through this filter.
    pub fn filter(&self) -> DdlFilter {
        Arc::clone(&self.filter)
    }
}
