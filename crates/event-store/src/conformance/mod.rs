//! The contract as a test: a store and a naive model do the same, and must show the
//! same.

mod inputs;
mod model;
mod outside;

use std::sync::Arc;

use weir_protocol::store::StoreInput;
use weir_types::{AttemptId, OrderKey, TableName, Xid};

pub use model::{Model, Rng};

use crate::contract::{Recovered, ScanEnd, ScanRequest, StoreReader, StoreWriter};

/// One step of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are counts and seeds
pub enum Op {
    /// Whole transactions.
    Group {
        txns: u8,
        rows: u8,
        size: u16,
        ddl: bool,
    },
    /// A part of the attempt in a slot.
    Fragment { slot: u8, rows: u8, size: u16 },
    /// The attempt in a slot is given up.
    Discard { slot: u8 },
    /// The attempt in a slot commits; `abort` undoes a range of its ordinals.
    Commit { slot: u8, rows: u8, abort: u8 },
    /// The attempt in a slot is prepared.
    Prepare { slot: u8, rows: u8, abort: u8 },
    /// The oldest prepared group ends.
    EndPrepared { commit: bool },
    /// Time passes.
    Tick,
    /// Commit group, synced.
    Sync,
    /// Commit group, its ticket waited for only with the next sync.
    Begin,
    /// The tables have come to places chosen by the seed.
    Gc { seed: u64 },
    /// The last of the tables is given up.
    Detach,
    /// The process ends, one way or another.
    Reopen { seed: u64 },
    /// Everything is compared, in slices chosen by the seed.
    Check { seed: u64 },
}

/// A store under test, open.
pub struct Open {
    /// What was found.
    pub recovered: Recovered,
    /// Writing side.
    pub writer: Box<dyn StoreWriter>,
    /// Reading side.
    pub reader: Arc<dyn StoreReader>,
}

/// Makes and reopens stores.
pub trait Subject {
    /// A new store.
    fn open(&mut self) -> Open;
    /// The store after its process ended in a way chosen by the seed; none if it does
    /// not survive that. The old one is gone before.
    fn reopen(&mut self, seed: u64) -> Option<Open>;
}

const NOW_MS: u64 = 1_000_000;
const SLOTS: usize = 3;

struct Slot {
    attempt: AttemptId,
    next_ordinal: u32,
}

/// Runs the steps against store and model.
pub struct Run<'a> {
    subject: &'a mut dyn Subject,
    open: Option<Open>,
    model: Model,
    slots: [Option<Slot>; SLOTS],
    next_attempt: u64,
    next_xid: u64,
    tickets: Vec<Box<dyn crate::contract::SyncTicket>>,
    rng: Rng,
    /// Times that the store was opened again.
    pub reopened: usize,
    /// Row events compared.
    pub compared: usize,
}

impl<'a> Run<'a> {
    /// Opens the subject.
    pub fn new(subject: &'a mut dyn Subject) -> Self {
        let open = subject.open();
        assert!(open.recovered.position.is_none());
        let next_attempt = open.recovered.next_attempt.0;
        Self {
            subject,
            model: Model::new(open.recovered.lineage),
            open: Some(open),
            slots: [const { None }; SLOTS],
            next_attempt,
            next_xid: 1,
            tickets: Vec::new(),
            rng: Rng::new(7),
            reopened: 0,
            compared: 0,
        }
    }

    fn store(&mut self) -> &mut Open {
        self.open.as_mut().expect("the store is open")
    }

    /// Does one step. Faults of the disk end in a reopened store.
    pub fn step(&mut self, op: &Op) {
        match op {
            Op::Group {
                txns,
                rows,
                size,
                ddl,
            } => {
                let input = self.model.group(&mut self.rng, *txns, *rows, *size, *ddl);
                self.append(input);
            }
            Op::Fragment { slot, rows, size } => {
                let (attempt, first) = self.slot(*slot);
                let (blocks, next) = self.model.rows(&mut self.rng, attempt, first, *rows, *size);
                self.advance_slot(*slot, next);
                self.append(StoreInput::Fragment { attempt, blocks });
            }
            Op::Discard { slot } => {
                let (attempt, _) = self.slot(*slot);
                self.slots[usize::from(*slot) % SLOTS] = None;
                self.append(StoreInput::Discard { attempt });
            }
            Op::Commit { slot, rows, abort } => {
                let (attempt, first) = self.slot(*slot);
                let input = self.model.commit(&mut self.rng, attempt, first, *rows, *abort);
                self.slots[usize::from(*slot) % SLOTS] = None;
                self.append(input);
            }
            Op::Prepare { slot, rows, abort } => {
                let (attempt, first) = self.slot(*slot);
                let xid = Xid(Arc::from(format!("x{}", self.next_xid)));
                self.next_xid += 1;
                let input = self
                    .model
                    .prepare(&mut self.rng, attempt, first, *rows, *abort, xid);
                self.slots[usize::from(*slot) % SLOTS] = None;
                self.append(input);
            }
            Op::EndPrepared { commit } => {
                if let Some(input) = self.model.end_prepared(&mut self.rng, *commit) {
                    self.append(input);
                }
            }
            Op::Tick => {
                let input = self.model.tick(&mut self.rng);
                self.append(input);
            }
            Op::Sync => self.sync(),
            Op::Begin => self.begin(),
            Op::Gc { seed } => self.gc(*seed),
            Op::Detach => self.detach(),
            Op::Reopen { seed } => self.reopen(*seed),
            Op::Check { seed } => self.check(*seed),
        }
    }

    fn slot(&mut self, slot: u8) -> (AttemptId, u32) {
        let next = &mut self.next_attempt;
        let slot = self.slots[usize::from(slot) % SLOTS].get_or_insert_with(|| {
            *next += 1;
            Slot {
                attempt: AttemptId(*next - 1),
                next_ordinal: 1,
            }
        });
        (slot.attempt, slot.next_ordinal)
    }

    fn advance_slot(&mut self, slot: u8, next: u32) {
        if let Some(slot) = &mut self.slots[usize::from(slot) % SLOTS] {
            slot.next_ordinal = next;
        }
    }

    fn append(&mut self, input: StoreInput) {
        let told = input.clone();
        let first = self.store().writer.append(input, NOW_MS);
        let done = match first {
            Err(refused) if refused.error.is_full() => {
                assert_eq!(
                    format!("{:?}", told_parts(&refused.input)),
                    format!("{:?}", told_parts(&told))
                );
                self.store().writer.append(*refused.input, NOW_MS)
            }
            other => other,
        };
        match done {
            Ok(()) => self.model.appended(&told, NOW_MS),
            Err(refused) => {
                assert!(!refused.error.is_corrupt(), "{:?}", refused.error);
                self.reopen(1);
            }
        }
    }

    fn begin(&mut self) {
        let first = self.store().writer.commit_group();
        let done = match first {
            Err(error) if error.is_full() => self.store().writer.commit_group(),
            other => other,
        };
        match done {
            Ok(ticket) => self.tickets.extend(ticket),
            Err(_) => self.reopen(2),
        }
    }

    fn sync(&mut self) {
        let reopened = self.reopened;
        self.begin();
        if reopened != self.reopened {
            return;
        }
        for ticket in std::mem::take(&mut self.tickets) {
            match ticket.wait() {
                Ok(synced) => self.model.synced(synced.resolved),
                Err(_) => return self.reopen(3),
            }
        }
        let resolved = self.store().reader.resolved();
        self.model.synced(resolved);
        assert!(
            resolved >= self.model.resolved_all(),
            "everything is visible after a sync"
        );
    }

    fn gc(&mut self, seed: u64) {
        let (tables, schema) = self.model.floors(seed);
        match self.store().writer.advance_gc(&tables, schema) {
            Ok(_) => self.model.collected(&tables, schema),
            Err(error) if error.is_full() => self.model.collected(&tables, schema),
            Err(_) => {
                self.model.collected(&tables, schema);
                self.reopen(4);
            }
        }
    }

    fn detach(&mut self) {
        let Some(table) = self.model.tables().pop() else {
            return;
        };
        let store = self.store();
        let has_rows = store.reader.last_key(&table, OrderKey::MIN).is_some();
        let to = OrderKey::end_of(store.reader.resolved());
        let done = match store.writer.detach(&table) {
            Err(error) if error.is_full() => store.writer.detach(&table),
            other => other,
        };
        // A store leaves alone what it has not met.
        let ended = store.reader.check_start(&table, to).is_err();
        match done {
            Ok(()) if ended => self.model.detached(&table, Some(to)),
            Ok(()) => assert!(!has_rows),
            Err(_) => {
                self.model.detached(&table, None);
                self.reopen(6);
            }
        }
    }

    fn reopen(&mut self, seed: u64) {
        self.tickets.clear();
        let old = self.open.take();
        if seed.is_multiple_of(5)
            && let Some(mut old) = old
            && old.writer.close().is_ok()
        {
            self.model.synced(old.reader.resolved());
        }
        let Some(open) = self.subject.reopen(seed) else {
            self.open = Some(self.subject.open());
            let lineage = self.store().recovered.lineage;
            self.model = Model::new(lineage);
            self.slots = [const { None }; SLOTS];
            self.next_attempt = self.store().recovered.next_attempt.0;
            return;
        };
        self.reopened += 1;
        self.model.reopened(&open.recovered);
        self.slots = [const { None }; SLOTS];
        assert!(open.recovered.next_attempt.0 > self.model.attempts_synced());
        self.next_attempt = self.next_attempt.max(open.recovered.next_attempt.0);
        self.open = Some(open);
        self.check(seed);
    }

    /// Compares everything visible.
    pub fn check(&mut self, seed: u64) {
        let reader = Arc::clone(&self.store().reader);
        let upto = OrderKey::end_of(reader.resolved());
        let mut rng = Rng::new(seed);
        for table in self.model.tables() {
            if reader.check_start(&table, upto).is_ok() {
                self.model.not_detached(&table);
            }
            if let Some(to) = self.model.ended(&table) {
                outside::check_ended(&*reader, &table, to);
                continue;
            }
            let floor = self.model.floor(&table);
            let held = reader.coverage(&table).expect("it was not detached");
            assert!(held.from <= floor && held.to == upto && !held.ended);
            let found = self.scan_all(&*reader, &table, held.from, upto, &mut rng);
            assert_eq!(
                found,
                self.model.expected(&table, held.from, upto),
                "{table} is covered"
            );
            outside::check_outside(&*reader, &table, held);
            let expected = self.model.expected(&table, floor, upto);
            let found = self.scan_all(&*reader, &table, floor, upto, &mut rng);
            assert_eq!(found, expected, "rows of {table}");
            self.compared += found.len();
            if let Some((last, _)) = expected.last() {
                assert!(reader.last_key(&table, floor).is_some_and(|k| k >= *last));
            }
            let mid = self.model.some_key(&mut rng).max(floor);
            let found = self.scan_all(&*reader, &table, mid, upto, &mut rng);
            assert_eq!(
                found,
                self.model.expected(&table, mid, upto),
                "rows of {table} behind {mid}"
            );
        }
        self.check_history(&*reader, upto, &mut rng);
        self.check_tokens(&*reader, &mut rng);
    }

    fn scan_all(
        &self,
        reader: &dyn StoreReader,
        table: &TableName,
        mut after: OrderKey,
        upto: OrderKey,
        rng: &mut Rng,
    ) -> Vec<(OrderKey, Vec<u8>)> {
        let mut found = Vec::new();
        let bytes_max = [200, 1_000, 5_000, 1 << 20][rng.below(4)];
        let events_max = [1, 3, 1_000][rng.below(3)];
        let (mut lane, mut refused) = (false, None);
        loop {
            let request = ScanRequest {
                table: table.clone(),
                after,
                upto,
                bytes_max,
                events_max,
                lane,
            };
            let outcome = reader.scan(&request).expect("a scan");
            let pinned: usize = outcome.slices.iter().map(|s| s.pinned_bytes()).sum();
            let events: usize = outcome.slices.iter().map(|s| s.events as usize).sum();
            assert!(events <= events_max);
            assert!(
                pinned <= bytes_max || (lane && events == 1),
                "{pinned} of {bytes_max}"
            );
            if let Some(key) = refused.take() {
                assert_eq!(outcome.slices.first().map(|s| s.first), Some(key));
            }
            for slice in &outcome.slices {
                assert_eq!(&slice.block.version.name, table);
                let mut seen = 0;
                for event in slice.iter() {
                    let event = event.expect("a row event");
                    assert!(
                        event.key > after && event.key <= upto,
                        "{} after {after}",
                        event.key
                    );
                    after = event.key;
                    seen += 1;
                    found.push((event.key, event.body.to_vec()));
                }
                assert_eq!((seen, slice.last), (slice.events, after));
            }
            match outcome.end {
                ScanEnd::Exhausted => return found,
                ScanEnd::More => {
                    assert!(events > 0, "a scan that stops must have moved");
                    lane = false;
                }
                ScanEnd::TooLarge { bytes, key } => {
                    assert!(bytes > bytes_max && events == 0 && !lane);
                    refused = Some(key);
                    lane = true;
                }
            }
        }
    }

    fn check_history(&self, reader: &dyn StoreReader, upto: OrderKey, rng: &mut Rng) {
        let floor = self.model.history_floor();
        let (mut after, mut found) = (floor, Vec::new());
        let limit = rng.below(3);
        loop {
            let page = reader.ddls(after, upto, limit).expect("the DDL history").ddls;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            found.extend(page);
        }
        assert_eq!(found, self.model.ddls(floor, upto));
        let at = self.model.some_key(rng).clamp(floor, upto.max(floor));
        assert_eq!(reader.tables_at(at).expect("tables"), self.model.tables_at(at));
    }

    fn check_tokens(&self, reader: &dyn StoreReader, rng: &mut Rng) {
        for _ in 0..4 {
            let key = self.model.some_key(rng);
            let token = reader.token(key).expect("a token");
            assert_eq!(token.key, key);
            if Some(&token) != self.model.token(key).as_ref() {
                assert_eq!((&token.position, &token.gtid), (&None, &None), "token at {key}");
                assert!(token.open_xa.is_empty(), "token at {key}");
                assert!(key.commit_ts <= self.model.passed_by_some().commit_ts, "{key}");
            }
        }
    }
}

/// What a refused input must still hold: what is not of the table that can be detached.
fn told_parts(input: &StoreInput) -> (usize, usize, usize) {
    let parts = crate::state::parts(input);
    let last = model::TABLES.last().map_or("", |table| table);
    let kept = parts.blocks.iter().filter(|b| *b.version.name.table != *last);
    let bytes = kept.clone().map(|b| b.payload.len()).sum();
    (kept.count(), bytes, parts.ddls.len())
}

/// Runs all steps, then syncs and compares. Returns row events compared and times
/// reopened.
pub fn run(subject: &mut dyn Subject, ops: &[Op]) -> (usize, usize) {
    let mut run = Run::new(subject);
    for op in ops {
        run.step(op);
    }
    run.step(&Op::Sync);
    run.step(&Op::Sync);
    run.check(3);
    (run.compared, run.reopened)
}
