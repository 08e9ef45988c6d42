//! DDL history: which tables exist at a place.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_types::{DdlEvent, DdlKind, OrderKey, TableName};

use crate::error::{Result, StoreError};

#[derive(Clone, Default)]
pub(crate) struct SchemaHistory {
    /// Everything at or below it is folded into `base`.
    pub(crate) floor: OrderKey,
    pub(crate) base: BTreeSet<TableName>,
    /// Ascending.
    pub(crate) ddls: Vec<(OrderKey, Arc<DdlEvent>)>,
}

fn fold(tables: &mut BTreeSet<TableName>, ddl: &DdlEvent) {
    if matches!(
        ddl.kind,
        DdlKind::DropTable | DdlKind::RenameTable | DdlKind::DropDatabase
    ) {
        for name in &ddl.writes {
            if name.table.is_empty() {
                tables.retain(|t| t.schema != name.schema);
            } else {
                tables.remove(name);
            }
        }
    }
    if ddl.kind == DdlKind::ImplicitCreate {
        tables.extend(ddl.writes.iter().filter(|t| !t.table.is_empty()).cloned());
    }
    tables.extend(ddl.makes.iter().filter(|t| !t.table.is_empty()).cloned());
}

impl SchemaHistory {
    pub(crate) fn push(&mut self, key: OrderKey, ddl: Arc<DdlEvent>) {
        // Appends come in order; a prepared group's own place is given at its prepare.
        let at = self.ddls.partition_point(|(k, _)| *k <= key);
        self.ddls.insert(at, (key, ddl));
    }

    pub(crate) fn tables_at(&self, at: OrderKey) -> Result<BTreeSet<TableName>> {
        self.check(at)?;
        let mut tables = self.base.clone();
        for (_, ddl) in self.ddls.iter().take_while(|(key, _)| *key <= at) {
            fold(&mut tables, ddl);
        }
        Ok(tables)
    }

    fn check(&self, at: OrderKey) -> Result<()> {
        if at < self.floor {
            return Err(StoreError::OutOfRange(format!("DDL history at {at}")));
        }
        Ok(())
    }

    /// DDL with `after < key ≤ upto`; equal keys are never parted.
    pub(crate) fn page(
        &self,
        after: OrderKey,
        upto: OrderKey,
        limit: usize,
    ) -> Result<Vec<(OrderKey, Arc<DdlEvent>)>> {
        self.check(after)?;
        let start = self.ddls.partition_point(|(key, _)| *key <= after);
        let end = self.ddls.partition_point(|(key, _)| *key <= upto).max(start);
        let mut stop = end;
        if limit > 0 && start + limit < end {
            let last = self.ddls.get(start + limit - 1).map(|(key, _)| *key);
            stop = self.ddls.partition_point(|(key, _)| Some(*key) <= last);
        }
        let page = self.ddls.get(start..stop).unwrap_or_default();
        Ok(page.iter().map(|(key, ddl)| (*key, Arc::clone(ddl))).collect())
    }

    /// Folds what everyone has passed.
    pub(crate) fn advance(&mut self, floor: OrderKey) {
        if floor <= self.floor {
            return;
        }
        let passed = self.ddls.partition_point(|(key, _)| *key <= floor);
        for (_, ddl) in self.ddls.drain(..passed) {
            fold(&mut self.base, &ddl);
        }
        self.floor = floor;
    }
}
