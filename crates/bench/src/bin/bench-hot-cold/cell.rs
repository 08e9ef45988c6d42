//! One cell of the table: its own process, so that its peak memory is its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weir_event_collector::WindowPolicy;
use weir_event_service::fence::Fence;
use weir_event_service::{Done, ScanPolicy};
use weir_types::CommitTs;

use crate::load::{Feeder, HOT, TABLES, now_ms};
use crate::pipeline::{Kind, Streams};
use crate::sink::{Arrived, CostlyBackend, Costs};

/// `flow-control.memory-quota` of the cell, and its parts as production has them: five sixteenths are queues and sink,
/// a quarter recent blocks. The redo streams have a third of the queues.
pub(crate) const QUOTA_BYTES: u64 = 64 << 20;
const QUEUE_BYTES: u64 = QUOTA_BYTES / 16 * 5;
const TAIL_BYTES: usize = QUOTA_BYTES as usize / 4;
/// Workers of the sink: one for each table, so that what the sink can take is the sum over its tables.
const WORKERS: usize = TABLES;
const REDO_WORKERS: usize = 2;
/// A row of a cold table: its backlog lasts for about eight seconds, longer than rates are measured.
const COLD_COST: Duration = Duration::from_micros(160);
/// A row of the hot table at a sink that is well, and at a slow one.
const HOT_COST: Duration = Duration::from_micros(30);
const HOT_COST_SLOW: Duration = Duration::from_micros(250);
/// A row at the consumer of the redo streams, whatever its table.
const REDO_COST: Duration = Duration::from_micros(20);
/// Sixteenths of a round: rates are measured from the first, when all streams run, to the seventh, while every table has a
/// backlog; lags from the twelfth on, when cold tables that nobody holds up have caught up.
const RATE_FROM: u32 = 1;
const RATE_UNTIL: u32 = 7;
const LAG_FROM: u32 = 12;
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
    /// Rows that the sink took in a second while every table had a backlog, and the part of what it could have taken.
    pub(crate) rows_per_s: f64,
    pub(crate) of_capacity: f64,
    pub(crate) redo_rows_per_s: f64,
    pub(crate) scans_per_s: f64,
    pub(crate) events_per_scan: f64,
    /// Lag of each table, the hot one first, at the end of the round: median and 99th percentile, milliseconds.
    pub(crate) lags_ms: Vec<(u64, u64)>,
    pub(crate) resets: u64,
    /// `VmHWM`, bytes.
    pub(crate) peak_bytes: u64,
    /// Interval of the fence at the end, if there is one, milliseconds.
    pub(crate) fence_ms: f64,
    pub(crate) checksum: u64,
}

impl Outcome {
    /// Largest median and 99th percentile of the cold tables' lags, milliseconds.
    pub(crate) fn worst_cold_ms(&self) -> (u64, u64) {
        let cold = || self.lags_ms.iter().skip(HOT + 1);
        let most = |value: fn(&(u64, u64)) -> u64| cold().map(value).max().unwrap_or(0);
        (most(|lag| lag.0), most(|lag| lag.1))
    }
}

fn hot_cost(slow: bool) -> Duration {
    if slow { HOT_COST_SLOW } else { HOT_COST }
}

/// Rows that the sink can take in a second while every table has some: one after the other within a table.
fn capacity(cell: Cell) -> f64 {
    let hot = if cell.cold_only {
        0.0
    } else {
        1.0 / hot_cost(cell.slow).as_secs_f64()
    };
    hot + (TABLES - 1) as f64 / COLD_COST.as_secs_f64()
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
        let mut seen = watch(&normal, &fence, begun, length, || {
            (arrived.rows(), redo_arrived.rows())
        })
        .await?;
        stop.store(true, Ordering::Relaxed);
        feeding.join().ok().context("the feeder")??;
        let (flow, redo_flow) = (normal.flow().await?, redo.flow().await?);
        let Mark { seconds, rows, done } = seen.rates.context("the round was too short")?;
        let rows_per_s = rows.0 as f64 / seconds;
        let outcome = Outcome {
            cell,
            rows_per_s,
            of_capacity: rows_per_s / capacity(cell),
            redo_rows_per_s: rows.1 as f64 / seconds,
            scans_per_s: done.scans as f64 / seconds,
            events_per_scan: done.events as f64 / done.scans.max(1) as f64,
            lags_ms: seen
                .lags
                .iter_mut()
                .map(|one| (one.percentile(0.5), one.percentile(0.99)))
                .collect(),
            resets: flow.resets + redo_flow.resets,
            peak_bytes: peak_bytes()?,
            fence_ms: if cell.policy == Policy::GlobalFence {
                fence.interval_ms()
            } else {
                0.0
            },
            checksum: arrived.checksum.load(Ordering::Relaxed),
        };
        normal.stop().await?;
        redo.stop().await?;
        anyhow::Ok(outcome)
    })?;
    Ok(outcome)
}

/// Where everything stands, or what has passed between two such moments.
struct Mark {
    seconds: f64,
    /// Of the sink and of the redo consumer.
    rows: (u64, u64),
    /// By the service of the sink's streams.
    done: Done,
}

impl Mark {
    async fn now(begun: Instant, rows: &impl Fn() -> (u64, u64), normal: &Streams) -> Result<Self> {
        Ok(Self {
            seconds: begun.elapsed().as_secs_f64(),
            rows: rows(),
            done: normal.done().await?,
        })
    }

    fn since(self, from: &Self) -> Self {
        Self {
            seconds: self.seconds - from.seconds,
            rows: (self.rows.0 - from.rows.0, self.rows.1 - from.rows.1),
            done: Done {
                scans: self.done.scans - from.done.scans,
                events: self.done.events - from.done.events,
                bytes: self.done.bytes - from.done.bytes,
            },
        }
    }
}

/// What was seen of a round.
struct Seen {
    rates: Option<Mark>,
    lags: Vec<Lags>,
}

/// Follows progress to the end of the round.
async fn watch(
    normal: &Streams,
    fence: &Fence,
    begun: Instant,
    length: Duration,
    rows: impl Fn() -> (u64, u64),
) -> Result<Seen> {
    let mut seen = Seen {
        rates: None,
        lags: (0..TABLES).map(|_| Lags::default()).collect(),
    };
    let (mut from, mut reported) = (None, 0);
    while begun.elapsed() < length {
        tokio::time::sleep(LOOK).await;
        let elapsed = begun.elapsed();
        if elapsed.as_secs() > reported {
            reported = elapsed.as_secs();
            let flow = normal.flow().await?;
            let usage = flow.held_bytes as f64 / flow.budget_bytes as f64;
            fence.report(reported * 1_000, usage);
        }
        if from.is_none() && elapsed >= length / 16 * RATE_FROM {
            from = Some(Mark::now(begun, &rows, normal).await?);
        }
        if let Some(from) = &from
            && seen.rates.is_none()
            && elapsed >= length / 16 * RATE_UNTIL
        {
            seen.rates = Some(Mark::now(begun, &rows, normal).await?.since(from));
        }
        if elapsed < length / 16 * LAG_FROM {
            continue;
        }
        let now = now_ms();
        let progress = normal.progress.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        for (number, checkpoint) in progress.iter() {
            let lag = now.saturating_sub(checkpoint.commit_ts.millis());
            seen.lags[*number].0.push(lag);
        }
    }
    Ok(seen)
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
