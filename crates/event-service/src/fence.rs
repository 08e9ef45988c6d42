//! The changefeed-wide scan window of TiCDC up to its issue 5949: every dispatcher's scan
//! ends at (slowest position of the changefeed + interval), and the interval grows while
//! queues look empty. The benchmark `hot-cold` runs it as the baseline; no setting leads
//! here.
//!
//! Source: the issue (<https://github.com/pingcap/ticdc/issues/5949>), and the rules that
//! came with pull request 4950.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_types::CommitTs;

/// First interval, and the floor that it comes back to.
pub const INTERVAL_START_MS: f64 = 5_000.0;
/// Shortest interval.
pub const INTERVAL_MIN_MS: f64 = 1_000.0;
/// Longest interval.
pub const INTERVAL_MAX_MS: f64 = 1_800_000.0;
/// How often the base is refreshed.
pub const REFRESH_MS: u64 = 1_000;
/// Samples of this time count.
const SAMPLES_MS: u64 = 30_000;
const FAST: f64 = 0.4;
const SLOW: f64 = 0.2;

/// What one service has said.
#[derive(Debug)]
struct Member {
    /// Milliseconds of the slowest position; none without streams.
    slowest_ms: Option<u64>,
    said_ms: u64,
}

#[derive(Debug)]
struct State {
    members: Vec<Member>,
    interval_ms: f64,
    /// When, and which part of the memory was used.
    samples: VecDeque<(u64, f64)>,
    fast: f64,
    slow: f64,
    score: f64,
    changed_ms: u64,
    decreased_ms: Option<u64>,
}

impl State {
    fn limit_ms(&self) -> Option<u64> {
        let slowest = self.members.iter().filter_map(|member| member.slowest_ms).min()?;
        Some(slowest + self.interval_ms as u64)
    }

    fn set(&mut self, now_ms: u64, interval_ms: f64) {
        let interval_ms = interval_ms.clamp(INTERVAL_MIN_MS, INTERVAL_MAX_MS);
        if interval_ms < self.interval_ms {
            self.decreased_ms = Some(now_ms);
        }
        self.changed_ms = now_ms;
        self.interval_ms = interval_ms;
    }

    /// Takes a sample in; the largest and the mean of those that count.
    fn sample(&mut self, now_ms: u64, usage: f64) -> (f64, f64) {
        self.samples.push_back((now_ms, usage));
        while self
            .samples
            .front()
            .is_some_and(|(at, _)| at + SAMPLES_MS < now_ms)
        {
            self.samples.pop_front();
        }
        self.fast += FAST * (usage - self.fast);
        self.slow += SLOW * (usage - self.slow);
        let values = || self.samples.iter().map(|(_, usage)| *usage);
        let mean = values().sum::<f64>() / self.samples.len() as f64;
        let moderate = self.fast >= 0.55 || self.slow >= 0.55 || mean >= 0.55;
        let step = match () {
            () if self.is_high(usage) => 2.0,
            () if moderate => 1.0,
            () if self.fast < 0.30 && self.slow < 0.25 && usage < 0.30 => -1.5,
            () => -0.5,
        };
        self.score = (self.score + step).clamp(0.0, 8.0);
        (values().fold(0.0, f64::max), mean)
    }

    fn is_high(&self, usage: f64) -> bool {
        self.fast >= 0.75 || self.slow >= 0.75 || usage >= 0.70
    }

    /// The first rule that fits gives the new interval.
    fn adapt(&mut self, now_ms: u64, usage: f64) {
        let (most, mean) = self.sample(now_ms, usage);
        let interval = self.interval_ms;
        let since_decrease = self.decreased_ms.map_or(u64::MAX, |at| now_ms.saturating_sub(at));
        let may_brake = since_decrease >= 10_000;
        let enough = self.samples.len() >= 3;
        if usage > 0.98 && may_brake {
            match interval {
                short if short <= 5_000.0 => {
                    if enough && self.fast >= 0.90 {
                        self.set(now_ms, short / 2.0);
                    }
                }
                middle if middle <= 30_000.0 => self.set(now_ms, (middle / 2.0).max(5_000.0)),
                long => self.set(now_ms, (long / 4.0).max(15_000.0)),
            }
        } else if usage > 0.90 && may_brake {
            self.set(now_ms, (interval / 2.0).max(5_000.0));
        } else if self.is_high(usage) && may_brake {
            self.set(now_ms, (interval * 0.75).max(5_000.0));
        } else if self.score >= 3.0 && (self.fast >= 0.55 || self.slow >= 0.55 || mean >= 0.55) && may_brake {
            self.set(now_ms, (interval * 0.9).max(5_000.0));
        } else if interval <= INTERVAL_START_MS && enough && self.is_recovering(usage, mean) {
            if now_ms.saturating_sub(self.changed_ms) >= 5_000 {
                self.set(now_ms, interval * 1.25);
            }
        } else {
            self.grow(now_ms, most, mean, since_decrease);
        }
    }

    fn is_recovering(&self, usage: f64, mean: f64) -> bool {
        usage < 0.35 && mean < 0.55 && self.fast < 0.45 && self.slow < 0.40 && self.score < 1.5
    }

    /// Empty queues are read as room.
    fn grow(&mut self, now_ms: u64, most: f64, mean: f64, since_decrease: u64) {
        let spans = self.samples.front().map_or(0, |(at, _)| now_ms - at);
        let gate = self.samples.len() >= 10
            && spans >= 24_000
            && self.score < 1.0
            && now_ms.saturating_sub(self.changed_ms) >= 30_000
            && since_decrease >= 15_000;
        if !gate {
            return;
        }
        let step = |short: f64, middle: f64, long: f64| match self.interval_ms {
            interval if interval < 60_000.0 => short,
            interval if interval < 120_000.0 => middle,
            _ => long,
        };
        let factor =
            if [most, mean, self.fast, self.slow].iter().all(|one| *one < 0.10) && since_decrease >= 90_000 {
                step(1.5, 1.2, 1.1)
            } else if most < 0.20 && mean < 0.20 && self.fast < 0.23 && self.slow < 0.22 {
                step(1.25, 1.1, 1.05)
            } else {
                return;
            };
        self.set(now_ms, self.interval_ms * factor);
    }
}

/// The fence of a changefeed, shared by the services of its normal and redo streams.
#[derive(Debug)]
pub struct Fence {
    state: Mutex<State>,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                members: Vec::new(),
                interval_ms: INTERVAL_START_MS,
                samples: VecDeque::new(),
                fast: 0.0,
                slow: 0.0,
                score: 0.0,
                changed_ms: 0,
                decreased_ms: None,
            }),
        }
    }
}

impl Fence {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more service that stops at the fence.
    pub fn join(self: &Arc<Self>) -> FenceMember {
        let mut state = self.state();
        state.members.push(Member {
            slowest_ms: None,
            said_ms: 0,
        });
        FenceMember {
            member: state.members.len() - 1,
            fence: Arc::clone(self),
        }
    }

    /// The report of a second: which part of the memory is used (0 to 1).
    pub fn report(&self, now_ms: u64, usage: f64) {
        self.state().adapt(now_ms, usage.clamp(0.0, 1.0));
    }

    /// The present interval, milliseconds.
    pub fn interval_ms(&self) -> f64 {
        self.state().interval_ms
    }
}

/// A service's place at the fence.
#[derive(Clone, Debug)]
pub struct FenceMember {
    fence: Arc<Fence>,
    member: usize,
}

impl FenceMember {
    /// Nothing behind this is read.
    pub fn limit(&self) -> CommitTs {
        let limit = self.fence.state().limit_ms();
        limit.map_or(CommitTs::MAX, |millis| {
            CommitTs(CommitTs::from_millis(millis + 1).0 - 1)
        })
    }

    /// The slowest stream of this service has sent everything up to `slowest`; taken in
    /// once a second. True when it was.
    pub fn observe(&self, now_ms: u64, slowest: Option<CommitTs>) -> bool {
        let mut state = self.fence.state();
        let Some(member) = state.members.get_mut(self.member) else {
            return false;
        };
        let first = member.slowest_ms.is_none();
        if !first && now_ms < member.said_ms + REFRESH_MS {
            return false;
        }
        member.said_ms = now_ms;
        member.slowest_ms = slowest.map(CommitTs::millis);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Option<CommitTs> {
        Some(CommitTs::from_millis(millis))
    }

    #[test]
    fn all_stop_behind_the_slowest_of_all() {
        let fence = Arc::new(Fence::default());
        let (normal, redo) = (fence.join(), fence.join());
        assert_eq!(normal.limit(), CommitTs::MAX, "nobody is there yet");
        assert!(normal.observe(0, at(100_000)));
        assert_eq!(redo.limit().millis(), 105_000);
        assert!(redo.observe(0, at(50_000)));
        assert_eq!(normal.limit().millis(), 55_000);
        assert!(!redo.observe(999, at(60_000)), "once a second");
        assert!(redo.observe(1_000, at(60_000)));
        assert_eq!(normal.limit().millis(), 65_000);
    }

    #[test]
    fn empty_queues_make_it_grow_and_full_ones_shrink() {
        let fence = Fence::default();
        for second in 0..1_300 {
            fence.report(second * 1_000, 0.01);
        }
        assert!(fence.interval_ms() > 120_000.0, "{}", fence.interval_ms());
        let before = fence.interval_ms();
        fence.report(1_300_000, 0.99);
        assert!((fence.interval_ms() - before / 4.0).abs() < 1.0);
    }
}
