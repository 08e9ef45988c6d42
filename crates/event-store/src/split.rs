//! Large blocks are stored in parts, so that whoever needs a little of one reads and
//! keeps in memory a part only. A source makes them while a transaction still fits into
//! its buffer.

use std::sync::Arc;

use weir_types::BlockBuilder;
use weir_types::block::RECORD_HEADER_BYTES;

use crate::slice::{length_at, ordinal_at, shift_txns, txn_at};

/// Payload of a part; a single row event may be larger.
const PART_BYTES: usize = 1 << 20;
/// Payload of a block that is split: far enough above a part that one slightly larger
/// is not copied.
const SPLIT_BYTES: usize = 2 << 20;

/// Replaces large blocks by their parts.
pub(crate) fn split_large(blocks: &mut Vec<BlockBuilder>) {
    let large = |b: &BlockBuilder| b.payload.len() > SPLIT_BYTES && b.events > 1;
    if !blocks.iter().any(large) {
        return;
    }
    for block in std::mem::take(blocks) {
        match large(&block).then(|| parts(&block)).flatten() {
            Some(parts) => blocks.extend(parts),
            None => blocks.push(block),
        }
    }
}

/// None if the records are malformed: whoever reads them says so.
fn parts(block: &BlockBuilder) -> Option<Vec<BlockBuilder>> {
    let payload = &block.payload;
    let mut out = Vec::with_capacity(payload.len() / PART_BYTES + 1);
    let (mut start, mut at, mut last, mut events) = (0, 0, 0, 0);
    while at < payload.len() {
        let end = at + RECORD_HEADER_BYTES + length_at(payload, at)?;
        if events > 0 && end - start > PART_BYTES {
            out.push(part(block, start..at, last, events)?);
            (start, events) = (at, 0);
        }
        (last, at) = (at, end);
        events += 1;
    }
    out.push(part(block, start..at, last, events)?);
    Some(out)
}

/// The records of a byte range; `last` is where its last record begins.
fn part(
    block: &BlockBuilder,
    range: std::ops::Range<usize>,
    last: usize,
    events: u32,
) -> Option<BlockBuilder> {
    let (low, high) = (
        txn_at(&block.payload, range.start)?,
        txn_at(&block.payload, last)?,
    );
    let place = |local: u32, at| Some((*block.txns.get(local as usize)?, ordinal_at(&block.payload, at)?));
    let (first, last) = (place(low, range.start)?, place(high, last)?);
    let mut payload = block.payload.get(range)?.to_vec();
    shift_txns(&mut payload, 0_u32.wrapping_sub(low))?;
    Some(BlockBuilder {
        version: Arc::clone(&block.version),
        txns: block.txns.get(low as usize..=high as usize)?.to_vec(),
        payload,
        events,
        first,
        last,
    })
}

#[cfg(test)]
mod tests {
    use weir_types::{Block, CommitTs, Flavor, OrderKey, RowKind, TableName, TableVersion};

    use super::*;

    fn builder(bodies: &[usize]) -> BlockBuilder {
        let mut block = BlockBuilder::new(Arc::new(TableVersion {
            name: TableName::new("s", "t"),
            flavor: Flavor::Mysql,
            columns: Vec::new(),
            primary_key: Vec::new(),
        }));
        for (n, len) in (0_u32..).zip(bodies) {
            // Transactions of three row events, every second one of the group's.
            let body = vec![n as u8; *len];
            block.push(n / 3 * 2 + 1, n % 3 + 1, RowKind::Update, 1, &body);
        }
        block
    }

    fn rows(block: &BlockBuilder) -> Vec<(OrderKey, u8, Vec<u8>)> {
        let ts = |txn: &u32| CommitTs(u64::from(*txn));
        let block = Block {
            version: Arc::clone(&block.version),
            txns: block.txns.iter().map(ts).collect(),
            payload: block.payload.clone(),
            events: block.events,
            first: OrderKey::new(ts(&block.first.0), block.first.1),
            last: OrderKey::new(ts(&block.last.0), block.last.1),
        };
        let rows: Vec<_> = block
            .events()
            .map(|e| e.unwrap())
            .map(|e| (e.key, e.flags, e.body.to_vec()))
            .collect();
        assert_eq!(rows.len(), block.events as usize);
        assert_eq!(rows.first().map(|r| r.0), Some(block.first));
        assert_eq!(rows.last().map(|r| r.0), Some(block.last));
        assert!(block.txns.windows(2).all(|w| w[0] < w[1]));
        rows
    }

    #[test]
    fn parts_hold_the_same_rows() {
        let large = 3 << 20;
        for bodies in [
            vec![700 << 10; 9],
            vec![60_000; 80],
            vec![10, large, 10, 10, large],
            [vec![10; 50], vec![large], vec![10; 50]].concat(),
        ] {
            let whole = builder(&bodies);
            let mut blocks = vec![builder(&[5]), whole.clone()];
            split_large(&mut blocks);
            assert_eq!(rows(&blocks[0]), rows(&builder(&[5])));
            assert!(blocks.len() > 3);
            let parts = &blocks[1..];
            assert!(
                parts
                    .iter()
                    .all(|p| p.payload.len() <= PART_BYTES || p.events == 1)
            );
            let found: Vec<_> = parts.iter().flat_map(rows).collect();
            assert_eq!(found, rows(&whole));
        }
    }

    #[test]
    fn what_is_not_large_or_malformed_stays() {
        let mut blocks = vec![builder(&[100; 10]), builder(&[5 << 20])];
        split_large(&mut blocks);
        assert_eq!(blocks.len(), 2);
        let mut bad = builder(&[1 << 20; 4]);
        bad.payload[12..16].fill(0xff);
        let before = bad.payload.clone();
        let mut blocks = vec![bad];
        split_large(&mut blocks);
        assert!(blocks.len() == 1 && blocks[0].payload == before);
    }
}
