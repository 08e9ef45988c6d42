//! Which rows have arrived, and who may send more. Pure: no client, no threads, no time.
//!
//! The messages of one batch of a span are a [`Unit`]; a span has reached the end of the
//! last unit before which everything has arrived. Bytes of messages under way are counted
//! by one [`Ledger`] for all spans. A span may send as long as it has less under way than
//! is free ("dynamic threshold": Choudhury and Hahne, 1998): one whose partitions do not
//! answer stops at half of the ledger, two at a third each, and there is always room for
//! the others.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_sink::contract::SpanWaker;
use weir_types::{DispatcherId, OrderKey};

use crate::error::KafkaSinkError;

/// What librdkafka keeps for a message besides its key and value, bytes: its record, and
/// what allocation adds.
const MESSAGE_OVERHEAD: usize = 256;

/// Bytes that a message takes while it is under way.
pub(crate) const fn message_cost(key_bytes: usize, value_bytes: usize) -> usize {
    key_bytes + value_bytes + MESSAGE_OVERHEAD
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes under way of all spans.
pub(crate) struct Ledger {
    bytes_max: usize,
    bytes: AtomicUsize,
    waker: OnceLock<SpanWaker>,
    /// Spans that wait for room.
    waiting: Mutex<HashSet<DispatcherId>>,
}

impl Ledger {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            bytes: AtomicUsize::new(0),
            waker: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    /// Gives the way to wake spans, once.
    pub(crate) fn attach(&self, waker: SpanWaker) {
        // There is one scheduler.
        drop(self.waker.set(waker));
    }

    /// Bytes under way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Whether a span with `own` bytes under way may send more.
    fn has_room(&self, own: usize) -> bool {
        let bytes = self.bytes();
        // Whoever has nothing under way may send one batch, up to a quarter above.
        own < self.bytes_max.saturating_sub(bytes) || (own == 0 && bytes < self.bytes_max / 4 * 5)
    }

    /// Wakes a span.
    pub(crate) fn wake(&self, dispatcher: DispatcherId) {
        if let Some(waker) = self.waker.get() {
            waker.wake(dispatcher);
        }
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for dispatcher in waiting {
            self.wake(dispatcher);
        }
    }
}

struct Way {
    /// Units that have not arrived, and those behind them.
    units: VecDeque<Arc<Unit>>,
    /// Everything up to here has arrived.
    durable: OrderKey,
    /// The first message that will never arrive.
    error: Option<KafkaSinkError>,
}

/// What one span has under way.
pub(crate) struct SpanDelivery {
    dispatcher: DispatcherId,
    ledger: Arc<Ledger>,
    bytes: AtomicUsize,
    way: Mutex<Way>,
}

impl SpanDelivery {
    pub(crate) fn new(dispatcher: DispatcherId, ledger: &Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self {
            dispatcher,
            ledger: Arc::clone(ledger),
            bytes: AtomicUsize::new(0),
            way: Mutex::new(Way {
                units: VecDeque::new(),
                durable: OrderKey::MIN,
                error: None,
            }),
        })
    }

    /// Begins a unit that reaches up to `upto`: not below the unit before. It must be
    /// sealed.
    pub(crate) fn begin(self: &Arc<Self>, upto: OrderKey) -> Arc<Unit> {
        let unit = Arc::new(Unit {
            span: Arc::clone(self),
            upto,
            // One for the sender, until it seals the unit.
            missing: AtomicUsize::new(1),
        });
        lock(&self.way).units.push_back(Arc::clone(&unit));
        unit
    }

    /// Whether the span may send more. If not, it is woken when there is room.
    pub(crate) fn has_room(&self) -> bool {
        let fits = || self.ledger.has_room(self.bytes.load(Ordering::Acquire));
        if fits() {
            return true;
        }
        lock(&self.ledger.waiting).insert(self.dispatcher);
        // What has arrived since the first look has woken nobody.
        let fits = fits();
        if fits {
            lock(&self.ledger.waiting).remove(&self.dispatcher);
        }
        fits
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.way).units.is_empty()
    }

    /// Up to where everything has arrived.
    ///
    /// # Errors
    /// A message of the span will never arrive.
    pub(crate) fn reached(&self) -> Result<OrderKey, KafkaSinkError> {
        let way = lock(&self.way);
        match &way.error {
            Some(error) => Err(error.clone()),
            None => Ok(way.durable),
        }
    }

    /// Takes off what has arrived from the front; wakes the span.
    fn unit_ended(&self) {
        let mut way = lock(&self.way);
        let failed = way.error.is_some();
        while let Some(unit) = way.units.front()
            && unit.missing.load(Ordering::Acquire) == 0
        {
            if !failed {
                way.durable = way.durable.max(unit.upto);
            }
            way.units.pop_front();
        }
        drop(way);
        self.ledger.wake(self.dispatcher);
    }
}

/// Messages of one batch. One reference belongs to each message.
pub(crate) struct Unit {
    span: Arc<SpanDelivery>,
    upto: OrderKey,
    /// Messages that have not arrived, and one until all are sent.
    missing: AtomicUsize,
}

impl Unit {
    /// A message is about to be handed over; `cost` as [`message_cost`].
    pub(crate) fn add(&self, cost: usize) {
        self.missing.fetch_add(1, Ordering::AcqRel);
        self.span.bytes.fetch_add(cost, Ordering::AcqRel);
        self.span.ledger.bytes.fetch_add(cost, Ordering::AcqRel);
    }

    /// A message was not taken after all.
    pub(crate) fn take_back(&self, cost: usize) {
        self.subtract(cost);
        self.missing.fetch_sub(1, Ordering::AcqRel);
    }

    /// All messages are handed over.
    pub(crate) fn seal(&self) {
        self.one_less();
    }

    /// A message has arrived.
    pub(crate) fn arrived(&self, cost: usize) {
        self.subtract(cost);
        self.one_less();
    }

    /// A message will never arrive: nothing from its unit on counts as delivered.
    pub(crate) fn failed(&self, cost: usize, error: KafkaSinkError) {
        self.subtract(cost);
        lock(&self.span.way).error.get_or_insert(error);
        self.one_less();
        self.span.ledger.wake(self.span.dispatcher);
    }

    fn subtract(&self, cost: usize) {
        self.span.bytes.fetch_sub(cost, Ordering::AcqRel);
        self.span.ledger.bytes.fetch_sub(cost, Ordering::AcqRel);
    }

    fn one_less(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.span.unit_ended();
            self.span.ledger.wake_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_types::CommitTs;

    use super::*;

    fn key(number: u64) -> OrderKey {
        OrderKey::end_of(CommitTs(number))
    }

    fn error() -> KafkaSinkError {
        KafkaSinkError::Producer {
            reason: "a test".to_owned(),
        }
    }

    #[test]
    fn a_span_reaches_what_has_arrived_without_a_gap() {
        let ledger = Ledger::new(1000);
        let span = SpanDelivery::new(DispatcherId(1), &ledger);
        let (first, second) = (span.begin(key(1)), span.begin(key(2)));
        first.add(10);
        first.add(10);
        first.seal();
        second.add(10);
        second.seal();
        second.arrived(10);
        assert_eq!(span.reached(), Ok(OrderKey::MIN));
        first.arrived(10);
        assert_eq!(span.reached(), Ok(OrderKey::MIN));
        first.arrived(10);
        assert_eq!(span.reached(), Ok(key(2)));
        assert!(span.is_empty() && ledger.bytes() == 0);
    }

    #[test]
    fn a_unit_without_messages_has_arrived_when_it_is_sealed() {
        let span = SpanDelivery::new(DispatcherId(1), &Ledger::new(1000));
        let unit = span.begin(key(7));
        assert_eq!(span.reached(), Ok(OrderKey::MIN));
        unit.seal();
        assert_eq!(span.reached(), Ok(key(7)));
    }

    #[test]
    fn nothing_counts_from_a_lost_message_on() {
        let span = SpanDelivery::new(DispatcherId(1), &Ledger::new(1000));
        let units: Vec<_> = (1..=3).map(|number| span.begin(key(number))).collect();
        for unit in &units {
            unit.add(1);
            unit.seal();
        }
        units[0].arrived(1);
        units[1].failed(1, error());
        units[2].arrived(1);
        assert_eq!(span.reached(), Err(error()));
        assert_eq!(lock(&span.way).durable, key(1));
    }

    /// Spans that never get an answer leave room for another one, however many they are.
    #[test]
    fn silent_spans_leave_room() {
        for silent in 1..=30_u32 {
            let ledger = Ledger::new(1 << 20);
            for id in 0..silent {
                let span = SpanDelivery::new(DispatcherId(id), &ledger);
                while span.has_room() {
                    let unit = span.begin(key(1));
                    unit.add(1000);
                    unit.seal();
                }
            }
            let other = SpanDelivery::new(DispatcherId(1000), &ledger);
            assert!(other.has_room(), "{silent}");
        }
    }

    proptest! {
        /// The ledger is the sum of what is under way, and a span never reaches beyond it.
        #[test]
        fn bytes_and_progress_add_up(steps in proptest::collection::vec((0_usize..4, 1_usize..500), 1..200)) {
            let ledger = Ledger::new(usize::MAX);
            let span = SpanDelivery::new(DispatcherId(1), &ledger);
            let mut open: VecDeque<(Arc<Unit>, Vec<usize>)> = VecDeque::new();
            let mut number = 0;
            for (what, size) in steps {
                if what == 0 {
                    number += 1;
                    let unit = span.begin(key(number));
                    unit.add(size);
                    unit.add(size);
                    unit.seal();
                    open.push_back((unit, vec![size, size]));
                } else if !open.is_empty() {
                    let at = (what * size) % open.len();
                    let (unit, costs) = &mut open[at];
                    if let Some(cost) = costs.pop() {
                        unit.arrived(cost);
                    }
                }
                let sum: usize = open.iter().flat_map(|(_, costs)| costs).sum();
                prop_assert_eq!(ledger.bytes(), sum);
                let first = open.iter().find(|(_, costs)| !costs.is_empty());
                let expected = first.map_or(number, |(unit, _)| unit.upto.commit_ts.0 - 1);
                let expected = if expected == 0 { OrderKey::MIN } else { key(expected) };
                prop_assert_eq!(span.reached(), Ok(expected));
            }
        }
    }
}
