//! Metrics of the event collector. Handles are made once; the core's counters are copied
//! into them a few times a second, never per row.

use metrics::{Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use weir_actor::Total;

use crate::core::{CollectorCore, ResetReason};
use crate::ledger::Lane;

/// Row events accepted.
pub const EVENTS: &str = "weir_event_collector_events_total";
/// Charged bytes accepted.
pub const BYTES: &str = "weir_event_collector_bytes_total";
/// Messages of older epochs, or accepted before.
pub const IGNORED: &str = "weir_event_collector_ignored_messages_total";
/// Resets of streams, by reason.
pub const RESETS: &str = "weir_event_collector_resets_total";
/// Dispatchers.
pub const DISPATCHERS: &str = "weir_event_collector_dispatchers";
/// Bytes charged to the changefeed's budget, by state.
pub const IN_FLIGHT_BYTES: &str = "weir_event_collector_in_flight_bytes";
/// The budget.
pub const BUDGET_BYTES: &str = "weir_event_collector_budget_bytes";
/// Time that streams stood still, summed over streams, by reason.
pub const BLOCKED_SECONDS: &str = "weir_event_collector_blocked_seconds_total";
/// Dispatchers that wait for budget now.
pub const WAITING: &str = "weir_event_collector_waiting_dispatchers";

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_counter!(EVENTS, Unit::Count, "row events accepted from the event service");
    describe_counter!(BYTES, Unit::Bytes, "charged bytes of the row events accepted");
    describe_counter!(
        IGNORED,
        Unit::Count,
        "messages of older epochs, or accepted before"
    );
    describe_counter!(RESETS, Unit::Count, "streams that were started anew, by reason");
    describe_gauge!(DISPATCHERS, Unit::Count, "dispatchers of the changefeed");
    describe_gauge!(
        IN_FLIGHT_BYTES,
        Unit::Bytes,
        "bytes charged to the changefeed's budget: open (credit and on the way), closing (of older epochs), \
         held (dispatchers and sink), lane"
    );
    describe_gauge!(
        BUDGET_BYTES,
        Unit::Bytes,
        "memory for row events between service and sink"
    );
    describe_counter!(
        BLOCKED_SECONDS,
        Unit::Seconds,
        "time that streams stood still, by reason"
    );
    describe_gauge!(WAITING, Unit::Count, "dispatchers that wait for budget now");
}

/// Cached handles.
pub(crate) struct CollectorMetrics {
    events: Total,
    bytes: Total,
    ignored: Total,
    resets: [Total; ResetReason::ALL.len()],
    dispatchers: Gauge,
    open: Gauge,
    closing: Gauge,
    held: Gauge,
    lane: Gauge,
    budget: Gauge,
    budget_wait: Total,
    register_wait: Total,
    waiting: Gauge,
}

#[allow(clippy::cast_precision_loss)] // gauges are floating point
impl CollectorMetrics {
    pub(crate) fn new(changefeed: &str) -> Self {
        let label = || changefeed.to_owned();
        let bytes = |state: &'static str| gauge!(IN_FLIGHT_BYTES, "changefeed" => label(), "state" => state);
        let blocked = |reason: &'static str| {
            Total::new(counter!(BLOCKED_SECONDS, "changefeed" => label(), "reason" => reason))
        };
        Self {
            events: Total::new(counter!(EVENTS, "changefeed" => label())),
            bytes: Total::new(counter!(BYTES, "changefeed" => label())),
            ignored: Total::new(counter!(IGNORED, "changefeed" => label())),
            resets: ResetReason::ALL.map(|reason| {
                Total::new(counter!(RESETS, "changefeed" => label(), "reason" => reason.label()))
            }),
            dispatchers: gauge!(DISPATCHERS, "changefeed" => label()),
            open: bytes("open"),
            closing: bytes("closing"),
            held: bytes("held"),
            lane: bytes("lane"),
            budget: gauge!(BUDGET_BYTES, "changefeed" => label()),
            budget_wait: blocked("changefeed_budget"),
            register_wait: blocked("not_ready"),
            waiting: gauge!(WAITING, "changefeed" => label()),
        }
    }

    pub(crate) fn export(&mut self, core: &CollectorCore) {
        let (counters, ledger) = (core.counters(), core.ledger());
        self.events.copy(counters.events);
        self.bytes.copy(counters.bytes);
        self.ignored.copy(counters.ignored);
        for (handle, count) in self.resets.iter_mut().zip(counters.resets) {
            handle.copy(count);
        }
        self.dispatchers.set(core.dispatchers() as f64);
        let (open, closing, held) = ledger.totals();
        self.open.set(open as f64);
        self.closing.set(closing as f64);
        self.held.set(held as f64);
        let lane = match ledger.lane() {
            Lane::Held(_, bytes) => bytes,
            Lane::Free | Lane::Granted(_) => 0,
        };
        self.lane.set(lane as f64);
        self.budget.set(ledger.budget() as f64);
        self.budget_wait.copy(counters.budget_wait_ms / 1_000);
        self.register_wait.copy(counters.register_wait_ms / 1_000);
        self.waiting.set(ledger.waiting() as f64);
    }
}
