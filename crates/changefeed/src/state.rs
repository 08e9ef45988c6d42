//! States of a changefeed and its backoff. The restart unit is the pipeline: what this
//! machine asks for is always "stop all of it" or "build all of it from the checkpoint".
//! Pure: time and randomness are parameters.

use weir_types::{ErrorClass, ErrorReport, Generation};

/// First wait after a failure, milliseconds.
pub const BACKOFF_MIN_MS: u64 = 10_000;
/// Longest wait, milliseconds.
pub const BACKOFF_MAX_MS: u64 = 600_000;
/// A broken invariant is tried this often without progress; then a person has to look.
pub const BUG_ATTEMPTS_MAX: u32 = 3;

/// What the operator sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Running.
    Normal,
    /// Being built: no progress yet in this generation.
    Pending,
    /// Backing off.
    Warning {
        /// Why.
        reason: ErrorReport,
        /// Next attempt, milliseconds on the caller's clock.
        retry_at_ms: u64,
    },
    /// Needs a person.
    Failed(ErrorReport),
    /// Stopped by an operator.
    Stopped,
    /// Reached its end.
    Finished,
    /// Taken away; nothing follows.
    Removed,
}

impl State {
    /// Name in metrics and the API.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Pending => "pending",
            Self::Warning { .. } => "warning",
            Self::Failed(_) => "failed",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Removed => "removed",
        }
    }
}

/// What the owner is to do with the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Build it bottom-up from the checkpoint.
    Start(Generation),
    /// Stop it and wait for all exits.
    Stop,
}

/// State of one changefeed.
#[derive(Clone, Debug)]
pub struct StateMachine {
    state: State,
    generation: Generation,
    /// Failures since the last progress.
    attempts: u32,
}

impl StateMachine {
    /// A changefeed that does not run. `last` is the last generation that ran.
    pub const fn new(last: Generation) -> Self {
        Self {
            state: State::Stopped,
            generation: last,
            attempts: 0,
        }
    }

    /// The state.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The generation that runs, or ran last.
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The operator starts or resumes it.
    pub fn resume(&mut self) -> Option<Command> {
        match self.state {
            State::Stopped | State::Failed(_) | State::Warning { .. } => {
                self.attempts = 0;
                Some(self.start())
            }
            State::Normal | State::Pending | State::Finished | State::Removed => None,
        }
    }

    /// The checkpoint has moved: the generation works, the backoff begins anew.
    pub fn progress(&mut self) {
        if matches!(self.state, State::Pending | State::Normal) {
            self.state = State::Normal;
            self.attempts = 0;
        }
    }

    /// The pipeline failed. `random` is any number, for the jitter.
    pub fn failed(&mut self, error: ErrorReport, now_ms: u64, random: u64) -> Option<Command> {
        if !matches!(self.state, State::Normal | State::Pending) {
            return None;
        }
        self.attempts = self.attempts.saturating_add(1);
        let again = match error.class {
            ErrorClass::Transient => true,
            ErrorClass::Bug => self.attempts < BUG_ATTEMPTS_MAX,
            ErrorClass::Table | ErrorClass::Changefeed | ErrorClass::Usage => false,
        };
        self.state = if again {
            State::Warning {
                reason: error,
                retry_at_ms: now_ms.saturating_add(backoff_ms(self.attempts, random)),
            }
        } else {
            State::Failed(error)
        };
        Some(Command::Stop)
    }

    /// Time has come to `now_ms`.
    pub fn tick(&mut self, now_ms: u64) -> Option<Command> {
        match self.state {
            State::Warning { retry_at_ms, .. } if now_ms >= retry_at_ms => Some(self.start()),
            _ => None,
        }
    }

    /// The operator stops it.
    pub fn stop(&mut self) -> Option<Command> {
        let running = self.is_running();
        if !matches!(self.state, State::Finished | State::Removed) {
            self.state = State::Stopped;
        }
        running.then_some(Command::Stop)
    }

    /// It has reached its end.
    pub fn finish(&mut self) -> Option<Command> {
        let running = self.is_running();
        if running {
            self.state = State::Finished;
        }
        running.then_some(Command::Stop)
    }

    /// The operator takes it away.
    pub fn remove(&mut self) -> Option<Command> {
        let running = self.is_running();
        self.state = State::Removed;
        running.then_some(Command::Stop)
    }

    const fn is_running(&self) -> bool {
        matches!(self.state, State::Normal | State::Pending)
    }

    fn start(&mut self) -> Command {
        self.generation = Generation(self.generation.0.saturating_add(1));
        self.state = State::Pending;
        Command::Start(self.generation)
    }
}

/// Wait before the next attempt: doubles from 10 s to 10 min, of which the last quarter
/// is random, so that many changefeeds do not come back at once.
pub fn backoff_ms(attempts: u32, random: u64) -> u64 {
    let doublings = attempts.saturating_sub(1).min(16);
    let full = (BACKOFF_MIN_MS << doublings).min(BACKOFF_MAX_MS);
    let fixed = full - full / 4;
    fixed + random % (full / 4 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(class: ErrorClass) -> ErrorReport {
        ErrorReport {
            class,
            code: "WEIR-TST-001",
            message: "broken".to_owned(),
            action: "repair".to_owned(),
        }
    }

    fn running() -> StateMachine {
        let mut machine = StateMachine::new(Generation(6));
        assert_eq!(machine.resume(), Some(Command::Start(Generation(7))));
        assert_eq!(machine.state().name(), "pending");
        machine.progress();
        assert_eq!(machine.state(), &State::Normal);
        machine
    }

    #[test]
    fn backoff_doubles_within_bounds_and_jitters() {
        assert!((7_500..=10_000).contains(&backoff_ms(1, 12_345)));
        assert!((15_000..=20_000).contains(&backoff_ms(2, u64::MAX)));
        assert!((450_000..=600_000).contains(&backoff_ms(40, 7)));
        assert_ne!(backoff_ms(3, 1), backoff_ms(3, 2));
    }

    #[test]
    fn transient_failures_back_off_until_progress() {
        let mut machine = running();
        assert_eq!(
            machine.failed(error(ErrorClass::Transient), 1_000, 0),
            Some(Command::Stop)
        );
        assert_eq!(machine.state().name(), "warning");
        assert_eq!(machine.failed(error(ErrorClass::Transient), 1_001, 0), None);
        assert_eq!(machine.tick(8_499), None);
        assert_eq!(machine.tick(8_500), Some(Command::Start(Generation(8))));
        machine.failed(error(ErrorClass::Transient), 10_000, 0);
        assert_eq!(machine.tick(24_999), None, "the second wait is longer");
        assert_eq!(machine.tick(25_000), Some(Command::Start(Generation(9))));
        machine.progress();
        machine.failed(error(ErrorClass::Transient), 30_000, 0);
        assert_eq!(machine.tick(37_500), Some(Command::Start(Generation(10))));
    }

    #[test]
    fn definite_errors_fail_at_once_and_bugs_after_three() {
        for class in [ErrorClass::Changefeed, ErrorClass::Usage, ErrorClass::Table] {
            let mut machine = running();
            machine.failed(error(class), 0, 0);
            assert_eq!(machine.state().name(), "failed");
            assert_eq!(machine.tick(u64::MAX), None);
            assert!(matches!(machine.resume(), Some(Command::Start(_))));
        }
        let mut machine = running();
        for attempt in 1..=BUG_ATTEMPTS_MAX {
            machine.failed(error(ErrorClass::Bug), 0, 0);
            let expected = if attempt < BUG_ATTEMPTS_MAX {
                "warning"
            } else {
                "failed"
            };
            assert_eq!(machine.state().name(), expected);
            machine.tick(u64::MAX);
        }
    }

    #[test]
    fn ends_are_final() {
        let mut machine = running();
        assert_eq!(machine.finish(), Some(Command::Stop));
        assert_eq!(machine.resume(), None);
        assert_eq!(machine.remove(), None);
        assert_eq!(machine.state(), &State::Removed);
        let mut machine = running();
        assert_eq!(machine.stop(), Some(Command::Stop));
        assert_eq!(machine.failed(error(ErrorClass::Bug), 0, 0), None);
        assert!(matches!(machine.resume(), Some(Command::Start(_))));
        assert_eq!(machine.remove(), Some(Command::Stop));
        assert_eq!(machine.resume(), None);
    }
}
