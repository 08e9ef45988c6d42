//! The reading side of an event store over a history in memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weir_event_store::error::StoreError;
use weir_event_store::{Coverage, DdlPage, ScanEnd, ScanOutcome, ScanRequest, StoreReader};
use weir_types::{Block, BlockSlice, CommitTs, LineageId, OrderKey, RowEvent, TableName, Token};

use crate::history::History;

/// Shows all of a history that grows.
#[derive(Debug, Default)]
pub struct ModelStore(RwLock<History>);

impl ModelStore {
    /// The history.
    pub fn history(&self) -> RwLockReadGuard<'_, History> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The history, to be continued.
    pub fn history_mut(&self) -> RwLockWriteGuard<'_, History> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run of records of one block, copied out.
struct Run<'a> {
    block: &'a Arc<Block>,
    from: usize,
    to: usize,
    events: u32,
    first: OrderKey,
    last: OrderKey,
}

impl<'a> Run<'a> {
    const fn start(block: &'a Arc<Block>, event: &RowEvent<'_>) -> Self {
        Self {
            block,
            from: event.offset,
            to: event.end,
            events: 1,
            first: event.key,
            last: event.key,
        }
    }

    fn slice(&self) -> BlockSlice {
        let whole = self.from == 0 && self.to == self.block.payload.len();
        if whole {
            return BlockSlice::whole(Arc::clone(self.block));
        }
        BlockSlice::whole(Arc::new(Block {
            version: Arc::clone(&self.block.version),
            txns: self.block.txns.clone(),
            payload: self.block.payload.get(self.from..self.to).unwrap_or(&[]).to_vec(),
            events: self.events,
            first: self.first,
            last: self.last,
        }))
    }
}

/// What one block's records pin beside the records.
const fn overhead(block: &Block) -> usize {
    block.txns.len() * size_of::<CommitTs>()
}

impl StoreReader for ModelStore {
    fn lineage(&self) -> LineageId {
        LineageId(1)
    }

    fn resolved(&self) -> CommitTs {
        self.history().end
    }

    fn scan(&self, request: &ScanRequest) -> Result<ScanOutcome, StoreError> {
        let history = self.history();
        let none = Vec::new();
        let blocks = history.blocks.get(&request.table).unwrap_or(&none);
        let start = blocks.partition_point(|block| block.last <= request.after);
        let (mut slices, mut pinned, mut events) = (Vec::new(), 0, 0);
        for block in blocks.iter().skip(start) {
            let mut run: Option<Run<'_>> = None;
            let mut end = None;
            for event in block
                .events()
                .filter_map(Result::ok)
                .filter(|event| event.key > request.after)
            {
                if event.key > request.upto {
                    end = Some(ScanEnd::Exhausted);
                    break;
                }
                let bytes = event.end - event.offset + if run.is_none() { overhead(block) } else { 0 };
                let alone = events == 0 && request.lane;
                if (pinned + bytes > request.bytes_max && !alone) || events >= request.events_max {
                    end = Some(if events == 0 {
                        ScanEnd::TooLarge {
                            bytes,
                            key: event.key,
                        }
                    } else {
                        ScanEnd::More
                    });
                    break;
                }
                pinned += bytes;
                events += 1;
                match &mut run {
                    None => run = Some(Run::start(block, &event)),
                    Some(run) => {
                        (run.to, run.last) = (event.end, event.key);
                        run.events += 1;
                    }
                }
            }
            slices.extend(run.map(|run| run.slice()));
            if let Some(end) = end {
                return Ok(ScanOutcome { slices, end });
            }
        }
        let end = ScanEnd::Exhausted;
        Ok(ScanOutcome { slices, end })
    }

    fn coverage(&self, _table: &TableName) -> Option<Coverage> {
        Some(Coverage {
            from: OrderKey::MIN,
            to: OrderKey::end_of(self.resolved()),
            ended: false,
        })
    }

    fn ddls(&self, after: OrderKey, upto: OrderKey, limit: usize) -> Result<DdlPage, StoreError> {
        let history = self.history();
        let start = history.ddls.partition_point(|(key, _)| *key <= after);
        let limit = if limit == 0 { usize::MAX } else { limit };
        let page = history
            .ddls
            .iter()
            .skip(start)
            .take_while(|(key, _)| *key <= upto);
        let ddls = page.take(limit).cloned().collect();
        Ok(DdlPage { ddls })
    }

    fn tables_at(&self, at: OrderKey) -> Result<Vec<TableName>, StoreError> {
        let history = self.history();
        let mut tables = std::collections::BTreeSet::new();
        for (_, event) in history.ddls.iter().take_while(|(key, _)| *key <= at) {
            if event.kind != weir_types::DdlKind::AlterTable {
                tables.retain(|table| !event.writes.contains(table));
            }
            tables.extend(event.makes.iter().cloned());
        }
        Ok(tables.into_iter().collect())
    }

    fn last_key(&self, table: &TableName, after: OrderKey) -> Option<OrderKey> {
        let last = self
            .history()
            .rows
            .get(table)
            .and_then(|rows| rows.last().copied())?;
        (last > after).then_some(last)
    }

    fn token(&self, key: OrderKey) -> Result<Token, StoreError> {
        Ok(Token {
            lineage: self.lineage(),
            key,
            position: None,
            gtid: None,
            open_xa: Vec::new(),
        })
    }

    fn live_bytes(&self) -> HashMap<TableName, u64> {
        let bytes = |blocks: &Vec<Arc<Block>>| blocks.iter().map(|b| b.payload.len() as u64).sum();
        self.history()
            .blocks
            .iter()
            .map(|(table, blocks)| (table.clone(), bytes(blocks)))
            .collect()
    }
}
