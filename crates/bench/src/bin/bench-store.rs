//! `store`: raw binlog bytes/s into the event store, coalescing included, ÷ a plain write and `fdatasync` of the same
//! bytes. Both sides sync at the same borders.
//!
//! The commit groups are built before the clock starts: making them is the source's work. Each pass writes a new
//! store, and the clock stops when everything is synced and sealed segments are coalesced.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use weir_bench::files::binlogs;
use weir_bench::groups::{self, Groups};
use weir_bench::pairs::MEASUREMENT_MIN;
use weir_bench::{Report, Side, measure};
use weir_event_store::{LogOptions, LogStore, ScanEnd, ScanRequest, StoreReader, StoreWriter, SyncTicket};
use weir_types::{CommitTs, OrderKey};

/// Input between two syncs, bytes of binlog.
const SYNC_BYTES: u64 = 4 << 20;
/// What arrives in 5 ms at 13 MB/s of binlog: the small groups of a source that is not behind.
const SMALL_GROUP_BYTES: u64 = 64 << 10;
/// Binlog for the small groups: each one costs a sync, and more would only repeat it.
const SMALL_GROUPS_BYTES_MAX: u64 = 32 << 20;
/// Default of `store.segment-size`.
const SEGMENT_BYTES: u64 = 64 << 20;
const MANY_TABLES: usize = 2_000;
/// Tickets that may wait: the next group is compressed while the one before is synced.
const TICKETS: usize = 1;
/// Bytes that one scan step asks for.
const SCAN_BYTES: usize = 1 << 20;
const COMMAND: &str = "cargo xtask bench store --json";

#[derive(Parser, Debug)]
struct Arguments {
    /// Folder with one folder of binlog files per shape.
    #[arg(long)]
    data: PathBuf,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// One way of writing.
struct Case {
    name: &'static str,
    groups: Groups,
    /// The same bytes, cut where the groups end.
    plain: Vec<Vec<u8>>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = binlogs(&arguments.data.join("tpcc"))?;
    let scratch = arguments.data.parent().context("the data folder has no parent")?;
    let small = Case::new(
        "store/5ms-groups",
        groups::read(&files[..1], SMALL_GROUP_BYTES, 0)?.cut(SMALL_GROUPS_BYTES_MAX),
    )?;
    let many = Case::new(
        "store/2000-tables",
        groups::read(&files, SYNC_BYTES, MANY_TABLES)?,
    )?;
    let usual = Case::new("store", groups::read(&files, SYNC_BYTES, 0)?)?;
    for case in [small, many, usual] {
        report(&case, scratch)?.print(arguments.json);
    }
    Ok(())
}

impl Case {
    fn new(name: &'static str, groups: Groups) -> Result<Self> {
        let count = u64::try_from(groups.inputs.len())?;
        let size = usize::try_from(groups.raw_bytes.div_ceil(count))?;
        // What is written does not matter to a plain write; that it is not a run of zeros might.
        let pattern: Vec<u8> = (0..size)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let plain = vec![pattern; groups.inputs.len()];
        Ok(Self { name, groups, plain })
    }
}

fn report(case: &Case, scratch: &Path) -> Result<Report> {
    let mut cpu = Duration::ZERO;
    let mut passes = 0_u32;
    let pairs = measure(|side| {
        let (mut spent, mut bytes) = (Duration::ZERO, 0);
        while spent < MEASUREMENT_MIN {
            let dir = tempfile::tempdir_in(scratch)?;
            spent += match side {
                Side::Ours => {
                    let before = cpu_time()?;
                    let elapsed = append(case, dir.path())?;
                    cpu += cpu_time()? - before;
                    passes += 1;
                    elapsed
                }
                Side::Other => write_plain(case, dir.path())?,
            };
            bytes += case.groups.raw_bytes;
        }
        Ok::<_, anyhow::Error>(bytes as f64 / spent.as_secs_f64())
    })?;
    let gigabytes = case.groups.raw_bytes as f64 / 1e9;
    let notes = format!(
        "{} bytes of binlog, {} groups, {} tables, {} row events; {:.2} cpu s/GB with the copy of the input; {}",
        case.groups.raw_bytes,
        case.groups.inputs.len(),
        case.groups.tables.len(),
        case.groups.events,
        cpu.as_secs_f64() / f64::from(passes) / gigabytes,
        read_back(case, scratch)?,
    );
    Ok(Report::rates(case.name, "bytes/s", &pairs, COMMAND, notes))
}

/// As `weir run` opens it by default.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT_BYTES,
        ..LogOptions::default()
    }
}

/// Appends all groups to a new store, each synced.
fn append(case: &Case, dir: &Path) -> Result<Duration> {
    let inputs = case.groups.inputs.clone();
    let (_, mut writer, _reader) = LogStore::open(dir, options())?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (tickets, waiting) = sync_channel::<Box<dyn SyncTicket>>(TICKETS);
        let syncer = scope.spawn(move || -> Result<()> {
            for ticket in waiting {
                ticket.wait()?;
            }
            Ok(())
        });
        for input in inputs {
            writer.append(input, now_ms()).map_err(|refused| refused.error)?;
            if let Some(ticket) = writer.commit_group()?
                && tickets.send(ticket).is_err()
            {
                break; // the syncing thread says why
            }
        }
        drop(tickets);
        syncer
            .join()
            .map_err(|_| anyhow::anyhow!("the syncing thread panicked"))?
    })?;
    writer.close()?;
    // Waits for the thread that seals.
    drop(writer);
    Ok(start.elapsed())
}

fn write_plain(case: &Case, dir: &Path) -> Result<Duration> {
    let start = Instant::now();
    let mut file = File::create(dir.join("plain"))?;
    for chunk in &case.plain {
        file.write_all(chunk)?;
        file.sync_data()?;
    }
    Ok(start.elapsed())
}

/// Opens a written store again and scans every table: recovery time and scan rate.
fn read_back(case: &Case, scratch: &Path) -> Result<String> {
    let dir = tempfile::tempdir_in(scratch)?;
    append(case, dir.path())?;
    let stored: u64 = std::fs::read_dir(dir.path())?
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|meta| meta.len())
        .sum();
    let start = Instant::now();
    let (_, _writer, reader) = LogStore::open(dir.path(), options())?;
    let recovery = start.elapsed();
    let start = Instant::now();
    let (mut bytes, mut events) = (0_u64, 0_u64);
    for table in &case.groups.tables {
        let mut after = OrderKey::new(CommitTs::ZERO, 0);
        let upto = OrderKey::new(reader.resolved(), u32::MAX);
        loop {
            let request = ScanRequest {
                table: table.clone(),
                after,
                upto,
                bytes_max: SCAN_BYTES,
                events_max: usize::MAX,
                lane: true,
            };
            let outcome = reader.scan(&request)?;
            for slice in &outcome.slices {
                bytes += slice.range.len() as u64;
                events += u64::from(slice.events);
                after = slice.last;
            }
            match outcome.end {
                ScanEnd::Exhausted => break,
                ScanEnd::More => {}
                ScanEnd::TooLarge { bytes, .. } => bail!("a scan by the reserved lane refused {bytes} bytes"),
            }
        }
    }
    if events != case.groups.events {
        bail!("{} row events were written, {events} read", case.groups.events);
    }
    let gigabytes = case.groups.raw_bytes as f64 / 1e9;
    Ok(format!(
        "{:.2} stored bytes per byte, recovery {:.2} s/GB, scan by table {:.0} MB/s of row events",
        stored as f64 / case.groups.raw_bytes as f64,
        recovery.as_secs_f64() / gigabytes,
        bytes as f64 / 1e6 / start.elapsed().as_secs_f64(),
    ))
}

/// CPU time of this process, all threads.
fn cpu_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields after the command name, which may hold spaces; ticks of 10 ms.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks =
        |field: usize| -> Result<u64> { Ok(fields.get(field).context("short /proc/self/stat")?.parse()?) };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
