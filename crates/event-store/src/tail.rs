//! The recent blocks in memory: a scan that lies in here touches no disk.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use weir_types::{Block, OrderKey};

use crate::catalog::TableId;

struct TableTail {
    /// Every row event above it is in `blocks`.
    from: OrderKey,
    blocks: VecDeque<Arc<Block>>,
}

/// What the tail gives to a scan.
pub(crate) struct TailPart {
    /// Row events at or below it must be read elsewhere.
    pub(crate) from: OrderKey,
    pub(crate) blocks: Vec<Arc<Block>>,
    /// Whether further blocks up to the end were left out for size.
    pub(crate) more: bool,
}

pub(crate) struct Tail {
    tables: HashMap<TableId, TableTail>,
    /// Blocks of all tables, oldest first: (table, first key).
    order: VecDeque<(TableId, OrderKey)>,
    bytes: usize,
    bytes_max: usize,
    /// What was there before the tail began.
    start: OrderKey,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize, start: OrderKey) -> Self {
        Self {
            tables: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            bytes_max,
            start,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn table(&mut self, table: TableId) -> &mut TableTail {
        let from = self.start;
        self.tables.entry(table).or_insert_with(|| TableTail {
            from,
            blocks: VecDeque::new(),
        })
    }

    pub(crate) fn push(&mut self, table: TableId, block: Arc<Block>) {
        self.bytes += block.pinned_bytes();
        self.order.push_back((table, block.first));
        self.table(table).blocks.push_back(block);
        while self.bytes > self.bytes_max {
            let Some((table, first)) = self.order.pop_front() else {
                break;
            };
            self.evict(table, first);
        }
    }

    fn evict(&mut self, table: TableId, first: OrderKey) {
        let Some(tail) = self.tables.get_mut(&table) else {
            return;
        };
        // Blocks dropped by `reset` are still in `order`.
        if tail.blocks.front().is_some_and(|b| b.first == first)
            && let Some(block) = tail.blocks.pop_front()
        {
            tail.from = block.last;
            self.bytes -= block.pinned_bytes();
        }
    }

    /// Row events up to `upto` are elsewhere only.
    pub(crate) fn reset(&mut self, table: TableId, upto: OrderKey) {
        let tail = self.table(table);
        tail.from = tail.from.max(upto);
        let dropped: usize = tail.blocks.drain(..).map(|b| b.pinned_bytes()).sum();
        self.bytes -= dropped;
    }

    /// Drops blocks that lie at or below `floor`; returns their bytes.
    pub(crate) fn drop_passed(&mut self, table: TableId, floor: OrderKey) -> (usize, Option<OrderKey>) {
        let (mut freed, mut last) = (0, None);
        let Some(tail) = self.tables.get_mut(&table) else {
            return (0, None);
        };
        while tail.blocks.front().is_some_and(|b| b.last <= floor) {
            if let Some(block) = tail.blocks.pop_front() {
                tail.from = block.last;
                last = Some(block.last);
                freed += block.pinned_bytes();
            }
        }
        self.bytes -= freed;
        if self.order.len() > 64 && self.order.len() / 4 > self.tables.values().map(|t| t.blocks.len()).sum()
        {
            let tables = &self.tables;
            self.order.retain(|(table, first)| {
                tables
                    .get(table)
                    .and_then(|t| t.blocks.front())
                    .is_some_and(|b| b.first <= *first)
            });
        }
        (freed, last)
    }

    /// Blocks with row events in `after < key ≤ upto`, until they pin more than `bytes`.
    pub(crate) fn collect(&self, table: TableId, after: OrderKey, upto: OrderKey, bytes: usize) -> TailPart {
        let Some(tail) = self.tables.get(&table) else {
            return TailPart {
                from: self.start,
                blocks: Vec::new(),
                more: false,
            };
        };
        let start = tail.blocks.partition_point(|b| b.last <= after);
        let mut part = TailPart {
            from: tail.from,
            blocks: Vec::new(),
            more: false,
        };
        let mut pinned = 0;
        for block in tail.blocks.range(start..).take_while(|b| b.first <= upto) {
            if pinned > bytes {
                part.more = true;
                break;
            }
            pinned += block.pinned_bytes();
            part.blocks.push(Arc::clone(block));
        }
        part
    }
}
