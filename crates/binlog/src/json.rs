//! MySQL's binary JSON as text (MySQL source, `json_binary.h`; text form as the server
//! prints it: a space behind `,` and `:`, keys in stored order).

use crate::cursor::Cursor;
use crate::error::BinlogError;
pub use crate::json_node::{Elements, Node, Opaque};
use crate::json_scalar as scalar;

/// Deepest nesting of arrays and objects that the server accepts.
pub(crate) const DEPTH_MAX: u32 = 100;

/// Bytes of text per byte of a right value at most: `\u0001` makes six of one.
const TEXT_RATIO_MAX: usize = 16;
/// Bytes of text beyond that ratio, for values of few bytes.
const TEXT_SLACK: usize = 64;

/// Size of the pieces of [`write_text_in_pieces`], in bytes; one may be longer by a
/// value that is not a string.
pub const PIECE_BYTES: usize = 64 << 10;

pub(crate) const SMALL_OBJECT: u8 = 0x00;
pub(crate) const LARGE_OBJECT: u8 = 0x01;
pub(crate) const SMALL_ARRAY: u8 = 0x02;
pub(crate) const LARGE_ARRAY: u8 = 0x03;
const LITERAL: u8 = 0x04;
const INT16: u8 = 0x05;
const UINT16: u8 = 0x06;
const INT32: u8 = 0x07;
const UINT32: u8 = 0x08;
const INT64: u8 = 0x09;
const UINT64: u8 = 0x0a;
const DOUBLE: u8 = 0x0b;
const STRING: u8 = 0x0c;
pub(crate) const OPAQUE: u8 = 0x0f;

/// Appends the text of a binary JSON value. Empty bytes are the JSON null that the
/// server stores for a broken value.
///
/// ```
/// let mut text = Vec::new();
/// weir_binlog::json::write_text(&[0x05, 0x2a, 0x00], &mut text).unwrap();
/// assert_eq!(text, b"42");
/// ```
///
/// # Errors
/// `Json` for bytes that are no such value, or nested deeper than 100; `out` is as
/// before then. The text is bounded: values may be shared by broken offsets, but no more
/// than the value has bytes of entries.
pub fn write_text(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), BinlogError> {
    let Some((kind, value)) = bytes.split_first() else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    write_value(*kind, value, out)
}

/// Appends the text of a value of this type; `out` is as before if it is none.
pub(crate) fn write_value(kind: u8, value: &[u8], out: &mut Vec<u8>) -> Result<(), BinlogError> {
    let start = out.len();
    let mut writer = Writer {
        text_max: text_max(value, start),
        out,
        passed_on: 0,
        piece: None,
    };
    let written = writer.value(kind, value, 0);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// As [`write_text`], but hands the text on in pieces of about [`PIECE_BYTES`], so that
/// a large document is not held as text. Pieces end between characters. `scratch` is
/// working room; it is empty before and after.
///
/// # Errors
/// As `write_text`; some pieces may have been handed on then.
pub fn write_text_in_pieces(
    bytes: &[u8],
    scratch: &mut Vec<u8>,
    piece: &mut dyn FnMut(&[u8]),
) -> Result<(), BinlogError> {
    scratch.clear();
    let Some((kind, value)) = bytes.split_first() else {
        piece(b"null");
        return Ok(());
    };
    let mut writer = Writer {
        text_max: text_max(bytes, 0),
        out: scratch,
        passed_on: 0,
        piece: Some(piece),
    };
    let written = writer.value(*kind, value, 0);
    if written.is_ok() {
        writer.pass_on();
    }
    scratch.clear();
    written
}

fn text_max(bytes: &[u8], start: usize) -> usize {
    start
        .saturating_add(bytes.len().saturating_mul(TEXT_RATIO_MAX))
        .saturating_add(TEXT_SLACK)
}

pub(crate) fn bad<T>(what: &'static str) -> Result<T, BinlogError> {
    Err(BinlogError::Json { what })
}

/// Width of counts, sizes and offsets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Small,
    Large,
}

impl Width {
    const fn bytes(self) -> usize {
        match self {
            Self::Small => 2,
            Self::Large => 4,
        }
    }

    /// Whether a value of this type stands in its entry instead of behind an offset.
    const fn inlines(self, kind: u8) -> bool {
        match kind {
            LITERAL | INT16 | UINT16 => true,
            INT32 | UINT32 => matches!(self, Self::Large),
            _ => false,
        }
    }
}

/// Takes a piece of text.
type TakePiece<'p> = &'p mut dyn FnMut(&[u8]);

struct Writer<'o, 'p> {
    out: &'o mut Vec<u8>,
    /// Length of the text beyond which offsets must point to the same place again and
    /// again.
    text_max: usize,
    /// Bytes of text that are no longer in `out`.
    passed_on: usize,
    piece: Option<TakePiece<'p>>,
}

impl Writer<'_, '_> {
    /// Hands on what is in `out`, if somebody takes it.
    fn pass_on(&mut self) {
        if let Some(piece) = self.piece.as_mut() {
            piece(self.out);
            self.passed_on += self.out.len();
            self.out.clear();
        }
    }

    fn pass_on_if_full(&mut self) {
        if self.out.len() >= PIECE_BYTES {
            self.pass_on();
        }
    }

    fn string(&mut self, mut bytes: &[u8]) {
        self.out.push(b'"');
        while bytes.len() > PIECE_BYTES {
            // The first byte of a character: a continuation byte starts with `10`.
            let starts = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80);
            let cut = (PIECE_BYTES - 3..=PIECE_BYTES)
                .rev()
                .find(starts)
                .unwrap_or(PIECE_BYTES);
            let (part, rest) = bytes.split_at_checked(cut).unwrap_or((bytes, &[]));
            scalar::write_escaped(part, self.out);
            self.pass_on_if_full();
            bytes = rest;
        }
        scalar::write_escaped(bytes, self.out);
        self.out.push(b'"');
    }

    fn value(&mut self, kind: u8, bytes: &[u8], depth: u32) -> Result<(), BinlogError> {
        if depth > DEPTH_MAX {
            return bad("nested too deep");
        }
        match kind {
            SMALL_OBJECT => self.container(Width::Small, true, bytes, depth),
            LARGE_OBJECT => self.container(Width::Large, true, bytes, depth),
            SMALL_ARRAY => self.container(Width::Small, false, bytes, depth),
            LARGE_ARRAY => self.container(Width::Large, false, bytes, depth),
            _ => self
                .scalar(kind, bytes)
                .unwrap_or_else(|| bad("value that is cut or of no known type")),
        }
    }

    fn scalar(&mut self, kind: u8, bytes: &[u8]) -> Option<Result<(), BinlogError>> {
        let mut c = Cursor::new(bytes);
        match kind {
            LITERAL => self.out.extend_from_slice(match c.u8()? {
                0 => b"null",
                1 => b"true",
                2 => b"false",
                _ => return None,
            }),
            INT16 => scalar::write_display(c.i16()?, self.out),
            UINT16 => scalar::write_display(c.u16()?, self.out),
            INT32 => scalar::write_display(c.i32()?, self.out),
            UINT32 => scalar::write_display(c.u32()?, self.out),
            INT64 => scalar::write_display(c.i64()?, self.out),
            UINT64 => scalar::write_display(c.u64()?, self.out),
            DOUBLE => scalar::write_double(c.f64()?, self.out),
            STRING => {
                let length = scalar::variable_length(&mut c)?;
                self.string(c.take(length)?);
            }
            OPAQUE => {
                let field_type = c.u8()?;
                let length = scalar::variable_length(&mut c)?;
                scalar::write_opaque(field_type, c.take(length)?, self.out)?;
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    /// Count, size, key entries (offset and length), value entries (type, and value or
    /// offset), keys, values. Offsets count from the count field.
    fn container(&mut self, width: Width, object: bool, bytes: &[u8], depth: u32) -> Result<(), BinlogError> {
        let Some(frame) = Frame::new(width, object, bytes) else {
            return bad("array or object that is cut");
        };
        self.out.push(if object { b'{' } else { b'[' });
        for at in 0..frame.count {
            if self.passed_on + self.out.len() > self.text_max {
                return bad("more text than its bytes can make");
            }
            if at > 0 {
                self.out.extend_from_slice(b", ");
            }
            if object {
                let Some(key) = frame.key(at) else {
                    return bad("key outside its object");
                };
                self.string(key);
                self.out.extend_from_slice(b": ");
            }
            let Some((kind, value)) = frame.entry(at) else {
                return bad("element outside its array or object");
            };
            self.value(kind, value, depth + 1)?;
            self.pass_on_if_full();
        }
        self.out.push(if object { b'}' } else { b']' });
        Ok(())
    }
}

/// The fixed parts of an array or object.
pub(crate) struct Frame<'a> {
    width: Width,
    pub(crate) count: usize,
    /// From the count field to the end.
    bytes: &'a [u8],
    keys_at: usize,
    entries_at: usize,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(width: Width, object: bool, bytes: &'a [u8]) -> Option<Self> {
        let mut c = Cursor::new(bytes);
        let n = width.bytes();
        let count = usize::try_from(c.uint_le(n)?).ok()?;
        let size = usize::try_from(c.uint_le(n)?).ok()?;
        let bytes = bytes.get(..size)?;
        let keys_at = 2 * n;
        let key_bytes = if object { n + 2 } else { 0 };
        let entries_at = keys_at.checked_add(count.checked_mul(key_bytes)?)?;
        let end = entries_at.checked_add(count.checked_mul(n + 1)?)?;
        (end <= size).then_some(Self {
            width,
            count,
            bytes,
            keys_at,
            entries_at,
        })
    }

    pub(crate) fn key(&self, at: usize) -> Option<&'a [u8]> {
        let n = self.width.bytes();
        let mut c = Cursor::new(self.bytes.get(self.keys_at + at * (n + 2)..)?);
        let offset = usize::try_from(c.uint_le(n)?).ok()?;
        let length = usize::from(c.u16()?);
        Cursor::new(self.bytes.get(offset..)?).take(length)
    }

    /// Type of an element, and its bytes to the end of the container.
    pub(crate) fn entry(&self, at: usize) -> Option<(u8, &'a [u8])> {
        let n = self.width.bytes();
        let mut c = Cursor::new(self.bytes.get(self.entries_at + at * (n + 1)..)?);
        let kind = c.u8()?;
        if self.width.inlines(kind) {
            return Some((kind, c.take(n)?));
        }
        let offset = usize::try_from(c.uint_le(n)?).ok()?;
        // Values stand behind all entries; an offset into them could go round in circles.
        if offset < self.entries_at + self.count * (n + 1) {
            return None;
        }
        Some((kind, self.bytes.get(offset..)?))
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
