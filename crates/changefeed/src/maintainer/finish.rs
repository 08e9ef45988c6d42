//! How a run ends: `--until` and the clean stop.

use std::collections::BTreeSet;

use weir_protocol::service::Member;
use weir_types::{CommitTs, DispatcherId, ErrorReport, OrderKey, TableName};

use super::barriers::Barriers;
use super::registry::Registry;
use crate::error::Error;

/// A table that did not arrive, and why.
pub type Failure = (TableName, ErrorReport);

/// What the maintainer is heading for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// No end.
    Running,
    /// Ends when all checkpoints are at or behind the end of this transaction.
    Until(CommitTs),
    /// Ends when everything delivered is durable, at the latest at `deadline_ms`.
    Stopping { deadline_ms: u64 },
    /// Spans are to be formed anew: ends when everything delivered is durable, or at
    /// `deadline_ms`, but not before the schema dispatcher has passed `schema`.
    Reforming { deadline_ms: u64, schema: OrderKey },
    /// The last save is under way.
    Saving { outcome: Outcome, begun: bool },
    /// Reported.
    Done,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    CaughtUp(Vec<Failure>),
    Stopped { clean: bool },
    Reform,
}

/// Dispatchers that can never go on: those that failed, and those that wait at a DDL for
/// one of these.
pub(super) fn stuck(registry: &Registry, barriers: &Barriers) -> BTreeSet<DispatcherId> {
    let mut stuck: BTreeSet<_> = registry
        .entries()
        .filter(|entry| entry.failed.is_some())
        .map(|entry| entry.id)
        .collect();
    if stuck.is_empty() {
        return stuck;
    }
    // Each round adds at least one dispatcher, or is the last.
    loop {
        let before = stuck.len();
        for (key, barrier) in barriers.iter().filter(|(_, barrier)| barrier.writer.is_none()) {
            let missing = |id: &DispatcherId| !barrier.reported.contains(id);
            let by_participant = barrier
                .participants(*key, registry)
                .iter()
                .any(|id| missing(id) && stuck.contains(id));
            // A name may still be unknown, and nobody will register it any more.
            let by_name = stuck.contains(&DispatcherId::SCHEMA) && missing(&DispatcherId::SCHEMA);
            if by_participant || (by_name && registry.schema().position() < key.before()) {
                stuck.extend(barrier.reported.iter().copied());
            }
        }
        if stuck.len() == before {
            return stuck;
        }
    }
}

/// Whether everybody who can arrive at `target` has; then those who cannot, with the
/// reason: what failed by itself before what only waits for that.
pub(super) fn arrived(registry: &Registry, barriers: &Barriers, target: CommitTs) -> Option<Vec<Failure>> {
    let end = OrderKey::end_of(target);
    let behind = |checkpoint: OrderKey| checkpoint < end;
    let stuck = stuck(registry, barriers);
    let all = registry.entries().all(|entry| {
        !behind(entry.checkpoint) || (stuck.contains(&entry.id) && (entry.failed.is_none() || entry.flushed))
    });
    if !all {
        return None;
    }
    let late = registry
        .tables()
        .filter(|(_, entry)| entry.failed.is_some() || behind(entry.checkpoint));
    let (mut failures, mut waiting) = (Vec::new(), Vec::new());
    for (Member { table, .. }, entry) in late {
        if let Some(error) = &entry.failed {
            failures.push((table.clone(), error.clone()));
        } else if let Some(error) = blocked_error(registry, barriers, entry.id) {
            waiting.push((table.clone(), error));
        }
    }
    failures.append(&mut waiting);
    if failures.is_empty()
        && behind(registry.schema().checkpoint)
        && let Some(error) = blocked_error(registry, barriers, DispatcherId::SCHEMA)
    {
        failures.push((TableName::new("", ""), error));
    }
    Some(failures)
}

/// Why a dispatcher waits for ever: the first failed table, and the DDL in front of it.
fn blocked_error(registry: &Registry, barriers: &Barriers, id: DispatcherId) -> Option<ErrorReport> {
    let key = barriers
        .iter()
        .find(|(_, barrier)| barrier.reported.contains(&id))
        .map(|(key, _)| *key)?;
    let failed = registry
        .tables()
        .find(|(_, entry)| entry.failed.is_some())
        .map(|(member, _)| member.table.clone())?;
    Some(ErrorReport::new(&Error::BlockedByFailedTable { key, failed }))
}
