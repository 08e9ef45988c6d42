//! Reading a segment: a frame by address, or all groups in order.

use std::sync::Arc;

use crate::error::{Result, SegmentError};
use crate::format::{
    FILE_HEADER_BYTES, FRAME_MAGIC, FrameAddress, KIND_TRAILER, POINTER_BYTES, SegmentId, TRAILER_BYTES,
    Trailer, parse_file_header,
};
use crate::frame::{Window, read_frame};
use crate::volume::{VolumeFile, read_full};

/// Bytes read ahead when a file is read in order, and at once when a frame is read by
/// address.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// A frame, checked and decompressed.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// The owner's kind.
    pub kind: u8,
    /// Never compressed.
    pub head: Vec<u8>,
    /// Decompressed.
    pub body: Vec<u8>,
}

/// Lengths only.
impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("kind", &self.kind)
            .field("head_bytes", &self.head.len())
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// A frame met by the scanner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedFrame {
    /// The owner's kind.
    pub kind: u8,
    /// Never compressed.
    pub head: Vec<u8>,
    /// Decompressed length of the body.
    pub raw_bytes: u32,
    /// The body, of kinds that were asked for.
    pub body: Option<Vec<u8>>,
    /// Where it lies.
    pub address: FrameAddress,
    /// Checksum over all of it.
    pub crc: u32,
}

/// A group met by the scanner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedGroup {
    /// Number within the file, from 0.
    pub number: u64,
    /// Its frames, without the trailer.
    pub frames: Vec<ScannedFrame>,
    /// The owner's bytes of the trailer.
    pub meta: Vec<u8>,
    /// Offset behind it.
    pub end: u64,
}

/// Reads frames of one file; shared between threads.
pub struct SegmentReader {
    file: Arc<dyn VolumeFile>,
    name: String,
    id: SegmentId,
}

impl std::fmt::Debug for SegmentReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentReader")
            .field("name", &self.name)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SegmentReader {
    /// Checks the file's header.
    ///
    /// # Errors
    /// Reading failed, or it is no segment.
    pub fn open(file: Arc<dyn VolumeFile>, name: &str) -> Result<Self> {
        let mut bytes = [0_u8; FILE_HEADER_BYTES];
        let read = read_full(&*file, &mut bytes, 0).map_err(|e| SegmentError::io("reading", name, e))?;
        let id = bytes.get(..read).and_then(parse_file_header);
        let Some(id) = id else {
            return Err(corrupt(name, 0, "no segment header"));
        };
        Ok(Self {
            file,
            name: name.to_owned(),
            id,
        })
    }

    /// For a file just created by a writer, whose header may still be in its buffer.
    pub fn of_new(file: Arc<dyn VolumeFile>, name: &str, id: SegmentId) -> Self {
        Self {
            file,
            name: name.to_owned(),
            id,
        }
    }

    /// Which segment it is.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// The open file.
    pub fn file(&self) -> Arc<dyn VolumeFile> {
        Arc::clone(&self.file)
    }

    /// File name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn size(&self) -> Result<u64> {
        self.file
            .size()
            .map_err(|e| SegmentError::io("reading", &self.name, e))
    }

    /// Reads and checks one frame. Beside the frame itself it takes 1 MiB at most, and
    /// an ordinary frame is one read.
    ///
    /// # Errors
    /// Reading failed, or the bytes are not what was written.
    pub fn read(&self, address: FrameAddress) -> Result<Frame> {
        let limit = address.offset + u64::from(address.stored_bytes);
        let mut window = Window::new(&*self.file, &self.name, READ_AHEAD_BYTES, limit);
        match read_frame(&mut window, address.offset, &|_| true)? {
            Ok(read) if read.stored_bytes == u64::from(address.stored_bytes) => Ok(read.frame),
            Ok(_) => Err(self.corrupt(address.offset, "a frame's length does not fit")),
            Err(reason) => Err(self.corrupt(address.offset, reason)),
        }
    }

    /// Raw bytes of the file, for what the owner writes outside of frames.
    ///
    /// # Errors
    /// Reading failed, or the file is shorter.
    pub fn read_raw(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0_u8; len];
        let read = read_full(&*self.file, &mut bytes, offset)
            .map_err(|e| SegmentError::io("reading", &self.name, e))?;
        if read < len {
            return Err(self.corrupt(offset, "the file ends too early"));
        }
        Ok(bytes)
    }

    /// Where the footer of a sealed file lies.
    ///
    /// # Errors
    /// Reading failed, or the file does not end in a footer's pointer.
    pub fn footer(&self) -> Result<FrameAddress> {
        let at = self.size()?.saturating_sub(POINTER_BYTES as u64);
        let bytes = self.read_raw(at, POINTER_BYTES)?;
        FrameAddress::parse_pointer(&bytes).ok_or_else(|| self.corrupt(at, "no footer"))
    }

    /// An error that names this file.
    pub fn corrupt(&self, offset: u64, reason: &'static str) -> SegmentError {
        corrupt(&self.name, offset, reason)
    }

    /// All whole groups in order, up to `limit` (the file's end if none). Bodies are
    /// kept for the kinds that `with_body` names.
    ///
    /// # Errors
    /// Reading the length failed.
    pub fn groups<'a>(&'a self, limit: Option<u64>, with_body: &'a dyn Fn(u8) -> bool) -> Result<Groups<'a>> {
        let size = self.size()?;
        let limit = limit.map_or(size, |l| l.min(size));
        Ok(Groups {
            window: Window::new(&*self.file, &self.name, READ_AHEAD_BYTES, limit),
            with_body,
            offset: FILE_HEADER_BYTES as u64,
            number: 0,
            limit,
            broken: None,
        })
    }
}

fn corrupt(name: &str, offset: u64, reason: &'static str) -> SegmentError {
    SegmentError::Corrupt {
        file: name.to_owned(),
        offset,
        reason,
    }
}

/// Walks the groups of a file.
pub struct Groups<'a> {
    window: Window<'a>,
    with_body: &'a dyn Fn(u8) -> bool,
    offset: u64,
    number: u64,
    limit: u64,
    broken: Option<(u64, &'static str)>,
}

impl Groups<'_> {
    /// End of the last whole group.
    pub fn end(&self) -> u64 {
        self.offset
    }

    /// Number of the next group.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Offset and reason of what stopped the walk before the file's end, if anything.
    pub fn broken(&self) -> Option<(u64, &'static str)> {
        self.broken
    }

    /// The next whole group; none at the end of the file or before a group that is
    /// torn or damaged (see [`Self::broken`]).
    ///
    /// # Errors
    /// Reading failed.
    pub fn next_group(&mut self) -> Result<Option<ScannedGroup>> {
        if self.broken.is_some() || self.offset >= self.limit {
            return Ok(None);
        }
        let (mut at, mut crc, mut frames) = (self.offset, 0_u32, Vec::new());
        loop {
            let read = match read_frame(&mut self.window, at, self.with_body)? {
                Ok(read) => read,
                Err(reason) => {
                    self.broken = Some((at, reason));
                    return Ok(None);
                }
            };
            if read.frame.kind == KIND_TRAILER {
                let end = at + read.stored_bytes;
                let trailer = Trailer::parse(&read.frame.head);
                let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
                let fits = trailer.is_some_and(|t| {
                    t.group == self.number && t.start == self.offset && t.frames == count && t.crc == crc
                });
                if !fits {
                    self.broken = Some((at, "a group's trailer does not fit"));
                    return Ok(None);
                }
                let group = ScannedGroup {
                    number: self.number,
                    frames,
                    meta: read.frame.head.get(TRAILER_BYTES..).unwrap_or_default().to_vec(),
                    end,
                };
                self.number += 1;
                self.offset = end;
                return Ok(Some(group));
            }
            crc = crc32c::crc32c_append(crc, &read.crc.to_le_bytes());
            let stored_bytes = u32::try_from(read.stored_bytes).unwrap_or(u32::MAX);
            let kept = (self.with_body)(read.frame.kind);
            frames.push(ScannedFrame {
                kind: read.frame.kind,
                head: read.frame.head,
                raw_bytes: read.raw_bytes,
                body: kept.then_some(read.frame.body),
                address: FrameAddress {
                    offset: at,
                    stored_bytes,
                },
                crc: read.crc,
            });
            at += read.stored_bytes;
        }
    }

    /// Decides about what stopped the walk: what was never synced may be torn, and is
    /// cut off by the caller; but if a later group, written after the damaged place was
    /// synced, is there, then the place was whole once.
    ///
    /// # Errors
    /// The damage lies in synced data, or reading failed.
    pub fn check_tail(&mut self) -> Result<()> {
        let Some((offset, reason)) = self.broken else {
            return Ok(());
        };
        let magic = FRAME_MAGIC.to_le_bytes();
        let mut at = offset;
        while at < self.limit {
            let len = usize::try_from(self.limit - at)
                .unwrap_or(usize::MAX)
                .min(READ_AHEAD_BYTES);
            let Some(bytes) = self.window.get(at, len)? else {
                break;
            };
            let hits: Vec<u64> = bytes
                .windows(5)
                .enumerate()
                .filter(|(_, w)| w.starts_with(&magic) && w.ends_with(&[KIND_TRAILER]))
                .map(|(i, _)| at + i as u64)
                .collect();
            for hit in hits {
                if let Ok(read) = read_frame(&mut self.window, hit, &|_| false)?
                    && let Some(trailer) = Trailer::parse(&read.frame.head)
                    && trailer.start <= hit
                    && trailer.synced > self.offset
                {
                    return Err(corrupt(self.window.name, offset, reason));
                }
            }
            // Five bytes make a hit; keep four for one that straddles the border.
            at += if len <= 4 { len as u64 } else { len as u64 - 4 };
            if len < READ_AHEAD_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Writes the walked bytes again, so that the next sync makes them durable even if
    /// an earlier sync failed and the system called the pages clean.
    ///
    /// # Errors
    /// Reading or writing failed.
    pub fn rewrite(&mut self) -> Result<()> {
        let (end, mut at) = (self.offset, 0_u64);
        let (file, name) = (self.window.file, self.window.name);
        while at < end {
            let len = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(READ_AHEAD_BYTES);
            let Some(bytes) = self.window.get(at, len)? else {
                return Err(corrupt(name, at, "the file ends too early"));
            };
            crate::volume::write_all(file, bytes, at).map_err(|e| SegmentError::io("writing", name, e))?;
            at += len as u64;
        }
        Ok(())
    }
}
