//! Events in, `StoreInput`s out: the state machine of the source. Pure: no clock, no
//! I/O; the caller hands events over in binlog order and takes what is ready.

use std::sync::Arc;

use weir_binlog::error::BinlogError;
use weir_binlog::event::Event;
use weir_binlog::format::FormatDescription;
use weir_binlog::gtid::{EXTRA_ROLLBACK_ALTER, EXTRA_START_ALTER, GtidEvent, MariadbGtid};
use weir_binlog::header::EventHeader;
use weir_filter::TableFilter;
use weir_protocol::store::{ReadPosition, StoreInput, TxnMeta};
use weir_types::{AttemptId, Flavor, GtidSet, SourceIdentity, TableName};

use crate::catalogue::{At, Describe};
use crate::error::{Result, SourceError};
use crate::growing::{Body, Growing};
use crate::open::{AlterHalf, Open, Phase};
use crate::skip::Skip;
use crate::tables::Tables;

/// A group of whole transactions is handed over when it holds this many bytes of rows.
pub(crate) const GROUP_PAYLOAD_BYTES: usize = 1 << 20;
/// Or when this many bytes of binlog went into it, unwanted events included.
pub(crate) const GROUP_BINLOG_BYTES: u64 = 8 << 20;
/// Or when it holds this many transactions.
pub(crate) const GROUP_TXNS: usize = 8_192;

/// What was read, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that ended.
    pub transactions: u64,
    /// Row events, unwanted ones included.
    pub row_events: u64,
    /// Row events that passed the filter.
    pub wanted_row_events: u64,
    /// DDL statements that passed the filter.
    pub ddls: u64,
    /// Statements without effect on what is replicated: views, routines, accounts and
    /// others.
    pub ignored_statements: u64,
    /// Row events that went to the store before their transaction's end.
    pub spilled_fragments: u64,
}

/// Settings of an assembler.
pub struct AssemblerOptions {
    /// Tables that are wanted.
    pub filter: Arc<TableFilter>,
    /// Tables that the store's history knows to exist.
    pub known: Vec<TableName>,
    /// First attempt id that was never used.
    pub next_attempt: AttemptId,
    /// Memory for the rows of one open transaction.
    pub transaction_buffer_bytes: usize,
    /// Largest event, bytes, also after decompression.
    pub event_bytes_max: u64,
    /// Transactions before the start.
    pub skip: Skip,
}

/// See the module documentation.
pub struct TransactionAssembler {
    pub(crate) tables: Tables,
    pub(crate) group: Growing,
    pub(crate) open: Option<Box<Open>>,
    pub(crate) outputs: Vec<StoreInput>,
    pub(crate) output_bytes: usize,
    pub(crate) counts: Counts,
    pub(crate) flavor: Flavor,
    pub(crate) skip: Skip,
    /// All transactions before `position`, as far as they have GTIDs.
    seen: GtidSet,
    identity: SourceIdentity,
    pub(crate) file: Arc<str>,
    /// Offset behind the last whole transaction, and what was last told to the store.
    position: u64,
    told: u64,
    /// Offset at which the growing group began.
    group_from: u64,
    /// Offset behind the event that is being taken in.
    pub(crate) at: u64,
    /// Offset of that event.
    pub(crate) event_offset: u64,
    pub(crate) last_time_ms: u64,
    /// Number of the transaction, counted up from 1.
    pub(crate) number: u64,
    next_attempt: AttemptId,
    pub(crate) buffer_bytes: usize,
    pub(crate) event_bytes_max: u64,
    pub(crate) inflated: Vec<u8>,
}

impl TransactionAssembler {
    /// An assembler that stands before any file.
    pub fn new(identity: SourceIdentity, options: AssemblerOptions) -> Self {
        Self {
            tables: Tables::new(options.filter, options.known),
            group: Growing::new(),
            open: None,
            outputs: Vec::new(),
            output_bytes: 0,
            counts: Counts::default(),
            flavor: Flavor::Mysql,
            skip: options.skip,
            seen: GtidSet::default(),
            identity,
            file: Arc::from(""),
            position: 0,
            told: 0,
            group_from: 0,
            at: 0,
            event_offset: 0,
            last_time_ms: 0,
            number: 0,
            next_attempt: options.next_attempt,
            buffer_bytes: options.transaction_buffer_bytes,
            event_bytes_max: options.event_bytes_max,
            inflated: Vec::new(),
        }
    }

    /// What has been read so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Commit time of the last event that had one, milliseconds since the Unix epoch.
    pub const fn last_time_ms(&self) -> u64 {
        self.last_time_ms
    }

    /// Read position behind the last whole transaction.
    pub fn position(&self) -> ReadPosition {
        ReadPosition {
            identity: self.identity.clone(),
            file: Arc::clone(&self.file),
            offset: self.position,
        }
    }

    /// Whether a transaction has begun and not ended.
    pub const fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Commit time of the open transaction, milliseconds since the Unix epoch.
    pub fn open_commit_time_ms(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.commit_time_ms)
    }

    /// All transactions before the read position, as far as they have GTIDs and were
    /// read, or named by `add_seen` or by the files' own lists.
    pub const fn seen(&self) -> &GtidSet {
        &self.seen
    }

    /// Names transactions that were read before.
    pub fn add_seen(&mut self, set: &GtidSet) {
        self.seen.union(set);
    }

    /// Names a time that the source has reached, milliseconds since the Unix epoch.
    pub fn set_time_ms(&mut self, time_ms: u64) {
        self.last_time_ms = self.last_time_ms.max(time_ms);
    }

    /// Goes over to another rule of which transactions are left out.
    pub fn set_skip(&mut self, skip: Skip) {
        self.skip = skip;
    }

    /// Asks a server for what its binlog leaves out of table maps.
    pub(crate) fn set_catalogue(&mut self, describe: Box<dyn Describe>) {
        self.tables.catalogue.set(describe);
    }

    /// Bytes that `take` would hand over.
    pub const fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Takes what is ready, with its pinned bytes.
    pub fn take(&mut self) -> (Vec<StoreInput>, usize) {
        let bytes = std::mem::take(&mut self.output_bytes);
        (std::mem::take(&mut self.outputs), bytes)
    }

    /// Offset of the event that comes next, for messages.
    pub fn at_event(&mut self, offset: u64) {
        self.event_offset = offset;
    }

    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.file, self.event_offset)
    }

    /// Offset behind the last whole transaction.
    pub const fn position_offset(&self) -> u64 {
        self.position
    }

    /// The server that writes from here on.
    pub fn set_format(&mut self, format: &FormatDescription) {
        if format.flavor != self.flavor {
            self.flavor = format.flavor;
            self.tables.set_flavor(format.flavor);
        }
    }

    pub(crate) fn binlog_error(&self, source: BinlogError) -> SourceError {
        SourceError::Binlog {
            place: self.place(),
            source,
        }
    }

    /// Goes on in another file (or at another place), at an offset where a transaction
    /// begins.
    ///
    /// # Errors
    /// A transaction is open.
    pub fn begin_file(&mut self, file: Arc<str>, offset: u64) -> Result<()> {
        if self.open.is_some() {
            return Err(SourceError::Unended { place: self.place() });
        }
        self.flush_whole();
        self.file = file;
        (self.position, self.at, self.group_from) = (offset, offset, offset);
        self.event_offset = offset;
        // Nothing of this file was told to the store yet.
        self.told = 0;
        Ok(())
    }

    /// Gives an open transaction up: its server went down before it ended.
    pub fn discard_open(&mut self) {
        if let Some(open) = self.open.take() {
            self.forget(&open);
        }
    }

    /// The input ran dry, or the file ends: hands all whole transactions over. What
    /// belongs to an open one stays.
    pub fn flush(&mut self) {
        self.flush_whole();
    }

    /// Tells the store the position, if it moved without a transaction that the store
    /// heard of.
    pub fn tick(&mut self) {
        self.flush_whole();
        if self.open.is_none() && self.told != self.position && !self.skip.holds_position() {
            self.told = self.position;
            let input = StoreInput::Tick {
                time_ms: self.last_time_ms,
                upto: self.position(),
            };
            self.output(input);
        }
    }

    /// An idle source has reached a time, milliseconds since the Unix epoch: tells it to
    /// the store, and the position with it.
    pub fn tick_at(&mut self, time_ms: u64) {
        self.flush_whole();
        if self.open.is_none() && !self.skip.holds_position() && time_ms > self.last_time_ms {
            self.last_time_ms = time_ms;
            self.told = self.position;
            let input = StoreInput::Tick {
                time_ms,
                upto: self.position(),
            };
            self.output(input);
        }
    }

    /// Everything up to an offset was read: the server left out what stands there.
    pub fn pass_to(&mut self, offset: u64) {
        if self.open.is_none() {
            self.position = self.position.max(offset);
        }
    }

    /// Goes on at another server.
    pub fn set_identity(&mut self, identity: SourceIdentity) {
        self.flush_whole();
        self.tables.catalogue.forget();
        self.identity = identity;
    }

    pub(crate) fn output(&mut self, input: StoreInput) {
        self.output_bytes += input.pinned_bytes();
        self.outputs.push(input);
    }

    pub(crate) fn flush_whole(&mut self) {
        if let Some(group) = self.group.take_whole(&mut self.tables) {
            let upto = self.position();
            self.told = self.position;
            self.output(StoreInput::Group { group, upto });
        }
        self.group_from = self.position;
    }

    /// Takes in one event. `end`: offset behind it (behind the payload that it lies in).
    ///
    /// # Errors
    /// What cannot be replicated; see `SourceError`.
    pub fn event(&mut self, header: &EventHeader, event: &Event<'_>, end: u64) -> Result<()> {
        self.at = end;
        match event {
            Event::Rows(rows) => self.rows(rows, Body::Borrowed(rows.body)),
            Event::TableMap(map) => {
                self.begun("table map")?;
                let number = self.number;
                let at = At {
                    file: &self.file,
                    offset: self.event_offset,
                    end,
                    time_ms: self.last_time_ms,
                };
                self.tables.map(map, number, at)
            }
            Event::RowsCompressed(rows) => self.compressed_rows(rows),
            Event::Gtid(gtid) | Event::AnonymousGtid(gtid) => self.gtid(header, gtid),
            Event::MariadbGtid(gtid) => self.mariadb_gtid(header, gtid),
            Event::Query(query) => self.query(header, query),
            Event::QueryCompressed(query) => self.compressed_query(header, query),
            Event::Xid(_) => {
                self.begun("XID")?;
                self.commit();
                Ok(())
            }
            Event::XaPrepare(prepare) => {
                self.begun("XA_PREPARE")?;
                if prepare.one_phase {
                    self.commit();
                } else {
                    self.prepare(prepare.xid.clone());
                }
                Ok(())
            }
            Event::FormatDescription(format) => {
                self.set_format(format);
                self.passed(header)
            }
            Event::PreviousGtids(set) | Event::GtidList(set) => {
                self.seen.union(set);
                self.passed(header)
            }
            Event::BinlogCheckpoint(_) => self.passed(header),
            // The end of a file; the reader goes on with the next one. The position stays
            // before it, so that whoever resumes there sees how the file ended.
            Event::Rotate(_) | Event::Stop if self.open.is_some() => {
                Err(SourceError::Unended { place: self.place() })
            }
            Event::Rotate(_) | Event::Stop => Ok(()),
            // The reader hands the events inside over one by one.
            Event::TransactionPayload(_) => Ok(()),
            // Text for people beside the rows that follow.
            Event::RowsQuery(_) | Event::AnnotateRows(_) => Ok(()),
            // Belongs to the statement that follows, which is reported if it changes rows.
            Event::Statement(
                weir_binlog::event::StatementPart::IntVar | weir_binlog::event::StatementPart::Rand,
            )
            | Event::UserVar(_) => Ok(()),
            Event::Statement(weir_binlog::event::StatementPart::LoadData) => self.statement_format(None),
            Event::Incident(_) => Err(SourceError::Incident { place: self.place() }),
            Event::StartEncryption => Err(SourceError::Encrypted { place: self.place() }),
            // On the wire only, or marked by the server as safe to skip.
            Event::Heartbeat(_) | Event::Ignored(_) => Ok(()),
        }
    }

    /// An event between transactions: the position moves behind it.
    fn passed(&mut self, header: &EventHeader) -> Result<()> {
        if self.open.is_none() {
            self.position = self.at;
            self.last_time_ms = self.last_time_ms.max(u64::from(header.timestamp) * 1000);
        }
        Ok(())
    }

    pub(crate) fn begun(&self, event: &'static str) -> Result<&Open> {
        match &self.open {
            Some(open) if open.phase == Phase::Begun => Ok(open),
            _ => Err(SourceError::OutsideTransaction {
                place: self.place(),
                event,
            }),
        }
    }

    fn gtid(&mut self, header: &EventHeader, gtid: &GtidEvent<'_>) -> Result<()> {
        let time_ms = match gtid.original_commit_micros {
            0 => u64::from(header.timestamp) * 1000,
            micros => micros / 1000,
        };
        self.announce(Open::new(Phase::Announced, gtid.gtid(), time_ms))
    }

    fn mariadb_gtid(&mut self, header: &EventHeader, gtid: &MariadbGtid) -> Result<()> {
        let phase = if gtid.is_standalone() {
            Phase::Standalone
        } else {
            Phase::Begun
        };
        let mut open = Open::new(phase, Some(gtid.gtid()), u64::from(header.timestamp) * 1000);
        if gtid.flags_extra & (EXTRA_START_ALTER | EXTRA_ROLLBACK_ALTER) != 0 {
            open.alter = AlterHalf::WithoutEffect;
        }
        self.announce(open)
    }

    pub(crate) fn announce(&mut self, mut open: Open) -> Result<()> {
        if self.open.is_some() {
            return Err(SourceError::Unended { place: self.place() });
        }
        open.skipped = self.skip.skips(open.gtid.as_ref(), open.commit_time_ms);
        self.last_time_ms = self.last_time_ms.max(open.commit_time_ms);
        self.number += 1;
        self.open = Some(Box::new(open));
        Ok(())
    }

    /// The next ordinal of the open transaction.
    pub(crate) fn next_ordinal(&mut self) -> Result<u32> {
        let place = (self.file.as_ref(), self.event_offset);
        let Some(open) = &mut self.open else {
            return Err(SourceError::OutsideTransaction {
                place: self.place(),
                event: "row",
            });
        };
        if open.ordinal >= u32::MAX - 1 {
            return Err(SourceError::TooManyEvents {
                place: format!("{}:{}", place.0, place.1),
            });
        }
        open.ordinal += 1;
        Ok(open.ordinal)
    }

    /// The attempt of the open transaction, new if it has none.
    pub(crate) fn attempt(&mut self) -> AttemptId {
        let next = self.next_attempt;
        match &mut self.open {
            Some(open) => *open.attempt.get_or_insert_with(|| {
                self.next_attempt = AttemptId(next.0 + 1);
                next
            }),
            None => next,
        }
    }

    pub(crate) fn meta(&self, open: &Open) -> TxnMeta {
        TxnMeta {
            commit_time_ms: open.commit_time_ms,
            gtid: open.gtid.clone(),
            end_offset: self.at,
        }
    }

    /// Behind the end of a transaction: position, and the group if it is full.
    pub(crate) fn ended(&mut self, open: &Open, cut: bool) {
        self.position = self.at;
        if let Some(gtid) = &open.gtid {
            self.seen.insert(gtid);
        }
        self.counts.transactions += 1;
        let consumed = self.position.saturating_sub(self.group_from);
        if cut
            || self.group.payload_bytes() >= GROUP_PAYLOAD_BYTES
            || consumed >= GROUP_BINLOG_BYTES
            || self.group.whole_txns() >= GROUP_TXNS
        {
            self.flush_whole();
        }
    }

    /// The position was told to the store with an input of its own.
    pub(crate) fn position_told(&mut self, open: &Open) {
        self.position = self.at;
        if let Some(gtid) = &open.gtid {
            self.seen.insert(gtid);
        }
        self.told = self.position;
        self.group_from = self.position;
        self.counts.transactions += 1;
    }
}
