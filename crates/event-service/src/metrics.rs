//! Metrics of the event service. Handles are made once; counters of the core are copied
//! into them a few times a second, never per row.

use metrics::{Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use weir_actor::Total;

use crate::core::ServiceCore;
use crate::waits::WaitReason;

/// Row events sent to collectors.
pub const EVENTS: &str = "weir_event_service_events_total";
/// Charged bytes sent to collectors.
pub const BYTES: &str = "weir_event_service_bytes_total";
/// Batches sent to collectors.
pub const BATCHES: &str = "weir_event_service_batches_total";
/// DDL sent to collectors, once per dispatcher.
pub const DDLS: &str = "weir_event_service_ddls_total";
/// Demands for credit.
pub const DEMANDS: &str = "weir_event_service_demands_total";
/// Scans of the store.
pub const SCANS: &str = "weir_event_service_scans_total";
/// Row events that went through the reserved lane.
pub const LANE_ROWS: &str = "weir_event_service_lane_rows_total";
/// Streams.
pub const STREAMS: &str = "weir_event_service_streams";
/// Streams that stand still now, by reason.
pub const WAITING: &str = "weir_event_service_waiting_streams";
/// Time that streams stood still, summed over streams, by reason.
pub const BLOCKED_SECONDS: &str = "weir_event_service_blocked_seconds_total";
/// Credit that streams may still use.
pub const CREDIT_BYTES: &str = "weir_event_service_credit_bytes";
/// Age of the resolved-ts.
pub const LAG_SECONDS: &str = "weir_event_service_lag_seconds";

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_counter!(EVENTS, Unit::Count, "row events sent to dispatchers");
    describe_counter!(BYTES, Unit::Bytes, "charged bytes of the row events sent");
    describe_counter!(BATCHES, Unit::Count, "batches sent to dispatchers");
    describe_counter!(DDLS, Unit::Count, "DDL sent, once per dispatcher that takes part");
    describe_counter!(DEMANDS, Unit::Count, "demands for credit sent to the collector");
    describe_counter!(SCANS, Unit::Count, "scans of the event store");
    describe_counter!(
        LANE_ROWS,
        Unit::Count,
        "row events that passed the lane for large rows"
    );
    describe_gauge!(STREAMS, Unit::Count, "streams that the service keeps");
    describe_gauge!(WAITING, Unit::Count, "streams that stand still now, by reason");
    describe_counter!(
        BLOCKED_SECONDS,
        Unit::Seconds,
        "time that streams stood still, by reason"
    );
    describe_gauge!(CREDIT_BYTES, Unit::Bytes, "granted bytes that are not used yet");
    describe_gauge!(
        LAG_SECONDS,
        Unit::Seconds,
        "age of the resolved-ts that streams may reach"
    );
}

/// Cached handles.
pub(crate) struct ServiceMetrics {
    events: Total,
    bytes: Total,
    batches: Total,
    ddls: Total,
    demands: Total,
    scans: Total,
    lane_rows: Total,
    streams: Gauge,
    waits: [(WaitReason, Gauge, Total); WaitReason::ALL.len()],
    credit: Gauge,
    lag: Gauge,
}

#[allow(clippy::cast_precision_loss)] // gauges are floating point
impl ServiceMetrics {
    pub(crate) fn new() -> Self {
        Self {
            events: Total::new(counter!(EVENTS)),
            bytes: Total::new(counter!(BYTES)),
            batches: Total::new(counter!(BATCHES)),
            ddls: Total::new(counter!(DDLS)),
            demands: Total::new(counter!(DEMANDS)),
            scans: Total::new(counter!(SCANS)),
            lane_rows: Total::new(counter!(LANE_ROWS)),
            streams: gauge!(STREAMS),
            waits: WaitReason::ALL.map(|reason| {
                let label = reason.label();
                (
                    reason,
                    gauge!(WAITING, "reason" => label),
                    Total::new(counter!(BLOCKED_SECONDS, "reason" => label)),
                )
            }),
            credit: gauge!(CREDIT_BYTES),
            lag: gauge!(LAG_SECONDS),
        }
    }

    /// Copies the core's counters; `wall_ms`: Weir's own clock, Unix milliseconds.
    pub(crate) fn export(&mut self, core: &ServiceCore, wall_ms: u64) {
        let counters = core.counters();
        self.events.copy(counters.events);
        self.bytes.copy(counters.bytes);
        self.batches.copy(counters.batches);
        self.ddls.copy(counters.ddls);
        self.demands.copy(counters.demands);
        self.scans.copy(counters.scans);
        self.lane_rows.copy(counters.lane_rows);
        self.streams.set(core.streams() as f64);
        for (reason, waiting, blocked) in &mut self.waits {
            waiting.set(core.waits().waiting(*reason) as f64);
            blocked.copy(core.waits().sum_ms(*reason) / 1_000);
        }
        self.credit.set(core.free_credit() as f64);
        self.lag
            .set(wall_ms.saturating_sub(core.resolved().millis()) as f64 / 1_000.0);
    }
}
