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

impl EncodeRate {
    /// Prints it as one line.
    ///
    /// # Errors
    /// Writing JSON to memory does not fail.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
        } else {
            println!(
                "{}  {:.0} rows/s ({:.0} to {:.0}), {:.0} MB/s, {} bytes a message  [{}]",
                self.name,
                self.rows_per_second,
                self.range.0,
                self.range.1,
                self.mb_per_second,
                self.bytes_per_message,
                self.notes
            );
        }
        Ok(())
    }
}

/// Row events of one row each.
struct Shape {
    name: &'static str,
    what: &'static str,
    version: TableVersion,
    bodies: Vec<Vec<u8>>,
}

fn column(name: &str, wire: WireType, meta: u16, collation: u16) -> Column {
    Column {
        name: name.into(),
        wire,
        meta,
        nullable: name != "id",
        unsigned: false,
        collation,
        members: Vec::new(),
        geometry: 0,
        visible: true,
    }
}

fn table(name: &str, columns: Vec<Column>) -> TableVersion {
    TableVersion {
        name: TableName::new("shapes", name),
        flavor: Flavor::Mysql,
        columns,
        primary_key: vec![0],
    }
}

impl Shape {
    /// Two integers, as in the recording of this name.
    fn narrow() -> Self {
        let body = |i: u32| {
            // Column count, present columns, nulls, two values, as in a WRITE_ROWS event.
            let mut body = vec![2, 0b11, 0];
            body.extend_from_slice(&i.to_le_bytes());
            body.extend_from_slice(&i.wrapping_mul(7919).to_le_bytes());
            body
        };
        let columns = vec![
            column("id", WireType::Long, 0, 0),
            column("v", WireType::Long, 0, 0),
        ];
        Self {
            name: "narrow",
            what: "two integers",
            version: table("narrow", columns),
            bodies: (0..ROWS).map(body).collect(),
        }
    }

    /// A key, text of 30 and of 200 bytes, a decimal and a point in time.
    fn texts() -> Self {
        const TEXT: &str = "Nam quid \"possumus\" facere melius? Über Straße, 1 + 1 = 2. ";
        let text = TEXT.repeat(3);
        let body = |i: u32| {
            let mut body = vec![5, 0b1_1111, 0];
            body.extend_from_slice(&i.to_le_bytes());
            body.extend_from_slice(&30_u16.to_le_bytes());
            body.extend_from_slice(&text.as_bytes()[..30]);
            body.extend_from_slice(&(text.len() as u16).to_le_bytes());
            body.extend_from_slice(text.as_bytes());
            // 12345678.90 and 2025-11-30 10:53:20.
            body.extend_from_slice(&[0x80, 0xbc, 0x61, 0x4e, 90]);
            body.extend_from_slice(&[0x99, 0xb8, 0x3c, 0xad, 0x54]);
            body
        };
        let columns = vec![
            column("id", WireType::Long, 0, 0),
            column("title", WireType::VarChar, 320, 45),
            column("body", WireType::Blob, 2, 45),
            column("price", WireType::NewDecimal, (10 << 8) | 2, 0),
            column("changed", WireType::Datetime2, 0, 0),
        ];
        Self {
            name: "texts",
            what: "an integer, 30 and 200 bytes of text, a decimal, a point in time",
            version: table("texts", columns),
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

/// Measures rows of two integers: decoding the row, its record key and its message, each
/// into a buffer that is used again.
///
/// # Errors
/// A pass whose messages have another size than those of the first one.
pub fn narrow() -> Result<EncodeRate> {
    measure(&Shape::narrow())
}

/// Measures rows of text and a few other values, as `narrow`.
///
/// # Errors
/// As `narrow`.
pub fn texts() -> Result<EncodeRate> {
    measure(&Shape::texts())
}

fn measure(shape: &Shape) -> Result<EncodeRate> {
    let mut encoder = CanalJson::default().table(&shape.version, &shape.version.name)?;
    let (mut key, mut message) = (Vec::new(), Vec::new());
    let bytes = shape.pass(&mut encoder, &mut key, &mut message)?;
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let mut passes = 0_u32;
        while begin.elapsed() < ROUND {
            if shape.pass(&mut encoder, &mut key, &mut message)? != bytes {
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
        name: format!("encode/{}", shape.name),
        rows_per_second: median.round(),
        mb_per_second: (median * per_message / 1e6).round(),
        bytes_per_message: (per_message * 10.0).round() / 10.0,
        range: (rates[0].round(), rates[ROUNDS - 1].round()),
        notes: format!(
            "row events of one row ({}), decoded and encoded as record key and canal-json, \
             one thread, {ROUNDS} rounds; last message: {}",
            shape.what,
            String::from_utf8_lossy(&message)
        ),
    })
}
