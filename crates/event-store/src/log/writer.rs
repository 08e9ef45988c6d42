//! Writing side of the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use weir_protocol::store::StoreInput;
use weir_segment::{Codec, SegmentId, SegmentReader, SegmentWriter};
use weir_types::{OrderKey, TableName};

use super::disk::{Segment, Shared, Slot, lock};
use super::encode::{Encoded, json};
use super::index::{ENTRY_BYTES, GroupInfo, OpenIndex, Pin};
use super::manifest::Manifest;
use super::reader::LogReader;
use super::record::{BASE, SNAPSHOT, Snapshot};
use super::ticket::LogTicket;
use super::{gc, log_name};
use crate::contract::{StoreReader, StoreWriter, SyncTicket, Usage};
use crate::entry::{Batch, Fragment};
use crate::error::{AppendError, Result, StoreError};
use crate::state::{Stamp, WriterState, parts};

/// Segments that may wait to be sealed before the open one grows instead.
const UNSEALED_MAX: usize = 2;

/// Writing side of [`super::LogStore`].
pub struct LogWriter {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: WriterState,
    pub(crate) batch: Batch,
    pub(crate) log: SegmentWriter,
    pub(crate) number: u64,
    pub(crate) manifest: Manifest,
    /// Groups written to the segment.
    pub(crate) groups: u64,
    /// Groups of the batch.
    pub(crate) infos: Vec<GroupInfo>,
    /// Raw bytes of the open group.
    pub(crate) group_bytes: u64,
    pub(crate) meta_bytes: usize,
    /// Entries that the segment's index will hold.
    pub(crate) entries: usize,
    pub(crate) sealer: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter")
            .field("segment", &self.number)
            .finish_non_exhaustive()
    }
}

/// A segment just begun.
pub(crate) struct Begun {
    pub(crate) log: SegmentWriter,
    pub(crate) slot: Slot,
}

/// Makes segment `number` with the state's snapshot, durably. The manifest does not
/// name it yet.
pub(crate) fn begin_segment(
    shared: &Shared,
    state: &WriterState,
    number: u64,
    previous_end: u64,
) -> Result<Begun> {
    let name = log_name(number);
    let (lineage, coverage) = {
        let view = &shared.read().view;
        (view.lineage.0, view.coverage.clone())
    };
    let id = SegmentId { lineage, number };
    let mut log = SegmentWriter::create(&*shared.volume, &name, id)?;
    let base_ts = state.clock.last();
    let mut head = Vec::new();
    crate::wire::put(&mut head, base_ts.0);
    let base = log.append(BASE, &head, Codec::Lz4, &state.place.encode())?;
    log.append(
        SNAPSHOT,
        b"",
        Codec::Lz4,
        &json(&Snapshot::of(state, coverage, previous_end))?,
    )?;
    log.end_group(b"")?;
    log.sync_handle().sync(log.offset())?;
    shared.volume.sync().map_err(|source| StoreError::Io {
        path: name.clone(),
        source,
    })?;
    let data = Segment {
        number,
        uid: shared.uid(),
        reader: SegmentReader::of_new(log.file(), &name, id),
        base,
        base_ts,
        footer: None,
    };
    let slot = Slot {
        data: Arc::new(data),
        open: Some(Arc::new(OpenIndex::default())),
        bytes: log.offset(),
        groups: 1,
    };
    Ok(Begun { log, slot })
}

impl LogWriter {
    fn room(&self, input: &StoreInput) -> Result<()> {
        let parts = parts(input);
        let new: u64 = parts.blocks.iter().map(|b| b.payload.len() as u64).sum();
        if new == 0 {
            return Ok(());
        }
        let quota = self.shared.options.disk_quota;
        let open = parts.attempt.and_then(|a| self.state.attempts.get(&a));
        let held: u64 = open
            .into_iter()
            .flatten()
            .map(|f| u64::from(f.at.stored_bytes))
            .sum();
        if held + new > quota {
            return Err(StoreError::TransactionTooLarge {
                bytes: held + new,
                quota,
            });
        }
        let used = self.disk_bytes();
        if used + new > quota {
            return Err(StoreError::QuotaExceeded { used, quota });
        }
        Ok(())
    }

    /// Begins the next segment if the open one is large enough.
    fn rotate_if_due(&mut self) -> Result<()> {
        let options = &self.shared.options;
        let large = self.log.offset() >= options.segment_bytes;
        let full_index = self.entries * ENTRY_BYTES > options.index_bytes / 2;
        if self.batch.inputs > 0
            || !(large || full_index)
            || lock(&self.shared.unsealed).len() >= UNSEALED_MAX
        {
            return Ok(());
        }
        match self.rotate() {
            // The open segment grows on.
            Err(error) if error.is_full() => Ok(()),
            other => other,
        }
    }

    fn rotate(&mut self) -> Result<()> {
        let end = self.log.offset();
        // What the next segment's snapshot holds must not be newer than what is durable.
        self.log.sync_handle().sync(end)?;
        let number = self.number + 1;
        let begun = begin_segment(&self.shared, &self.state, number, end).and_then(|begun| {
            let old = self.manifest.clone();
            self.manifest.last = number;
            self.manifest
                .write(&*self.shared.volume)
                .map(|()| begun)
                .inspect_err(|_| self.manifest = old)
        });
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => {
                if error.is_full() {
                    // Never named by the manifest: of no consequence if it stays.
                    let removed = self.shared.volume.remove(&log_name(number));
                    tracing::debug!(
                        segment = number,
                        removed = removed.is_ok(),
                        "no room for a new segment"
                    );
                }
                return Err(error);
            }
        };
        self.shared.closed_bytes.fetch_add(end, Ordering::AcqRel);
        self.shared.write().segments.insert(number, begun.slot);
        self.log = begun.log;
        self.number = number;
        self.groups = 1;
        self.meta_bytes = 0;
        self.entries = 0;
        Ok(())
    }

    fn end_log_group(&mut self, plain: bool) -> Result<()> {
        if self.log.frames() == 0 {
            return Ok(());
        }
        self.log.end_group(b"")?;
        self.groups += 1;
        self.infos.push(GroupInfo {
            raw_bytes: self.group_bytes,
            plain,
        });
        self.group_bytes = 0;
        Ok(())
    }

    fn try_append(&mut self, input: &StoreInput, now_ms: u64) -> Result<(Stamp, Encoded)> {
        self.shared.check()?;
        self.room(input)?;
        self.rotate_if_due()?;
        let alone = !matches!(
            input,
            StoreInput::Group { .. } | StoreInput::Tick { .. } | StoreInput::RollbackPrepared { .. }
        );
        if alone {
            self.end_log_group(true)?;
        }
        let mut stamp = self.state.stamp(input, now_ms)?;
        let mark = self.log.mark();
        let encoded = self.encode(input, &mut stamp).and_then(|encoded| {
            if alone {
                self.end_log_group(false)?;
            }
            Ok(encoded)
        });
        match encoded {
            Ok(encoded) => Ok((stamp, encoded)),
            Err(error) => {
                self.state.unstamp(&stamp);
                if error.is_full() {
                    self.log.rollback(mark)?;
                }
                Err(error)
            }
        }
    }

    /// A prepared group that is rolled back is needed until that is durable: before, a
    /// crash brings it back.
    fn ended(&self, input: &StoreInput, stamp: &Stamp) -> Vec<Pin> {
        let StoreInput::RollbackPrepared { xid, .. } = input else {
            return Vec::new();
        };
        let fragments = self.state.prepared.get(xid).into_iter().flatten();
        let pin = |fragment: &Fragment| Pin {
            segment: fragment.at.segment,
            table: fragment.at.table,
            last: OrderKey::new(stamp.single(), 1),
        };
        fragments.map(pin).collect()
    }

    /// After an error that cannot be taken back nothing is accepted.
    fn settle(&self, error: StoreError) -> StoreError {
        let mine = matches!(
            error,
            StoreError::UnknownXid(_)
                | StoreError::InvalidInput(_)
                | StoreError::TransactionTooLarge { .. }
                | StoreError::Poisoned
        );
        if !mine && !error.is_full() {
            self.shared.fail();
        }
        error
    }
}

impl StoreWriter for LogWriter {
    fn append(&mut self, mut input: StoreInput, now_ms: u64) -> Result<(), AppendError> {
        self.state.prepare(&mut input);
        let (stamp, encoded) = match self.try_append(&input, now_ms) {
            Ok(done) => done,
            Err(error) => {
                let error = self.settle(error);
                let input = Box::new(input);
                return Err(AppendError { error, input });
            }
        };
        let mut pins = self.ended(&input, &stamp);
        let (before, rows_before) = (self.batch.raw_bytes, self.batch.rows.len());
        self.entries += encoded.places.len() + encoded.fragments.len() + 1;
        self.state.absorb(
            input,
            stamp,
            encoded.fragments,
            &encoded.places,
            encoded.meta,
            &mut self.batch,
        );
        // Before they are visible: GC must not take their segments in between.
        let shown = self.batch.rows.get(rows_before..).unwrap_or_default();
        pins.extend(shown.iter().filter_map(Pin::of));
        if !pins.is_empty() {
            self.shared.write().pin(&pins);
        }
        if self.log.frames() > 0 {
            self.group_bytes += self.batch.raw_bytes - before;
        }
        Ok(())
    }

    fn commit_group(&mut self) -> Result<Option<Box<dyn SyncTicket>>> {
        self.shared.check()?;
        if self.batch.inputs == 0 {
            return Ok(None);
        }
        self.end_log_group(true).map_err(|e| self.settle(e))?;
        let ticket = LogTicket {
            shared: Arc::clone(&self.shared),
            sync: self.log.sync_handle(),
            number: self.number,
            end: self.log.offset(),
            groups: self.groups,
            infos: std::mem::take(&mut self.infos),
            batch: std::mem::take(&mut self.batch),
            published: false,
        };
        Ok(Some(Box::new(ticket)))
    }

    fn advance_gc(&mut self, tables: &[(TableName, OrderKey)], schema: OrderKey) -> Result<u64> {
        self.shared.check()?;
        gc::advance(self, tables, schema).map_err(|e| self.settle(e))
    }

    fn detach(&mut self, table: &TableName) -> Result<()> {
        self.shared.check()?;
        let (id, to) = {
            let view = &self.shared.read().view;
            match view.id(table) {
                Some(id) if !view.coverage.has_ended(id) => (id, OrderKey::end_of(view.resolved)),
                _ => return Ok(()),
            }
        };
        let old = self.manifest.clone();
        self.manifest.coverage.end(id, to);
        if let Err(error) = self.manifest.write(&*self.shared.volume) {
            self.manifest = old;
            return Err(self.settle(error));
        }
        self.shared.write().view.coverage.end(id, to);
        self.state.give_up(table);
        Ok(())
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        let shared = Arc::clone(&self.shared);
        Arc::new(LogReader { shared })
    }

    fn disk_bytes(&self) -> u64 {
        self.shared.closed_bytes.load(Ordering::Acquire) + self.log.offset()
    }

    fn usage(&self) -> Usage {
        let shown = self.shared.read();
        Usage {
            disk_bytes: self.disk_bytes(),
            segments: shown.segments.len() as u64,
            tail_bytes: shown.view.tail.bytes() as u64,
            quota_bytes: self.shared.options.disk_quota,
        }
    }

    fn close(&mut self) -> Result<()> {
        if let Some(ticket) = self.commit_group()? {
            ticket.wait()?;
        }
        // A group of no frames: says that everything before it was synced, so that
        // damage to it is not taken for a torn tail.
        self.log.end_group(b"").map_err(|e| self.settle(e.into()))?;
        self.log
            .sync_handle()
            .sync(self.log.offset())
            .map_err(|e| self.settle(e.into()))
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // Ends the sealing thread: its channel closes.
        drop(lock(&self.shared.wake).take());
        if let Some(sealer) = self.sealer.take()
            && sealer.join().is_err()
        {
            tracing::error!("the sealing thread panicked");
        }
    }
}
