//! What a run is given and what it returns.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// [`RunOptions::connect_timeout`] unless given: a server that is started together with
/// Weir is ready by then.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// One changefeed in the foreground.
pub struct RunOptions {
    /// The validated changefeed.
    pub changefeed: weir_config::Changefeed,
    /// Store and state; made if missing, locked by one process.
    pub data_dir: PathBuf,
    /// Where to end; none: at the stop signal.
    pub until: Option<weir_config::Until>,
    /// How long the first connections to both ends are tried. Behind them outages are
    /// waited for.
    pub connect_timeout: Duration,
    /// Turns true for a clean stop.
    pub stop: watch::Receiver<bool>,
    /// Counters for a progress bar.
    pub progress: Option<Arc<Progress>>,
}

/// Live counters of a run.
#[derive(Debug, Default)]
pub struct Progress {
    /// Transactions read from the source by this run.
    pub transactions: AtomicU64,
    /// Rows written to the sink by this run.
    pub rows: AtomicU64,
    /// Bytes of binlog read by this run.
    pub bytes_read: AtomicU64,
    /// Bytes of binlog that were there at the start, from the start position on.
    pub bytes_total: AtomicU64,
}

impl Progress {
    /// Reads a counter.
    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Why a run ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    /// `--until` was reached.
    Finished,
    /// The stop signal came.
    #[default]
    Stopped,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct RunSummary {
    /// Transactions read from the source.
    pub transactions: u64,
    /// Rows inserted.
    pub inserts: u64,
    /// Rows updated.
    pub updates: u64,
    /// Rows deleted.
    pub deletes: u64,
    /// Tables that rows were written of.
    pub tables: u64,
    /// DDL written.
    pub ddl: u64,
    /// Bytes written by the sink.
    pub bytes: u64,
    /// Bytes of binlog read.
    pub source_bytes: u64,
    /// Files finished by the file sink.
    pub output_files: u64,
    /// Checksum over all values visited (blackhole sink).
    pub checksum: u64,
    /// Wall time.
    pub elapsed: Duration,
    /// There was progress from an earlier run.
    pub resumed: bool,
    /// How it ended.
    pub reason: StopReason,
}
