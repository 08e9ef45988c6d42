//! What the tests of this crate share: a small table, batches of its rows, and a channel
//! of answers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use weir_protocol::collector::EventBatch;
use weir_protocol::sink::{DdlWritten, Durable, Released, SinkFailed, SinkWork};
use weir_types::table::Column;
use weir_types::{
    Block, BlockBuilder, BlockSlice, CommitTs, DdlEvent, DdlKind, Flavor, OrderKey, RowKind, TableName,
    TableVersion, WireType,
};

use crate::contract::{ReleaseTo, SpanReplies};

/// The key (`commit_ts`, 1).
pub(crate) fn key(commit_ts: u64) -> OrderKey {
    OrderKey::new(CommitTs(commit_ts), 1)
}

#[derive(Debug)]
pub(crate) enum Answer {
    Released(Released),
    Durable(Durable),
    DdlWritten(DdlWritten),
    Failed(SinkFailed),
}

/// Sends all answers into one channel.
pub(crate) struct Answers(Sender<Answer>);

pub(crate) fn channel() -> (Arc<Answers>, Receiver<Answer>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    (Arc::new(Answers(sender)), receiver)
}

impl Answers {
    fn send(&self, answer: Answer) {
        // A test that is over does not listen any more.
        drop(self.0.send(answer));
    }
}

impl ReleaseTo for Arc<Answers> {
    fn released(&self, message: Released) {
        self.send(Answer::Released(message));
    }
}

impl SpanReplies for Answers {
    fn durable(&self, message: Durable) {
        self.send(Answer::Durable(message));
    }

    fn ddl_written(&self, message: DdlWritten) {
        self.send(Answer::DdlWritten(message));
    }

    fn failed(&self, message: SinkFailed) {
        self.send(Answer::Failed(message));
    }
}

fn column(name: &str, wire: WireType, meta: u16, collation: u16) -> Column {
    Column {
        name: name.into(),
        wire,
        meta,
        nullable: true,
        unsigned: false,
        collation,
        members: Vec::new(),
        geometry: 0,
        visible: true,
    }
}

/// `id INT PRIMARY KEY, v LONGBLOB or LONGTEXT`.
pub(crate) fn version(table: &str, collation: u16) -> Arc<TableVersion> {
    Arc::new(TableVersion {
        name: TableName::new("s", table),
        flavor: Flavor::Mysql,
        columns: vec![
            column("id", WireType::Long, 0, 0),
            column("v", WireType::Blob, 4, collation),
        ],
        primary_key: vec![0],
    })
}

fn image(body: &mut Vec<u8>, id: i32, value: &[u8]) {
    body.push(0);
    body.extend_from_slice(&id.to_le_bytes());
    body.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
    body.extend_from_slice(value);
}

/// Body of a rows event with one row per id.
pub(crate) fn body(kind: RowKind, ids: &[i32], value: &[u8]) -> Vec<u8> {
    let mut body = vec![2, 0b11];
    if kind == RowKind::Update {
        body.push(0b11);
    }
    for &id in ids {
        image(&mut body, id, value);
        if kind == RowKind::Update {
            image(&mut body, id, b"new");
        }
    }
    body
}

/// One block with one event per key, one inserted row each.
pub(crate) fn slice(version: &Arc<TableVersion>, keys: &[u64], value: &[u8]) -> BlockSlice {
    let mut builder = BlockBuilder::new(Arc::clone(version));
    for (txn, &commit_ts) in keys.iter().enumerate() {
        let id = i32::try_from(commit_ts).unwrap();
        let body = body(RowKind::Insert, &[id], value);
        builder.push(u32::try_from(txn).unwrap(), 1, RowKind::Insert, 0, &body);
    }
    BlockSlice::whole(Arc::new(Block {
        version: builder.version,
        txns: keys.iter().map(|&commit_ts| CommitTs(commit_ts)).collect(),
        payload: builder.payload,
        events: builder.events,
        first: key(keys[0]),
        last: key(keys[keys.len() - 1]),
    }))
}

/// A batch of inserts, one per key.
pub(crate) fn rows(version: &Arc<TableVersion>, keys: &[u64], value: &[u8]) -> SinkWork {
    let slice = slice(version, keys, value);
    SinkWork::Rows(Arc::new(EventBatch {
        events: keys.len(),
        bytes: slice.pinned_bytes(),
        first: slice.first,
        last: slice.last,
        slices: vec![slice],
        lane: false,
    }))
}

pub(crate) fn ddl(commit_ts: u64, kind: DdlKind, table: &str) -> SinkWork {
    SinkWork::Ddl {
        key: key(commit_ts),
        event: Arc::new(DdlEvent {
            kind,
            schema: "s".into(),
            session: Arc::default(),
            sql: "ALTER TABLE t ADD c INT".into(),
            writes: vec![TableName::new("s", table)],
            makes: Vec::new(),
            reads: Vec::new(),
            commit_time_ms: 5,
        }),
    }
}
