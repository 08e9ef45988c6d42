//! Append-only segment files: framed, checksummed, compressed blocks with group commit
//! and recovery of the valid prefix by whole groups. See [`mod@format`] for the layout.
//!
//! ```
//! use weir_segment::{Codec, Folder, SegmentId, SegmentReader, SegmentWriter, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let volume = Folder::open(dir.path())?;
//! let id = SegmentId { lineage: 1, number: 1 };
//! let mut writer = SegmentWriter::create(&volume, "1.log", id)?;
//! let address = writer.append(1, b"head", Codec::Lz4, &[7; 4096])?;
//! writer.end_group(b"meta")?;
//! writer.sync_handle().sync(writer.offset())?;
//!
//! let reader = SegmentReader::open(volume.open("1.log")?, "1.log")?;
//! assert_eq!(reader.read(address)?.body, [7; 4096]);
//! # Ok(())
//! # }
//! ```

pub mod error;
#[cfg(any(test, feature = "fault"))]
pub mod fault;
pub mod format;
mod frame;
pub mod reader;
pub mod volume;
pub mod writer;

pub use error::{SegmentError, is_full};
pub use format::{FrameAddress, SegmentId};
pub use reader::{Frame, Groups, ScannedFrame, ScannedGroup, SegmentReader};
pub use volume::{Folder, Volume, VolumeFile};
pub use writer::{Codec, Mark, SegmentWriter, SyncHandle};

/// CRC-32C over parts, for what owners keep beside segments.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    parts
        .iter()
        .fold(0, |crc, part| ::crc32c::crc32c_append(crc, part))
}

#[cfg(test)]
mod tests;
