//! Files as they lie in the folder, restarts, and disks that fail.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use weir_protocol::sink::SinkWork;
use weir_types::{ChangefeedId, DdlKind, ErrorClass, LineageId, OrderKey, TableName};

use super::disk::DiskFile;
use super::*;
use crate::conformance::{Running, file_config, table};
use crate::error::SinkError;
use crate::testing::{Answer, channel, ddl, key, rows, version};
use crate::{PreparedSink, Scheduler, SinkConfig};

fn prepared(config: &FileConfig) -> Result<PreparedSink> {
    PreparedSink::new(SinkConfig::File(config.clone()), Arc::default())
}

fn running(config: &FileConfig, spans: u32) -> Running {
    Running::start(prepared(config).expect("prepares"), spans)
}

/// Names in the folder but `_weir.json`, sorted.
fn names(config: &FileConfig) -> Vec<String> {
    let entries = fs::read_dir(&config.dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name != IDENTITY_FILE);
    names.sort();
    names
}

/// Ids of a table's rows in its finished files, in order of names and lines.
fn ids(config: &FileConfig, table: &str) -> Vec<u64> {
    let mut ids = Vec::new();
    for name in names(config) {
        if name.starts_with(&format!("s.{table}.")) && name.ends_with(".ndjson") {
            let text = fs::read_to_string(config.dir.join(&name)).unwrap();
            let Some(naming::Parsed::Rows { first, last, .. }) = naming::parse(&name) else {
                panic!("{name}");
            };
            for line in text.lines() {
                let row: Json = serde_json::from_str(line).unwrap();
                let key = OrderKey::parse(row["_weir"]["key"].as_str().unwrap()).unwrap();
                assert!(first <= key && key <= last);
                ids.push(row["data"][0]["id"].as_str().unwrap().parse().unwrap());
            }
        }
    }
    ids
}

#[test]
fn rows_go_into_files_named_by_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    let running = running(&config, 1);
    let version = version("t1", 45);
    running.write(1, rows(&version, &[3, 4], b"x"));
    running.until(|answer| matches!(answer, Answer::Released(_)));
    assert_eq!(names(&config), [format!("s.t1.{}.ndjson.tmp", key(3))]);
    assert_eq!(running.flush(1), key(4));
    assert_eq!(names(&config), [format!("s.t1.{}-{}.ndjson", key(3), key(4))]);
    running.write(1, rows(&version, &[7], b"x"));
    running.write(1, SinkWork::Flush);
    running.write(1, ddl(8, DdlKind::AlterTable, "t1"));
    running.until(|answer| matches!(answer, Answer::DdlWritten(_)));
    assert_eq!(names(&config).len(), 3);
    let text = fs::read_to_string(config.dir.join(format!("_ddl.{}.ndjson", key(8)))).unwrap();
    let message: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&message["type"], &message["isDdl"], &message["table"]),
        (&"ALTER".into(), &true.into(), &"t1".into())
    );
    assert_eq!(ids(&config, "t1"), [3, 4, 7]);
}

#[test]
fn files_are_rotated_by_size_and_age() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = file_config(dir.path());
    config.rotate_bytes = 1_000;
    config.rotate_age = Duration::from_millis(200);
    let running = running(&config, 1);
    let keys: Vec<u64> = (1..=20).collect();
    running.write(1, rows(&version("t1", 45), &keys, &[b'x'; 100]));
    let started = Instant::now();
    running.until(|answer| matches!(answer, Answer::Durable(durable) if durable.upto == key(20)));
    assert!(started.elapsed() < Duration::from_secs(10));
    let files = names(&config);
    assert!(
        files.len() >= 5 && files.iter().all(|name| name.ends_with(".ndjson")),
        "{files:?}"
    );
    assert_eq!(ids(&config, "t1"), keys);
    for name in &files[..files.len() - 1] {
        let length = fs::metadata(config.dir.join(name)).unwrap().len();
        assert!((1_000..1_600).contains(&length), "{length}");
    }
}

#[test]
fn a_restart_drops_unfinished_files_and_skips_finished_rows() {
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    let version = version("t1", 45);
    let first = running(&config, 1);
    first.write(1, rows(&version, &[3, 4], b"x"));
    first.flush(1);
    first.write(1, rows(&version, &[5, 6], b"x"));
    first.until(|answer| matches!(answer, Answer::Released(_)));
    first.scheduler.stop();
    assert_eq!(names(&config).len(), 2, "one is unfinished");
    let sink = prepared(&config).expect("prepares");
    let progress = sink.progress().clone();
    assert_eq!(progress.last(&TableName::new("s", "t1")), Some(key(4)));
    assert_eq!(progress.last(&TableName::new("s", "t2")), None);
    assert_eq!(
        (names(&config).len(), progress.files(), progress.tables()),
        (1, 1, 1)
    );
    let second = Running::start(sink, 1);
    second.write(1, rows(&version, &[4, 5, 6], b"x"));
    // The row that was finished before may be answered on its own.
    while second.flush(1) != key(6) {}
    assert_eq!(ids(&config, "t1"), [3, 4, 5, 6]);
    second.scheduler.stop();
    let third = running(&config, 1);
    third.write(1, rows(&version, &[5, 6], b"x"));
    while third.flush(1) != key(6) {}
    assert_eq!(ids(&config, "t1"), [3, 4, 5, 6], "all of them were finished");
}

#[test]
fn a_ddl_is_not_written_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    for expected in [1, 0] {
        let sink = prepared(&config).expect("prepares");
        assert_eq!(sink.progress().has_ddl(key(8)), expected == 0);
        let counters = Arc::clone(sink.counters());
        let running = Running::start(sink, 1);
        running.write(1, ddl(8, DdlKind::TruncateTable, "t1"));
        running.write(1, ddl(9, DdlKind::ImplicitCreate, "t1"));
        running.until(|answer| matches!(answer, Answer::DdlWritten(ddl) if ddl.key == key(9)));
        assert_eq!(counters.totals().ddl, expected);
        running.scheduler.stop();
        assert_eq!(names(&config).len(), 1, "an implicit creation has no statement");
    }
}

fn refused(config: &FileConfig) -> SinkError {
    prepared(config).err().expect("refused")
}

#[test]
fn another_owner_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    drop(prepared(&config).expect("prepares"));
    let mut other = config.clone();
    other.lineage = LineageId(8);
    assert!(matches!(
        refused(&other),
        SinkError::OtherOwner { field: "lineage", .. }
    ));
    let mut other = config.clone();
    other.changefeed = ChangefeedId("other".into());
    assert!(matches!(
        refused(&other),
        SinkError::OtherOwner {
            field: "changefeed",
            ..
        }
    ));
    drop(prepared(&config).expect("still ours"));
    for text in [
        "",
        "{",
        "{}",
        r#"{"version":2,"changefeed":"orders","lineage":"","created":0}"#,
    ] {
        fs::write(config.dir.join(IDENTITY_FILE), text).unwrap();
        assert!(matches!(refused(&config), SinkError::Identity { .. }), "{text}");
    }
    fs::remove_file(config.dir.join(IDENTITY_FILE)).unwrap();
    drop(prepared(&config).expect("an empty folder is free"));
    fs::remove_file(config.dir.join(IDENTITY_FILE)).unwrap();
    fs::write(config.dir.join("photo.jpg"), "").unwrap();
    assert!(matches!(refused(&config), SinkError::ForeignFolder { .. }));
}

#[test]
fn overlapping_files_are_refused_and_foreign_ones_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    drop(prepared(&config).expect("prepares"));
    let put = |name: &str| fs::write(config.dir.join(name), "").unwrap();
    put("notes.txt");
    put("download.tmp");
    put(&naming::finished("s.a", key(1), key(5)));
    put(&naming::finished("s.b", key(3), key(9)));
    put(&naming::finished("s.a", key(6), key(6)));
    let sink = prepared(&config).expect("nothing overlaps");
    assert_eq!(sink.progress().last(&TableName::new("s", "a")), Some(key(6)));
    put(&naming::finished("s.a", key(5), key(5)));
    assert!(matches!(refused(&config), SinkError::Overlap { .. }));
    assert!(config.dir.join("notes.txt").exists() && config.dir.join("download.tmp").exists());
}

#[test]
fn two_tables_cannot_share_a_target() {
    let dir = tempfile::tempdir().unwrap();
    let running = running(&file_config(dir.path()), 1);
    let (replies, answers) = channel();
    running.scheduler.open(crate::OpenSpan {
        dispatcher: DispatcherId(2),
        tables: vec![SpanTable {
            source: TableName::new("s", "other"),
            target: TableName::new("s", table(1)),
            after: OrderKey::MIN,
        }],
        replies,
    });
    let answer = answers.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(answer, Answer::Failed(failed) if failed.error.class == ErrorClass::Table));
}

/// The operating system's files, but full after a number of bytes, or failing to sync.
#[derive(Default)]
struct Faults {
    /// Bytes that still fit.
    room: AtomicU64,
    /// How often somebody met the full disk.
    full: AtomicU64,
    sync_fails: AtomicBool,
    folder_sync_fails: AtomicBool,
    open: AtomicU64,
    open_max: AtomicU64,
    reopened: AtomicU64,
}

struct FaultyDisk(Arc<Faults>);

struct FaultyFile(Box<dyn DiskFile>, Arc<Faults>);

impl FaultyDisk {
    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let open = self.0.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.open_max.fetch_max(open, Ordering::SeqCst);
        Box::new(FaultyFile(file, Arc::clone(&self.0)))
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        self.1.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DiskFile for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.1.room.load(Ordering::SeqCst);
        if room == 0 {
            self.1.full.fetch_add(1, Ordering::SeqCst);
            return Err(ErrorKind::StorageFull.into());
        }
        let fits = bytes.len().min(usize::try_from(room).unwrap());
        let written = self.0.write(&bytes[..fits])?;
        self.1.room.fetch_sub(written as u64, Ordering::SeqCst);
        Ok(written)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.1.sync_fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        self.0.sync()
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        OsDisk.create(path).map(|file| self.file(file))
    }

    fn reopen(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        self.0.reopened.fetch_add(1, Ordering::SeqCst);
        OsDisk.reopen(path, length).map(|file| self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        OsDisk.exists(path)
    }

    fn sync_folder(&self, dir: &Path) -> io::Result<()> {
        if self.0.folder_sync_fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        OsDisk.sync_folder(dir)
    }
}

/// A sink on a faulty disk with so much room and so many handles.
fn faulty(config: &FileConfig, room: u64, handles: usize, spans: u32) -> (Running, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    faults.room.store(room, Ordering::SeqCst);
    let disk = Box::new(FaultyDisk(Arc::clone(&faults)));
    let (backend, _) = FileBackend::open_on(config.clone(), Arc::default(), disk, handles).expect("opens");
    let running = Running::on(Box::new(backend), spans);
    (running, faults)
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_lost_or_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    let (running, faults) = faulty(&config, 777, 4, 1);
    let keys: Vec<u64> = (1..=50).collect();
    running.write(1, rows(&version("t1", 45), &keys, b"value"));
    running.write(1, SinkWork::Flush);
    for room in [1, 500, 0, 3_000, u64::MAX / 2] {
        let before = faults.full.load(Ordering::SeqCst);
        while faults.full.load(Ordering::SeqCst) == before {
            std::thread::sleep(Duration::from_millis(2));
        }
        faults.room.fetch_add(room, Ordering::SeqCst);
    }
    running.until(|answer| {
        assert!(!matches!(answer, Answer::Failed(_)), "{answer:?}");
        matches!(answer, Answer::Durable(durable) if durable.upto == key(50))
    });
    assert_eq!(ids(&config, "t1"), keys);
}

#[test]
fn a_sink_that_waits_for_room_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    let (running, faults) = faulty(&config, 0, 4, 1);
    running.write(1, rows(&version("t1", 45), &[1], b"value"));
    while faults.full.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    running.scheduler.stop();
    let answers: Vec<_> = running.answers.try_iter().collect();
    assert!(matches!(answers[..], [Answer::Released(_)]), "{answers:?}");
}

#[test]
fn a_failed_sync_is_a_failure_and_nothing_counts_as_durable() {
    for folder in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let config = file_config(dir.path());
        let (running, faults) = faulty(&config, u64::MAX / 2, 4, 1);
        let fails = if folder {
            &faults.folder_sync_fails
        } else {
            &faults.sync_fails
        };
        fails.store(true, Ordering::SeqCst);
        running.write(1, rows(&version("t1", 45), &[1], b"value"));
        running.write(1, SinkWork::Flush);
        let seen = running.until(|answer| matches!(answer, Answer::Failed(_)));
        assert!(
            !seen.iter().any(|answer| matches!(answer, Answer::Durable(_))),
            "{seen:?}"
        );
        running.write(1, rows(&version("t1", 45), &[2], b"value"));
        running.until(|answer| matches!(answer, Answer::Released(_)));
    }
}

#[test]
fn handles_are_bounded_and_files_go_on_when_opened_again() {
    const SPANS: u32 = 40;
    const HANDLES: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    let (running, faults) = faulty(&config, u64::MAX / 2, HANDLES, SPANS);
    let versions: Vec<_> = (1..=SPANS).map(|span| version(&table(span), 45)).collect();
    for round in 1..=5 {
        for span in 1..=SPANS {
            running.write(span, rows(&versions[span as usize - 1], &[round], b"value"));
        }
        let mut left = SPANS;
        running.until(|answer| {
            left -= u32::from(matches!(answer, Answer::Released(_)));
            left == 0
        });
    }
    // The workers hold one more each, and close the oldest after they have let go.
    let workers = u64::try_from(config.workers).unwrap();
    let most = faults.open_max.load(Ordering::SeqCst);
    assert!(most <= HANDLES as u64 + 2 * workers, "{most}");
    assert!(faults.reopened.load(Ordering::SeqCst) >= u64::from(SPANS) * 4 - 40);
    for span in 1..=SPANS {
        assert_eq!(running.flush(span), key(5));
        assert_eq!(ids(&config, &table(span)), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_reopened_file_is_cut_to_its_good_length() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("a");
    fs::write(&path, "good lines|half a li").unwrap();
    let mut file = OsDisk.reopen(&path, 10).unwrap();
    assert_eq!(file.write(b"|more").unwrap(), 5);
    assert_eq!(fs::read(&path).unwrap(), b"good lines|more");
    assert!(OsDisk.reopen(&path, 100).is_err(), "a hole is not made");
}

#[test]
fn many_flushes_share_their_folder_syncs() {
    const SPANS: u32 = 300;
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    let running = running(&config, SPANS);
    for span in 1..=SPANS {
        running.write(span, rows(&version(&table(span), 45), &[1], b"x"));
        running.write(span, SinkWork::Flush);
    }
    let mut left = SPANS;
    running.until(|answer| {
        left -= u32::from(matches!(answer, Answer::Durable(durable) if durable.upto == key(1)));
        left == 0
    });
    assert_eq!(names(&config).len(), SPANS as usize);
}

#[test]
fn a_large_value_passes_in_pieces() {
    // The scratch of a worker is the only thing that could hold it a second time.
    let dir = tempfile::tempdir().unwrap();
    let config = file_config(dir.path());
    let (backend, _) = FileBackend::open(config.clone(), Arc::default()).expect("opens");
    let metrics = crate::metrics::SinkMetrics::new("test");
    let mut worker = WorkerContext::new(metrics, Arc::default());
    let name = TableName::new("s", "t1");
    let span = SpanTable {
        source: name.clone(),
        target: name,
        after: OrderKey::MIN,
    };
    let mut writer = backend.open(DispatcherId(1), &[span]).expect("opens");
    let length = 8 << 20;
    let mut value = vec![b'x'; length];
    value[length / 2] = b'\n';
    for (at, collation) in [(1, 45), (2, 63), (3, 8), (4, 54)] {
        let SinkWork::Rows(batch) = rows(&version("t1", collation), &[at], &value) else {
            panic!("rows make rows");
        };
        writer.write(&batch, &mut worker).expect("writes");
        assert!(worker.scratch.capacity() <= 2 * output::BUFFER_BYTES);
    }
    writer.flush(&mut worker).expect("flushes");
    let text = fs::read_to_string(config.dir.join(naming::finished("s.t1", key(1), key(4)))).unwrap();
    let expected = String::from_utf8(value).unwrap();
    for line in text.lines().take(3) {
        let row: Json = serde_json::from_str(line).unwrap();
        assert!(row["data"][0]["v"] == Json::String(expected.clone()));
    }
    assert_eq!(text.lines().count(), 4);
}

#[test]
fn the_scheduler_ends_when_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let scheduler: Scheduler = prepared(&file_config(dir.path()))
        .expect("prepares")
        .into_scheduler(channel().0)
        .expect("starts");
    drop(scheduler);
}
