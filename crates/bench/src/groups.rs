//! Binlog files as the commit groups that a source would append to the store.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use weir_binlog::{BinlogFile, Event, FileOptions, GtidEvent, Rows, Step, TableMapCache};
use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::gtid::GtidSource;
use weir_types::{BlockBuilder, Flavor, Gtid, SourceIdentity, TableName, TableVersion};

/// Made-up server of the groups; one per benchmark store.
const IDENTITY: SourceIdentity = SourceIdentity::Digest(1);

/// Commit groups and what they stand for.
#[derive(Clone)]
pub struct Groups {
    /// Whole transactions, in order.
    pub inputs: Vec<StoreInput>,
    /// Bytes of binlog that the groups were read from.
    pub raw_bytes: u64,
    /// Row events in them.
    pub events: u64,
    /// Tables in them.
    pub tables: Vec<TableName>,
}

impl Groups {
    /// The first groups, up to about `bytes` of binlog.
    #[must_use]
    pub fn cut(mut self, bytes: u64) -> Self {
        let count = self.inputs.len() as u64;
        let keep = (count * bytes / self.raw_bytes.max(1)).clamp(1, count.max(1));
        self.raw_bytes = self.raw_bytes * keep / count.max(1);
        self.inputs.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        self.events = self.inputs.iter().map(row_events).sum();
        self
    }
}

fn row_events(input: &StoreInput) -> u64 {
    match input {
        StoreInput::Group { group, .. } => group.blocks.iter().map(|block| u64::from(block.events)).sum(),
        _ => 0,
    }
}

/// Builds groups.
struct Assembler {
    group: TxnGroup,
    /// Block of each table version, by the version's address: the cache gives the same `Arc` for the same shape.
    blocks: HashMap<*const TableVersion, usize>,
    versions: HashMap<u64, Arc<TableVersion>>,
    tables: HashMap<TableName, ()>,
    gtid: Option<(Gtid, u64)>,
    ordinal: u32,
    events: u64,
    /// Spreads rows over this many tables; 0 leaves them where they are.
    spread: usize,
    spread_versions: Vec<Arc<TableVersion>>,
}

/// Reads `files` into groups of at least `group_bytes` of binlog each, whole transactions only. With `spread` > 0 the
/// row events go round robin to that many tables of the first table's shape.
///
/// # Errors
/// When a file cannot be read.
pub fn read(files: &[PathBuf], group_bytes: u64, spread: usize) -> Result<Groups> {
    let mut assembler = Assembler::new(spread);
    let mut inputs = Vec::new();
    let mut raw_bytes = 0;
    for path in files {
        let mut file = BinlogFile::open(path, FileOptions::default())?;
        let name: Arc<str> = path.file_name().unwrap_or_default().to_string_lossy().into();
        let mut maps = TableMapCache::new(Flavor::Mysql);
        let mut group_start = 0;
        while let Step::Event(step) = file.next()? {
            let upto = step.next_offset;
            match step.decode()? {
                Event::Gtid(gtid) => assembler.begin(&gtid),
                Event::TableMap(map) => assembler.table(map.table_id, maps.get(&map)?),
                Event::Rows(rows) => assembler.rows(&rows)?,
                Event::Xid(_) => {
                    assembler.commit(upto);
                    if upto - group_start >= group_bytes {
                        inputs.push(assembler.take(&name, upto));
                        group_start = upto;
                    }
                }
                _ => {}
            }
            raw_bytes += step.next_offset - step.offset;
        }
        let end = file.offset();
        if !assembler.group.txns.is_empty() {
            inputs.push(assembler.take(&name, end));
        }
    }
    let tables = assembler.tables.into_keys().collect();
    Ok(Groups {
        inputs,
        raw_bytes,
        events: assembler.events,
        tables,
    })
}

impl Assembler {
    fn new(spread: usize) -> Self {
        Self {
            group: TxnGroup::default(),
            blocks: HashMap::new(),
            versions: HashMap::new(),
            tables: HashMap::new(),
            gtid: None,
            ordinal: 0,
            events: 0,
            spread,
            spread_versions: Vec::new(),
        }
    }

    fn begin(&mut self, event: &GtidEvent<'_>) {
        let source = GtidSource {
            uuid: event.uuid,
            tag: event.tag.into(),
        };
        let millis = event.original_commit_micros / 1000;
        self.gtid = Some((
            Gtid::Mysql {
                source,
                number: event.number,
            },
            millis,
        ));
        self.ordinal = 0;
    }

    fn table(&mut self, id: u64, version: Arc<TableVersion>) {
        if self.spread > 0 && self.spread_versions.is_empty() {
            self.spread_versions = (0..self.spread)
                .map(|number| {
                    let name = TableName::new(Arc::clone(&version.name.schema), format!("t{number}"));
                    Arc::new(TableVersion {
                        name,
                        ..TableVersion::clone(&version)
                    })
                })
                .collect();
        }
        self.versions.insert(id, version);
    }

    fn rows(&mut self, rows: &Rows<'_>) -> Result<()> {
        let version = if self.spread > 0 {
            let number = usize::try_from(self.events)? % self.spread;
            self.spread_versions.get(number)
        } else {
            self.versions.get(&rows.table_id)
        };
        let version = version.context("no table map for a row event")?;
        self.tables.entry(version.name.clone()).or_insert(());
        let blocks = &mut self.group.blocks;
        let index = *self.blocks.entry(Arc::as_ptr(version)).or_insert_with(|| {
            blocks.push(BlockBuilder::new(Arc::clone(version)));
            blocks.len() - 1
        });
        let txn = u32::try_from(self.group.txns.len())?;
        self.ordinal += 1;
        self.events += 1;
        let block = blocks.get_mut(index).context("a block of the group")?;
        block.push(txn, self.ordinal, rows.kind, rows.block_flags(), rows.body);
        Ok(())
    }

    fn commit(&mut self, end_offset: u64) {
        let (gtid, commit_time_ms) = self
            .gtid
            .take()
            .map_or((None, 0), |(gtid, time)| (Some(gtid), time));
        self.group.txns.push(TxnMeta {
            commit_time_ms,
            gtid,
            end_offset,
        });
    }

    fn take(&mut self, file: &Arc<str>, offset: u64) -> StoreInput {
        self.blocks.clear();
        let upto = ReadPosition {
            identity: IDENTITY,
            file: Arc::clone(file),
            offset,
        };
        StoreInput::Group {
            group: std::mem::take(&mut self.group),
            upto,
        }
    }
}
