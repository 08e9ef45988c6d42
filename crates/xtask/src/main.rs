//! Developer commands.

mod bench;
mod bench_data;
mod count;
mod record;
mod rng;
mod scripts;
mod services;
mod test;
mod tpcc;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
pub(crate) use weir_test_servers::{target_dir, workspace_root};

#[derive(Parser, Debug)]
#[command(name = "cargo xtask", about = "Developer commands of Weir")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Runs all checks and tests; ends with a line `N passed, N failed`.
    ///
    /// The servers of the end-to-end tests are unpacked under `target/services` when they are missing.
    Test {
        /// Formatting, lints, documentation, unit and property tests only.
        #[arg(long)]
        fast: bool,
    },
    /// Records binlog files from real servers into `integration/data/NAME`.
    Record {
        /// A recording by name, or `all`.
        name: String,
    },
    /// Generates the binlog files that the benchmarks read, under `target/bench-data`.
    BenchData {
        /// A shape by name (tpcc, narrow, one-row, mixed20, rows100), or `all`.
        shape: String,
        /// Size in MiB instead of the shape's default.
        #[arg(long)]
        mb: Option<u64>,
    },
    /// Runs one benchmark: decode, store, blackhole.
    Bench {
        /// The benchmark.
        name: String,
        /// Prints one JSON object a line.
        #[arg(long)]
        json: bool,
        /// Arguments for the benchmark itself.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// The test servers by themselves: MySQL and MariaDB, two of each, and Apache Kafka.
    Services {
        #[command(subcommand)]
        action: Services,
    },
}

#[derive(Subcommand, Clone, Copy, Debug)]
enum Services {
    /// Installs what is missing, starts the servers on free loopback ports and prints their addresses.
    Up,
    /// Stops them.
    Down,
    /// Prints their addresses as shell assignments.
    Env,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Cli::parse().command {
        Task::Test { fast } => test::run(fast),
        Task::Record { name } => record::run(&name),
        Task::BenchData { shape, mb } => bench_data::run(&shape, mb),
        Task::Bench {
            name,
            json,
            arguments,
        } => bench::run(&name, json, &arguments),
        Task::Services { action: Services::Up } => services::up(),
        Task::Services {
            action: Services::Down,
        } => services::down(),
        Task::Services {
            action: Services::Env,
        } => services::env(),
    }
}

/// Where unpacked servers are kept between runs.
pub(crate) fn services_cache() -> Result<PathBuf> {
    weir_test_servers::cache_dir()
}
