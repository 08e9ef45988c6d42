//! Reading numbers and slices with bounds checks. Every method gives `None` where the
//! bytes run out, and moves nothing then.

/// A place in bytes from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

macro_rules! fixed {
    ($($name:ident, $type:ty, $from:ident, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[inline]
            pub(crate) fn $name(&mut self) -> Option<$type> {
                let (head, rest) = self.rest.split_first_chunk()?;
                self.rest = rest;
                Some(<$type>::$from(*head))
            }
        )*
    };
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Everything that was not read yet; the cursor is at the end then.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }

    /// `take` for a length that was read as u64.
    pub(crate) fn take_u64(&mut self, length: u64) -> Option<&'a [u8]> {
        self.take(usize::try_from(length).ok()?)
    }

    /// A fixed number of bytes.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    fixed! {
        u8, u8, from_le_bytes, "One byte.";
        i8, i8, from_le_bytes, "One signed byte.";
        u16, u16, from_le_bytes, "Two bytes, little-endian.";
        i16, i16, from_le_bytes, "Two bytes, little-endian, signed.";
        u32, u32, from_le_bytes, "Four bytes, little-endian.";
        i32, i32, from_le_bytes, "Four bytes, little-endian, signed.";
        u64, u64, from_le_bytes, "Eight bytes, little-endian.";
        i64, i64, from_le_bytes, "Eight bytes, little-endian, signed.";
        f32, f32, from_le_bytes, "IEEE single, little-endian.";
        f64, f64, from_le_bytes, "IEEE double, little-endian.";
        u32_be, u32, from_be_bytes, "Four bytes, big-endian.";
    }

    /// Three bytes, little-endian.
    #[inline]
    pub(crate) fn u24(&mut self) -> Option<u32> {
        let [a, b, c] = self.array()?;
        Some(u32::from_le_bytes([a, b, c, 0]))
    }

    /// Six bytes, little-endian.
    pub(crate) fn u48(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f] = self.array()?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// Seven bytes, little-endian.
    pub(crate) fn u56(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f, g] = self.array()?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, g, 0]))
    }

    /// Up to eight bytes, big-endian.
    #[inline]
    pub(crate) fn uint_be(&mut self, length: usize) -> Option<u64> {
        debug_assert!(length <= 8);
        Some(
            self.take(length)?
                .iter()
                .fold(0, |value, byte| (value << 8) | u64::from(*byte)),
        )
    }

    /// Up to eight bytes, little-endian.
    #[inline]
    pub(crate) fn uint_le(&mut self, length: usize) -> Option<u64> {
        debug_assert!(length <= 8);
        Some(
            self.take(length)?
                .iter()
                .rev()
                .fold(0, |value, byte| (value << 8) | u64::from(*byte)),
        )
    }

    /// Length-encoded integer of the client protocol (0xfb and 0xff are no integers).
    #[inline]
    pub(crate) fn lenenc(&mut self) -> Option<u64> {
        let mut probe = *self;
        let value = match probe.u8()? {
            small @ 0..=0xfa => u64::from(small),
            0xfc => u64::from(probe.u16()?),
            0xfd => u64::from(probe.u24()?),
            0xfe => probe.u64()?,
            0xfb | 0xff => return None,
        };
        *self = probe;
        Some(value)
    }

    /// A length-encoded integer and as many bytes.
    pub(crate) fn lenenc_bytes(&mut self) -> Option<&'a [u8]> {
        let mut probe = *self;
        let length = probe.lenenc()?;
        let bytes = probe.take_u64(length)?;
        *self = probe;
        Some(bytes)
    }

    /// A byte with a length, and as many bytes.
    pub(crate) fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let mut probe = *self;
        let length = probe.u8()?;
        let bytes = probe.take(usize::from(length))?;
        *self = probe;
        Some(bytes)
    }

    /// Variable-length integer of MySQL's serialization library: as many trailing one
    /// bits in the first byte as there are further bytes (MySQL source documentation,
    /// `PageLibsMysqlSerialization`).
    pub(crate) fn varlen(&mut self) -> Option<u64> {
        let extra = usize::try_from(self.rest.first()?.trailing_ones()).ok()?;
        if extra == 8 {
            let mut probe = *self;
            probe.u8()?;
            let value = probe.u64()?;
            *self = probe;
            return Some(value);
        }
        let raw = self.uint_le(extra + 1)?;
        Some(raw >> (extra + 1))
    }

    /// Signed `varlen`: the lowest bit is the sign, the rest the magnitude (negative:
    /// magnitude − 1).
    pub(crate) fn varlen_signed(&mut self) -> Option<i64> {
        let raw = self.varlen()?;
        let magnitude = i64::try_from(raw >> 1).ok()?;
        Some(if raw & 1 == 0 { magnitude } else { -magnitude - 1 })
    }
}

/// Bit `index` of a bitmap whose first column is the lowest bit of the first byte.
#[inline]
pub(crate) fn bit_low_first(bitmap: &[u8], index: usize) -> bool {
    bitmap
        .get(index / 8)
        .is_some_and(|byte| byte & (1 << (index % 8)) != 0)
}

/// Bit `index` of a bitmap whose first column is the highest bit of the first byte.
pub(crate) fn bit_high_first(bitmap: &[u8], index: usize) -> bool {
    bitmap
        .get(index / 8)
        .is_some_and(|byte| byte & (0x80 >> (index % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_form() {
        let mut c = Cursor::new(&[0xfc, 0x01, 0x02, 0xfa, 0xfd, 1, 0, 1]);
        assert_eq!(c.lenenc(), Some(0x0201));
        assert_eq!(c.lenenc(), Some(0xfa));
        assert_eq!(c.lenenc(), Some(0x01_0001));
        assert_eq!(c.lenenc(), None);
        assert_eq!(Cursor::new(&[0xfb]).lenenc(), None);
        assert_eq!(Cursor::new(&[1, 2, 3]).uint_be(3), Some(0x01_0203));
        assert_eq!(Cursor::new(&[1, 2, 3]).uint_le(3), Some(0x03_0201));
    }

    #[test]
    fn varlen_by_the_documented_examples() {
        // 65535 is written as 3 bytes: 0b11111011 0b11111111 0b00000111.
        assert_eq!(Cursor::new(&[0xfb, 0xff, 0x07]).varlen(), Some(65535));
        assert_eq!(Cursor::new(&[0b0000_0010]).varlen(), Some(1));
        assert_eq!(
            Cursor::new(&[0xff, 1, 0, 0, 0, 0, 0, 0, 0x80]).varlen(),
            Some(0x8000_0000_0000_0001)
        );
        assert_eq!(Cursor::new(&[0x7f, 0, 0, 0, 0, 0, 0, 1]).varlen(), Some(1 << 48));
        assert_eq!(Cursor::new(&[0xfb, 0xff, 0x0f]).varlen_signed(), Some(-65536));
        assert_eq!(Cursor::new(&[]).varlen(), None);
    }

    #[test]
    fn a_short_read_moves_nothing() {
        let mut c = Cursor::new(&[5, 1, 2]);
        assert_eq!(c.lenenc_bytes(), None);
        assert_eq!(c.short_bytes(), None);
        assert_eq!(c.u64(), None);
        assert_eq!(c.len(), 3);
    }
}
