//! Time that streams spend waiting, by reason.

/// Why a stream stands still although there is something to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The handshake was not answered by a first grant yet.
    NotReady,
    /// Every granted byte is used.
    NoCredit,
    /// A DDL has not passed yet.
    Barrier,
    /// All scan threads are busy.
    ScanSlot,
}

impl WaitReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::NotReady, Self::NoCredit, Self::Barrier, Self::ScanSlot];

    /// Value of the metric label `reason`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::NoCredit => "no_credit",
            Self::Barrier => "barrier",
            Self::ScanSlot => "scan_slot",
        }
    }
}

/// Waiting time of one stream, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    sum_ms: [u64; WaitReason::ALL.len()],
    since_ms: u64,
    reason: Option<WaitReason>,
}

impl Waited {
    /// Why it waits now.
    pub const fn reason(&self) -> Option<WaitReason> {
        self.reason
    }

    /// The reason is another one from now on.
    pub const fn change(&mut self, now_ms: u64, reason: Option<WaitReason>) {
        if let Some(before) = self.reason {
            self.sum_ms[before as usize] += now_ms.saturating_sub(self.since_ms);
        }
        self.since_ms = now_ms;
        self.reason = reason;
    }

    /// Milliseconds waited for a reason, the present wait included.
    pub fn sum_ms(&self, now_ms: u64, reason: WaitReason) -> u64 {
        let now = if self.reason == Some(reason) {
            now_ms.saturating_sub(self.since_ms)
        } else {
            0
        };
        self.sum_ms[reason as usize] + now
    }
}

/// Sums waiting time over all streams. Time is moved on from outside.
#[derive(Clone, Debug, Default)]
pub struct WaitClock {
    waiting: [u64; WaitReason::ALL.len()],
    sum_ms: [u64; WaitReason::ALL.len()],
    now_ms: u64,
}

impl WaitClock {
    /// Moves on to `now_ms`; earlier times change nothing.
    pub fn advance(&mut self, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.now_ms);
        if passed == 0 {
            return;
        }
        self.now_ms = now_ms;
        for (sum, waiting) in self.sum_ms.iter_mut().zip(self.waiting) {
            *sum += waiting * passed;
        }
    }

    /// A stream's reason changes.
    pub fn change(&mut self, from: Option<WaitReason>, to: Option<WaitReason>) {
        if let Some(from) = from {
            self.waiting[from as usize] -= 1;
        }
        if let Some(to) = to {
            self.waiting[to as usize] += 1;
        }
    }

    /// Milliseconds waited, summed over streams.
    pub const fn sum_ms(&self, reason: WaitReason) -> u64 {
        self.sum_ms[reason as usize]
    }

    /// Streams that wait now.
    pub const fn waiting(&self, reason: WaitReason) -> u64 {
        self.waiting[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_sums_its_own_time() {
        let mut waited = Waited::default();
        waited.change(100, Some(WaitReason::NoCredit));
        assert_eq!(waited.sum_ms(130, WaitReason::NoCredit), 30);
        waited.change(150, Some(WaitReason::Barrier));
        waited.change(160, None);
        waited.change(200, Some(WaitReason::NoCredit));
        assert_eq!(waited.sum_ms(205, WaitReason::NoCredit), 55);
        assert_eq!(waited.sum_ms(205, WaitReason::Barrier), 10);
        assert_eq!(waited.reason(), Some(WaitReason::NoCredit));
    }

    #[test]
    fn time_counts_per_waiting_stream() {
        let mut clock = WaitClock::default();
        clock.advance(100);
        clock.change(None, Some(WaitReason::NoCredit));
        clock.change(None, Some(WaitReason::NoCredit));
        clock.advance(150);
        clock.change(Some(WaitReason::NoCredit), Some(WaitReason::Barrier));
        clock.advance(140);
        clock.advance(160);
        assert_eq!(clock.sum_ms(WaitReason::NoCredit), 110);
        assert_eq!(clock.sum_ms(WaitReason::Barrier), 10);
        assert_eq!(clock.waiting(WaitReason::NoCredit), 1);
    }
}
