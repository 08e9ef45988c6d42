//! The one place where a command meets the pipeline.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_config::{Changefeed, Until};
use weir_server::{CONNECT_TIMEOUT_DEFAULT, Progress, RunOptions, RunSummary, StopReason};

use crate::args::Output;
use crate::outcome::{Failure, Status};
use crate::progress::Bar;
use crate::signals::Signals;

/// State of a changefeed whose `--data-dir` is not given.
pub(crate) fn data_dir(given: Option<&Path>, changefeed: &Changefeed) -> PathBuf {
    match given {
        Some(dir) => dir.to_owned(),
        None => Path::new("weir-data").join(&*changefeed.id.0),
    }
}

/// What a command wants run.
pub(crate) struct Task {
    pub(crate) changefeed: Changefeed,
    pub(crate) data_dir: PathBuf,
    /// Where to end; none: at a signal.
    pub(crate) until: Option<Until>,
    /// How long the first connections are tried; none: as long as usual.
    pub(crate) connect_timeout: Option<Duration>,
}

/// Runs a changefeed until it ends, a signal comes, or it fails. The status is that of
/// the command.
pub(crate) fn run(output: Output, task: Task) -> Result<(RunSummary, Status), Failure> {
    let signals = Signals::watch()?;
    let progress = Arc::new(Progress::default());
    let bar = task
        .until
        .as_ref()
        .and_then(|_| Bar::show(output, Arc::clone(&progress)));
    let ended = weir_server::run(RunOptions {
        changefeed: task.changefeed,
        data_dir: task.data_dir,
        until: task.until,
        connect_timeout: task.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT),
        stop: signals.stop.clone(),
        progress: Some(progress),
    });
    drop(bar);
    let summary = ended.map_err(Failure)?;
    let status = match summary.reason {
        StopReason::Finished => Status::Done,
        StopReason::Stopped => signals.status(),
    };
    Ok((summary, status))
}
