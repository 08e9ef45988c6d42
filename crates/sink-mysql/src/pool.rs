//! Connections that write rows.
//!
//! Half of them (rounded up) belong to the sink's worker threads, so that each thread
//! that works on a span has one for certain. The others are lent: a span with much to
//! write may take some more, up to a quarter of all, as long as they are free. Each is
//! opened when it is first needed, and holds the lock of its slot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::Client;
use crate::connect::{Connector, ServerInfo};
use crate::error::Result;
use crate::metrics::MysqlMetrics;
use crate::progress;
use crate::session::{self, Slot};

/// An open connection.
pub(crate) struct Link {
    pub(crate) conn: Client,
    pub(crate) info: ServerInfo,
    /// Losses of the pool before it was opened.
    pub(crate) losses: u64,
    metrics: Arc<MysqlMetrics>,
}

impl Link {
    /// Opens a connection, ends what an earlier session of its slot left behind, and
    /// sets it up for rows.
    pub(crate) async fn open(connector: &Connector, slot: Slot, metrics: &Arc<MysqlMetrics>) -> Result<Self> {
        let (mut conn, info) = connector.connect().await?;
        let config = connector.config();
        // Before, so that a successor's session is not ended; behind, since it may have
        // begun meanwhile.
        progress::check_run(&mut conn, config).await?;
        session::take_slot(&mut conn, &config.changefeed, slot).await?;
        progress::check_run(&mut conn, config).await?;
        session::set_up(&mut conn, &info).await?;
        metrics.connections(1.0);
        Ok(Self {
            conn,
            info,
            losses: 0,
            metrics: Arc::clone(metrics),
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.metrics.connections(-1.0);
    }
}

enum SlotState {
    /// Free, with its connection if it has one.
    Free(Option<Box<Link>>),
    Taken,
}

struct State {
    slots: Vec<SlotState>,
    lent: usize,
    /// Connections lost so far. What took one away may have taken the others that were
    /// open then: those are not used again.
    losses: u64,
}

/// The connections.
pub(crate) struct Pool {
    connector: Connector,
    metrics: Arc<MysqlMetrics>,
    state: Mutex<State>,
    /// Threads that each have one for certain.
    threads: usize,
    /// Most that one span borrows.
    share: usize,
}

impl Pool {
    pub(crate) fn new(connector: Connector, metrics: Arc<MysqlMetrics>) -> Arc<Self> {
        let connections = connector.config().connections();
        Arc::new(Self {
            threads: threads_of(connections),
            share: share_of(connections),
            state: Mutex::new(State {
                slots: (0..connections).map(|_| SlotState::Free(None)).collect(),
                lent: 0,
                losses: 0,
            }),
            connector,
            metrics,
        })
    }

    /// Most connections that one span borrows.
    pub(crate) const fn share(&self) -> usize {
        self.share
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is opened now is used until there is another loss than these.
    pub(crate) fn losses(&self) -> u64 {
        self.state().losses
    }

    /// Notes that a connection that was opened behind `known` losses is lost. One outage
    /// is one loss, however many notice it.
    pub(crate) fn lose(&self, known: u64) -> u64 {
        let mut state = self.state();
        if state.losses == known {
            state.losses += 1;
        }
        state.losses
    }

    /// A connection of a worker thread. None only if more threads ask than there are.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Lease> {
        let mut state = self.state();
        self.pick(&mut state, false)
    }

    /// Borrows up to `wanted` more connections for a span, within its share.
    pub(crate) fn borrow(self: &Arc<Self>, wanted: usize) -> Vec<Lease> {
        let mut state = self.state();
        let room = state.slots.len().saturating_sub(self.threads + state.lent);
        (0..wanted.min(self.share).min(room))
            .map_while(|_| self.pick(&mut state, true))
            .collect()
    }

    fn pick(self: &Arc<Self>, state: &mut State, lent: bool) -> Option<Lease> {
        let open = |slot: &SlotState| matches!(slot, SlotState::Free(Some(_)));
        let free = |slot: &SlotState| matches!(slot, SlotState::Free(_));
        let number = (state.slots.iter().position(open)).or_else(|| state.slots.iter().position(free))?;
        let slot = state.slots.get_mut(number)?;
        let SlotState::Free(link) = std::mem::replace(slot, SlotState::Taken) else {
            return None;
        };
        state.lent += usize::from(lent);
        Some(Lease {
            pool: Arc::clone(self),
            number,
            lent,
            losses: state.losses,
            link: link.map(|link| *link).filter(|link| link.losses == state.losses),
        })
    }

    fn give_back(&self, number: usize, lent: bool, link: Option<Link>) {
        let mut state = self.state();
        state.lent -= usize::from(lent);
        if let Some(slot) = state.slots.get_mut(number) {
            *slot = SlotState::Free(link.map(Box::new));
        }
    }
}

/// Threads of the sink for a number of connections.
pub(crate) const fn threads_of(connections: usize) -> usize {
    connections.div_ceil(2)
}

/// Most connections that a span borrows.
const fn share_of(connections: usize) -> usize {
    let quarter = connections / 4;
    if quarter == 0 { 1 } else { quarter }
}

/// A slot in use; goes back when dropped.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    number: usize,
    lent: bool,
    /// Losses when it was given out.
    losses: u64,
    link: Option<Link>,
}

impl Lease {
    /// The connection, opened if there is none.
    pub(crate) async fn link(&mut self) -> Result<&mut Link> {
        let link = match self.link.take() {
            Some(link) => link,
            None => {
                let pool = &self.pool;
                let losses = pool.losses();
                let mut opened = Link::open(&pool.connector, Slot::Rows(self.number), &pool.metrics).await?;
                opened.losses = losses;
                opened
            }
        };
        Ok(self.link.insert(link))
    }

    /// Drops the connection: what it is doing is not known. The slot's next connection
    /// ends its session at the server first.
    pub(crate) fn discard(&mut self) {
        self.link = None;
        self.losses = self.pool.lose(self.losses);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let link = self.link.take();
        // What a panicking task left in the session is not known.
        let link = link.filter(|_| !std::thread::panicking());
        self.pool.give_back(self.number, self.lent, link);
    }
}

#[cfg(test)]
mod tests {
    use weir_types::{ChangefeedId, LineageId};

    use super::*;
    use crate::config::MysqlSinkConfig;

    fn pool(connections: usize) -> Arc<Pool> {
        let id = ChangefeedId("c".into());
        let mut config = MysqlSinkConfig::new(id, LineageId(1), "h".to_owned(), 1, "u".to_owned());
        config.worker_count = connections;
        Pool::new(Connector::new(config).unwrap(), Arc::new(MysqlMetrics::new("c")))
    }

    #[test]
    fn a_thread_always_gets_one_however_many_are_lent() {
        for connections in 1..=20 {
            let pool = pool(connections);
            let threads = threads_of(connections);
            let mut lent = Vec::new();
            for _ in 0..threads {
                lent.extend(pool.borrow(connections));
            }
            assert_eq!(
                lent.len(),
                (connections - threads).min(threads * share_of(connections))
            );
            let own: Vec<_> = (0..threads).map(|_| pool.take()).collect();
            assert!(own.iter().all(Option::is_some), "{connections}");
            drop((lent, own));
            assert_eq!(pool.state().lent, 0);
        }
    }

    #[test]
    fn a_span_borrows_its_share_and_no_more() {
        let pool = pool(16);
        assert_eq!(pool.borrow(16).len(), 4);
        assert_eq!(pool.borrow(2).len(), 2);
        let one = self::pool(1);
        assert!(one.borrow(5).is_empty());
    }
}
