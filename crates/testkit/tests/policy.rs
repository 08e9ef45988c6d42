//! What one stream's progress is to another, under each scan policy.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::sync::Arc;

use weir_event_service::fence::Fence;
use weir_event_service::{DdlFilter, Effect, ScanPolicy, ServiceConfig, ServiceCore};
use weir_event_store::{MemoryOptions, MemoryReader, MemoryStore, StoreReader, StoreWriter};
use weir_protocol::collector::{ServiceIncarnation, StreamBody};
use weir_protocol::service::{GrantCredit, Reset, Span};
use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{
    BlockBuilder, CommitTs, DispatcherId, Epoch, Flavor, OrderKey, RowKind, SourceIdentity, TableName,
    TableVersion,
};

const SLOW: DispatcherId = DispatcherId(1);
const FAST: DispatcherId = DispatcherId(2);
const LIFE: ServiceIncarnation = ServiceIncarnation(1);
/// Commit time of the first transaction, milliseconds; the others follow each a second later.
const FIRST_MS: u64 = 1_000_000;
const TXNS: u64 = 60;

fn table(name: &str) -> TableName {
    TableName::new("s", name)
}

/// A row in `slow` and one in `fast` every second for a minute.
fn store() -> Arc<MemoryReader> {
    let (_, mut writer, reader) = MemoryStore::open(MemoryOptions::default()).unwrap();
    for number in 0..TXNS {
        let at_ms = FIRST_MS + number * 1_000;
        let mut group = TxnGroup::default();
        group.txns.push(TxnMeta {
            commit_time_ms: at_ms,
            gtid: None,
            end_offset: number + 1,
        });
        for (ordinal, name) in (1..).zip(["slow", "fast"]) {
            let mut block = BlockBuilder::new(Arc::new(TableVersion {
                name: table(name),
                flavor: Flavor::Mysql,
                columns: Vec::new(),
                primary_key: Vec::new(),
            }));
            block.push(0, ordinal, RowKind::Insert, 0, b"row");
            group.blocks.push(block);
        }
        let upto = ReadPosition {
            identity: SourceIdentity::Digest(1),
            file: Arc::from("binlog.000001"),
            offset: number + 1,
        };
        writer.append(StoreInput::Group { group, upto }, at_ms).unwrap();
        writer.commit_group().unwrap().unwrap().wait().unwrap();
    }
    reader
}

struct Bench {
    core: ServiceCore,
    store: Arc<MemoryReader>,
    now_ms: u64,
    /// Last key that the fast stream has sent.
    sent: OrderKey,
    fast_rows: usize,
}

impl Bench {
    /// The slow stream may send a byte and no more, the fast one everything.
    fn new(policy: ScanPolicy) -> Self {
        let store = store();
        let config = ServiceConfig {
            incarnation: LIFE,
            max_row_bytes: 1 << 20,
            scans_max: 2,
            policy,
        };
        let mut bench = Self {
            core: ServiceCore::new(config, all(), store.resolved()),
            store,
            now_ms: 1,
            sent: OrderKey::MIN,
            fast_rows: 0,
        };
        for (dispatcher, name) in [(SLOW, "slow"), (FAST, "fast")] {
            let reset = Reset {
                dispatcher,
                epoch: Epoch(1),
                span: Span::Table(table(name)),
                after: OrderKey::new(CommitTs::from_millis(FIRST_MS), 0),
            };
            bench.act(|core, now, _, out| core.reset(now, &reset, out));
        }
        bench.grant(SLOW, 1, 1);
        bench.grant(FAST, 1, 1 << 20);
        bench
    }

    fn act(&mut self, act: impl FnOnce(&mut ServiceCore, u64, &dyn StoreReader, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        let store = Arc::clone(&self.store);
        act(&mut self.core, self.now_ms, store.as_ref(), &mut out);
        while let Some(effect) = out.pop() {
            match effect {
                Effect::Send(message) => {
                    if let (FAST, StreamBody::Batch(batch)) = (message.dispatcher, message.body) {
                        self.sent = batch.last;
                        self.fast_rows += batch.events;
                    }
                }
                Effect::Scan(job) => {
                    let done = job.run(store.as_ref(), &all());
                    self.core.scan_done(self.now_ms, done, store.as_ref(), &mut out);
                }
            }
        }
    }

    fn grant(&mut self, dispatcher: DispatcherId, grant_seq: u64, granted_bytes: u64) {
        let grant = GrantCredit {
            dispatcher,
            epoch: Epoch(1),
            service: LIFE,
            grant_seq,
            granted_bytes,
            keep_bytes: granted_bytes,
            lane_rows: 0,
        };
        self.act(|core, now, store, out| core.grant(now, &grant, store, out));
    }

    fn pass_time(&mut self, ms: u64) {
        for _ in 0..ms / 250 {
            self.now_ms += 250;
            self.act(|core, now, store, out| core.tick(now, store, out));
        }
    }
}

fn all() -> DdlFilter {
    Arc::new(|_| true)
}

#[test]
fn a_stream_that_stands_still_is_nobody_elses_business() {
    let mut bench = Bench::new(ScanPolicy::PerDispatcher);
    bench.pass_time(2_000);
    assert_eq!(bench.fast_rows as u64, TXNS);
}

#[test]
fn a_fence_holds_the_fast_behind_the_slow() {
    let fence = Arc::new(Fence::default());
    let mut bench = Bench::new(ScanPolicy::GlobalFence(fence.join()));
    bench.pass_time(10_000);
    // Five seconds behind the slow one's start, whatever credit the fast one has.
    assert!(
        bench.sent.commit_ts.millis() <= FIRST_MS + 5_000,
        "{}",
        bench.sent
    );
    let held = bench.fast_rows;
    assert!(held < TXNS as usize / 2, "{held}");
    // The slow one goes on, and with it all.
    bench.grant(SLOW, 2, 1 << 20);
    bench.pass_time(30_000);
    assert_eq!(bench.fast_rows as u64, TXNS);
}
