//! The page behind `/debug/flow`.

use actix::Addr;
use serde_json::json;
use weir_changefeed::Status;
use weir_event_collector::{EventCollector, GetFlow};
use weir_types::ChangefeedId;

use crate::http::FlowPage;

/// Time between two renderings, milliseconds: each asks every table's progress.
const INTERVAL_MS: u64 = 1_000;
/// Tables on the page; the slowest ones are shown.
const TABLES_MAX: usize = 100;

/// Renders the page from what the stages answer.
pub(crate) struct FlowReporter {
    page: FlowPage,
    changefeed: ChangefeedId,
    next_ms: u64,
}

impl FlowReporter {
    pub(crate) const fn new(page: FlowPage, changefeed: ChangefeedId) -> Self {
        Self {
            page,
            changefeed,
            next_ms: 0,
        }
    }

    /// Whether it is time; if so, the next time is set.
    pub(crate) const fn due(&mut self, now_ms: u64) -> bool {
        if now_ms < self.next_ms {
            return false;
        }
        self.next_ms = now_ms + INTERVAL_MS;
        true
    }

    /// The next look is due at once.
    pub(crate) const fn force(&mut self) {
        self.next_ms = 0;
    }

    /// Renders.
    pub(crate) async fn show(
        &self,
        status: &Status,
        (state, reason): (&str, Option<&str>),
        collector: &Addr<EventCollector>,
    ) {
        // A collector that has ended leaves the page as it was.
        let Ok(flow) = collector.send(GetFlow).await else {
            return;
        };
        let mut tables: Vec<_> = status.tables.iter().collect();
        tables.sort_by_key(|(_, checkpoint, _)| *checkpoint);
        let tables: Vec<_> = tables
            .into_iter()
            .take(TABLES_MAX)
            .map(|(table, checkpoint, error)| {
                json!({
                    "table": table.to_string(),
                    "checkpoint": checkpoint.to_string(),
                    "checkpoint-ms": checkpoint.commit_ts.millis(),
                    "error": error.as_ref().map(|e| e.code),
                })
            })
            .collect();
        let page = json!({
            "changefeed": self.changefeed.to_string(),
            "state": state,
            "reason": reason,
            "checkpoint": status.checkpoint.to_string(),
            "checkpoint-ms": status.checkpoint.commit_ts.millis(),
            "open-barriers": status.open_barriers,
            "ledger": {
                "budget-bytes": flow.budget_bytes,
                "open-bytes": flow.open_bytes,
                "closing-bytes": flow.closing_bytes,
                "held-bytes": flow.held_bytes,
                "lane-bytes": flow.lane_bytes,
                "dispatchers": flow.dispatchers,
                "waiting": flow.waiting,
            },
            "tables-total": status.tables.len(),
            "tables-slowest": tables,
        });
        self.page.set(page.to_string());
    }
}
