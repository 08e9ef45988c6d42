//! What keyed and exact rows write alike: keys and rows.

use weir_binlog::{BinlogError, ColumnSet, RowImages};
use weir_types::{RowKind, Value};

use super::literal::Place;
use super::{Result, RowsError};
use crate::plan::{PlannedColumn, TablePlan};

impl TablePlan {
    #[cold]
    pub(super) fn decode_error(&self, error: BinlogError) -> RowsError {
        RowsError::Decode {
            table: self.version.name.clone(),
            error,
        }
    }

    /// Every image that the change has must hold every column that is written. A generated column is not: MariaDB 11.8
    /// leaves VIRTUAL ones out of its full images.
    pub(super) fn check_images(&self, kind: RowKind, images: &RowImages<'_>) -> Result<()> {
        let whole = |set: ColumnSet<'_>| {
            set.is_full() || self.columns.iter().all(|column| set.contains(column.source))
        };
        let before = kind == RowKind::Insert || whole(images.before_columns);
        let after = kind == RowKind::Delete || whole(images.after_columns);
        if before && after {
            Ok(())
        } else {
            Err(RowsError::PartialImage {
                table: self.version.name.clone(),
            })
        }
    }

    pub(super) fn check_size(&self, bytes: usize, packet_max: usize) -> Result<()> {
        if bytes < packet_max {
            Ok(())
        } else {
            Err(RowsError::TooLarge {
                table: self.target.clone(),
                bytes,
                packet_max,
            })
        }
    }

    /// Appends one value.
    pub(super) fn write_value(
        &self,
        column: &PlannedColumn,
        image: &[Value<'_>],
        place: Place,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let value = image.get(column.source).unwrap_or(&Value::Null);
        column
            .literal
            .write(value, place, scratch, out)
            .map_err(|what| self.value_error(column, what))
    }

    #[cold]
    fn value_error(&self, column: &PlannedColumn, what: &'static str) -> RowsError {
        let name = self
            .version
            .columns
            .get(column.source)
            .map(|c| c.name.to_string());
        RowsError::Value {
            table: self.version.name.clone(),
            column: name.unwrap_or_default(),
            what,
        }
    }

    /// Appends `(value,…)`. Returns whether it can be written only without strict mode.
    pub(super) fn write_row(
        &self,
        image: &[Value<'_>],
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let (mut separator, mut lenient) = (b'(', false);
        for column in &self.columns {
            out.push(separator);
            separator = b',';
            self.write_value(column, image, Place::Row, scratch, out)?;
            lenient |= image
                .get(column.source)
                .is_some_and(|value| column.literal.needs_lenience(value));
        }
        out.push(b')');
        Ok(lenient)
    }

    /// Appends the identifying key: `value`, or `(value,…)` of several columns.
    pub(super) fn write_key(
        &self,
        image: &[Value<'_>],
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let several = self.identity.len() > 1;
        if several {
            out.push(b'(');
        }
        let columns = self.identity.iter().filter_map(|at| self.columns.get(*at));
        for (place, column) in columns.enumerate() {
            if place > 0 {
                out.push(b',');
            }
            self.write_value(column, image, Place::Condition, scratch, out)?;
        }
        if several {
            out.push(b')');
        }
        Ok(())
    }
}
