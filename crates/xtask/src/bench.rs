//! Starts the benchmarks with the data and programs they need.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench_data;
use weir_test_servers::{Install, Kafka, Kind, Server, free_port};

/// Name, shapes whose files it reads, whether it runs `weir` and the server's printer.
const BENCHES: &[(&str, &[&str], bool)] = &[
    ("decode", &["tpcc", "narrow", "mixed20", "rows100"], false),
    ("store", &["tpcc"], false),
    ("blackhole", &["tpcc", "one-row"], true),
    ("hot-cold", &[], false),
    ("mysql", &[], false),
    ("kafka", &["tpcc"], false),
];

/// Settings of the three servers of `mysql`: what a production server has where it
/// decides what a commit costs.
const DURABLE: &[&str] = &[
    "--innodb-buffer-pool-size=512M",
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
    "--innodb-redo-log-capacity=512M",
];
/// The source only makes the backlog.
const QUICK: &[&str] = &[
    "--innodb-buffer-pool-size=512M",
    "--innodb-flush-log-at-trx-commit=0",
    "--sync-binlog=0",
    "--innodb-redo-log-capacity=512M",
];

/// Builds and runs one benchmark.
///
/// # Errors
/// For an unknown name, and when the build or the benchmark fails.
pub(crate) fn run(name: &str, json: bool, arguments: &[String]) -> Result<()> {
    let Some((_, shapes, whole)) = BENCHES.iter().find(|(known, ..)| *known == name) else {
        let known: Vec<_> = BENCHES.iter().map(|(known, ..)| *known).collect();
        bail!("no benchmark `{name}`; there are: {}", known.join(", "));
    };
    for shape in *shapes {
        bench_data::run_quietly(shape)?;
    }
    let binary = format!("bench-{name}");
    let mut build = Command::new(cargo());
    build.args([
        "build",
        "--release",
        "--quiet",
        "-p",
        "weir-bench",
        "--bin",
        &binary,
    ]);
    if *whole || matches!(name, "mysql" | "kafka") {
        build.args(["-p", "weir", "--bin", "weir"]);
    }
    succeed(build.current_dir(crate::workspace_root()?))?;
    let release = crate::target_dir()?.join("release");
    if name == "mysql" {
        return mysql(&release, json, arguments);
    }
    if name == "kafka" {
        return kafka(&release, json, arguments);
    }
    let mut bench = Command::new(release.join(&binary));
    bench.arg("--data").arg(crate::target_dir()?.join("bench-data"));
    if *whole {
        let install = Install::get(&crate::services_cache()?, Kind::Mysql)?;
        bench.arg("--weir").arg(release.join("weir"));
        bench.arg("--mysqlbinlog").arg(printer(&install)?);
    }
    if json {
        bench.arg("--json");
    }
    succeed(bench.args(arguments).current_dir(crate::workspace_root()?))
}

/// Starts a source and two targets for `mysql`.
fn mysql(release: &Path, json: bool, arguments: &[String]) -> Result<()> {
    let install = Install::get(&crate::services_cache()?, Kind::Mysql)?;
    let work = tempfile::tempdir_in(crate::target_dir()?)?;
    let mut bench = Command::new(release.join("bench-mysql"));
    let mut servers = Vec::new();
    for (name, settings) in [("source", QUICK), ("replica", DURABLE), ("sink", DURABLE)] {
        let port = free_port()?;
        let server = Server::start(&install, &work.path().join(name), port, settings)?;
        server
            .sql("SET sql_log_bin=0; CREATE USER weir@'127.0.0.1'; GRANT ALL ON *.* TO weir@'127.0.0.1'")?;
        bench.arg(format!("--{name}")).arg(port.to_string());
        servers.push(server);
    }
    bench.arg("--weir").arg(release.join("weir"));
    bench.arg("--work").arg(work.path());
    if json {
        bench.arg("--json");
    }
    succeed(bench.args(arguments).current_dir(crate::workspace_root()?))?;
    servers.into_iter().try_for_each(Server::stop)
}

/// Starts a broker for `kafka`.
fn kafka(release: &Path, json: bool, arguments: &[String]) -> Result<()> {
    let work = tempfile::tempdir_in(crate::target_dir()?)?;
    let port = free_port()?;
    let broker = Kafka::start(
        &crate::services_cache()?,
        &work.path().join("broker"),
        port,
        free_port()?,
    )?;
    let mut bench = Command::new(release.join("bench-kafka"));
    bench.arg("--broker").arg(format!("127.0.0.1:{port}"));
    bench.arg("--data").arg(crate::target_dir()?.join("bench-data"));
    bench.arg("--weir").arg(release.join("weir"));
    bench.arg("--work").arg(work.path());
    if json {
        bench.arg("--json");
    }
    let ended = succeed(bench.args(arguments).current_dir(crate::workspace_root()?));
    drop(broker);
    ended
}

/// The cargo that runs this command.
pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// A script that becomes the server's binlog printer, so that a benchmark needs one path only.
fn printer(install: &Install) -> Result<PathBuf> {
    let command = install.binlog_printer();
    let mut script = String::from("#!/bin/sh\nexec ");
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        script.push('\'');
        script.push_str(&word.to_string_lossy());
        script.push_str("' ");
    }
    script.push_str("--no-defaults \"$@\"\n");
    let path = crate::services_cache()?.join("mysqlbinlog");
    std::fs::write(&path, script)?;
    let status = Command::new("chmod")
        .arg("755")
        .arg(&path)
        .status()
        .context("run chmod")?;
    if !status.success() {
        bail!("could not make {} executable", path.display());
    }
    Ok(path)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().display());
    }
    Ok(())
}
