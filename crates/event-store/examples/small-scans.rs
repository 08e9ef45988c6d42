//! Time of scanning large blocks and fragments in small pieces. Usage:
//! `small-scans DIR`.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use weir_event_store::{LogOptions, LogStore, ScanEnd, ScanRequest, StoreReader, StoreWriter};
use weir_protocol::store::{ReadPosition, StoreInput, TxnGroup, TxnMeta};
use weir_types::{
    AttemptId, BlockBuilder, Flavor, OrderKey, RowKind, SourceIdentity, TableName, TableVersion,
};

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

const BYTES_MAX: usize = 64 << 10;

fn upto() -> ReadPosition {
    ReadPosition {
        identity: SourceIdentity::Digest(1),
        file: Arc::from("f"),
        offset: 9,
    }
}

fn meta() -> TxnMeta {
    TxnMeta {
        commit_time_ms: 5,
        gtid: None,
        end_offset: 9,
    }
}

/// Row events of about a hundred bytes, `bytes` in all.
fn block(version: &Arc<TableVersion>, ordinal: &mut u32, bytes: usize) -> BlockBuilder {
    let mut block = BlockBuilder::new(Arc::clone(version));
    while block.payload.len() < bytes {
        *ordinal += 1;
        let body = format!("{ordinal:>084}");
        block.push(0, *ordinal, RowKind::Insert, 0, body.as_bytes());
    }
    block
}

fn measure(dir: &Path, name: &str, options: LogOptions, inputs: Vec<StoreInput>) -> AnyResult<()> {
    let path = dir.join("small-scans");
    if path.exists() {
        std::fs::remove_dir_all(&path)?;
    }
    let (_, mut writer, reader) = LogStore::open(&path, options)?;
    let begun = Instant::now();
    for input in inputs {
        writer.append(input, 5).map_err(|e| e.error)?;
        if let Some(ticket) = writer.commit_group()? {
            ticket.wait()?;
        }
    }
    let written = begun.elapsed();
    let (mut after, mut events, mut bytes, mut scans) = (OrderKey::MIN, 0_u64, 0, 0);
    let begun = Instant::now();
    loop {
        let outcome = reader.scan(&ScanRequest {
            table: TableName::new("s", "t"),
            after,
            upto: OrderKey::end_of(reader.resolved()),
            bytes_max: BYTES_MAX,
            events_max: usize::MAX,
            lane: false,
        })?;
        scans += 1;
        for slice in &outcome.slices {
            events += u64::from(slice.events);
            bytes += slice.range.len();
            after = slice.last;
        }
        if outcome.end == ScanEnd::Exhausted {
            break;
        }
    }
    println!(
        "{name}: written in {:.3} s, {events} events, {} MiB in {scans} scans, {:.3} s",
        written.as_secs_f64(),
        bytes >> 20,
        begun.elapsed().as_secs_f64()
    );
    std::fs::remove_dir_all(&path)?;
    Ok(())
}

fn main() -> AnyResult<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "/tmp".to_owned());
    let version = Arc::new(TableVersion {
        name: TableName::new("s", "t"),
        flavor: Flavor::Mysql,
        columns: Vec::new(),
        primary_key: Vec::new(),
    });
    let group = |bytes| {
        let mut group = TxnGroup::default();
        group.txns.push(meta());
        group.blocks.push(block(&version, &mut 0, bytes));
        vec![StoreInput::Group { group, upto: upto() }]
    };
    let attempt = AttemptId(1);
    let fragments = |piece| {
        let mut ordinal = 0;
        let mut inputs = Vec::new();
        while ordinal < 1_000_000 {
            let blocks = vec![block(&version, &mut ordinal, piece)];
            inputs.push(StoreInput::Fragment { attempt, blocks });
        }
        inputs.push(StoreInput::Commit {
            attempt,
            meta: meta(),
            blocks: Vec::new(),
            ddls: Vec::new(),
            aborted: Vec::new(),
            upto: upto(),
        });
        inputs
    };
    let dir = Path::new(&dir);
    let small = LogOptions {
        memory_bytes: 16 << 20,
        ..LogOptions::default()
    };
    measure(dir, "block of 1 MiB in the tail", small.clone(), group(1 << 20))?;
    measure(dir, "block of 64 MiB", small.clone(), group(64 << 20))?;
    measure(
        dir,
        "1 M rows in fragments of 1 MiB",
        small.clone(),
        fragments(1 << 20),
    )?;
    measure(dir, "1 M rows in fragments of 16 MiB", small, fragments(16 << 20))
}
