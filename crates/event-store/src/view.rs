//! What readers see, common to both stores; changed only when a group is synced.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_types::{CommitTs, LineageId, OrderKey, TableName, TableVersion};

use crate::catalog::{TableId, VersionId};
use crate::contract::{Coverage, ScanRequest};
use crate::coverage::Coverages;
use crate::entry::Batch;
use crate::error::{Result, StoreError};
use crate::history::SchemaHistory;
use crate::tail::Tail;

pub(crate) struct View {
    pub(crate) lineage: LineageId,
    pub(crate) resolved: CommitTs,
    pub(crate) names: Vec<TableName>,
    ids: HashMap<TableName, TableId>,
    pub(crate) versions: HashMap<VersionId, Arc<TableVersion>>,
    pub(crate) tail: Tail,
    pub(crate) history: SchemaHistory,
    pub(crate) coverage: Coverages,
    /// Bytes held per table.
    pub(crate) live: HashMap<TableId, u64>,
    /// Key of the last row event per table.
    pub(crate) last: HashMap<TableId, OrderKey>,
}

/// A scan's table and end, checked.
pub(crate) struct Scope {
    pub(crate) table: TableId,
    pub(crate) upto: OrderKey,
}

impl View {
    pub(crate) fn new(lineage: LineageId, tail_bytes_max: usize) -> Self {
        Self {
            lineage,
            resolved: CommitTs::ZERO,
            names: Vec::new(),
            ids: HashMap::new(),
            versions: HashMap::new(),
            tail: Tail::new(tail_bytes_max, OrderKey::MIN),
            history: SchemaHistory::default(),
            coverage: Coverages::default(),
            live: HashMap::new(),
            last: HashMap::new(),
        }
    }

    pub(crate) fn add_table(&mut self, name: TableName) {
        let id = TableId::try_from(self.names.len()).unwrap_or(TableId::MAX);
        self.ids.insert(name.clone(), id);
        self.names.push(name);
    }

    pub(crate) fn id(&self, name: &TableName) -> Option<TableId> {
        self.ids.get(name).copied()
    }

    /// Everything but rows and places of blocks.
    pub(crate) fn publish(&mut self, batch: &mut Batch) {
        for name in batch.tables.drain(..) {
            self.add_table(name);
        }
        self.versions.extend(batch.versions.drain(..));
        for (key, ddl) in batch.ddls.drain(..) {
            self.history.push(key, ddl);
        }
        for rows in &batch.rows {
            let last = self.last.entry(rows.table).or_default();
            *last = (*last).max(rows.entry.last);
        }
        if let Some(resolved) = batch.resolved {
            self.resolved = self.resolved.max(resolved);
        }
    }

    /// None if the store holds nothing of the table yet.
    ///
    /// # Errors
    /// A detached table, or a range outside of what is held.
    pub(crate) fn scope(&self, request: &ScanRequest) -> Result<Option<Scope>> {
        let Some(held) = self.coverage_of(&request.table).filter(|held| !held.ended) else {
            return Err(StoreError::Detached(request.table.to_string()));
        };
        if request.after < held.from {
            return Err(StoreError::not_covered(&request.table, request.after, held));
        }
        if request.upto > held.to {
            return Err(StoreError::not_covered(&request.table, request.upto, held));
        }
        let upto = request.upto;
        Ok(self.id(&request.table).map(|table| Scope { table, upto }))
    }

    pub(crate) fn coverage_of(&self, name: &TableName) -> Option<Coverage> {
        let table = self.id(name).unwrap_or(TableId::MAX);
        self.coverage.of(table, self.resolved)
    }

    pub(crate) fn live_bytes(&self) -> HashMap<TableName, u64> {
        let counted = self
            .live
            .iter()
            .filter(|(id, n)| **n > 0 && !self.coverage.has_ended(**id));
        counted
            .filter_map(|(id, n)| Some((self.names.get(*id as usize)?.clone(), *n)))
            .collect()
    }

    pub(crate) fn add_live(&mut self, table: TableId, bytes: u64) {
        *self.live.entry(table).or_default() += bytes;
    }

    pub(crate) fn sub_live(&mut self, table: TableId, bytes: u64) {
        let live = self.live.entry(table).or_default();
        *live = live.saturating_sub(bytes);
    }
}

/// How far everyone has come.
pub(crate) struct Floors {
    tables: HashMap<TableId, OrderKey>,
    schema: OrderKey,
    detached: HashSet<TableId>,
    /// What even the slowest has passed.
    pub(crate) min: OrderKey,
    /// What anybody has passed: transactions behind it are needed for tokens, also where
    /// they have no rows.
    pub(crate) max: OrderKey,
}

impl Floors {
    pub(crate) fn new(view: &View, tables: &[(TableName, OrderKey)], schema: OrderKey) -> Self {
        let end = OrderKey::end_of(view.resolved);
        let schema = schema.min(end);
        let mut floors = HashMap::new();
        let (mut min, mut max) = (schema, schema);
        for (name, key) in tables {
            let key = (*key).min(end);
            max = max.max(key);
            match view.id(name) {
                Some(id) if view.coverage.has_ended(id) => {}
                Some(id) => {
                    let floor = floors.entry(id).or_insert(key);
                    *floor = (*floor).min(key);
                    min = min.min(key);
                }
                None => min = min.min(key),
            }
        }
        Self {
            tables: floors,
            schema,
            detached: view.coverage.ended().collect(),
            min,
            max,
        }
    }

    /// What the table does not need any more.
    pub(crate) fn of(&self, table: TableId) -> OrderKey {
        if self.detached.contains(&table) {
            return OrderKey::MAX;
        }
        self.tables.get(&table).copied().unwrap_or(self.schema)
    }
}
