//! Answers to queries (MySQL source documentation, "Text Resultset").

use crate::cursor::Cursor;
use crate::error::WireError;
use crate::frame::{EOF_BYTE, EOF_BYTES_MAX, ERROR_BYTE, Framed};

/// Bytes that an answer may take, those of its packets and `VALUE_BYTES` for each value.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What a value takes in memory beside its bytes.
const VALUE_BYTES: usize = size_of::<Option<Vec<u8>>>() + 16;
/// Columns that a server allows in a result (`MAX_FIELDS`).
const COLUMNS_MAX: u64 = 4096;
/// Status flag: another result follows, which we never ask for.
const STATUS_MORE_RESULTS: u16 = 8;
/// First byte of a request for a local file.
const LOCAL_INFILE: u8 = 0xfb;

/// Result of a query, all in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Values as text, `None` for NULL; as many in each row as there are columns.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

impl Rows {
    /// Number of rows.
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of the column of that name; case does not matter.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.eq_ignore_ascii_case(name))
    }

    /// A value; `None` for NULL and where there is no such row or column.
    pub fn get(&self, row: usize, column: &str) -> Option<&[u8]> {
        self.rows.get(row)?.get(self.column(column)?)?.as_deref()
    }

    /// `get` as UTF-8; `None` also if it is not.
    pub fn text(&self, row: usize, column: &str) -> Option<&str> {
        std::str::from_utf8(self.get(row, column)?).ok()
    }
}

/// Reads the answer to a query.
pub(crate) fn read(frame: &mut Framed) -> Result<Rows, WireError> {
    let mut reader = Reader {
        left: ANSWER_BYTES_MAX,
        packet: Vec::new(),
    };
    reader.read(frame)
}

struct Reader {
    /// Bytes that the answer may still take.
    left: usize,
    packet: Vec<u8>,
}

impl Reader {
    fn read(&mut self, frame: &mut Framed) -> Result<Rows, WireError> {
        let count = match self.next(frame)? {
            Some(0) => {
                let more = ok_status(&self.packet).ok_or_else(|| frame.malformed("OK packet"))?;
                return self.end(frame, more, Rows::default());
            }
            Some(LOCAL_INFILE) => return Err(frame.malformed("request for a local file")),
            _ => Cursor::new(&self.packet).lenenc(),
        };
        let count = count
            .filter(|n| (1..=COLUMNS_MAX).contains(n))
            .ok_or_else(|| frame.malformed("number of columns"))?;
        let mut out = Rows::default();
        for _ in 0..count {
            self.next(frame)?;
            let name = column_name(&self.packet).ok_or_else(|| frame.malformed("column definition"))?;
            out.columns.push(name);
        }
        self.next(frame)?;
        if eof_status(&self.packet).is_none() {
            return Err(frame.malformed("end of the column definitions"));
        }
        loop {
            self.next(frame)?;
            if let Some(status) = eof_status(&self.packet) {
                return self.end(frame, status, out);
            }
            let row =
                row(&self.packet, out.columns.len()).ok_or_else(|| frame.malformed("row of a result"))?;
            out.rows.push(row);
            self.left = self.left.saturating_sub(out.columns.len() * VALUE_BYTES);
        }
    }

    /// Reads a packet; an error packet is an error. Its first byte.
    fn next(&mut self, frame: &mut Framed) -> Result<Option<u8>, WireError> {
        frame
            .read_payload(&mut self.packet, self.left)
            .map_err(|error| match error {
                WireError::AnswerTooLarge { address, .. } => WireError::AnswerTooLarge {
                    address,
                    limit: ANSWER_BYTES_MAX as u64,
                },
                other => other,
            })?;
        if self.packet.first() == Some(&ERROR_BYTE) {
            let error = frame.server_error(&self.packet)?;
            return Err(WireError::from_server(frame.address(), error));
        }
        self.left -= self.packet.len();
        Ok(self.packet.first().copied())
    }

    fn end(&self, frame: &Framed, status: u16, rows: Rows) -> Result<Rows, WireError> {
        if status & STATUS_MORE_RESULTS != 0 {
            return Err(frame.malformed("a second result that was not asked for"));
        }
        Ok(rows)
    }
}

/// Status of an OK packet: behind its first byte, rows and id.
fn ok_status(packet: &[u8]) -> Option<u16> {
    let mut c = Cursor::new(packet);
    c.u8()?;
    c.lenenc()?;
    c.lenenc()?;
    c.u16()
}

/// Status of an end-of-file packet; `None` if it is another.
fn eof_status(packet: &[u8]) -> Option<u16> {
    if packet.len() > EOF_BYTES_MAX {
        return None;
    }
    let mut c = Cursor::new(packet);
    if c.u8()? != EOF_BYTE {
        return None;
    }
    // Warnings.
    c.u16()?;
    c.u16()
}

/// Behind catalogue, schema, table and the table's own name.
fn column_name(packet: &[u8]) -> Option<String> {
    let mut c = Cursor::new(packet);
    for _ in 0..4 {
        c.lenenc_bytes()?;
    }
    Some(String::from_utf8_lossy(c.lenenc_bytes()?).into_owned())
}

fn row(packet: &[u8], columns: usize) -> Option<Vec<Option<Vec<u8>>>> {
    let mut c = Cursor::new(packet);
    let mut out = Vec::with_capacity(columns);
    for _ in 0..columns {
        out.push(c.nullable_bytes()?.map(<[u8]>::to_vec));
    }
    c.is_empty().then_some(out)
}
