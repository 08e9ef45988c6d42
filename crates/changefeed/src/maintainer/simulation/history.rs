//! Random histories of rows and DDL, as an upstream could produce them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_types::{CommitTs, DdlEvent, DdlKind, OrderKey, TableName};

/// Small deterministic generator (xorshift64*).
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        (mixed % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())].clone())
    }
}

/// What the binlog holds.
#[derive(Default)]
pub(super) struct History {
    pub(super) rows: BTreeMap<TableName, Vec<OrderKey>>,
    pub(super) ddls: Vec<(OrderKey, Arc<DdlEvent>)>,
    pub(super) end: CommitTs,
    /// Tables at the end.
    pub(super) exist: BTreeSet<TableName>,
}

const SCHEMAS: [&str; 2] = ["a", "b"];
const TABLES: [&str; 4] = ["t0", "t1", "t2", "t3"];

fn all_names() -> Vec<TableName> {
    let pairs = SCHEMAS.iter().flat_map(|s| TABLES.iter().map(move |t| (*s, *t)));
    pairs.map(|(s, t)| TableName::new(s, t)).collect()
}

impl History {
    pub(super) fn random(rng: &mut Rng, steps: usize) -> Self {
        let mut history = Self::default();
        let mut exist = BTreeSet::new();
        for step in 1..=steps {
            let ts = CommitTs(step as u64 * 10);
            history.end = ts;
            if rng.below(100) < 60 {
                history.transaction(rng, ts, &mut exist);
            } else if let Some(event) = random_ddl(rng, &mut exist) {
                history.ddls.push((OrderKey::new(ts, 1), Arc::new(event)));
            }
        }
        history.exist = exist;
        history
    }

    fn transaction(&mut self, rng: &mut Rng, ts: CommitTs, exist: &mut BTreeSet<TableName>) {
        for ordinal in 1..=1 + rng.below(3) as u32 {
            let Some(table) = rng.pick(&all_names()) else {
                return;
            };
            if !exist.contains(&table) {
                if !rng.one_in(4) {
                    continue;
                }
                // Met by its rows: an implicit creation just before the first.
                let event = ddl(DdlKind::ImplicitCreate, &[&table], &[&table], &[]);
                self.ddls.push((OrderKey::new(ts, ordinal - 1), Arc::new(event)));
                exist.insert(table.clone());
            }
            self.rows
                .entry(table)
                .or_default()
                .push(OrderKey::new(ts, ordinal));
        }
    }

    /// DDLs of a stream behind `after`.
    pub(super) fn next_ddl(
        &self,
        after: OrderKey,
        wanted: impl Fn(&DdlEvent) -> bool,
    ) -> Option<(OrderKey, Arc<DdlEvent>)> {
        self.ddls
            .iter()
            .find(|(key, event)| *key > after && wanted(event))
            .map(|(key, event)| (*key, Arc::clone(event)))
    }

    pub(super) fn rows_of(&self, table: &TableName) -> &[OrderKey] {
        self.rows.get(table).map_or(&[], Vec::as_slice)
    }
}

fn ddl(kind: DdlKind, writes: &[&TableName], makes: &[&TableName], reads: &[&TableName]) -> DdlEvent {
    let own = |names: &[&TableName]| names.iter().map(|name| (*name).clone()).collect();
    DdlEvent {
        kind,
        schema: "".into(),
        session: Arc::default(),
        sql: "".into(),
        writes: own(writes),
        makes: own(makes),
        reads: own(reads),
        commit_time_ms: 0,
    }
}

fn random_ddl(rng: &mut Rng, exist: &mut BTreeSet<TableName>) -> Option<DdlEvent> {
    let live: Vec<_> = exist.iter().cloned().collect();
    let free: Vec<_> = all_names().into_iter().filter(|t| !exist.contains(t)).collect();
    let schema = TableName::new(SCHEMAS[rng.below(2)], "");
    Some(match rng.below(12) {
        0 | 1 => {
            let table = rng.pick(&free)?;
            exist.insert(table.clone());
            ddl(DdlKind::CreateTable, &[&table], &[&table], &[])
        }
        2 => {
            let (table, like) = (rng.pick(&free)?, rng.pick(&live)?);
            exist.insert(table.clone());
            ddl(DdlKind::CreateTable, &[&table], &[&table], &[&like])
        }
        3 => {
            let table = rng.pick(&live)?;
            exist.remove(&table);
            ddl(DdlKind::DropTable, &[&table], &[], &[])
        }
        4 => {
            let (from, to) = (rng.pick(&live)?, rng.pick(&free)?);
            exist.remove(&from);
            exist.insert(to.clone());
            ddl(DdlKind::RenameTable, &[&from, &to], &[&to], &[])
        }
        5 => {
            let (a, b) = (rng.pick(&live)?, rng.pick(&live)?);
            let tmp = TableName::new("a", "tmp");
            ddl(DdlKind::RenameTable, &[&a, &b, &tmp], &[&a, &b], &[])
        }
        6 => ddl(DdlKind::TruncateTable, &[&rng.pick(&live)?], &[], &[]),
        7 => ddl(DdlKind::AlterTable, &[&rng.pick(&live)?], &[], &[]),
        8 | 9 => {
            let (child, parent) = (rng.pick(&live)?, rng.pick(&live)?);
            ddl(DdlKind::AlterTable, &[&child], &[], &[&parent])
        }
        10 => {
            exist.retain(|table| table.schema != schema.schema);
            ddl(DdlKind::DropDatabase, &[&schema], &[], &[])
        }
        _ if rng.one_in(2) => ddl(DdlKind::AlterDatabase, &[&schema], &[], &[]),
        _ => ddl(DdlKind::CreateDatabase, &[&schema], &[], &[]),
    })
}
