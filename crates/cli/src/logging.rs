//! Logs on stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Output};
use crate::error::CliError;

/// Sends logs to stderr: lines for people, objects with `--output json`.
pub(crate) fn start(cli: &Cli) -> Result<(), CliError> {
    let given = cli.global.log_level.as_deref();
    let level = given.unwrap_or_else(|| cli.command.log_level());
    let bad = || CliError::LogLevel(level.to_owned());
    // `EnvFilter` takes any word for the name of a module; a single word is a level here.
    let words = level.split(',').map(str::trim);
    for word in words {
        let level = word.rsplit_once('=').map_or(word, |(_, level)| level);
        level
            .parse::<tracing_subscriber::filter::LevelFilter>()
            .map_err(|_| bad())?;
    }
    let filter = EnvFilter::builder().parse(level).map_err(|_| bad())?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match cli.global.output {
        Output::Json => builder.json().try_init(),
        Output::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|_| bad())
}
