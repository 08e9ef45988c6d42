//! What streams tell the collector.

use weir_event_store::StoreReader;
use weir_protocol::collector::{StreamBody, StreamMessage};
use weir_types::{DispatcherId, Epoch, ErrorReport, SeqNo, TableName};

use super::{Effect, ServiceCore};
use crate::error::ServiceError;
use crate::stream::{Phase, Stream};
use crate::waits::WaitReason;

impl ServiceCore {
    /// Nothing to send: resolved goes out, credit beyond the share goes back.
    pub(super) fn rest(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        let resolved = self.horizon().commit_ts;
        self.set_wait(id, None);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.credit.give_back();
        if resolved > stream.resolved_sent || stream.credit.returned > stream.returned_sent {
            stream.resolved_sent = stream.resolved_sent.max(resolved);
            self.send_resolved(id, out);
        }
    }

    pub(super) fn give_back(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.credit.give_back();
        if stream.credit.returned > stream.returned_sent {
            self.send_resolved(id, out);
        }
    }

    /// Asks for credit, once per grant.
    pub(super) fn demand(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        self.set_wait(id, Some(WaitReason::NoCredit));
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.credit.give_back();
        let grant_seq = stream.credit.grant_seq;
        if stream.demanded == Some(grant_seq) && stream.credit.returned == stream.returned_sent {
            return;
        }
        self.send_demand(id, out);
    }

    fn send_demand(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.demanded = Some(stream.credit.grant_seq);
        stream.returned_sent = stream.credit.returned;
        let body = StreamBody::Demand {
            needs_bytes: stream.needs,
            returned_bytes: stream.credit.returned,
            grant_seq: stream.credit.grant_seq,
        };
        let seq = stream.seq;
        self.counters.demands += 1;
        self.send(id, seq, body, out);
    }

    fn send_resolved(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.returned_sent = stream.credit.returned;
        let body = StreamBody::Resolved {
            resolved: stream.resolved_sent,
            returned_bytes: stream.credit.returned,
            grant_seq: stream.credit.grant_seq,
        };
        let seq = stream.seq;
        self.counters.resolved += 1;
        self.send(id, seq, body, out);
    }

    /// Says again what the stream said last.
    pub(super) fn repeat(&mut self, id: DispatcherId, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        match &stream.phase {
            Phase::Unconfirmed => {
                let after = stream.start;
                self.send(id, SeqNo(1), StreamBody::Handshake { after }, out);
            }
            Phase::Failed(report) => {
                let (seq, report) = (stream.seq, report.clone());
                self.send(id, seq, StreamBody::Failed(report), out);
            }
            Phase::Resting if stream.waited.reason() == Some(WaitReason::NoCredit) => {
                self.send_demand(id, out);
            }
            Phase::Resting | Phase::Queued | Phase::Scanning | Phase::Barrier(_) => {
                self.send_resolved(id, out);
            }
        }
    }

    /// A stream that the store cannot serve from its start fails. An idle table is never
    /// scanned, which would find it out.
    pub(super) fn check_start(&mut self, id: DispatcherId, store: &dyn StoreReader, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let failed = stream
            .span
            .behind(stream.cursor)
            .find_map(|(table, after)| store.check_start(table, after).err());
        if let Some(error) = failed {
            self.fail(id, ErrorReport::new(&error), out);
        }
    }

    /// The store has given a table up: its streams fail now, also those that wait for
    /// credit and would not scan.
    pub fn detached(
        &mut self,
        now_ms: u64,
        table: &TableName,
        store: &dyn StoreReader,
        out: &mut Vec<Effect>,
    ) {
        self.advance(now_ms);
        let of_table = |stream: &Stream| {
            let confirmed = !matches!(stream.phase, Phase::Unconfirmed | Phase::Failed(_));
            confirmed && stream.span.tables().any(|name| name == table)
        };
        let streams = self.streams.iter().filter(|(_, stream)| of_table(stream));
        let ids: Vec<_> = streams.map(|(id, _)| *id).collect();
        for id in ids {
            self.check_start(id, store, out);
        }
    }

    pub(super) fn too_large(
        &mut self,
        id: DispatcherId,
        table: Option<TableName>,
        bytes: u64,
        out: &mut Vec<Effect>,
    ) {
        let error = ServiceError::RowTooLarge {
            table: table.unwrap_or_else(|| TableName::new("", "")),
            bytes,
            limit: self.config.max_row_bytes,
        };
        self.fail(id, ErrorReport::new(&error), out);
    }

    pub(super) fn fail(&mut self, id: DispatcherId, report: ErrorReport, out: &mut Vec<Effect>) {
        self.set_wait(id, None);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Failed(report);
            self.repeat(id, out);
        }
    }

    pub(super) fn send(&mut self, id: DispatcherId, seq: SeqNo, body: StreamBody, out: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.sent_ms = self.now_ms;
        out.push(Effect::Send(StreamMessage {
            dispatcher: id,
            epoch: stream.epoch,
            service: self.config.incarnation,
            seq,
            body,
        }));
    }

    pub(super) fn unknown(&self, dispatcher: DispatcherId, epoch: Epoch, out: &mut Vec<Effect>) {
        out.push(Effect::Send(StreamMessage {
            dispatcher,
            epoch,
            service: self.config.incarnation,
            seq: SeqNo(0),
            body: StreamBody::Unknown,
        }));
    }
}
