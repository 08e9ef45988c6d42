//! Metrics of this sink; rows and time blocked are counted by the `sink` crate. Handles
//! are made once per sink.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::reply::Retry;

/// Transactions committed.
pub const TRANSACTIONS: &str = "weir_mysql_transactions_total";
/// Statements executed that write rows.
pub const STATEMENTS: &str = "weir_mysql_statements_total";
/// Attempts that failed and were made again, by reason.
pub const RETRIES: &str = "weir_mysql_retries_total";
/// Open connections.
pub const CONNECTIONS: &str = "weir_mysql_connections";
/// Time from the begin of a transaction to the end of its commit.
pub const TRANSACTION_SECONDS: &str = "weir_mysql_transaction_seconds";
/// Whether the last attempt to use the target succeeded.
pub const CONNECTED: &str = "weir_sink_connected";

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_counter!(TRANSACTIONS, Unit::Count, "transactions committed at the target");
    describe_counter!(
        STATEMENTS,
        Unit::Count,
        "statements that wrote rows at the target"
    );
    describe_counter!(
        RETRIES,
        Unit::Count,
        "attempts at the target that were made again, by reason"
    );
    describe_gauge!(CONNECTIONS, Unit::Count, "open connections to the target");
    describe_histogram!(
        TRANSACTION_SECONDS,
        Unit::Seconds,
        "time of a transaction at the target, its commit included"
    );
    describe_gauge!(
        CONNECTED,
        Unit::Count,
        "1 while the target takes work, 0 while it is unreachable or refuses"
    );
}

/// Cached handles of one sink.
pub(crate) struct MysqlMetrics {
    transactions: Counter,
    statements: Counter,
    retries: Vec<(Retry, Counter)>,
    connections: Gauge,
    seconds: Histogram,
    connected: Gauge,
}

impl MysqlMetrics {
    pub(crate) fn new(changefeed: &str) -> Self {
        let label = || ("changefeed", changefeed.to_owned());
        let labels = [label()];
        let retry = |reason: Retry| {
            let (key, value) = label();
            (
                reason,
                counter!(RETRIES, key => value, "reason" => reason.label()),
            )
        };
        Self {
            transactions: counter!(TRANSACTIONS, &labels),
            statements: counter!(STATEMENTS, &labels),
            retries: Retry::ALL.map(retry).into(),
            connections: gauge!(CONNECTIONS, &labels),
            seconds: histogram!(TRANSACTION_SECONDS, &labels),
            connected: gauge!(CONNECTED, &labels),
        }
    }

    pub(crate) fn committed(&self, statements: usize, took: Duration) {
        self.transactions.increment(1);
        self.statements.increment(statements as u64);
        self.seconds.record(took.as_secs_f64());
    }

    pub(crate) fn retried(&self, reason: Retry) {
        if let Some((_, counter)) = self.retries.iter().find(|(known, _)| *known == reason) {
            counter.increment(1);
        }
    }

    pub(crate) fn connections(&self, change: f64) {
        if change >= 0.0 {
            self.connections.increment(change);
        } else {
            self.connections.decrement(-change);
        }
    }

    pub(crate) fn connected(&self, is: bool) {
        self.connected.set(f64::from(u8::from(is)));
    }
}
