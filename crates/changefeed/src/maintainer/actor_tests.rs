//! The maintainer and real dispatcher actors over a fake collector and a fake sink, with
//! progress in a redb file.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Recipient};
use weir_actor::{ActorExited, ExitGuard, post, post_to};
use weir_dispatcher::{Dispatcher, Links, MaintainerLinks, TableLabels};
use weir_protocol::collector::EventBatch;
use weir_protocol::dispatcher::{Deliver, Delivery, RemoveDispatcher, ResumeStream};
use weir_protocol::service::Span;
use weir_protocol::sink::{DdlWritten, Durable, Released, SinkFailed, SinkWork, SinkWrite};
use weir_protocol::store::AdvanceGc;
use weir_types::{
    ChangefeedId, CommitTs, DdlEvent, DdlKind, DispatcherId, ErrorClass, ErrorReport, Generation, LineageId,
    OrderKey, TableName, Token,
};

use super::actor::{
    DispatcherHandles, GetStatus, Maintainer, MaintainerEvent, MaintainerParts, RunUntil, StopClean,
    StopMaintainer,
};
use super::core::MaintainerConfig;
use crate::meta_store::{MetaStore, Progress, RedbMetaStore};
use crate::saver::SharedMetaStore;

const WAIT: Duration = Duration::from_secs(20);

fn key(ts: u64) -> OrderKey {
    OrderKey::new(CommitTs(ts), 1)
}

fn token(key: OrderKey) -> Token {
    Token {
        lineage: LineageId(5),
        key,
        position: None,
        gtid: None,
        open_xa: Vec::new(),
    }
}

#[derive(Default)]
struct Seen {
    spans: Vec<(DispatcherId, Span, OrderKey, Addr<Dispatcher>)>,
    events: Vec<MaintainerEvent>,
    log: Vec<String>,
}

type Shared = Arc<Mutex<Seen>>;

/// Collector, sink, store and owner in one: notes everything, answers as a sink.
struct World {
    seen: Shared,
    last: OrderKey,
    fail_rows_at: Option<u64>,
}

impl World {
    fn dispatcher(&self, id: DispatcherId) -> Addr<Dispatcher> {
        let seen = self.seen.lock().unwrap();
        seen.spans.iter().find(|span| span.0 == id).unwrap().3.clone()
    }

    fn note(&self, text: String) {
        self.seen.lock().unwrap().log.push(text);
    }
}

impl Actor for World {
    type Context = Context<Self>;
}

impl Handler<SinkWrite> for World {
    type Result = ();
    fn handle(&mut self, message: SinkWrite, _: &mut Self::Context) {
        let dispatcher = message.dispatcher;
        match message.work {
            SinkWork::Rows(batch) if self.fail_rows_at == Some(batch.first.commit_ts.0) => {
                let error = ErrorReport {
                    class: ErrorClass::Table,
                    code: "WEIR-TST-001",
                    message: "broken".to_owned(),
                    action: "repair".to_owned(),
                };
                post_to(&self.dispatcher(dispatcher), SinkFailed { dispatcher, error });
            }
            SinkWork::Rows(batch) => {
                self.last = batch.last;
                self.note(format!("rows {} {}", dispatcher.0, batch.first.commit_ts));
            }
            SinkWork::Flush => {
                let upto = self.last;
                post_to(&self.dispatcher(dispatcher), Durable { dispatcher, upto });
            }
            SinkWork::Ddl { key, .. } => {
                self.note(format!("ddl {}", key.commit_ts));
                post_to(
                    &self.dispatcher(dispatcher),
                    DdlWritten {
                        dispatcher,
                        key,
                        reform: false,
                    },
                );
            }
            SinkWork::Close => self.note(format!("close {}", dispatcher.0)),
        }
    }
}

impl Handler<ResumeStream> for World {
    type Result = ();
    fn handle(&mut self, message: ResumeStream, _: &mut Self::Context) {
        self.note(format!(
            "resume {} {}",
            message.dispatcher.0, message.key.commit_ts
        ));
    }
}

impl Handler<Released> for World {
    type Result = ();
    fn handle(&mut self, message: Released, _: &mut Self::Context) {
        self.note(format!("released {}", message.bytes));
    }
}

impl Handler<RemoveDispatcher> for World {
    type Result = ();
    fn handle(&mut self, message: RemoveDispatcher, _: &mut Self::Context) {
        self.note(format!("remove {}", message.dispatcher.0));
    }
}

impl Handler<AdvanceGc> for World {
    type Result = ();
    fn handle(&mut self, message: AdvanceGc, _: &mut Self::Context) {
        self.note(format!("gc {}", message.schema.commit_ts));
    }
}

impl Handler<MaintainerEvent> for World {
    type Result = ();
    fn handle(&mut self, message: MaintainerEvent, _: &mut Self::Context) {
        self.seen.lock().unwrap().events.push(message);
    }
}

impl Handler<ActorExited> for World {
    type Result = ();
    fn handle(&mut self, message: ActorExited, _: &mut Self::Context) {
        self.note(format!("exited {} {}", message.stage, message.clean));
    }
}

struct Rig {
    seen: Shared,
    maintainer: Addr<Maintainer>,
    store: SharedMetaStore,
    _world: Addr<World>,
}

fn links(world: &Addr<World>, maintainer: &Addr<Maintainer>) -> Links {
    Links {
        sink: world.clone().recipient(),
        resume: world.clone().recipient(),
        released: world.clone().recipient(),
        maintainer: MaintainerLinks {
            heartbeat: maintainer.clone().recipient(),
            reached: maintainer.clone().recipient(),
            written: maintainer.clone().recipient(),
            register: maintainer.clone().recipient(),
            flushed: maintainer.clone().recipient(),
            failed: maintainer.clone().recipient(),
        },
    }
}

impl Rig {
    fn start(store: SharedMetaStore, fail_rows_at: Option<u64>) -> Self {
        let seen = Shared::default();
        let world = World {
            seen: Arc::clone(&seen),
            last: OrderKey::MIN,
            fail_rows_at,
        }
        .start();
        let guard =
            |stage, world: &Addr<World>| ExitGuard::new(stage, Generation(1), world.downgrade().recipient());
        let (spans, for_factory) = (Arc::clone(&seen), world.clone());
        let labels = TableLabels::new(ChangefeedId("feed".into()));
        let progress = store.lock().unwrap().load().unwrap().unwrap();
        let maintainer = Maintainer::new(MaintainerParts {
            changefeed: ChangefeedId("feed".into()),
            config: MaintainerConfig {
                components: Vec::new(),
                saved: progress.keys(),
                sink_progress: [].into(),
                wants: Arc::new(|_| true),
            },
            store: Arc::clone(&store),
            tokens: Arc::new(|key| Ok(token(key))),
            factory: Box::new(move |id, span: Span, after, maintainer| {
                let links = links(&for_factory, maintainer);
                let exit = guard("dispatcher", &for_factory);
                let address = Dispatcher::new(id, span.clone(), after, links, &labels, exit).start();
                spans
                    .lock()
                    .unwrap()
                    .spans
                    .push((id, span, after, address.clone()));
                Ok(DispatcherHandles {
                    barrier: address.clone().recipient(),
                    flush: address.clone().recipient(),
                    end: address.recipient(),
                })
            }),
            collector: world.clone().recipient(),
            gc: world.clone().recipient(),
            owner: world.clone().recipient(),
            exit: ExitGuard::new("maintainer", Generation(1), world.downgrade().recipient()),
        })
        .start();
        Self {
            seen,
            maintainer,
            store,
            _world: world,
        }
    }

    /// Waits until it holds; the reason of a failure is the log.
    async fn wait(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let deadline = tokio::time::Instant::now() + WAIT;
        while !holds(&self.seen.lock().unwrap()) {
            let seen = self.seen.lock().unwrap();
            assert!(
                tokio::time::Instant::now() < deadline,
                "{what}: {:?} {:?}",
                seen.log,
                seen.events
            );
            drop(seen);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn logged(&self, text: &str) {
        self.wait(text, |seen| seen.log.iter().any(|line| line == text))
            .await;
    }

    fn deliver(&self, id: u32, delivery: Delivery) {
        let dispatcher = DispatcherId(id);
        let seen = self.seen.lock().unwrap();
        let to: Recipient<Deliver> = seen
            .spans
            .iter()
            .find(|span| span.0 == dispatcher)
            .unwrap()
            .3
            .clone()
            .recipient();
        post(&to, Deliver { dispatcher, delivery });
    }

    fn saved(&self) -> Progress {
        self.store.lock().unwrap().load().unwrap().unwrap()
    }
}

fn batch(ts: u64) -> Delivery {
    Delivery::Batch(Arc::new(EventBatch {
        slices: Vec::new(),
        events: 1,
        bytes: 64,
        first: key(ts),
        last: key(ts),
        lane: false,
    }))
}

fn ddl(ts: u64, kind: DdlKind, makes: &[&TableName], writes: &[&TableName]) -> Delivery {
    let own = |names: &[&TableName]| names.iter().map(|name| (*name).clone()).collect();
    Delivery::Ddl {
        key: key(ts),
        event: Arc::new(DdlEvent {
            kind,
            schema: "shop".into(),
            session: Arc::default(),
            sql: "".into(),
            writes: own(writes),
            makes: own(makes),
            reads: Vec::new(),
            commit_time_ms: 0,
        }),
    }
}

fn fresh_store(dir: &tempfile::TempDir) -> SharedMetaStore {
    let mut store = RedbMetaStore::open(&dir.path().join("meta.redb")).unwrap();
    store.init(&Progress::fresh(&token(key(10)), [])).unwrap();
    Arc::new(Mutex::new(store))
}

#[actix::test]
async fn a_table_is_made_written_dropped_and_progress_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::start(fresh_store(&dir), None);
    let orders = TableName::new("shop", "orders");
    rig.wait("schema", |seen| seen.spans.len() == 1).await;
    rig.deliver(0, ddl(20, DdlKind::CreateTable, &[&orders], &[&orders]));
    rig.logged("resume 0 20").await;
    rig.wait("registered", |seen| {
        seen.spans.iter().any(|span| span.2 == key(20))
    })
    .await;
    rig.deliver(1, batch(25));
    rig.deliver(1, Delivery::Resolved(CommitTs(30)));
    rig.deliver(0, Delivery::Resolved(CommitTs(30)));
    rig.maintainer
        .send(RunUntil { target: CommitTs(30) })
        .await
        .unwrap();
    let caught_up = MaintainerEvent::CaughtUp { failed: Vec::new() };
    rig.wait("caught up", |seen| seen.events.contains(&caught_up))
        .await;
    let saved = rig.saved();
    assert_eq!(saved.schema, token(OrderKey::end_of(CommitTs(30))));
    assert_eq!(saved.tables[&orders], token(OrderKey::end_of(CommitTs(30))));

    rig.deliver(0, ddl(40, DdlKind::DropTable, &[], &[&orders]));
    rig.deliver(1, ddl(40, DdlKind::DropTable, &[], &[&orders]));
    rig.logged("close 1").await;
    rig.logged("exited dispatcher true").await;
    let status = rig.maintainer.send(GetStatus).await.unwrap();
    assert_eq!((status.tables.len(), status.open_barriers), (0, 0));
    let log = rig.seen.lock().unwrap().log.clone();
    let at = |text: &str| log.iter().position(|line| line == text).expect(text);
    assert!(at("rows 1 25") < at("ddl 40") && at("ddl 40") < at("remove 1"));
    assert!(!log.iter().any(|line| line == "resume 1 40"), "it ends instead");
}

#[actix::test]
async fn a_clean_stop_saves_and_the_next_generation_goes_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::start(fresh_store(&dir), None);
    let orders = TableName::new("shop", "orders");
    rig.wait("schema", |seen| seen.spans.len() == 1).await;
    rig.deliver(0, ddl(20, DdlKind::ImplicitCreate, &[&orders], &[]));
    rig.wait("registered", |seen| seen.spans.len() == 2).await;
    rig.deliver(1, batch(25));
    rig.logged("rows 1 25").await;
    rig.maintainer.send(StopClean { within: WAIT }).await.unwrap();
    rig.wait("stopped", |seen| {
        seen.events.contains(&MaintainerEvent::Stopped { clean: true })
    })
    .await;
    assert_eq!(rig.saved().tables[&orders], token(key(25)));
    rig.maintainer.send(StopMaintainer).await.unwrap();
    rig.logged("exited maintainer true").await;

    let next = Rig::start(Arc::clone(&rig.store), None);
    next.wait("both", |seen| seen.spans.len() == 2).await;
    let starts: Vec<_> = next
        .seen
        .lock()
        .unwrap()
        .spans
        .iter()
        .map(|span| span.2)
        .collect();
    assert_eq!(starts, [key(20), key(25)]);
}

#[actix::test]
async fn a_failed_table_is_told_and_gives_credit_back() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::start(fresh_store(&dir), Some(25));
    let orders = TableName::new("shop", "orders");
    rig.wait("schema", |seen| seen.spans.len() == 1).await;
    rig.deliver(0, ddl(20, DdlKind::ImplicitCreate, &[&orders], &[]));
    rig.wait("registered", |seen| seen.spans.len() == 2).await;
    rig.deliver(1, batch(25));
    rig.logged("remove 1").await;
    rig.deliver(1, batch(26));
    rig.logged("released 64").await;
    rig.wait("told", |seen| {
        let failed =
            |event: &MaintainerEvent| matches!(event, MaintainerEvent::TableFailed { table, .. } if *table == orders);
        seen.events.iter().any(failed)
    })
    .await;
    rig.deliver(0, Delivery::Resolved(CommitTs(30)));
    rig.maintainer
        .send(RunUntil { target: CommitTs(30) })
        .await
        .unwrap();
    rig.wait("ended", |seen| {
        let ended = |event: &MaintainerEvent| matches!(event, MaintainerEvent::CaughtUp { failed } if failed.len() == 1);
        seen.events.iter().any(ended)
    })
    .await;
    assert!(rig.saved().tables[&orders].key < key(25));
}
