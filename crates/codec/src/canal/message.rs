//! Row changes as messages of a queue: with a key, one object each.

use std::io::Write;

use weir_types::{RowKind, Value};

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
        self.write_key_of(out, |i| image.get(i))
    }

    fn write_key_of<'r, 'a: 'r>(
        &mut self,
        out: &mut Vec<u8>,
        value: impl Fn(usize) -> Option<&'r Value<'a>>,
    ) -> Result<bool> {
        let start = out.len();
        let mut separator = b'[';
        for &i in &self.primary_key {
            let (Some(column), Some(value)) = (self.columns.get(i), value(i)) else {
                out.truncate(start);
                return Ok(false);
            };
            out.push(separator);
            column.write(out, value, &self.options, &mut self.scratch)?;
            separator = b',';
        }
        if self.primary_key.is_empty() {
            return Ok(false);
        }
        out.push(b']');
        Ok(true)
    }

    /// Appends the record key of a row change: the key of the row after it, of deletes of
    /// the row before. A part that the image lacks (`binlog_row_image` other than `FULL`) is
    /// taken from the other one. Returns as `write_key`.
    ///
    /// # Errors
    /// As `write_key`.
    pub fn write_change_key(&mut self, out: &mut Vec<u8>, change: &RowChange<'_, '_>) -> Result<bool> {
        self.write_key_of(out, |i| change.get(i))
    }

    /// Whether an update gives the row another key. `old` and `new` are working room.
    ///
    /// Such an update can be told as two changes, `RowChange { kind: Delete, after: None, .. }`
    /// and `RowChange { kind: Insert, .. }`: the latter keeps the image before, which only
    /// fills what the one after lacks.
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
        // Nearly always the bytes are the same. What the row after lacks did not change.
        let same = |&i: &usize| after.get(i).is_none_or(|new| before.get(i) == Some(new));
        if self.primary_key.iter().all(same) {
            return Ok(false);
        }
        old.clear();
        new.clear();
        let both = self.write_key(old, before)? && self.write_change_key(new, change)?;
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
            let (Some(column), Some(value)) = (self.columns.get(i), change.get(i)) else {
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
