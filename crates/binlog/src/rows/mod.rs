//! Row images: a plan per table version, a reader per row event.

mod decimal;
mod op;
mod plan;
mod temporal;

pub(crate) use decimal::packed_bytes;
pub use decimal::write_decimal;
pub use plan::{ColumnSet, RowImages, RowPlan, RowReader};

use weir_types::RowKind;

use crate::cursor::Cursor;

/// Bytes of column count and bitmaps before the rows of a body; `None` if it is cut.
pub(crate) fn skip_preamble(kind: RowKind, body: &[u8]) -> Option<usize> {
    let mut c = Cursor::new(body);
    let columns = usize::try_from(c.lenenc()?).ok()?;
    let bitmap = columns.div_ceil(8);
    c.take(bitmap)?;
    if kind == RowKind::Update {
        c.take(bitmap)?;
    }
    Some(body.len() - c.len())
}
