//! Layout of a segment file, all numbers little endian.
//!
//! ```text
//! file    = header, group*
//! header  = magic "WEIRSEG\0", version u32, reserved u32, lineage u128, number u64,
//!           reserved u64, crc32c u32 of the 48 bytes before
//! group   = frame*, trailer
//! frame   = magic u32, kind u8, codec u8, reserved u16, head length u32,
//!           raw length u32, crc32c u32 of the 16 bytes before and the head, head, chunk*
//! chunk   = raw length u32, stored length u32, crc32c u32, bytes
//! trailer = a frame of kind 255 without chunks; head = group number u64, offset of the
//!           group u64, offset known to be synced u64, frames u32, crc32c of the frames'
//!           last checksums u32, the owner's bytes
//! ```
//!
//! A sealed file ends in a pointer that lies in no group: magic "WEIRFOOT", offset and
//! length of its footer frame (u64, u32), crc32c u32 of the 20 bytes before.
//!
//! A chunk's checksum continues the one before it (the frame's own for the first), so
//! that the last one covers the whole frame and chunks cannot change places. Chunks of
//! one frame follow each other until `raw length` is reached; one whose stored length
//! equals its raw length is not compressed.

/// First bytes of a segment file.
pub const FILE_MAGIC: [u8; 8] = *b"WEIRSEG\0";
/// Version of the layout.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 52;
/// First bytes of a frame.
pub const FRAME_MAGIC: u32 = 0x4d46_5257;
/// Bytes of a frame before its head.
pub const FRAME_HEADER_BYTES: usize = 20;
/// Bytes of a chunk before its data.
pub const CHUNK_HEADER_BYTES: usize = 12;
/// Raw bytes of a chunk at most: bounds the memory beside the frame itself, and keeps
/// compression inside the processor's cache (measured faster than 64 KiB and 1 MiB).
pub const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Bytes of a head at most.
pub const HEAD_BYTES_MAX: usize = 256 << 20;
/// Kind of the frame that ends a group; others are the owner's.
pub const KIND_TRAILER: u8 = 255;
/// Bytes of a trailer's head before the owner's.
pub const TRAILER_BYTES: usize = 32;
/// Chunks are stored as they are.
pub const CODEC_NONE: u8 = 0;
/// Chunks are LZ4 blocks.
pub const CODEC_LZ4: u8 = 1;

/// First bytes of the pointer at the end of a sealed file.
pub const POINTER_MAGIC: [u8; 8] = *b"WEIRFOOT";
/// Bytes of the pointer.
pub const POINTER_BYTES: usize = 24;

/// Which segment a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentId {
    /// History that it belongs to.
    pub lineage: u128,
    /// Number within the history.
    pub number: u64,
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

pub(crate) fn file_header(id: SegmentId) -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0_u8; FILE_HEADER_BYTES];
    out[0..8].copy_from_slice(&FILE_MAGIC);
    out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    out[16..32].copy_from_slice(&id.lineage.to_le_bytes());
    out[32..40].copy_from_slice(&id.number.to_le_bytes());
    let crc = crc32c::crc32c(&out[..48]);
    out[48..52].copy_from_slice(&crc.to_le_bytes());
    out
}

pub(crate) fn parse_file_header(bytes: &[u8]) -> Option<SegmentId> {
    let covered = bytes.get(..48)?;
    if bytes.get(..8)? != FILE_MAGIC
        || u32_at(bytes, 48)? != crc32c::crc32c(covered)
        || u32_at(bytes, 8)? != FORMAT_VERSION
    {
        return None;
    }
    Some(SegmentId {
        lineage: u128::from_le_bytes(bytes.get(16..32)?.try_into().ok()?),
        number: u64_at(bytes, 32)?,
    })
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: u8,
    pub(crate) codec: u8,
    pub(crate) head_bytes: u32,
    pub(crate) raw_bytes: u32,
    pub(crate) crc: u32,
}

impl FrameHeader {
    pub(crate) fn encode(kind: u8, codec: u8, head: &[u8], raw_bytes: u32, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        out.extend_from_slice(&FRAME_MAGIC.to_le_bytes());
        out.extend_from_slice(&[kind, codec, 0, 0]);
        out.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&raw_bytes.to_le_bytes());
        let crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
        let crc = crc32c::crc32c_append(crc, head);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(head);
        crc
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if u32_at(bytes, 0)? != FRAME_MAGIC {
            return None;
        }
        let header = Self {
            kind: *bytes.get(4)?,
            codec: *bytes.get(5)?,
            head_bytes: u32_at(bytes, 8)?,
            raw_bytes: u32_at(bytes, 12)?,
            crc: u32_at(bytes, 16)?,
        };
        (header.head_bytes as usize <= HEAD_BYTES_MAX && header.codec <= CODEC_LZ4).then_some(header)
    }

    /// Whether the checksum fits the header's bytes and the head.
    pub(crate) fn holds(&self, bytes: &[u8], head: &[u8]) -> bool {
        bytes
            .get(..16)
            .is_some_and(|b| crc32c::crc32c_append(crc32c::crc32c(b), head) == self.crc)
    }
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) group: u64,
    pub(crate) start: u64,
    pub(crate) synced: u64,
    pub(crate) frames: u32,
    pub(crate) crc: u32,
}

impl Trailer {
    pub(crate) fn encode(&self, meta: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(TRAILER_BYTES + meta.len());
        out.extend_from_slice(&self.group.to_le_bytes());
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&self.synced.to_le_bytes());
        out.extend_from_slice(&self.frames.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(meta);
        out
    }

    pub(crate) fn parse(head: &[u8]) -> Option<Self> {
        Some(Self {
            group: u64_at(head, 0)?,
            start: u64_at(head, 8)?,
            synced: u64_at(head, 16)?,
            frames: u32_at(head, 24)?,
            crc: u32_at(head, 28)?,
        })
    }
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameAddress {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes of the whole frame on disk.
    pub stored_bytes: u32,
}

impl FrameAddress {
    pub(crate) fn encode_pointer(self) -> [u8; POINTER_BYTES] {
        let mut out = [0_u8; POINTER_BYTES];
        out[0..8].copy_from_slice(&POINTER_MAGIC);
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.stored_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&out[..20]);
        out[20..24].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn parse_pointer(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..8)? != POINTER_MAGIC || u32_at(bytes, 20)? != crc32c::crc32c(bytes.get(..20)?) {
            return None;
        }
        Some(Self {
            offset: u64_at(bytes, 8)?,
            stored_bytes: u32_at(bytes, 16)?,
        })
    }
}
