//! The file layer: what a segment needs of a folder. A trait, so that tests can fail,
//! lose and reorder writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open file, used by position only.
pub trait VolumeFile: Send + Sync {
    /// Reads at `offset`; 0 at the end of the file.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`; may write less than `buf`.
    ///
    /// # Errors
    /// The system's.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Cuts or extends the file.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn size(&self) -> io::Result<u64>;
    /// Makes data and length durable. Never call it again after it failed: the system
    /// may have dropped the unwritten pages.
    ///
    /// # Errors
    /// The system's.
    fn sync_data(&self) -> io::Result<()>;
}

/// A folder of files.
pub trait Volume: Send + Sync {
    /// Makes an empty file, replacing an old one.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Arc<dyn VolumeFile>>;
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, name: &str) -> io::Result<Arc<dyn VolumeFile>>;
    /// Names of all files.
    ///
    /// # Errors
    /// The system's.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames within the folder, replacing the target.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of the file system.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            std::fs::create_dir_all(path)?;
            if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }
}

impl VolumeFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, buf, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::set_len(self, len)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }
}

impl Volume for Folder {
    fn create(&self, name: &str) -> io::Result<Arc<dyn VolumeFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn VolumeFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(file))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// Writes all of `buf`.
pub(crate) fn write_all(file: &dyn VolumeFile, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.write_at(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                buf = buf.get(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `buf` is full or the file ends; returns the bytes read.
pub(crate) fn read_full(file: &dyn VolumeFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0_usize;
    while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
