//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use weir_config::{HumanDuration, Until};

/// Replicates the binlog of MySQL and MariaDB.
///
/// Results go to stdout; logs, progress and errors as text go to stderr.
///
/// Exit status: 0 done, also after SIGTERM; 1 failed; 2 wrong command line or
/// changefeed file; 3 stopped by a definite error in data or settings; 130 interrupted
/// by SIGINT after a clean stop.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Form of the result on stdout.
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// What is logged to stderr: off, error, warn, info, debug or trace, also per module
    /// (`info,weir_source=debug`) [default: info for `run`, else warn].
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs: one object, or one a line for streams.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replays recorded binlog files through the whole pipeline; needs no server
    Quickstart(QuickstartArgs),
    /// Runs one changefeed in the foreground
    Run(RunArgs),
    /// Validates a changefeed file and tries both ends
    Check(CheckArgs),
    /// Looks into binlog files
    #[command(subcommand)]
    Binlog(BinlogCommand),
}

impl Command {
    /// What is logged unless `--log-level` says otherwise: a run of days leaves a trace
    /// of what it did; the others answer on stdout.
    pub(crate) const fn log_level(&self) -> &'static str {
        match self {
            Self::Run(_) => "info,actix_server=warn",
            Self::Quickstart(_) | Self::Check(_) | Self::Binlog(_) => "warn",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct QuickstartArgs {
    /// Folder for source, state and output. An unfinished one is resumed, a finished one
    /// of ours replaced, any other that is not empty refused.
    #[arg(long, default_value = "./weir-quickstart")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Changefeed file (TOML).
    pub(crate) file: PathBuf,
    /// Folder of store and state [default: ./weir-data/ID].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Where to end: `caught-up` (everything the source had at the start), `gtid:SET`,
    /// `file:NAME:OFFSET` or `time:RFC3339`, inclusive. Without it the source is followed
    /// until a signal.
    #[arg(long, value_name = "WHERE")]
    pub(crate) until: Option<String>,
    /// How long the first connections to both ends are tried. Behind them outages are
    /// waited for [default: 30s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) connect_timeout: Option<Duration>,
}

/// A duration as the changefeed file has them.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = HumanDuration::parse(text).ok_or("expected a duration such as `30s` or `500ms`")?;
    Ok(parsed.get())
}

impl RunArgs {
    /// `--until`, read.
    pub(crate) fn until(&self) -> Result<Option<Until>, weir_config::ConfigError> {
        self.until.as_deref().map(str::parse).transpose()
    }
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Changefeed file (TOML).
    pub(crate) file: PathBuf,
    /// Folder of store and state [default: ./weir-data/ID].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BinlogCommand {
    /// Prints events, one a line
    Cat(CatArgs),
    /// Prints counts and bytes per event type and table
    Stat(StatArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// A binlog file, a folder of them, or a `binlog-files://` URI.
    pub(crate) source: String,
    /// Prints row values too, as JSON.
    #[arg(long)]
    pub(crate) rows: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// A binlog file, a folder of them, or a `binlog-files://` URI.
    pub(crate) source: String,
}

/// Whether JSON was asked for on a command line that may be wrong otherwise.
pub(crate) fn wants_json(args: &[OsString]) -> bool {
    let mut previous = "";
    for arg in args.iter().filter_map(|a| a.to_str()) {
        if arg == "--" {
            return false;
        }
        if arg == "--output=json" || (previous == "--output" && arg == "json") {
            return true;
        }
        previous = arg;
    }
    false
}
