//! What has become durable downstream, checked against the history as it comes.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::{DdlEvent, DdlKind, DispatcherId, OrderKey, TableName};

use crate::history::History;

/// Survives every restart.
#[derive(Debug, Default)]
pub struct Downstream {
    /// Durable rows per table.
    pub rows: BTreeMap<TableName, BTreeSet<OrderKey>>,
    /// DDL that ran.
    pub ddls: BTreeSet<OrderKey>,
    /// Rows that became durable again after a restart.
    pub repeated: u64,
}

impl Downstream {
    /// Last durable row per table: what a sink that names its files by keys knows.
    pub fn progress(&self) -> std::collections::HashMap<TableName, OrderKey> {
        let last = |(table, rows): (&TableName, &BTreeSet<OrderKey>)| Some((table.clone(), *rows.last()?));
        self.rows.iter().filter_map(last).collect()
    }

    /// Rows of the table become durable.
    pub fn durable(&mut self, table: &TableName, keys: impl Iterator<Item = OrderKey>) {
        let rows = self.rows.entry(table.clone()).or_default();
        for key in keys {
            self.repeated += u64::from(!rows.insert(key));
        }
    }

    /// Whether every row of the table up to `upto` is durable.
    pub fn holds_all(&self, history: &History, table: &TableName, upto: OrderKey) -> bool {
        let expected = history.rows_between(table, OrderKey::MIN, upto).len();
        expected == self.rows.get(table).map_or(0, |rows| rows.range(..=upto).count())
    }

    /// Runs a DDL, unless it has run.
    ///
    /// # Errors
    /// Something that had to come before it did not.
    pub fn execute(&mut self, history: &History, key: OrderKey, event: &DdlEvent) -> Result<(), String> {
        if event.kind == DdlKind::ImplicitCreate {
            return Err(format!("an implicit creation was executed at {key}"));
        }
        if !self.ddls.insert(key) {
            return Ok(());
        }
        for table in history.rows.keys().filter(|table| event.concerns(table)) {
            if !self.holds_all(history, table, key.before()) {
                return Err(format!("DDL {key} ran before rows of {table} were durable"));
            }
            if self
                .rows
                .get(table)
                .is_some_and(|rows| rows.range(key..).next().is_some())
            {
                return Err(format!(
                    "rows of {table} behind DDL {key} were durable before it ran"
                ));
            }
        }
        let earlier = history.ddls.iter().take_while(|(other, _)| *other < key);
        for (other, before) in earlier.filter(|(_, e)| e.kind != DdlKind::ImplicitCreate) {
            if !self.ddls.contains(other) && shares_table(before, event) {
                return Err(format!(
                    "DDL {key} ran before {other}, which writes a table of it"
                ));
            }
        }
        Ok(())
    }
}

fn shares_table(a: &DdlEvent, b: &DdlEvent) -> bool {
    let touches = |a: &TableName, b: &TableName| {
        a.schema == b.schema && (a.table.is_empty() || b.table.is_empty() || a.table == b.table)
    };
    a.writes
        .iter()
        .any(|left| b.writes.iter().any(|right| touches(left, right)))
}

/// What one generation of a span has delivered to the sink.
#[derive(Debug)]
pub struct SpanCheck {
    /// Its table; none for the schema dispatcher.
    pub table: Option<TableName>,
    /// Start, exclusive.
    pub start: OrderKey,
    last: OrderKey,
}

impl SpanCheck {
    /// A span that starts behind `start`.
    pub const fn new(table: Option<TableName>, start: OrderKey) -> Self {
        Self {
            table,
            start,
            last: start,
        }
    }

    /// Rows come to the sink: exactly the next ones of the table, and none before a DDL
    /// of the table that lies between has run.
    ///
    /// # Errors
    /// What is lost, doubled, out of order or too early.
    pub fn accept(
        &mut self,
        id: DispatcherId,
        history: &History,
        downstream: &Downstream,
        keys: &[OrderKey],
    ) -> Result<(), String> {
        let Some(table) = &self.table else {
            return Err("rows came to the schema dispatcher".to_owned());
        };
        let last = keys.last().copied().unwrap_or(self.last);
        let expected = history.rows_between(table, self.last, last);
        if keys != expected {
            return Err(format!(
                "{id:?} {table}: after {} came {:?}, expected {:?}",
                self.last,
                keys.first(),
                expected.first()
            ));
        }
        let from = history.ddls.partition_point(|(key, _)| *key <= self.start);
        let ahead = history.ddls.iter().skip(from).take_while(|(key, _)| *key < last);
        for (key, _) in ahead.filter(|(_, e)| e.kind != DdlKind::ImplicitCreate && e.concerns(table)) {
            if !downstream.ddls.contains(key) {
                return Err(format!(
                    "{id:?} {table}: rows up to {last} came before DDL {key} ran"
                ));
            }
        }
        self.last = last;
        Ok(())
    }
}
