//! `hot-cold`: rows/s that a sink takes under windows per dispatcher ÷ under no window at all, where one hot table is slow
//! at the sink and nineteen cold ones are not; beside them the changefeed-wide fence of ticdc issue 5949.
//!
//! Every cell runs in a process of its own: a store on disk with ten minutes of backlog, then live rows; event service,
//! collector, dispatchers and sink scheduler as in production, twice: the streams of the sink, and redo streams into a
//! consumer of their own speed. Rows cost the sink a fixed time; all bytes are visited.

mod cell;
mod load;
mod pipeline;
mod sink;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use weir_bench::Report;

use crate::cell::{Cell, Outcome, Policy, QUOTA_BYTES};

const COMMAND: &str = "cargo xtask bench hot-cold --json";
const POLICIES: [Policy; 3] = [Policy::PerDispatcher, Policy::GlobalFence, Policy::NoWindow];

#[derive(Parser, Debug)]
struct Arguments {
    /// Folder with the data of other benchmarks; nothing of it is used.
    #[arg(long)]
    data: Option<std::path::PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Length of a cell, seconds; at most 30.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Rounds of all cells, interleaved.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Runs one cell and prints its outcome: what the benchmark calls itself with.
    #[arg(long, hide = true)]
    cell: Option<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let length = Duration::from_secs(arguments.seconds);
    if let Some(text) = &arguments.cell {
        let outcome = cell::run(serde_json::from_str(text)?, length)?;
        println!("{}", serde_json::to_string(&outcome)?);
        return Ok(());
    }
    ensure!(arguments.seconds <= 30, "a round is at most 30 s");
    let mut outcomes = Vec::new();
    for _ in 0..arguments.rounds.max(1) {
        for cell in cells() {
            let outcome = in_child(cell, arguments.seconds)?;
            println!("{}", line(&outcome, arguments.json)?);
            outcomes.push(outcome);
        }
    }
    for report in reports(&outcomes, arguments.rounds.max(1)) {
        report.print(arguments.json);
    }
    Ok(())
}

/// All cells, and the cold tables alone.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for slow in [false, true] {
        for by_bytes in [true, false] {
            cells.extend(POLICIES.map(|policy| Cell {
                policy,
                by_bytes,
                slow,
                cold_only: false,
            }));
        }
    }
    cells.push(Cell {
        policy: Policy::PerDispatcher,
        by_bytes: true,
        slow: false,
        cold_only: true,
    });
    cells
}

fn in_child(cell: Cell, seconds: u64) -> Result<Outcome> {
    let output = Command::new(std::env::current_exe()?)
        .args([
            "--seconds",
            &seconds.to_string(),
            "--cell",
            &serde_json::to_string(&cell)?,
        ])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{cell:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("{cell:?}"))
}

fn line(outcome: &Outcome, json: bool) -> Result<String> {
    if json {
        return Ok(serde_json::to_string(outcome)?);
    }
    let Cell {
        policy,
        by_bytes,
        slow,
        cold_only,
    } = outcome.cell;
    Ok(format!(
        "{:<13} {:<8} {:<7} {:>7.0} rows/s ({:.2} of the sink's), redo {:>7.0}, {:>5.0} scans/s of {:>6.0}, lag hot {} / {} ms, cold {} / {} ms, {} resets, peak {} MiB, fence {:.1} s",
        format!("{policy:?}"),
        if by_bytes { "by-bytes" } else { "by-count" },
        match (cold_only, slow) {
            (true, _) => "no-hot",
            (false, true) => "slow",
            (false, false) => "healthy",
        },
        outcome.rows_per_s,
        outcome.of_capacity,
        outcome.redo_rows_per_s,
        outcome.scans_per_s,
        outcome.events_per_scan,
        outcome.hot_median_ms,
        outcome.hot_p99_ms,
        outcome.cold_median_ms,
        outcome.cold_p99_ms,
        outcome.resets,
        outcome.peak_bytes >> 20,
        outcome.fence_ms / 1_000.0,
    ))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One line per cell of ours and of the fence's, then the headline: the worst cell of ours.
fn reports(outcomes: &[Outcome], rounds: usize) -> Vec<Report> {
    let of = |policy: Policy, by_bytes: bool, slow: bool| -> Vec<&Outcome> {
        let wanted = |outcome: &&Outcome| {
            let cell = outcome.cell;
            !cell.cold_only && (cell.policy, cell.by_bytes, cell.slow) == (policy, by_bytes, slow)
        };
        outcomes.iter().filter(wanted).collect()
    };
    let rate = |outcomes: &[&Outcome]| median(outcomes.iter().map(|one| one.rows_per_s).collect());
    let mut reports = Vec::new();
    let mut worst: Option<Report> = None;
    for (by_bytes, slow) in [(true, false), (false, false), (true, true), (false, true)] {
        let other = of(Policy::NoWindow, by_bytes, slow);
        let name = format!(
            "{}-{}",
            if slow { "slow" } else { "healthy" },
            if by_bytes { "by-bytes" } else { "by-count" }
        );
        for policy in [Policy::GlobalFence, Policy::PerDispatcher] {
            let ours = of(policy, by_bytes, slow);
            let ratios: Vec<f64> = ours
                .iter()
                .zip(&other)
                .map(|(a, b)| a.rows_per_s / b.rows_per_s)
                .collect();
            let kind = if policy == Policy::GlobalFence {
                "fence/"
            } else {
                ""
            };
            let report = Report {
                name: format!("hot-cold/{kind}{name}"),
                ratio: median(ratios.clone()),
                unit: "rows/s".to_owned(),
                ours: rate(&ours),
                other: rate(&other),
                rounds,
                spread: spread(&ratios),
                noise: spread(
                    &other
                        .iter()
                        .map(|one| one.rows_per_s / rate(&other))
                        .collect::<Vec<_>>(),
                ),
                higher_is_better: true,
                command: COMMAND.to_owned(),
                notes: notes(&ours),
            };
            if policy == Policy::PerDispatcher
                && worst.as_ref().is_none_or(|worst| report.ratio < worst.ratio)
            {
                worst = Some(Report {
                    name: "hot-cold".to_owned(),
                    notes: format!("worst cell: {name}; {}", report.notes),
                    ..report.clone()
                });
            }
            reports.push(report);
        }
    }
    reports.extend(worst);
    reports
}

fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    most - least
}

fn notes(outcomes: &[&Outcome]) -> String {
    let most = |value: fn(&Outcome) -> f64| outcomes.iter().map(|one| value(one)).fold(f64::MIN, f64::max);
    format!(
        "{:.2} of what the sink could take; cold tables' lag {:.0} / {:.0} ms (median, p99; worst table); {:.0} resets; peak {:.0} MiB at a quota of {} MiB; fence {:.1} s",
        median(outcomes.iter().map(|one| one.of_capacity).collect()),
        most(|one| one.cold_median_ms as f64),
        most(|one| one.cold_p99_ms as f64),
        most(|one| one.resets as f64),
        most(|one| one.peak_bytes as f64) / f64::from(1 << 20),
        QUOTA_BYTES >> 20,
        most(|one| one.fence_ms) / 1_000.0,
    )
}
