//! `mysql_common` over binlog files: read, check the CRC, decode every row, visit every value.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use mysql_common::binlog::consts::{BinlogChecksumAlg, BinlogVersion, EventType};
use mysql_common::binlog::events::{Event, EventData, RowsEventData};
use mysql_common::binlog::row::BinlogRow;
use mysql_common::binlog::value::BinlogValue;
use mysql_common::binlog::{BinlogFileHeader, EventStreamReader};
use mysql_common::value::Value;
use weir_bench::hash::{Visit, pack_datetime, pack_time};

/// Read size; the same as our side's.
const BUFFER_BYTES: usize = 256 << 10;

/// One pass over all files.
pub(crate) fn pass(files: &[PathBuf]) -> Result<Visit> {
    let mut visit = Visit::default();
    for file in files {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, File::open(file)?);
        BinlogFileHeader::read(&mut input)?;
        let mut reader = EventStreamReader::new(BinlogVersion::Version4);
        while let Some(event) = reader.read(&mut input)? {
            check(&event)?;
            if is_rows(event.header().event_type().ok())
                && let Some(EventData::RowsEvent(rows)) = event.read_data()?
            {
                decode(&reader, &rows, &mut visit)?;
            }
        }
    }
    Ok(visit)
}

/// The reader itself does not compare checksums.
fn check(event: &Event) -> Result<()> {
    let Some(stored) = event.checksum() else {
        return Ok(());
    };
    if event.calc_checksum(BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32) != u32::from_le_bytes(stored) {
        bail!("checksum mismatch");
    }
    Ok(())
}

/// Events of other types are framed and checked but not decoded: nothing here needs them.
fn is_rows(kind: Option<EventType>) -> bool {
    matches!(
        kind,
        Some(EventType::WRITE_ROWS_EVENT | EventType::UPDATE_ROWS_EVENT | EventType::DELETE_ROWS_EVENT)
    )
}

fn decode(reader: &EventStreamReader, rows: &RowsEventData<'_>, visit: &mut Visit) -> Result<()> {
    let table = reader
        .get_tme(rows.table_id())
        .context("no table map for a row event")?;
    for row in rows.rows(table) {
        let (before, after) = row?;
        visit.rows += 1;
        for image in [before, after].into_iter().flatten() {
            values(&image, visit)?;
        }
    }
    Ok(())
}

fn values(row: &BinlogRow, visit: &mut Visit) -> Result<()> {
    for index in 0..row.len() {
        let Some(value) = row.as_ref(index) else { continue };
        visit.values += 1;
        let BinlogValue::Value(value) = value else {
            bail!("JSON is not part of the shapes")
        };
        match value {
            Value::NULL => visit.null(),
            Value::Bytes(bytes) => visit.bytes(bytes),
            Value::Int(number) => visit.word(number.cast_unsigned()),
            Value::UInt(number) => visit.word(*number),
            Value::Float(number) => visit.word(u64::from(number.to_bits())),
            Value::Double(number) => visit.word(number.to_bits()),
            Value::Date(year, month, day, hour, minute, second, micros) => {
                visit.word(pack_datetime(
                    (*year, *month, *day),
                    (*hour, *minute, *second),
                    *micros,
                ));
            }
            Value::Time(negative, days, hours, minutes, seconds, micros) => {
                let hours = days * 24 + u32::from(*hours);
                visit.word(pack_time(*negative, hours, *minutes, *seconds, *micros));
            }
        }
    }
    Ok(())
}
