//! A store in its simplest form: what becomes visible, in order.

#![allow(dead_code)] // each test binary uses a part

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use weir_binlog::rows::{RowImages, RowPlan};
use weir_filter::{NameCase, TableFilter};
use weir_protocol::store::{GroupDdl, ReadPosition, StoreInput, TxnMeta};
use weir_source::files::{End, FilesOptions, FilesReader, POLL_INTERVAL, Progress, StartAt, StopAt};
use weir_source::{AssemblerOptions, Skip, SourceError};
use weir_types::{
    AttemptId, Block, BlockBuilder, CommitTs, DdlKind, DdlSession, GtidSet, RowKind, SourcePosition,
    TableName, TableVersion, Xid,
};

/// A row event that is visible.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub ordinal: u32,
    pub table: TableName,
    pub kind: RowKind,
    pub body: Vec<u8>,
    pub version: Arc<TableVersion>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {:?} {:?} {}",
            self.ordinal,
            self.table,
            self.kind,
            self.body.len()
        )
    }
}

/// A DDL that is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ddl {
    pub ordinal: u32,
    pub kind: DdlKind,
    pub sql: String,
    pub writes: Vec<TableName>,
    pub makes: Vec<TableName>,
    pub session: Arc<DdlSession>,
}

/// A transaction that is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Txn {
    pub gtid: Option<String>,
    pub end_offset: u64,
    pub rows: Vec<Row>,
    pub ddls: Vec<Ddl>,
}

#[derive(Clone, Default)]
struct Pending {
    rows: Vec<Row>,
    ddls: Vec<Ddl>,
}

/// See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Model {
    pub txns: Vec<Txn>,
    attempts: HashMap<AttemptId, Vec<Row>>,
    prepared: HashMap<Xid, Pending>,
    pub position: Option<ReadPosition>,
    pub gtids: GtidSet,
    pub known: Vec<TableName>,
    pub next_attempt: u64,
    pub fragments: usize,
    pub groups: usize,
    pub ticks: usize,
    pub largest_input: usize,
    pub ignored_statements: u64,
}

/// Rows of a block by transaction.
fn rows(builder: BlockBuilder) -> Vec<(u32, Row)> {
    assert!(!builder.is_empty(), "empty blocks are not handed over");
    let version = Arc::clone(&builder.version);
    let (first, last, events) = (builder.first, builder.last, builder.events);
    let block = Block {
        version: Arc::clone(&version),
        txns: builder.txns.iter().map(|txn| CommitTs(u64::from(*txn))).collect(),
        payload: builder.payload,
        events: builder.events,
        first: weir_types::OrderKey::MIN,
        last: weir_types::OrderKey::MIN,
    };
    let rows: Vec<(u32, Row)> = block
        .events()
        .map(|event| {
            let event = event.expect("a well-formed block");
            let row = Row {
                ordinal: event.key.ordinal,
                table: version.name.clone(),
                kind: event.kind,
                body: event.body.to_vec(),
                version: Arc::clone(&version),
            };
            (u32::try_from(event.key.commit_ts.0).expect("a small number"), row)
        })
        .collect();
    let key = |(txn, row): &(u32, Row)| (*txn, row.ordinal);
    assert!(rows.is_sorted_by(|a, b| key(a) < key(b)), "ascending keys");
    assert_eq!(rows.len(), events as usize);
    assert_eq!((key(&rows[0]), key(&rows[rows.len() - 1])), (first, last));
    assert!(builder.txns.is_sorted_by(|a, b| a < b));
    rows
}

fn ddl(ddl: &GroupDdl) -> Ddl {
    Ddl {
        ordinal: ddl.ordinal,
        kind: ddl.event.kind,
        sql: ddl.event.sql.to_string(),
        writes: ddl.event.writes.clone(),
        makes: ddl.event.makes.clone(),
        session: Arc::clone(&ddl.event.session),
    }
}

impl Model {
    fn visible(&mut self, meta: &TxnMeta, mut rows: Vec<Row>, ddls: Vec<Ddl>) {
        rows.sort_by_key(|row| row.ordinal);
        assert!(
            rows.is_sorted_by(|a, b| a.ordinal < b.ordinal),
            "each ordinal once"
        );
        for ddl in &ddls {
            self.history(ddl);
        }
        if let Some(gtid) = &meta.gtid {
            self.gtids.insert(gtid);
        }
        self.txns.push(Txn {
            gtid: meta.gtid.as_ref().map(ToString::to_string),
            end_offset: meta.end_offset,
            rows,
            ddls,
        });
    }

    fn history(&mut self, ddl: &Ddl) {
        let removes = matches!(
            ddl.kind,
            DdlKind::DropTable | DdlKind::RenameTable | DdlKind::DropDatabase
        );
        if removes {
            let gone = |name: &TableName| {
                let mut writes = ddl.writes.iter();
                writes.any(|w| w == name || w.table.is_empty() && w.schema == name.schema)
            };
            self.known.retain(|name| !gone(name));
        }
        self.known.extend(ddl.makes.iter().cloned());
    }

    fn attempt(&mut self, attempt: AttemptId, blocks: Vec<BlockBuilder>, aborted: &[Range<u32>]) -> Vec<Row> {
        self.next_attempt = self.next_attempt.max(attempt.0 + 1);
        let mut all = self.attempts.remove(&attempt).unwrap_or_default();
        all.extend(blocks.into_iter().flat_map(rows).map(|(_, row)| row));
        all.retain(|row| !aborted.iter().any(|range| range.contains(&row.ordinal)));
        all
    }

    /// Takes one input in.
    pub(crate) fn append(&mut self, input: StoreInput) {
        self.largest_input = self.largest_input.max(input.pinned_bytes());
        match input {
            StoreInput::Group { group, upto } => {
                self.groups += 1;
                self.position = Some(upto);
                let mut by_txn: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
                for (txn, row) in group.blocks.into_iter().flat_map(rows) {
                    by_txn.entry(txn).or_default().push(row);
                }
                assert!(group.ddls.is_sorted_by_key(|d| (d.txn, d.ordinal)));
                for (i, meta) in group.txns.iter().enumerate() {
                    let i = u32::try_from(i).expect("a small number");
                    let ddls = group.ddls.iter().filter(|d| d.txn == i).map(ddl).collect();
                    self.visible(meta, by_txn.remove(&i).unwrap_or_default(), ddls);
                }
                assert!(
                    by_txn.is_empty(),
                    "rows of transactions that are not in the group"
                );
            }
            StoreInput::Fragment { attempt, blocks } => {
                self.fragments += 1;
                self.next_attempt = self.next_attempt.max(attempt.0 + 1);
                let more = blocks.into_iter().flat_map(rows).map(|(_, row)| row);
                self.attempts.entry(attempt).or_default().extend(more);
            }
            StoreInput::Discard { attempt } => {
                assert!(
                    self.attempts.remove(&attempt).is_some(),
                    "only what is there is discarded"
                );
            }
            StoreInput::Commit {
                attempt,
                meta,
                blocks,
                ddls,
                aborted,
                upto,
            } => {
                self.position = Some(upto);
                let rows = self.attempt(attempt, blocks, &aborted);
                self.visible(&meta, rows, ddls.iter().map(ddl).collect());
            }
            StoreInput::Prepare {
                attempt,
                xid,
                meta,
                blocks,
                ddls,
                aborted,
                upto,
            } => {
                self.position = Some(upto);
                let rows = self.attempt(attempt, blocks, &aborted);
                let ddls = ddls.iter().map(ddl).collect();
                let before = self.prepared.insert(xid, Pending { rows, ddls });
                assert!(before.is_none(), "prepared twice");
                self.visible(&meta, Vec::new(), Vec::new());
            }
            StoreInput::CommitPrepared { xid, meta, upto } => {
                self.position = Some(upto);
                let pending = self.prepared.remove(&xid).expect("prepared before");
                self.visible(&meta, pending.rows, pending.ddls);
            }
            StoreInput::RollbackPrepared { xid, meta, upto } => {
                self.position = Some(upto);
                self.prepared.remove(&xid).expect("prepared before");
                self.visible(&meta, Vec::new(), Vec::new());
            }
            StoreInput::Tick { upto, .. } => {
                self.ticks += 1;
                self.position = Some(upto);
            }
        }
    }

    /// After a crash: attempts that did not end are gone.
    pub(crate) fn crash(&mut self) {
        self.attempts.clear();
    }

    pub(crate) fn source_position(&self) -> Option<SourcePosition> {
        self.position.as_ref().map(|position| SourcePosition {
            identity: position.identity.clone(),
            file: Arc::clone(&position.file),
            offset: position.offset,
            gtids: self.gtids.clone(),
        })
    }

    /// Rows by `schema.table`: inserts, updates, deletes.
    pub(crate) fn counts(&self) -> BTreeMap<String, [u64; 3]> {
        let mut counts: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        for row in self.txns.iter().flat_map(|txn| &txn.rows) {
            let plan = RowPlan::new(&row.version).expect("supported types");
            let mut reader = plan.rows(row.kind, 0, &row.body).expect("rows");
            let mut images = RowImages::default();
            while reader.next(&mut images).expect("a row") {
                let kinds = counts.entry(row.table.to_string()).or_default();
                kinds[row.kind as usize] += 1;
            }
        }
        counts
    }
}

pub(crate) fn options(folder: &Path) -> FilesOptions {
    FilesOptions {
        folder: folder.to_owned(),
        index: Some("binlog.index".to_owned()),
        start: StartAt::Earliest,
        stop: Some(StopAt::CaughtUp),
        poll_interval: POLL_INTERVAL,
        event_bytes_max: 1 << 30,
        resume: None,
    }
}

/// Reads on into `model`, from its position, until the end or until `accepted` inputs
/// were taken.
pub(crate) fn read(
    options: FilesOptions,
    rules: &[&str],
    buffer: usize,
    model: &mut Model,
    accepted: usize,
) -> Result<End, SourceError> {
    let filter = TableFilter::new(rules, NameCase::Sensitive).expect("rules");
    let assembler = AssemblerOptions {
        filter: Arc::new(filter),
        known: model.known.clone(),
        next_attempt: AttemptId(model.next_attempt),
        transaction_buffer_bytes: buffer,
        event_bytes_max: 1 << 30,
        skip: Skip::Nothing,
    };
    let options = FilesOptions {
        resume: model.source_position(),
        ..options
    };
    let mut reader = FilesReader::open(options, assembler)?;
    let mut left = accepted;
    loop {
        let progress = reader.step(u64::MAX, &mut |inputs, bytes| {
            assert_eq!(bytes, inputs.iter().map(StoreInput::pinned_bytes).sum::<usize>());
            for input in inputs {
                if left == 0 {
                    return false;
                }
                left -= 1;
                model.append(input);
            }
            true
        })?;
        model.ignored_statements = reader.counts().ignored_statements;
        match progress {
            Progress::More => {}
            Progress::Dry => panic!("a run with an end does not wait"),
            Progress::Ended(end) => return Ok(end),
        }
    }
}
