//! canal-json: one JSON object per row, all values as text.
//!
//! ```text
//! {"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,
//!  "type":"UPDATE","es":1764500000000,"ts":1764500000000,"sql":"",
//!  "sqlType":{"id":4,…},"mysqlType":{"id":"int",…},
//!  "old":[{"qty":"1"}],"data":[{"id":"7","qty":"2"}],
//!  "_weir":{"key":"…24 hexadecimal digits…","row":0}}
//! ```
//!
//! `es` is the commit time and `ts`, the time of processing in canal's own messages, is
//! the physical part of the commit-ts, so that a repeated encoding gives the same bytes.
//! `_weir` is ours: the order key of the row event and the number of the row in it
//! together name a row change for good. `docs/file-format.md` has the whole dialect.

mod ddl;
mod message;
mod types;
mod value;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::Arc;

use weir_binlog::{ColumnSet, RowImages, RowPlan};
use weir_types::{DdlEvent, OrderKey, RowEvent, RowKind, TableName, TableVersion, Value};

use crate::error::{CodecError, Result};
use crate::escape;
use crate::text::UtcOffset;
use value::ColumnPlan;

/// How ENUM and SET are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnumAs {
    /// The text of the members; SET members separated by commas.
    #[default]
    Text,
    /// The index of ENUM, the bit mask of SET, as decimal numbers (as canal itself).
    Index,
}

/// Options of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CanalOptions {
    /// ENUM and SET.
    pub enum_as: EnumAs,
    /// Zone of TIMESTAMP values.
    pub time_zone: UtcOffset,
}

/// Rows of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Inserted rows.
    pub inserts: u64,
    /// Updated rows.
    pub updates: u64,
    /// Deleted rows.
    pub deletes: u64,
}

impl RowCounts {
    /// All rows.
    pub const fn rows(&self) -> u64 {
        self.inserts + self.updates + self.deletes
    }

    /// Counts `rows` more of a kind.
    pub const fn add(&mut self, kind: RowKind, rows: u64) {
        match kind {
            RowKind::Insert => self.inserts += rows,
            RowKind::Update => self.updates += rows,
            RowKind::Delete => self.deletes += rows,
        }
    }

    /// Counts what the other one counted.
    pub const fn merge(&mut self, other: Self) {
        self.inserts += other.inserts;
        self.updates += other.updates;
        self.deletes += other.deletes;
    }
}

/// Which columns an image has.
#[derive(Clone, Copy, Debug)]
pub enum Presence<'r> {
    /// All of them.
    All,
    /// Those of the rows event.
    Columns(ColumnSet<'r>),
    /// Bit `i % 8` of byte `i / 8`, as in the rows event.
    Bitmap(&'r [u8]),
}

/// One image of a row.
#[derive(Clone, Copy, Debug)]
pub struct Image<'r, 'a> {
    /// A value for each column of the table; what stands at an absent column means
    /// nothing.
    pub values: &'r [Value<'a>],
    /// Which columns are there.
    pub present: Presence<'r>,
}

impl<'r, 'a> Image<'r, 'a> {
    fn new(values: &'r [Value<'a>], columns: ColumnSet<'r>) -> Self {
        let present = if columns.is_full() {
            Presence::All
        } else {
            Presence::Columns(columns)
        };
        Self { values, present }
    }

    /// The value of a column; none if the image does not have it.
    fn get(&self, column: usize) -> Option<&'r Value<'a>> {
        let there = match self.present {
            Presence::All => true,
            Presence::Columns(columns) => columns.contains(column),
            Presence::Bitmap(bits) => bits
                .get(column / 8)
                .is_some_and(|byte| byte & (1 << (column % 8)) != 0),
        };
        if there { self.values.get(column) } else { None }
    }
}

/// One row change.
#[derive(Clone, Copy, Debug)]
pub struct RowChange<'r, 'a> {
    /// Place of the row event.
    pub key: OrderKey,
    /// Number of the row in the event, from 0.
    pub row: u64,
    /// Insert, update or delete.
    pub kind: RowKind,
    /// Row before; of updates and deletes.
    pub before: Option<Image<'r, 'a>>,
    /// Row after; of inserts and updates.
    pub after: Option<Image<'r, 'a>>,
}

impl<'r, 'a> RowChange<'r, 'a> {
    /// The value of a column after the change, of deletes before it; from the other image
    /// where that one lacks it.
    fn get(&self, column: usize) -> Option<&'r Value<'a>> {
        let of = |image: &Option<Image<'r, 'a>>| image.and_then(|image| image.get(column));
        match self.kind {
            RowKind::Delete => of(&self.before),
            RowKind::Insert | RowKind::Update => of(&self.after).or_else(|| of(&self.before)),
        }
    }
}

/// The format with its options.
#[derive(Clone, Copy, Debug, Default)]
pub struct CanalJson {
    options: CanalOptions,
}

impl CanalJson {
    /// The format with these options.
    pub const fn new(options: CanalOptions) -> Self {
        Self { options }
    }

    /// Prepares the encoding of one table version, whose rows are written under the name
    /// `target`.
    ///
    /// # Errors
    /// A character column whose collation is unknown or whose charset cannot be
    /// converted.
    pub fn table(&self, version: &TableVersion, target: &TableName) -> Result<TableEncoder> {
        TableEncoder::new(self.options, version, target)
    }

    /// Writes a DDL as a message, without a line feed. `target` as in `write_ddl`.
    ///
    /// # Errors
    /// Writing to memory does not fail.
    pub fn ddl_message(
        &self,
        out: &mut Vec<u8>,
        key: OrderKey,
        event: &DdlEvent,
        target: &TableName,
    ) -> Result<()> {
        ddl::write(out, key, event, target)
    }

    /// Writes a DDL and a line feed. `target` is the routed name of the first table that
    /// it writes.
    ///
    /// # Errors
    /// The writer failed.
    pub fn write_ddl<W: Write>(
        &self,
        out: &mut W,
        key: OrderKey,
        event: &DdlEvent,
        target: &TableName,
    ) -> Result<()> {
        ddl::write(out, key, event, target)?;
        Ok(out.write_all(b"\n")?)
    }
}

/// Columns that a message has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    All,
    /// Those of the primary key.
    Key,
}

/// Encodes the rows of one table version.
#[derive(Debug)]
pub struct TableEncoder {
    options: CanalOptions,
    table: String,
    /// Everything before the value of `type`.
    head: Vec<u8>,
    /// Everything between `ts` and `old`.
    middle: Vec<u8>,
    columns: Vec<ColumnPlan>,
    /// Indexes of the columns of the primary key.
    primary_key: Box<[usize]>,
    plan: Arc<RowPlan>,
    scratch: Vec<u8>,
}

fn head(version: &TableVersion, target: &TableName) -> Result<Vec<u8>> {
    let mut head = b"{\"id\":0,\"database\":".to_vec();
    escape::write_string(&mut head, &target.schema)?;
    head.extend_from_slice(b",\"table\":");
    escape::write_string(&mut head, &target.table)?;
    head.extend_from_slice(b",\"pkNames\":");
    if version.primary_key.is_empty() {
        head.extend_from_slice(b"null");
    } else {
        let mut separator = b'[';
        let columns = version
            .primary_key
            .iter()
            .filter_map(|&i| version.columns.get(usize::from(i)));
        for column in columns {
            head.push(separator);
            escape::write_string(&mut head, &column.name)?;
            separator = b',';
        }
        head.push(b']');
    }
    head.extend_from_slice(b",\"isDdl\":false,\"type\":\"");
    Ok(head)
}

fn middle(options: CanalOptions, version: &TableVersion) -> Result<Vec<u8>> {
    let mut middle = b",\"sql\":\"\",\"sqlType\":{".to_vec();
    for (i, column) in version.columns.iter().enumerate() {
        if i > 0 {
            middle.push(b',');
        }
        escape::write_string(&mut middle, &column.name)?;
        write!(middle, ":{}", types::sql_type(column, options.enum_as))?;
    }
    middle.extend_from_slice(b"},\"mysqlType\":{");
    for (i, column) in version.columns.iter().enumerate() {
        if i > 0 {
            middle.push(b',');
        }
        escape::write_string(&mut middle, &column.name)?;
        middle.push(b':');
        escape::write_string(&mut middle, &types::mysql_type(column))?;
    }
    middle.extend_from_slice(b"},\"old\":");
    Ok(middle)
}

/// The digits that `OrderKey`'s `Display` writes, without its formatting machinery: it
/// stands in every row.
fn hex_key(key: OrderKey) -> [u8; 24] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = (u128::from(key.commit_ts.0) << 32) | u128::from(key.ordinal);
    std::array::from_fn(|at| DIGITS[(number >> ((23 - at) * 4)) as usize & 15])
}

const fn type_name(kind: RowKind) -> &'static [u8] {
    match kind {
        RowKind::Insert => b"INSERT",
        RowKind::Update => b"UPDATE",
        RowKind::Delete => b"DELETE",
    }
}

impl TableEncoder {
    fn new(options: CanalOptions, version: &TableVersion, target: &TableName) -> Result<Self> {
        let columns = version
            .columns
            .iter()
            .map(|column| ColumnPlan::new(version, column));
        Ok(Self {
            options,
            table: version.name.to_string(),
            head: head(version, target)?,
            middle: middle(options, version)?,
            columns: columns.collect::<Result<_>>()?,
            primary_key: version.primary_key.iter().map(|&i| usize::from(i)).collect(),
            plan: Arc::new(RowPlan::new(version)?),
            scratch: Vec::new(),
        })
    }

    /// Writes all rows of a row event, one line each; returns their number. `images` is
    /// working room, to be used again for the next event.
    ///
    /// # Errors
    /// The rows cannot be decoded, and those of `write_row`.
    pub fn write_event<'a, W: Write>(
        &mut self,
        out: &mut W,
        event: &RowEvent<'a>,
        images: &mut RowImages<'a>,
    ) -> Result<u64> {
        self.for_each_row(event, images, |encoder, change| encoder.write_row(out, change))
    }

    /// Calls `each` with every row change of a row event, in order; returns their number.
    /// `images` as in `write_event`.
    ///
    /// # Errors
    /// The rows cannot be decoded, and those of `each`, which end it.
    pub fn for_each_row<'a, E: From<CodecError>>(
        &mut self,
        event: &RowEvent<'a>,
        images: &mut RowImages<'a>,
        mut each: impl FnMut(&mut Self, &RowChange<'_, 'a>) -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        let plan = Arc::clone(&self.plan);
        let mut reader = plan
            .rows(event.kind, event.flags, event.body)
            .map_err(CodecError::from)?;
        let mut row = 0;
        while reader.next(images).map_err(CodecError::from)? {
            let before = Image::new(&images.before, images.before_columns);
            let after = Image::new(&images.after, images.after_columns);
            let change = RowChange {
                key: event.key,
                row,
                kind: event.kind,
                before: (event.kind != RowKind::Insert).then_some(before),
                after: (event.kind != RowKind::Delete).then_some(after),
            };
            each(self, &change)?;
            row += 1;
        }
        Ok(row)
    }

    /// Writes one row change and a line feed. A column that the row's images lack
    /// (`binlog_row_image` other than `FULL`) is taken from the other image where that
    /// has it, else left out.
    ///
    /// # Errors
    /// The writer failed, text is not valid in its charset, an ENUM or SET value has no
    /// member, JSON is malformed, or an image has another number of columns.
    pub fn write_row<W: Write>(&mut self, out: &mut W, change: &RowChange<'_, '_>) -> Result<()> {
        self.write_object(out, change, Columns::All)?;
        Ok(out.write_all(b"\n")?)
    }

    fn check_shape(&self, change: &RowChange<'_, '_>) -> Result<()> {
        for image in change.before.iter().chain(&change.after) {
            if image.values.len() != self.columns.len() {
                return Err(CodecError::RowShape {
                    table: self.table.clone(),
                    values: image.values.len(),
                    columns: self.columns.len(),
                });
            }
        }
        Ok(())
    }

    fn write_object<W: Write>(
        &mut self,
        out: &mut W,
        change: &RowChange<'_, '_>,
        columns: Columns,
    ) -> Result<()> {
        self.check_shape(change)?;
        let mut number = itoa::Buffer::new();
        let millis = number.format(change.key.commit_ts.millis()).as_bytes();
        out.write_all(&self.head)?;
        out.write_all(type_name(change.kind))?;
        out.write_all(b"\",\"es\":")?;
        out.write_all(millis)?;
        out.write_all(b",\"ts\":")?;
        out.write_all(millis)?;
        out.write_all(&self.middle)?;
        match (change.kind, change.before, change.after) {
            (RowKind::Update, Some(before), Some(after)) => {
                out.write_all(b"[{")?;
                if columns == Columns::All {
                    self.write_changed(out, &before, &after)?;
                }
                out.write_all(b"}]")?;
            }
            _ => out.write_all(b"null")?,
        }
        out.write_all(b",\"data\":[{")?;
        match columns {
            Columns::All => self.write_data(out, change)?,
            Columns::Key => self.write_key_data(out, change)?,
        }
        out.write_all(b"}],\"_weir\":{\"key\":\"")?;
        out.write_all(&hex_key(change.key))?;
        out.write_all(b"\",\"row\":")?;
        out.write_all(number.format(change.row).as_bytes())?;
        if columns == Columns::Key {
            out.write_all(b",\"keys-only\":true")?;
        }
        Ok(out.write_all(b"}}")?)
    }

    fn write_changed<W: Write>(
        &mut self,
        out: &mut W,
        before: &Image<'_, '_>,
        after: &Image<'_, '_>,
    ) -> Result<()> {
        let mut separator: &[u8] = b"";
        for (i, column) in self.columns.iter().enumerate() {
            let (Some(old), Some(new)) = (before.get(i), after.get(i)) else {
                continue;
            };
            if old == new {
                continue;
            }
            out.write_all(separator)?;
            out.write_all(&column.key)?;
            column.write(out, old, &self.options, &mut self.scratch)?;
            separator = b",";
        }
        Ok(())
    }

    fn write_data<W: Write>(&mut self, out: &mut W, change: &RowChange<'_, '_>) -> Result<()> {
        let mut separator: &[u8] = b"";
        for (i, column) in self.columns.iter().enumerate() {
            let Some(value) = change.get(i) else {
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
