//! SIGTERM and SIGINT: a clean stop. A second one ends the process at once, which loses
//! nothing: every stop is prepared for `kill -9`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::error::CliError;
use crate::outcome::Status;

/// Watches both signals on a thread of its own.
pub(crate) struct Signals {
    /// Turns true at the first signal.
    pub(crate) stop: watch::Receiver<bool>,
    interrupted: Arc<AtomicBool>,
}

impl Signals {
    /// Starts watching.
    pub(crate) fn watch() -> Result<Self, CliError> {
        let (sender, stop) = watch::channel(false);
        let interrupted = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&interrupted);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(CliError::Signals)?;
        let (mut term, mut int) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::terminate()).map_err(CliError::Signals)?,
                signal(SignalKind::interrupt()).map_err(CliError::Signals)?,
            )
        };
        let watching = async move {
            // Two signals at most: the second ends the process.
            for round in 0..2 {
                let status = tokio::select! {
                    _ = term.recv() => Status::Done,
                    _ = int.recv() => Status::Interrupted,
                };
                if round == 1 {
                    std::process::exit(status as i32);
                }
                seen.store(status == Status::Interrupted, Ordering::SeqCst);
                if sender.send(true).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("weir-signals".to_owned())
            .spawn(move || runtime.block_on(watching))
            .map_err(CliError::Signals)?;
        Ok(Self { stop, interrupted })
    }

    /// Exit status of a command that stopped cleanly.
    pub(crate) fn status(&self) -> Status {
        if self.interrupted.load(Ordering::SeqCst) {
            Status::Interrupted
        } else {
            Status::Done
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    /// The only test that raises a signal: a second one would end the test process.
    #[test]
    fn an_interrupt_asks_for_a_clean_stop() {
        let signals = Signals::watch().unwrap();
        assert!(!*signals.stop.borrow());
        assert_eq!(signals.status(), Status::Done);
        let pid = std::process::id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        let deadline = Instant::now() + Duration::from_secs(10);
        while !*signals.stop.borrow() {
            assert!(Instant::now() < deadline, "no stop after SIGINT");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(signals.status(), Status::Interrupted);
    }
}
