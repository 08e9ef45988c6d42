//! When resting streams are looked at, and how far they may read.

use weir_event_store::StoreReader;
use weir_types::{CommitTs, OrderKey};

use super::{Effect, PASS_INTERVAL_MAX_MS, PASS_STREAMS_PER_MS, REPEAT_CHECK_MS, REPEAT_MS, ServiceCore};
use crate::stream::{Phase, Stream};
use crate::waits::WaitReason;

impl ServiceCore {
    /// More of the store is visible. Streams are looked at with the next pass, which is
    /// now if it is due.
    ///
    /// # Errors
    /// The DDL history cannot be read.
    pub fn resolved_advanced(
        &mut self,
        now_ms: u64,
        resolved: CommitTs,
        store: &dyn StoreReader,
        out: &mut Vec<Effect>,
    ) -> Result<(), weir_event_store::error::StoreError> {
        self.advance(now_ms);
        if resolved > self.resolved {
            let page = store.ddls(OrderKey::end_of(self.resolved), OrderKey::end_of(resolved), 0)?;
            self.recent.extend(page.ddls, OrderKey::end_of(resolved));
            self.resolved = resolved;
            self.pass_due = true;
        }
        self.pass_if_due(store, out);
        Ok(())
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64, store: &dyn StoreReader, out: &mut Vec<Effect>) {
        self.advance(now_ms);
        self.consult_policy();
        self.pass_if_due(store, out);
        if self.now_ms < self.checked_ms + REPEAT_CHECK_MS {
            return;
        }
        self.checked_ms = self.now_ms;
        let silent = |stream: &Stream| self.now_ms >= stream.sent_ms + REPEAT_MS;
        let ids: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, s)| silent(s))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.repeat(id, out);
        }
    }

    /// Milliseconds until the next tick has something to do.
    pub fn next_tick_ms(&self) -> u64 {
        let check = (self.checked_ms + REPEAT_CHECK_MS).saturating_sub(self.now_ms);
        if self.pass_due {
            check.min((self.passed_ms + self.pass_interval_ms()).saturating_sub(self.now_ms))
        } else {
            check
        }
        .max(1)
    }

    fn pass_interval_ms(&self) -> u64 {
        (self.streams.len() as u64 / PASS_STREAMS_PER_MS).min(PASS_INTERVAL_MAX_MS)
    }

    fn pass_if_due(&mut self, store: &dyn StoreReader, out: &mut Vec<Effect>) {
        if !self.pass_due || self.now_ms < self.passed_ms + self.pass_interval_ms() {
            return;
        }
        self.pass_due = false;
        self.passed_ms = self.now_ms;
        let resting =
            |s: &Stream| matches!(s.phase, Phase::Resting) && s.waited.reason() != Some(WaitReason::NoCredit);
        let ids: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, s)| resting(s))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.look(id, store, out);
        }
        self.pump(out);
    }

    /// The place up to which streams may read now.
    pub(super) fn horizon(&self) -> OrderKey {
        OrderKey::end_of(self.config.policy.limit(self.resolved))
    }

    /// Tells the policy where the slowest stream is; streams are looked at if that lets
    /// them read on.
    pub(super) fn consult_policy(&mut self) {
        let slowest = self.streams.values().map(|stream| stream.cursor.commit_ts).min();
        if self.config.policy.observe(self.now_ms, slowest) {
            self.pass_due = true;
        }
    }
}
