//! From the bytes of an event to the assembler: large row events with their allocation,
//! compressed transactions event by event.

use weir_binlog::compress::{PayloadReader, TransactionPayload};
use weir_binlog::error::BinlogError;
use weir_binlog::event::Event;
use weir_binlog::format::FormatDescription;
use weir_binlog::raw::{EventBytes, RawEvent};

use crate::assembler::TransactionAssembler;
use crate::error::Result;
use crate::growing::ADOPT_BYTES;
use crate::rows::RowsMeta;

/// Format of the file.
type Format<'a> = Option<&'a FormatDescription>;

/// Takes what is ready out of the assembler; false ends the reading.
pub(crate) type Drain<'a> = dyn FnMut(&mut TransactionAssembler) -> bool + 'a;

/// Hands one event over. `end`: offset behind it. False if `drain` said so.
///
/// # Errors
/// Those of the decoder and of the assembler.
pub(crate) fn feed(
    assembler: &mut TransactionAssembler,
    format: Format<'_>,
    raw: RawEvent<'_>,
    end: u64,
    drain: &mut Drain<'_>,
) -> Result<bool> {
    match raw.bytes {
        EventBytes::Owned(_) => feed_owned(assembler, format, raw, end, drain, feed_borrowed),
        EventBytes::Borrowed(_) => feed_borrowed(assembler, format, &raw, end, drain),
    }
}

fn feed_borrowed(
    assembler: &mut TransactionAssembler,
    format: Format<'_>,
    raw: &RawEvent<'_>,
    end: u64,
    drain: &mut Drain<'_>,
) -> Result<bool> {
    let event = raw
        .decode(format)
        .map_err(|error| assembler.binlog_error(error))?;
    if let Event::TransactionPayload(payload) = &event {
        return feed_payload(assembler, format, payload, end, drain);
    }
    assembler.event(&raw.header, &event, end)?;
    Ok(drain(assembler))
}

/// How an event is handed over that is not a large row event.
type Rest = fn(&mut TransactionAssembler, Format<'_>, &RawEvent<'_>, u64, &mut Drain<'_>) -> Result<bool>;

fn feed_owned(
    assembler: &mut TransactionAssembler,
    format: Format<'_>,
    raw: RawEvent<'_>,
    end: u64,
    drain: &mut Drain<'_>,
    rest: Rest,
) -> Result<bool> {
    let large = match raw.decode(format) {
        Ok(Event::Rows(rows)) if rows.body.len() >= ADOPT_BYTES => Some((
            RowsMeta {
                kind: rows.kind,
                table_id: rows.table_id,
                flags: rows.block_flags(),
            },
            rows.body.len(),
        )),
        _ => None,
    };
    let Some((meta, length)) = large else {
        return rest(assembler, format, &raw, end, drain);
    };
    let checksum_bytes = raw.checksum_bytes;
    let bytes = raw.bytes.into_vec();
    // The body is the event's tail but for the checksum.
    let to = bytes.len().saturating_sub(checksum_bytes);
    let body = to.saturating_sub(length)..to;
    assembler.large_rows(meta, bytes, body, end)?;
    Ok(drain(assembler))
}

/// Compressed transactions can be much larger than memory: one event at a time.
fn feed_payload(
    assembler: &mut TransactionAssembler,
    format: Format<'_>,
    payload: &TransactionPayload<'_>,
    end: u64,
    drain: &mut Drain<'_>,
) -> Result<bool> {
    let limit = assembler.event_bytes_max;
    let failed = |assembler: &TransactionAssembler, error: BinlogError| assembler.binlog_error(error);
    let mut reader = PayloadReader::new(payload, limit).map_err(|error| failed(assembler, error))?;
    loop {
        let next = reader.next().map_err(|error| failed(assembler, error))?;
        let Some(raw) = next else {
            return Ok(true);
        };
        let on = match raw.bytes {
            EventBytes::Owned(_) => feed_owned(assembler, format, raw, end, drain, feed_inner)?,
            EventBytes::Borrowed(_) => feed_inner(assembler, format, &raw, end, drain)?,
        };
        if !on {
            return Ok(false);
        }
    }
}

/// A payload inside a payload is no event that a server writes.
fn feed_inner(
    assembler: &mut TransactionAssembler,
    format: Format<'_>,
    raw: &RawEvent<'_>,
    end: u64,
    drain: &mut Drain<'_>,
) -> Result<bool> {
    let event = raw
        .decode(format)
        .map_err(|error| assembler.binlog_error(error))?;
    if matches!(event, Event::TransactionPayload(_)) {
        let what = "transaction payload inside a transaction payload";
        return Err(assembler.binlog_error(BinlogError::Malformed { what }));
    }
    assembler.event(&raw.header, &event, end)?;
    Ok(drain(assembler))
}
