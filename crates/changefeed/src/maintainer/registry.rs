//! The dispatchers of one changefeed, by table and by id.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_types::{CommitTs, DdlEvent, DispatcherId, ErrorReport, OrderKey, TableName};

/// One live dispatcher.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its id.
    pub id: DispatcherId,
    /// Its table; none for the schema dispatcher.
    pub table: Option<TableName>,
    /// Everything up to here is durable downstream.
    pub checkpoint: OrderKey,
    /// Everything up to here was delivered.
    pub resolved: CommitTs,
    /// Last DDL that it was told to pass. Its checkpoint follows.
    pub passed: OrderKey,
    /// Why it has stopped.
    pub failed: Option<ErrorReport>,
    /// `FlushNow` was sent since the last mode change.
    pub flush_sent: bool,
    /// `Flushed` came since.
    pub flushed: bool,
}

impl Entry {
    /// A dispatcher that starts behind `after`.
    pub const fn new(id: DispatcherId, table: Option<TableName>, after: OrderKey) -> Self {
        Self {
            id,
            table,
            checkpoint: after,
            resolved: CommitTs::ZERO,
            passed: OrderKey::MIN,
            failed: None,
            flush_sent: false,
            flushed: false,
        }
    }

    /// It reports no DDL at or below this place any more.
    pub fn position(&self) -> OrderKey {
        self.checkpoint.max(self.passed)
    }
}

/// All live dispatchers.
#[derive(Debug)]
pub struct Registry {
    schema: Entry,
    tables: BTreeMap<TableName, Entry>,
    by_id: HashMap<DispatcherId, TableName>,
    next_id: u32,
}

impl Registry {
    /// The schema dispatcher alone.
    pub fn new(schema_after: OrderKey) -> Self {
        Self {
            schema: Entry::new(DispatcherId::SCHEMA, None, schema_after),
            tables: BTreeMap::new(),
            by_id: HashMap::new(),
            next_id: DispatcherId::SCHEMA.0 + 1,
        }
    }

    /// The schema dispatcher.
    pub const fn schema(&self) -> &Entry {
        &self.schema
    }

    /// Number of tables.
    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// A table's dispatcher.
    pub fn table(&self, name: &TableName) -> Option<&Entry> {
        self.tables.get(name)
    }

    /// All tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = (&TableName, &Entry)> {
        self.tables.iter()
    }

    /// All dispatchers.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.schema).chain(self.tables.values())
    }

    /// All dispatchers.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        std::iter::once(&mut self.schema).chain(self.tables.values_mut())
    }

    /// A dispatcher by id.
    pub fn get(&self, id: DispatcherId) -> Option<&Entry> {
        if id == DispatcherId::SCHEMA {
            return Some(&self.schema);
        }
        self.by_id.get(&id).and_then(|table| self.tables.get(table))
    }

    /// A dispatcher by id.
    pub fn get_mut(&mut self, id: DispatcherId) -> Option<&mut Entry> {
        if id == DispatcherId::SCHEMA {
            return Some(&mut self.schema);
        }
        self.by_id.get(&id).and_then(|table| self.tables.get_mut(table))
    }

    /// Adds a table's dispatcher. Ids are never used again.
    pub fn insert(&mut self, table: TableName, after: OrderKey) -> DispatcherId {
        let id = DispatcherId(self.next_id);
        self.next_id += 1;
        self.by_id.insert(id, table.clone());
        self.tables
            .insert(table.clone(), Entry::new(id, Some(table), after));
        id
    }

    /// Takes a table's dispatcher out.
    pub fn remove(&mut self, id: DispatcherId) -> Option<TableName> {
        let table = self.by_id.remove(&id)?;
        self.tables.remove(&table);
        Some(table)
    }

    /// Live tables that `name` stands for: itself, or all tables of the schema.
    pub fn named<'a>(&'a self, name: &'a TableName) -> impl Iterator<Item = &'a Entry> {
        let whole = name.table.is_empty();
        let from = TableName {
            schema: Arc::clone(&name.schema),
            table: Arc::clone(&name.table),
        };
        self.tables
            .range(from..)
            .take_while(move |(table, _)| table.schema == name.schema && (whole || table.table == name.table))
            .map(|(_, entry)| entry)
    }

    /// Live dispatchers that meet the DDL in their stream, unless they start behind it.
    pub fn concerned<'a>(&'a self, event: &'a DdlEvent) -> impl Iterator<Item = &'a Entry> {
        let schema = event.kind.is_structural().then_some(&self.schema);
        let tables = event.writes.iter().chain(&event.reads);
        schema.into_iter().chain(tables.flat_map(|name| self.named(name)))
    }
}
