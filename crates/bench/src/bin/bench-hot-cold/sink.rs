//! A sink whose rows cost a fixed time each: those of the hot table conflict, and are written one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_protocol::collector::EventBatch;
use weir_sink::Result as SinkResult;
use weir_sink::SpanTable;
use weir_sink::contract::{Backend, DdlDone, PullLimits, Reached, SpanWriter, WorkerContext};
use weir_types::{DdlEvent, DispatcherId, OrderKey};

use crate::load::{HOT, table};

/// A pause that is shorter is owed until it is this long: shorter ones last longer than they should.
const PAUSE_MIN: Duration = Duration::from_millis(1);
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

pub(crate) struct CostlyBackend {
    pub(crate) costs: Costs,
    pub(crate) by_bytes: bool,
    pub(crate) arrived: Arc<Arrived>,
}

impl Backend for CostlyBackend {
    fn open(&self, _: DispatcherId, tables: &[SpanTable]) -> SinkResult<Box<dyn SpanWriter>> {
        let is_hot = tables.first().is_some_and(|one| one.source == table(HOT));
        Ok(Box::new(CostlySpan {
            cost: if is_hot { self.costs.hot } else { self.costs.cold },
            is_hot,
            arrived: Arc::clone(&self.arrived),
            owed: Duration::ZERO,
            last: OrderKey::MIN,
        }))
    }

    fn commit(&self, _: &mut WorkerContext) -> SinkResult<()> {
        Ok(())
    }

    fn pull_limits(&self) -> PullLimits {
        if self.by_bytes {
            PullLimits::default()
        } else {
            BY_COUNT
        }
    }
}

struct CostlySpan {
    cost: Duration,
    is_hot: bool,
    arrived: Arc<Arrived>,
    /// Time that rows have cost and that has not been waited yet; a pause that took longer is a credit.
    owed: Duration,
    last: OrderKey,
}

impl CostlySpan {
    fn pay(&mut self, rows: u32) {
        self.owed += self.cost * rows;
        if self.owed >= PAUSE_MIN {
            let begun = Instant::now();
            std::thread::sleep(self.owed);
            self.owed = self.owed.saturating_sub(begun.elapsed());
        }
    }
}

impl SpanWriter for CostlySpan {
    fn write(&mut self, batch: &EventBatch, _: &mut WorkerContext) -> SinkResult<()> {
        let (mut rows, mut checksum) = (0_u32, 0_u64);
        for slice in &batch.slices {
            for event in slice.iter() {
                let event = event?;
                checksum = event
                    .body
                    .iter()
                    .fold(checksum, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
                rows += 1;
            }
        }
        self.last = batch.last;
        self.pay(rows);
        let count = if self.is_hot {
            &self.arrived.hot
        } else {
            &self.arrived.cold
        };
        count.fetch_add(u64::from(rows), Ordering::Relaxed);
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
