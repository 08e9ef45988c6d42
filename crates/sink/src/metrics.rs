//! Metrics of the sinks. Handles are made once per sink and touched once per pull.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use weir_codec::RowCounts;

/// Rows handed over, by kind.
pub const ROWS: &str = "weir_sink_rows_total";
/// Bytes of output.
pub const BYTES: &str = "weir_sink_bytes_total";
/// Files finished.
pub const FILES: &str = "weir_sink_files_total";
/// DDL written.
pub const DDL: &str = "weir_sink_ddl_total";
/// Time that it took to make output durable.
pub const FLUSH_SECONDS: &str = "weir_sink_flush_seconds";
/// Age of the newest rows when they were handed over, by their commit time.
pub const LAG_SECONDS: &str = "weir_sink_lag_seconds";
/// Time that workers could not write, by reason.
pub const BLOCKED_SECONDS: &str = "weir_sink_blocked_seconds_total";
/// Bytes of batches that the sink holds.
pub const IN_FLIGHT_BYTES: &str = "weir_sink_in_flight_bytes";

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_counter!(ROWS, Unit::Count, "rows that the sink has taken, by kind");
    describe_counter!(BYTES, Unit::Bytes, "bytes of output that the sink has written");
    describe_counter!(FILES, Unit::Count, "files that the sink has finished");
    describe_counter!(DDL, Unit::Count, "DDL statements that the sink has written");
    describe_histogram!(FLUSH_SECONDS, Unit::Seconds, "time to make output durable");
    describe_gauge!(
        LAG_SECONDS,
        Unit::Seconds,
        "age of the newest rows when the sink wrote them"
    );
    describe_counter!(
        BLOCKED_SECONDS,
        Unit::Seconds,
        "time that sink workers could not write, by reason"
    );
    describe_gauge!(
        IN_FLIGHT_BYTES,
        Unit::Bytes,
        "bytes of row batches that the sink holds"
    );
}

/// Why a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The disk is full.
    DiskFull,
    /// The blackhole was told to be slow.
    Delay,
    /// The target cannot be reached, or refuses for now.
    Unavailable,
    /// Rows or a table are locked at the target.
    Locked,
}

/// Counters are whole numbers: what is below a second is kept here.
#[derive(Clone)]
struct BlockedTime {
    micros: Arc<AtomicU64>,
    seconds: Counter,
}

impl BlockedTime {
    fn add(&self, waited: Duration) {
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        let before = self.micros.fetch_add(waited, Ordering::Relaxed);
        self.seconds.absolute(before.saturating_add(waited) / 1_000_000);
    }
}

/// Cached handles of one sink.
#[derive(Clone)]
pub(crate) struct SinkMetrics {
    kinds: [Counter; 3],
    bytes: Counter,
    files: Counter,
    ddl: Counter,
    flush: Histogram,
    lag: Gauge,
    disk_full: BlockedTime,
    delay: BlockedTime,
    unavailable: BlockedTime,
    locked: BlockedTime,
    in_flight: Gauge,
}

impl SinkMetrics {
    pub(crate) fn new(changefeed: &str) -> Self {
        let label = || ("changefeed", changefeed.to_owned());
        let kind = |kind: &'static str| {
            let (key, value) = label();
            counter!(ROWS, key => value, "kind" => kind)
        };
        let blocked = |reason: &'static str| {
            let (key, value) = label();
            BlockedTime {
                micros: Arc::default(),
                seconds: counter!(BLOCKED_SECONDS, key => value, "stage" => "sink", "reason" => reason),
            }
        };
        let labels = [label()];
        Self {
            kinds: [kind("insert"), kind("update"), kind("delete")],
            bytes: counter!(BYTES, &labels),
            files: counter!(FILES, &labels),
            ddl: counter!(DDL, &labels),
            flush: histogram!(FLUSH_SECONDS, &labels),
            lag: gauge!(LAG_SECONDS, &labels),
            disk_full: blocked("disk-full"),
            delay: blocked("delay"),
            unavailable: blocked("unavailable"),
            locked: blocked("locked"),
            in_flight: gauge!(IN_FLIGHT_BYTES, &labels),
        }
    }

    pub(crate) fn rows(&self, rows: RowCounts, bytes: u64) {
        let [inserts, updates, deletes] = &self.kinds;
        inserts.increment(rows.inserts);
        updates.increment(rows.updates);
        deletes.increment(rows.deletes);
        self.bytes.increment(bytes);
    }

    pub(crate) fn file(&self) {
        self.files.increment(1);
    }

    pub(crate) fn ddl(&self) {
        self.ddl.increment(1);
    }

    pub(crate) fn flushed(&self, seconds: f64) {
        self.flush.record(seconds);
    }

    pub(crate) fn lag(&self, seconds: f64) {
        self.lag.set(seconds);
    }

    pub(crate) fn blocked(&self, reason: Blocked, waited: Duration) {
        match reason {
            Blocked::DiskFull => self.disk_full.add(waited),
            Blocked::Delay => self.delay.add(waited),
            Blocked::Unavailable => self.unavailable.add(waited),
            Blocked::Locked => self.locked.add(waited),
        }
    }

    pub(crate) fn in_flight(&self, bytes: i64) {
        if bytes >= 0 {
            self.in_flight.increment(bytes as f64);
        } else {
            self.in_flight.decrement(bytes.unsigned_abs() as f64);
        }
    }
}
