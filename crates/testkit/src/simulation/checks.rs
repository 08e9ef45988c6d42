//! What must hold in between and at the end.

use std::collections::BTreeSet;

use weir_event_collector::Lane;
use weir_types::{DdlKind, OrderKey};

use super::Simulation;
use crate::history::BODY_BYTES_MAX;

impl Simulation {
    /// All bytes under way, where no message is lost or doubled.
    pub(super) fn check_memory(&self) -> Result<(), String> {
        if self.scenario.faults.drop_percent + self.scenario.faults.double_percent > 0 {
            return Ok(());
        }
        let sink: u64 = self.pipeline.sink.held.values().sum::<u64>() + self.pipeline.sink.lane_held;
        let most = self.scenario.budget_bytes + 2 * BODY_BYTES_MAX;
        let calm = self.generation == 1 && self.life == 1;
        if calm && sink + self.wire_bytes > most {
            return Err(format!(
                "{sink} bytes in the sink and {} on the wire, more than {most}",
                self.wire_bytes
            ));
        }
        Ok(())
    }

    pub(super) fn check_end(&self) -> Result<(), String> {
        let history = self.store.history();
        for table in history.rows.keys() {
            if !self.downstream.holds_all(&history, table, OrderKey::MAX) {
                return Err(format!("rows of {table} were lost"));
            }
        }
        for (key, event) in &history.ddls {
            let executed = event.kind == DdlKind::ImplicitCreate || self.downstream.ddls.contains(key);
            if !executed {
                return Err(format!("DDL {key} was lost"));
            }
        }
        let registry = self.pipeline.maintainer.registry();
        let kept: BTreeSet<_> = registry
            .tables()
            .map(|(member, _)| member.table.clone())
            .collect();
        if kept != *history.existing() {
            let differ: Vec<_> = kept.symmetric_difference(history.existing()).collect();
            return Err(format!("{differ:?} are gone and kept, or exist and are not"));
        }
        let restarts = !self.scenario.changefeed_restarts.is_empty() || self.summary.reforms > 0;
        if self.downstream.repeated > 0 && (self.scenario.exact || !restarts) {
            return Err(format!("{} rows became durable twice", self.downstream.repeated));
        }
        Ok(())
    }

    /// Nothing is under way: both sides agree on every account, and streams that stand
    /// still keep no more than their share.
    pub(super) fn check_quiet(&self) -> Result<(), String> {
        let ledger = self.pipeline.collector.ledger();
        if ledger.waiting() > 0 || ledger.lane() != Lane::Free {
            return Err(format!(
                "{} wait at the end, lane {:?}",
                ledger.waiting(),
                ledger.lane()
            ));
        }
        for id in self.pipeline.dispatchers.keys() {
            let Some(account) = ledger.account(*id) else {
                return Err(format!("{id:?} has no account"));
            };
            let free = self.service.credit(*id).map(|(_, credit)| credit.free());
            if account.held + account.closing > 0 || free != Some(account.open()) {
                return Err(format!(
                    "{id:?}: {account:?} at the end, the service has {free:?}"
                ));
            }
            if account.open() > account.keep() {
                return Err(format!("{id:?} keeps {} bytes", account.open()));
            }
        }
        if self.service.streams() != self.pipeline.dispatchers.len() {
            return Err(format!("the service has {} streams", self.service.streams()));
        }
        Ok(())
    }

    pub(super) fn stuck(&self) -> String {
        let end = OrderKey::end_of(self.store.history().end);
        let mut lines = vec![format!(
            "no end: {} barriers open, ledger charged {} of {}, {} wait, lane {:?}",
            self.pipeline.maintainer.open_barriers(),
            self.pipeline.collector.ledger().charged(),
            self.scenario.budget_bytes,
            self.pipeline.collector.ledger().waiting(),
            self.pipeline.collector.ledger().lane(),
        )];
        for (id, core) in self
            .pipeline
            .dispatchers
            .iter()
            .filter(|(_, core)| core.checkpoint() < end)
        {
            lines.push(format!(
                "{id:?} {:?} at {} waits at {:?}; collector {:?} {:?}; service {:?}",
                core.span(),
                core.checkpoint(),
                core.waiting_at(),
                self.pipeline.collector.accepted(*id),
                self.pipeline.collector.ledger().account(*id),
                self.service.credit(*id),
            ));
        }
        lines.join("\n")
    }
}
