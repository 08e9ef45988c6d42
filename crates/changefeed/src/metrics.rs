//! Metrics of a changefeed.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use weir_types::{ChangefeedId, OrderKey};

/// Age of the changefeed's checkpoint.
pub const CHECKPOINT_LAG: &str = "weir_changefeed_checkpoint_lag_seconds";
/// Time of the changefeed's checkpoint.
pub const CHECKPOINT: &str = "weir_changefeed_checkpoint_timestamp_seconds";
/// Tables with a dispatcher.
pub const TABLES: &str = "weir_changefeed_tables";
/// Tables that have failed.
pub const FAILED_TABLES: &str = "weir_changefeed_failed_tables";
/// DDLs that are waited at.
pub const BARRIERS: &str = "weir_changefeed_open_barriers";
/// Time from the first dispatcher at a DDL until it passed.
pub const BARRIER_WAIT: &str = "weir_changefeed_barrier_wait_seconds";
/// Time of one save of progress.
pub const SAVE: &str = "weir_changefeed_save_seconds";
/// Saves that failed.
pub const SAVE_FAILURES: &str = "weir_changefeed_save_failures_total";
/// 1 for the present state, else 0.
pub const STATE: &str = "weir_changefeed_state";

const STATES: [&str; 7] = [
    "normal", "pending", "warning", "failed", "stopped", "finished", "removed",
];

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_gauge!(
        CHECKPOINT_LAG,
        Unit::Seconds,
        "age of the changefeed's checkpoint"
    );
    describe_gauge!(
        CHECKPOINT,
        Unit::Seconds,
        "commit time of the changefeed's checkpoint since the Unix epoch"
    );
    describe_gauge!(TABLES, Unit::Count, "tables with a dispatcher");
    describe_gauge!(FAILED_TABLES, Unit::Count, "tables that have failed");
    describe_gauge!(BARRIERS, Unit::Count, "DDLs that are waited at");
    describe_histogram!(
        BARRIER_WAIT,
        Unit::Seconds,
        "time from the first dispatcher at a DDL until it passed"
    );
    describe_histogram!(SAVE, Unit::Seconds, "time of one save of progress, sync included");
    describe_counter!(SAVE_FAILURES, Unit::Count, "saves of progress that failed");
    describe_gauge!(STATE, Unit::Count, "1 for the changefeed's present state, else 0");
}

/// Shows the state of this name.
pub fn set_state(changefeed: &ChangefeedId, state: &str) {
    for name in STATES {
        let shown = if name == state { 1.0 } else { 0.0 };
        gauge!(STATE, "changefeed" => changefeed.to_string(), "state" => name).set(shown);
    }
}

/// Cached handles of the maintainer.
pub(crate) struct MaintainerMetrics {
    lag: Gauge,
    checkpoint: Gauge,
    tables: Gauge,
    failed: Gauge,
    barriers: Gauge,
    barrier_wait: Histogram,
}

#[allow(clippy::cast_precision_loss)] // gauges are floating point
impl MaintainerMetrics {
    pub(crate) fn new(changefeed: &ChangefeedId) -> Self {
        let label = [("changefeed", changefeed.to_string())];
        Self {
            lag: gauge!(CHECKPOINT_LAG, &label),
            checkpoint: gauge!(CHECKPOINT, &label),
            tables: gauge!(TABLES, &label),
            failed: gauge!(FAILED_TABLES, &label),
            barriers: gauge!(BARRIERS, &label),
            barrier_wait: histogram!(BARRIER_WAIT, &label),
        }
    }

    /// `now_ms`: wall clock, milliseconds since the Unix epoch.
    pub(crate) fn progress(&self, checkpoint: OrderKey, now_ms: u64) {
        let millis = checkpoint.commit_ts.millis();
        // Before the first transaction there is no commit time to tell.
        if millis > 0 {
            self.checkpoint.set(millis as f64 / 1e3);
            self.lag.set(now_ms.saturating_sub(millis) as f64 / 1e3);
        }
    }

    pub(crate) fn counts(&self, tables: usize, failed: usize, barriers: usize) {
        self.tables.set(tables as f64);
        self.failed.set(failed as f64);
        self.barriers.set(barriers as f64);
    }

    pub(crate) fn barrier_passed(&self, waited_ms: u64) {
        self.barrier_wait.record(waited_ms as f64 / 1e3);
    }
}

/// Cached handles of the saver.
pub struct SaverMetrics {
    seconds: Histogram,
    failures: Counter,
}

impl SaverMetrics {
    /// Handles of one changefeed.
    pub fn new(changefeed: &ChangefeedId) -> Self {
        let label = [("changefeed", changefeed.to_string())];
        Self {
            seconds: histogram!(SAVE, &label),
            failures: counter!(SAVE_FAILURES, &label),
        }
    }

    pub(crate) fn saved(&self, took: Duration, ok: bool) {
        self.seconds.record(took.as_secs_f64());
        if !ok {
            self.failures.increment(1);
        }
    }
}
