//! Tables of the source: which are wanted, which the history knows, and what the table
//! ids of the binlog stand for.

use std::collections::HashMap;
use std::sync::Arc;

use weir_binlog::cache::TableMapCache;
use weir_binlog::error::BinlogError;
use weir_binlog::table_map::TableMap;
use weir_filter::TableFilter;
use weir_types::{DdlKind, Flavor, TableName, TableVersion};

use crate::catalogue::{At, Catalogue, Change};
use crate::error::{Result, SourceError};

/// Table ids kept at most; beyond it they are forgotten at the next transaction.
const IDS_MAX: usize = 16_384;

/// Columns of a MariaDB sequence, which is a table of one row in the binlog. Its numbers
/// are in the rows that they were drawn for, and a table of the same name is not what a
/// reader of row changes expects: as its statements, its rows are not replicated.
const SEQUENCE_COLUMNS: [&str; 8] = [
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
];

/// Index of a table in `Tables`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TableNo(pub(crate) usize);

/// A table that was met.
pub(crate) struct Table {
    pub(crate) name: TableName,
    /// The history knows that it exists.
    pub(crate) known: bool,
    /// Number of the transaction that already holds its implicit creation.
    pub(crate) created_in: u64,
    /// Where its newest block lies: generation and index of the growing group's blocks.
    pub(crate) block: (u64, usize),
    /// Payload bytes of its last full block, so that the next one starts at that size.
    pub(crate) payload_hint: usize,
}

/// What a table id stands for.
pub(crate) struct MappedTable {
    shape: Box<[u8]>,
    /// None if the filter leaves the table out, or it is a sequence.
    pub(crate) wanted: Option<(TableNo, Arc<TableVersion>)>,
    /// Number of the transaction that mapped it last.
    pub(crate) transaction: u64,
}

pub(crate) struct Tables {
    filter: Arc<TableFilter>,
    tables: Vec<Table>,
    by_name: HashMap<TableName, TableNo>,
    by_id: HashMap<u64, MappedTable>,
    flavor: Flavor,
    cache: TableMapCache,
    /// Of tables whose binlog names no columns.
    pub(crate) catalogue: Catalogue,
}

fn text(bytes: &[u8]) -> Result<&str, BinlogError> {
    std::str::from_utf8(bytes).map_err(|_| BinlogError::Malformed {
        what: "table name that is not UTF-8",
    })
}

fn is_sequence(version: &TableVersion) -> bool {
    let names = version.columns.iter().map(|column| &*column.name);
    names.eq(SEQUENCE_COLUMNS)
}

impl Tables {
    pub(crate) fn new(filter: Arc<TableFilter>, known: impl IntoIterator<Item = TableName>) -> Self {
        let mut tables = Self {
            filter,
            tables: Vec::new(),
            by_name: HashMap::new(),
            by_id: HashMap::new(),
            flavor: Flavor::Mysql,
            cache: TableMapCache::new(Flavor::Mysql),
            catalogue: Catalogue::default(),
        };
        for name in known {
            let no = tables.number(name);
            if let Some(table) = tables.get_mut(no) {
                table.known = true;
            }
        }
        tables
    }

    /// The server that writes from here on; table ids of another one mean nothing.
    pub(crate) fn set_flavor(&mut self, flavor: Flavor) {
        self.flavor = flavor;
        self.cache = TableMapCache::new(flavor);
        self.by_id.clear();
    }

    pub(crate) fn get(&self, no: TableNo) -> Option<&Table> {
        self.tables.get(no.0)
    }

    pub(crate) fn get_mut(&mut self, no: TableNo) -> Option<&mut Table> {
        self.tables.get_mut(no.0)
    }

    /// The number of a table, new if it was never met.
    pub(crate) fn number(&mut self, name: TableName) -> TableNo {
        if let Some(&no) = self.by_name.get(&name) {
            return no;
        }
        let no = TableNo(self.tables.len());
        self.tables.push(Table {
            name: name.clone(),
            known: false,
            created_in: 0,
            block: (0, 0),
            payload_hint: 0,
        });
        self.by_name.insert(name, no);
        no
    }

    /// Whether the filter lets a table, or some table of a schema (empty name), through.
    pub(crate) fn wants(&self, name: &TableName) -> bool {
        if name.table.is_empty() {
            self.filter.may_match_schema(&name.schema)
        } else {
            self.filter.matches(name)
        }
    }

    /// Takes in a table map of transaction number `transaction`.
    ///
    /// # Errors
    /// Those of the table map and of the catalogue.
    pub(crate) fn map(&mut self, map: &TableMap<'_>, transaction: u64, at: At<'_>) -> Result<()> {
        if let Some(mapped) = self.by_id.get_mut(&map.table_id)
            && *mapped.shape == *map.shape
        {
            mapped.transaction = transaction;
            return Ok(());
        }
        let failed = |source| SourceError::Binlog {
            place: at.place(),
            source,
        };
        let name = TableName::new(
            text(map.schema).map_err(failed)?,
            text(map.table).map_err(failed)?,
        );
        let wanted = if self.wants(&name) {
            let version = if self.catalogue.is_there() && !map.has_names() {
                self.catalogue.version(&name, map, self.flavor, at)?
            } else {
                self.cache.get(map).map_err(failed)?
            };
            let sequence = self.flavor == Flavor::Mariadb && is_sequence(&version);
            (!sequence).then(|| (self.number(name), version))
        } else {
            None
        };
        if self.by_id.len() >= IDS_MAX {
            self.by_id.retain(|_, mapped| mapped.transaction == transaction);
        }
        let shape = map.shape.into();
        self.by_id.insert(
            map.table_id,
            MappedTable {
                shape,
                wanted,
                transaction,
            },
        );
        Ok(())
    }

    pub(crate) fn mapped(&self, table_id: u64) -> Option<&MappedTable> {
        self.by_id.get(&table_id)
    }

    /// A DDL passes: what the catalogue said of its tables holds no longer.
    ///
    /// # Errors
    /// `CatalogueAhead`.
    pub(crate) fn pass(&mut self, change: &Change<'_>, at: At<'_>) -> Result<()> {
        if self.catalogue.pass(change, at)? {
            self.by_id.clear();
        }
        Ok(())
    }

    /// What a statement does to the set of tables that exist.
    pub(crate) fn apply(&mut self, kind: DdlKind, writes: &[TableName], makes: &[TableName]) {
        let removes = match kind {
            DdlKind::DropTable | DdlKind::RenameTable | DdlKind::DropDatabase => writes,
            DdlKind::ImplicitCreate
            | DdlKind::CreateTable
            | DdlKind::AlterTable
            | DdlKind::Index
            | DdlKind::TruncateTable
            | DdlKind::CreateDatabase
            | DdlKind::AlterDatabase
            | DdlKind::Other => &[],
        };
        for name in removes {
            if name.table.is_empty() {
                let gone = self.tables.iter_mut().filter(|t| t.name.schema == name.schema);
                gone.for_each(|table| table.known = false);
            } else if let Some(no) = self.by_name.get(name).copied()
                && let Some(table) = self.get_mut(no)
            {
                table.known = false;
            }
        }
        for name in makes {
            if !self.wants(name) {
                continue;
            }
            let no = self.number(name.clone());
            if let Some(table) = self.get_mut(no) {
                table.known = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_filter::NameCase;

    use super::*;

    fn is_wanted(flavor: Flavor, columns: &[&str]) -> bool {
        let filter = TableFilter::new(&["*.*"], NameCase::Sensitive).unwrap();
        let mut tables = Tables::new(Arc::new(filter), []);
        tables.set_flavor(flavor);
        let short = |n: usize| u8::try_from(n).unwrap();
        let mut names = Vec::new();
        for column in columns {
            names.push(short(column.len()));
            names.extend_from_slice(column.as_bytes());
        }
        // Column names: field 4 of the optional metadata.
        let optional = [&[4, short(names.len())], &names[..]].concat();
        let map = TableMap {
            table_id: 9,
            flags: 0,
            schema: b"s",
            table: b"t",
            types: &vec![8; columns.len()],
            metadata: &[],
            nullable: &[0],
            optional: &optional,
            shape: b"shape",
        };
        let at = At {
            file: "b.1",
            offset: 4,
            end: 50,
            time_ms: 0,
        };
        tables.map(&map, 1, at).unwrap();
        tables.mapped(9).unwrap().wanted.is_some()
    }

    #[test]
    fn a_sequence_is_not_a_table() {
        assert!(!is_wanted(Flavor::Mariadb, &SEQUENCE_COLUMNS));
        assert!(
            is_wanted(Flavor::Mysql, &SEQUENCE_COLUMNS),
            "MySQL has no sequences"
        );
        assert!(is_wanted(Flavor::Mariadb, &SEQUENCE_COLUMNS[..7]));
        assert!(is_wanted(Flavor::Mariadb, &["a", "b"]));
    }
}
