//! The file operations of the sink, behind a trait so that tests can make them fail.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// A file open for writing.
pub(super) trait DiskFile: Send {
    /// Writes some of `bytes`, at least one; returns how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Makes what was written durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Where files lie.
pub(super) trait Disk: Send + Sync {
    /// Makes an empty file; one that is there is emptied.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file to go on behind its first `length` bytes; what follows is cut off.
    fn reopen(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name in the same folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Whether something has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Makes names durable.
    fn sync_folder(&self, dir: &Path) -> io::Result<()>;
}

/// The operating system's files.
pub(super) struct OsDisk;

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Write::write(self, bytes) {
            Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Disk for OsDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::create(path)?))
    }

    fn reopen(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        if file.metadata()?.len() < length {
            // Somebody else has cut it: writing on would leave a hole.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn sync_folder(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}
