//! Binlog files, read one event after another, also while the server still writes them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::decoder::Decoder;
use crate::error::BinlogError;
use crate::event::Event;
use crate::event_type::EventType;
use crate::format::{ChecksumAlgorithm, FormatDescription};
use crate::header::{EventHeader, FLAG_ARTIFICIAL, FLAG_BINLOG_IN_USE, FLAG_RELAY_LOG, HEADER_BYTES};
use crate::raw::{EventBytes, RawEvent};

/// First bytes of a binlog file.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// First bytes of a file that MySQL encrypted.
pub const MAGIC_ENCRYPTED: [u8; 4] = [0xfd, b'b', b'i', b'n'];
/// Offset of the first event.
pub const FIRST_EVENT_OFFSET: u64 = 4;
/// Bytes of a read buffer at least.
const READ_BUFFER_MIN: usize = 256 << 10;

/// How a file is read.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Largest event that is accepted, in bytes. Default 1 GiB: the servers' largest
    /// `max_allowed_packet`.
    pub max_event_bytes: u64,
    /// Size of the read buffer in bytes, 256 KiB at least. Default 1 MiB. An event that
    /// does not fit gets an allocation of its own.
    pub read_buffer_bytes: usize,
    /// Whether checksums are checked. Default true.
    pub verify_checksums: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            max_event_bytes: 1 << 30,
            read_buffer_bytes: 1 << 20,
            verify_checksums: true,
        }
    }
}

/// How a file ended, by its last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The next file is named.
    Rotate {
        /// Name of the next file.
        file: String,
        /// Offset in the next file.
        position: u64,
    },
    /// The server stopped.
    Stop,
}

/// An event of a file and its place.
#[derive(Debug)]
pub struct FileEvent<'a> {
    /// Offset of the event in the file.
    pub offset: u64,
    /// Offset behind the event.
    pub next_offset: u64,
    /// The event.
    pub event: RawEvent<'a>,
    /// Format of the file; after the first event always there.
    pub format: Option<&'a FormatDescription>,
}

impl FileEvent<'_> {
    /// Reads the body.
    ///
    /// # Errors
    /// Those of `Event::decode`.
    pub fn decode(&self) -> Result<Event<'_>, BinlogError> {
        self.event.decode(self.format)
    }
}

/// What reading on gave.
#[derive(Debug)]
pub enum Step<'a> {
    /// The next event.
    Event(FileEvent<'a>),
    /// There is no whole event: the file is still being written, ended, or its tail is
    /// torn. Reading again goes on once more bytes are there.
    NeedMore {
        /// Bytes behind the last whole event; 0 at an event's border.
        have: u64,
        /// Bytes that the next event needs, as far as it can be told.
        need: u64,
    },
}

/// A binlog file.
pub struct BinlogFile {
    file: File,
    path: PathBuf,
    options: FileOptions,
    decoder: Decoder,
    buffer: Box<[u8]>,
    /// Range of the buffer that holds bytes from `offset` on.
    start: usize,
    end: usize,
    /// Offset of the next event; 0 before the magic was checked.
    offset: u64,
    in_use: bool,
    ending: Option<Ending>,
}

impl BinlogFile {
    /// Opens a file at its first event.
    ///
    /// # Errors
    /// `Io`, `NotABinlog`, `Encrypted`.
    pub fn open(path: impl Into<PathBuf>, options: FileOptions) -> Result<Self, BinlogError> {
        let path = path.into();
        let file = File::open(&path).map_err(|source| io_error(&path, source))?;
        let decoder = Decoder::new(ChecksumAlgorithm::None);
        let decoder = if options.verify_checksums {
            decoder
        } else {
            decoder.without_verification()
        };
        let mut this = Self {
            file,
            path,
            options,
            decoder,
            buffer: vec![0; options.read_buffer_bytes.max(READ_BUFFER_MIN)].into_boxed_slice(),
            start: 0,
            end: 0,
            offset: 0,
            in_use: false,
            ending: None,
        };
        this.check_magic()?;
        Ok(this)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the next event.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The format description, once the first event was read.
    pub const fn format(&self) -> Option<&FormatDescription> {
        self.decoder.format()
    }

    /// The in-use flag as it was when the first event was read: the server had not closed
    /// the file, because it was writing it or had crashed.
    pub const fn was_in_use(&self) -> bool {
        self.in_use
    }

    /// How the file ended, once its last event was read.
    pub const fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Reads the in-use flag anew.
    ///
    /// # Errors
    /// `Io`.
    pub fn is_in_use(&mut self) -> Result<bool, BinlogError> {
        let mut header = [0_u8; HEADER_BYTES];
        self.reposition(FIRST_EVENT_OFFSET)?;
        let mut have = 0;
        while let Some(room) = header.get_mut(have..).filter(|room| !room.is_empty()) {
            match self
                .file
                .read(room)
                .map_err(|source| io_error(&self.path, source))?
            {
                0 => break,
                read => have += read,
            }
        }
        self.reposition(self.offset)?;
        let in_use = have < HEADER_BYTES || EventHeader::parse(&header)?.flags & FLAG_BINLOG_IN_USE != 0;
        self.in_use = in_use;
        Ok(in_use)
    }

    /// Goes to an event's offset. The format description is read first if it was not yet.
    ///
    /// # Errors
    /// Those of `next`; `Malformed` for an offset before the first event or behind the
    /// end.
    pub fn seek(&mut self, offset: u64) -> Result<(), BinlogError> {
        if self.decoder.format().is_none()
            && let Step::NeedMore { .. } = self.next()?
        {
            return Err(BinlogError::Malformed {
                what: "file without a format description",
            });
        }
        if offset < FIRST_EVENT_OFFSET || offset > self.length()? {
            return Err(BinlogError::Malformed {
                what: "offset outside the file",
            });
        }
        self.offset = offset;
        self.ending = None;
        self.reposition(offset)
    }

    /// Reads the next event.
    ///
    /// # Errors
    /// `Io`; `EventTooLarge`; `Encrypted`; `Malformed`, `Checksum` and `Position` for a
    /// corrupt file, which stays at the offset of the broken event.
    #[allow(clippy::should_implement_trait)] // lends from its buffer
    pub fn next(&mut self) -> Result<Step<'_>, BinlogError> {
        if self.offset == 0 {
            self.check_magic()?;
            if self.offset == 0 {
                return Ok(self.need_more(FIRST_EVENT_OFFSET));
            }
        }
        if !self.fill(HEADER_BYTES)? {
            return Ok(self.need_more(HEADER_BYTES as u64));
        }
        let header = EventHeader::parse(self.buffered())?;
        let length = header.event_length as usize;
        let bytes = u64::from(header.event_length);
        let next_offset = self.offset + bytes;
        if bytes > self.options.max_event_bytes {
            return Err(BinlogError::EventTooLarge {
                bytes,
                limit: self.options.max_event_bytes,
            });
        }
        // A type that cannot be is the first sign of a wrong offset; without it, a random
        // length would look like a torn tail.
        if header.event_type()? == Some(EventType::Unknown) {
            return Err(BinlogError::Malformed { what: "event type 0" });
        }
        check_position(&header, self.offset, next_offset)?;
        if header.type_number == EventType::StartEncryption.number() {
            return Err(BinlogError::Encrypted {
                path: self.path.display().to_string(),
            });
        }
        let large = if length > self.buffer.len() {
            match self.read_large(length)? {
                Some(own) => Some(own),
                None => return Ok(self.need_more(bytes)),
            }
        } else {
            if !self.fill(length)? {
                return Ok(self.need_more(bytes));
            }
            None
        };
        self.take(header, large, length, next_offset)
    }

    /// Checks an event that is whole in the buffer or in `large`, and hands it out.
    fn take(
        &mut self,
        header: EventHeader,
        large: Option<Vec<u8>>,
        length: usize,
        next_offset: u64,
    ) -> Result<Step<'_>, BinlogError> {
        let offset = self.offset;
        let (from, to) = (self.start, self.start + length);
        let whole = match &large {
            Some(own) => own,
            None => self.buffer.get(from..to).unwrap_or_default(),
        };
        let (_, body) = match self.decoder.frame(whole) {
            Ok(framed) => framed,
            Err(error) => {
                if large.is_some() {
                    // `read_large` went past the buffer.
                    self.reposition(offset)?;
                }
                return Err(error);
            }
        };
        let checksum_bytes = length - HEADER_BYTES - body.len();
        if header.type_number == EventType::FormatDescription.number() {
            self.in_use = header.flags & FLAG_BINLOG_IN_USE != 0;
        }
        self.ending = ending(&header, body);
        self.offset = next_offset;
        let bytes = match large {
            Some(own) => EventBytes::Owned(own),
            None => {
                self.start = to;
                EventBytes::Borrowed(self.buffer.get(from..to).unwrap_or_default())
            }
        };
        Ok(Step::Event(FileEvent {
            offset,
            next_offset,
            event: RawEvent {
                header,
                bytes,
                checksum_bytes,
            },
            format: self.decoder.format(),
        }))
    }

    fn buffered(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    fn need_more(&self, need: u64) -> Step<'static> {
        // What is in the file but not in the buffer (of a large event) counts, too.
        let buffered = (self.end - self.start) as u64;
        let in_file = self
            .length()
            .map_or(0, |length| length.saturating_sub(self.offset));
        Step::NeedMore {
            have: buffered.max(in_file),
            need,
        }
    }

    fn length(&self) -> Result<u64, BinlogError> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|source| io_error(&self.path, source))?.len())
    }

    /// Reads until `wanted` bytes are in the buffer; false if the file has no more. `wanted`
    /// is not more than the buffer holds.
    fn fill(&mut self, wanted: usize) -> Result<bool, BinlogError> {
        if self.end - self.start >= wanted {
            return Ok(true);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.file.read(room) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(io_error(&self.path, source)),
            }
        }
        Ok(true)
    }

    /// Reads an event that is larger than the buffer into an allocation of its size;
    /// `None` if the file does not hold all of it.
    fn read_large(&mut self, length: usize) -> Result<Option<Vec<u8>>, BinlogError> {
        if self.length()?.saturating_sub(self.offset) < length as u64 {
            return Ok(None);
        }
        let mut own = Vec::new();
        own.try_reserve_exact(length)
            .map_err(|_| BinlogError::OutOfMemory { bytes: length })?;
        own.extend_from_slice(self.buffered());
        let rest = length - own.len();
        (self.start, self.end) = (0, 0);
        let read = (&mut self.file).take(rest as u64).read_to_end(&mut own);
        match read {
            Ok(read) if read == rest => Ok(Some(own)),
            Ok(_) => {
                self.reposition(self.offset)?;
                Ok(None)
            }
            Err(source) => {
                self.reposition(self.offset)?;
                Err(io_error(&self.path, source))
            }
        }
    }

    /// Empties the buffer and moves the file's cursor.
    fn reposition(&mut self, offset: u64) -> Result<(), BinlogError> {
        (self.start, self.end) = (0, 0);
        self.file
            .seek(SeekFrom::Start(offset))
            .map_err(|source| io_error(&self.path, source))?;
        Ok(())
    }

    /// Reads the magic if the file has it already.
    fn check_magic(&mut self) -> Result<(), BinlogError> {
        if !self.fill(MAGIC.len())? {
            return Ok(());
        }
        let path = || self.path.display().to_string();
        let Some(magic) = self.buffered().first_chunk::<4>() else {
            return Ok(());
        };
        match *magic {
            MAGIC => {
                self.start += MAGIC.len();
                self.offset = FIRST_EVENT_OFFSET;
                Ok(())
            }
            MAGIC_ENCRYPTED => Err(BinlogError::Encrypted { path: path() }),
            _ => Err(BinlogError::NotABinlog { path: path() }),
        }
    }
}

fn io_error(path: &Path, source: std::io::Error) -> BinlogError {
    BinlogError::Io {
        path: path.display().to_string(),
        source,
    }
}

/// `end_log_pos` is 32 bits and wraps; MariaDB 11.8 leaves it 0 inside transactions. In
/// a relay log it is that of the source's file.
fn check_position(header: &EventHeader, offset: u64, next_offset: u64) -> Result<(), BinlogError> {
    let says_nothing = header.end_log_pos == 0 || header.flags & (FLAG_ARTIFICIAL | FLAG_RELAY_LOG) != 0;
    // Cut to 32 bits on purpose.
    if says_nothing || header.end_log_pos == next_offset as u32 {
        return Ok(());
    }
    Err(BinlogError::Position {
        offset,
        stored: header.end_log_pos,
        computed: next_offset,
    })
}

fn ending(header: &EventHeader, body: &[u8]) -> Option<Ending> {
    if header.type_number == EventType::Stop.number() {
        return Some(Ending::Stop);
    }
    if header.type_number != EventType::Rotate.number() || header.flags & FLAG_ARTIFICIAL != 0 {
        return None;
    }
    let rotate = crate::event::parse_rotate(body)?;
    Some(Ending::Rotate {
        file: String::from_utf8_lossy(rotate.file).into_owned(),
        position: rotate.position,
    })
}
