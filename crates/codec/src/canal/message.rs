//! Row changes as messages of a queue: with a key, one object each.

use std::io::Write;

use weir_types::RowKind;

use super::{Columns, Image, RowChange, TableEncoder};
use crate::error::Result;

impl TableEncoder {
    /// Whether the table has a primary key, so that its messages have keys.
    pub fn has_key(&self) -> bool {
        !self.primary_key.is_empty()
    }

    /// Appends the record key of a row: a JSON array of the primary key's values as text.
    /// Returns false, and appends nothing, if the table has no primary key or the image
    /// lacks a part of it.
    ///
    /// # Errors
    /// Those of `write_row` that a value causes.
    pub fn write_key(&mut self, out: &mut Vec<u8>, image: &Image<'_, '_>) -> Result<bool> {
        let whole = self
            .primary_key
            .iter()
            .all(|&i| image.get(i).is_some() && self.columns.get(i).is_some());
        if self.primary_key.is_empty() || !whole {
            return Ok(false);
        }
        let mut separator = b'[';
        for &i in &self.primary_key {
            if let (Some(column), Some(value)) = (self.columns.get(i), image.get(i)) {
                out.push(separator);
                column.write(out, value, &self.options, &mut self.scratch)?;
                separator = b',';
            }
        }
        out.push(b']');
        Ok(true)
    }

    /// Whether an update gives the row another key. `old` and `new` are working room.
    ///
    /// # Errors
    /// As `write_key`.
    pub fn key_changed(
        &mut self,
        change: &RowChange<'_, '_>,
        old: &mut Vec<u8>,
        new: &mut Vec<u8>,
    ) -> Result<bool> {
        let (RowKind::Update, Some(before), Some(after)) = (change.kind, &change.before, &change.after)
        else {
            return Ok(false);
        };
        // Nearly always the bytes are the same.
        if self.primary_key.iter().all(|&i| before.get(i) == after.get(i)) {
            return Ok(false);
        }
        old.clear();
        new.clear();
        let both = self.write_key(old, before)? && self.write_key(new, after)?;
        Ok(both && old != new)
    }

    /// Appends one row change, without a line feed.
    ///
    /// # Errors
    /// Those of `write_row`.
    pub fn write_message(&mut self, out: &mut Vec<u8>, change: &RowChange<'_, '_>) -> Result<()> {
        self.write_object(out, change, Columns::All)
    }

    /// Appends one row change whose `data` has the columns of the primary key only, and
    /// that says so: `"_weir":{…,"keys-only":true}`.
    ///
    /// # Errors
    /// Those of `write_row`.
    pub fn write_keys_only(&mut self, out: &mut Vec<u8>, change: &RowChange<'_, '_>) -> Result<()> {
        self.write_object(out, change, Columns::Key)
    }

    pub(super) fn write_key_data<W: Write>(&mut self, out: &mut W, change: &RowChange<'_, '_>) -> Result<()> {
        let mut separator: &[u8] = b"";
        for &i in &self.primary_key {
            let image = change.after.as_ref().or(change.before.as_ref());
            let (Some(column), Some(value)) = (self.columns.get(i), image.and_then(|image| image.get(i)))
            else {
                continue;
            };
            out.write_all(separator)?;
            out.write_all(&column.key)?;
            column.write(out, value, &self.options, &mut self.scratch)?;
            separator = b",";
        }
        Ok(())
    }
}
