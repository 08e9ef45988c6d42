//! The writer's state, common to both stores: gives commit-ts and numbers, checks
//! inputs, follows attempts, prepared XA groups, position and schema.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::store::{GroupDdl, ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_segment::FrameAddress;
use weir_types::{
    AttemptId, Block, BlockBuilder, CommitClock, CommitTs, OrderKey, SourcePosition, TableName, Xid,
};

use crate::catalog::{Catalog, CatalogMark, TableId, VersionId};
use crate::contract::Recovered;
use crate::entry::{Batch, Entry, Fragment, FragmentRef, NewRows, Place, clip, entry_of, stamp_block};
use crate::error::{Result, StoreError};
use crate::history::SchemaHistory;
use crate::meta::{Checkpoint, MetaBatch, MetaRecord, XaChange};
use crate::slice::without;
use crate::split::split_large;

/// Commit-ts and numbers given to one input; counts only once the input is absorbed.
pub(crate) struct Stamp {
    clock: CommitClock,
    pub(crate) ts: Vec<CommitTs>,
    /// Per block.
    pub(crate) ids: Vec<(TableId, VersionId)>,
    pub(crate) mark: CatalogMark,
    pub(crate) meta: Option<MetaBatch>,
}

impl Stamp {
    /// Commit-ts of an input that is one transaction.
    pub(crate) fn single(&self) -> CommitTs {
        self.ts.first().copied().unwrap_or(CommitTs::ZERO)
    }
}

pub(crate) struct WriterState {
    pub(crate) clock: CommitClock,
    pub(crate) place: Checkpoint,
    pub(crate) catalog: Catalog,
    pub(crate) attempts: HashMap<AttemptId, Vec<Fragment>>,
    pub(crate) prepared: BTreeMap<Xid, Vec<Fragment>>,
    pub(crate) next_attempt: AttemptId,
    pub(crate) history: SchemaHistory,
    /// Detached tables: what comes of them is not stored.
    given_up: HashSet<TableName>,
    /// Blocks of attempts stay in memory.
    pub(crate) keep_blocks: bool,
}

/// Blocks, DDL and position of an input.
pub(crate) struct Parts<'a> {
    pub(crate) blocks: &'a [BlockBuilder],
    pub(crate) ddls: &'a [GroupDdl],
    pub(crate) attempt: Option<AttemptId>,
}

pub(crate) fn parts(input: &StoreInput) -> Parts<'_> {
    let (blocks, ddls, attempt): (&[BlockBuilder], &[GroupDdl], _) = match input {
        StoreInput::Group { group, .. } => (&group.blocks, &group.ddls, None),
        StoreInput::Fragment { attempt, blocks } => (blocks, &[], Some(*attempt)),
        StoreInput::Commit {
            attempt,
            blocks,
            ddls,
            ..
        }
        | StoreInput::Prepare {
            attempt,
            blocks,
            ddls,
            ..
        } => (blocks, ddls, Some(*attempt)),
        StoreInput::Discard { attempt } => (&[], &[], Some(*attempt)),
        StoreInput::CommitPrepared { .. } | StoreInput::RollbackPrepared { .. } | StoreInput::Tick { .. } => {
            (&[], &[], None)
        }
    };
    Parts {
        blocks,
        ddls,
        attempt,
    }
}

/// The block of whole transactions, its payload moved.
fn finish(builder: BlockBuilder, ts: &[CommitTs]) -> Block {
    let at = |txn: u32| ts.get(txn as usize).copied().unwrap_or(CommitTs::ZERO);
    let mut payload = builder.payload;
    if payload.capacity() / 2 > payload.len() {
        payload.shrink_to_fit();
    }
    Block {
        txns: builder.txns.iter().map(|t| at(*t)).collect(),
        payload,
        events: builder.events,
        first: OrderKey::new(at(builder.first.0), builder.first.1),
        last: OrderKey::new(at(builder.last.0), builder.last.1),
        version: builder.version,
    }
}

fn check_blocks(blocks: &[BlockBuilder], txns: usize) -> Result<()> {
    for block in blocks {
        let ascending = block.txns.windows(2).all(|w| w[0] < w[1]);
        let last = block.txns.last().map(|t| *t as usize);
        if !ascending || last.is_none_or(|t| t >= txns) || block.first.0 as usize >= txns {
            return Err(StoreError::InvalidInput(
                "a block's transactions are not its group's",
            ));
        }
        if u32::try_from(block.payload.len()).is_err() {
            return Err(StoreError::InvalidInput("a block is larger than 4 GiB"));
        }
    }
    Ok(())
}

fn one_record(meta: &TxnMeta, ts: CommitTs, xa: XaChange, upto: &ReadPosition) -> MetaBatch {
    MetaBatch {
        records: vec![MetaRecord {
            commit_ts: ts,
            gtid: meta.gtid.clone(),
            end_offset: meta.end_offset,
            xa,
        }],
        upto: upto.clone(),
        before: None,
    }
}

impl WriterState {
    pub(crate) fn new(start: Option<SourcePosition>, keep_blocks: bool) -> Self {
        Self {
            clock: CommitClock::new(CommitTs::ZERO),
            place: Checkpoint {
                position: start,
                ..Checkpoint::default()
            },
            catalog: Catalog::default(),
            attempts: HashMap::new(),
            prepared: BTreeMap::new(),
            next_attempt: AttemptId(1),
            history: SchemaHistory::default(),
            given_up: HashSet::new(),
            keep_blocks,
        }
    }

    /// Nothing of the table is taken any more.
    pub(crate) fn give_up(&mut self, table: &TableName) {
        self.given_up.insert(table.clone());
    }

    /// Takes out what is not stored, and splits what is large.
    pub(crate) fn prepare(&self, input: &mut StoreInput) {
        let blocks = match input {
            StoreInput::Group { group, .. } => &mut group.blocks,
            StoreInput::Fragment { blocks, .. }
            | StoreInput::Commit { blocks, .. }
            | StoreInput::Prepare { blocks, .. } => blocks,
            StoreInput::Discard { .. }
            | StoreInput::CommitPrepared { .. }
            | StoreInput::RollbackPrepared { .. }
            | StoreInput::Tick { .. } => return,
        };
        if !self.given_up.is_empty() {
            blocks.retain(|block| !self.given_up.contains(&block.version.name));
        }
        split_large(blocks);
    }

    fn check(&self, input: &StoreInput) -> Result<()> {
        let parts = parts(input);
        let txns = match input {
            StoreInput::Group { group, .. } => group.txns.len(),
            _ => 1,
        };
        if txns == 0 {
            return Err(StoreError::InvalidInput("a group without transactions"));
        }
        check_blocks(parts.blocks, txns)?;
        if parts.ddls.iter().any(|d| d.txn as usize >= txns) {
            return Err(StoreError::InvalidInput("a DDL's transaction is not its group's"));
        }
        if let Some(attempt) = parts.attempt
            && attempt < self.next_attempt
            && !self.attempts.contains_key(&attempt)
            && !matches!(input, StoreInput::Discard { .. })
        {
            return Err(StoreError::InvalidInput("an attempt id is used again"));
        }
        match input {
            StoreInput::CommitPrepared { xid, .. } if !self.prepared.contains_key(xid) => {
                Err(StoreError::UnknownXid(xid.clone()))
            }
            StoreInput::Prepare { xid, .. } if self.prepared.contains_key(xid) => {
                Err(StoreError::InvalidInput("an XA group is prepared twice"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the input and gives what it needs. Take it back with [`Self::unstamp`] if
    /// the input is not absorbed.
    pub(crate) fn stamp(&mut self, input: &StoreInput, now_ms: u64) -> Result<Stamp> {
        self.check(input)?;
        let mut clock = self.clock.clone();
        let mark = self.catalog.mark();
        let ids = parts(input)
            .blocks
            .iter()
            .map(|block| self.catalog.version(&block.version))
            .collect();
        let mut one = |meta: &TxnMeta, xa: XaChange, upto: &ReadPosition| {
            let ts = clock.next(meta.commit_time_ms, now_ms);
            (vec![ts], Some(one_record(meta, ts, xa, upto)))
        };
        let (ts, meta) = match input {
            StoreInput::Group { group, upto } => {
                let records: Vec<MetaRecord> = group
                    .txns
                    .iter()
                    .map(|txn| MetaRecord {
                        commit_ts: clock.next(txn.commit_time_ms, now_ms),
                        gtid: txn.gtid.clone(),
                        end_offset: txn.end_offset,
                        xa: XaChange::None,
                    })
                    .collect();
                let ts = records.iter().map(|r| r.commit_ts).collect();
                let batch = MetaBatch {
                    records,
                    upto: upto.clone(),
                    before: None,
                };
                (ts, Some(batch))
            }
            StoreInput::Fragment { .. } | StoreInput::Discard { .. } => (vec![CommitTs::ZERO], None),
            StoreInput::Commit { meta, upto, .. } => one(meta, XaChange::None, upto),
            StoreInput::Prepare { xid, meta, upto, .. } => one(meta, XaChange::Prepared(xid.clone()), upto),
            StoreInput::CommitPrepared { xid, meta, upto }
            | StoreInput::RollbackPrepared { xid, meta, upto } => {
                one(meta, XaChange::Ended(xid.clone()), upto)
            }
            StoreInput::Tick { time_ms, upto } => {
                let meta = TxnMeta {
                    commit_time_ms: *time_ms,
                    gtid: None,
                    end_offset: upto.offset,
                };
                one(&meta, XaChange::None, upto)
            }
        };
        Ok(Stamp {
            clock,
            ts,
            ids,
            mark,
            meta,
        })
    }

    pub(crate) fn unstamp(&mut self, stamp: &Stamp) {
        self.catalog.rollback(stamp.mark);
    }

    /// The refs that `blocks` of an attempt get, in order; `places` are set by the log.
    pub(crate) fn fragment_refs(
        &self,
        attempt: AttemptId,
        blocks: &[BlockBuilder],
        ids: &[(TableId, VersionId)],
    ) -> Vec<FragmentRef> {
        let known = self.attempts.get(&attempt).map_or(0, Vec::len);
        let refs = blocks
            .iter()
            .zip(ids)
            .zip(known..)
            .map(|((block, (table, version)), number)| FragmentRef {
                attempt,
                number: u32::try_from(number).unwrap_or(u32::MAX),
                segment: 0,
                table: *table,
                version: *version,
                first: block.first.1,
                last: block.last.1,
                events: block.events,
                raw_bytes: u32::try_from(block.payload.len()).unwrap_or(u32::MAX),
                stored_bytes: u32::try_from(block.payload.len()).unwrap_or(u32::MAX),
                aborted: Vec::new(),
            });
        refs.collect()
    }

    /// Takes over the input: from here on it is appended. `new` are the fragments made
    /// of its blocks, `places` the addresses of its plain blocks, `meta_at` of its
    /// transactions.
    pub(crate) fn absorb(
        &mut self,
        input: StoreInput,
        stamp: Stamp,
        new: Vec<(FragmentRef, FrameAddress)>,
        places: &[FrameAddress],
        meta_at: FrameAddress,
        batch: &mut Batch,
    ) {
        batch.inputs += 1;
        batch
            .tables
            .extend_from_slice(self.catalog.tables_since(stamp.mark));
        let versions = self.catalog.versions_since(stamp.mark);
        batch
            .versions
            .extend(versions.map(|(id, info)| (id, Arc::clone(&info.version))));
        let single = stamp.single();
        self.clock = stamp.clock;
        if let Some(meta) = stamp.meta {
            self.place.apply_all(&meta);
            batch.resolved = Some(meta.last());
            batch.metas.push((meta, meta_at));
        }
        if let Some(attempt) = parts(&input).attempt {
            self.next_attempt = self.next_attempt.max(AttemptId(attempt.0.saturating_add(1)));
        }
        match input {
            StoreInput::Group { group, .. } => {
                self.absorb_group(group, &stamp.ts, &stamp.ids, places, batch);
            }
            StoreInput::Fragment { attempt, blocks } => self.absorb_fragments(attempt, blocks, new, batch),
            StoreInput::Discard { attempt } => {
                self.attempts.remove(&attempt);
            }
            StoreInput::Commit {
                attempt,
                blocks,
                ddls,
                aborted,
                ..
            } => {
                self.absorb_fragments(attempt, blocks, new, batch);
                self.absorb_ddls(ddls, &stamp.ts, batch);
                let fragments = self.take_attempt(attempt, &aborted);
                self.reveal(fragments, single, batch);
            }
            StoreInput::Prepare {
                attempt,
                xid,
                blocks,
                ddls,
                aborted,
                ..
            } => {
                self.absorb_fragments(attempt, blocks, new, batch);
                self.absorb_ddls(ddls, &stamp.ts, batch);
                let fragments = self.take_attempt(attempt, &aborted);
                self.prepared.insert(xid, fragments);
            }
            StoreInput::CommitPrepared { xid, .. } => {
                let fragments = self.prepared.remove(&xid).unwrap_or_default();
                self.reveal(fragments, single, batch);
            }
            StoreInput::RollbackPrepared { xid, .. } => {
                self.prepared.remove(&xid);
            }
            StoreInput::Tick { .. } => {}
        }
    }

    fn absorb_group(
        &mut self,
        group: TxnGroup,
        ts: &[CommitTs],
        ids: &[(TableId, VersionId)],
        places: &[FrameAddress],
        batch: &mut Batch,
    ) {
        self.absorb_ddls(group.ddls, ts, batch);
        let rows = group.blocks.into_iter().zip(ids).enumerate();
        for (i, (builder, (table, version))) in rows {
            let block = finish(builder, ts);
            self.catalog.used(*version, block.last);
            batch.raw_bytes += block.payload.len() as u64;
            let entry = Entry {
                first: block.first,
                last: block.last,
                version: *version,
                events: block.events,
                raw_bytes: u32::try_from(block.payload.len()).unwrap_or(u32::MAX),
                place: Place::Block(places.get(i).copied().unwrap_or_default()),
            };
            batch.rows.push(NewRows {
                table: *table,
                entry,
                block: Some(Arc::new(block)),
            });
        }
    }

    fn absorb_ddls(&mut self, ddls: Vec<GroupDdl>, ts: &[CommitTs], batch: &mut Batch) {
        for ddl in ddls {
            let commit_ts = ts.get(ddl.txn as usize).copied().unwrap_or(CommitTs::ZERO);
            let key = OrderKey::new(commit_ts, ddl.ordinal);
            self.history.push(key, Arc::clone(&ddl.event));
            batch.ddls.push((key, ddl.event));
        }
    }

    fn absorb_fragments(
        &mut self,
        attempt: AttemptId,
        blocks: Vec<BlockBuilder>,
        new: Vec<(FragmentRef, FrameAddress)>,
        batch: &mut Batch,
    ) {
        let fragments = self.attempts.entry(attempt).or_default();
        for (builder, (at, address)) in blocks.into_iter().zip(new) {
            batch.raw_bytes += builder.payload.len() as u64;
            self.catalog.used(at.version, OrderKey::MAX);
            batch.fragments.push((at.clone(), address));
            let block = self.keep_blocks.then(|| finish(builder, &[CommitTs::ZERO]));
            fragments.push(Fragment { at, block });
        }
    }

    /// The attempt's fragments without what was undone, in the order of their ordinals.
    pub(crate) fn take_attempt(&mut self, attempt: AttemptId, aborted: &[Range<u32>]) -> Vec<Fragment> {
        let mut fragments = self.attempts.remove(&attempt).unwrap_or_default();
        fragments.retain_mut(|f| match clip(aborted, f.at.first, f.at.last) {
            Some(aborted) => {
                f.at.aborted = aborted;
                true
            }
            None => false,
        });
        fragments
    }

    /// Makes fragments visible at a commit-ts.
    fn reveal(&mut self, fragments: Vec<Fragment>, ts: CommitTs, batch: &mut Batch) {
        for mut fragment in fragments {
            let mut entry = entry_of(&fragment.at, ts);
            let mut shown = None;
            if let Some(block) = fragment.block.take() {
                let block = stamp_block(block, ts);
                // Blocks made by `finish` are well formed.
                let Ok(Some(block)) = without(block, &fragment.at.aborted) else {
                    continue;
                };
                (entry.first, entry.last) = (block.first, block.last);
                shown = Some(Arc::new(block));
            }
            batch.rows.push(NewRows {
                table: fragment.at.table,
                entry,
                block: shown,
            });
        }
    }

    pub(crate) fn recovered(&self, lineage: weir_types::LineageId) -> Recovered {
        let tables = self.history.tables_at(OrderKey::MAX).unwrap_or_default();
        Recovered {
            lineage,
            position: self.place.position.clone(),
            resolved: self.clock.last(),
            next_attempt: self.next_attempt,
            prepared: self.prepared.keys().cloned().collect(),
            tables: tables
                .into_iter()
                .map(|name| {
                    let version = self.catalog.latest(&name);
                    (name, version)
                })
                .collect(),
        }
    }
}
