//! Metrics of the store. Handles are made once; touched once per sync.

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::contract::{Synced, Usage};

/// Row events that became visible.
pub const EVENTS: &str = "weir_store_row_events_total";
/// Raw bytes of row events, as the server wrote them.
pub const RAW_BYTES: &str = "weir_store_raw_bytes_total";
/// Bytes written for them.
pub const STORED_BYTES: &str = "weir_store_stored_bytes_total";
/// Commit groups synced.
pub const GROUPS: &str = "weir_store_groups_total";
/// Time of a sync.
pub const SYNC_SECONDS: &str = "weir_store_sync_seconds";
/// Segment files.
pub const SEGMENTS: &str = "weir_store_segments";
/// Bytes that count against the quota.
pub const DISK_BYTES: &str = "weir_store_disk_bytes";
/// Bytes of recent blocks in memory.
pub const TAIL_BYTES: &str = "weir_store_tail_bytes";
/// Bytes of inputs that wait in front of the store.
pub const QUEUED_BYTES: &str = "weir_store_queued_bytes";
/// Bytes that garbage collection freed.
pub const FREED_BYTES: &str = "weir_store_freed_bytes_total";
/// Time that inputs waited, by reason: `disk_full`, `quota`, `sync`.
pub const BLOCKED_SECONDS: &str = "weir_store_blocked_seconds_total";

/// Registers the descriptions; call once at start.
pub fn describe() {
    describe_counter!(EVENTS, Unit::Count, "row events that became durable and visible");
    describe_counter!(
        RAW_BYTES,
        Unit::Bytes,
        "raw bytes of row events that became durable"
    );
    describe_counter!(STORED_BYTES, Unit::Bytes, "bytes written to disk for row events");
    describe_counter!(GROUPS, Unit::Count, "commit groups synced");
    describe_histogram!(SYNC_SECONDS, Unit::Seconds, "time to sync a commit group");
    describe_gauge!(SEGMENTS, Unit::Count, "segment files");
    describe_gauge!(DISK_BYTES, Unit::Bytes, "bytes that count against the disk quota");
    describe_gauge!(TAIL_BYTES, Unit::Bytes, "bytes of recent blocks in memory");
    describe_gauge!(
        QUEUED_BYTES,
        Unit::Bytes,
        "bytes of inputs waiting in front of the store"
    );
    describe_counter!(FREED_BYTES, Unit::Bytes, "bytes freed by garbage collection");
    describe_gauge!(
        BLOCKED_SECONDS,
        Unit::Seconds,
        "time that inputs waited, by reason"
    );
}

/// Why inputs wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// The disk is full.
    DiskFull,
    /// The quota is used up.
    Quota,
    /// Enough syncs are under way.
    Sync,
}

pub(crate) struct StoreMetrics {
    events: Counter,
    raw_bytes: Counter,
    stored_bytes: Counter,
    groups: Counter,
    sync_seconds: Histogram,
    segments: Gauge,
    disk_bytes: Gauge,
    tail_bytes: Gauge,
    queued_bytes: Gauge,
    freed_bytes: Counter,
    blocked: [Gauge; 3],
}

impl StoreMetrics {
    pub(crate) fn new(changefeed: &str) -> Self {
        let labels = [("changefeed", changefeed.to_owned())];
        let blocked = |reason: &'static str| {
            let reason = ("reason", reason.to_owned());
            gauge!(BLOCKED_SECONDS, &[("changefeed", changefeed.to_owned()), reason])
        };
        Self {
            events: counter!(EVENTS, &labels),
            raw_bytes: counter!(RAW_BYTES, &labels),
            stored_bytes: counter!(STORED_BYTES, &labels),
            groups: counter!(GROUPS, &labels),
            sync_seconds: histogram!(SYNC_SECONDS, &labels),
            segments: gauge!(SEGMENTS, &labels),
            disk_bytes: gauge!(DISK_BYTES, &labels),
            tail_bytes: gauge!(TAIL_BYTES, &labels),
            queued_bytes: gauge!(QUEUED_BYTES, &labels),
            freed_bytes: counter!(FREED_BYTES, &labels),
            blocked: [blocked("disk_full"), blocked("quota"), blocked("sync")],
        }
    }

    pub(crate) fn synced(&self, synced: &Synced, seconds: f64, usage: Usage, queued_bytes: usize) {
        self.events.increment(synced.events);
        self.raw_bytes.increment(synced.raw_bytes);
        self.stored_bytes.increment(synced.stored_bytes);
        self.groups.increment(1);
        self.sync_seconds.record(seconds);
        self.usage(usage);
        self.queued_bytes.set(queued_bytes as f64);
    }

    pub(crate) fn usage(&self, usage: Usage) {
        self.segments.set(usage.segments as f64);
        self.disk_bytes.set(usage.disk_bytes as f64);
        self.tail_bytes.set(usage.tail_bytes as f64);
    }

    pub(crate) fn freed(&self, bytes: u64, usage: Usage) {
        self.freed_bytes.increment(bytes);
        self.usage(usage);
    }

    /// Seconds have fractions: a gauge that only rises.
    pub(crate) fn blocked(&self, reason: Blocked, seconds: f64) {
        let [disk_full, quota, sync] = &self.blocked;
        match reason {
            Blocked::DiskFull => disk_full.increment(seconds),
            Blocked::Quota => quota.increment(seconds),
            Blocked::Sync => sync.increment(seconds),
        }
    }
}
