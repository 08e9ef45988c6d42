//! Reading and writing the elements of packets (MySQL source documentation, "Protocol
//! Basics").

/// Bytes still to be read. Every method is `None` when they do not suffice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn take_all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// Little-endian number of `count` bytes, 8 at most.
    fn uint(&mut self, count: usize) -> Option<u64> {
        let bytes = self.take(count)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |value, b| (value << 8) | u64::from(*b)),
        )
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        u16::try_from(self.uint(2)?).ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.uint(4)?).ok()
    }

    /// Text up to a zero byte, which is skipped.
    pub(crate) fn until_nul(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|b| *b == 0)?;
        let text = self.take(length)?;
        self.take(1)?;
        Some(text)
    }

    /// Length-encoded number. `0xfb` (NULL) and `0xff` are none.
    pub(crate) fn lenenc(&mut self) -> Option<u64> {
        match self.u8()? {
            small @ 0..=0xfa => Some(u64::from(small)),
            0xfc => self.uint(2),
            0xfd => self.uint(3),
            0xfe => self.uint(8),
            _ => None,
        }
    }

    /// Bytes behind their length-encoded length.
    pub(crate) fn lenenc_bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.lenenc()?).ok()?;
        self.take(length)
    }

    /// A value of a text row: bytes, or `Some(None)` for NULL.
    pub(crate) fn nullable_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        if self.rest.first() == Some(&0xfb) {
            self.take(1)?;
            return Some(None);
        }
        self.lenenc_bytes().map(Some)
    }
}

/// Appends a length-encoded number.
pub(crate) fn put_lenenc(out: &mut Vec<u8>, value: usize) {
    let bytes = (value as u64).to_le_bytes();
    match value {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends bytes behind their length.
pub(crate) fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc(out, bytes.len());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back() {
        for value in [
            0, 1, 0xfa, 0xfb, 0xff, 0x100, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000,
        ] {
            let mut bytes = Vec::new();
            put_lenenc(&mut bytes, value);
            let mut c = Cursor::new(&bytes);
            assert_eq!(c.lenenc(), Some(value as u64));
            assert!(c.is_empty());
            bytes.pop();
            assert_eq!(Cursor::new(&bytes).lenenc(), None);
        }
    }

    #[test]
    fn null_is_not_empty() {
        let mut c = Cursor::new(&[0xfb, 0, 1, b'x', 5, b'y']);
        assert_eq!(c.nullable_bytes(), Some(None));
        assert_eq!(c.nullable_bytes(), Some(Some(&b""[..])));
        assert_eq!(c.nullable_bytes(), Some(Some(&b"x"[..])));
        assert_eq!(c.nullable_bytes(), None);
    }
}
