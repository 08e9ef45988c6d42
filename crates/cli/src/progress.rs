//! Progress bar on stderr, only where a person looks.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use weir_server::Progress;

use crate::args::Output;

/// Time between two looks at the counters.
const REFRESH: Duration = Duration::from_millis(100);

/// A bar that follows the counters of a run until it is dropped.
pub(crate) struct Bar {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Shows a bar; none if stderr is no terminal or the output is for programs.
    pub(crate) fn show(output: Output, progress: Arc<Progress>) -> Option<Self> {
        if output == Output::Json || !std::io::stderr().is_terminal() {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("weir-progress".to_owned())
            .spawn(move || draw(&progress, &stopped))
            .ok()?;
        Some(Self {
            stop,
            thread: Some(thread),
        })
    }
}

fn draw(progress: &Progress, stop: &AtomicBool) {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    while !stop.load(Ordering::Relaxed) {
        bar.set_length(Progress::get(&progress.bytes_total));
        bar.set_position(Progress::get(&progress.bytes_read));
        bar.set_message(format!("{} rows", Progress::get(&progress.rows)));
        std::thread::sleep(REFRESH);
    }
    bar.finish_and_clear();
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the progress bar ended unexpectedly");
        }
    }
}
