//! `blackhole`: bytes/s of the whole pipeline (`weir run`, files → store → service → collector → dispatchers →
//! blackhole) ÷ local `mysqlbinlog -vv` on the same files.
//!
//! Both are processes that start from nothing, with the files in the page cache. Ours writes and syncs its store; the
//! other side prints to `/dev/null`. The rows that both saw are compared before anything is measured.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;
use weir_bench::files::{binlogs, total_bytes};
use weir_bench::pairs::MEASUREMENT_MIN;
use weir_bench::process::children_cpu_seconds;
use weir_bench::{Report, Side, measure};

/// Shapes; the last one is the headline.
const SHAPES: &[&str] = &["one-row", "tpcc"];

#[derive(Parser, Debug)]
struct Arguments {
    /// Folder with one folder of binlog files per shape.
    #[arg(long)]
    data: PathBuf,
    /// The command to measure.
    #[arg(long)]
    weir: PathBuf,
    /// The server's binlog printer.
    #[arg(long)]
    mysqlbinlog: PathBuf,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Measures this shape only.
    #[arg(long)]
    shape: Option<String>,
}

/// What one run of our side gave.
struct Run {
    rows: u64,
    seconds: f64,
    cpu_seconds: f64,
    high_water_bytes: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut headline = None;
    for shape in SHAPES {
        if arguments.shape.as_deref().is_some_and(|only| only != *shape) {
            continue;
        }
        let report = shape_report(&arguments, shape)?;
        report.print(arguments.json);
        headline = Some(report);
    }
    let Some(mut headline) = headline else {
        bail!("no such shape")
    };
    headline.notes = format!("headline: {}; {}", headline.name, headline.notes);
    headline.name = "blackhole".to_owned();
    headline.print(arguments.json);
    Ok(())
}

fn shape_report(arguments: &Arguments, shape: &str) -> Result<Report> {
    let folder = std::path::absolute(arguments.data.join(shape))?;
    let files = binlogs(&folder)?;
    let bytes = total_bytes(&files)?;
    let printed = printed_rows(&arguments.mysqlbinlog, &files)?;
    let first = ours(arguments, &folder)?;
    if first.rows != printed {
        bail!(
            "`{shape}`: the pipeline delivered {} rows, mysqlbinlog prints {printed}",
            first.rows
        );
    }
    let mut runs = Vec::new();
    let pairs = measure(|side| {
        Ok::<_, anyhow::Error>(match side {
            Side::Ours => {
                // One run may be shorter than what is measured well; each has a store of its own.
                let (mut spent, mut repeats) = (0.0, 0.0);
                while spent < MEASUREMENT_MIN.as_secs_f64() {
                    let run = ours(arguments, &folder)?;
                    if run.rows != printed {
                        bail!("`{shape}`: a run delivered {} of {printed} rows", run.rows);
                    }
                    spent += run.seconds;
                    repeats += 1.0;
                    runs.push(run);
                }
                bytes as f64 * repeats / spent
            }
            Side::Other => {
                let (mut spent, mut repeats) = (0.0, 0.0);
                while spent < MEASUREMENT_MIN.as_secs_f64() {
                    spent += print_to_null(&arguments.mysqlbinlog, &files)?;
                    repeats += 1.0;
                }
                bytes as f64 * repeats / spent
            }
        })
    })?;
    let count = runs.len() as f64;
    let cpu_seconds = runs.iter().map(|run| run.cpu_seconds).sum::<f64>() / count;
    let seconds = runs.iter().map(|run| run.seconds).sum::<f64>() / count;
    let peak = runs.iter().map(|run| run.high_water_bytes).max().unwrap_or(0);
    let notes = format!(
        "{bytes} bytes, {printed} rows on both sides; ours {:.0} rows/s, {:.2} cpu us/row, {:.2} cores, peak {} MiB; \
         ours: default changefeed, new store each run, synced; other: mysqlbinlog -vv > /dev/null",
        printed as f64 / seconds,
        cpu_seconds * 1e6 / printed as f64,
        cpu_seconds / seconds,
        peak >> 20,
    );
    let command = "cargo xtask bench blackhole --json";
    Ok(Report::rates(
        &format!("blackhole/{shape}"),
        "bytes/s",
        &pairs,
        command,
        notes,
    ))
}

fn ours(arguments: &Arguments, folder: &Path) -> Result<Run> {
    // Beside the data, not in /tmp: that may be memory, where a sync costs nothing.
    let dir = tempfile::tempdir_in(arguments.data.parent().context("the data folder has no parent")?)?;
    let file = dir.path().join("feed.toml");
    let text = format!(
        "id = \"bench\"\n[source]\nuri = \"binlog-files://{}\"\n[sink]\nuri = \"blackhole://\"\n[metrics]\nlisten = \"\"\n",
        folder.display()
    );
    std::fs::write(&file, text)?;
    let cpu_before = children_cpu_seconds()?;
    let start = Instant::now();
    let mut child = Command::new(&arguments.weir)
        .arg("run")
        .arg(&file)
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .args(["--until", "caught-up", "--output", "json", "--log-level", "error"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", arguments.weir.display()))?;
    let stdout = child.stdout.take().context("standard output")?;
    let status_file = format!("/proc/{}/status", child.id());
    let watcher = std::thread::spawn(move || watch_memory(&status_file));
    let lines: Vec<String> = BufReader::new(stdout).lines().collect::<Result<_, _>>()?;
    let status = child.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = children_cpu_seconds()? - cpu_before;
    let high_water_bytes = watcher
        .join()
        .map_err(|_| anyhow::anyhow!("the watcher panicked"))?;
    let last = lines.last().map_or("", String::as_str);
    if !status.success() {
        bail!("weir ended with {status}: {last}");
    }
    let result: Value = serde_json::from_str(last).context("the result of weir")?;
    let mut rows = 0;
    for kind in ["inserts", "updates", "deletes"] {
        rows += result[kind]
            .as_u64()
            .with_context(|| format!("no `{kind}` in {last}"))?;
    }
    Ok(Run {
        rows,
        seconds,
        cpu_seconds,
        high_water_bytes,
    })
}

/// Peak resident size, looked at until the process is gone.
fn watch_memory(status_file: &str) -> u64 {
    let mut peak = 0;
    while let Ok(status) = std::fs::read_to_string(status_file) {
        let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) else {
            break; // a zombie has no memory
        };
        let kibibytes = line
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .unwrap_or(0);
        peak = peak.max(kibibytes << 10);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    peak
}

fn printer(program: &Path, files: &[PathBuf]) -> Command {
    let mut command = Command::new(program);
    command.arg("-vv").args(files).stdin(Stdio::null());
    command
}

/// Seconds for printing all files to nowhere.
fn print_to_null(program: &Path, files: &[PathBuf]) -> Result<f64> {
    let start = Instant::now();
    let status = printer(program, files).stdout(Stdio::null()).status()?;
    if !status.success() {
        bail!("mysqlbinlog ended with {status}");
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Rows that the printer shows.
fn printed_rows(program: &Path, files: &[PathBuf]) -> Result<u64> {
    let mut child = printer(program, files).stdout(Stdio::piped()).spawn()?;
    let mut reader = BufReader::with_capacity(1 << 20, child.stdout.take().context("standard output")?);
    let kinds: [&[u8]; 3] = [b"### INSERT INTO ", b"### UPDATE ", b"### DELETE FROM "];
    let (mut rows, mut line) = (0, Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        rows += u64::from(kinds.iter().any(|kind| line.starts_with(kind)));
        line.clear();
    }
    if !child.wait()?.success() {
        bail!("mysqlbinlog failed");
    }
    Ok(rows)
}
