//! Notices that a statement has ended without an answer: a connection may stay open and
//! pass nothing any more, which no timeout of the system tells while the other side of a
//! proxy or firewall still acknowledges what it is sent. How long a statement may take is
//! not known, so another connection looks whether the server is still at it.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Error, Row};

use crate::client::no_answer;
use crate::connect::{Connector, own_error, text, value};
use crate::error::Result;

/// How long an answer may be on its way after the server has finished.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// Longest wait for the list of processes.
const LOOK_LIMIT: Duration = Duration::from_secs(15);
/// Longest time for an orderly end of the connection that looked.
const GOODBYE: Duration = Duration::from_secs(1);
/// Looks that may fail in a row.
const LOOK_FAILURES_MAX: u32 = 3;

/// Waits for what connection `id` runs; looks after it `every` so often.
///
/// # Errors
/// Those of `run`; `TimedOut` if the server is not at work on it and no answer comes, or
/// if the server cannot be asked.
pub(crate) async fn watched<T>(
    connector: &Connector,
    id: u32,
    every: Duration,
    run: impl Future<Output = std::result::Result<T, Error>>,
) -> std::result::Result<T, Error> {
    let mut run = std::pin::pin!(run);
    let mut failures = 0;
    loop {
        if let Ok(result) = tokio::time::timeout(every, &mut run).await {
            return result;
        }
        match is_running(connector, id).await {
            Ok(true) => {
                failures = 0;
                continue;
            }
            Ok(false) => {}
            Err(error) => {
                failures += 1;
                tracing::debug!(%error, "cannot look whether a statement runs");
                if failures < LOOK_FAILURES_MAX {
                    continue;
                }
            }
        }
        return match tokio::time::timeout(ANSWER_GRACE, &mut run).await {
            Ok(result) => result,
            Err(_) => Err(no_answer()),
        };
    }
}

/// Whether a connection is at work.
async fn is_running(connector: &Connector, id: u32) -> Result<bool> {
    let mut conn = connector.dial().await?;
    let rows: std::result::Result<Vec<Row>, Error> = async {
        let asked = tokio::time::timeout(LOOK_LIMIT, conn.query("SHOW PROCESSLIST"));
        asked.await.unwrap_or_else(|_| Err(no_answer()))
    }
    .await;
    let rows = rows.map_err(|error| own_error("read the list of processes", &error))?;
    if !matches!(tokio::time::timeout(GOODBYE, conn.disconnect()).await, Ok(Ok(()))) {
        tracing::debug!("a connection did not end in order");
    }
    Ok(rows
        .iter()
        .any(|row| value::<u64>(row, 0) == Some(u64::from(id)) && text(row, 4) != "Sleep"))
}
