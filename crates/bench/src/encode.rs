//! Encoding alone: row bytes to record keys and canal-json messages in memory, one thread.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use weir_binlog::RowImages;
use weir_codec::{CanalJson, TableEncoder};
use weir_types::{Column, CommitTs, Flavor, OrderKey, RowEvent, RowKind, TableName, TableVersion, WireType};

/// Rows of one pass.
const ROWS: u32 = 250_000;
/// Rows of one transaction, as in the `narrow` recording.
const TRANSACTION_ROWS: u32 = 500;
/// Passes whose median counts.
const ROUNDS: usize = 9;
/// Least time of one round.
const ROUND: Duration = Duration::from_millis(400);

/// What encoding alone reaches.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EncodeRate {
    /// Benchmark and shape.
    pub name: String,
    /// Rows a second on one core, median of the rounds.
    pub rows_per_second: f64,
    /// Megabytes (10⁶) of keys and values a second.
    pub mb_per_second: f64,
    /// Bytes of a message on average, key included.
    pub bytes_per_message: f64,
    /// Slowest and fastest round, rows a second.
    pub range: (f64, f64),
    /// What was measured.
    pub notes: String,
}

/// Row events of one row of two integers: `id` is the key.
struct Narrow {
    version: TableVersion,
    bodies: Vec<[u8; 11]>,
}

fn int(name: &str, nullable: bool) -> Column {
    Column {
        name: name.into(),
        wire: WireType::Long,
        meta: 0,
        nullable,
        unsigned: false,
        collation: 0,
        members: Vec::new(),
        geometry: 0,
        visible: true,
    }
}

impl Narrow {
    fn new() -> Self {
        let body = |i: u32| {
            // Column count, present columns, nulls, two values, as in a WRITE_ROWS event.
            let mut body = [2, 0b11, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            body[3..7].copy_from_slice(&i.to_le_bytes());
            body[7..].copy_from_slice(&i.wrapping_mul(7919).to_le_bytes());
            body
        };
        Self {
            version: TableVersion {
                name: TableName::new("shapes", "narrow"),
                flavor: Flavor::Mysql,
                columns: vec![int("id", false), int("v", true)],
                primary_key: vec![0],
            },
            bodies: (0..ROWS).map(body).collect(),
        }
    }

    /// Encodes every row once; returns the bytes of all messages and keys.
    fn pass(&self, encoder: &mut TableEncoder, key: &mut Vec<u8>, message: &mut Vec<u8>) -> Result<u64> {
        let mut images = RowImages::default();
        let mut bytes = 0;
        for (i, body) in (0..).zip(&self.bodies) {
            let commit_ts = CommitTs::from_millis(1_764_500_000_000 + u64::from(i / TRANSACTION_ROWS));
            let event = RowEvent {
                key: OrderKey::new(commit_ts, i % TRANSACTION_ROWS),
                kind: RowKind::Insert,
                flags: 0,
                body: black_box(body.as_slice()),
                offset: 0,
                end: 0,
            };
            encoder.for_each_row(&event, &mut images, |encoder, change| {
                key.clear();
                message.clear();
                if let Some(after) = &change.after {
                    encoder.write_key(key, after)?;
                }
                encoder.write_message(message, change)?;
                bytes += (black_box(&*key).len() + black_box(&*message).len()) as u64;
                Ok::<_, weir_codec::CodecError>(())
            })?;
        }
        Ok(bytes)
    }
}

/// Measures narrow rows: decoding the row, its record key and its message, each into a
/// buffer that is used again.
///
/// # Errors
/// A pass whose messages have another size than those of the first one.
pub fn narrow() -> Result<EncodeRate> {
    let narrow = Narrow::new();
    let mut encoder = CanalJson::default().table(&narrow.version, &narrow.version.name)?;
    let (mut key, mut message) = (Vec::new(), Vec::new());
    let bytes = narrow.pass(&mut encoder, &mut key, &mut message)?;
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let mut passes = 0_u32;
        while begin.elapsed() < ROUND {
            if narrow.pass(&mut encoder, &mut key, &mut message)? != bytes {
                bail!("a pass differs from the first one");
            }
            passes += 1;
        }
        rates.push(f64::from(passes) * f64::from(ROWS) / begin.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    let median = rates[ROUNDS / 2];
    let per_message = bytes as f64 / f64::from(ROWS);
    Ok(EncodeRate {
        name: "encode/narrow".to_owned(),
        rows_per_second: median.round(),
        mb_per_second: (median * per_message / 1e6).round(),
        bytes_per_message: (per_message * 10.0).round() / 10.0,
        range: (rates[0].round(), rates[ROUNDS - 1].round()),
        notes: format!(
            "row events of one row of two integers, decoded and encoded as record key and canal-json, \
             one thread, {ROUNDS} rounds; last message: {}",
            String::from_utf8_lossy(&message)
        ),
    })
}
