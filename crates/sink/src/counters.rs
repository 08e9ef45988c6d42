//! What a sink has done, for the summary of a run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_codec::RowCounts;

/// Counted since the sink started. Shared by its workers; relaxed, since the numbers do
/// not order anything.
#[derive(Debug, Default)]
pub struct SinkCounters {
    inserts: AtomicU64,
    updates: AtomicU64,
    deletes: AtomicU64,
    bytes: AtomicU64,
    ddl: AtomicU64,
    files: AtomicU64,
    checksum: AtomicU64,
    away: AtomicBool,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkTotals {
    /// Rows of each kind.
    pub rows: RowCounts,
    /// Bytes of output; of row events where nothing is put out.
    pub bytes: u64,
    /// DDL written.
    pub ddl: u64,
    /// Files finished, those of DDL included.
    pub files: u64,
    /// Sum over all rows of a checksum of their values; the blackhole computes it. The
    /// order of the rows does not matter.
    pub checksum: u64,
}

impl SinkCounters {
    /// Counts rows and bytes.
    pub fn add_rows(&self, rows: RowCounts, bytes: u64) {
        self.inserts.fetch_add(rows.inserts, Ordering::Relaxed);
        self.updates.fetch_add(rows.updates, Ordering::Relaxed);
        self.deletes.fetch_add(rows.deletes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a DDL.
    pub fn add_ddl(&self) {
        self.ddl.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a finished file.
    pub fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that the target cannot be reached or takes nothing now, or that it does again.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Whether the target is waited for.
    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Adds to the checksum.
    pub fn add_checksum(&self, sum: u64) {
        self.checksum.fetch_add(sum, Ordering::Relaxed);
    }

    /// The counters now.
    pub fn totals(&self) -> SinkTotals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SinkTotals {
            rows: RowCounts {
                inserts: get(&self.inserts),
                updates: get(&self.updates),
                deletes: get(&self.deletes),
            },
            bytes: get(&self.bytes),
            ddl: get(&self.ddl),
            files: get(&self.files),
            checksum: get(&self.checksum),
        }
    }
}
