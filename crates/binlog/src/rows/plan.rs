//! Plans and readers.

use weir_types::block::FLAG_PARTIAL_JSON;
use weir_types::{RowKind, TableVersion, Value};

use super::op::Op;
use crate::cursor::{Cursor, bit_low_first};
use crate::error::BinlogError;

/// Value option of an after image: JSON columns may hold differences.
const OPTION_PARTIAL_JSON: u64 = 1;

/// How the rows of one table version are read. Made once per version, used for all its
/// row events.
#[derive(Clone, Debug)]
pub struct RowPlan {
    ops: Vec<Op>,
    json_columns: usize,
    table: String,
}

impl RowPlan {
    /// Compiles a table version.
    ///
    /// # Errors
    /// `UnsupportedType`.
    pub fn new(version: &TableVersion) -> Result<Self, BinlogError> {
        let ops = version
            .columns
            .iter()
            .map(|column| {
                Op::new(column).map_err(|type_name| BinlogError::UnsupportedType {
                    table: version.name.to_string(),
                    column: format!("`{}`", column.name),
                    type_name,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let json_columns = ops.iter().filter(|op| matches!(op, Op::Json(_))).count();
        Ok(Self {
            ops,
            json_columns,
            table: version.name.to_string(),
        })
    }

    /// Number of columns.
    pub const fn columns(&self) -> usize {
        self.ops.len()
    }

    /// Starts reading the body of a row event; `flags` and `body` are those of
    /// `weir_types::block`.
    ///
    /// # Errors
    /// `ColumnCount` if the rows have another number of columns; `Rows` if the body is
    /// cut.
    pub fn rows<'p, 'a>(
        &'p self,
        kind: RowKind,
        flags: u8,
        body: &'a [u8],
    ) -> Result<RowReader<'p, 'a>, BinlogError> {
        let mut c = Cursor::new(body);
        let count = c.lenenc().ok_or_else(|| self.broken("column count"))?;
        if count != self.ops.len() as u64 {
            return Err(BinlogError::ColumnCount {
                table: self.table.clone(),
                rows: count,
                columns: self.ops.len(),
            });
        }
        let mut set = || {
            let bitmap = c.take(self.ops.len().div_ceil(8));
            bitmap
                .map(|bitmap| ColumnSet::new(bitmap, self.ops.len()))
                .ok_or_else(|| self.broken("bitmap of columns"))
        };
        let (before, after) = match kind {
            RowKind::Insert => (ColumnSet::EMPTY, set()?),
            RowKind::Delete => (set()?, ColumnSet::EMPTY),
            RowKind::Update => (set()?, set()?),
        };
        // An insert of default values only, in the minimal image, is a row of no bytes.
        // One such event holds one row: the server itself applies it so.
        let bare = before.count == 0 && after.count == 0;
        if bare && (kind != RowKind::Insert || !c.is_empty()) {
            return Err(self.broken("rows without columns"));
        }
        Ok(RowReader {
            plan: self,
            kind,
            partial: flags & FLAG_PARTIAL_JSON != 0,
            before,
            after,
            rows: c,
            bare_row: bare,
        })
    }

    #[cold]
    fn broken(&self, what: &'static str) -> BinlogError {
        BinlogError::Rows {
            table: self.table.clone(),
            what,
        }
    }
}

/// The columns that an image holds. Others were left out by `binlog_row_image`, which is
/// not the same as NULL.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSet<'a> {
    bitmap: &'a [u8],
    /// Columns in the set.
    count: usize,
    /// All columns of the table are in the set.
    full: bool,
}

impl<'a> ColumnSet<'a> {
    /// No column.
    pub const EMPTY: Self = Self {
        bitmap: &[],
        count: 0,
        full: false,
    };

    fn new(bitmap: &'a [u8], columns: usize) -> Self {
        // Bits behind the last column are not defined.
        let count = (0..columns).filter(|at| bit_low_first(bitmap, *at)).count();
        Self {
            bitmap,
            count,
            full: count == columns,
        }
    }

    /// Whether the image holds this column.
    #[inline]
    pub fn contains(&self, column: usize) -> bool {
        bit_low_first(self.bitmap, column)
    }

    /// Whether the image holds every column.
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Number of columns that the image holds.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the image holds no column.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The images of one row, reused from row to row. An image has one value per column of
/// the table; a column outside its set reads `Value::Null` there. An image that the kind
/// of change does not have is empty.
#[derive(Debug)]
pub struct RowImages<'a> {
    /// Values before the change (update, delete).
    pub before: Vec<Value<'a>>,
    /// Values after the change (insert, update).
    pub after: Vec<Value<'a>>,
    /// Columns that `before` holds.
    pub before_columns: ColumnSet<'a>,
    /// Columns that `after` holds.
    pub after_columns: ColumnSet<'a>,
}

impl Default for RowImages<'_> {
    fn default() -> Self {
        Self {
            before: Vec::new(),
            after: Vec::new(),
            before_columns: ColumnSet::EMPTY,
            after_columns: ColumnSet::EMPTY,
        }
    }
}

impl<'a> RowImages<'a> {
    /// Empties the images and keeps their memory for rows of another body.
    pub fn recycle<'b>(self) -> RowImages<'b> {
        // Collected in place: a vector's own allocation is used again.
        let empty = |mut values: Vec<Value<'a>>| -> Vec<Value<'b>> {
            values.clear();
            values.into_iter().map(|_| Value::Null).collect()
        };
        RowImages {
            before: empty(self.before),
            after: empty(self.after),
            ..RowImages::default()
        }
    }

    /// Value of a column before the change; `None` if the image does not hold it.
    pub fn before(&self, column: usize) -> Option<&Value<'a>> {
        self.before
            .get(column)
            .filter(|_| self.before_columns.contains(column))
    }

    /// Value of a column after the change; `None` if the image does not hold it.
    pub fn after(&self, column: usize) -> Option<&Value<'a>> {
        self.after
            .get(column)
            .filter(|_| self.after_columns.contains(column))
    }
}

/// Rows of one row event.
#[derive(Debug)]
pub struct RowReader<'p, 'a> {
    plan: &'p RowPlan,
    kind: RowKind,
    partial: bool,
    before: ColumnSet<'a>,
    after: ColumnSet<'a>,
    rows: Cursor<'a>,
    bare_row: bool,
}

impl<'a> RowReader<'_, 'a> {
    /// Kind of change.
    pub const fn kind(&self) -> RowKind {
        self.kind
    }

    /// Columns of the before images.
    pub const fn before_columns(&self) -> ColumnSet<'a> {
        self.before
    }

    /// Columns of the after images.
    pub const fn after_columns(&self) -> ColumnSet<'a> {
        self.after
    }

    /// Reads the next row into `images`; false behind the last one.
    ///
    /// # Errors
    /// `Rows` for bytes that are no row; `PartialJson` for JSON differences. The reader
    /// is at its end then.
    #[inline]
    pub fn next(&mut self, images: &mut RowImages<'a>) -> Result<bool, BinlogError> {
        if self.rows.is_empty() && !self.bare_row {
            return Ok(false);
        }
        self.bare_row = false;
        images.before_columns = self.before;
        images.after_columns = self.after;
        images.before.clear();
        images.after.clear();
        let read = self.read(images);
        if read.is_err() {
            self.rows.take_rest();
        }
        read.map(|()| true)
    }

    fn read(&mut self, images: &mut RowImages<'a>) -> Result<(), BinlogError> {
        let ops = &self.plan.ops;
        if self.kind != RowKind::Insert {
            read_image(ops, self.before, &mut self.rows, &mut images.before)
                .ok_or_else(|| self.plan.broken("before image"))?;
        }
        if self.kind != RowKind::Delete {
            let differences = if self.partial { self.differences()? } else { None };
            if let Some(bits) = differences {
                return self.read_unchanged_json(bits, images);
            }
            read_image(ops, self.after, &mut self.rows, &mut images.after)
                .ok_or_else(|| self.plan.broken("after image"))?;
        }
        Ok(())
    }

    /// In a PARTIAL_UPDATE_ROWS_EVENT the after image begins with its options and, if
    /// they say so, a bitmap of the JSON columns that hold differences: all JSON columns
    /// of the table have a bit, also those that the image leaves out. `None` if no bit is
    /// set.
    fn differences(&mut self) -> Result<Option<&'a [u8]>, BinlogError> {
        let broken = || self.plan.broken("options of an after image");
        let options = self.rows.lenenc().ok_or_else(broken)?;
        if options & OPTION_PARTIAL_JSON == 0 {
            return Ok(None);
        }
        let bits = self
            .rows
            .take(self.plan.json_columns.div_ceil(8))
            .ok_or_else(broken)?;
        let any = (0..self.plan.json_columns).any(|at| bit_low_first(bits, at));
        Ok(any.then_some(bits))
    }

    /// Reads an after image with JSON differences. A list of no differences is how the
    /// server writes a JSON value that did not change: it is the one of the before image.
    #[cold]
    fn read_unchanged_json(&mut self, bits: &[u8], images: &mut RowImages<'a>) -> Result<(), BinlogError> {
        let broken = || self.plan.broken("after image with JSON differences");
        let nulls = self.rows.take(self.after.count.div_ceil(8)).ok_or_else(broken)?;
        let (mut seen, mut json) = (0, 0);
        for (at, op) in self.plan.ops.iter().enumerate() {
            let differs = matches!(op, Op::Json(_)) && bit_low_first(bits, json);
            json += usize::from(matches!(op, Op::Json(_)));
            let mut value = Value::Null;
            if self.after.contains(at) {
                if !bit_low_first(nulls, seen) {
                    value = op.read(&mut self.rows).ok_or_else(broken)?;
                    if differs {
                        value = self.before_value(value, images.before(at))?;
                    }
                }
                seen += 1;
            }
            images.after.push(value);
        }
        Ok(())
    }

    fn before_value(
        &self,
        differences: Value<'a>,
        before: Option<&Value<'a>>,
    ) -> Result<Value<'a>, BinlogError> {
        match (differences, before) {
            (Value::Json([]), Some(before)) => Ok(*before),
            _ => Err(BinlogError::PartialJson {
                table: self.plan.table.clone(),
            }),
        }
    }
}

/// Reads a bitmap of NULLs over the columns of the set, then the others' values.
#[inline]
fn read_image<'a>(
    ops: &[Op],
    columns: ColumnSet<'a>,
    c: &mut Cursor<'a>,
    out: &mut Vec<Value<'a>>,
) -> Option<()> {
    let nulls = c.take(columns.count.div_ceil(8))?;
    out.reserve(ops.len());
    if !columns.full {
        return read_some(ops, columns, nulls, c, out);
    }
    for (ops, nulls) in ops.chunks(8).zip(nulls) {
        let mut nulls = *nulls;
        for op in ops {
            out.push(if nulls & 1 == 0 { op.read(c)? } else { Value::Null });
            nulls >>= 1;
        }
    }
    Some(())
}

fn read_some<'a>(
    ops: &[Op],
    columns: ColumnSet<'a>,
    nulls: &[u8],
    c: &mut Cursor<'a>,
    out: &mut Vec<Value<'a>>,
) -> Option<()> {
    let mut seen = 0;
    for (at, op) in ops.iter().enumerate() {
        let value = if !columns.contains(at) {
            Value::Null
        } else {
            let null = bit_low_first(nulls, seen);
            seen += 1;
            if null { Value::Null } else { op.read(c)? }
        };
        out.push(value);
    }
    Some(())
}
