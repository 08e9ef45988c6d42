//! DDL barriers: who takes part, who writes, when all pass.
//!
//! A DDL waits for every table that it writes or reads, and for the schema dispatcher
//! if it makes, drops or renames anything. All of them stop in front of it, one writes,
//! all pass. DDLs wait for each other only through a table or database that they share:
//! a dispatcher stops at the first of them and reaches the second behind it. Streams are
//! in order of keys, so that no ring of waiting can form.
//!
//! A name without a dispatcher is the one case that the streams do not order: its
//! creation may lie before the DDL and not be registered yet. Such a DDL waits until the
//! schema dispatcher has come as far as the DDL itself.
//!
//! The sink is the judge of what has run already: after a restart some participants may
//! be behind the DDL and others before it. Those before it report it again, one of them
//! writes, and the sink answers without doing it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_protocol::service::Member;
use weir_types::{DdlEvent, DdlKind, DispatcherId, OrderKey, TableName};

use super::registry::{Entry, Registry};

/// Tells which tables the changefeed replicates.
pub type WantsTable = Arc<dyn Fn(&TableName) -> bool + Send + Sync>;

/// A DDL that somebody waits at.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    pub(super) event: Arc<DdlEvent>,
    pub(super) reported: BTreeSet<DispatcherId>,
    pub(super) writer: Option<DispatcherId>,
    pub(super) since_ms: u64,
    /// The owner was told that a failed table blocks it.
    pub(super) blocked_told: bool,
}

impl Barrier {
    /// Live dispatchers that must stand at the DDL before it may be written: those that
    /// reported it, and those whose stream still has it ahead.
    pub(super) fn participants(&self, key: OrderKey, registry: &Registry) -> BTreeSet<DispatcherId> {
        registry
            .concerned(key, &self.event)
            .map(|entry| entry.id)
            .chain(self.reported.iter().copied())
            .collect()
    }

    /// Who writes: the schema dispatcher if it takes part, else the first written
    /// table's, else the oldest dispatcher.
    fn choose_writer(&self, registry: &Registry) -> Option<DispatcherId> {
        if self.reported.contains(&DispatcherId::SCHEMA) {
            return Some(DispatcherId::SCHEMA);
        }
        let written = self.event.writes.iter().flat_map(|name| registry.named(name));
        written
            .map(|(_, entry)| entry.id)
            .find(|id| self.reported.contains(id))
            .or_else(|| self.reported.first().copied())
    }

    /// Tables of the dispatcher that are gone behind the DDL. A rename that puts another
    /// table under the same name keeps the dispatcher of the name.
    fn ends(&self, key: OrderKey, entry: &Entry) -> Vec<TableName> {
        let ends = |member: &&Member| {
            removes(&self.event)
                && member.after < key
                && self.writes(&member.table)
                && !self.event.makes.contains(&member.table)
        };
        let gone = entry.members.iter().filter(ends);
        gone.map(|member| member.table.clone()).collect()
    }

    fn writes(&self, table: &TableName) -> bool {
        self.event
            .writes
            .iter()
            .any(|name| name.schema == table.schema && (name.table.is_empty() || name.table == table.table))
    }

    /// Whether what ties the tables of the dispatcher together may be another behind the
    /// DDL: it takes one of them away, or puts another table under its name.
    fn unties(&self, key: OrderKey, entry: &Entry) -> bool {
        let renames = self.event.kind == DdlKind::RenameTable;
        let renamed = |member: &Member| renames && member.after < key && self.writes(&member.table);
        let gone = self.ends(key, entry).len();
        let several = entry.members.len() > 1;
        several && gone < entry.members.len() && (gone > 0 || entry.members.iter().any(renamed))
    }
}

/// What becomes of a barrier after a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Somebody has not arrived, or the DDL is being written.
    Wait,
    /// This one writes.
    Write(DispatcherId),
    /// It cannot end: the table has failed before it.
    Blocked(TableName),
}

/// How the participants go on behind a DDL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Passing {
    pub(super) pass: Vec<DispatcherId>,
    pub(super) end: Vec<DispatcherId>,
    /// These stand at the DDL until the pipeline is rebuilt; some of their tables are
    /// gone.
    pub(super) hold: Vec<(DispatcherId, Vec<TableName>)>,
    /// These do not stand at the DDL; some of their tables are gone.
    pub(super) gone: Vec<(DispatcherId, Vec<TableName>)>,
    pub(super) reform: bool,
    pub(super) waited_ms: u64,
    event: Option<Arc<DdlEvent>>,
}

impl Passing {
    /// A sink that notes a DDL as the progress of its tables puts a table that the DDL
    /// takes away behind it, if the run ended before that was saved: its dispatcher does
    /// not meet the DDL any more, but it is gone all the same. `noted`: the DDL is the
    /// last that the sink knows of the table.
    pub(super) fn left_behind(&mut self, registry: &Registry, noted: impl Fn(&TableName) -> bool) {
        let Some(event) = self.event.as_deref().filter(|event| removes(event)) else {
            return;
        };
        let named = event.writes.iter().flat_map(|name| registry.named(name));
        for (Member { table, .. }, entry) in named {
            let stood = self
                .pass
                .iter()
                .chain(&self.end)
                .chain(self.hold.iter().map(|(id, _)| id));
            let met = stood.into_iter().any(|id| *id == entry.id);
            if met || event.makes.contains(table) || !noted(table) {
                continue;
            }
            if entry.members.len() == 1 {
                self.end.push(entry.id);
            } else {
                self.gone.push((entry.id, vec![table.clone()]));
            }
        }
    }
}

/// Whether tables that the DDL writes, and does not make, are gone behind it.
const fn removes(event: &DdlEvent) -> bool {
    matches!(
        event.kind,
        DdlKind::DropTable | DdlKind::RenameTable | DdlKind::DropDatabase
    )
}

/// All DDLs that are waited at.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    open: BTreeMap<OrderKey, Barrier>,
}

impl Barriers {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn keys(&self) -> Vec<OrderKey> {
        self.open.keys().copied().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&OrderKey, &Barrier)> {
        self.open.iter()
    }

    pub(super) fn report(&mut self, key: OrderKey, event: &Arc<DdlEvent>, id: DispatcherId, now_ms: u64) {
        let barrier = self.open.entry(key).or_insert_with(|| Barrier {
            event: Arc::clone(event),
            reported: BTreeSet::new(),
            writer: None,
            since_ms: now_ms,
            blocked_told: false,
        });
        barrier.reported.insert(id);
    }

    /// The dispatcher has failed: it does not take part in anything any more.
    pub(super) fn forget(&mut self, id: DispatcherId) {
        for barrier in self.open.values_mut() {
            barrier.reported.remove(&id);
            barrier.writer.take_if(|writer| *writer == id);
        }
    }

    /// Whether the DDL at `key` may be written now, and by whom; told once.
    pub(super) fn judge(&mut self, key: OrderKey, registry: &Registry, wants: &WantsTable) -> Verdict {
        let Some(barrier) = self.open.get_mut(&key) else {
            return Verdict::Wait;
        };
        if barrier.writer.is_some() {
            return Verdict::Wait;
        }
        let participants = barrier.participants(key, registry);
        let failed = participants
            .iter()
            .filter_map(|id| registry.get(*id))
            .find(|entry| entry.failed.is_some());
        if let Some(table) = failed.and_then(|entry| entry.first_table().cloned()) {
            return Verdict::Blocked(table);
        }
        if participants != barrier.reported {
            return Verdict::Wait;
        }
        if !names_known(&barrier.event, key, registry, wants) {
            return Verdict::Wait;
        }
        match barrier.choose_writer(registry) {
            Some(writer) => {
                barrier.writer = Some(writer);
                Verdict::Write(writer)
            }
            None => Verdict::Wait,
        }
    }

    /// Participants that have not arrived.
    pub(super) fn missing(&self, key: OrderKey, registry: &Registry) -> Vec<DispatcherId> {
        let Some(barrier) = self.open.get(&key) else {
            return Vec::new();
        };
        let participants = barrier.participants(key, registry);
        participants.difference(&barrier.reported).copied().collect()
    }

    /// Who writes the DDL at `key`.
    pub(super) fn writer(&self, key: OrderKey) -> Option<DispatcherId> {
        self.open.get(&key).and_then(|barrier| barrier.writer)
    }

    /// Marks that the owner knows of the blocked DDL; true the first time.
    pub(super) fn tell_blocked(&mut self, key: OrderKey) -> bool {
        self.open
            .get_mut(&key)
            .is_some_and(|barrier| !std::mem::replace(&mut barrier.blocked_told, true))
    }

    /// The DDL at `key` is durable downstream: how everybody goes on. None if it was
    /// known already. With `reform`, or where tables that belonged together no longer do,
    /// spans are formed anew: tables stand where they are, since behind the DDL their
    /// rows may belong into other spans. The schema dispatcher passes and registers what
    /// was made.
    pub(super) fn written(
        &mut self,
        key: OrderKey,
        reform: bool,
        registry: &Registry,
        now_ms: u64,
    ) -> Option<Passing> {
        let barrier = self.open.remove(&key)?;
        let mut passing = Passing {
            waited_ms: now_ms.saturating_sub(barrier.since_ms),
            ..Passing::default()
        };
        let reported = || barrier.reported.iter().filter_map(|id| registry.get(*id));
        let reform = reform || reported().any(|entry| barrier.unties(key, entry));
        for entry in reported() {
            let gone = barrier.ends(key, entry);
            if !gone.is_empty() && gone.len() == entry.members.len() {
                passing.end.push(entry.id);
            } else if reform && entry.id != DispatcherId::SCHEMA {
                passing.hold.push((entry.id, gone));
            } else {
                passing.pass.push(entry.id);
            }
        }
        passing.reform = reform;
        passing.event = Some(barrier.event);
        Some(passing)
    }
}

/// Whether every name of the DDL has a dispatcher, or the schema dispatcher has come so
/// far that it would have been registered.
fn names_known(event: &DdlEvent, key: OrderKey, registry: &Registry, wants: &WantsTable) -> bool {
    let schema_is_there = event.kind.is_structural() || registry.schema().position() >= key.before();
    schema_is_there
        || event
            .writes
            .iter()
            .chain(&event.reads)
            .all(|name| registry.table(name).is_some() || (!name.table.is_empty() && !wants(name)))
}
