//! One cell of the table: its own process, so that its peak memory is its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weir_event_collector::WindowPolicy;
use weir_event_service::ScanPolicy;
use weir_event_service::fence::Fence;
use weir_types::CommitTs;

use crate::load::{Feeder, HOT, TABLES, now_ms};
use crate::pipeline::{Kind, Streams};
use crate::sink::{Arrived, CostlyBackend, Costs};

/// `flow-control.memory-quota` of the cell, and its parts as production has them: five sixteenths are queues and sink,
/// a quarter recent blocks. The redo streams have a third of the queues.
pub(crate) const QUOTA_BYTES: u64 = 64 << 20;
const QUEUE_BYTES: u64 = QUOTA_BYTES / 16 * 5;
const TAIL_BYTES: usize = QUOTA_BYTES as usize / 4;
/// Workers of the sink; one of them is always busy with the hot table.
pub(crate) const WORKERS: usize = 4;
const REDO_WORKERS: usize = 2;
/// A row that does not conflict.
const COLD_COST: Duration = Duration::from_micros(20);
/// A row of the hot table at a sink that is well, and at a slow one.
const HOT_COST: Duration = Duration::from_micros(30);
const HOT_COST_SLOW: Duration = Duration::from_micros(250);
/// A row at the consumer of the redo streams, whatever its table.
const REDO_COST: Duration = Duration::from_micros(4);
/// Time between two looks at progress.
const LOOK: Duration = Duration::from_millis(100);

/// What lets streams read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    /// Windows per dispatcher: ours.
    PerDispatcher,
    /// The fence of the whole changefeed.
    GlobalFence,
    /// Memory alone.
    NoWindow,
}

/// A cell.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) policy: Policy,
    pub(crate) by_bytes: bool,
    pub(crate) slow: bool,
    /// Without the hot table: what the cold ones do alone.
    pub(crate) cold_only: bool,
}

/// What a cell has come to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) cell: Cell,
    /// Rows that the sink took in a second, and the part of what it could have taken.
    pub(crate) rows_per_s: f64,
    pub(crate) of_capacity: f64,
    pub(crate) redo_rows_per_s: f64,
    pub(crate) scans_per_s: f64,
    pub(crate) events_per_scan: f64,
    /// Lag of the hot table, milliseconds.
    pub(crate) hot_median_ms: u64,
    pub(crate) hot_p99_ms: u64,
    /// Of each cold table; the worst of them, in the second half of the round.
    pub(crate) cold_median_ms: u64,
    pub(crate) cold_p99_ms: u64,
    pub(crate) resets: u64,
    /// `VmHWM`, bytes.
    pub(crate) peak_bytes: u64,
    /// Interval of the fence at the end, milliseconds.
    pub(crate) fence_ms: f64,
    pub(crate) checksum: u64,
}

fn hot_cost(slow: bool) -> Duration {
    if slow { HOT_COST_SLOW } else { HOT_COST }
}

/// Rows that the sink could have taken of those that there were: one worker for the hot table, whose rows wait for each
/// other, the others for the rest; once it has caught up, all of them.
fn capacity(cell: Cell, (hot, cold): (u64, u64), seconds: f64) -> f64 {
    let hot_rows = (seconds / hot_cost(cell.slow).as_secs_f64()).min(hot as f64);
    let busy = hot_rows * hot_cost(cell.slow).as_secs_f64();
    let others = WORKERS as f64 * seconds - busy;
    hot_rows + (others / COLD_COST.as_secs_f64()).min(cold as f64)
}

/// Lags of one table, milliseconds.
#[derive(Default)]
struct Lags(Vec<u64>);

impl Lags {
    fn percentile(&mut self, part: f64) -> u64 {
        self.0.sort_unstable();
        let at = ((self.0.len().saturating_sub(1)) as f64 * part).round() as usize;
        self.0.get(at).copied().unwrap_or(0)
    }
}

fn kinds(cell: Cell, after: CommitTs, fence: &Arc<Fence>, arrived: [&Arc<Arrived>; 2]) -> [Kind; 2] {
    let policy = || match cell.policy {
        Policy::GlobalFence => ScanPolicy::GlobalFence(fence.join()),
        Policy::PerDispatcher | Policy::NoWindow => ScanPolicy::PerDispatcher,
    };
    let windows = match cell.policy {
        Policy::PerDispatcher => WindowPolicy::PerDispatcher,
        Policy::GlobalFence | Policy::NoWindow => WindowPolicy::Fixed,
    };
    let costs = [
        Costs {
            hot: hot_cost(cell.slow),
            cold: COLD_COST,
        },
        Costs {
            hot: REDO_COST,
            cold: REDO_COST,
        },
    ];
    let [normal, redo] = [0, 1].map(|at| Kind {
        name: ["normal", "redo"][at],
        budget_bytes: [QUEUE_BYTES / 3 * 2, QUEUE_BYTES / 3][at],
        windows,
        policy: policy(),
        backend: Box::new(CostlyBackend {
            costs: costs[at],
            by_bytes: cell.by_bytes,
            arrived: Arc::clone(arrived[at]),
        }),
        workers: [WORKERS, REDO_WORKERS][at],
        tables: usize::from(cell.cold_only)..TABLES,
        after,
    });
    [normal, redo]
}

/// Runs a cell for `length`.
pub(crate) fn run(cell: Cell, length: Duration) -> Result<Outcome> {
    let dir = tempfile::tempdir()?;
    let (mut feeder, reader) = Feeder::open(dir.path(), TAIL_BYTES, cell.cold_only)?;
    let begin = feeder.backlog()?;
    let system = actix::System::new();
    let outcome = system.block_on(async move {
        let (fence, arrived, redo_arrived) = (Arc::<Fence>::default(), Arc::default(), Arc::default());
        let [normal, redo] = kinds(cell, begin, &fence, [&arrived, &redo_arrived]);
        let begun = Instant::now();
        let normal = Streams::start(normal, &reader).await?;
        let redo = Streams::start(redo, &reader).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let feeding = {
            let (stop, tell, tell_redo) = (Arc::clone(&stop), normal.resolved(), redo.resolved());
            std::thread::spawn(move || {
                feeder.live(&stop, |resolved| {
                    tell(resolved);
                    tell_redo(resolved);
                })
            })
        };
        let mut lags = watch(&normal, &fence, begun, length).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let (hot, cold) = (
            arrived.hot.load(Ordering::Relaxed),
            arrived.cold.load(Ordering::Relaxed),
        );
        let redo_rows = redo_arrived.hot.load(Ordering::Relaxed) + redo_arrived.cold.load(Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        let feeder = feeding.join().ok().context("the feeder")??;
        let (done, flow, redo_flow) = (normal.done().await?, normal.flow().await?, redo.flow().await?);
        let cold_lags = &mut lags[1..];
        let worst =
            |lags: &mut [Lags], part| lags.iter_mut().map(|one| one.percentile(part)).max().unwrap_or(0);
        let outcome = Outcome {
            cell,
            rows_per_s: (hot + cold) as f64 / seconds,
            of_capacity: (hot + cold) as f64 / capacity(cell, feeder.rows, seconds),
            redo_rows_per_s: redo_rows as f64 / seconds,
            scans_per_s: done.scans as f64 / seconds,
            events_per_scan: done.events as f64 / done.scans.max(1) as f64,
            cold_median_ms: worst(cold_lags, 0.5),
            cold_p99_ms: worst(cold_lags, 0.99),
            hot_median_ms: lags[HOT].percentile(0.5),
            hot_p99_ms: lags[HOT].percentile(0.99),
            resets: flow.resets + redo_flow.resets,
            peak_bytes: peak_bytes()?,
            fence_ms: fence.interval_ms(),
            checksum: arrived.checksum.load(Ordering::Relaxed),
        };
        normal.stop().await?;
        redo.stop().await?;
        anyhow::Ok(outcome)
    })?;
    Ok(outcome)
}

/// Follows progress to the end of the round; lags of its second half.
async fn watch(normal: &Streams, fence: &Fence, begun: Instant, length: Duration) -> Result<Vec<Lags>> {
    let mut lags: Vec<Lags> = (0..TABLES).map(|_| Lags::default()).collect();
    let mut reported = 0;
    while begun.elapsed() < length {
        tokio::time::sleep(LOOK).await;
        let elapsed = begun.elapsed();
        if elapsed.as_secs() > reported {
            reported = elapsed.as_secs();
            let flow = normal.flow().await?;
            fence.report(
                reported * 1_000,
                flow.held_bytes as f64 / flow.budget_bytes as f64,
            );
        }
        if elapsed * 2 < length {
            continue;
        }
        let now = now_ms();
        let progress = normal.progress.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        for (number, checkpoint) in progress.iter() {
            let lag = now.saturating_sub(checkpoint.commit_ts.millis());
            lags[*number].0.push(lag);
        }
    }
    Ok(lags)
}

/// Largest resident size of this process so far.
fn peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes: u64 = line
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .context("VmHWM")?
        .trim()
        .parse()?;
    Ok(kibibytes * 1024)
}
