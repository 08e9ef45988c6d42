//! Values inside of MySQL's binary JSON, for those who need more than their text.

use crate::cursor::Cursor;
use crate::error::BinlogError;
use crate::json::{self, Frame, OPAQUE, Width};
use crate::json_scalar as scalar;

/// A value of a document.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    kind: u8,
    bytes: &'a [u8],
}

/// A value that JSON has no type for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opaque<'a> {
    /// DECIMAL.
    Decimal,
    /// DATE.
    Date,
    /// TIME.
    Time,
    /// DATETIME and TIMESTAMP.
    Datetime,
    /// VARBINARY.
    Binary(&'a [u8]),
    /// Of another type; its text names it.
    Other,
}

/// Values of an array or object, with their keys.
pub struct Elements<'a> {
    frame: Frame<'a>,
    object: bool,
    at: usize,
}

impl<'a> Node<'a> {
    /// The whole document; none for the empty bytes of a broken value.
    pub fn root(bytes: &'a [u8]) -> Option<Self> {
        let (kind, bytes) = bytes.split_first()?;
        Some(Self { kind: *kind, bytes })
    }

    /// Appends the value's text.
    ///
    /// # Errors
    /// As [`json::write_text`].
    pub fn write_text(&self, out: &mut Vec<u8>) -> Result<(), BinlogError> {
        json::write_value(self.kind, self.bytes, out)
    }

    /// What JSON has no type for; none for other values.
    pub fn opaque(&self) -> Option<Opaque<'a>> {
        if self.kind != OPAQUE {
            return None;
        }
        let mut c = Cursor::new(self.bytes);
        let field_type = c.u8()?;
        let length = scalar::variable_length(&mut c)?;
        let bytes = c.take(length)?;
        Some(match field_type {
            scalar::TYPE_NEWDECIMAL => Opaque::Decimal,
            scalar::TYPE_DATE => Opaque::Date,
            scalar::TYPE_TIME => Opaque::Time,
            scalar::TYPE_DATETIME | scalar::TYPE_TIMESTAMP => Opaque::Datetime,
            scalar::TYPE_VARCHAR => Opaque::Binary(bytes),
            _ => Opaque::Other,
        })
    }

    /// Whether the value is an object.
    pub const fn is_object(&self) -> bool {
        matches!(self.kind, json::SMALL_OBJECT | json::LARGE_OBJECT)
    }

    /// The values of an array or object; none for other values and for bytes that are
    /// cut.
    pub fn elements(&self) -> Option<Elements<'a>> {
        let width = match self.kind {
            json::SMALL_OBJECT | json::SMALL_ARRAY => Width::Small,
            json::LARGE_OBJECT | json::LARGE_ARRAY => Width::Large,
            _ => return None,
        };
        let object = self.is_object();
        Some(Elements {
            frame: Frame::new(width, object, self.bytes)?,
            object,
            at: 0,
        })
    }

    /// Whether the value is opaque, or has an opaque one inside.
    ///
    /// # Errors
    /// `Json` for values nested deeper than 100, or for more of them than there are
    /// bytes: offsets that point to the same place again and again.
    pub fn has_opaque(&self) -> Result<bool, BinlogError> {
        let mut left = self.bytes.len().saturating_add(1);
        self.search(0, &mut left)
    }

    fn search(&self, depth: u32, left: &mut usize) -> Result<bool, BinlogError> {
        if depth > json::DEPTH_MAX {
            return json::bad("nested too deep");
        }
        *left = match left.checked_sub(1) {
            Some(left) => left,
            None => return json::bad("more values than its bytes can make"),
        };
        if self.kind == OPAQUE {
            return Ok(true);
        }
        for (_, node) in self.elements().into_iter().flatten() {
            if node.search(depth + 1, left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<'a> Iterator for Elements<'a> {
    /// Key, empty in an array, and value.
    type Item = (&'a [u8], Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.frame.count {
            return None;
        }
        let key = if self.object {
            self.frame.key(self.at)?
        } else {
            &[]
        };
        let (kind, bytes) = self.frame.entry(self.at)?;
        self.at += 1;
        Some((key, Node { kind, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[1, DECIMAL 1.5]`: small array, count 2, size, entries, then the opaque value.
    const DOCUMENT: &[u8] = &[
        0x02, 2, 0, 16, 0, 0x05, 1, 0, 0x0f, 10, 0, 246, 4, 2, 1, 0x81, 0x05,
    ];

    #[test]
    fn opaque_values_are_found() {
        let root = Node::root(DOCUMENT).unwrap();
        assert!(root.has_opaque().unwrap() && !root.is_object());
        let elements: Vec<_> = root.elements().unwrap().collect();
        assert_eq!(elements.len(), 2);
        assert_eq!(elements[0].1.opaque(), None);
        assert!(!elements[0].1.has_opaque().unwrap());
        assert_eq!(elements[1].1.opaque(), Some(Opaque::Decimal));
        let mut text = Vec::new();
        elements[1].1.write_text(&mut text).unwrap();
        assert_eq!(text, b"1.5");
    }

    #[test]
    fn cut_and_looping_documents_end() {
        for cut in 0..DOCUMENT.len() {
            if let Some(root) = Node::root(&DOCUMENT[..cut]) {
                let found = root.has_opaque();
                assert!(matches!(found, Ok(false)) || cut > 11, "{cut}: {found:?}");
            }
        }
        // An array of 200 offsets to one array of 200 offsets, and so on, ten deep.
        let mut document = vec![0x02];
        let level = 4 + 200 * 3;
        for depth in 0..10_u16 {
            let rest = u16::try_from(level).unwrap() * (10 - depth);
            document.extend_from_slice(&200_u16.to_le_bytes());
            document.extend_from_slice(&rest.to_le_bytes());
            for _ in 0..200 {
                document.push(if depth == 9 { 0x05 } else { 0x02 });
                document.extend_from_slice(&u16::try_from(level).unwrap().to_le_bytes());
            }
        }
        assert!(Node::root(&document).unwrap().has_opaque().is_err());
    }
}
