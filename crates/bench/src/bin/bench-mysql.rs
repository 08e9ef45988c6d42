//! `mysql`: row changes/s of a catch-up, MySQL to MySQL: `weir run` ÷ the server's own
//! replica with 4 parallel workers.
//!
//! Weir's clock runs from the start of its process to its end (`--until caught-up`): it
//! reads the binlog over the network, writes and syncs its store, and writes the rows. The
//! replica's clock runs while it applies a relay log that it has on disk already. Both
//! targets are servers of the same release with the same settings, which are printed; both
//! begin each round with the same rows and an empty binlog. Both are compared with the source.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;
use weir_bench::oltp::{self, BULK_ROWS, CHANGES_PER_TXN, TABLES, scalar};
use weir_bench::process::children_cpu_seconds;
use weir_bench::{Report, Side, measure};
use weir_types::{TlsMode, TlsOptions};
use weir_wire::{Connection, Endpoint};

/// Database of the load, and of the copy that targets are set back from.
const SCHEMA: &str = "bench";
const BASE: &str = "bench_base";
/// Small transactions of the backlog: 64,000 row changes.
const TXNS: u64 = 16_000;
/// Rows of the bulk load.
const BULK: u64 = 200_000;
/// Longest wait for a replica.
const REPLICA_LIMIT: Duration = Duration::from_secs(300);
/// Replica's workers.
const REPLICA_WORKERS: u64 = 4;
/// Settings that decide what a commit costs; printed for both targets.
const DURABILITY: [&str; 5] = [
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "log_bin",
    "innodb_doublewrite",
    "innodb_buffer_pool_size",
];

#[derive(Parser, Debug)]
struct Arguments {
    /// Port of the source on loopback; user `weir` with all rights and without password, as for the others.
    #[arg(long)]
    source: u16,
    /// Port of the server that replicates by itself.
    #[arg(long)]
    replica: u16,
    /// Port of the server that Weir writes to.
    #[arg(long)]
    sink: u16,
    /// The command to measure.
    #[arg(long)]
    weir: PathBuf,
    /// Folder for Weir's state; on a disk.
    #[arg(long)]
    work: PathBuf,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Measures this load only: `small` or `bulk`.
    #[arg(long)]
    load: Option<String>,
}

/// The headline comes last.
const LOADS: &[&str] = &["bulk", "small"];

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        host: "127.0.0.1".to_owned(),
        port,
        user: "weir".to_owned(),
        password: None,
        tls: TlsOptions {
            mode: TlsMode::Disabled,
            ca: None,
            cert: None,
            key: None,
        },
        connect_timeout: Duration::from_secs(10),
        read_timeout: REPLICA_LIMIT,
    }
}

/// What is replicated.
struct Backlog {
    name: &'static str,
    /// Transactions before it, as a GTID set.
    base: String,
    /// Transactions up to its end.
    end: String,
    changes: u64,
    checksum: String,
}

struct Bench {
    arguments: Arguments,
    source: Connection,
    cpu_us_per_row: Vec<f64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let source = Connection::open(&endpoint(arguments.source))?;
    let mut bench = Bench {
        arguments,
        source,
        cpu_us_per_row: Vec::new(),
    };
    let mut headline = None;
    for name in LOADS {
        if bench.arguments.load.as_deref().is_some_and(|only| only != *name) {
            continue;
        }
        let report = bench.report(name)?;
        report.print(bench.arguments.json);
        headline = Some(report);
    }
    let Some(mut headline) = headline else {
        bail!("no such load")
    };
    headline.notes = format!("headline: {}; {}", headline.name, headline.notes);
    headline.name = "mysql".to_owned();
    headline.print(bench.arguments.json);
    Ok(())
}

fn checksum(connection: &mut Connection) -> Result<String> {
    let tables: Vec<String> = (0..=TABLES).map(|n| format!("{SCHEMA}.t{n}")).collect();
    let rows = connection.query(&format!("CHECKSUM TABLE {}", tables.join(",")))?;
    let sums = rows.rows.iter().map(|row| {
        let sum = row.get(1).cloned().flatten().unwrap_or_default();
        String::from_utf8_lossy(&sum).into_owned()
    });
    Ok(sums.collect::<Vec<_>>().join(","))
}

/// Whether the replica has the whole backlog in its relay log.
fn received(replica: &mut Connection, backlog: &Backlog) -> Result<bool> {
    let status = replica.query("SHOW REPLICA STATUS")?;
    let column = status
        .columns
        .iter()
        .position(|name| name == "Retrieved_Gtid_Set");
    let value = column.and_then(|at| status.rows.first()?.get(at)?.clone());
    let set = String::from_utf8(value.unwrap_or_default())?;
    let subset = format!(
        "SELECT GTID_SUBSET(GTID_SUBTRACT('{}', '{}'), '{set}')",
        backlog.end, backlog.base
    );
    Ok(scalar(replica, &subset)? == "1")
}

fn run_all(connection: &mut Connection, statements: &[String]) -> Result<()> {
    for statement in statements {
        connection.execute(statement)?;
    }
    Ok(())
}

impl Bench {
    fn target(&self, side: Side) -> Result<Connection> {
        let port = match side {
            Side::Ours => self.arguments.sink,
            Side::Other => self.arguments.replica,
        };
        Ok(Connection::open(&endpoint(port))?)
    }

    /// Makes the backlog at the source, and the base at both targets.
    fn prepare(&mut self, name: &'static str) -> Result<Backlog> {
        self.source
            .execute(&format!("DROP DATABASE IF EXISTS {SCHEMA}"))?;
        run_all(&mut self.source, &oltp::base(SCHEMA))?;
        self.source.execute("RESET BINARY LOGS AND GTIDS")?;
        let base_statements = oltp::base(BASE);
        for side in [Side::Ours, Side::Other] {
            let mut target = self.target(side)?;
            target.execute("SET sql_log_bin=0")?;
            target.execute(&format!("DROP DATABASE IF EXISTS {BASE}"))?;
            run_all(&mut target, &base_statements)?;
        }
        // A first transaction, so that the set before the backlog is not empty.
        self.source
            .execute(&format!("CREATE DATABASE IF NOT EXISTS {SCHEMA}"))?;
        let base = scalar(&mut self.source, "SELECT @@gtid_executed")?;
        let source = endpoint(self.arguments.source);
        let changes = match name {
            "small" => {
                oltp::small_transactions(&source, SCHEMA, TXNS)?;
                TXNS * CHANGES_PER_TXN
            }
            _ => {
                oltp::bulk_inserts(&source, SCHEMA, BULK)?;
                BULK
            }
        };
        Ok(Backlog {
            name,
            base,
            end: scalar(&mut self.source, "SELECT @@gtid_executed")?,
            changes,
            checksum: checksum(&mut self.source)?,
        })
    }

    /// Sets a target back to the rows before the backlog.
    fn set_back(&self, side: Side, backlog: &Backlog) -> Result<Connection> {
        let mut target = self.target(side)?;
        if side == Side::Other {
            target.execute("STOP REPLICA")?;
            target.execute("RESET REPLICA ALL")?;
        }
        target.execute("SET sql_log_bin=0")?;
        target.execute(&format!("DROP DATABASE IF EXISTS {SCHEMA}"))?;
        target.execute("DROP DATABASE IF EXISTS weir")?;
        target.execute(&format!("CREATE DATABASE {SCHEMA}"))?;
        for table in 0..=TABLES {
            target.execute(&format!("CREATE TABLE {SCHEMA}.t{table} LIKE {BASE}.t{table}"))?;
            target.execute(&format!(
                "INSERT INTO {SCHEMA}.t{table} SELECT * FROM {BASE}.t{table}"
            ))?;
        }
        target.execute("RESET BINARY LOGS AND GTIDS")?;
        if side == Side::Other {
            target.execute(&format!("SET GLOBAL gtid_purged='{}'", backlog.base))?;
        }
        Ok(target)
    }

    fn compare(&self, target: &mut Connection, backlog: &Backlog) -> Result<()> {
        let found = checksum(target)?;
        if found != backlog.checksum {
            bail!(
                "`{}`: the rows differ from the source's: {found} is not {}",
                backlog.name,
                backlog.checksum
            );
        }
        Ok(())
    }

    /// Row changes/s of the server's own replica.
    fn other(&self, backlog: &Backlog) -> Result<f64> {
        let mut replica = self.set_back(Side::Other, backlog)?;
        replica.execute(&format!("SET GLOBAL replica_parallel_workers={REPLICA_WORKERS}"))?;
        replica.execute(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_USER='weir', \
             SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
            self.arguments.source
        ))?;
        replica.execute("START REPLICA IO_THREAD")?;
        let deadline = Instant::now() + REPLICA_LIMIT;
        while !received(&mut replica, backlog)? {
            if Instant::now() > deadline {
                bail!("the replica did not receive the backlog in time");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let start = Instant::now();
        replica.execute("START REPLICA SQL_THREAD")?;
        let waited = scalar(
            &mut replica,
            &format!(
                "SELECT WAIT_FOR_EXECUTED_GTID_SET('{}', {})",
                backlog.end,
                REPLICA_LIMIT.as_secs()
            ),
        )?;
        let seconds = start.elapsed().as_secs_f64();
        if waited != "0" {
            bail!("the replica did not apply the backlog in time");
        }
        self.compare(&mut replica, backlog)?;
        Ok(backlog.changes as f64 / seconds)
    }

    /// Row changes/s of Weir.
    fn ours(&mut self, backlog: &Backlog) -> Result<f64> {
        let mut sink = self.set_back(Side::Ours, backlog)?;
        let dir = tempfile::tempdir_in(&self.arguments.work)?;
        let file = dir.path().join("feed.toml");
        let text = format!(
            "id = \"bench\"\n[source]\nuri = \"mysql://weir@127.0.0.1:{}\"\nstart = \"gtid:{}\"\n[source.tls]\nmode = \"disabled\"\n\
             [filter]\nrules = [\"{SCHEMA}.*\"]\n[sink]\nuri = \"mysql://weir@127.0.0.1:{}\"\n[sink.tls]\nmode = \"disabled\"\n\
             [metrics]\nlisten = \"\"\n",
            self.arguments.source,
            backlog.base.replace('\n', ""),
            self.arguments.sink,
        );
        std::fs::write(&file, text)?;
        let cpu_before = children_cpu_seconds()?;
        let start = Instant::now();
        let mut child = Command::new(&self.arguments.weir)
            .arg("run")
            .arg(&file)
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--until", "caught-up", "--output", "json", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {}", self.arguments.weir.display()))?;
        let stdout = child.stdout.take().context("standard output")?;
        let lines: Vec<String> = BufReader::new(stdout).lines().collect::<Result<_, _>>()?;
        let status = child.wait()?;
        let seconds = start.elapsed().as_secs_f64();
        let last = lines.last().map_or("", String::as_str);
        if !status.success() {
            bail!("weir ended with {status}: {last}");
        }
        let result: Value = serde_json::from_str(last).context("the result of weir")?;
        let kinds = ["inserts", "updates", "deletes"];
        let rows: u64 = kinds.iter().filter_map(|kind| result[*kind].as_u64()).sum();
        if rows != backlog.changes {
            bail!("weir took {rows} row changes of {}", backlog.changes);
        }
        self.compare(&mut sink, backlog)?;
        let cpu = children_cpu_seconds()? - cpu_before;
        self.cpu_us_per_row.push(cpu * 1e6 / backlog.changes as f64);
        Ok(backlog.changes as f64 / seconds)
    }

    fn report(&mut self, name: &'static str) -> Result<Report> {
        let backlog = self.prepare(name)?;
        self.cpu_us_per_row.clear();
        let pairs = measure(|side| match side {
            Side::Ours => self.ours(&backlog),
            Side::Other => self.other(&backlog),
        })?;
        self.cpu_us_per_row.sort_by(f64::total_cmp);
        let cpu = self.cpu_us_per_row[self.cpu_us_per_row.len() / 2];
        let notes = format!(
            "{} row changes, {}; ours: process start to end, binlog read over the network, store synced, {cpu:.1} cpu us/row; \
             other: relay log on disk before, {REPLICA_WORKERS} parallel workers; our target: {}; its target: {}",
            backlog.changes,
            if name == "small" {
                format!("transactions of {CHANGES_PER_TXN} changes over {TABLES} tables")
            } else {
                format!("inserts of {BULK_ROWS} rows into one table")
            },
            self.settings(Side::Ours)?,
            self.settings(Side::Other)?,
        );
        let command = "cargo xtask bench mysql --json";
        Ok(Report::rates(
            &format!("mysql/{name}"),
            "row changes/s",
            &pairs,
            command,
            notes,
        ))
    }

    fn settings(&self, side: Side) -> Result<String> {
        let mut target = self.target(side)?;
        let mut shown = vec![scalar(&mut target, "SELECT VERSION()")?];
        for name in DURABILITY {
            shown.push(format!(
                "{name}={}",
                scalar(&mut target, &format!("SELECT @@{name}"))?
            ));
        }
        Ok(shown.join(" "))
    }
}
