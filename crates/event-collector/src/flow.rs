//! How the changefeed's byte ledger stands, for people who ask.

use std::collections::HashSet;

use actix::{Context, Handler, Message, MessageResponse};
use weir_types::{DispatcherId, TableName};

use crate::actor::EventCollector;
use crate::core::CollectorCore;
use crate::ledger::Lane;

/// How the changefeed's byte ledger stands, and the accounts of the dispatchers of these tables.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Flow")]
pub struct GetFlow {
    /// Whose accounts are wanted.
    pub tables: HashSet<TableName>,
}

/// Answer to `GetFlow`, bytes.
#[derive(Clone, Debug, PartialEq, Eq, MessageResponse)]
pub struct Flow {
    /// Memory for row events between the service and the sink.
    pub budget_bytes: u64,
    /// Guaranteed share of each dispatcher.
    pub share_bytes: u64,
    /// Credit that is granted and on the way.
    pub open_bytes: u64,
    /// Of older epochs.
    pub closing_bytes: u64,
    /// With dispatchers and the sink.
    pub held_bytes: u64,
    /// The row event in the reserved lane.
    pub lane_bytes: u64,
    /// Dispatchers.
    pub dispatchers: usize,
    /// Dispatchers that wait for budget.
    pub waiting: usize,
    /// Streams that were started anew, in all.
    pub resets: u64,
    /// Accounts of the dispatchers that were asked for.
    pub accounts: Vec<AccountFlow>,
}

/// Account of one dispatcher, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountFlow {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Its tables.
    pub tables: Vec<TableName>,
    /// Most that it may have on the way by its own progress.
    pub window_bytes: u64,
    /// Credit that is granted and not used: free at the service, or on the way.
    pub open_bytes: u64,
    /// Of older epochs.
    pub closing_bytes: u64,
    /// With the dispatcher and the sink.
    pub held_bytes: u64,
    /// It waits for what others hold.
    pub waits_for_budget: bool,
}

impl CollectorCore {
    /// How the books stand; looks at every dispatcher.
    pub fn flow(&self, tables: &HashSet<TableName>) -> Flow {
        let ledger = self.ledger();
        let (open_bytes, closing_bytes, held_bytes) = ledger.totals();
        let lane_bytes = match ledger.lane() {
            Lane::Held(_, bytes) => bytes,
            Lane::Free | Lane::Granted(_) => 0,
        };
        let wanted = self
            .spans()
            .filter(|(_, span)| span.tables().any(|table| tables.contains(table)));
        let accounts = wanted.filter_map(|(dispatcher, span)| {
            let account = ledger.account(dispatcher)?;
            Some(AccountFlow {
                dispatcher,
                tables: span.tables().cloned().collect(),
                window_bytes: account.window(),
                open_bytes: account.open(),
                closing_bytes: account.closing,
                held_bytes: account.held,
                waits_for_budget: account.is_waiting(),
            })
        });
        Flow {
            budget_bytes: ledger.budget(),
            share_bytes: ledger.share(),
            open_bytes,
            closing_bytes,
            held_bytes,
            lane_bytes,
            dispatchers: self.dispatchers(),
            waiting: ledger.waiting(),
            resets: self.counters().resets.iter().sum(),
            accounts: accounts.collect(),
        }
    }
}

impl Handler<GetFlow> for EventCollector {
    type Result = Flow;

    fn handle(&mut self, message: GetFlow, _: &mut Context<Self>) -> Self::Result {
        self.core.flow(&message.tables)
    }
}
