//! Metrics of the source. Handles are made once; counting is per step, never per row.

use std::time::Duration;

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

use crate::assembler::Counts;

/// Bytes of binlog events read.
pub const BYTES_TOTAL: &str = "weir_source_bytes_total";
/// Transactions that ended.
pub const TRANSACTIONS_TOTAL: &str = "weir_source_transactions_total";
/// Row events read, by whether the filter let them through.
pub const ROW_EVENTS_TOTAL: &str = "weir_source_row_events_total";
/// DDL statements that passed the filter.
pub const DDL_TOTAL: &str = "weir_source_ddl_total";
/// Statements without effect on what is replicated.
pub const IGNORED_TOTAL: &str = "weir_source_ignored_statements_total";
/// Parts of large transactions that went to the store before their end.
pub const FRAGMENTS_TOTAL: &str = "weir_source_fragments_total";
/// Wall clock minus the time of the last event read; 0 when everything was read.
pub const LAG_SECONDS: &str = "weir_source_lag_seconds";
/// Offset in the current binlog file.
pub const POSITION_BYTES: &str = "weir_source_position_bytes";
/// Number of the current binlog file.
pub const FILE_NUMBER: &str = "weir_source_file_number";
/// Bytes sent to the store and not yet durable.
pub const IN_FLIGHT_BYTES: &str = "weir_source_in_flight_bytes";
/// Time that the source waited, by reason.
pub const BLOCKED_SECONDS: &str = "weir_source_blocked_seconds_total";
/// Connections to the server that were lost, by reason.
pub const RECONNECTS_TOTAL: &str = "weir_source_reconnects_total";
/// 1 while there is a connection to the server.
pub const CONNECTED: &str = "weir_source_connected";

/// Describes the metrics to the recorder.
pub fn describe() {
    describe_counter!(BYTES_TOTAL, "Bytes of binlog events read");
    describe_counter!(TRANSACTIONS_TOTAL, "Transactions read to their end");
    describe_counter!(
        ROW_EVENTS_TOTAL,
        "Row events read, by whether the filter let them through"
    );
    describe_counter!(DDL_TOTAL, "DDL statements that passed the filter");
    describe_counter!(
        FRAGMENTS_TOTAL,
        "Parts of large transactions stored before their end"
    );
    describe_gauge!(LAG_SECONDS, "Wall clock minus time of the last event read");
    describe_gauge!(POSITION_BYTES, "Offset in the current binlog file");
    describe_gauge!(FILE_NUMBER, "Number of the current binlog file");
    describe_gauge!(IN_FLIGHT_BYTES, "Bytes sent to the store and not yet durable");
    describe_counter!(BLOCKED_SECONDS, "Seconds that the source waited, by reason");
    describe_counter!(
        RECONNECTS_TOTAL,
        "Connections to the server that were lost, by reason"
    );
    describe_gauge!(CONNECTED, "1 while there is a connection to the server");
}

/// What becomes of the connection to a server. Rare, so that nothing is cached.
pub(crate) struct LinkMetrics {
    changefeed: String,
}

impl LinkMetrics {
    pub(crate) const fn new(changefeed: String) -> Self {
        Self { changefeed }
    }

    pub(crate) fn connected(&self) {
        gauge!(CONNECTED, "changefeed" => self.changefeed.clone()).set(1.0);
    }

    pub(crate) fn lost(&self, reason: &'static str) {
        gauge!(CONNECTED, "changefeed" => self.changefeed.clone()).set(0.0);
        counter!(RECONNECTS_TOTAL, "changefeed" => self.changefeed.clone(), "reason" => reason).increment(1);
    }
}

/// Cached handles.
pub(crate) struct SourceMetrics {
    bytes: Counter,
    transactions: Counter,
    wanted: Counter,
    unwanted: Counter,
    ddls: Counter,
    ignored: Counter,
    fragments: Counter,
    lag: Gauge,
    position: Gauge,
    file: Gauge,
    in_flight: Gauge,
    blocked_store: Counter,
    blocked_counted: u64,
    blocked: Duration,
    idle: Counter,
    idle_time: Duration,
    idle_counted: u64,
    last: (u64, Counts),
}

impl SourceMetrics {
    pub(crate) fn new(changefeed: &str) -> Self {
        let id = changefeed.to_owned();
        Self {
            bytes: counter!(BYTES_TOTAL, "changefeed" => id.clone()),
            transactions: counter!(TRANSACTIONS_TOTAL, "changefeed" => id.clone()),
            wanted: counter!(ROW_EVENTS_TOTAL, "changefeed" => id.clone(), "wanted" => "true"),
            unwanted: counter!(ROW_EVENTS_TOTAL, "changefeed" => id.clone(), "wanted" => "false"),
            ddls: counter!(DDL_TOTAL, "changefeed" => id.clone()),
            ignored: counter!(IGNORED_TOTAL, "changefeed" => id.clone()),
            fragments: counter!(FRAGMENTS_TOTAL, "changefeed" => id.clone()),
            lag: gauge!(LAG_SECONDS, "changefeed" => id.clone()),
            position: gauge!(POSITION_BYTES, "changefeed" => id.clone()),
            file: gauge!(FILE_NUMBER, "changefeed" => id.clone()),
            in_flight: gauge!(IN_FLIGHT_BYTES, "changefeed" => id.clone()),
            blocked_store: counter!(BLOCKED_SECONDS, "changefeed" => id.clone(), "reason" => "in_flight_window"),
            idle: counter!(BLOCKED_SECONDS, "changefeed" => id, "reason" => "upstream_idle"),
            blocked_counted: 0,
            blocked: Duration::ZERO,
            idle_time: Duration::ZERO,
            idle_counted: 0,
            last: (0, Counts::default()),
        }
    }

    /// What was read in all since the start.
    pub(crate) fn read(&mut self, bytes: u64, counts: Counts) {
        let (bytes_before, before) = self.last;
        self.bytes.increment(bytes - bytes_before);
        self.transactions
            .increment(counts.transactions - before.transactions);
        let wanted = counts.wanted_row_events - before.wanted_row_events;
        self.wanted.increment(wanted);
        self.unwanted
            .increment(counts.row_events - before.row_events - wanted);
        self.ddls.increment(counts.ddls - before.ddls);
        self.ignored
            .increment(counts.ignored_statements - before.ignored_statements);
        self.fragments
            .increment(counts.spilled_fragments - before.spilled_fragments);
        self.last = (bytes, counts);
    }

    pub(crate) fn place(&self, file_number: u64, offset: u64, lag: Duration) {
        // Exact up to 2^53.
        self.file.set(file_number as f64);
        self.position.set(offset as f64);
        self.lag.set(lag.as_secs_f64());
    }

    pub(crate) fn in_flight(&self, bytes: usize) {
        self.in_flight.set(bytes as f64);
    }

    /// Counters are whole numbers: what is below a second is kept for later.
    pub(crate) fn blocked(&mut self, time: Duration) {
        self.blocked += time;
        let seconds = self.blocked.as_secs();
        self.blocked_store.increment(seconds - self.blocked_counted);
        self.blocked_counted = seconds;
    }

    pub(crate) fn idled(&mut self, time: Duration) {
        self.idle_time += time;
        let seconds = self.idle_time.as_secs();
        self.idle.increment(seconds - self.idle_counted);
        self.idle_counted = seconds;
    }
}
