//! An assembler with events made by hand, and a model of a store behind it.

use std::sync::Arc;

use weir_binlog::event::{Event, Rows};
use weir_binlog::gtid::GtidEvent;
use weir_binlog::header::EventHeader;
use weir_binlog::query::{Query, QuerySettings};
use weir_binlog::table_map::TableMap;
use weir_filter::{NameCase, TableFilter};
use weir_protocol::store::StoreInput;
use weir_source::{AssemblerOptions, Skip, SourceError, TransactionAssembler};
use weir_types::{AttemptId, DdlKind, RowKind, SourceIdentity};

use crate::model::Model;

/// Events in, and what a store would show of them.
pub(crate) struct Bench {
    pub(crate) assembler: TransactionAssembler,
    pub(crate) model: Model,
    pub(crate) inputs: Vec<StoreInput>,
    pub(crate) offset: u64,
    number: u64,
}

pub(crate) const EVENT_BYTES: u64 = 50;

pub(crate) fn header() -> EventHeader {
    EventHeader {
        timestamp: 1_000,
        type_number: 0,
        server_id: 1,
        event_length: 50,
        end_log_pos: 0,
        flags: 0,
    }
}

impl Bench {
    pub(crate) fn with(rules: &[&str], buffer: usize, skip: Skip) -> Self {
        let filter = TableFilter::new(rules, NameCase::Sensitive).expect("rules");
        let options = AssemblerOptions {
            filter: Arc::new(filter),
            known: Vec::new(),
            next_attempt: AttemptId(7),
            transaction_buffer_bytes: buffer,
            event_bytes_max: 1 << 20,
            skip,
        };
        let mut assembler = TransactionAssembler::new(SourceIdentity::Digest(1), options);
        assembler
            .begin_file(Arc::from("b.000001"), 4)
            .expect("no open transaction");
        Self {
            assembler,
            model: Model::default(),
            inputs: Vec::new(),
            offset: 4,
            number: 0,
        }
    }

    pub(crate) fn new() -> Self {
        Self::with(&["s.*"], 1 << 20, Skip::Nothing)
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) -> Result<(), SourceError> {
        self.assembler.at_event(self.offset);
        self.offset += EVENT_BYTES;
        let result = self.assembler.event(&header(), event, self.offset);
        self.drain();
        result
    }

    pub(crate) fn drain(&mut self) {
        let (inputs, bytes) = self.assembler.take();
        assert_eq!(bytes, inputs.iter().map(StoreInput::pinned_bytes).sum::<usize>());
        for input in inputs {
            self.inputs.push(input.clone());
            self.model.append(input);
        }
    }

    pub(crate) fn gtid_at(&mut self, micros: u64) -> Result<(), SourceError> {
        self.number += 1;
        let event = GtidEvent {
            uuid: [7; 16],
            tag: "",
            number: self.number,
            flags: 0,
            last_committed: 0,
            sequence_number: 0,
            original_commit_micros: micros,
            immediate_commit_micros: micros,
            transaction_length: 0,
        };
        self.event(&Event::Gtid(event))
    }

    pub(crate) fn gtid(&mut self) -> Result<(), SourceError> {
        self.gtid_at(5_000_000)
    }

    pub(crate) fn query(&mut self, sql: &str) -> Result<(), SourceError> {
        self.query_with(sql.as_bytes(), QuerySettings::default())
    }

    pub(crate) fn query_with(&mut self, sql: &[u8], settings: QuerySettings<'_>) -> Result<(), SourceError> {
        self.event(&Event::Query(Box::new(Query {
            thread: 1,
            exec_seconds: 0,
            error_code: 0,
            schema: b"s",
            settings,
            sql,
        })))
    }

    pub(crate) fn map_with(&mut self, schema: &str, table: &str, optional: &[u8]) -> Result<(), SourceError> {
        let shape = [schema.as_bytes(), b"\0", table.as_bytes(), optional].concat();
        self.event(&Event::TableMap(TableMap {
            table_id: table_id(table),
            flags: 0,
            schema: schema.as_bytes(),
            table: table.as_bytes(),
            types: &[3],
            metadata: &[],
            nullable: &[0],
            optional,
            shape: &shape,
        }))
    }

    /// One INT column `c`.
    pub(crate) fn map(&mut self, table: &str) -> Result<(), SourceError> {
        self.map_with("s", table, &[4, 2, 1, b'c'])
    }

    pub(crate) fn rows(&mut self, table: &str, value: u8) -> Result<(), SourceError> {
        self.event(&Event::Rows(Rows {
            kind: RowKind::Insert,
            table_id: table_id(table),
            flags: 1,
            partial_json: false,
            body: &[1, 0xff, 0, value, 0, 0, 0],
        }))
    }

    pub(crate) fn insert(&mut self, table: &str, value: u8) -> Result<(), SourceError> {
        self.map(table)?;
        self.rows(table, value)
    }

    pub(crate) fn begin(&mut self) {
        self.gtid().expect("no open transaction");
        self.query("BEGIN").expect("BEGIN");
    }

    pub(crate) fn xid(&mut self) -> Result<(), SourceError> {
        self.event(&Event::Xid(1))
    }

    pub(crate) fn flush(&mut self) {
        self.assembler.flush();
        self.drain();
    }

    /// Values of the visible rows per transaction.
    pub(crate) fn visible(&self) -> Vec<Vec<u8>> {
        let txns = self.model.txns.iter();
        txns.map(|txn| txn.rows.iter().map(|row| row.body[3]).collect())
            .collect()
    }

    pub(crate) fn kinds(&self) -> Vec<(DdlKind, u32)> {
        let ddls = self.model.txns.iter().flat_map(|txn| &txn.ddls);
        ddls.map(|ddl| (ddl.kind, ddl.ordinal)).collect()
    }
}

pub(crate) fn table_id(table: &str) -> u64 {
    table.bytes().fold(1, |id, byte| id * 31 + u64::from(byte))
}
