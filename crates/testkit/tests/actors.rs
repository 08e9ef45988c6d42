//! Service and collector as actors on threads of their own, with a sink that releases
//! at once.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Context, Handler, System};
use weir_actor::{ActorExited, ExitGuard, NamedArbiter, post_to};
use weir_event_collector::{CollectorConfig, EventCollector, ServiceLinks, StopCollector};
use weir_event_service::{AttachCollector, EventService, EventServiceOptions, StopService};
use weir_event_store::{MemoryOptions, MemoryStore, MemoryWriter, StoreReader, StoreWriter};
use weir_protocol::dispatcher::{AddDispatcher, Deliver, Delivery, ResumeStream};
use weir_protocol::service::Span;
use weir_protocol::sink::Released;
use weir_protocol::store::{
    ReadPosition, ResolvedAdvanced, StageFailed, StoreInput, TableDetached, TxnGroup, TxnMeta,
};
use weir_types::{
    BlockBuilder, ChangefeedId, CommitTs, DispatcherId, Flavor, Generation, OrderKey, RowKind,
    SourceIdentity, TableName, TableVersion,
};

const ROW_BYTES: usize = 120;

#[derive(Default)]
struct Seen {
    last: HashMap<DispatcherId, OrderKey>,
    events: u64,
    bytes: u64,
    resolved: HashMap<DispatcherId, CommitTs>,
    failed: Vec<(DispatcherId, &'static str)>,
}

/// All dispatchers and the sink.
struct Taker {
    seen: Arc<Mutex<Seen>>,
    collector: Option<Addr<EventCollector>>,
}

impl Actor for Taker {
    type Context = Context<Self>;
}

#[derive(actix::Message)]
#[rtype(result = "()")]
struct Connect(Addr<EventCollector>);

impl Handler<Connect> for Taker {
    type Result = ();
    fn handle(&mut self, message: Connect, _: &mut Self::Context) {
        self.collector = Some(message.0);
    }
}

impl Handler<Deliver> for Taker {
    type Result = ();
    fn handle(&mut self, message: Deliver, _: &mut Self::Context) {
        let dispatcher = message.dispatcher;
        let mut seen = self.seen.lock().unwrap();
        let collector = self.collector.as_ref().unwrap();
        match message.delivery {
            Delivery::Batch(batch) => {
                let last = seen.last.entry(dispatcher).or_default();
                assert!(batch.first > *last, "out of order");
                *last = batch.last;
                seen.events += batch.events as u64;
                seen.bytes += batch.bytes as u64;
                let (bytes, lane) = (batch.bytes, batch.lane);
                drop(batch);
                post_to(
                    collector,
                    Released {
                        dispatcher,
                        bytes,
                        lane,
                    },
                );
            }
            Delivery::Ddl { key, .. } => post_to(collector, ResumeStream { dispatcher, key }),
            Delivery::Resolved(ts) => {
                seen.resolved.insert(dispatcher, ts);
            }
            Delivery::Failed(error) => seen.failed.push((dispatcher, error.code)),
        }
    }
}

struct Watcher;

impl Actor for Watcher {
    type Context = Context<Self>;
}

impl Handler<ActorExited> for Watcher {
    type Result = ();
    fn handle(&mut self, exited: ActorExited, _: &mut Self::Context) {
        assert!(exited.clean, "{exited:?}");
    }
}

impl Handler<StageFailed> for Watcher {
    type Result = ();
    fn handle(&mut self, failed: StageFailed, _: &mut Self::Context) {
        panic!("{failed:?}");
    }
}

fn table(n: u32) -> TableName {
    TableName::new("s", format!("t{n}"))
}

struct Feeder {
    writer: MemoryWriter,
    versions: Vec<Arc<TableVersion>>,
    time_ms: u64,
}

impl Feeder {
    fn new(writer: MemoryWriter, tables: u32) -> Self {
        let version = |n| {
            Arc::new(TableVersion {
                name: table(n),
                flavor: Flavor::Mysql,
                columns: Vec::new(),
                primary_key: Vec::new(),
            })
        };
        Self {
            writer,
            versions: (0..tables).map(version).collect(),
            time_ms: 1_700_000_000_000,
        }
    }

    /// One synced group: `rows` row events in each of the tables `from..to`.
    fn group(&mut self, from: usize, to: usize, rows: u32) -> CommitTs {
        self.time_ms += 1;
        let mut group = TxnGroup::default();
        group.txns.push(TxnMeta {
            commit_time_ms: self.time_ms,
            gtid: None,
            end_offset: self.time_ms,
        });
        let mut ordinal = 0;
        for version in &self.versions[from..to] {
            let mut block = BlockBuilder::new(Arc::clone(version));
            for _ in 0..rows {
                ordinal += 1;
                block.push(0, ordinal, RowKind::Insert, 0, &[7; ROW_BYTES]);
            }
            block.payload.shrink_to_fit();
            group.blocks.push(block);
        }
        let upto = ReadPosition {
            identity: SourceIdentity::Digest(1),
            file: Arc::from("f"),
            offset: self.time_ms,
        };
        self.writer
            .append(StoreInput::Group { group, upto }, self.time_ms)
            .unwrap();
        self.writer
            .commit_group()
            .unwrap()
            .expect("a group")
            .wait()
            .unwrap()
            .resolved
    }
}

struct Rig {
    service: Addr<EventService>,
    collector: Addr<EventCollector>,
    seen: Arc<Mutex<Seen>>,
    _arbiters: Vec<NamedArbiter>,
    _watcher: Addr<Watcher>,
}

fn start(store: Arc<dyn StoreReader>, tables: u32, budget_bytes: u64) -> Rig {
    let watcher = Watcher.start();
    let (exits, failed_to) = (watcher.downgrade().recipient(), watcher.clone().recipient());
    let arbiters: Vec<_> = ["service", "collector", "sink"].map(NamedArbiter::start).into();
    let exit = ExitGuard::new("event-service", Generation(1), exits.clone());
    let service = arbiters[0].place(move |_| {
        EventService::new(EventServiceOptions {
            store,
            filter: Arc::new(|_| true),
            max_row_bytes: 64 << 20,
            policy: weir_event_service::ScanPolicy::PerDispatcher,
            failed_to,
            exit,
        })
    });
    let links = ServiceLinks {
        reset: service.clone().recipient(),
        grant: service.clone().recipient(),
        pass: service.clone().recipient(),
        remove: service.clone().recipient(),
    };
    let collector = arbiters[1].place(move |_| {
        let config = CollectorConfig {
            generation: Generation(1),
            budget_bytes,
            seed: 1,
            windows: weir_event_collector::WindowPolicy::PerDispatcher,
        };
        let exit = ExitGuard::new("event-collector", Generation(1), exits);
        EventCollector::new(&ChangefeedId(Arc::from("cf")), &config, links, exit)
    });
    post_to(&service, AttachCollector(collector.clone().recipient()));
    let seen = Arc::new(Mutex::new(Seen::default()));
    let for_taker = Arc::clone(&seen);
    let taker = arbiters[2].place(move |_| Taker {
        seen: for_taker,
        collector: None,
    });
    post_to(&taker, Connect(collector.clone()));
    for n in 0..tables {
        let add = AddDispatcher {
            dispatcher: DispatcherId(n + 1),
            span: Span::Table(table(n)),
            after: OrderKey::MIN,
            deliver_to: taker.clone().recipient(),
        };
        post_to(&collector, add);
    }
    Rig {
        service,
        collector,
        seen,
        _arbiters: arbiters,
        _watcher: watcher,
    }
}

impl Rig {
    async fn wait(&self, what: &str, done: impl Fn(&Seen) -> bool) {
        let begun = Instant::now();
        while !done(&self.seen.lock().unwrap()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: no progress");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn stop(&self) {
        assert_eq!(self.seen.lock().unwrap().failed, []);
        self.stop_all().await;
    }

    async fn stop_all(&self) {
        self.collector.send(StopCollector).await.unwrap();
        self.service.send(StopService).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn rows_and_resolved_come_through_and_the_end_is_clean() {
    System::new().block_on(async {
        let (_, writer, reader) = MemoryStore::open(MemoryOptions::default()).unwrap();
        let mut feeder = Feeder::new(writer, 20);
        feeder.group(0, 10, 50);
        let rig = start(reader, 20, 64 << 10);
        rig.wait("backlog", |seen| seen.events == 500).await;
        let mut resolved = CommitTs::ZERO;
        for n in 0..200 {
            resolved = feeder.group(n % 20, n % 20 + 1, 3);
            post_to(&rig.service, ResolvedAdvanced { resolved });
        }
        rig.wait("tail", |seen| {
            seen.events == 500 + 600 && seen.resolved.values().filter(|ts| **ts == resolved).count() == 20
        })
        .await;
        rig.stop().await;
    });
}

/// Its stream fails, with or without rows to come; the others go on, and none of it is
/// served again.
#[test]
fn a_table_that_the_store_gave_up_fails_alone() {
    System::new().block_on(async {
        let (_, writer, reader) = MemoryStore::open(MemoryOptions::default()).unwrap();
        let mut feeder = Feeder::new(writer, 3);
        feeder.group(0, 3, 10);
        let rig = start(Arc::clone(&reader) as Arc<dyn StoreReader>, 3, 64 << 10);
        rig.wait("backlog", |seen| seen.events == 30).await;
        feeder.writer.detach(&table(1)).unwrap();
        post_to(&rig.service, TableDetached { table: table(1) });
        rig.wait("failure", |seen| !seen.failed.is_empty()).await;
        let resolved = feeder.group(0, 3, 5);
        post_to(&rig.service, ResolvedAdvanced { resolved });
        rig.wait("the others", |seen| {
            seen.events == 40 && seen.resolved.values().filter(|ts| **ts == resolved).count() == 2
        })
        .await;
        assert_eq!(
            rig.seen.lock().unwrap().failed,
            [(DispatcherId(2), "WEIR-STO-002")]
        );
        assert!(!reader.live_bytes().contains_key(&table(1)));
        rig.stop_all().await;
        // After a restart the stream fails before anything is sent.
        let rig = start(reader, 3, 64 << 10);
        rig.wait("failure again", |seen| {
            seen.failed == [(DispatcherId(2), "WEIR-STO-002")]
        })
        .await;
        rig.wait("the others again", |seen| seen.events == 30).await;
        rig.stop_all().await;
    });
}

/// `WEIR_MEASURE=1` prints how fast a backlog of one table goes through, and what 2,000
/// tables cost at 300 groups a second.
#[test]
fn two_thousand_tables_share_a_small_budget() {
    System::new().block_on(async {
        let measure = std::env::var_os("WEIR_MEASURE").is_some();
        let (_, writer, reader) = MemoryStore::open(MemoryOptions::default()).unwrap();
        let mut feeder = Feeder::new(writer, 2_000);
        let (groups, rows) = if measure { (400, 8_000) } else { (4, 2_000) };
        for _ in 0..groups {
            feeder.group(0, 1, rows);
        }
        let backlog = u64::from(groups * rows);
        let begun = Instant::now();
        let rig = start(reader, 2_000, 16 << 20);
        rig.wait("backlog", |seen| {
            seen.events == backlog && seen.resolved.len() == 2_000
        })
        .await;
        let bytes = rig.seen.lock().unwrap().bytes;
        println!("{backlog} row events, {bytes} bytes in {:?}", begun.elapsed());
        let (cpu, begun) = (cpu_ms(), Instant::now());
        let groups = if measure { 3_000_u64 } else { 300 };
        let mut resolved = CommitTs::ZERO;
        for n in 0..groups {
            let at = usize::try_from(n * 37 % 2_000).unwrap();
            resolved = feeder.group(at, at + 1, 1);
            post_to(&rig.service, ResolvedAdvanced { resolved });
            tokio::time::sleep_until((begun + Duration::from_micros(3_333 * (n + 1))).into()).await;
        }
        rig.wait("groups", |seen| {
            seen.events == backlog + groups && seen.resolved.values().all(|ts| *ts == resolved)
        })
        .await;
        let spent = begun.elapsed();
        println!("{groups} groups in {spent:?}: {} ms of CPU", cpu_ms() - cpu);
        rig.stop().await;
    });
}

/// CPU time of the process, milliseconds, at 100 ticks a second.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10
}
