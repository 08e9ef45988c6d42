//! A sink whose rows cost a fixed time each. The rows of a table conflict and are written one after the other, tables side
//! by side: what the sink can take is the sum over its tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_protocol::collector::EventBatch;
use weir_sink::Result as SinkResult;
use weir_sink::contract::{Backend, DdlDone, PullLimits, Reached, SpanWriter, WorkerContext};
use weir_sink::{Blocked, SinkError, SpanTable};
use weir_types::{DdlEvent, DispatcherId, OrderKey};

use crate::load::{HOT, table};

/// Rows are paid for and counted when they have cost this much, nanoseconds: shorter pauses last longer than they should,
/// longer ones would count rows in lumps.
const PAUSE_MIN_NS: i64 = 5_000_000;
/// Batches by bytes and count: what has been written goes back to the ledger after each of them.
const BY_BYTES: PullLimits = PullLimits {
    bytes: 256 << 10,
    work: 64,
};
/// Batches by count alone: as many pieces of work as there are.
const BY_COUNT: PullLimits = PullLimits {
    bytes: usize::MAX,
    work: 4_096,
};

/// What rows cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// A row of the hot table.
    pub(crate) hot: Duration,
    /// A row of any other.
    pub(crate) cold: Duration,
}

/// What has arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) hot: AtomicU64,
    pub(crate) cold: AtomicU64,
    /// Of all bytes: whoever counts them has visited them.
    pub(crate) checksum: AtomicU64,
}

impl Arrived {
    /// Of all tables.
    pub(crate) fn rows(&self) -> u64 {
        self.hot.load(Ordering::Relaxed) + self.cold.load(Ordering::Relaxed)
    }
}

pub(crate) struct CostlyBackend {
    pub(crate) costs: Costs,
    pub(crate) by_bytes: bool,
    pub(crate) arrived: Arc<Arrived>,
}

impl Backend for CostlyBackend {
    fn open(&self, _: DispatcherId, tables: &[SpanTable]) -> SinkResult<Box<dyn SpanWriter>> {
        let is_hot = tables.first().is_some_and(|one| one.source == table(HOT));
        Ok(Box::new(CostlySpan {
            cost_ns: nanos(if is_hot { self.costs.hot } else { self.costs.cold }),
            is_hot,
            arrived: Arc::clone(&self.arrived),
            owed_ns: 0,
            last: OrderKey::MIN,
        }))
    }

    fn commit(&self, _: &mut WorkerContext) -> SinkResult<()> {
        Ok(())
    }

    fn pull_limits(&self) -> PullLimits {
        if self.by_bytes { BY_BYTES } else { BY_COUNT }
    }
}

struct CostlySpan {
    cost_ns: i64,
    is_hot: bool,
    arrived: Arc<Arrived>,
    /// Time that rows have cost and that has not been waited yet, nanoseconds; negative after a pause that took longer
    /// than it should, so that a busy machine does not make the sink slower.
    owed_ns: i64,
    last: OrderKey,
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl CostlySpan {
    /// Waits for what rows have cost.
    fn pay(&mut self, worker: &WorkerContext) -> SinkResult<()> {
        let begun = Instant::now();
        let length = Duration::from_nanos(self.owed_ns.unsigned_abs());
        if !worker.pause(length, Blocked::Delay) {
            return Err(SinkError::Stopping);
        }
        self.owed_ns -= nanos(begun.elapsed());
        Ok(())
    }

    fn count(&self, rows: u64) {
        let count = if self.is_hot {
            &self.arrived.hot
        } else {
            &self.arrived.cold
        };
        count.fetch_add(rows, Ordering::Relaxed);
    }
}

impl SpanWriter for CostlySpan {
    fn write(&mut self, batch: &EventBatch, worker: &mut WorkerContext) -> SinkResult<()> {
        let (mut rows, mut checksum) = (0_u64, 0_u64);
        for slice in &batch.slices {
            for event in slice.iter() {
                let event = event?;
                checksum = event.body.iter().fold(checksum, |sum, byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
                });
                rows += 1;
                self.owed_ns += self.cost_ns;
                if self.owed_ns >= PAUSE_MIN_NS {
                    self.pay(worker)?;
                    self.count(std::mem::take(&mut rows));
                }
            }
        }
        // What they cost is paid with the next batch.
        self.count(rows);
        self.last = batch.last;
        self.arrived.checksum.fetch_xor(checksum, Ordering::Relaxed);
        Ok(())
    }

    fn settle(&mut self, _: &mut WorkerContext) -> SinkResult<()> {
        Ok(())
    }

    fn flush(&mut self, _: &mut WorkerContext) -> SinkResult<()> {
        Ok(())
    }

    fn ddl(&mut self, _: OrderKey, _: &DdlEvent, _: &mut WorkerContext) -> SinkResult<DdlDone> {
        Ok(DdlDone::default())
    }

    fn tick(&mut self, _: &mut WorkerContext) -> SinkResult<()> {
        Ok(())
    }

    fn reached(&mut self) -> Reached {
        Reached {
            durable: self.last,
            needs_commit: false,
        }
    }

    fn due(&self) -> Option<u64> {
        None
    }
}
