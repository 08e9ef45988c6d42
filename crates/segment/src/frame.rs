//! Reading one frame through a window of the file.

use lz4_flex::block::decompress_into;

use crate::error::{Result, SegmentError};
use crate::format::{
    CHUNK_BYTES_MAX, CHUNK_HEADER_BYTES, CODEC_LZ4, FRAME_HEADER_BYTES, FrameHeader, u32_at,
};
use crate::reader::Frame;
use crate::volume::{VolumeFile, read_full};

/// Window over a file that is read in order, or over one frame.
pub(crate) struct Window<'a> {
    pub(crate) file: &'a dyn VolumeFile,
    pub(crate) name: &'a str,
    base: u64,
    bytes: Vec<u8>,
    ahead: usize,
    /// Offset behind which nothing is read.
    limit: u64,
}

impl<'a> Window<'a> {
    pub(crate) fn new(file: &'a dyn VolumeFile, name: &'a str, ahead: usize, limit: u64) -> Self {
        Self {
            file,
            name,
            base: 0,
            bytes: Vec::new(),
            ahead,
            limit,
        }
    }

    /// `len` bytes at `offset`, or None if the file ends before.
    pub(crate) fn get(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(len as u64).filter(|e| *e <= self.limit) else {
            return Ok(None);
        };
        if offset < self.base || end > self.base + self.bytes.len() as u64 {
            let most = usize::try_from(self.limit - offset).unwrap_or(usize::MAX);
            let want = len.max(self.ahead).min(most);
            self.bytes.resize(want, 0);
            self.base = offset;
            let read = read_full(self.file, &mut self.bytes, offset)
                .map_err(|e| SegmentError::io("reading", self.name, e))?;
            self.bytes.truncate(read);
        }
        let start = usize::try_from(offset - self.base).unwrap_or(usize::MAX);
        Ok(self.bytes.get(start..start.saturating_add(len)))
    }
}

/// What is wrong with a frame: reason and offset stay apart until it is known whether a
/// torn tail is allowed.
pub(crate) type Checked<T> = std::result::Result<T, &'static str>;

pub(crate) struct ReadFrame {
    pub(crate) frame: Frame,
    pub(crate) raw_bytes: u32,
    /// Checksum that covers all of it.
    pub(crate) crc: u32,
    pub(crate) stored_bytes: u64,
}

pub(crate) fn read_frame(
    window: &mut Window<'_>,
    offset: u64,
    with_body: &dyn Fn(u8) -> bool,
) -> Result<Checked<ReadFrame>> {
    let Some(bytes) = window.get(offset, FRAME_HEADER_BYTES)? else {
        return Ok(Err("a frame is cut off"));
    };
    let mut fixed = [0_u8; FRAME_HEADER_BYTES];
    fixed.copy_from_slice(bytes);
    let Some(header) = FrameHeader::parse(&fixed) else {
        return Ok(Err("no frame begins here"));
    };
    let at = offset + FRAME_HEADER_BYTES as u64;
    let Some(head) = window.get(at, header.head_bytes as usize)? else {
        return Ok(Err("a frame is cut off"));
    };
    if !header.holds(&fixed, head) {
        return Ok(Err("a frame's checksum does not fit"));
    }
    let head = head.to_vec();
    let mut at = at + u64::from(header.head_bytes);
    let keep = with_body(header.kind);
    let raw_bytes = header.raw_bytes as usize;
    let mut body = Vec::new();
    if keep {
        body.resize(raw_bytes, 0);
    }
    let (mut done, mut crc) = (0_usize, header.crc);
    while done < raw_bytes {
        let target = keep.then(|| body.get_mut(done..).unwrap_or_default());
        match read_chunk(window, at, &header, raw_bytes - done, crc, target)? {
            Ok(chunk) => {
                done += chunk.raw;
                at += (CHUNK_HEADER_BYTES + chunk.stored) as u64;
                crc = chunk.crc;
            }
            Err(reason) => return Ok(Err(reason)),
        }
    }
    let frame = Frame {
        kind: header.kind,
        head,
        body,
    };
    Ok(Ok(ReadFrame {
        frame,
        raw_bytes: header.raw_bytes,
        crc,
        stored_bytes: at - offset,
    }))
}

struct Chunk {
    raw: usize,
    stored: usize,
    crc: u32,
}

fn read_chunk(
    window: &mut Window<'_>,
    at: u64,
    header: &FrameHeader,
    left: usize,
    crc: u32,
    target: Option<&mut [u8]>,
) -> Result<Checked<Chunk>> {
    let Some(bytes) = window.get(at, CHUNK_HEADER_BYTES)? else {
        return Ok(Err("a frame is cut off"));
    };
    let mut fixed = [0_u8; CHUNK_HEADER_BYTES];
    fixed.copy_from_slice(bytes);
    let field = |at| u32_at(&fixed, at).unwrap_or(0);
    let (raw, stored, expected) = (field(0) as usize, field(4) as usize, field(8));
    if raw == 0 || raw != left.min(CHUNK_BYTES_MAX) || stored > raw {
        return Ok(Err("a chunk's length is impossible"));
    }
    let Some(data) = window.get(at + CHUNK_HEADER_BYTES as u64, stored)? else {
        return Ok(Err("a frame is cut off"));
    };
    let crc = crc32c::crc32c_append(crc, data);
    if crc != expected {
        return Ok(Err("a frame's checksum does not fit"));
    }
    if let Some(target) = target.and_then(|t| t.get_mut(..raw)) {
        if stored == raw {
            target.copy_from_slice(data);
        } else if header.codec != CODEC_LZ4 || decompress_into(data, target).ok() != Some(raw) {
            return Ok(Err("a chunk does not decompress"));
        }
    }
    Ok(Ok(Chunk { raw, stored, crc }))
}
