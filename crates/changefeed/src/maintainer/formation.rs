//! Which tables share a dispatcher, and when.
//!
//! Tables that foreign keys tie at the target come through one dispatcher, in one order.
//! What is tied is known when the pipeline is built; a DDL that changes it makes its
//! tables stand where they are until the pipeline is built again (`reform`).
//!
//! A crash may come between such a DDL and the save behind it. Then the target ties
//! tables to one that is made only later in the stream of the schema dispatcher, which is
//! seen by the sink's progress of that table: it lies ahead. Its partners wait for it
//! (`Awaited`), or they would run ahead of its rows.

use std::collections::{BTreeMap, BTreeSet};

use weir_protocol::changefeed::RegisterTable;
use weir_protocol::dispatcher::{BarrierStep, EndDispatcher, FlushNow};
use weir_protocol::service::Member;
use weir_types::{DispatcherId, OrderKey, TableName};

use super::barriers::Passing;
use super::core::{Effect, MaintainerCore, REFORM_FLUSH_MS, action};
use super::finish::Mode;

/// Tables of one span that are not registered yet.
#[derive(Debug)]
pub(super) struct Awaited {
    tables: BTreeSet<TableName>,
    /// Those that come do so before the schema dispatcher has passed this place.
    upto: OrderKey,
    /// Their partners that are there, if any.
    entry: Option<DispatcherId>,
}

impl MaintainerCore {
    /// Gives every wanted table that progress knows to a dispatcher.
    pub(super) fn form(
        &mut self,
        mut tables: BTreeMap<TableName, OrderKey>,
        components: Vec<Vec<TableName>>,
    ) {
        tables.retain(|table, _| self.wants(table));
        for component in components {
            let awaited = self.awaited(&component, &tables);
            let known = component
                .into_iter()
                .filter_map(|table| tables.remove_entry(&table))
                .collect();
            let entry = self.add(known);
            let Some((names, upto)) = awaited else {
                continue;
            };
            if let Some(entry) = entry.and_then(|id| self.registry.get_mut(id)) {
                entry.deferred = true;
            }
            self.awaited.push(Awaited {
                tables: names,
                upto,
                entry,
            });
        }
        for table in tables {
            self.add(vec![table]);
        }
    }

    /// Tables of the component that the schema dispatcher is going to register, and where
    /// the last of them is made.
    fn awaited(
        &self,
        component: &[TableName],
        known: &BTreeMap<TableName, OrderKey>,
    ) -> Option<(BTreeSet<TableName>, OrderKey)> {
        let schema = self.registry.schema().checkpoint;
        let ahead = |table: &TableName| {
            let made = *self.sink_progress.get(table)?;
            let comes = made > schema && !known.contains_key(table) && self.wants(table);
            comes.then(|| (table.clone(), made))
        };
        let ahead: Vec<_> = component.iter().filter_map(ahead).collect();
        let upto = ahead.iter().map(|(_, made)| *made).max()?;
        Some((ahead.into_iter().map(|(table, _)| table).collect(), upto))
    }

    /// A dispatcher for tables that are done up to these keys; none for no tables.
    fn add(&mut self, tables: Vec<(TableName, OrderKey)>) -> Option<DispatcherId> {
        let member = |(table, key): (TableName, OrderKey)| {
            let after = self.floor(&table, key);
            Member { table, after }
        };
        let members: Vec<_> = tables.into_iter().map(member).collect();
        (!members.is_empty()).then(|| self.registry.insert(members))
    }

    /// A table exists from here on. Nothing happens where it has a dispatcher.
    pub fn register_table(&mut self, message: &RegisterTable, now_ms: u64, out: &mut Vec<Effect>) {
        let RegisterTable { table, after } = message;
        if self.registry.table(table).is_some() || !self.wants(table) {
            return;
        }
        let after = self.floor(table, *after);
        let table = table.clone();
        let awaited = self.awaited.iter_mut().find(|one| one.tables.contains(&table));
        let member = Member { table, after };
        let deferred = awaited.is_some();
        let id = match awaited {
            Some(Awaited { entry: Some(id), .. }) => {
                self.registry.join(*id, member);
                *id
            }
            Some(awaited) => {
                let id = self.registry.insert(vec![member]);
                awaited.entry = Some(id);
                id
            }
            None => self.registry.insert(vec![member]),
        };
        if let Some(entry) = self.registry.get_mut(id) {
            // Without a dispatcher its start is saved; the next run creates it.
            let creates = matches!(self.mode, Mode::Running | Mode::Until(_));
            entry.deferred = deferred || !creates;
            entry.flushed = entry.deferred;
            if !entry.deferred {
                out.push(Effect::create(entry));
            }
        }
        self.judge_all(out);
        self.settle(now_ms, out);
    }

    /// Creates what waited for tables that the schema dispatcher has registered by now,
    /// or never will.
    pub(super) fn release(&mut self, out: &mut Vec<Effect>) {
        let passed = self.registry.schema().checkpoint;
        let due = self.awaited.extract_if(.., |one| one.upto <= passed);
        let due: Vec<_> = due.filter_map(|one| one.entry).collect();
        for id in due {
            self.create_deferred(id, out);
        }
    }

    /// A DDL that lies before the tables that are awaited needs their partner: that one
    /// cannot wait.
    pub(super) fn release_for(&mut self, key: OrderKey, missing: &[DispatcherId], out: &mut Vec<Effect>) {
        let needed = |one: &mut Awaited| key <= one.upto && one.entry.is_some_and(|id| missing.contains(&id));
        let due: Vec<_> = self.awaited.extract_if(.., needed).collect();
        for id in due.into_iter().filter_map(|one| one.entry) {
            self.create_deferred(id, out);
        }
    }

    fn create_deferred(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        let creates = matches!(self.mode, Mode::Running | Mode::Until(_));
        if let Some(entry) = self
            .registry
            .get_mut(id)
            .filter(|entry| entry.deferred && creates)
        {
            entry.deferred = false;
            entry.flushed = false;
            out.push(Effect::create(entry));
        }
    }

    /// A DDL is durable: everybody goes on, or stands there.
    pub(super) fn pass(&mut self, key: OrderKey, passing: &Passing, out: &mut Vec<Effect>) {
        for id in &passing.end {
            self.registry.remove(*id);
            out.push(Effect::End(EndDispatcher { dispatcher: *id }));
        }
        for id in &passing.pass {
            if let Some(entry) = self.registry.get_mut(*id) {
                entry.passed = entry.passed.max(key);
                out.push(action(*id, key, BarrierStep::Pass));
            }
        }
        for (id, gone) in passing.gone.iter().chain(&passing.hold) {
            self.registry.remove_members(*id, gone);
        }
        for (id, _) in &passing.hold {
            if let Some(entry) = self.registry.get_mut(*id) {
                // The DDL is durable, and so was everything before it.
                entry.checkpoint = entry.checkpoint.max(key);
                entry.passed = entry.passed.max(key);
                entry.held = true;
            }
        }
        out.push(Effect::BarrierPassed {
            waited_ms: passing.waited_ms,
        });
    }

    /// Everything delivered is to become durable. `ends`: nothing more is written.
    pub(super) fn flush_all(&mut self, ends: bool, out: &mut Vec<Effect>) {
        for entry in self.registry.entries_mut() {
            entry.flush_sent = true;
            // Nothing was delivered to what was not created.
            entry.flushed = entry.deferred;
            if !entry.deferred {
                out.push(Effect::Flush(FlushNow {
                    dispatcher: entry.id,
                    ends,
                }));
            }
        }
    }

    /// Tables stand at the DDL at `key` for spans to be formed anew: ends the run as soon
    /// as progress says so.
    pub(super) fn reform(&mut self, key: OrderKey, passing: &Passing, now_ms: u64, out: &mut Vec<Effect>) {
        let by_schema = passing.pass.contains(&DispatcherId::SCHEMA);
        let at = if by_schema { key } else { OrderKey::MIN };
        match &mut self.mode {
            Mode::Reforming { schema, .. } => *schema = at.max(*schema),
            Mode::Running | Mode::Until(_) => {
                self.mode = Mode::Reforming {
                    deadline_ms: now_ms.saturating_add(REFORM_FLUSH_MS),
                    schema: at,
                };
                self.flush_all(false, out);
            }
            // What is saved at the end has the tables behind the DDL.
            Mode::Stopping { .. } | Mode::Saving { .. } | Mode::Done => {}
        }
    }
}
