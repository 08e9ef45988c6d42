//! A sink that has looked at its target.

use std::collections::HashMap;
use std::sync::Arc;

use weir_sink::{PreparedSink, SinkCounters};
use weir_types::{OrderKey, TableName};

use crate::backend::{Engine, MysqlBackend, Shared};
use crate::config::MysqlSinkConfig;
use crate::connect::{Connector, ServerInfo};
use crate::ddl::DDL_SLOTS;
use crate::error::{MysqlSinkError, Result};
use crate::metrics::MysqlMetrics;
use crate::pool::{Link, threads_of};
use crate::progress;
use crate::session::{self, Slot};

/// A sink that is ready, but does not run yet: earlier sessions have ended, and its
/// progress can be read before dispatchers are made.
pub struct Prepared {
    shared: Arc<Shared>,
}

/// Runs blocking work where the caller may itself be inside of a runtime.
fn apart<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or(Err(MysqlSinkError::Panicked)))
}

impl Prepared {
    /// Connects, makes the schema `weir` if it is not there, ends sessions of an earlier
    /// run, and reads progress. Blocks; one attempt. `counters` may be those of an
    /// earlier generation of the same run, and then go on.
    ///
    /// # Errors
    /// Transient if the target cannot be reached or takes no writes now; definite if it
    /// refuses the login, lacks privileges, or holds the progress of another history.
    pub fn open(config: MysqlSinkConfig, counters: Arc<SinkCounters>) -> Result<Self> {
        apart(|| {
            let engine = Engine::start()?;
            let metrics = Arc::new(MysqlMetrics::new(&config.changefeed.0));
            let connector = Connector::new(config)?;
            let opened = engine
                .block_on(open(&connector, &metrics))
                .unwrap_or(Err(MysqlSinkError::Stopping));
            metrics.connected(opened.is_ok());
            let (info, saved) = opened?;
            let shared = Shared::new(connector, metrics, info, saved, counters, engine);
            Ok(Self {
                shared: Arc::new(shared),
            })
        })
    }

    /// What the server says of itself.
    pub fn server(&self) -> &ServerInfo {
        &self.shared.info
    }

    /// Tells this server from others: equal to the source's if it is the same server.
    pub fn server_identity(&self) -> &str {
        &self.shared.info.identity
    }

    /// Rows of a source table up to here must not be written again: its rows are at the
    /// target, or a DDL behind them has run.
    pub fn floor(&self, source: &TableName) -> OrderKey {
        self.shared.saved.of_source(source)
    }

    /// All floors by source table; those of whole schemas stand under an empty table
    /// name and hold for all of their tables.
    pub fn floors(&self) -> &HashMap<TableName, OrderKey> {
        self.shared.saved.by_source()
    }

    /// Groups of two or more source tables whose targets foreign keys tie together, of
    /// all (source, target) that the changefeed knows. Blocks.
    ///
    /// # Errors
    /// The target cannot be asked.
    pub fn components(&self, tables: &[(TableName, TableName)]) -> Result<Vec<Vec<TableName>>> {
        self.shared.know(tables.iter().cloned());
        let shared = &self.shared;
        apart(|| {
            shared.block_on(async {
                let mut lease = shared.pool.take().ok_or(MysqlSinkError::Panicked)?;
                let tied = shared.tied(lease.link().await?).await;
                if tied.is_err() {
                    lease.discard();
                }
                tied
            })
        })
    }

    /// The sink, to be started.
    pub fn into_sink(self) -> PreparedSink {
        let config = self.shared.connector.config();
        let (changefeed, threads) = (config.changefeed.to_string(), threads_of(config.connections()));
        let counters = Arc::clone(&self.shared.counters);
        let backend = Box::new(MysqlBackend { shared: self.shared });
        PreparedSink::from_backend(backend, changefeed, threads, counters)
    }
}

async fn open(connector: &Connector, metrics: &Arc<MysqlMetrics>) -> Result<(ServerInfo, progress::Saved)> {
    let config = connector.config();
    let (mut conn, info) = connector.connect().await?;
    progress::prepare(&mut conn, &info.account).await?;
    // Another history's sessions are not to be ended.
    let slots = progress::claim(&mut conn, config, &info.account).await?;
    let wanted = config.connections();
    session::end_all(&mut conn, &config.changefeed, slots.max(wanted), DDL_SLOTS).await?;
    progress::set_slots(&mut conn, config, wanted).await?;
    let saved = progress::read(&mut conn, config).await?;
    conn.disconnect().await;
    // The locks can be had, and sessions set up as rows need them.
    drop(Link::open(connector, Slot::Rows(0), metrics).await?);
    Ok((info, saved))
}
