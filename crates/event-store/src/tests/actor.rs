//! The actor: acknowledgements in order, waiting for room, clean stop.

use std::sync::Mutex;

use actix::{Actor, Addr, Context, Handler};
use weir_protocol::store::{AdvanceGc, AppendBatch, Persisted, ResolvedAdvanced, StageFailed, TableDetached};
use weir_types::OrderKey;

use super::log::{input, table};
use super::*;
use crate::actor::{AttachSource, StopStore, StoreActor, StoreOutlets};

#[derive(Default)]
struct Seen {
    persisted: Vec<Persisted>,
    resolved: Vec<ResolvedAdvanced>,
    failed: Vec<StageFailed>,
    detached: Vec<TableDetached>,
}

struct Probe(Arc<Mutex<Seen>>);

impl Actor for Probe {
    type Context = Context<Self>;
}

macro_rules! note {
    ($message:ty, $field:ident) => {
        impl Handler<$message> for Probe {
            type Result = ();
            fn handle(&mut self, message: $message, _: &mut Self::Context) {
                self.0.lock().unwrap().$field.push(message);
            }
        }
    };
}
note!(Persisted, persisted);
note!(ResolvedAdvanced, resolved);
note!(StageFailed, failed);
note!(TableDetached, detached);

struct Rig {
    seen: Arc<Mutex<Seen>>,
    probe: Addr<Probe>,
    store: Addr<StoreActor>,
}

async fn rig(writer: LogWriter) -> Rig {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let probe = Probe(Arc::clone(&seen)).start();
    let outlets = StoreOutlets {
        resolved: probe.clone().recipient(),
        detached: probe.clone().recipient(),
        failed: probe.downgrade().recipient(),
    };
    let store = StoreActor::new(Box::new(writer), outlets, "test", None);
    let store = store
        .with_stuck_after(std::time::Duration::from_millis(300))
        .start();
    let persisted = probe.downgrade().recipient();
    store.send(AttachSource { persisted }).await.unwrap();
    Rig { seen, probe, store }
}

fn batch(seq: u64, body: &[u8]) -> AppendBatch {
    let inputs = vec![input(0..2, seq * 2, body), input(1..2, seq * 2 + 1, body)];
    AppendBatch {
        seq,
        bytes: 10,
        inputs,
    }
}

async fn until(rig: &Rig, done: impl Fn(&Seen) -> bool) {
    for _ in 0..2_000 {
        if done(&rig.seen.lock().unwrap()) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it did not come");
}

#[actix::test]
async fn everything_is_acknowledged_once_and_visible_before() {
    let volume = FaultVolume::new();
    let (_, writer, reader) = LogStore::open_volume(Arc::new(volume.clone()), small()).unwrap();
    let rig = rig(writer).await;
    for seq in 1..=200 {
        rig.store.send(batch(seq, b"row")).await.unwrap();
    }
    until(&rig, |s| s.persisted.last().is_some_and(|p| p.seq == 200)).await;
    {
        let seen = rig.seen.lock().unwrap();
        assert!(seen.persisted.windows(2).all(|w| w[0].seq < w[1].seq));
        assert_eq!(seen.persisted.iter().map(|p| p.bytes).sum::<usize>(), 2_000);
        assert!(seen.resolved.windows(2).all(|w| w[0].resolved <= w[1].resolved));
        assert_eq!(seen.resolved.last().unwrap().resolved, reader.resolved());
        assert!(seen.failed.is_empty());
    }
    rig.store.send(StopStore).await.unwrap();
    for _ in 0..200 {
        if !rig.store.connected() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(!rig.store.connected() && rig.probe.connected());
    let open = open_log(&volume.crash(&mut || false), &small()).unwrap();
    assert_eq!(open.recovered.resolved, reader.resolved());
}

#[actix::test]
async fn without_room_inputs_wait_and_go_on_after_gc() {
    let options = LogOptions {
        disk_quota: 100 << 10,
        ..small()
    };
    let (_, writer, reader) = LogStore::open_volume(Arc::new(FaultVolume::new()), options).unwrap();
    let rig = rig(writer).await;
    let mut noise = Rng::new(3);
    let body: Vec<u8> = (0..4_000).map(|_| noise.draw() as u8).collect();
    for seq in 1..=30 {
        rig.store.send(batch(seq, &body)).await.unwrap();
    }
    let mut stalled = 0;
    loop {
        let before = rig.seen.lock().unwrap().persisted.last().map_or(0, |p| p.seq);
        if before == 30 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        let seen = rig.seen.lock().unwrap().persisted.last().map_or(0, |p| p.seq);
        if seen == before {
            stalled += 1;
            assert!(stalled < 200);
            let upto = OrderKey::end_of(reader.resolved());
            let tables = vec![(table(0), upto), (table(1), upto)];
            rig.store.send(AdvanceGc { tables, schema: upto }).await.unwrap();
        }
    }
    assert!(stalled > 0);
    assert!(rig.seen.lock().unwrap().failed.is_empty());
}

/// Table 1 drains, table 0 does not move: after a while it is given up, and the rest
/// goes on.
#[actix::test]
async fn a_stuck_table_is_given_up_so_that_the_others_go_on() {
    let options = LogOptions {
        disk_quota: 100 << 10,
        ..small()
    };
    let (_, writer, reader) = LogStore::open_volume(Arc::new(FaultVolume::new()), options).unwrap();
    let rig = rig(writer).await;
    let mut noise = Rng::new(3);
    let body: Vec<u8> = (0..4_000).map(|_| noise.draw() as u8).collect();
    for seq in 1..=60 {
        // Table 1 has small rows.
        let inputs = vec![input(0..1, seq * 2, &body), input(1..2, seq * 2 + 1, b"row")];
        rig.store
            .send(AppendBatch {
                seq,
                bytes: 10,
                inputs,
            })
            .await
            .unwrap();
    }
    until(&rig, |s| {
        let schema = OrderKey::end_of(reader.resolved());
        let tables = vec![(table(0), OrderKey::MIN), (table(1), schema)];
        weir_actor::post_to(&rig.store, AdvanceGc { tables, schema });
        s.persisted.last().is_some_and(|p| p.seq == 60)
    })
    .await;
    let seen = rig.seen.lock().unwrap();
    assert_eq!(seen.detached, [TableDetached { table: table(0) }]);
    assert!(seen.failed.is_empty());
    assert!(matches!(
        reader.check_start(&table(0), OrderKey::MIN),
        Err(StoreError::Detached(_))
    ));
    assert!(
        reader
            .check_start(&table(1), OrderKey::end_of(reader.resolved()))
            .is_ok()
    );
}

#[actix::test]
async fn a_failed_sync_stops_the_stage() {
    let volume = FaultVolume::new();
    let (_, writer, reader) = LogStore::open_volume(Arc::new(volume.clone()), small()).unwrap();
    let rig = rig(writer).await;
    volume.fail(0, Fault::SyncError);
    rig.store.send(batch(1, b"row")).await.unwrap();
    until(&rig, |s| !s.failed.is_empty()).await;
    rig.store.send(batch(2, b"row")).await.unwrap();
    let seen = rig.seen.lock().unwrap();
    assert_eq!(seen.failed[0].error.code, "WEIR-SEG-002");
    assert!(seen.persisted.is_empty() && reader.resolved() == weir_types::CommitTs::ZERO);
}
