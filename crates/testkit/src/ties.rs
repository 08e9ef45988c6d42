//! Foreign keys, as DDL makes, moves and drops them.

use std::collections::BTreeSet;

use weir_types::{DdlEvent, DdlKind, OrderKey, TableName};

use crate::history::History;

/// Pairs of child and parent.
#[derive(Debug, Default)]
pub struct Ties(BTreeSet<(TableName, TableName)>);

impl Ties {
    /// What the source has just before a place.
    pub fn before(history: &History, key: OrderKey) -> Self {
        let mut ties = Self::default();
        for (at, event) in history.ddls.iter().take_while(|(at, _)| *at < key) {
            ties.apply(*at, event);
        }
        ties
    }

    /// What the DDL does to foreign keys. Which of several meanings it has hangs on its
    /// key alone.
    pub fn apply(&mut self, key: OrderKey, event: &DdlEvent) {
        let touched = |name: &TableName| event.writes.iter().any(|written| covers(written, name));
        let chance = key.commit_ts.millis() % 3;
        match event.kind {
            DdlKind::RenameTable => {
                if let [from, to] = &*event.writes {
                    let renamed = |name: TableName| if name == *from { to.clone() } else { name };
                    let ties = std::mem::take(&mut self.0).into_iter();
                    self.0 = ties.map(|(a, b)| (renamed(a), renamed(b))).collect();
                }
            }
            DdlKind::DropTable | DdlKind::DropDatabase => self.0.retain(|(a, b)| !touched(a) && !touched(b)),
            DdlKind::AlterTable if event.reads.is_empty() && chance == 2 => {
                self.0.retain(|(a, _)| !touched(a));
            }
            DdlKind::CreateTable | DdlKind::AlterTable if chance > 0 => {
                let pairs = event
                    .writes
                    .iter()
                    .flat_map(|a| event.reads.iter().map(move |b| (a, b)));
                self.0.extend(pairs.map(|(a, b)| (a.clone(), b.clone())));
            }
            _ => {}
        }
    }

    /// Tables tied to this one, itself included.
    pub fn component(&self, table: &TableName) -> BTreeSet<TableName> {
        let mut found = BTreeSet::from([table.clone()]);
        loop {
            let before = found.len();
            for (child, parent) in &self.0 {
                if found.contains(child) || found.contains(parent) {
                    found.extend([child.clone(), parent.clone()]);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    /// Sets of tables tied to each other, as a sink finds them when it is opened.
    pub fn components(&self) -> Vec<Vec<TableName>> {
        let tables = self.0.iter().flat_map(|(child, parent)| [child, parent]);
        let all: BTreeSet<_> = tables.map(|table| self.component(table)).collect();
        all.into_iter().map(|set| set.into_iter().collect()).collect()
    }
}

fn covers(written: &TableName, name: &TableName) -> bool {
    written.schema == name.schema && (written.table.is_empty() || written.table == name.table)
}
