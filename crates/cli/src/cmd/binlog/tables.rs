//! The tables that table maps have named so far.

use std::collections::HashMap;
use std::sync::Arc;

use weir_binlog::{BinlogError, RowImages, RowPlan, Rows, TableMap, TableMapCache};
use weir_types::{Classified as _, ErrorClass, Flavor, TableVersion};

/// Table ids kept at most; the servers give new ones whenever they open a table anew.
const TABLES_MAX: usize = 65_536;

/// A table as its rows need it.
pub(crate) struct Table {
    /// `schema.table`.
    pub(crate) name: String,
    /// How its rows are read; none if they cannot be: no column names, or a type that is
    /// not known.
    pub(crate) layout: Option<Layout>,
}

/// Shape of a table and how its rows are read.
pub(crate) struct Layout {
    pub(crate) version: Arc<TableVersion>,
    pub(crate) plan: RowPlan,
}

impl Table {
    /// Number of rows of an event; none if they cannot be read.
    pub(crate) fn count(&self, rows: &Rows<'_>) -> Result<Option<u64>, BinlogError> {
        let Some(layout) = &self.layout else {
            return Ok(None);
        };
        let mut images = RowImages::default();
        let mut reader = layout.plan.rows(rows.kind, rows.block_flags(), rows.body)?;
        let mut count = 0;
        loop {
            match reader.next(&mut images) {
                Ok(true) => count += 1,
                Ok(false) => return Ok(Some(count)),
                Err(BinlogError::PartialJson { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Tables by the ids that row events name.
pub(crate) struct Tables {
    cache: TableMapCache,
    by_id: HashMap<u64, Arc<Table>>,
}

impl Tables {
    /// None, for the files of one server family.
    pub(crate) fn new(flavor: Flavor) -> Self {
        Self {
            cache: TableMapCache::new(flavor),
            by_id: HashMap::new(),
        }
    }

    /// Takes in a table map.
    pub(crate) fn learn(&mut self, map: &TableMap<'_>) -> Result<(), BinlogError> {
        let layout = match self.cache.get(map) {
            Ok(version) => {
                if let Some(Table {
                    layout: Some(known), ..
                }) = self.by_id.get(&map.table_id).map(|t| &**t)
                    && Arc::ptr_eq(&known.version, &version)
                {
                    return Ok(());
                }
                RowPlan::new(&version).map(|plan| Layout { version, plan })
            }
            Err(error) => Err(error),
        };
        let layout = match layout {
            Ok(layout) => Some(layout),
            Err(error) if error.class() == ErrorClass::Table => {
                tracing::warn!(%error, "rows of a table are not counted");
                None
            }
            Err(error) => return Err(error),
        };
        if self.by_id.len() >= TABLES_MAX {
            self.by_id.clear();
        }
        let table = Table {
            name: map.display_name(),
            layout,
        };
        self.by_id.insert(map.table_id, Arc::new(table));
        Ok(())
    }

    /// The table of a row event.
    pub(crate) fn get(&self, table_id: u64) -> Option<Arc<Table>> {
        self.by_id.get(&table_id).map(Arc::clone)
    }
}
