//! Numbers for tables and table versions, so that blocks name them in a few bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_types::{OrderKey, TableName, TableVersion};

/// Number of a table within a store; never used again.
pub(crate) type TableId = u32;
/// Number of a table version within a store; never used again.
pub(crate) type VersionId = u32;

#[derive(Clone)]
pub(crate) struct VersionInfo {
    pub(crate) table: TableId,
    pub(crate) version: Arc<TableVersion>,
    /// Last row event written with it; `MAX` while an open attempt holds some.
    pub(crate) last_used: OrderKey,
}

#[derive(Clone, Default)]
pub(crate) struct Catalog {
    names: Vec<TableName>,
    ids: HashMap<TableName, TableId>,
    versions: BTreeMap<VersionId, VersionInfo>,
    by_table: HashMap<TableId, Vec<VersionId>>,
    next_version: VersionId,
}

/// A place to go back to when an append fails.
#[derive(Clone, Copy)]
pub(crate) struct CatalogMark {
    tables: usize,
    next_version: VersionId,
}

impl Catalog {
    pub(crate) fn mark(&self) -> CatalogMark {
        CatalogMark {
            tables: self.names.len(),
            next_version: self.next_version,
        }
    }

    pub(crate) fn rollback(&mut self, mark: CatalogMark) {
        for name in self.names.drain(mark.tables.min(self.names.len())..) {
            self.ids.remove(&name);
        }
        for (id, info) in self.versions.split_off(&mark.next_version) {
            if let Some(ids) = self.by_table.get_mut(&info.table) {
                ids.retain(|v| *v != id);
            }
        }
        self.next_version = mark.next_version;
    }

    /// Tables numbered since `mark`, in the order of their numbers.
    pub(crate) fn tables_since(&self, mark: CatalogMark) -> &[TableName] {
        self.names.get(mark.tables..).unwrap_or_default()
    }

    /// Versions numbered since `mark`.
    pub(crate) fn versions_since(
        &self,
        mark: CatalogMark,
    ) -> impl Iterator<Item = (VersionId, &VersionInfo)> {
        self.versions
            .range(mark.next_version..)
            .map(|(id, info)| (*id, info))
    }

    pub(crate) fn names(&self) -> &[TableName] {
        &self.names
    }

    pub(crate) fn versions(&self) -> &BTreeMap<VersionId, VersionInfo> {
        &self.versions
    }

    pub(crate) fn next_version(&self) -> VersionId {
        self.next_version
    }

    pub(crate) fn table(&mut self, name: &TableName) -> TableId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = TableId::try_from(self.names.len()).unwrap_or(TableId::MAX);
        self.names.push(name.clone());
        self.ids.insert(name.clone(), id);
        id
    }

    /// The numbers of a version and its table; equal versions share one.
    pub(crate) fn version(&mut self, version: &Arc<TableVersion>) -> (TableId, VersionId) {
        let table = self.table(&version.name);
        let known = self.by_table.entry(table).or_default();
        for id in known.iter().rev() {
            if let Some(info) = self.versions.get(id)
                && (Arc::ptr_eq(&info.version, version) || info.version == *version)
            {
                return (table, *id);
            }
        }
        let id = self.next_version;
        self.next_version += 1;
        known.push(id);
        let info = VersionInfo {
            table,
            version: Arc::clone(version),
            last_used: OrderKey::MIN,
        };
        self.versions.insert(id, info);
        (table, id)
    }

    /// Enters what a snapshot or a log entry says.
    pub(crate) fn restore(
        &mut self,
        id: VersionId,
        version: Arc<TableVersion>,
        last_used: OrderKey,
    ) -> TableId {
        let table = self.table(&version.name);
        self.by_table.entry(table).or_default().push(id);
        self.next_version = self.next_version.max(id.saturating_add(1));
        let info = VersionInfo {
            table,
            version,
            last_used,
        };
        self.versions.insert(id, info);
        table
    }

    pub(crate) fn raise_next_version(&mut self, next: VersionId) {
        self.next_version = self.next_version.max(next);
    }

    pub(crate) fn used(&mut self, id: VersionId, key: OrderKey) {
        if let Some(info) = self.versions.get_mut(&id) {
            info.last_used = info.last_used.max(key);
        }
    }

    /// The last version seen of a table.
    pub(crate) fn latest(&self, name: &TableName) -> Option<Arc<TableVersion>> {
        let id = self.by_table.get(self.ids.get(name)?)?.last()?;
        self.versions.get(id).map(|info| Arc::clone(&info.version))
    }

    /// Forgets old versions: not their table's last, and all that was written with them
    /// lies at or below where the table's coverage begins.
    pub(crate) fn forget(&mut self, from: impl Fn(TableId) -> OrderKey) {
        let last: Vec<VersionId> = self.by_table.values().filter_map(|v| v.last().copied()).collect();
        let old: Vec<VersionId> = self
            .versions
            .iter()
            .filter(|(id, info)| info.last_used <= from(info.table) && !last.contains(id))
            .map(|(id, _)| *id)
            .collect();
        for id in old {
            if let Some(info) = self.versions.remove(&id)
                && let Some(ids) = self.by_table.get_mut(&info.table)
            {
                ids.retain(|v| *v != id);
            }
        }
    }
}
