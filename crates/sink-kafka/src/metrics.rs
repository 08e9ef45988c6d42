//! Metrics of this sink; rows and time blocked are counted by the `sink` crate. Handles
//! are made once per sink.

use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};

use crate::error::KafkaSinkError;

/// Messages that have arrived.
pub const DELIVERED: &str = "weir_kafka_messages_delivered_total";
/// Messages that will never arrive, by why.
pub const FAILED: &str = "weir_kafka_messages_failed_total";
/// Messages that were larger than their topic takes, by what became of them.
pub const TOO_LARGE: &str = "weir_kafka_messages_too_large_total";
/// Statements that were left out of a topic that cannot be written to.
pub const DDL_LEFT_OUT: &str = "weir_kafka_ddl_left_out_total";
/// Bytes of messages that are under way.
pub const IN_FLIGHT_BYTES: &str = "weir_kafka_in_flight_bytes";
/// Whether brokers can be reached.
pub const CONNECTED: &str = "weir_sink_connected";

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_counter!(DELIVERED, Unit::Count, "messages that the brokers have confirmed");
    describe_counter!(
        FAILED,
        Unit::Count,
        "messages that will not arrive, by reason: their topic refuses them, or the producer has failed"
    );
    describe_counter!(
        TOO_LARGE,
        Unit::Count,
        "messages larger than their topic takes, by what became of them"
    );
    describe_counter!(
        DDL_LEFT_OUT,
        Unit::Count,
        "statements that were left out of a new table's topic because it cannot be written to"
    );
    describe_gauge!(
        IN_FLIGHT_BYTES,
        Unit::Bytes,
        "bytes of messages that are handed over and not confirmed"
    );
}

/// Cached handles of one sink.
pub(crate) struct KafkaMetrics {
    delivered: Counter,
    refused: Counter,
    lost: Counter,
    skipped: Counter,
    keys_only: Counter,
    ddl_left_out: Counter,
    in_flight: Gauge,
    connected: Gauge,
}

impl KafkaMetrics {
    pub(crate) fn new(changefeed: &str) -> Self {
        let labels = [("changefeed", changefeed.to_owned())];
        let too_large = |action: &'static str| {
            let changefeed = changefeed.to_owned();
            counter!(TOO_LARGE, "changefeed" => changefeed, "action" => action)
        };
        let failed = |reason: &'static str| {
            let changefeed = changefeed.to_owned();
            counter!(FAILED, "changefeed" => changefeed, "reason" => reason)
        };
        let connected = gauge!(CONNECTED, &labels);
        connected.set(1.0);
        Self {
            delivered: counter!(DELIVERED, &labels),
            refused: failed("refused"),
            lost: failed("producer"),
            skipped: too_large("skipped"),
            keys_only: too_large("keys-only"),
            ddl_left_out: counter!(DDL_LEFT_OUT, &labels),
            in_flight: gauge!(IN_FLIGHT_BYTES, &labels),
            connected,
        }
    }

    pub(crate) fn delivered(&self) {
        self.delivered.increment(1);
    }

    pub(crate) fn failed(&self, error: &KafkaSinkError) {
        if matches!(error, KafkaSinkError::Refused { .. }) {
            self.refused.increment(1);
        } else {
            self.lost.increment(1);
        }
    }

    /// `sent`: with its key only.
    pub(crate) fn too_large(&self, sent: bool) {
        if sent {
            self.keys_only.increment(1);
        } else {
            self.skipped.increment(1);
        }
    }

    pub(crate) fn ddl_left_out(&self) {
        self.ddl_left_out.increment(1);
    }

    pub(crate) fn in_flight(&self, bytes: usize) {
        self.in_flight.set(bytes as f64);
    }

    pub(crate) fn connected(&self, is: bool) {
        self.connected.set(f64::from(u8::from(is)));
    }
}
