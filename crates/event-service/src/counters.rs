//! What the service has done, for metrics.

/// Counters for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceCounters {
    /// Row events sent.
    pub events: u64,
    /// Charged bytes sent.
    pub bytes: u64,
    /// Batches sent.
    pub batches: u64,
    /// DDL sent.
    pub ddls: u64,
    /// Resolved-ts sent.
    pub resolved: u64,
    /// Demands for credit sent.
    pub demands: u64,
    /// Scans started.
    pub scans: u64,
    /// Scans that ended after their epoch.
    pub scans_stale: u64,
    /// Row events that went through the reserved lane.
    pub lane_rows: u64,
}
