//! A file-like sink that checks what becomes durable against the history.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use weir_protocol::sink::SinkWork;
use weir_types::{DdlEvent, DdlKind, DispatcherId, OrderKey, TableName};

use super::history::{History, Rng};

/// What survives a crash: finished files.
#[derive(Default)]
pub(super) struct Disk {
    /// Durable rows per table, as a count: always a prefix of the history.
    pub(super) rows: BTreeMap<TableName, usize>,
    pub(super) ddls: BTreeSet<OrderKey>,
}

impl Disk {
    pub(super) fn progress(&self, history: &History) -> HashMap<TableName, OrderKey> {
        let last = |(table, count): (&TableName, &usize)| {
            let rows = history.rows_of(table);
            (*count > 0).then(|| (table.clone(), rows[count - 1]))
        };
        self.rows.iter().filter_map(last).collect()
    }

    pub(super) fn durable_upto(&self, history: &History, table: &TableName, key: OrderKey) -> bool {
        let needed = history.rows_of(table).iter().filter(|row| **row <= key).count();
        self.rows.get(table).copied().unwrap_or(0) >= needed
    }

    fn finish(&mut self, history: &History, table: &TableName, rows: &[OrderKey]) {
        let done = self.rows.entry(table.clone()).or_default();
        let expected = &history.rows_of(table)[*done..*done + rows.len()];
        assert_eq!(rows, expected, "rows of {table:?} lost, doubled or out of order");
        *done += rows.len();
    }

    fn execute(&mut self, history: &History, key: OrderKey, event: &DdlEvent) {
        assert_ne!(event.kind, DdlKind::ImplicitCreate, "nothing is executed for it");
        if !self.ddls.insert(key) {
            return;
        }
        for (table, rows) in history.rows.iter().filter(|(table, _)| event.concerns(table)) {
            let before = rows.iter().filter(|row| **row < key).count();
            let durable = self.rows.get(table).copied().unwrap_or(0);
            assert_eq!(durable, before, "rows of {table:?} cross the DDL at {key}");
        }
        for (earlier, other) in history.ddls.iter().filter(|(earlier, _)| *earlier < key) {
            let open = other.kind != DdlKind::ImplicitCreate && !self.ddls.contains(earlier);
            assert!(
                !(open && shares_a_name(other, event)),
                "DDL {key} ran before {earlier}"
            );
        }
    }
}

fn shares_a_name(a: &DdlEvent, b: &DdlEvent) -> bool {
    let names = |event: &DdlEvent| [event.writes.clone(), event.reads.clone()].concat();
    let whole = |a: &TableName, b: &TableName| {
        a.schema == b.schema && (a.table.is_empty() || b.table.is_empty() || a.table == b.table)
    };
    // Two that only read a table do not order each other, nor need they.
    names(a)
        .iter()
        .any(|left| b.writes.iter().any(|right| whole(left, right)))
        || a.writes
            .iter()
            .any(|left| names(b).iter().any(|right| whole(left, right)))
}

/// One span's work.
#[derive(Default)]
struct SinkSpan {
    table: Option<TableName>,
    queue: VecDeque<SinkWork>,
    open: Vec<OrderKey>,
    last: Option<OrderKey>,
    failed: bool,
}

/// Answer of the sink.
pub(super) enum Answer {
    Durable(OrderKey),
    DdlWritten(OrderKey),
}

/// The running sink; its open files are lost with it.
#[derive(Default)]
pub(super) struct Sink {
    spans: HashMap<DispatcherId, SinkSpan>,
}

impl Sink {
    pub(super) fn open(&mut self, id: DispatcherId, table: Option<TableName>) {
        let span = SinkSpan {
            table,
            ..SinkSpan::default()
        };
        self.spans.insert(id, span);
    }

    pub(super) fn push(&mut self, id: DispatcherId, work: SinkWork) {
        let span = self.spans.get_mut(&id).expect("an open span");
        span.queue.push_back(work);
    }

    pub(super) fn fail(&mut self, id: DispatcherId) {
        let span = self.spans.get_mut(&id).expect("an open span");
        span.failed = true;
        span.queue.clear();
        span.open.clear();
    }

    pub(super) fn close(&mut self, id: DispatcherId) {
        let span = self.spans.remove(&id).expect("an open span");
        assert!(
            span.queue.is_empty() && span.open.is_empty(),
            "ended with work left"
        );
    }

    pub(super) fn step(
        &mut self,
        id: DispatcherId,
        rng: &mut Rng,
        disk: &mut Disk,
        history: &History,
    ) -> Option<Answer> {
        let span = self.spans.get_mut(&id).filter(|span| !span.failed)?;
        let Some(work) = span.queue.pop_front() else {
            return rng.one_in(3).then(|| span.finish(disk, history)).flatten();
        };
        match work {
            SinkWork::Rows(batch) => {
                let table = span.table.as_ref().expect("rows of a table");
                let rows = history.rows_of(table).iter();
                span.open
                    .extend(rows.filter(|key| **key >= batch.first && **key <= batch.last));
                span.last = Some(batch.last);
                None
            }
            SinkWork::Flush => Some(
                span.finish(disk, history)
                    .unwrap_or_else(|| Answer::Durable(span.last.unwrap_or(OrderKey::MIN))),
            ),
            SinkWork::Ddl { key, event } => {
                assert!(span.open.is_empty(), "files are finished before a DDL");
                disk.execute(history, key, &event);
                Some(Answer::DdlWritten(key))
            }
            SinkWork::Close => None,
        }
    }
}

impl SinkSpan {
    fn finish(&mut self, disk: &mut Disk, history: &History) -> Option<Answer> {
        let table = self.table.as_ref()?;
        let last = *self.open.last()?;
        disk.finish(history, table, &self.open);
        self.open.clear();
        Some(Answer::Durable(last))
    }
}
