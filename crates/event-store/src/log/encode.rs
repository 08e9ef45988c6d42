//! Inputs as frames of the log.

use std::sync::Arc;

use weir_protocol::store::StoreInput;
use weir_segment::{Codec, FrameAddress};
use weir_types::{AttemptId, CommitTs, OrderKey, Xid};

use super::record::{
    BLOCK, COMMIT, DDL, DdlRecord, FRAGMENT, META, Outcome, PREPARE, VERSION, VersionRecord, head_of,
    put_fragment,
};
use super::writer::LogWriter;
use crate::entry::{Fragment, FragmentRef, clip};
use crate::error::{Result, StoreError};
use crate::state::{Stamp, parts};

/// Bytes of transaction records between two that hold the whole position.
const META_STATE_BYTES: usize = 32 << 10;

/// Addresses that encoding an input gave.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) fragments: Vec<(FragmentRef, FrameAddress)>,
    pub(crate) places: Vec<FrameAddress>,
    pub(crate) meta: FrameAddress,
}

pub(crate) fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|_| StoreError::InvalidInput("a definition that cannot be written"))
}

impl LogWriter {
    pub(crate) fn encode(&mut self, input: &StoreInput, stamp: &mut Stamp) -> Result<Encoded> {
        let mut out = Encoded::default();
        for (id, info) in self.state.catalog.versions_since(stamp.mark) {
            let record = VersionRecord {
                id,
                version: Arc::clone(&info.version),
                last_used: info.last_used,
            };
            self.log.append(VERSION, b"", Codec::Lz4, &json(&record)?)?;
        }
        let parts = parts(input);
        if let Some(attempt) = parts.attempt {
            let refs = self.state.fragment_refs(attempt, parts.blocks, &stamp.ids);
            for (mut at, block) in refs.into_iter().zip(parts.blocks) {
                at.segment = self.number;
                let mut head = Vec::new();
                put_fragment(&mut head, &at);
                let address = self.log.append(FRAGMENT, &head, Codec::Lz4, &block.payload)?;
                at.stored_bytes = address.stored_bytes;
                out.fragments.push((at, address));
            }
        } else {
            for (block, ids) in parts.blocks.iter().zip(&stamp.ids) {
                let head = head_of(block, *ids, stamp).encode();
                out.places
                    .push(self.log.append(BLOCK, &head, Codec::Lz4, &block.payload)?);
            }
        }
        for ddl in parts.ddls {
            let commit_ts = stamp.ts.get(ddl.txn as usize).copied().unwrap_or(CommitTs::ZERO);
            let record = DdlRecord {
                key: OrderKey::new(commit_ts, ddl.ordinal),
                event: Arc::clone(&ddl.event),
            };
            self.log.append(DDL, b"", Codec::Lz4, &json(&record)?)?;
        }
        if let Some((kind, outcome)) = self.outcome(input, stamp, &out.fragments) {
            self.log.append(kind, b"", Codec::Lz4, &outcome.encode())?;
        }
        out.meta = self.encode_meta(stamp)?;
        Ok(out)
    }

    fn encode_meta(&mut self, stamp: &mut Stamp) -> Result<FrameAddress> {
        let Some(meta) = &mut stamp.meta else {
            return Ok(FrameAddress::default());
        };
        let due = self.meta_bytes >= META_STATE_BYTES;
        if due {
            meta.before = Some(self.state.place.clone());
        }
        let body = meta.encode();
        let address = self.log.append(META, b"", Codec::Lz4, &body)?;
        self.meta_bytes = if due { 0 } else { self.meta_bytes + body.len() };
        Ok(address)
    }

    /// The record that shows or keeps an attempt's fragments.
    fn outcome(
        &self,
        input: &StoreInput,
        stamp: &Stamp,
        new: &[(FragmentRef, FrameAddress)],
    ) -> Option<(u8, Outcome)> {
        let of_attempt = |attempt, aborted: &[std::ops::Range<u32>]| {
            let old = self
                .state
                .attempts
                .get(attempt)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let all = old
                .iter()
                .map(|f: &Fragment| &f.at)
                .chain(new.iter().map(|(at, _)| at));
            let clipped = all.filter_map(|at| {
                let aborted = clip(aborted, at.first, at.last)?;
                Some(FragmentRef {
                    aborted,
                    ..at.clone()
                })
            });
            clipped.collect::<Vec<_>>()
        };
        let commit_ts = stamp.single();
        let outcome = |attempt: Option<AttemptId>, xid: Option<&Xid>, fragments| Outcome {
            attempt,
            commit_ts,
            xid: xid.cloned(),
            fragments,
        };
        match input {
            StoreInput::Commit { attempt, aborted, .. } => Some((
                COMMIT,
                outcome(Some(*attempt), None, of_attempt(attempt, aborted)),
            )),
            StoreInput::Prepare {
                attempt,
                xid,
                aborted,
                ..
            } => Some((
                PREPARE,
                outcome(Some(*attempt), Some(xid), of_attempt(attempt, aborted)),
            )),
            StoreInput::CommitPrepared { xid, .. } => {
                let fragments = self.state.prepared.get(xid).into_iter().flatten();
                let fragments = fragments.map(|f| f.at.clone()).collect();
                Some((COMMIT, outcome(None, None, fragments)))
            }
            StoreInput::Group { .. }
            | StoreInput::Fragment { .. }
            | StoreInput::Discard { .. }
            | StoreInput::RollbackPrepared { .. }
            | StoreInput::Tick { .. } => None,
        }
    }
}
