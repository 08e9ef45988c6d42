//! A metric that copies a core's counter.

use metrics::Counter;

/// A counter that follows one of a core's, which begins anew with every pipeline. Cores
/// count in plain integers; their actor copies them a few times a second.
pub struct Total {
    handle: Counter,
    copied: u64,
}

impl Total {
    /// Follows a counter that stands at 0.
    pub const fn new(handle: Counter) -> Self {
        Self { handle, copied: 0 }
    }

    /// Adds what `value` has grown by since the last copy.
    pub fn copy(&mut self, value: u64) {
        self.handle.increment(value.saturating_sub(self.copied));
        self.copied = value;
    }
}
