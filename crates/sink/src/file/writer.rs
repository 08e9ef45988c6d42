//! Writes the files of one span.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use weir_binlog::RowImages;
use weir_codec::{RowCounts, TableEncoder};
use weir_protocol::collector::EventBatch;
use weir_types::{DdlEvent, DdlKind, DispatcherId, OrderKey, RowEvent, TableName, TableVersion};

use super::FileShared;
use super::naming;
use super::output::{Buffered, Output, when_there_is_room};
use crate::contract::{DdlDone, Reached, SpanTable, SpanWriter, WorkerContext};
use crate::error::{Result, SinkError};

/// The unfinished file of a span.
struct Current {
    path: PathBuf,
    first: OrderKey,
    last: OrderKey,
    /// When its first row came, in milliseconds since the sink started.
    since: u64,
    /// Bytes in the file while the handle is in the pool.
    written: u64,
    /// Bytes that the counters know of.
    counted: u64,
    /// The handle, during a run of work.
    output: Option<Output>,
}

/// Writer of one span.
pub(super) struct FileSpan {
    shared: Arc<FileShared>,
    dispatcher: DispatcherId,
    table: Option<SpanTable>,
    stem: String,
    /// Rows up to here are in finished files of an earlier run.
    floor: OrderKey,
    encoder: Option<(Arc<TableVersion>, TableEncoder)>,
    current: Option<Current>,
    /// Last row event seen.
    last: OrderKey,
    durable: OrderKey,
    needs_commit: bool,
    counts: RowCounts,
    bytes: u64,
}

impl FileSpan {
    pub(super) fn new(
        shared: Arc<FileShared>,
        dispatcher: DispatcherId,
        table: Option<&SpanTable>,
    ) -> Result<Self> {
        let stem = table.map_or_else(String::new, |table| naming::stem(&table.target));
        if let Some(table) = table
            && !shared.claim(&stem)
        {
            return Err(SinkError::TargetInUse {
                target: table.target.to_string(),
            });
        }
        let floor = shared.progress.last_of(&stem).unwrap_or(OrderKey::MIN);
        Ok(Self {
            shared,
            dispatcher,
            table: table.cloned(),
            stem,
            floor,
            encoder: None,
            current: None,
            last: OrderKey::MIN,
            durable: OrderKey::MIN,
            needs_commit: false,
            counts: RowCounts::default(),
            bytes: 0,
        })
    }

    fn use_version(&mut self, version: &Arc<TableVersion>) -> Result<()> {
        let known = self
            .encoder
            .as_ref()
            .is_some_and(|(known, _)| Arc::ptr_eq(known, version) || known == version);
        if known {
            return Ok(());
        }
        let table = self.table.as_ref().filter(|table| table.source == version.name);
        let Some(table) = table else {
            let expected = self.table.as_ref().map(|table| table.source.to_string());
            return Err(SinkError::WrongTable {
                expected: expected.unwrap_or_default(),
                found: version.name.to_string(),
            });
        };
        let encoder = self.shared.format.table(version, &table.target)?;
        self.encoder = Some((Arc::clone(version), encoder));
        Ok(())
    }

    /// The handle of the unfinished file, begun at `key` if there is none.
    fn take_output(&mut self, key: OrderKey, worker: &WorkerContext) -> Result<Output> {
        let disk = self.shared.disk.as_ref();
        if let Some(current) = &mut self.current {
            if let Some(output) = current.output.take() {
                return Ok(output);
            }
            return match self.shared.take_handle(self.dispatcher) {
                Some(output) => Ok(output),
                None => Output::reopen(disk, current.path.clone(), current.written, worker),
            };
        }
        let path = self.shared.config.dir.join(naming::unfinished(&self.stem, key));
        let output = Output::create(disk, path.clone(), worker)?;
        self.current = Some(Current {
            path,
            first: key,
            last: key,
            since: worker.now,
            written: 0,
            counted: 0,
            output: None,
        });
        Ok(output)
    }

    fn write_event<'a>(
        &mut self,
        event: &RowEvent<'a>,
        images: &mut RowImages<'a>,
        worker: &mut WorkerContext,
    ) -> Result<()> {
        let mut output = self.take_output(event.key, worker)?;
        let Some((_, encoder)) = &mut self.encoder else {
            return Ok(());
        };
        let mut buffer = std::mem::take(&mut worker.scratch);
        let mut buffered = Buffered::new(&mut output, &mut buffer, worker);
        let written = encoder.write_event(&mut buffered, event, images);
        if let Some(error) = buffered.into_failure() {
            return Err(error);
        }
        self.counts.add(event.kind, written?);
        let bytes = output.written + buffer.len() as u64;
        worker.scratch = buffer;
        if let Some(current) = &mut self.current {
            current.last = event.key;
            current.output = Some(output);
        }
        if bytes >= self.shared.config.rotate_bytes {
            self.finish(worker)?;
        }
        Ok(())
    }

    /// Brings the buffer into the file. The handle stays out of the pool.
    fn drain(&mut self, worker: &mut WorkerContext) -> Result<()> {
        let Some(output) = self.current.as_mut().and_then(|current| current.output.as_mut()) else {
            return Ok(());
        };
        let buffer = std::mem::take(&mut worker.scratch);
        output.put(&buffer, worker)?;
        let written = output.written;
        worker.scratch = buffer;
        worker.scratch.clear();
        if let Some(current) = &mut self.current {
            self.bytes += written - current.counted;
            current.counted = written;
            current.written = written;
        }
        Ok(())
    }

    /// Finishes the unfinished file, if there is one: its rows are durable with the next
    /// commit.
    fn finish(&mut self, worker: &mut WorkerContext) -> Result<()> {
        let Some(current) = &self.current else {
            return Ok(());
        };
        let (first, last) = (current.first, current.last);
        let output = self.take_output(first, worker)?;
        if let Some(current) = &mut self.current {
            current.output = Some(output);
        }
        self.drain(worker)?;
        let Some(Current {
            output: Some(output), ..
        }) = self.current.take()
        else {
            return Ok(());
        };
        let name = naming::finished(&self.stem, first, last);
        self.shared.finish(output, &name, worker)?;
        self.durable = last;
        self.needs_commit = true;
        Ok(())
    }

    fn ddl_target(&self, event: &DdlEvent) -> TableName {
        let router = &self.shared.config.router;
        match event.writes.first() {
            Some(name) if !name.table.is_empty() => router.route(name),
            name => {
                let schema = name.map_or(&event.schema, |name| &name.schema);
                let target = router.route_schema(schema);
                TableName::new(target.map_or_else(|| Arc::clone(schema), Arc::from), "")
            }
        }
    }

    fn write_ddl(&self, key: OrderKey, event: &DdlEvent, worker: &mut WorkerContext) -> Result<()> {
        let name = naming::ddl(key);
        let path = self.shared.config.dir.join(&name);
        let disk = self.shared.disk.as_ref();
        if when_there_is_room(worker, "look for", &path, || disk.exists(&path))? {
            return Ok(());
        }
        let mut text = Vec::new();
        self.shared
            .format
            .write_ddl(&mut text, key, event, &self.ddl_target(event))?;
        let temporary = format!("{name}{}", naming::UNFINISHED);
        let mut output = Output::create(disk, self.shared.config.dir.join(temporary), worker)?;
        output.put(&text, worker)?;
        self.shared
            .counters
            .add_rows(RowCounts::default(), output.written);
        self.shared.finish(output, &name, worker)?;
        self.shared.counters.add_ddl();
        worker.metrics.ddl();
        Ok(())
    }
}

impl SpanWriter for FileSpan {
    fn write(&mut self, batch: &EventBatch, worker: &mut WorkerContext) -> Result<()> {
        let mut images = RowImages::default();
        for slice in &batch.slices {
            self.use_version(&slice.block.version)?;
            for event in slice.iter() {
                let event = event?;
                if event.key <= self.last {
                    return Err(SinkError::OutOfOrder {
                        key: event.key,
                        last: self.last,
                    });
                }
                self.last = event.key;
                if event.key <= self.floor {
                    // In a finished file already: exactly once.
                    self.durable = event.key;
                } else {
                    self.write_event(&event, &mut images, worker)?;
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, worker: &mut WorkerContext) -> Result<()> {
        self.drain(worker)?;
        if let Some(output) = self.current.as_mut().and_then(|current| current.output.take()) {
            self.shared.keep_handle(self.dispatcher, output);
        }
        let (counts, bytes) = (std::mem::take(&mut self.counts), std::mem::take(&mut self.bytes));
        if bytes > 0 || counts != RowCounts::default() {
            self.shared.counters.add_rows(counts, bytes);
            worker.metrics.rows(counts, bytes);
        }
        Ok(())
    }

    fn flush(&mut self, worker: &mut WorkerContext) -> Result<()> {
        let started = Instant::now();
        let something = self.current.is_some();
        self.finish(worker)?;
        if something {
            worker.metrics.flushed(started.elapsed().as_secs_f64());
        }
        Ok(())
    }

    fn ddl(&mut self, key: OrderKey, event: &DdlEvent, worker: &mut WorkerContext) -> Result<DdlDone> {
        self.finish(worker)?;
        if event.kind != DdlKind::ImplicitCreate {
            self.write_ddl(key, event, worker)?;
            self.needs_commit = true;
        }
        Ok(DdlDone::default())
    }

    fn tick(&mut self, worker: &mut WorkerContext) -> Result<()> {
        if self.due().is_some_and(|due| due <= worker.now) {
            self.finish(worker)?;
        }
        Ok(())
    }

    fn reached(&mut self) -> Reached {
        Reached {
            durable: self.durable,
            needs_commit: std::mem::take(&mut self.needs_commit),
        }
    }

    fn due(&self) -> Option<u64> {
        let age = u64::try_from(self.shared.config.rotate_age.as_millis()).unwrap_or(u64::MAX);
        self.current
            .as_ref()
            .map(|current| current.since.saturating_add(age))
    }
}

impl Drop for FileSpan {
    fn drop(&mut self) {
        // Closes the handle; the unfinished file is dropped at the next start.
        drop(self.shared.take_handle(self.dispatcher));
        self.shared.give_up(&self.stem);
    }
}
