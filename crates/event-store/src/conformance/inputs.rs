//! Inputs made at random.

use std::ops::Range;
use std::sync::Arc;

use weir_protocol::store::{GroupDdl, ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{
    AttemptId, BlockBuilder, Column, DdlEvent, DdlKind, Flavor, Gtid, RowKind, SourceIdentity, TableVersion,
    WireType, Xid,
};

use super::model::{Model, Rng, TABLES, name};

/// Two versions of each table.
pub(super) fn versions() -> Vec<Arc<TableVersion>> {
    let column = |name: &str| Column {
        name: Arc::from(name),
        wire: WireType::Long,
        meta: 0,
        nullable: true,
        unsigned: false,
        collation: 0,
        members: vec![Arc::from(&b"m"[..])],
        geometry: 0,
        visible: true,
    };
    let version = |table: &&str, columns: &[&str]| {
        Arc::new(TableVersion {
            name: name(table),
            flavor: Flavor::Mysql,
            columns: columns.iter().map(|c| column(c)).collect(),
            primary_key: vec![0],
        })
    };
    let of = |table| [version(table, &["id"]), version(table, &["id", "x"])];
    TABLES.iter().flat_map(of).collect()
}

fn file(offset: u64) -> Arc<str> {
    Arc::from(format!("bin.{:06}", offset / 5_000))
}

impl Model {
    fn position(&self) -> ReadPosition {
        ReadPosition {
            identity: SourceIdentity::Digest(9),
            file: file(self.offset),
            offset: self.offset,
        }
    }

    fn meta(&mut self, rng: &mut Rng) -> TxnMeta {
        self.number += 1;
        self.offset += 50;
        let gtid = Gtid::Mariadb {
            domain: (self.number % 2) as u32,
            server: 1,
            sequence: self.number,
        };
        TxnMeta {
            commit_time_ms: 990_000 + rng.below(20_000) as u64,
            gtid: (rng.below(5) > 0).then_some(gtid),
            end_offset: self.offset,
        }
    }

    fn body(&mut self, rng: &mut Rng, size: u16) -> Vec<u8> {
        let len = rng.below(usize::from(size) + 1);
        let seed = rng.draw() as u8;
        (0..len).map(|i| seed.wrapping_add((i / 5) as u8)).collect()
    }

    fn fill(
        &mut self,
        rng: &mut Rng,
        blocks: &mut Vec<BlockBuilder>,
        txn: u32,
        first: u32,
        rows: u8,
        size: u16,
    ) -> u32 {
        let mut ordinal = first;
        for _ in 0..rows {
            let table = rng.below(TABLES.len());
            // Versions of a table change rarely, and never back within a group.
            let version = Arc::clone(&self.versions[table * 2 + usize::from(self.number % 16 > 7)]);
            let body = self.body(rng, size);
            let kind = [RowKind::Insert, RowKind::Update, RowKind::Delete][rng.below(3)];
            let at = blocks.iter().position(|b| b.version == version);
            let at = at.unwrap_or_else(|| {
                blocks.push(BlockBuilder::new(version));
                blocks.len() - 1
            });
            blocks[at].push(txn, ordinal, kind, 0, &body);
            ordinal += 1;
        }
        ordinal
    }

    /// Rows for a fragment, and the next ordinal.
    pub fn rows(
        &mut self,
        rng: &mut Rng,
        _attempt: AttemptId,
        first: u32,
        rows: u8,
        size: u16,
    ) -> (Vec<BlockBuilder>, u32) {
        let mut blocks = Vec::new();
        let next = self.fill(rng, &mut blocks, 0, first, rows, size);
        (blocks, next)
    }

    fn ddl(&mut self, rng: &mut Rng) -> Arc<DdlEvent> {
        let table = name(["a", "b", "c", "d"][rng.below(4)]);
        let kind = [
            DdlKind::CreateTable,
            DdlKind::DropTable,
            DdlKind::AlterTable,
            DdlKind::ImplicitCreate,
        ][rng.below(4)];
        let makes = matches!(kind, DdlKind::CreateTable | DdlKind::ImplicitCreate);
        Arc::new(DdlEvent {
            kind,
            schema: Arc::from("s"),
            session: Arc::default(),
            sql: Arc::from(format!("statement {}", self.number)),
            makes: if makes { vec![table.clone()] } else { Vec::new() },
            writes: vec![table],
            reads: Vec::new(),
            commit_time_ms: 5,
        })
    }

    /// Whole transactions.
    pub fn group(&mut self, rng: &mut Rng, txns: u8, rows: u8, size: u16, ddl: bool) -> StoreInput {
        let mut group = TxnGroup::default();
        // One version per table and group.
        let number = self.number;
        let mut metas = Vec::new();
        for txn in 0..u32::from(txns.max(1)) {
            let next = self.fill(rng, &mut group.blocks, txn, 1, rows, size);
            if ddl && rng.below(2) == 0 {
                let event = self.ddl(rng);
                group.ddls.push(GroupDdl {
                    txn,
                    ordinal: next,
                    event,
                });
            }
            self.offset += 50;
            metas.push(self.offset);
        }
        for end_offset in metas {
            let mut meta = self.meta(rng);
            self.offset -= 50;
            meta.end_offset = end_offset;
            group.txns.push(meta);
        }
        debug_assert!(self.number > number);
        StoreInput::Group {
            group,
            upto: self.position(),
        }
    }

    fn abort(rng: &mut Rng, abort: u8, next: u32) -> Vec<Range<u32>> {
        let mut out = Vec::new();
        for _ in 0..abort % 3 {
            let start = rng.below(next as usize + 1) as u32;
            out.push(start..start + 1 + rng.below(5) as u32);
        }
        out
    }

    /// The attempt commits.
    pub fn commit(
        &mut self,
        rng: &mut Rng,
        attempt: AttemptId,
        first: u32,
        rows: u8,
        abort: u8,
    ) -> StoreInput {
        let mut blocks = Vec::new();
        let next = self.fill(rng, &mut blocks, 0, first, rows, 100);
        let aborted = Self::abort(rng, abort, next);
        let event = self.ddl(rng);
        let ddls = if abort.is_multiple_of(4) {
            vec![GroupDdl {
                txn: 0,
                ordinal: next,
                event,
            }]
        } else {
            Vec::new()
        };
        let meta = self.meta(rng);
        StoreInput::Commit {
            attempt,
            meta,
            blocks,
            ddls,
            aborted,
            upto: self.position(),
        }
    }

    /// The attempt is prepared.
    pub fn prepare(
        &mut self,
        rng: &mut Rng,
        attempt: AttemptId,
        first: u32,
        rows: u8,
        abort: u8,
        xid: Xid,
    ) -> StoreInput {
        let mut blocks = Vec::new();
        let next = self.fill(rng, &mut blocks, 0, first, rows, 100);
        let aborted = Self::abort(rng, abort, next);
        let meta = self.meta(rng);
        StoreInput::Prepare {
            attempt,
            xid,
            meta,
            blocks,
            ddls: Vec::new(),
            aborted,
            upto: self.position(),
        }
    }

    /// The oldest prepared group ends.
    pub fn end_prepared(&mut self, rng: &mut Rng, commit: bool) -> Option<StoreInput> {
        let xid = self.prepared.keys().next()?.clone();
        let meta = self.meta(rng);
        let upto = self.position();
        Some(if commit {
            StoreInput::CommitPrepared { xid, meta, upto }
        } else {
            StoreInput::RollbackPrepared { xid, meta, upto }
        })
    }

    /// Time passes.
    pub fn tick(&mut self, rng: &mut Rng) -> StoreInput {
        self.offset += 10;
        StoreInput::Tick {
            time_ms: 990_000 + rng.below(20_000) as u64,
            upto: self.position(),
        }
    }
}
