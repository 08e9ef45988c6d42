//! A random history of transactions and DDL, as an upstream could write it, and what
//! must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_protocol::store::{GroupDdl, ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{
    Block, BlockBuilder, CommitTs, DdlEvent, DdlKind, Flavor, OrderKey, RowKind, SourceIdentity, TableName,
    TableVersion,
};

use crate::rng::Rng;

const SCHEMAS: [&str; 2] = ["a", "b"];
const NAMES_PER_SCHEMA: u64 = 6;
/// Most bytes of a row's body.
pub const BODY_BYTES_MAX: u64 = 40_000;
/// Most milliseconds between two transactions.
const STEP_MS: u64 = 8;

/// Everything that was committed so far.
#[derive(Default)]
pub struct History {
    /// Blocks per table, ascending.
    pub blocks: BTreeMap<TableName, Vec<Arc<Block>>>,
    /// Keys of all row events per table, ascending.
    pub rows: BTreeMap<TableName, Vec<OrderKey>>,
    /// DDL and implicit creations, ascending.
    pub ddls: Vec<(OrderKey, Arc<DdlEvent>)>,
    /// Last commit-ts.
    pub end: CommitTs,
    existing: BTreeSet<TableName>,
    /// Names that DDL has taken away at least once.
    dropped: BTreeSet<TableName>,
    group: TxnGroup,
    group_blocks: BTreeMap<TableName, BlockBuilder>,
    versions: BTreeMap<TableName, Arc<TableVersion>>,
}

/// Counts only.
impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History")
            .field("rows", &self.row_count())
            .field("ddls", &self.ddls.len())
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// What a history is made of.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// DDL among a hundred transactions.
    pub ddl_percent: u64,
    /// Large rows among a hundred.
    pub large_percent: u64,
    /// Largest body, bytes.
    pub body_max: u64,
    /// Rows may come for a name that was dropped and not made again: of a table that
    /// was made past the binlog.
    pub revive: bool,
}

impl History {
    /// One more transaction or DDL.
    pub fn step(&mut self, rng: &mut Rng, mix: &Mix) {
        let time_ms = self.end.millis() + rng.between(1, STEP_MS);
        self.end = CommitTs::from_millis(time_ms);
        self.group.txns.push(TxnMeta {
            commit_time_ms: time_ms,
            gtid: None,
            end_offset: time_ms,
        });
        if rng.percent(mix.ddl_percent)
            && let Some((kind, writes, makes, reads)) = self.random_ddl(rng)
        {
            self.push_ddl(OrderKey::new(self.end, 1), event(kind, writes, makes, reads));
        } else {
            self.transaction(rng, mix);
        }
    }

    /// Row events whose key is in `(after, upto]`.
    pub fn rows_between(&self, table: &TableName, after: OrderKey, upto: OrderKey) -> &[OrderKey] {
        let Some(rows) = self.rows.get(table) else {
            return &[];
        };
        let from = rows.partition_point(|key| *key <= after);
        let to = rows.partition_point(|key| *key <= upto);
        rows.get(from..to.max(from)).unwrap_or(&[])
    }

    /// Tables at the end.
    pub const fn existing(&self) -> &BTreeSet<TableName> {
        &self.existing
    }

    /// Number of row events.
    pub fn row_count(&self) -> usize {
        self.rows.values().map(Vec::len).sum()
    }

    /// What was committed since the last call, as a source would hand it to a store; none
    /// if nothing was.
    pub fn take_group(&mut self) -> Option<StoreInput> {
        let mut group = std::mem::take(&mut self.group);
        group.blocks = std::mem::take(&mut self.group_blocks).into_values().collect();
        let upto = ReadPosition {
            identity: SourceIdentity::Digest(1),
            file: Arc::from("binlog.000001"),
            offset: self.end.millis(),
        };
        (!group.txns.is_empty()).then_some(StoreInput::Group { group, upto })
    }

    /// Index of the current transaction in the group.
    fn txn(&self) -> u32 {
        u32::try_from(self.group.txns.len().saturating_sub(1)).unwrap_or(0)
    }

    fn transaction(&mut self, rng: &mut Rng, mix: &Mix) {
        let mut builders: BTreeMap<TableName, BlockBuilder> = BTreeMap::new();
        let tables: Vec<_> = (0..rng.between(1, 3)).map(|_| random_name(rng)).collect();
        for ordinal in 1..=rng.between(1, 6) {
            let ordinal = u32::try_from(ordinal).unwrap_or(1);
            let table = rng.pick(&tables).clone();
            if !mix.revive && self.dropped.contains(&table) && !self.existing.contains(&table) {
                continue;
            }
            if self.existing.insert(table.clone()) {
                // Never seen before: its creation takes the ordinal before its row.
                let made = vec![table.clone()];
                let implicit = event(DdlKind::ImplicitCreate, made.clone(), made, Vec::new());
                self.push_ddl(OrderKey::new(self.end, ordinal - 1), implicit);
            }
            let version = self.version(&table);
            let body = vec![0_u8; usize::try_from(body_bytes(rng, mix)).unwrap_or(0)];
            let grouped = BlockBuilder::new(Arc::clone(&version));
            let txn = self.txn();
            let grouped = self.group_blocks.entry(table.clone()).or_insert(grouped);
            grouped.push(txn, ordinal, RowKind::Insert, 0, &body);
            let builder = builders
                .entry(table.clone())
                .or_insert_with(|| BlockBuilder::new(version));
            builder.push(0, ordinal, RowKind::Insert, 0, &body);
            self.rows
                .entry(table)
                .or_default()
                .push(OrderKey::new(self.end, ordinal));
        }
        for (table, builder) in builders {
            let mut payload = builder.payload;
            payload.shrink_to_fit();
            let block = Block {
                version: builder.version,
                txns: vec![self.end],
                payload,
                events: builder.events,
                first: OrderKey::new(self.end, builder.first.1),
                last: OrderKey::new(self.end, builder.last.1),
            };
            self.blocks.entry(table).or_default().push(Arc::new(block));
        }
    }

    fn version(&mut self, table: &TableName) -> Arc<TableVersion> {
        let make = || {
            Arc::new(TableVersion {
                name: table.clone(),
                flavor: Flavor::Mysql,
                columns: Vec::new(),
                primary_key: Vec::new(),
            })
        };
        Arc::clone(self.versions.entry(table.clone()).or_insert_with(make))
    }

    fn push_ddl(&mut self, key: OrderKey, event: DdlEvent) {
        let event = Arc::new(event);
        self.group.ddls.push(GroupDdl {
            txn: self.txn(),
            ordinal: key.ordinal,
            event: Arc::clone(&event),
        });
        self.ddls.push((key, event));
    }

    fn random_ddl(&mut self, rng: &mut Rng) -> Option<DdlParts> {
        let one = existing(&self.existing, rng);
        let other = random_name(rng);
        let fresh = !self.existing.contains(&other);
        match (rng.below(10), one) {
            (0..=2, _) if fresh => {
                self.existing.insert(other.clone());
                Some((DdlKind::CreateTable, vec![other.clone()], vec![other], Vec::new()))
            }
            (3, Some(one)) if fresh => {
                // CREATE TABLE … LIKE
                self.existing.insert(other.clone());
                Some((DdlKind::CreateTable, vec![other.clone()], vec![other], vec![one]))
            }
            (4, Some(one)) if fresh => {
                self.existing.remove(&one);
                self.dropped.insert(one.clone());
                self.existing.insert(other.clone());
                Some((
                    DdlKind::RenameTable,
                    vec![one, other.clone()],
                    vec![other],
                    Vec::new(),
                ))
            }
            (5, Some(one)) => {
                let mut gone = vec![one];
                if !fresh && gone[0] != other {
                    gone.push(other);
                }
                for table in &gone {
                    self.existing.remove(table);
                }
                self.dropped.extend(gone.iter().cloned());
                Some((DdlKind::DropTable, gone, Vec::new(), Vec::new()))
            }
            (6, Some(one)) => Some((DdlKind::TruncateTable, vec![one], Vec::new(), Vec::new())),
            (7, Some(one)) if rng.percent(20) => {
                let schema = Arc::clone(&one.schema);
                let gone = self.existing.iter().filter(|table| table.schema == schema);
                self.dropped.extend(gone.cloned());
                self.existing.retain(|table| table.schema != schema);
                Some((
                    DdlKind::DropDatabase,
                    vec![TableName::new(schema, "")],
                    Vec::new(),
                    Vec::new(),
                ))
            }
            (8 | 9, Some(one)) if !fresh && one != other => {
                // A foreign key: the parent is read.
                Some((DdlKind::AlterTable, vec![one], Vec::new(), vec![other]))
            }
            (_, Some(one)) => Some((DdlKind::AlterTable, vec![one], Vec::new(), Vec::new())),
            (_, None) => None,
        }
    }
}

type DdlParts = (DdlKind, Vec<TableName>, Vec<TableName>, Vec<TableName>);

fn body_bytes(rng: &mut Rng, mix: &Mix) -> u64 {
    if rng.percent(mix.large_percent) {
        rng.between(2_000.min(mix.body_max), mix.body_max)
    } else {
        rng.between(1, 300)
    }
}

fn random_name(rng: &mut Rng) -> TableName {
    let schema = *rng.pick(&SCHEMAS);
    TableName::new(schema, format!("t{}", rng.below(NAMES_PER_SCHEMA)))
}

fn existing(tables: &BTreeSet<TableName>, rng: &mut Rng) -> Option<TableName> {
    let all: Vec<_> = tables.iter().collect();
    (!all.is_empty()).then(|| (*rng.pick(&all)).clone())
}

fn event(kind: DdlKind, writes: Vec<TableName>, makes: Vec<TableName>, reads: Vec<TableName>) -> DdlEvent {
    DdlEvent {
        kind,
        schema: Arc::from(""),
        session: Arc::default(),
        sql: Arc::from(""),
        writes,
        makes,
        reads,
        commit_time_ms: 0,
    }
}
