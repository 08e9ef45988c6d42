//! A blocking SQL client for the tests.

use std::time::Duration;

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Params, Row, Value};
use tokio::runtime::Runtime;

/// How long a server may take to answer a connection attempt.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may take to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// One connection; after it was lost the next statement opens a new one.
#[derive(Debug)]
pub struct Client {
    opts: Opts,
    runtime: Runtime,
    conn: Option<Conn>,
}

impl Client {
    /// Connects to `mysql://user:password@host:port`. The session is in UTC, so that TIMESTAMP values compare.
    ///
    /// # Errors
    /// When the address is not valid or the server is not reachable.
    pub fn connect(uri: &str) -> Result<Self> {
        let opts = Opts::from_url(uri)?;
        let opts = OptsBuilder::from_opts(opts)
            .prefer_socket(false)
            .init(vec!["SET time_zone = '+00:00'"]);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut client = Self {
            opts: opts.into(),
            runtime,
            conn: None,
        };
        client.run("SELECT 1").context("connect")?;
        Ok(client)
    }

    fn with<T>(
        &mut self,
        action: impl AsyncFnOnce(&mut Conn) -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, Error> {
        let (opts, slot) = (&self.opts, &mut self.conn);
        self.runtime.block_on(async {
            let conn = match slot {
                Some(conn) => conn,
                None => {
                    let open = tokio::time::timeout(CONNECT_LIMIT, Conn::new(opts.clone()));
                    let opened = open
                        .await
                        .map_err(|_| Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut)))??;
                    slot.insert(opened)
                }
            };
            let result = action(conn).await;
            // An answer of the server leaves the connection as it is; anything else ends it.
            if !matches!(result, Ok(_) | Err(Error::Server(_))) {
                *slot = None;
            }
            result
        })
    }

    /// Runs one statement and drops what it returns.
    ///
    /// # Errors
    /// The server's, or those of the connection.
    pub fn run(&mut self, sql: &str) -> std::result::Result<(), Error> {
        self.with(async |conn| conn.query_drop(sql).await)
    }

    /// Runs statements one after the other.
    ///
    /// # Errors
    /// At the first that fails; the message names it.
    pub fn run_all<S: AsRef<str>>(&mut self, statements: impl IntoIterator<Item = S>) -> Result<()> {
        for statement in statements {
            let sql = statement.as_ref();
            self.run(sql).with_context(|| sql.to_owned())?;
        }
        Ok(())
    }

    /// Rows in the binary protocol: numbers, floats and times keep their exact value.
    ///
    /// # Errors
    /// As `run`.
    pub fn rows(&mut self, sql: &str) -> std::result::Result<Vec<Vec<Value>>, Error> {
        self.with(async |conn| {
            let rows: Vec<Row> = conn.exec(sql, Params::Empty).await?;
            Ok(rows.into_iter().map(Row::unwrap).collect())
        })
    }

    /// Rows as text; NULL is the empty text.
    ///
    /// # Errors
    /// As `run`.
    pub fn text(&mut self, sql: &str) -> std::result::Result<Vec<Vec<String>>, Error> {
        let rows: Vec<Row> = self.with(async |conn| conn.query(sql).await)?;
        Ok(rows
            .into_iter()
            .map(|row| row.unwrap().into_iter().map(|value| lossy(&value)).collect())
            .collect())
    }

    /// The first value of the first row as text, if there is a row.
    ///
    /// # Errors
    /// As `run`.
    pub fn first(&mut self, sql: &str) -> std::result::Result<Option<String>, Error> {
        Ok(self
            .text(sql)?
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next()))
    }

    /// The first value of the first row as a number; 0 where there is none.
    ///
    /// # Errors
    /// As `run`.
    pub fn number(&mut self, sql: &str) -> std::result::Result<u64, Error> {
        Ok(self.first(sql)?.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Whether the server is a MariaDB.
    ///
    /// # Errors
    /// As `run`.
    pub fn is_mariadb(&mut self) -> std::result::Result<bool, Error> {
        Ok(self
            .first("SELECT VERSION()")?
            .is_some_and(|version| version.contains("MariaDB")))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // Closed within the runtime that drives it; a server that is gone is no matter here.
            drop(
                self.runtime
                    .block_on(async { tokio::time::timeout(CLOSE_LIMIT, conn.disconnect()).await }),
            );
        }
    }
}

fn lossy(value: &Value) -> String {
    match value {
        Value::NULL => String::new(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        other => other.as_sql(true),
    }
}
