//! Weir's decoder over binlog files: read, check the CRC, decode every row, visit every value.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use weir_bench::hash::{Visit, pack_datetime, pack_time};
use weir_binlog::{
    BinlogFile, Event, EventType, FileOptions, RowImages, RowPlan, Rows, Step, TableMapCache, write_decimal,
};
use weir_types::{Flavor, TableVersion, Value};

/// Read size; the same as the other side's.
const BUFFER_BYTES: usize = 256 << 10;

struct Table {
    version: Arc<TableVersion>,
    plan: RowPlan,
}

/// One pass over all files.
pub(crate) fn pass(files: &[PathBuf]) -> Result<Visit> {
    let mut visit = Visit::default();
    let mut text = Vec::new();
    for path in files {
        let options = FileOptions {
            read_buffer_bytes: BUFFER_BYTES,
            ..FileOptions::default()
        };
        let mut file = BinlogFile::open(path, options)?;
        let mut maps = TableMapCache::new(Flavor::Mysql);
        let mut tables: HashMap<u64, Table> = HashMap::new();
        let mut images = RowImages::default();
        while let Step::Event(step) = file.next()? {
            if !is_needed(step.event.header.type_number) {
                continue;
            }
            match step.decode()? {
                Event::TableMap(map) => {
                    let version = maps.get(&map)?;
                    let known = tables
                        .get(&map.table_id)
                        .is_some_and(|table| Arc::ptr_eq(&table.version, &version));
                    if !known {
                        let plan = RowPlan::new(&version)?;
                        tables.insert(map.table_id, Table { version, plan });
                    }
                }
                Event::Rows(rows) => {
                    let table = tables
                        .get(&rows.table_id)
                        .context("no table map for a row event")?;
                    images = decode(&table.plan, &rows, images.recycle(), &mut visit, &mut text)?.recycle();
                }
                _ => {}
            }
        }
    }
    Ok(visit)
}

/// Events of other types are framed and checked but not decoded, as on the other side.
fn is_needed(number: u8) -> bool {
    [
        EventType::TableMap,
        EventType::WriteRows,
        EventType::UpdateRows,
        EventType::DeleteRows,
    ]
    .iter()
    .any(|kind| kind.number() == number)
}

fn decode<'a>(
    plan: &RowPlan,
    rows: &Rows<'a>,
    mut images: RowImages<'a>,
    visit: &mut Visit,
    text: &mut Vec<u8>,
) -> Result<RowImages<'a>> {
    let mut reader = plan.rows(rows.kind, rows.block_flags(), rows.body)?;
    while reader.next(&mut images)? {
        visit.rows += 1;
        values(&images.before, visit, text)?;
        values(&images.after, visit, text)?;
    }
    Ok(images)
}

#[inline]
fn values(row: &[Value<'_>], visit: &mut Visit, text: &mut Vec<u8>) -> Result<()> {
    visit.values += row.len() as u64;
    for value in row {
        match value {
            Value::Null => visit.null(),
            Value::Int(number) => visit.word(number.cast_unsigned()),
            Value::UInt(number) | Value::Set(number) => visit.word(*number),
            Value::Float(number) => visit.word(u64::from(number.to_bits())),
            Value::Double(number) => visit.word(number.to_bits()),
            // As text, because the other side gives nothing else.
            Value::Decimal(decimal) => {
                text.clear();
                write_decimal(decimal, text);
                visit.bytes(text);
            }
            Value::Bytes(bytes) | Value::Bit(bytes) => visit.bytes(bytes),
            Value::Date { year, month, day } => {
                visit.word(pack_datetime((*year, *month, *day), (0, 0, 0), 0));
            }
            Value::DateTime {
                year,
                month,
                day,
                hour,
                minute,
                second,
                micros,
            } => {
                visit.word(pack_datetime(
                    (*year, *month, *day),
                    (*hour, *minute, *second),
                    *micros,
                ));
            }
            Value::Time {
                negative,
                hours,
                minutes,
                seconds,
                micros,
            } => {
                visit.word(pack_time(
                    *negative,
                    u32::from(*hours),
                    *minutes,
                    *seconds,
                    *micros,
                ));
            }
            Value::Timestamp { seconds, micros } => {
                visit.word((u64::from(*seconds) << 20) | u64::from(*micros));
            }
            Value::Year(number) | Value::Enum(number) => visit.word(u64::from(*number)),
            Value::Json(_) | Value::Geometry(_) | Value::Vector(_) => bail!("not part of the shapes"),
        }
    }
    Ok(())
}
