//! Runs the groups of a keyed table side by side, on the connections that a span has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use weir_types::TableName;

use crate::attempts::Failure;
use crate::backend::Shared;
use crate::error::{MysqlSinkError, Result};
use crate::execute::Transaction;
use crate::metrics::MysqlMetrics;
use crate::pool::Lease;
use crate::reply::Retry;
use crate::rows::{Group, Statement};

/// How a round of transactions ended: groups that did not commit, and why the first one
/// of the worst kind did not.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) left: Vec<Group>,
    pub(crate) failure: Option<Failure>,
}

/// Runs groups on as many connections as are there.
pub(crate) fn run_round(
    shared: &Arc<Shared>,
    leases: &mut Vec<Lease>,
    groups: Vec<Group>,
    targets: &Arc<[TableName]>,
) -> Result<Round> {
    if groups.len() <= 1 || leases.len() == 1 {
        let Some(lease) = leases.first_mut() else {
            return Err(MysqlSinkError::Panicked);
        };
        let queue = Mutex::new(VecDeque::from(groups));
        let run = async { Ok::<_, MysqlSinkError>(drain(lease, &queue, targets, &shared.metrics).await) };
        let mut round = shared.block_on(run)?;
        round
            .left
            .extend(queue.into_inner().unwrap_or_else(PoisonError::into_inner));
        return Ok(round);
    }
    let queue = Arc::new(Mutex::new(VecDeque::from(groups)));
    let given = std::mem::take(leases);
    let rounds = shared.block_on::<_, MysqlSinkError>(async {
        let mut tasks = JoinSet::new();
        for mut lease in given {
            let (queue, targets, metrics) = (
                Arc::clone(&queue),
                Arc::clone(targets),
                Arc::clone(&shared.metrics),
            );
            tasks.spawn(async move {
                let round = drain(&mut lease, &queue, &targets, &metrics).await;
                (lease, round)
            });
        }
        Ok(tasks.join_all().await)
    })?;
    let mut all = Round::default();
    for (lease, round) in rounds {
        leases.push(lease);
        all.left.extend(round.left);
        all.failure = worse(all.failure, round.failure);
    }
    let mut rest = queue.lock().unwrap_or_else(PoisonError::into_inner);
    all.left.extend(rest.drain(..));
    Ok(all)
}

/// The failure that decides what happens next: a definite one, then a lost connection.
fn worse(one: Option<Failure>, other: Option<Failure>) -> Option<Failure> {
    let rank = |failure: &Option<Failure>| match failure {
        Some(Failure::Definite(_)) => 3,
        Some(Failure::Retry(Retry::Lost, _)) => 2,
        Some(Failure::Retry(..)) => 1,
        None => 0,
    };
    if rank(&other) > rank(&one) { other } else { one }
}

/// Runs groups from the queue on one connection until there are none, or one fails.
async fn drain(
    lease: &mut Lease,
    queue: &Mutex<VecDeque<Group>>,
    targets: &[TableName],
    metrics: &MysqlMetrics,
) -> Round {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut round = Round::default();
    while let Some(group) = next() {
        let failed = run_group(lease, &group.statements, targets, metrics).await;
        if let Err(failure) = failed {
            if failure.lost() {
                lease.discard();
            }
            round.left.push(group);
            round.failure = Some(failure);
            break;
        }
    }
    round
}

async fn run_group(
    lease: &mut Lease,
    statements: &[Statement],
    targets: &[TableName],
    metrics: &MysqlMetrics,
) -> std::result::Result<(), Failure> {
    let link = lease.link().await.map_err(Failure::of)?;
    let transaction = Transaction {
        statements,
        targets,
        last: None,
    };
    transaction.run(link, metrics).await
}
