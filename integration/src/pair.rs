//! A source and a sink with the load's tables, and a changefeed between them.

use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weir_test_servers::Kind;

use crate::client::Client;
use crate::command::{Changefeed, RUN_LIMIT, Running, trouble};
use crate::compare::{self, Scope};
use crate::load::{self, Names};
use crate::servers::{End, TestServer, wait_until};

/// Client number of the rows that [`Pair::lag`] writes.
const PROBE: u32 = 1_000_000;
/// Settings of every changefeed of the tests: little memory, so that limits are met.
const QUOTA: &str = "64MiB";

/// Two servers.
#[derive(Debug)]
pub struct Pair {
    /// Changes come from here.
    pub source: TestServer,
    /// Changes go there.
    pub sink: TestServer,
    /// Databases of this test.
    pub names: Names,
    /// The table `[source]` of a changefeed: where it starts.
    start: String,
}

impl Pair {
    /// Servers from the environment or private ones, with nothing of this test in them.
    ///
    /// # Errors
    /// When a server does not start.
    pub fn new(source: Kind, sink: Kind) -> Result<Self> {
        Self::of(
            TestServer::get(source, End::Source)?,
            TestServer::get(sink, End::Sink)?,
        )
    }

    /// Private servers, for tests that kill them.
    ///
    /// # Errors
    /// When a server does not start.
    pub fn own(source: Kind, sink: Kind) -> Result<Self> {
        Self::of(TestServer::own(source, &[])?, TestServer::own(sink, &[])?)
    }

    /// These two servers.
    ///
    /// # Errors
    /// When a server is not reachable.
    pub fn of(source: TestServer, mut sink: TestServer) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = Names::new(&format!("e{}x{number}", std::process::id()));
        let start = start_position(&mut source.client()?)?;
        if sink.process().is_err() {
            forget_progress(&mut sink.client()?)?;
        }
        Ok(Self {
            source,
            sink,
            names,
            start,
        })
    }

    /// Makes the load's tables at the source.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn setup(&self) -> Result<()> {
        load::setup(&mut self.source.client()?, &self.names)
    }

    /// A changefeed of this test's databases; `more` is TOML that is added at the end.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn feed(&self, more: &str) -> Result<Changefeed> {
        self.feed_by(self.source.uri(), self.sink.uri(), more)
    }

    /// The same within another memory quota.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn feed_within(&self, quota: &str, more: &str) -> Result<Changefeed> {
        self.feed_of(self.source.uri(), self.sink.uri(), quota, more)
    }

    /// The same by way of other addresses, of proxies.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn feed_by(&self, from: &str, to: &str, more: &str) -> Result<Changefeed> {
        self.feed_of(from, to, QUOTA, more)
    }

    fn feed_of(&self, from: &str, to: &str, quota: &str, more: &str) -> Result<Changefeed> {
        let start = if from.starts_with("binlog-files:") {
            "start = \"earliest\""
        } else {
            &self.start
        };
        Changefeed::between(
            from,
            to,
            start,
            &format!(
                "[flow-control]\nmemory-quota = \"{quota}\"\n{}{more}",
                filter(&self.names)
            ),
        )
    }

    /// What a comparison looks at.
    pub fn scope(&self) -> Scope {
        Scope {
            prefix: self.names.main.clone(),
            same_kind: self.source.kind() == self.sink.kind(),
            without: Vec::new(),
        }
    }

    /// Fails unless both ends are the same now.
    ///
    /// # Errors
    /// With the differences.
    pub fn assert_equal(&self) -> Result<()> {
        self.equal_within(Duration::ZERO).map(drop)
    }

    /// Fails unless both ends become the same in time.
    ///
    /// # Errors
    /// With the differences.
    pub fn equal_within(&self, limit: Duration) -> Result<Duration> {
        compare::equal_within(
            &mut self.source.client()?,
            &mut self.sink.client()?,
            &self.scope(),
            limit,
        )
    }

    /// Waits until a row that is written now has arrived.
    ///
    /// # Errors
    /// When it does not arrive within `limit`.
    pub fn lag(&self, limit: Duration) -> Result<Duration> {
        let (mut source, mut sink) = (self.source.client()?, self.sink.client()?);
        let table = format!("{}.beat", self.names.main);
        lag(&mut source, &mut sink, &table, limit)
    }

    /// Counted transactions of the load that one end has.
    ///
    /// # Errors
    /// When the server does not answer. A table that is not there yet counts as 0.
    pub fn beats(&self, client: &mut Client) -> Result<u64> {
        let sql = format!(
            "SELECT IFNULL(SUM(n), 0) FROM {}.beat WHERE client < {PROBE}",
            self.names.main
        );
        match client.number(&sql) {
            Err(mysql_async::Error::Server(error)) if matches!(error.code, 1049 | 1146) => Ok(0),
            other => Ok(other?),
        }
    }
}

/// TOML that lets a test's databases through and nothing else.
pub fn filter(names: &Names) -> String {
    let main = &names.main;
    format!("[filter]\nrules = [\"{main}.*\", \"{main}_*.*\"]\n")
}

impl Drop for Pair {
    /// What Weir wrote down at the sink, and the source's binlogs, stay in `target/failed` when a test fails.
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Err(error) = self.keep()
        {
            eprintln!("the state at the sink is lost: {error:#}");
        }
    }
}

impl Pair {
    fn keep(&mut self) -> Result<()> {
        let kept = weir_test_servers::target_dir()?
            .join("failed")
            .join(&self.names.main);
        std::fs::create_dir_all(&kept)?;
        let mut client = self.sink.client()?;
        let mut text = String::new();
        let tables =
            client.text("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'weir'")?;
        for table in tables.iter().flatten() {
            writeln!(text, "{table}")?;
            for row in client.text(&format!("SELECT * FROM weir.`{table}`"))? {
                writeln!(text, "  {}", row.join("\t"))?;
            }
        }
        writeln!(text, "sessions")?;
        for row in client.text("SELECT * FROM information_schema.PROCESSLIST")? {
            writeln!(text, "  {}", row.join("\t"))?;
        }
        std::fs::write(kept.join("sink.txt"), text)?;
        if let Ok(server) = self.source.process() {
            for entry in std::fs::read_dir(server.data_dir())? {
                let entry = entry?;
                let name = entry.file_name();
                if name.to_string_lossy().starts_with("binlog.") && entry.file_type()?.is_file() {
                    std::fs::copy(entry.path(), kept.join(name))?;
                }
            }
        }
        eprintln!("state at the sink: {}", kept.display());
        Ok(())
    }
}

/// Writes a row with a number of its own to a table `(client, n)` of the source and waits for it at the sink.
///
/// # Errors
/// When it does not arrive within `limit`.
pub fn lag(source: &mut Client, sink: &mut Client, table: &str, limit: Duration) -> Result<Duration> {
    source.run(&format!(
        "INSERT INTO {table} VALUES ({PROBE}, 1) ON DUPLICATE KEY UPDATE n = n + 1"
    ))?;
    let start = Instant::now();
    let sql = format!("SELECT n FROM {table} WHERE client = {PROBE}");
    let wanted = source.number(&sql)?;
    wait_until(&format!("a row of {table} at the sink"), limit, || {
        // The table may not be there yet.
        Ok(sink.number(&sql).is_ok_and(|got| got >= wanted))
    })?;
    Ok(start.elapsed())
}

/// The line of `[source]` that starts a changefeed after everything that the source has now.
///
/// # Errors
/// When the server does not answer.
pub fn start_position(client: &mut Client) -> Result<String> {
    let sql = if client.is_mariadb()? {
        "SELECT @@GLOBAL.gtid_binlog_pos"
    } else {
        "SELECT @@GLOBAL.gtid_executed"
    };
    let position = client.first(sql)?.unwrap_or_default().replace(['\n', ' '], "");
    Ok(if position.is_empty() {
        "start = \"earliest\"".to_owned()
    } else {
        format!("start = \"gtid:{position}\"")
    })
}

/// Stops a running command cleanly, then runs it to the end of what the source has.
///
/// # Errors
/// When it does not stop or end, or not with exit status 0; the message holds the end of its log.
pub fn caught_up(feed: &Changefeed, running: Running) -> Result<()> {
    running.signal("TERM")?;
    let stopped = running.finish(RUN_LIMIT)?;
    anyhow::ensure!(
        stopped.code() == 0,
        "after SIGTERM: status {}\n{}\n{}",
        stopped.status,
        stopped.stdout,
        trouble(&stopped.stderr)
    );
    run_to_end(feed).context("the run to the end")
}

/// Runs to the end of what the source has.
///
/// # Errors
/// When it does not end with exit status 0; the message holds the end of its log.
pub fn run_to_end(feed: &Changefeed) -> Result<()> {
    let last = feed.catch_up()?;
    anyhow::ensure!(
        last.code() == 0,
        "status {}\n{}\n{}",
        last.status,
        last.stdout,
        trouble(&last.stderr)
    );
    Ok(())
}

/// Removes the progress of earlier runs from a server that outlives the tests: it belongs to data folders that are
/// gone.
fn forget_progress(sink: &mut Client) -> Result<()> {
    Ok(sink.run("DROP DATABASE IF EXISTS weir")?)
}
