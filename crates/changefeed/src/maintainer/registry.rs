//! The dispatchers of one changefeed, by table and by id.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_protocol::service::{Member, Span};
use weir_types::{CommitTs, DdlEvent, DispatcherId, ErrorReport, OrderKey, TableName};

/// One live dispatcher.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its id.
    pub id: DispatcherId,
    /// Its tables, by name; none for the schema dispatcher. `after`: where the table's
    /// part of the span begins.
    pub members: Vec<Member>,
    /// Everything of the span up to here is durable downstream.
    pub checkpoint: OrderKey,
    /// Everything up to here was delivered.
    pub resolved: CommitTs,
    /// Last DDL that it was told to pass. Its checkpoint follows.
    pub passed: OrderKey,
    /// Spans are formed anew behind `passed`: it is not told so, and stands there until
    /// the pipeline is rebuilt.
    pub held: bool,
    /// It is not created yet: a table that belongs to it is registered first, or the
    /// run ends.
    pub deferred: bool,
    /// Why it has stopped.
    pub failed: Option<ErrorReport>,
    /// `FlushNow` was sent since the last mode change.
    pub flush_sent: bool,
    /// `Flushed` came since.
    pub flushed: bool,
}

impl Entry {
    /// A dispatcher whose tables start behind places of their own, by name; one without
    /// tables starts behind `after`.
    fn new(id: DispatcherId, members: Vec<Member>, after: OrderKey) -> Self {
        let first = members.iter().map(|member| member.after).min();
        Self {
            id,
            members,
            checkpoint: first.unwrap_or(after),
            resolved: CommitTs::ZERO,
            passed: OrderKey::MIN,
            held: false,
            deferred: false,
            failed: None,
            flush_sent: false,
            flushed: false,
        }
    }

    /// What it reads.
    pub fn span(&self) -> Span {
        Span::of(self.members.clone())
    }

    /// One of its tables, for messages.
    pub fn first_table(&self) -> Option<&TableName> {
        self.members.first().map(|member| &member.table)
    }

    /// Everything of the table up to here is durable downstream.
    pub fn checkpoint_of(&self, member: &Member) -> OrderKey {
        self.checkpoint.max(member.after)
    }

    /// Whether it meets a DDL at `key` that names the member.
    pub fn meets(&self, member: &Member, key: OrderKey) -> bool {
        self.position().max(member.after) < key
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
    spans: BTreeMap<DispatcherId, Entry>,
    by_table: BTreeMap<TableName, DispatcherId>,
    next_id: u32,
}

impl Registry {
    /// The schema dispatcher alone.
    pub fn new(schema_after: OrderKey) -> Self {
        Self {
            schema: Entry::new(DispatcherId::SCHEMA, Vec::new(), schema_after),
            spans: BTreeMap::new(),
            by_table: BTreeMap::new(),
            next_id: DispatcherId::SCHEMA.0 + 1,
        }
    }

    /// The schema dispatcher.
    pub const fn schema(&self) -> &Entry {
        &self.schema
    }

    /// Number of tables.
    pub fn table_count(&self) -> usize {
        self.by_table.len()
    }

    /// A table's dispatcher.
    pub fn table(&self, name: &TableName) -> Option<&Entry> {
        self.by_table.get(name).and_then(|id| self.spans.get(id))
    }

    /// All tables, by name, with their dispatchers.
    pub fn tables(&self) -> impl Iterator<Item = (&Member, &Entry)> {
        self.by_table.iter().filter_map(|(table, id)| {
            let entry = self.spans.get(id)?;
            let member = entry.members.iter().find(|member| member.table == *table)?;
            Some((member, entry))
        })
    }

    /// All dispatchers.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.schema).chain(self.spans.values())
    }

    /// All dispatchers.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        std::iter::once(&mut self.schema).chain(self.spans.values_mut())
    }

    /// A dispatcher by id.
    pub fn get(&self, id: DispatcherId) -> Option<&Entry> {
        if id == DispatcherId::SCHEMA {
            return Some(&self.schema);
        }
        self.spans.get(&id)
    }

    /// A dispatcher by id.
    pub fn get_mut(&mut self, id: DispatcherId) -> Option<&mut Entry> {
        if id == DispatcherId::SCHEMA {
            return Some(&mut self.schema);
        }
        self.spans.get_mut(&id)
    }

    /// Adds the dispatcher of one or several tables, none of which has one. Ids are never
    /// used again.
    pub fn insert(&mut self, mut members: Vec<Member>) -> DispatcherId {
        let id = DispatcherId(self.next_id);
        self.next_id += 1;
        members.sort_unstable();
        for member in &members {
            self.by_table.insert(member.table.clone(), id);
        }
        self.spans.insert(id, Entry::new(id, members, OrderKey::MIN));
        id
    }

    /// Adds a table to a dispatcher that was not created yet.
    pub fn join(&mut self, id: DispatcherId, member: Member) {
        if let Some(entry) = self.spans.get_mut(&id) {
            self.by_table.insert(member.table.clone(), id);
            entry.checkpoint = entry.checkpoint.min(member.after);
            entry.members.push(member);
            entry.members.sort_unstable();
        }
    }

    /// Takes a dispatcher out.
    pub fn remove(&mut self, id: DispatcherId) {
        if let Some(entry) = self.spans.remove(&id) {
            self.forget(&entry.members);
        }
    }

    /// Takes tables out of a dispatcher that keeps others.
    pub fn remove_members(&mut self, id: DispatcherId, gone: &[TableName]) {
        if let Some(entry) = self.spans.get_mut(&id) {
            let is_gone = |member: &mut Member| gone.contains(&member.table);
            let members: Vec<_> = entry.members.extract_if(.., is_gone).collect();
            self.forget(&members);
        }
    }

    fn forget(&mut self, members: &[Member]) {
        for member in members {
            self.by_table.remove(&member.table);
        }
    }

    /// Live tables that `name` stands for: itself, or all tables of the schema.
    pub fn named<'a>(&'a self, name: &'a TableName) -> impl Iterator<Item = (&'a Member, &'a Entry)> {
        let whole = name.table.is_empty();
        let from = TableName {
            schema: Arc::clone(&name.schema),
            table: Arc::clone(&name.table),
        };
        let range = self.by_table.range(from..);
        let range = range.take_while(move |(table, _)| {
            table.schema == name.schema && (whole || table.table == name.table)
        });
        range.filter_map(|(table, id)| {
            let entry = self.spans.get(id)?;
            let member = entry.members.iter().find(|member| member.table == *table)?;
            Some((member, entry))
        })
    }

    /// Live dispatchers that meet the DDL at `key` in their stream; one may come several
    /// times.
    pub fn concerned<'a>(&'a self, key: OrderKey, event: &'a DdlEvent) -> impl Iterator<Item = &'a Entry> {
        let schema = event.kind.is_structural().then_some(&self.schema);
        let schema = schema.filter(|entry| entry.position() < key);
        let names = event.writes.iter().chain(&event.reads);
        let tables = names
            .flat_map(|name| self.named(name))
            .filter(move |(member, entry)| entry.meets(member, key))
            .map(|(_, entry)| entry);
        schema.into_iter().chain(tables)
    }
}
