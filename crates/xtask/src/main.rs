//! Developer commands.

mod apt;
mod count;
mod record;
mod rng;
mod scripts;
mod server;
mod tpcc;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser, Debug)]
#[command(name = "cargo xtask", about = "Developer commands of Weir")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Records binlog files from real servers into `integration/data/NAME`.
    Record {
        /// A recording by name, or `all`.
        name: String,
    },
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Task::Record { name } => record::run(&name),
    }
}

/// The folder with the workspace's `Cargo.toml`.
pub(crate) fn workspace_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here
        .ancestors()
        .nth(2)
        .context("the workspace folder")?
        .to_path_buf())
}

/// Cargo's target folder.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let folder = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => workspace_root()?.join("target"),
    };
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Where unpacked servers are kept between runs.
pub(crate) fn services_cache() -> Result<PathBuf> {
    Ok(target_dir()?.join("services"))
}
