//! The blackhole sink: decodes every row, visits every value, keeps nothing. For
//! benchmarks and tests.

mod visit;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use weir_binlog::{RowImages, RowPlan};
use weir_codec::RowCounts;
use weir_protocol::collector::EventBatch;
use weir_types::{ChangefeedId, DdlEvent, DispatcherId, OrderKey, TableVersion};

use crate::contract::{Backend, DdlDone, PullLimits, Reached, SpanTable, SpanWriter, WorkerContext};
use crate::counters::SinkCounters;
use crate::error::{Result, SinkError};
use crate::metrics::Blocked;
pub use visit::row_checksum;

/// Worker threads.
pub const WORKERS_DEFAULT: usize = 2;

/// Settings of the blackhole.
#[derive(Clone, Debug)]
pub struct BlackholeConfig {
    /// Whose rows vanish; a label of the metrics.
    pub changefeed: ChangefeedId,
    /// How long each batch is held: a slow sink.
    pub delay: Duration,
    /// How long nothing at all is taken, counted from the first batch: a sink that stands
    /// still for a while.
    pub stall: Duration,
    /// Worker threads.
    pub workers: usize,
}

impl BlackholeConfig {
    /// A blackhole at full speed.
    pub const fn new(changefeed: ChangefeedId) -> Self {
        Self {
            changefeed,
            delay: Duration::ZERO,
            stall: Duration::ZERO,
            workers: WORKERS_DEFAULT,
        }
    }
}

struct Shared {
    config: BlackholeConfig,
    counters: Arc<SinkCounters>,
    /// Set by the first batch.
    stalled_until: OnceLock<Instant>,
}

/// The blackhole's part behind the scheduler.
pub(crate) struct BlackholeBackend {
    shared: Arc<Shared>,
}

impl BlackholeBackend {
    pub(crate) fn new(config: BlackholeConfig, counters: Arc<SinkCounters>) -> Self {
        let shared = Shared {
            config,
            counters,
            stalled_until: OnceLock::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Backend for BlackholeBackend {
    fn pull_limits(&self) -> PullLimits {
        PullLimits::default()
    }

    fn open(&self, _: DispatcherId, tables: &[SpanTable]) -> Result<Box<dyn SpanWriter>> {
        Ok(Box::new(BlackholeSpan {
            shared: Arc::clone(&self.shared),
            table: tables.first().cloned(),
            plan: None,
            last: OrderKey::MIN,
        }))
    }

    fn commit(&self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }
}

struct BlackholeSpan {
    shared: Arc<Shared>,
    table: Option<SpanTable>,
    plan: Option<(Arc<TableVersion>, RowPlan)>,
    last: OrderKey,
}

impl BlackholeSpan {
    fn use_version(&mut self, version: &Arc<TableVersion>) -> Result<&RowPlan> {
        let known = matches!(&self.plan, Some((known, _)) if Arc::ptr_eq(known, version) || known == version);
        if !known {
            let expected = self.table.as_ref().map(|table| &table.source);
            if expected != Some(&version.name) {
                return Err(SinkError::WrongTable {
                    expected: expected.map(ToString::to_string).unwrap_or_default(),
                    found: version.name.to_string(),
                });
            }
            self.plan = None;
        }
        let plan = match self.plan.take() {
            Some(plan) => plan,
            None => (Arc::clone(version), RowPlan::new(version)?),
        };
        Ok(&self.plan.insert(plan).1)
    }

    fn hold_up(&self, worker: &WorkerContext) -> Result<()> {
        let config = &self.shared.config;
        let mut wait = config.delay;
        if !config.stall.is_zero() {
            let now = Instant::now();
            let until = self.shared.stalled_until.get_or_init(|| now + config.stall);
            wait += until.saturating_duration_since(now);
        }
        if wait.is_zero() || worker.pause(wait, Blocked::Delay) {
            Ok(())
        } else {
            Err(SinkError::Stopping)
        }
    }
}

impl SpanWriter for BlackholeSpan {
    fn write(&mut self, batch: &EventBatch, worker: &mut WorkerContext) -> Result<()> {
        self.hold_up(worker)?;
        let mut images = RowImages::default();
        let (mut counts, mut bytes, mut checksum) = (RowCounts::default(), 0, 0_u64);
        let mut last = self.last;
        for slice in &batch.slices {
            let plan = self.use_version(&slice.block.version)?;
            bytes += slice.range.len() as u64;
            for event in slice.iter() {
                let event = event?;
                if event.key <= last {
                    return Err(SinkError::OutOfOrder { key: event.key, last });
                }
                last = event.key;
                let mut reader = plan.rows(event.kind, event.flags, event.body)?;
                let mut rows = 0;
                while reader.next(&mut images)? {
                    checksum = checksum.wrapping_add(row_checksum(&images));
                    rows += 1;
                }
                counts.add(event.kind, rows);
            }
        }
        self.last = last;
        self.shared.counters.add_rows(counts, bytes);
        self.shared.counters.add_checksum(checksum);
        worker.metrics.rows(counts, bytes);
        Ok(())
    }

    fn settle(&mut self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self, _: &mut WorkerContext) -> Result<()> {
        Ok(())
    }

    fn ddl(&mut self, _: OrderKey, _: &DdlEvent, worker: &mut WorkerContext) -> Result<DdlDone> {
        self.shared.counters.add_ddl();
        worker.metrics.ddl();
        Ok(DdlDone::default())
    }

    fn tick(&mut self, _: &mut WorkerContext) -> Result<()> {
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
