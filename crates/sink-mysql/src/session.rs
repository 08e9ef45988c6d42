//! What a session is set to, and the named locks that keep old sessions from writing.
//!
//! Each connection of a changefeed holds a lock of the server, named after changefeed and
//! slot. A session that Weir has lost may still run a statement at the server; whoever
//! opens the slot anew looks for the holder of its lock, ends it with `KILL` (which a
//! user may do to sessions of its own) and takes the lock: the server gives it only once
//! the old session, its transaction included, is gone. A session that loses its
//! connection loses the lock, and can do nothing more.

use std::time::{Duration, Instant};

use mysql_async::{Error, Row};
use weir_types::{ChangefeedId, Flavor};

use crate::client::{Client, own};
use crate::connect::{ServerInfo, own_error, value};
use crate::error::{MysqlSinkError, Result};

/// `sql_mode` of the sessions that write rows. Values that do not fit are errors, never
/// cut; zero dates and id 0 pass as they are.
pub(crate) const ROW_SQL_MODE: &str = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES";
/// Longest wait for a lock of rows or of a table's definition, in seconds; then it is
/// tried again, for ever.
pub(crate) const LOCK_WAIT_SECONDS: u32 = 5;
/// How long the server waits for a part of a statement, in seconds.
const NET_TIMEOUT_SECONDS: u32 = 600;
/// How long the server keeps an idle session, in seconds.
const IDLE_SECONDS: u32 = 8 * 60 * 60;
/// Longest time for an earlier session to end.
const ZOMBIE_WAIT: Duration = Duration::from_secs(60);
/// Time between two looks at an earlier session.
const ZOMBIE_LOOK: Duration = Duration::from_millis(50);
/// `KILL` of a connection that has ended already.
const NO_SUCH_THREAD: u16 = 1094;

/// What a slot of a changefeed is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    /// Writes rows.
    Rows(usize),
    /// Runs DDL.
    Ddl(usize),
}

/// Name of a slot's lock; at most 64 characters, as the servers demand.
pub(crate) fn lock_name(changefeed: &ChangefeedId, slot: Slot) -> String {
    let digest = openssl::sha::sha256(changefeed.0.as_bytes());
    let digest: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    match slot {
        Slot::Rows(number) => format!("weir.{digest}.{number}"),
        Slot::Ddl(number) => format!("weir.{digest}.ddl{number}"),
    }
}

/// Statements that set up a session that writes rows.
fn row_settings(info: &ServerInfo) -> String {
    let mut settings = format!(
        "SET NAMES utf8mb4; SET SESSION sql_mode='{ROW_SQL_MODE}', time_zone='+00:00', foreign_key_checks=1, \
         unique_checks=1, sql_safe_updates=0, sql_auto_is_null=0, autocommit=1, \
         innodb_lock_wait_timeout={LOCK_WAIT_SECONDS}, lock_wait_timeout={LOCK_WAIT_SECONDS}, \
         net_read_timeout={NET_TIMEOUT_SECONDS}, net_write_timeout={NET_TIMEOUT_SECONDS}, \
         wait_timeout={IDLE_SECONDS}"
    );
    if info.flavor == Flavor::Mariadb {
        settings.push_str(", max_statement_time=0");
    }
    settings
}

/// Sets a session up for rows. Fewer gaps are locked under READ COMMITTED, so that
/// workers wait less for each other; a target that logs statements does not allow it.
pub(crate) async fn set_up(conn: &mut Client, info: &ServerInfo) -> Result<()> {
    let settings = row_settings(info);
    let what = "set up a session";
    own(what, conn.query_drop(settings)).await?;
    let format: Option<Row> = own(what, conn.query_first("SHOW VARIABLES LIKE 'binlog_format'")).await?;
    let by_statement = format.is_some_and(|row| crate::connect::text(&row, 1) == "STATEMENT");
    let level = if info.log_bin && by_statement {
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    } else {
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    };
    own(what, conn.query_drop(level)).await
}

/// Takes back what a DDL set, so that Weir's own queries mean, and definitions read,
/// always the same.
pub(crate) async fn set_back(conn: &mut Client, info: &ServerInfo) -> Result<()> {
    let settings = format!("{}, timestamp=DEFAULT", row_settings(info));
    own("set up a session", conn.query_drop(settings)).await
}

/// Connection that holds a lock.
async fn holder(conn: &mut Client, lock: &str) -> Result<Option<u64>> {
    let query = format!("SELECT IS_USED_LOCK('{lock}')");
    let row: Option<Row> = own("look for an earlier session", conn.query_first(query)).await?;
    Ok(row.and_then(|row| value::<u64>(&row, 0)))
}

async fn kill(conn: &mut Client, connection: u64) -> Result<()> {
    match conn.query_drop(format!("KILL CONNECTION {connection}")).await {
        Ok(()) => Ok(()),
        Err(Error::Server(error)) if error.code == NO_SUCH_THREAD => Ok(()),
        Err(error) => Err(own_error("end an earlier session", &error)),
    }
}

/// Ends the session that holds a slot's lock, if it is not `conn` itself, and waits
/// until it is gone.
pub(crate) async fn end_holder(conn: &mut Client, lock: &str) -> Result<()> {
    let own = u64::from(conn.id());
    let begun = Instant::now();
    let mut ended = None;
    while let Some(connection) = holder(conn, lock).await? {
        if connection == own {
            return Ok(());
        }
        if ended != Some(connection) {
            tracing::info!(connection, lock, "ending an earlier session at the target");
            kill(conn, connection).await?;
            ended = Some(connection);
        }
        if begun.elapsed() > ZOMBIE_WAIT {
            return Err(MysqlSinkError::Zombie { connection });
        }
        tokio::time::sleep(ZOMBIE_LOOK).await;
    }
    Ok(())
}

/// Ends earlier sessions of a slot and takes its lock.
pub(crate) async fn take_slot(conn: &mut Client, changefeed: &ChangefeedId, slot: Slot) -> Result<()> {
    let lock = lock_name(changefeed, slot);
    let begun = Instant::now();
    loop {
        end_holder(conn, &lock).await?;
        let query = format!("SELECT GET_LOCK('{lock}', 1)");
        let row: Option<Row> = own("take a named lock", conn.query_first(query)).await?;
        if row.and_then(|row| value::<i64>(&row, 0)) == Some(1) {
            return Ok(());
        }
        if begun.elapsed() > ZOMBIE_WAIT {
            return Err(MysqlSinkError::Zombie { connection: 0 });
        }
    }
}

/// Ends the sessions that an earlier run left in any slot, before the first write of
/// this one.
pub(crate) async fn end_all(
    conn: &mut Client,
    changefeed: &ChangefeedId,
    rows: usize,
    ddl: usize,
) -> Result<()> {
    let slots = (0..rows).map(Slot::Rows).chain((0..ddl).map(Slot::Ddl));
    for slot in slots {
        end_holder(conn, &lock_name(changefeed, slot)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_named_apart_and_short_enough() {
        let id = |text: &str| ChangefeedId(text.into());
        let long = id(&"x".repeat(64));
        let name = lock_name(&long, Slot::Rows(255));
        assert!(name.len() <= 64, "{name}");
        assert_ne!(
            lock_name(&id("a"), Slot::Rows(1)),
            lock_name(&id("b"), Slot::Rows(1))
        );
        assert_ne!(
            lock_name(&id("a"), Slot::Rows(1)),
            lock_name(&id("a"), Slot::Ddl(1))
        );
    }
}
