//! The naive model: every transaction in a list.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{
    AttemptId, BlockBuilder, CommitClock, CommitTs, DdlEvent, DdlKind, Gtid, GtidSet, LineageId, OrderKey,
    SourcePosition, TableName, TableVersion, Token, Xid,
};

use super::inputs::versions;
use crate::contract::Recovered;

/// A small generator of numbers (xorshift), the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() >> 33) as usize % n.max(1)
    }
}

type Row = (TableName, u32, Vec<u8>);

#[derive(Clone)]
struct Txn {
    ts: CommitTs,
    gtid: Option<Gtid>,
    position: ReadPosition,
    rows: Vec<Row>,
    ddls: Vec<(u32, Arc<DdlEvent>)>,
    prepared: Option<(Xid, Vec<Row>)>,
    ended: Option<Xid>,
}

/// See the module.
pub struct Model {
    lineage: LineageId,
    clock: CommitClock,
    txns: Vec<Txn>,
    synced: CommitTs,
    attempts: BTreeMap<AttemptId, Vec<Row>>,
    attempts_seen: u64,
    attempts_synced: u64,
    pub(super) prepared: BTreeMap<Xid, Vec<Row>>,
    floors: BTreeMap<TableName, OrderKey>,
    history_floor: OrderKey,
    schema_floor: OrderKey,
    /// Detached tables, where their coverage ended; none if only the store knows.
    ended: BTreeMap<TableName, Option<OrderKey>>,
    pub(super) offset: u64,
    pub(super) number: u64,
    pub(super) versions: Vec<Arc<TableVersion>>,
}

pub(super) const TABLES: [&str; 3] = ["a", "b", "c"];

pub(super) fn name(table: &str) -> TableName {
    TableName::new("s", table)
}

impl Model {
    /// A new store's.
    pub fn new(lineage: LineageId) -> Self {
        Self {
            lineage,
            clock: CommitClock::new(CommitTs::ZERO),
            txns: Vec::new(),
            synced: CommitTs::ZERO,
            attempts: BTreeMap::new(),
            attempts_seen: 0,
            attempts_synced: 0,
            prepared: BTreeMap::new(),
            floors: BTreeMap::new(),
            history_floor: OrderKey::MIN,
            schema_floor: OrderKey::MIN,
            ended: BTreeMap::new(),
            offset: 4,
            number: 0,
            versions: versions(),
        }
    }

    fn rows_of(blocks: &[BlockBuilder]) -> Vec<(u32, Row)> {
        let mut out = Vec::new();
        for builder in blocks {
            let block = weir_types::Block {
                version: Arc::clone(&builder.version),
                txns: builder.txns.iter().map(|t| CommitTs(u64::from(*t))).collect(),
                payload: builder.payload.clone(),
                events: builder.events,
                first: OrderKey::MIN,
                last: OrderKey::MAX,
            };
            for event in block.events() {
                let event = event.expect("a row event");
                let row = (
                    builder.version.name.clone(),
                    event.key.ordinal,
                    event.body.to_vec(),
                );
                out.push((event.key.commit_ts.0 as u32, row));
            }
        }
        out
    }

    fn end(&mut self, meta: &TxnMeta, upto: &ReadPosition, now_ms: u64) -> Txn {
        Txn {
            ts: self.clock.next(meta.commit_time_ms, now_ms),
            gtid: meta.gtid.clone(),
            position: ReadPosition {
                offset: meta.end_offset,
                ..upto.clone()
            },
            rows: Vec::new(),
            ddls: Vec::new(),
            prepared: None,
            ended: None,
        }
    }

    fn attempt_rows(
        &mut self,
        attempt: AttemptId,
        blocks: &[BlockBuilder],
        aborted: &[Range<u32>],
    ) -> Vec<Row> {
        let mut rows = self.attempts.remove(&attempt).unwrap_or_default();
        rows.extend(Self::rows_of(blocks).into_iter().map(|(_, row)| row));
        rows.retain(|(_, ordinal, _)| !aborted.iter().any(|r| r.contains(ordinal)));
        rows.sort_by_key(|(_, ordinal, _)| *ordinal);
        rows
    }

    fn appended_group(&mut self, group: &TxnGroup, upto: &ReadPosition, now_ms: u64) {
        let first = self.txns.len();
        for meta in &group.txns {
            let txn = self.end(meta, upto, now_ms);
            self.txns.push(txn);
        }
        for (txn, row) in Self::rows_of(&group.blocks) {
            self.txns[first + txn as usize].rows.push(row);
        }
        for ddl in &group.ddls {
            let txn = &mut self.txns[first + ddl.txn as usize];
            txn.ddls.push((ddl.ordinal, Arc::clone(&ddl.event)));
        }
    }

    /// The store took the input.
    pub fn appended(&mut self, input: &StoreInput, now_ms: u64) {
        // What stores nothing uses up no number.
        let stores = match input {
            StoreInput::Discard { .. } => false,
            StoreInput::Fragment { blocks, .. } => {
                blocks.iter().any(|b| !self.ended.contains_key(&b.version.name))
            }
            _ => true,
        };
        if let Some(attempt) = crate::state::parts(input).attempt
            && stores
        {
            self.attempts_seen = self.attempts_seen.max(attempt.0);
        }
        match input {
            StoreInput::Group { group, upto } => self.appended_group(group, upto, now_ms),
            StoreInput::Fragment { attempt, blocks } => {
                let rows = Self::rows_of(blocks).into_iter().map(|(_, row)| row);
                self.attempts.entry(*attempt).or_default().extend(rows);
            }
            StoreInput::Discard { attempt } => {
                self.attempts.remove(attempt);
            }
            StoreInput::Commit {
                attempt,
                meta,
                blocks,
                ddls,
                aborted,
                upto,
            } => {
                let mut txn = self.end(meta, upto, now_ms);
                txn.rows = self.attempt_rows(*attempt, blocks, aborted);
                txn.ddls = ddls.iter().map(|d| (d.ordinal, Arc::clone(&d.event))).collect();
                self.txns.push(txn);
            }
            StoreInput::Prepare {
                attempt,
                xid,
                meta,
                blocks,
                aborted,
                upto,
                ..
            } => {
                let mut txn = self.end(meta, upto, now_ms);
                let rows = self.attempt_rows(*attempt, blocks, aborted);
                self.prepared.insert(xid.clone(), rows.clone());
                txn.prepared = Some((xid.clone(), rows));
                self.txns.push(txn);
            }
            StoreInput::CommitPrepared { xid, meta, upto } => {
                let mut txn = self.end(meta, upto, now_ms);
                txn.rows = self.prepared.remove(xid).expect("it was prepared");
                txn.ended = Some(xid.clone());
                self.txns.push(txn);
            }
            StoreInput::RollbackPrepared { xid, meta, upto } => {
                let mut txn = self.end(meta, upto, now_ms);
                self.prepared.remove(xid);
                txn.ended = Some(xid.clone());
                self.txns.push(txn);
            }
            StoreInput::Tick { time_ms, upto } => {
                let meta = TxnMeta {
                    commit_time_ms: *time_ms,
                    gtid: None,
                    end_offset: upto.offset,
                };
                let txn = self.end(&meta, upto, now_ms);
                self.txns.push(txn);
            }
        }
    }

    /// The store says that everything up to `resolved` is durable.
    pub fn synced(&mut self, resolved: CommitTs) {
        assert!(resolved >= self.synced, "resolved goes back");
        self.synced = resolved;
    }

    /// Commit-ts of the last transaction.
    pub fn resolved_all(&mut self) -> CommitTs {
        self.attempts_synced = self.attempts_seen;
        self.clock.last()
    }

    /// Greatest attempt id that was synced.
    pub fn attempts_synced(&self) -> u64 {
        self.attempts_synced
    }

    /// The store was opened again: what it holds must be a prefix with everything
    /// synced in it.
    pub fn reopened(&mut self, recovered: &Recovered) {
        assert_eq!(recovered.lineage, self.lineage);
        assert!(recovered.resolved >= self.synced, "synced transactions are gone");
        assert!(recovered.resolved <= self.clock.last());
        self.txns.retain(|t| t.ts <= recovered.resolved);
        let last = self.txns.last().map_or(CommitTs::ZERO, |t| t.ts);
        assert_eq!(last, recovered.resolved, "a commit-ts that was never given");
        self.clock = CommitClock::new(last);
        self.synced = last;
        self.attempts.clear();
        self.attempts_seen = recovered.next_attempt.0 - 1;
        self.prepared.clear();
        for txn in &self.txns {
            if let Some((xid, rows)) = &txn.prepared {
                self.prepared.insert(xid.clone(), rows.clone());
            }
            if let Some(xid) = &txn.ended {
                self.prepared.remove(xid);
            }
        }
        let xids: Vec<Xid> = self.prepared.keys().cloned().collect();
        assert_eq!(recovered.prepared, xids);
        let expected = self.position_behind(self.txns.len());
        assert_eq!(recovered.position, expected);
        let names: Vec<TableName> = recovered.tables.iter().map(|(n, _)| n.clone()).collect();
        assert_eq!(names, self.tables_at(OrderKey::MAX));
    }

    fn position_behind(&self, count: usize) -> Option<SourcePosition> {
        let last = &self.txns.get(..count)?.last()?.position;
        let mut gtids = GtidSet::default();
        for gtid in self.txns[..count].iter().filter_map(|t| t.gtid.as_ref()) {
            gtids.insert(gtid);
        }
        Some(SourcePosition {
            identity: last.identity.clone(),
            file: Arc::clone(&last.file),
            offset: last.offset,
            gtids,
        })
    }

    /// All tables that may have rows.
    pub fn tables(&self) -> Vec<TableName> {
        TABLES.iter().map(|t| name(t)).collect()
    }

    /// Where GC says the table may have begun to be removed.
    pub fn floor(&self, table: &TableName) -> OrderKey {
        self.floors.get(table).copied().unwrap_or(OrderKey::MIN)
    }

    /// The table was detached when everything up to `to` was visible; none: the store
    /// failed meanwhile.
    pub fn detached(&mut self, table: &TableName, to: Option<OrderKey>) {
        let known = self.ended.entry(table.clone()).or_insert(to);
        *known = known.or(to);
    }

    /// What reopening settled.
    pub fn not_detached(&mut self, table: &TableName) {
        if let Some(None) = self.ended.get(table) {
            self.ended.remove(table);
        }
    }

    /// Where the coverage of a detached table ended; none in none if only the store
    /// knows.
    pub fn ended(&self, table: &TableName) -> Option<Option<OrderKey>> {
        self.ended.get(table).copied()
    }

    /// Where the DDL history begins.
    pub fn history_floor(&self) -> OrderKey {
        self.history_floor
    }

    /// Row events of a table.
    pub fn expected(&self, table: &TableName, after: OrderKey, upto: OrderKey) -> Vec<(OrderKey, Vec<u8>)> {
        let mut out = Vec::new();
        for txn in &self.txns {
            for (name, ordinal, body) in &txn.rows {
                let key = OrderKey::new(txn.ts, *ordinal);
                if name == table && key > after && key <= upto {
                    out.push((key, body.clone()));
                }
            }
        }
        out
    }

    /// DDL in a range.
    pub fn ddls(&self, after: OrderKey, upto: OrderKey) -> Vec<(OrderKey, Arc<DdlEvent>)> {
        let all = self.txns.iter().flat_map(|t| {
            let ddls = t.ddls.iter();
            ddls.map(|(ordinal, event)| (OrderKey::new(t.ts, *ordinal), Arc::clone(event)))
        });
        all.filter(|(key, _)| *key > after && *key <= upto).collect()
    }

    /// Tables that exist behind a place.
    pub fn tables_at(&self, at: OrderKey) -> Vec<TableName> {
        let mut tables = BTreeSet::new();
        for (_, ddl) in self.ddls(OrderKey::MIN, at) {
            if ddl.kind == DdlKind::DropTable {
                for table in &ddl.writes {
                    tables.remove(table);
                }
            }
            tables.extend(ddl.makes.iter().cloned());
        }
        tables.into_iter().collect()
    }

    /// A key of some transaction, or beside one.
    pub fn some_key(&self, rng: &mut Rng) -> OrderKey {
        let visible: Vec<&Txn> = self.txns.iter().filter(|t| t.ts <= self.synced).collect();
        let Some(txn) = visible.get(rng.below(visible.len())) else {
            return OrderKey::MIN;
        };
        match rng.below(4) {
            0 => OrderKey::end_of(txn.ts),
            1 => OrderKey::new(txn.ts, 0),
            2 => OrderKey::new(txn.ts, 0).before(),
            _ => OrderKey::new(txn.ts, rng.below(6) as u32),
        }
    }

    /// Places for all tables and the schema, beyond the last ones.
    pub fn floors(&self, seed: u64) -> (Vec<(TableName, OrderKey)>, OrderKey) {
        let mut rng = Rng::new(seed);
        let mut tables = Vec::new();
        for table in self.tables() {
            let key = self.some_key(&mut rng).max(self.floor(&table));
            tables.push((table, key));
        }
        (tables, self.some_key(&mut rng).max(self.history_floor))
    }

    /// GC was told these places.
    pub fn collected(&mut self, tables: &[(TableName, OrderKey)], schema: OrderKey) {
        let mut min = schema;
        for (table, key) in tables {
            let floor = self.floors.entry(table.clone()).or_default();
            *floor = (*floor).max(*key);
            if !self.ended.contains_key(table) {
                min = min.min(*key);
            }
        }
        self.history_floor = self.history_floor.max(min);
        self.schema_floor = self.schema_floor.max(schema);
    }

    /// The furthest that GC was told by any table, or for all without an own place.
    pub fn passed_by_some(&self) -> OrderKey {
        self.floors
            .values()
            .copied()
            .fold(self.schema_floor, OrderKey::max)
    }

    /// The token at a place.
    pub fn token(&self, key: OrderKey) -> Option<Token> {
        let whole = key.ordinal == u32::MAX;
        let at = self.txns.partition_point(|t| t.ts < key.commit_ts);
        let exact = self.txns.get(at).filter(|t| t.ts == key.commit_ts);
        let count = if whole && exact.is_some() { at + 1 } else { at };
        let mut open = BTreeSet::new();
        for txn in self.txns.get(..count)? {
            if let Some((xid, _)) = &txn.prepared {
                open.insert(xid.clone());
            }
            if let Some(xid) = &txn.ended {
                open.remove(xid);
            }
        }
        Some(Token {
            lineage: self.lineage,
            key,
            position: self.position_behind(count),
            gtid: exact
                .filter(|_| !whole)
                .and_then(|t| t.gtid.as_ref())
                .map(ToString::to_string),
            open_xa: open.into_iter().collect(),
        })
    }
}
