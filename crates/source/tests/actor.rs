//! The stage: window, end, stop, failure.

mod model;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use actix::{Actor, Context, Handler, Recipient};
use model::{Model, options};
use weir_actor::{ActorExited, ExitGuard, post, post_to};
use weir_filter::{NameCase, TableFilter};
use weir_protocol::store::{AppendBatch, Persisted, StageFailed};
use weir_source::actor::{
    BinlogReader, EndReason, ReadProgress, SourceEnded, SourceInput, SourceOptions, SourceOutlets, StopSource,
};
use weir_source::files::FilesOptions;
use weir_source::{AssemblerOptions, Skip};
use weir_types::{AttemptId, Generation};

#[derive(Default)]
struct Seen {
    model: Model,
    unacknowledged: Vec<Persisted>,
    in_flight: usize,
    most_in_flight: usize,
    largest: usize,
    seq: u64,
    ended: Vec<SourceEnded>,
    failed: Vec<StageFailed>,
    exited: Vec<ActorExited>,
    ended_with_in_flight: bool,
}

/// A store and a pipeline owner.
struct Downstream {
    seen: Arc<Mutex<Seen>>,
    source: Option<Recipient<Persisted>>,
    acknowledges: bool,
}

impl Actor for Downstream {
    type Context = Context<Self>;
}

impl Handler<AppendBatch> for Downstream {
    type Result = ();

    fn handle(&mut self, batch: AppendBatch, _: &mut Self::Context) {
        let mut seen = self.seen.lock().expect("no panic");
        seen.seq += 1;
        assert_eq!(batch.seq, seen.seq);
        seen.largest = seen.largest.max(batch.bytes);
        seen.in_flight += batch.bytes;
        seen.most_in_flight = seen.most_in_flight.max(seen.in_flight);
        let persisted = Persisted {
            seq: batch.seq,
            bytes: batch.bytes,
        };
        for input in batch.inputs {
            seen.model.append(input);
        }
        if self.acknowledges {
            seen.in_flight -= persisted.bytes;
            post(self.source.as_ref().expect("wired"), persisted);
        } else {
            seen.unacknowledged.push(persisted);
        }
    }
}

impl Handler<SourceEnded> for Downstream {
    type Result = ();

    fn handle(&mut self, ended: SourceEnded, _: &mut Self::Context) {
        let mut seen = self.seen.lock().expect("no panic");
        seen.ended_with_in_flight = seen.in_flight > 0;
        seen.ended.push(ended);
    }
}

impl Handler<StageFailed> for Downstream {
    type Result = ();

    fn handle(&mut self, failed: StageFailed, _: &mut Self::Context) {
        self.seen.lock().expect("no panic").failed.push(failed);
    }
}

impl Handler<ActorExited> for Downstream {
    type Result = ();

    fn handle(&mut self, exited: ActorExited, _: &mut Self::Context) {
        self.seen.lock().expect("no panic").exited.push(exited);
    }
}

#[derive(actix::Message)]
#[rtype(result = "()")]
struct Wire(Recipient<Persisted>);

impl Handler<Wire> for Downstream {
    type Result = ();

    fn handle(&mut self, wire: Wire, _: &mut Self::Context) {
        self.source = Some(wire.0);
    }
}

struct Stage {
    seen: Arc<Mutex<Seen>>,
    source: actix::Addr<BinlogReader>,
    progress: Arc<ReadProgress>,
}

async fn start(files: FilesOptions, window_bytes: usize, acknowledges: bool) -> Stage {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let downstream = Downstream {
        seen: Arc::clone(&seen),
        source: None,
        acknowledges,
    }
    .start();
    let progress = Arc::new(ReadProgress::default());
    let options = SourceOptions {
        changefeed: "test".to_owned(),
        input: SourceInput::Files(files),
        assembler: AssemblerOptions {
            filter: Arc::new(TableFilter::all(NameCase::Sensitive)),
            known: Vec::new(),
            next_attempt: AttemptId(1),
            transaction_buffer_bytes: 1 << 20,
            event_bytes_max: 1 << 20,
            skip: Skip::Nothing,
        },
        window_bytes,
        progress: Arc::clone(&progress),
    };
    let outlets = SourceOutlets {
        store: downstream.clone().recipient(),
        ended: downstream.clone().recipient(),
        failed: downstream.clone().recipient(),
    };
    let exit = ExitGuard::new("source", Generation(1), downstream.downgrade().recipient());
    let source = BinlogReader::new(options, outlets, exit).start();
    downstream
        .send(Wire(source.clone().recipient()))
        .await
        .expect("alive");
    Stage {
        seen,
        source,
        progress,
    }
}

async fn wait_for(stage: &Stage, what: impl Fn(&Seen) -> bool) {
    let since = Instant::now();
    while !what(&stage.seen.lock().expect("no panic")) {
        assert!(since.elapsed() < Duration::from_secs(60), "it never happens");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn recording(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../integration/data")
        .join(name)
}

#[actix::test]
async fn all_is_sent_within_the_window_and_durable_before_the_end_is_told() {
    let window = 2 << 20;
    let stage = start(options(&recording("quickstart")), window, true).await;
    wait_for(&stage, |seen| !seen.ended.is_empty()).await;
    let seen = stage.seen.lock().expect("no panic");
    assert!(
        seen.most_in_flight <= window.max(seen.largest),
        "{} in flight",
        seen.most_in_flight
    );
    assert!(!seen.ended_with_in_flight && seen.failed.is_empty());
    assert_eq!(seen.ended[0].reason, EndReason::Reached);
    assert_eq!(Some(&seen.ended[0].upto), seen.model.position.as_ref());
    let rows: u64 = seen.model.counts().values().flatten().sum();
    assert_eq!(rows, 25_053);
    let progress = &stage.progress;
    assert!(progress.transactions.load(Ordering::Relaxed) >= 1_585);
    let (read, total) = (&progress.bytes_read, &progress.bytes_total);
    assert!(read.load(Ordering::Relaxed) <= total.load(Ordering::Relaxed));
}

#[actix::test]
async fn a_store_that_stands_still_stops_the_source_and_an_order_ends_it() {
    let window = 1 << 20;
    let stage = start(options(&recording("quickstart")), window, false).await;
    wait_for(&stage, |seen| seen.in_flight > 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    {
        let mut seen = stage.seen.lock().expect("no panic");
        assert!(seen.in_flight <= window.max(seen.largest));
        assert!(seen.ended.is_empty());
        // One batch comes back, and so one or a few more come.
        let first = seen.unacknowledged.remove(0);
        seen.in_flight -= first.bytes;
        post_to(&stage.source, first);
    }
    let before = stage.seen.lock().expect("no panic").seq;
    wait_for(&stage, |seen| seen.seq > before).await;
    post_to(&stage.source, StopSource);
    wait_for(&stage, |seen| !seen.exited.is_empty()).await;
    let seen = stage.seen.lock().expect("no panic");
    assert!(seen.exited[0].clean && seen.ended.is_empty() && seen.failed.is_empty());
}

#[actix::test]
async fn errors_are_told_after_everything_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = recording("mysql-9.7-xa");
    for name in ["binlog.000001", "binlog.index"] {
        std::fs::copy(source.join(name), folder.path().join(name)).expect("a copy");
    }
    std::fs::write(folder.path().join("binlog.index"), "binlog.000001\n").expect("the index");
    let path = folder.path().join("binlog.000001");
    let mut bytes = std::fs::read(&path).expect("the file");
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).expect("a flipped file");
    let stage = start(options(folder.path()), 1 << 20, true).await;
    wait_for(&stage, |seen| !seen.failed.is_empty()).await;
    let seen = stage.seen.lock().expect("no panic");
    assert_eq!(seen.failed[0].stage, "source");
    assert!(seen.failed[0].error.message.contains("binlog.000001:"));
    assert!(seen.ended.is_empty() && !seen.model.txns.is_empty() && seen.in_flight == 0);
}

#[actix::test]
async fn a_cut_end_is_told_as_such() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = std::fs::read(recording("mysql-9.7-tagged").join("binlog.000001")).expect("the file");
    std::fs::write(folder.path().join("binlog.000001"), &bytes[..bytes.len() - 150]).expect("a cut file");
    let files = FilesOptions {
        index: None,
        ..options(folder.path())
    };
    let stage = start(files, 1 << 20, true).await;
    wait_for(&stage, |seen| !seen.ended.is_empty()).await;
    let seen = stage.seen.lock().expect("no panic");
    let EndReason::Cut(report) = &seen.ended[0].reason else {
        panic!("ended as {:?}", seen.ended[0].reason);
    };
    assert_eq!(report.code, "WEIR-SRC-015");
    assert!(!seen.model.txns.is_empty());
}
