//! What a live stream may say next.

use weir_protocol::collector::{StreamBody, StreamMessage};
use weir_protocol::dispatcher::{Deliver, Delivery};
use weir_types::{CommitTs, DispatcherId, OrderKey, SeqNo};

use super::{CollectorCore, Effect, Phase, ResetReason};

impl CollectorCore {
    pub(super) fn handshake(&mut self, id: DispatcherId, message: &StreamMessage, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let StreamBody::Handshake { after } = message.body else {
            // Overtook the handshake: it comes again with the next repetition.
            self.counters.ignored += 1;
            return;
        };
        if message.seq != SeqNo(1) || after != stream.accepted {
            self.counters.ignored += 1;
            return;
        }
        stream.phase = Phase::Live {
            service: message.service,
            last: message.seq,
        };
        stream.heard_ms = self.now_ms;
        self.registering -= 1;
        self.ledger.confirm_epoch(id, &mut self.grants);
        self.register(out);
    }

    pub(super) fn live(
        &mut self,
        id: DispatcherId,
        last: SeqNo,
        message: StreamMessage,
        out: &mut Vec<Effect>,
    ) {
        match message.body {
            StreamBody::Batch(batch) => {
                if self.is_next(id, last, message.seq, batch.first, out) {
                    self.counters.events += batch.events as u64;
                    self.counters.bytes += batch.bytes as u64;
                    self.moved(id, message.seq, batch.last);
                    self.ledger
                        .accept(id, batch.bytes as u64, batch.lane, &mut self.grants);
                    deliver(id, Delivery::Batch(batch), out);
                }
            }
            StreamBody::Ddl { key, event } => {
                if self.is_next(id, last, message.seq, key, out) {
                    self.moved(id, message.seq, key);
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.barrier = Some(key);
                    }
                    deliver(id, Delivery::Ddl { key, event }, out);
                }
            }
            StreamBody::Resolved {
                resolved,
                returned_bytes,
                grant_seq,
            } => {
                self.ledger.give_back(id, returned_bytes, &mut self.grants);
                if self.is_current(id, last, message.seq, out) {
                    self.resolve(id, resolved, out);
                    if self.ledger.is_behind(id, grant_seq) {
                        self.regrant(id);
                    }
                }
            }
            StreamBody::Demand {
                needs_bytes,
                returned_bytes,
                grant_seq,
            } => {
                self.ledger.give_back(id, returned_bytes, &mut self.grants);
                if self.is_current(id, last, message.seq, out)
                    && !self.ledger.demand(id, needs_bytes, grant_seq, &mut self.grants)
                {
                    self.regrant(id);
                }
            }
            // Accepted before: the first grant was lost.
            StreamBody::Handshake { .. } => self.regrant(id),
            StreamBody::Failed(report) => {
                if self.is_current(id, last, message.seq, out)
                    && let Some(stream) = self.streams.get_mut(&id)
                {
                    stream.phase = Phase::Failed;
                    deliver(id, Delivery::Failed(report), out);
                }
            }
            StreamBody::Unknown => self.reset(id, ResetReason::Unknown, out),
        }
    }

    /// Whether an event is exactly the next one; a gap makes a reset.
    fn is_next(
        &mut self,
        id: DispatcherId,
        last: SeqNo,
        seq: SeqNo,
        first: OrderKey,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(stream) = self.streams.get(&id) else {
            return false;
        };
        if seq <= last {
            self.counters.ignored += 1;
            return false;
        }
        let reason = if seq.0 != last.0 + 1 {
            ResetReason::Gap
        } else if first <= stream.accepted || stream.barrier.is_some() {
            ResetReason::Order
        } else {
            return true;
        };
        self.reset(id, reason, out);
        false
    }

    /// Whether everything before a message without a seq of its own was accepted.
    fn is_current(&mut self, id: DispatcherId, last: SeqNo, seq: SeqNo, out: &mut Vec<Effect>) -> bool {
        if seq > last {
            self.reset(id, ResetReason::Gap, out);
        } else if seq < last {
            self.counters.ignored += 1;
        }
        seq == last
    }

    fn moved(&mut self, id: DispatcherId, seq: SeqNo, key: OrderKey) {
        if let Some(stream) = self.streams.get_mut(&id) {
            if let Phase::Live { last, .. } = &mut stream.phase {
                *last = seq;
            }
            stream.accepted = key;
            stream.passed = None;
            stream.attempt = 0;
        }
    }

    fn resolve(&mut self, id: DispatcherId, resolved: CommitTs, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if resolved <= stream.resolved {
            return;
        }
        let end = OrderKey::end_of(resolved);
        if stream.passed.is_some_and(|passed| end >= passed.key) {
            stream.passed = None;
        }
        stream.resolved = resolved;
        stream.accepted = stream.accepted.max(end);
        stream.attempt = 0;
        deliver(id, Delivery::Resolved(resolved), out);
    }
}

fn deliver(dispatcher: DispatcherId, delivery: Delivery, out: &mut Vec<Effect>) {
    out.push(Effect::Deliver(Deliver { dispatcher, delivery }));
}
