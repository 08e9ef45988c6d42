//! `hot-cold`: rows/s that a sink takes under windows per dispatcher ÷ under no window at all, where one hot table is slow
//! at the sink and nineteen cold ones are not; beside them the changefeed-wide fence of ticdc issue 5949.
//!
//! Every cell runs in a process of its own: a store on disk with ten minutes of backlog, then live rows; event service,
//! collector, dispatchers and sink scheduler as in production, twice: the streams of the sink, and redo streams into a
//! consumer of their own speed. Rows cost the sink a fixed time; all bytes are visited. Rates are taken while every table
//! has a backlog, lags when the cold tables have caught up.

mod cell;
mod load;
mod pipeline;
mod sink;
mod table;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::cell::{Cell, Outcome, Policy};

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
    #[arg(long, default_value_t = 16)]
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
            // People see how it goes; with `--json` the headline comes first.
            eprintln!("{}", table::line(&outcome));
            outcomes.push(outcome);
        }
    }
    table::print(&outcomes, arguments.rounds.max(1), arguments.json)
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
    cells.extend([true, false].map(|by_bytes| Cell {
        policy: Policy::PerDispatcher,
        by_bytes,
        slow: false,
        cold_only: true,
    }));
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
