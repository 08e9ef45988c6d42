//! Bytes on the way from the source to the store.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    stopped: bool,
}

/// A window in bytes, shared by the reading thread (takes) and the actor (gives back).
#[derive(Debug)]
pub(crate) struct Window {
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Window {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and takes it; gives the time waited. Something larger than the
    /// window passes when nothing else is on the way. None after a stop.
    pub(crate) fn take(&self, bytes: usize) -> Option<Duration> {
        let mut state = self.lock();
        let mut since = None;
        while !state.stopped && state.in_flight > 0 && state.in_flight.saturating_add(bytes) > self.limit {
            since.get_or_insert_with(Instant::now);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped {
            return None;
        }
        state.in_flight += bytes;
        Some(since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(bytes);
        self.changed.notify_all();
    }

    /// Wakes everybody up for good.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Waits until nothing is on the way; false after a stop.
    pub(crate) fn wait_empty(&self) -> bool {
        let mut state = self.lock();
        while !state.stopped && state.in_flight > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.stopped
    }

    /// Sleeps, unless stopped.
    pub(crate) fn sleep(&self, time: Duration) {
        let state = self.lock();
        let _woken = self
            .changed
            .wait_timeout_while(state, time, |state| !state.stopped);
    }

    /// Bytes on the way.
    pub(crate) fn in_flight(&self) -> usize {
        self.lock().in_flight
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_larger_than_the_window_passes_alone() {
        let window = Arc::new(Window::new(10));
        assert!(window.take(25).is_some());
        assert_eq!(window.in_flight(), 25);
        let other = Arc::clone(&window);
        let waiting = std::thread::spawn(move || other.take(1));
        window.give_back(25);
        assert!(waiting.join().expect("no panic").is_some());
        assert_eq!(window.in_flight(), 1);
    }

    #[test]
    fn a_stop_wakes_who_waits() {
        let window = Arc::new(Window::new(1));
        assert!(window.take(1).is_some());
        let other = Arc::clone(&window);
        let waiting = std::thread::spawn(move || (other.take(1), other.wait_empty()));
        window.stop();
        assert_eq!(waiting.join().expect("no panic"), (None, false));
    }
}
