//! The page behind `/debug/flow`.

use std::collections::HashMap;
use std::time::SystemTime;

use actix::Addr;
use serde_json::{Value, json};
use weir_changefeed::Status;
use weir_event_collector::{AccountFlow, EventCollector, Flow, GetFlow};
use weir_event_service::{EventService, GetStreams, StreamFlow};
use weir_types::{ChangefeedId, DispatcherId, ErrorReport, OrderKey, TableName};

use crate::http::FlowPage;

/// Time between two looks at the state, milliseconds.
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

    /// Whether it is time for a look at the state; if so, the next time is set.
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

    /// Somebody waits for the page.
    pub(crate) fn is_asked(&self) -> bool {
        self.page.is_asked()
    }

    /// Renders it.
    pub(crate) async fn show(
        &self,
        status: &Status,
        (state, reason): (&str, Option<&str>),
        collector: &Addr<EventCollector>,
        service: &Addr<EventService>,
    ) {
        let mut tables: Vec<_> = status.tables.iter().collect();
        tables.sort_by_key(|(_, checkpoint, _)| *checkpoint);
        tables.truncate(TABLES_MAX);
        let names = tables.iter().map(|(table, ..)| table.clone()).collect();
        // Stages that have ended leave the page as it was.
        let Ok(flow) = collector.send(GetFlow { tables: names }).await else {
            return;
        };
        let dispatchers = flow.accounts.iter().map(|account| account.dispatcher).collect();
        let Ok(streams) = service.send(GetStreams(dispatchers)).await else {
            return;
        };
        let streams = streams
            .0
            .iter()
            .map(|stream| (stream.dispatcher, stream))
            .collect();
        let tables = slowest(&tables, &flow.accounts, &streams);
        let page = json!({
            "changefeed": self.changefeed.to_string(),
            "state": state,
            "reason": reason,
            "checkpoint": status.checkpoint.to_string(),
            "checkpoint-ms": status.checkpoint.commit_ts.millis(),
            "open-barriers": status.open_barriers,
            "ledger": ledger(&flow),
            "tables-total": status.tables.len(),
            "tables-slowest": tables,
        });
        self.page.set(page.to_string());
    }
}

fn ledger(flow: &Flow) -> Value {
    json!({
        "budget-bytes": flow.budget_bytes,
        "share-bytes": flow.share_bytes,
        "open-bytes": flow.open_bytes,
        "closing-bytes": flow.closing_bytes,
        "held-bytes": flow.held_bytes,
        "lane-bytes": flow.lane_bytes,
        "dispatchers": flow.dispatchers,
        "waiting": flow.waiting,
        "resets": flow.resets,
    })
}

fn slowest(
    tables: &[&(TableName, OrderKey, Option<ErrorReport>)],
    accounts: &[AccountFlow],
    streams: &HashMap<DispatcherId, &StreamFlow>,
) -> Vec<Value> {
    let now_ms = SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let by_table: HashMap<&TableName, &AccountFlow> = accounts
        .iter()
        .flat_map(|account| account.tables.iter().map(move |table| (table, account)))
        .collect();
    let row = |(table, checkpoint, error): &&(TableName, OrderKey, Option<ErrorReport>)| {
        let account = by_table.get(table);
        let stream = account.and_then(|account| streams.get(&account.dispatcher));
        json!({
            "table": table.to_string(),
            "checkpoint": checkpoint.to_string(),
            "checkpoint-ms": checkpoint.commit_ts.millis(),
            "lag-ms": now_ms.saturating_sub(checkpoint.commit_ts.millis()),
            "error": error.as_ref().map(|e| e.code),
            "dispatcher": account.map(|account| account_of(account)),
            "stream": stream.map(|stream| stream_of(stream)),
        })
    };
    tables.iter().map(row).collect()
}

fn account_of(account: &AccountFlow) -> Value {
    json!({
        "id": account.dispatcher.0,
        "tables": account.tables.len(),
        "window-bytes": account.window_bytes,
        "open-bytes": account.open_bytes,
        "closing-bytes": account.closing_bytes,
        "held-bytes": account.held_bytes,
        "waits-for-budget": account.waits_for_budget,
    })
}

fn stream_of(stream: &StreamFlow) -> Value {
    let waited: serde_json::Map<String, Value> = stream
        .waited_ms
        .iter()
        .map(|(reason, millis)| (reason.label().to_owned(), json!(millis)))
        .collect();
    json!({
        "phase": stream.phase,
        "waits-for": stream.waits_for.map(weir_event_service::WaitReason::label),
        "sent-upto": stream.sent_upto.to_string(),
        "credit-bytes": stream.free_bytes,
        "waited-ms": waited,
    })
}
