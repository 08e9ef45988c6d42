//! Ends what the reading thread is blocked in: a read from the server, or a pause.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_wire::Closer;

#[derive(Default)]
struct State {
    stopped: bool,
    closer: Option<Closer>,
}

/// Shared by the reading thread and whoever may stop it.
#[derive(Clone, Default)]
pub struct Interrupt {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Interrupt {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the connection that a stop is to close. It is closed at once if the stop
    /// came before.
    pub(crate) fn watch(&self, closer: Closer) {
        let mut state = self.lock();
        if state.stopped {
            closer.close();
        }
        state.closer = Some(closer);
    }

    /// For good.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        if let Some(closer) = state.closer.take() {
            closer.close();
        }
        self.shared.1.notify_all();
    }

    /// Whether the stop came.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Sleeps, unless stopped.
    pub(crate) fn sleep(&self, time: Duration) {
        let state = self.lock();
        let _woken = self
            .shared
            .1
            .wait_timeout_while(state, time, |state| !state.stopped);
    }
}
