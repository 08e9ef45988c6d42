//! Metrics of the dispatchers. Handles are made once per dispatcher and touched per batch
//! or per heartbeat, never per row.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use weir_protocol::service::Span;
use weir_types::{ChangefeedId, OrderKey};

/// Row events handed to the sink.
pub const ROW_EVENTS: &str = "weir_dispatcher_row_events_total";
/// Charged bytes handed to the sink.
pub const BYTES: &str = "weir_dispatcher_bytes_total";
/// Time between the checkpoint's commit and now.
pub const CHECKPOINT_LAG: &str = "weir_dispatcher_checkpoint_lag_seconds";
/// Time between the resolved-ts' commit and now.
pub const RESOLVED_LAG: &str = "weir_dispatcher_resolved_lag_seconds";

/// Tables with a label of their own; the others share `other`.
pub const TABLE_LABELS_MAX: usize = 200;

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_counter!(ROW_EVENTS, Unit::Count, "row events handed to the sink");
    describe_counter!(BYTES, Unit::Bytes, "charged bytes handed to the sink");
    describe_gauge!(
        CHECKPOINT_LAG,
        Unit::Seconds,
        "age of the table's checkpoint; only for the first 200 tables"
    );
    describe_gauge!(
        RESOLVED_LAG,
        Unit::Seconds,
        "age of the table's resolved-ts; only for the first 200 tables"
    );
}

/// Gives label values, so that thousands of tables do not make thousands of series.
#[derive(Clone, Debug)]
pub struct TableLabels {
    changefeed: ChangefeedId,
    given: Arc<AtomicUsize>,
}

impl TableLabels {
    /// Labels of one changefeed; shared by its dispatchers.
    pub fn new(changefeed: ChangefeedId) -> Self {
        Self {
            changefeed,
            given: Arc::default(),
        }
    }

    /// The label of one more span, and whether it has it for itself.
    fn label(&self, span: &Span) -> (String, bool) {
        match span {
            Span::Schema => ("_schema".to_owned(), true),
            Span::Table(_) | Span::Tables(_) => {
                if self.given.fetch_add(1, Ordering::Relaxed) < TABLE_LABELS_MAX {
                    (span.to_string(), true)
                } else {
                    ("other".to_owned(), false)
                }
            }
        }
    }
}

/// Cached handles of one dispatcher.
pub(crate) struct DispatcherMetrics {
    row_events: Counter,
    bytes: Counter,
    /// None where the label is shared: one table's lag would overwrite another's.
    lag: Option<(Gauge, Gauge)>,
}

#[allow(clippy::cast_precision_loss)] // gauges are floating point
impl DispatcherMetrics {
    pub(crate) fn new(labels: &TableLabels, span: &Span) -> Self {
        let (table, own) = labels.label(span);
        let changefeed = labels.changefeed.to_string();
        let all = [("changefeed", changefeed), ("table", table)];
        Self {
            row_events: counter!(ROW_EVENTS, &all),
            bytes: counter!(BYTES, &all),
            lag: own.then(|| (gauge!(CHECKPOINT_LAG, &all), gauge!(RESOLVED_LAG, &all))),
        }
    }

    pub(crate) fn rows(&self, row_events: usize, bytes: usize) {
        self.row_events.increment(row_events as u64);
        self.bytes.increment(bytes as u64);
    }

    /// `now_ms`: wall clock, milliseconds since the Unix epoch.
    pub(crate) fn progress(&self, checkpoint: OrderKey, resolved: OrderKey, now_ms: u64) {
        let age = |key: OrderKey| now_ms.saturating_sub(key.commit_ts.millis()) as f64 / 1e3;
        if let Some((checkpoint_lag, resolved_lag)) = &self.lag {
            checkpoint_lag.set(age(checkpoint));
            resolved_lag.set(age(resolved));
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_types::TableName;

    use super::*;

    #[test]
    fn labels_are_bounded() {
        let labels = TableLabels::new(ChangefeedId("feed".into()));
        for n in 0..TABLE_LABELS_MAX {
            let table = Span::Table(TableName::new("shop", format!("t{n}")));
            assert_eq!(labels.label(&table), (format!("shop.t{n}"), true));
        }
        let table = Span::Table(TableName::new("shop", "late"));
        let shared = labels.clone();
        assert_eq!(shared.label(&table), ("other".to_owned(), false));
        assert_eq!(labels.label(&Span::Schema), ("_schema".to_owned(), true));
    }
}
