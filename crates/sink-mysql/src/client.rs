//! A connection whose every query ends: with an answer, or as lost ([`crate::watch`]).

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row};

use crate::connect::{Connector, own_error};
use crate::error::Result;
use crate::watch::watched;

/// How often is looked whether a query is still at work, unless it says otherwise.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Longest time for an orderly end.
const GOODBYE: Duration = Duration::from_secs(1);

type Answer<T> = std::result::Result<T, Error>;

/// A connection. Once an answer did not come it is not asked again.
pub(crate) struct Client {
    conn: Conn,
    connector: Connector,
    silent: bool,
}

impl Client {
    pub(crate) const fn new(conn: Conn, connector: Connector) -> Self {
        Self {
            conn,
            connector,
            silent: false,
        }
    }

    /// Number of the connection at the server.
    pub(crate) fn id(&self) -> u32 {
        self.conn.id()
    }

    async fn ask<T>(&mut self, every: Duration, ask: impl AsyncFnOnce(&mut Conn) -> Answer<T>) -> Answer<T> {
        if self.silent {
            return Err(no_answer());
        }
        // Stays so if this future is dropped: what the connection is at is not known then.
        self.silent = true;
        let id = self.conn.id();
        let answer = watched(&self.connector, id, every, ask(&mut self.conn)).await;
        self.silent = matches!(&answer, Err(Error::Io(_)));
        answer
    }

    /// Runs statements without rows.
    pub(crate) async fn query_drop(&mut self, sql: impl AsRef<str>) -> Answer<()> {
        self.run(LOOK_EVERY, sql.as_ref()).await
    }

    /// Runs a statement that may take long; looks after it `every` so often.
    pub(crate) async fn run(&mut self, every: Duration, sql: &str) -> Answer<()> {
        self.ask(every, async |conn| conn.query_drop(sql).await).await
    }

    /// First row of a query.
    pub(crate) async fn query_first(&mut self, sql: impl AsRef<str>) -> Answer<Option<Row>> {
        let sql = sql.as_ref();
        self.ask(LOOK_EVERY, async |conn| conn.query_first(sql).await)
            .await
    }

    /// Rows of a query.
    pub(crate) async fn query(&mut self, sql: impl AsRef<str>) -> Answer<Vec<Row>> {
        let sql = sql.as_ref();
        self.ask(LOOK_EVERY, async |conn| conn.query(sql).await).await
    }

    /// Runs several statements; `counts` gets the rows that each of them concerned, up to
    /// the first that fails.
    pub(crate) async fn counted(&mut self, sql: &[u8], counts: &mut Vec<u64>) -> Answer<()> {
        let ask = async |conn: &mut Conn| {
            let mut result = conn.query_iter(sql).await?;
            loop {
                counts.push(result.affected_rows());
                if result.is_empty() {
                    break;
                }
                while result.next().await?.is_some() {}
            }
            result.drop_result().await
        };
        self.ask(LOOK_EVERY, ask).await
    }

    /// Says goodbye; whether the server hears it does not matter.
    pub(crate) async fn disconnect(self) {
        let ended = tokio::time::timeout(GOODBYE, self.conn.disconnect()).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::debug!("a connection did not end in order");
        }
    }
}

/// The error of a query that has no answer.
pub(crate) fn no_answer() -> Error {
    Error::from(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        "a statement ended without an answer",
    ))
}

/// A query of Weir's own: its error says what it was for.
pub(crate) async fn own<T>(what: &'static str, query: impl Future<Output = Answer<T>>) -> Result<T> {
    query.await.map_err(|error| own_error(what, &error))
}
