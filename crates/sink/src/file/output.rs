//! Files being written: a full disk is waited for, handles are bounded.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_types::{DispatcherId, ErrorReport};

use super::disk::{Disk, DiskFile};
use super::progress::io_error;
use crate::contract::WorkerContext;
use crate::error::{Result, SinkError};
use crate::metrics::Blocked;

/// Encoded bytes that are put together before they go to the file.
pub(super) const BUFFER_BYTES: usize = 256 << 10;
/// First and longest wait for room on a full disk.
const FULL_WAIT_MIN: Duration = Duration::from_millis(50);
const FULL_WAIT_MAX: Duration = Duration::from_secs(2);

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Does `operation`, again and again while the disk is full.
///
/// # Errors
/// Another error of the operation; `Stopping` if the sink stops meanwhile.
pub(super) fn when_there_is_room<T>(
    worker: &WorkerContext,
    what: &'static str,
    path: &Path,
    mut operation: impl FnMut() -> io::Result<T>,
) -> Result<T> {
    let mut wait = FULL_WAIT_MIN;
    loop {
        match operation() {
            Ok(value) => return Ok(value),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_full(&error) => {
                if wait == FULL_WAIT_MIN {
                    let error = ErrorReport::new(&io_error(what, path)(error));
                    tracing::warn!(
                        code = error.code,
                        "the disk of the output is full, waiting for room: {error}"
                    );
                }
                if !worker.pause(wait, Blocked::DiskFull) {
                    return Err(SinkError::Stopping);
                }
                wait = (wait * 2).min(FULL_WAIT_MAX);
            }
            Err(error) => return Err(io_error(what, path)(error)),
        }
    }
}

/// A file being written, with the number of its good bytes.
pub(super) struct Output {
    file: Box<dyn DiskFile>,
    pub(super) path: PathBuf,
    /// Bytes that the file has taken.
    pub(super) written: u64,
}

impl Output {
    pub(super) fn create(disk: &dyn Disk, path: PathBuf, worker: &WorkerContext) -> Result<Self> {
        let file = when_there_is_room(worker, "create", &path, || disk.create(&path))?;
        Ok(Self {
            file,
            path,
            written: 0,
        })
    }

    pub(super) fn reopen(
        disk: &dyn Disk,
        path: PathBuf,
        written: u64,
        worker: &WorkerContext,
    ) -> Result<Self> {
        let file = when_there_is_room(worker, "open", &path, || disk.reopen(&path, written))?;
        Ok(Self { file, path, written })
    }

    /// Writes all of `bytes`. A write that the full disk took in part goes on where it
    /// stopped, so that nothing is lost or doubled.
    pub(super) fn put(&mut self, mut bytes: &[u8], worker: &WorkerContext) -> Result<()> {
        while !bytes.is_empty() {
            let file = &mut self.file;
            let taken = when_there_is_room(worker, "write", &self.path, || file.write(bytes))?;
            self.written += taken as u64;
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Makes the file durable. An error is final: what the system kept of the unsynced
    /// bytes is unknown after it, so that a second try would prove nothing.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(io_error("sync", &self.path))
    }
}

/// Collects what an encoder writes; large pieces pass through without being held.
pub(super) struct Buffered<'a> {
    output: &'a mut Output,
    buffer: &'a mut Vec<u8>,
    worker: &'a WorkerContext,
    failed: Option<SinkError>,
}

impl<'a> Buffered<'a> {
    pub(super) const fn new(
        output: &'a mut Output,
        buffer: &'a mut Vec<u8>,
        worker: &'a WorkerContext,
    ) -> Self {
        Self {
            output,
            buffer,
            worker,
            failed: None,
        }
    }

    /// The error that an encoder has seen as a plain I/O error.
    pub(super) fn into_failure(self) -> Option<SinkError> {
        self.failed
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.output.put(self.buffer, self.worker)?;
            self.buffer.clear();
        }
        if bytes.len() > BUFFER_BYTES {
            return self.output.put(bytes, self.worker);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}

impl Write for Buffered<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() <= BUFFER_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.put(bytes).map_err(|error| {
            self.failed = Some(error);
            io::Error::other("the output failed")
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Handles of files that nobody writes to right now, at most so many; the one that was
/// used longest ago is closed first and opened again when it is wanted.
pub(super) struct HandlePool {
    max: usize,
    used: u64,
    handles: HashMap<DispatcherId, (u64, Output)>,
    by_use: BTreeMap<u64, DispatcherId>,
}

impl HandlePool {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            used: 0,
            handles: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    pub(super) fn take(&mut self, dispatcher: DispatcherId) -> Option<Output> {
        let (used, output) = self.handles.remove(&dispatcher)?;
        self.by_use.remove(&used);
        Some(output)
    }

    /// Keeps a handle. Returns one that is to be closed, outside of the lock.
    pub(super) fn put(&mut self, dispatcher: DispatcherId, output: Output) -> Option<Output> {
        self.used += 1;
        self.by_use.insert(self.used, dispatcher);
        self.handles.insert(dispatcher, (self.used, output));
        if self.handles.len() <= self.max {
            return None;
        }
        let (_, oldest) = self.by_use.pop_first()?;
        self.handles.remove(&oldest).map(|(_, output)| output)
    }
}
