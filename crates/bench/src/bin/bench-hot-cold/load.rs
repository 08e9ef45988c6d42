//! What the store is filled with: a hot table, nineteen cold ones, ten minutes of backlog, then what comes live.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use weir_event_store::{LogOptions, LogReader, LogStore, LogWriter, StoreWriter};
use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{BlockBuilder, CommitTs, Flavor, RowKind, SourceIdentity, TableName, TableVersion};

/// `stock`, `district`, and 18 more.
pub(crate) const TABLES: usize = 20;
/// Index of the hot table.
pub(crate) const HOT: usize = 0;
/// Time of the source that the backlog covers.
pub(crate) const BACKLOG: Duration = Duration::from_secs(600);
/// Source time between two transactions.
const STEP: Duration = Duration::from_millis(100);
/// Rows of a transaction: 1,000 a second in the hot table, 80 in each cold one.
const HOT_ROWS: u32 = 100;
const COLD_ROWS: u32 = 8;
/// Bytes of a row: an image of TPC-C's `stock` has about 320, of `district` about 110.
const HOT_BYTES: usize = 320;
const COLD_BYTES: usize = 110;
/// Transactions of the backlog that are synced at once.
const GROUP: u64 = 20;

pub(crate) fn table(number: usize) -> TableName {
    let name = match number {
        HOT => "stock".to_owned(),
        1 => "district".to_owned(),
        other => format!("cold{other}"),
    };
    TableName::new("tpcc", name)
}

/// Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Fills the store.
pub(crate) struct Feeder {
    writer: LogWriter,
    versions: Vec<Arc<TableVersion>>,
    first: usize,
    offset: u64,
    image: Vec<u8>,
    /// Rows of the hot table and of all cold ones.
    pub(crate) rows: (u64, u64),
}

impl Feeder {
    /// A new store in `dir`; without the hot table if `cold_only`.
    pub(crate) fn open(dir: &Path, tail_bytes: usize, cold_only: bool) -> Result<(Self, Arc<LogReader>)> {
        let options = LogOptions {
            segment_bytes: 64 << 20,
            memory_bytes: tail_bytes,
            index_bytes: tail_bytes / 4,
            ..LogOptions::default()
        };
        let (_, writer, reader) = LogStore::open(dir, options)?;
        let version = |number| {
            Arc::new(TableVersion {
                name: table(number),
                flavor: Flavor::Mysql,
                columns: Vec::new(),
                primary_key: Vec::new(),
            })
        };
        // Not a run of zeros, which would compress to nothing.
        let image = (0..HOT_BYTES as u32 + 64)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let feeder = Self {
            writer,
            versions: (0..TABLES).map(version).collect(),
            first: usize::from(cold_only),
            offset: 0,
            image,
            rows: (0, 0),
        };
        Ok((feeder, reader))
    }

    fn append(&mut self, at_ms: u64) -> Result<()> {
        self.offset += 1;
        let mut group = TxnGroup::default();
        group.txns.push(TxnMeta {
            commit_time_ms: at_ms,
            gtid: None,
            end_offset: self.offset,
        });
        let mut ordinal = 0;
        for (number, version) in self.versions.iter().enumerate().skip(self.first) {
            let (rows, bytes) = if number == HOT {
                (HOT_ROWS, HOT_BYTES)
            } else {
                (COLD_ROWS, COLD_BYTES)
            };
            let mut block = BlockBuilder::new(Arc::clone(version));
            for row in 0..rows {
                ordinal += 1;
                let from = (row as usize + self.offset as usize) % 64;
                let image = self.image.get(from..from + bytes).unwrap_or_default();
                block.push(0, ordinal, RowKind::Update, 0, image);
            }
            block.payload.shrink_to_fit();
            group.blocks.push(block);
            let sum = if number == HOT {
                &mut self.rows.0
            } else {
                &mut self.rows.1
            };
            *sum += u64::from(rows);
        }
        let upto = ReadPosition {
            identity: SourceIdentity::Digest(1),
            file: Arc::from("binlog.000001"),
            offset: self.offset,
        };
        self.writer.append(StoreInput::Group { group, upto }, at_ms)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<CommitTs> {
        let ticket = self.writer.commit_group()?.context("something to sync")?;
        Ok(ticket.wait()?.resolved)
    }

    /// Appends what the source wrote in the ten minutes before now; the first moment of it.
    pub(crate) fn backlog(&mut self) -> Result<CommitTs> {
        let step = u64::try_from(STEP.as_millis())?;
        let steps = u64::try_from(BACKLOG.as_millis())? / step;
        let begin = now_ms() - steps * step;
        for number in 0..steps {
            self.append(begin + number * step)?;
            if (number + 1) % GROUP == 0 || number + 1 == steps {
                self.sync()?;
            }
        }
        Ok(CommitTs::from_millis(begin))
    }

    /// Goes on as the source does until told to stop; tells of each sync.
    pub(crate) fn live(mut self, stop: &AtomicBool, told: impl Fn(CommitTs)) -> Result<Self> {
        let begun = Instant::now();
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            std::thread::sleep((STEP * number).saturating_sub(begun.elapsed()));
            self.append(now_ms())?;
            told(self.sync()?);
        }
        Ok(self)
    }
}
