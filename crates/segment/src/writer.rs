//! Writing a segment: frames go to a buffer, the buffer to the file in large writes,
//! groups end in a trailer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use crate::error::{Result, SegmentError};
use crate::format::{
    CHUNK_BYTES_MAX, CODEC_LZ4, CODEC_NONE, FILE_HEADER_BYTES, FrameAddress, FrameHeader, HEAD_BYTES_MAX,
    KIND_TRAILER, SegmentId, Trailer, file_header,
};
use crate::reader::{ScannedFrame, SegmentReader};
use crate::volume::{Volume, VolumeFile, write_all};

/// Buffered bytes that make a write.
pub const WRITE_BYTES: usize = 256 << 10;
/// Bodies smaller than this are not compressed: nothing is gained.
pub const COMPRESS_BYTES_MIN: usize = 64;

/// How a body is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As it is.
    None,
    /// LZ4 blocks.
    Lz4,
}

struct Shared {
    name: String,
    file: Arc<dyn VolumeFile>,
    synced: AtomicU64,
    poisoned: AtomicBool,
}

/// Syncs a segment from another thread.
#[derive(Clone)]
pub struct SyncHandle {
    shared: Arc<Shared>,
}

impl SyncHandle {
    /// Makes everything below `upto` durable that was written before the call.
    ///
    /// # Errors
    /// A failed sync is final: it is never tried again, and the writer refuses
    /// everything afterwards.
    pub fn sync(&self, upto: u64) -> Result<()> {
        let file = &self.shared.name;
        if self.shared.poisoned.load(Ordering::Acquire) {
            return Err(SegmentError::Poisoned { file: file.clone() });
        }
        if let Err(source) = self.shared.file.sync_data() {
            self.shared.poisoned.store(true, Ordering::Release);
            // Never `Full`: what a failed sync has lost cannot be written again.
            return Err(SegmentError::Io {
                operation: "syncing",
                file: file.clone(),
                source,
            });
        }
        self.shared.synced.fetch_max(upto, Ordering::AcqRel);
        Ok(())
    }
}

/// A place to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    offset: u64,
    frames: u32,
    crc: u32,
}

/// Appends frames and groups to one file.
pub struct SegmentWriter {
    shared: Arc<Shared>,
    /// Bytes behind `flushed` that are not written yet.
    buffer: Vec<u8>,
    flushed: u64,
    scratch: Vec<u8>,
    /// For chunks below 64 KiB, whose positions fit 16 bits.
    small: CompressTable,
    large: CompressTable,
    group: u64,
    start: u64,
    frames: u32,
    crc: u32,
}

impl SegmentWriter {
    /// Makes the file; its header goes out with the first flush.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(volume: &dyn Volume, name: &str, id: SegmentId) -> Result<Self> {
        let file = volume
            .create(name)
            .map_err(|e| SegmentError::io("creating", name, e))?;
        let mut writer = Self::resume(file, name, FILE_HEADER_BYTES as u64, 0);
        writer.flushed = 0;
        writer.buffer.extend_from_slice(&file_header(id));
        Ok(writer)
    }

    /// Goes on behind `end`, the end of group number `group - 1`. Everything before it
    /// must be durable.
    pub fn resume(file: Arc<dyn VolumeFile>, name: &str, end: u64, group: u64) -> Self {
        let shared = Shared {
            name: name.to_owned(),
            file,
            synced: AtomicU64::new(end),
            poisoned: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            buffer: Vec::with_capacity(WRITE_BYTES * 2),
            flushed: end,
            scratch: Vec::new(),
            small: CompressTable::small(),
            large: CompressTable::large(),
            group,
            start: end,
            frames: 0,
            crc: 0,
        }
    }

    /// Offset of the next frame: everything appended so far, written or not.
    pub fn offset(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Frames of the open group.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// For syncing from another thread.
    pub fn sync_handle(&self) -> SyncHandle {
        SyncHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// The open file.
    pub fn file(&self) -> Arc<dyn VolumeFile> {
        Arc::clone(&self.shared.file)
    }

    /// Where the segment stands now.
    pub fn mark(&self) -> Mark {
        Mark {
            offset: self.offset(),
            frames: self.frames,
            crc: self.crc,
        }
    }

    /// Takes back what was appended since `mark`, which is in the open group.
    ///
    /// # Errors
    /// The file cannot be cut; final.
    pub fn rollback(&mut self, mark: Mark) -> Result<()> {
        self.frames = mark.frames;
        self.crc = mark.crc;
        if let Some(keep) = mark.offset.checked_sub(self.flushed) {
            self.buffer.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
            return Ok(());
        }
        self.buffer.clear();
        self.flushed = mark.offset;
        self.cut()
    }

    fn cut(&self) -> Result<()> {
        self.shared.file.set_len(self.flushed).map_err(|source| {
            self.shared.poisoned.store(true, Ordering::Release);
            SegmentError::Io {
                operation: "cutting",
                file: self.shared.name.clone(),
                source,
            }
        })
    }

    /// Appends a frame to the open group.
    ///
    /// # Errors
    /// `Full`: take the frame back with [`Self::rollback`]. Others are final.
    pub fn append(&mut self, kind: u8, head: &[u8], codec: Codec, body: &[u8]) -> Result<FrameAddress> {
        self.check()?;
        let too_large = || SegmentError::FrameTooLarge {
            bytes: body.len().max(head.len()),
        };
        let raw_bytes = u32::try_from(body.len()).map_err(|_| too_large())?;
        if head.len() > HEAD_BYTES_MAX {
            return Err(too_large());
        }
        let offset = self.offset();
        let lz4 = codec == Codec::Lz4 && body.len() >= COMPRESS_BYTES_MIN;
        let code = if lz4 { CODEC_LZ4 } else { CODEC_NONE };
        let mut crc = FrameHeader::encode(kind, code, head, raw_bytes, &mut self.buffer);
        for chunk in body.chunks(CHUNK_BYTES_MAX) {
            crc = self.append_chunk(chunk, lz4, crc);
            if self.buffer.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        self.frames += 1;
        self.crc = crc32c::crc32c_append(self.crc, &crc.to_le_bytes());
        let stored_bytes = u32::try_from(self.offset() - offset).map_err(|_| too_large())?;
        Ok(FrameAddress { offset, stored_bytes })
    }

    /// Copies a frame of another file as it is stored.
    ///
    /// # Errors
    /// As for [`Self::append`], and what reading gives.
    pub fn copy(&mut self, from: &SegmentReader, frame: &ScannedFrame) -> Result<FrameAddress> {
        self.check()?;
        let offset = self.offset();
        let (mut at, end) = (
            frame.address.offset,
            frame.address.offset + u64::from(frame.address.stored_bytes),
        );
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(WRITE_BYTES);
            self.buffer.extend_from_slice(&from.read_raw(at, len)?);
            at += len as u64;
            if self.buffer.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        self.frames += 1;
        self.crc = crc32c::crc32c_append(self.crc, &frame.crc.to_le_bytes());
        Ok(FrameAddress {
            offset,
            stored_bytes: frame.address.stored_bytes,
        })
    }

    /// Ends the file, after the last group, with a pointer to its footer; and syncs.
    ///
    /// # Errors
    /// Writing or syncing failed.
    pub fn finish(mut self, footer: FrameAddress) -> Result<u64> {
        self.buffer.extend_from_slice(&footer.encode_pointer());
        self.flush()?;
        self.sync_handle().sync(self.flushed)?;
        Ok(self.flushed)
    }

    fn append_chunk(&mut self, chunk: &[u8], lz4: bool, crc: u32) -> u32 {
        let mut stored = chunk;
        if lz4 {
            let most = get_maximum_output_size(chunk.len());
            if self.scratch.len() < most {
                self.scratch.resize(most, 0);
            }
            let small = chunk.len() < usize::from(u16::MAX);
            let table = if small { &mut self.small } else { &mut self.large };
            if let Ok(n) = compress_into_with_table(chunk, &mut self.scratch, table)
                && n < chunk.len()
                && let Some(bytes) = self.scratch.get(..n)
            {
                stored = bytes;
            }
        }
        let crc = crc32c::crc32c_append(crc, stored);
        // Chunks are at most `CHUNK_BYTES_MAX`: the lengths fit.
        self.buffer
            .extend_from_slice(&u32::try_from(chunk.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.buffer
            .extend_from_slice(&u32::try_from(stored.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.buffer.extend_from_slice(stored);
        crc
    }

    fn check(&self) -> Result<()> {
        if self.shared.poisoned.load(Ordering::Acquire) {
            let file = self.shared.name.clone();
            return Err(SegmentError::Poisoned { file });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.check()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Err(source) = write_all(&*self.shared.file, &self.buffer, self.flushed) {
            let error = SegmentError::io("writing", &self.shared.name, source);
            if error.is_full() {
                self.cut()?;
            } else {
                self.shared.poisoned.store(true, Ordering::Release);
            }
            return Err(error);
        }
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        if self.buffer.capacity() > WRITE_BYTES * 16 {
            self.buffer.shrink_to(WRITE_BYTES * 2);
        }
        Ok(())
    }

    /// Ends the group with a trailer that holds `meta`, and writes everything out.
    /// Durable after the next sync.
    ///
    /// # Errors
    /// `Full`: the group is open as before, try again later. Others are final.
    pub fn end_group(&mut self, meta: &[u8]) -> Result<()> {
        self.check()?;
        let mark = self.mark();
        let trailer = Trailer {
            group: self.group,
            start: self.start,
            synced: self.shared.synced.load(Ordering::Acquire),
            frames: self.frames,
            crc: self.crc,
        };
        let head = trailer.encode(meta);
        FrameHeader::encode(KIND_TRAILER, CODEC_NONE, &head, 0, &mut self.buffer);
        if let Err(error) = self.flush() {
            if error.is_full() {
                self.rollback(mark)?;
            }
            return Err(error);
        }
        self.group += 1;
        self.start = self.flushed;
        self.frames = 0;
        self.crc = 0;
        Ok(())
    }
}
