//! Table versions by table id, so that a repeated table map costs a comparison.

use std::collections::HashMap;
use std::sync::Arc;

use weir_types::{Flavor, TableVersion};

use crate::error::BinlogError;
use crate::table_map::TableMap;

/// Table ids kept at most. Servers give a new id whenever they open a table anew, so old
/// ids pile up; beyond this the cache starts over.
const ENTRIES_MAX: usize = 16_384;

struct Entry {
    shape: Arc<[u8]>,
    version: Arc<TableVersion>,
}

/// Decoded table maps. With `binlog_row_metadata=FULL` a third of a busy binlog is table
/// maps, nearly all of them repeated.
pub struct TableMapCache {
    flavor: Flavor,
    by_id: HashMap<u64, Entry>,
    by_shape: HashMap<Arc<[u8]>, Arc<TableVersion>>,
    hits: u64,
    misses: u64,
}

impl TableMapCache {
    /// An empty cache for one source.
    pub fn new(flavor: Flavor) -> Self {
        Self {
            flavor,
            by_id: HashMap::new(),
            by_shape: HashMap::new(),
            hits: 0,
            misses: 0,
        }
    }

    /// The version that a table map describes. The same `Arc` as before for the same
    /// bytes, also under a new table id.
    ///
    /// # Errors
    /// Those of `TableMap::to_version`; nothing is kept then.
    pub fn get(&mut self, map: &TableMap<'_>) -> Result<Arc<TableVersion>, BinlogError> {
        if let Some(entry) = self.by_id.get(&map.table_id)
            && *entry.shape == *map.shape
        {
            self.hits += 1;
            return Ok(Arc::clone(&entry.version));
        }
        self.misses += 1;
        if self.by_id.len().max(self.by_shape.len()) >= ENTRIES_MAX {
            self.clear();
        }
        let (shape, version) = match self.by_shape.get_key_value(map.shape) {
            Some((shape, version)) => (Arc::clone(shape), Arc::clone(version)),
            None => {
                let version = Arc::new(map.to_version(self.flavor)?);
                let shape: Arc<[u8]> = Arc::from(map.shape);
                self.by_shape.insert(Arc::clone(&shape), Arc::clone(&version));
                (shape, version)
            }
        };
        let entry = Entry {
            shape,
            version: Arc::clone(&version),
        };
        self.by_id.insert(map.table_id, entry);
        Ok(version)
    }

    /// Lookups that were answered from the cache, and those that were not.
    pub const fn counts(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Forgets all ids: another server or a restarted one gives them anew. Not needed for
    /// correctness, since the bytes are compared.
    pub fn clear(&mut self) {
        self.by_id.clear();
        self.by_shape.clear();
    }
}
