//! Speed of the log against plain writes of the same raw bytes, both synced every
//! 4 MiB. Usage: `store-speed DIR [MIB] [TABLES] [GROUP_KIB]`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use weir_event_store::{LogOptions, LogStore, ScanEnd, ScanRequest, StoreReader, StoreWriter, SyncTicket};
use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{BlockBuilder, Flavor, OrderKey, RowKind, SourceIdentity, TableName, TableVersion};

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

struct Noise(u64);

impl Noise {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Rows like TPC-C's: small numbers, letters, some repetition.
fn row(noise: &mut Noise, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[12, 0xff, 0x0f, 0, 0]);
    for _ in 0..6 {
        out.extend_from_slice(&((noise.draw() % 3_000) as u32).to_le_bytes());
    }
    for _ in 0..24 {
        out.push(b'A' + (noise.draw() % 26) as u8);
    }
    out.extend_from_slice(b"2026-11-30 12:00:00 GC ORIGINAL");
}

fn inputs(mib: usize, tables: usize, group_bytes: usize) -> Vec<StoreInput> {
    let versions: Vec<_> = (0..tables)
        .map(|n| {
            Arc::new(TableVersion {
                name: TableName::new("tpcc", format!("t{n}")),
                flavor: Flavor::Mysql,
                columns: Vec::new(),
                primary_key: Vec::new(),
            })
        })
        .collect();
    let mut noise = Noise(88_172_645_463_325_252);
    let (mut out, mut total, mut offset, mut body) = (Vec::new(), 0, 4, Vec::new());
    while total < mib << 20 {
        let mut group = TxnGroup::default();
        let mut blocks: Vec<BlockBuilder> = versions
            .iter()
            .map(|v| BlockBuilder::new(Arc::clone(v)))
            .collect();
        let (mut bytes, mut txn) = (0, 0);
        while bytes < group_bytes {
            for ordinal in 1..=20 {
                row(&mut noise, &mut body);
                let table = (noise.draw() % tables as u64) as usize;
                blocks[table].push(txn, ordinal, RowKind::Insert, 0, &body);
                bytes += body.len() + 16;
                offset += body.len() as u64 + 60;
            }
            group.txns.push(TxnMeta {
                commit_time_ms: 1_700_000_000_000 + offset / 1_000,
                gtid: None,
                end_offset: offset,
            });
            txn += 1;
        }
        total += bytes;
        blocks.retain(|b| !b.is_empty());
        group.blocks = blocks;
        let upto = ReadPosition {
            identity: SourceIdentity::Digest(1),
            file: Arc::from("bin.1"),
            offset,
        };
        out.push(StoreInput::Group { group, upto });
    }
    out
}

fn raw_bytes(inputs: &[StoreInput]) -> usize {
    let of = |input: &StoreInput| match input {
        StoreInput::Group { group, .. } => group.blocks.iter().map(|b| b.payload.len()).sum(),
        _ => 0,
    };
    inputs.iter().map(of).sum()
}

fn plain(dir: &Path, inputs: &[StoreInput]) -> AnyResult<f64> {
    let path = dir.join("plain");
    let mut file = std::fs::File::create(&path)?;
    let (start, mut unsynced) = (Instant::now(), 0);
    for input in inputs {
        if let StoreInput::Group { group, .. } = input {
            for block in &group.blocks {
                file.write_all(&block.payload)?;
                unsynced += block.payload.len();
            }
        }
        if unsynced >= 4 << 20 {
            file.sync_data()?;
            unsynced = 0;
        }
    }
    file.sync_data()?;
    let seconds = start.elapsed().as_secs_f64();
    drop(file);
    std::fs::remove_file(path)?;
    Ok(raw_bytes(inputs) as f64 / seconds / 1e6)
}

fn log(dir: &Path, inputs: Vec<StoreInput>, sync_bytes: usize) -> AnyResult<f64> {
    let raw = raw_bytes(&inputs);
    let path = dir.join("log");
    let (_, mut writer, reader) = LogStore::open(&path, LogOptions::default())?;
    let (to, tickets) = sync_channel::<Box<dyn SyncTicket>>(2);
    let syncer = std::thread::spawn(move || tickets.into_iter().try_for_each(|t| t.wait().map(|_| ())));
    let (start, mut unsynced) = (Instant::now(), 0);
    for input in inputs {
        unsynced += raw_bytes(std::slice::from_ref(&input));
        writer.append(input, 1_800_000_000_000)?;
        if unsynced >= sync_bytes {
            unsynced = 0;
            if let Some(ticket) = writer.commit_group()? {
                to.send(ticket)?;
            }
        }
    }
    if let Some(ticket) = writer.commit_group()? {
        to.send(ticket)?;
    }
    drop(to);
    syncer.join().map_err(|_| "the sync thread panicked")??;
    let disk = writer.usage();
    drop(writer); // waits for the sealing thread
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "  {} segments, {} MB on disk for {} MB",
        disk.segments,
        disk.disk_bytes / 1_000_000,
        raw / 1_000_000
    );
    drop(reader);
    let opening = Instant::now();
    let (_, writer, reader) = LogStore::open(&path, LogOptions::default())?;
    println!("  opened in {:.3} s", opening.elapsed().as_secs_f64());
    let scanning = Instant::now();
    let mut bytes = 0;
    for table in reader.tables_of_view() {
        let mut after = OrderKey::MIN;
        loop {
            let outcome = reader.scan(&ScanRequest {
                table: table.clone(),
                after,
                upto: OrderKey::end_of(reader.resolved()),
                bytes_max: 4 << 20,
                events_max: usize::MAX,
                lane: false,
            })?;
            bytes += outcome.slices.iter().map(|s| s.range.len()).sum::<usize>();
            match (outcome.end, outcome.slices.last()) {
                (ScanEnd::More, Some(slice)) => after = slice.last,
                _ => break,
            }
        }
    }
    assert_eq!(bytes, raw);
    println!(
        "  scanned {:.0} MB/s",
        bytes as f64 / scanning.elapsed().as_secs_f64() / 1e6
    );
    drop((writer, reader));
    std::fs::remove_dir_all(path)?;
    Ok(raw as f64 / seconds / 1e6)
}

fn main() -> AnyResult<()> {
    let mut args = std::env::args().skip(1);
    let dir = std::path::PathBuf::from(args.next().ok_or("a folder is missing")?);
    let mut number = |default: usize| args.next().map_or(Ok(default), |a| a.parse());
    let (mib, tables, group_kib) = (number(600)?, number(9)?, number(1_024)?);
    for round in 0..3 {
        let inputs = inputs(mib, tables, group_kib << 10);
        let plain = plain(&dir, &inputs)?;
        let log = log(&dir, inputs, (4 << 20).min(group_kib << 12))?;
        println!(
            "round {round}: plain {plain:.0} MB/s, log {log:.0} MB/s, ratio {:.2}",
            log / plain
        );
    }
    Ok(())
}
