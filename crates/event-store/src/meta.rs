//! What the store remembers of each transaction group: commit-ts, GTID, position
//! behind it, XA groups opened or ended. Tokens are made from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_protocol::store::ReadPosition;
use weir_types::gtid::GtidSource;
use weir_types::{CommitTs, Gtid, GtidSet, LineageId, OrderKey, SourceIdentity, SourcePosition, Token, Xid};

use crate::wire::{Input, put, put_bytes};

/// What a transaction group does to the set of prepared XA groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum XaChange {
    None,
    Prepared(Xid),
    Ended(Xid),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetaRecord {
    pub(crate) commit_ts: CommitTs,
    pub(crate) gtid: Option<Gtid>,
    /// In the file of the batch's `upto`.
    pub(crate) end_offset: u64,
    pub(crate) xa: XaChange,
}

/// The records of one input, ascending; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetaBatch {
    pub(crate) records: Vec<MetaRecord>,
    pub(crate) upto: ReadPosition,
    /// State before the first record, in some batches, so that a walk need not begin
    /// at the segment's start.
    pub(crate) before: Option<Checkpoint>,
}

/// State between two transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) position: Option<SourcePosition>,
    pub(crate) open_xa: BTreeSet<Xid>,
}

impl Checkpoint {
    pub(crate) fn apply(&mut self, upto: &ReadPosition, record: &MetaRecord) {
        let position = self.at(upto, record.end_offset);
        if let Some(gtid) = &record.gtid {
            position.gtids.insert(gtid);
        }
        match &record.xa {
            XaChange::None => {}
            XaChange::Prepared(xid) => {
                self.open_xa.insert(xid.clone());
            }
            XaChange::Ended(xid) => {
                self.open_xa.remove(xid);
            }
        }
    }

    fn at(&mut self, upto: &ReadPosition, offset: u64) -> &mut SourcePosition {
        let position = self.position.get_or_insert_with(|| SourcePosition {
            identity: upto.identity.clone(),
            file: Arc::clone(&upto.file),
            offset,
            gtids: GtidSet::default(),
        });
        if position.identity != upto.identity {
            position.identity = upto.identity.clone();
        }
        if position.file != upto.file {
            position.file = Arc::clone(&upto.file);
        }
        position.offset = offset;
        position
    }

    /// The whole batch.
    pub(crate) fn apply_all(&mut self, batch: &MetaBatch) {
        for record in &batch.records {
            self.apply(&batch.upto, record);
        }
        self.at(&batch.upto, batch.upto.offset);
    }
}

impl MetaBatch {
    pub(crate) fn first(&self) -> CommitTs {
        self.records.first().map_or(CommitTs::ZERO, |r| r.commit_ts)
    }

    pub(crate) fn last(&self) -> CommitTs {
        self.records.last().map_or(CommitTs::ZERO, |r| r.commit_ts)
    }
}

/// Walks batches towards a key.
pub(crate) struct TokenWalk {
    lineage: LineageId,
    key: OrderKey,
    state: Checkpoint,
    gtid: Option<Gtid>,
}

impl TokenWalk {
    pub(crate) fn new(lineage: LineageId, key: OrderKey, state: Checkpoint) -> Self {
        Self {
            lineage,
            key,
            state,
            gtid: None,
        }
    }

    /// Whether the walk has arrived.
    pub(crate) fn step(&mut self, batch: &MetaBatch) -> bool {
        let (ts, whole) = (self.key.commit_ts, self.key.ordinal == u32::MAX);
        for record in &batch.records {
            if record.commit_ts > ts {
                return true;
            }
            if record.commit_ts == ts && !whole {
                self.gtid.clone_from(&record.gtid);
                return true;
            }
            self.state.apply(&batch.upto, record);
        }
        self.state.at(&batch.upto, batch.upto.offset);
        false
    }

    pub(crate) fn token(self) -> Token {
        Token {
            lineage: self.lineage,
            key: self.key,
            position: self.state.position,
            gtid: self.gtid.map(|g| g.to_string()),
            open_xa: self.state.open_xa.into_iter().collect(),
        }
    }
}

fn put_identity(out: &mut Vec<u8>, identity: &SourceIdentity) {
    match identity {
        SourceIdentity::Uuid(uuid) => {
            out.push(0);
            out.extend_from_slice(uuid);
        }
        SourceIdentity::Digest(digest) => {
            out.push(1);
            put(out, *digest);
        }
    }
}

fn identity(input: &mut Input<'_>) -> Option<SourceIdentity> {
    Some(match input.number()? {
        0 => SourceIdentity::Uuid(input.take(16)?.try_into().ok()?),
        1 => SourceIdentity::Digest(input.number()?),
        _ => return None,
    })
}

fn put_gtid(out: &mut Vec<u8>, gtid: Option<&Gtid>) {
    match gtid {
        None => out.push(0),
        Some(Gtid::Mysql { source, number }) => {
            out.push(1);
            out.extend_from_slice(&source.uuid);
            put_bytes(out, source.tag.as_bytes());
            put(out, *number);
        }
        Some(Gtid::Mariadb {
            domain,
            server,
            sequence,
        }) => {
            out.push(2);
            put(out, u64::from(*domain));
            put(out, u64::from(*server));
            put(out, *sequence);
        }
    }
}

fn gtid(input: &mut Input<'_>, last_tag: &mut Option<Arc<str>>) -> Option<Option<Gtid>> {
    Some(match input.number()? {
        0 => None,
        1 => {
            let uuid = input.take(16)?.try_into().ok()?;
            let text = input.text()?;
            let tag = match last_tag {
                Some(tag) if **tag == *text => Arc::clone(tag),
                _ => Arc::from(text),
            };
            *last_tag = Some(Arc::clone(&tag));
            let source = GtidSource { uuid, tag };
            let number = input.number()?;
            Some(Gtid::Mysql { source, number })
        }
        2 => Some(Gtid::Mariadb {
            domain: input.small()?,
            server: input.small()?,
            sequence: input.number()?,
        }),
        _ => return None,
    })
}

fn put_checkpoint(out: &mut Vec<u8>, checkpoint: &Checkpoint) {
    out.push(u8::from(checkpoint.position.is_some()));
    if let Some(position) = &checkpoint.position {
        put_identity(out, &position.identity);
        put_bytes(out, position.file.as_bytes());
        put(out, position.offset);
        put_bytes(out, position.gtids.to_string().as_bytes());
    }
    put(out, checkpoint.open_xa.len() as u64);
    for xid in &checkpoint.open_xa {
        put_bytes(out, xid.0.as_bytes());
    }
}

fn checkpoint(input: &mut Input<'_>) -> Option<Checkpoint> {
    let position = match input.number()? {
        0 => None,
        _ => Some(SourcePosition {
            identity: identity(input)?,
            file: Arc::from(input.text()?),
            offset: input.number()?,
            gtids: GtidSet::parse(input.text()?).ok()?,
        }),
    };
    let count = input.count()?;
    let mut open_xa = BTreeSet::new();
    for _ in 0..count {
        open_xa.insert(Xid(Arc::from(input.text()?)));
    }
    Some(Checkpoint { position, open_xa })
}

impl Checkpoint {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_checkpoint(&mut out, self);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input::new(bytes);
        let out = checkpoint(&mut input)?;
        input.is_empty().then_some(out)
    }
}

impl MetaBatch {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.records.len() * 32);
        out.push(u8::from(self.before.is_some()));
        if let Some(before) = &self.before {
            put_checkpoint(&mut out, before);
        }
        put_identity(&mut out, &self.upto.identity);
        put_bytes(&mut out, self.upto.file.as_bytes());
        put(&mut out, self.upto.offset);
        put(&mut out, self.records.len() as u64);
        let mut last = CommitTs::ZERO;
        for record in &self.records {
            put(&mut out, record.commit_ts.0 - last.0);
            last = record.commit_ts;
            put(&mut out, record.end_offset);
            put_gtid(&mut out, record.gtid.as_ref());
            match &record.xa {
                XaChange::None => out.push(0),
                XaChange::Prepared(xid) => {
                    out.push(1);
                    put_bytes(&mut out, xid.0.as_bytes());
                }
                XaChange::Ended(xid) => {
                    out.push(2);
                    put_bytes(&mut out, xid.0.as_bytes());
                }
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input::new(bytes);
        let before = match input.number()? {
            0 => None,
            _ => Some(checkpoint(&mut input)?),
        };
        let upto = ReadPosition {
            identity: identity(&mut input)?,
            file: Arc::from(input.text()?),
            offset: input.number()?,
        };
        let count = input.count()?;
        let mut records = Vec::with_capacity(count);
        let (mut ts, mut tag) = (0_u64, None);
        for _ in 0..count {
            ts = ts.checked_add(input.number()?)?;
            let end_offset = input.number()?;
            let gtid = gtid(&mut input, &mut tag)?;
            let xa = match input.number()? {
                0 => XaChange::None,
                1 => XaChange::Prepared(Xid(Arc::from(input.text()?))),
                2 => XaChange::Ended(Xid(Arc::from(input.text()?))),
                _ => return None,
            };
            records.push(MetaRecord {
                commit_ts: CommitTs(ts),
                gtid,
                end_offset,
                xa,
            });
        }
        (input.is_empty() && !records.is_empty()).then_some(Self {
            records,
            upto,
            before,
        })
    }
}
