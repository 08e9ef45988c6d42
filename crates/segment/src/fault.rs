//! A volume in memory that fails on request and forgets what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::volume::{Volume, VolumeFile};

/// Unit in which a crash keeps or loses unsynced writes.
pub const PAGE_BYTES: usize = 512;

/// What an operation does instead of working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Half of the bytes are written, then there is no room.
    NoRoom,
    /// The write fails.
    WriteError,
    /// The sync fails, and the system takes the unsynced pages for clean ones: they
    /// are read as before, but no later sync writes them.
    SyncError,
    /// Only half of the bytes are written; no error.
    ShortWrite,
}

#[derive(Clone, Default)]
struct Data {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// Pages that a sync writes.
    dirty: BTreeSet<usize>,
}

impl Data {
    fn page(&self, page: usize) -> std::ops::Range<usize> {
        page * PAGE_BYTES..self.cached.len().min((page + 1) * PAGE_BYTES)
    }

    fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            let range = self.page(page);
            if let Some(bytes) = self.cached.get(range.clone()) {
                self.durable[range].copy_from_slice(bytes);
            }
        }
    }
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Arc<Mutex<Data>>>,
    durable_names: BTreeMap<String, Arc<Mutex<Data>>>,
    writes: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    room: Option<u64>,
}

/// See the module.
#[derive(Clone, Default)]
pub struct FaultVolume {
    state: Arc<Mutex<State>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultVolume {
    /// Empty and without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of writes and of syncs so far.
    pub fn operations(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.writes, state.syncs)
    }

    /// The `at`-th write from now (the `at`-th sync for `SyncError`), from 0, has a fault.
    pub fn fail(&self, at: u64, fault: Fault) {
        let mut state = lock(&self.state);
        let base = if fault == Fault::SyncError {
            state.syncs
        } else {
            state.writes
        };
        state.fault = Some((base + at, fault));
    }

    /// Whether the planned fault is still to come.
    pub fn pending(&self) -> bool {
        lock(&self.state).fault.is_some()
    }

    /// Bytes that all files may hold; none for no limit.
    pub fn set_room(&self, bytes: Option<u64>) {
        lock(&self.state).room = bytes;
    }

    /// Power loss: only synced names and bytes stay, and of the unsynced pages those
    /// for which `keep` says so. Open files are of no use afterwards.
    pub fn crash(&self, keep: &mut dyn FnMut() -> bool) -> Self {
        let state = lock(&self.state);
        let mut files = BTreeMap::new();
        for (name, data) in &state.durable_names {
            let data = lock(data);
            let mut bytes = data.durable.clone();
            let pages = data.cached.len().div_ceil(PAGE_BYTES);
            for page in (0..pages).filter(|page| data.dirty.contains(page)) {
                let range = data.page(page);
                let new = data.cached.get(range.clone()).unwrap_or_default();
                if bytes.get(range.clone()) != Some(new) && keep() {
                    if bytes.len() < range.end {
                        bytes.resize(range.end, 0);
                    }
                    bytes[range].copy_from_slice(new);
                }
            }
            files.insert(name.clone(), bytes);
        }
        Self::with_files(files)
    }

    /// `kill -9`: the page cache survives.
    pub fn kill(&self) -> Self {
        let state = lock(&self.state);
        let files = |files: &BTreeMap<String, Arc<Mutex<Data>>>| {
            let copy = |data: &Arc<Mutex<Data>>| Arc::new(Mutex::new(lock(data).clone()));
            files
                .iter()
                .map(|(n, d)| (n.clone(), copy(d)))
                .collect::<BTreeMap<_, _>>()
        };
        let copied = files(&state.files);
        // One file under its old and its new name stays one file.
        let durable = state.durable_names.iter().map(|(name, data)| {
            let same = state.files.iter().find(|(_, d)| Arc::ptr_eq(d, data));
            let kept = same.and_then(|(n, _)| copied.get(n)).map(Arc::clone);
            let kept = kept.unwrap_or_else(|| Arc::new(Mutex::new(lock(data).clone())));
            (name.clone(), kept)
        });
        let state = State {
            durable_names: durable.collect(),
            files: copied,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// A volume with these files, all durable.
    pub fn with_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        let volume = Self::new();
        {
            let mut state = lock(&volume.state);
            for (name, bytes) in files {
                let data = Arc::new(Mutex::new(Data {
                    durable: bytes.clone(),
                    cached: bytes,
                    dirty: BTreeSet::new(),
                }));
                state.files.insert(name.clone(), Arc::clone(&data));
                state.durable_names.insert(name, data);
            }
        }
        volume
    }

    /// All files as a reader sees them.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = lock(&self.state);
        let cached = |data: &Arc<Mutex<Data>>| lock(data).cached.clone();
        state.files.iter().map(|(n, d)| (n.clone(), cached(d))).collect()
    }
}

struct FaultFile {
    state: Arc<Mutex<State>>,
    data: Arc<Mutex<Data>>,
}

impl VolumeFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let data = lock(&self.data);
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(data.cached.len());
        let n = buf.len().min(data.cached.len() - start);
        buf[..n].copy_from_slice(&data.cached[start..start + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = lock(&self.state);
        let number = state.writes;
        state.writes += 1;
        let mut n = buf.len();
        let mut fault = None;
        if let Some((at, kind)) = state.fault
            && kind != Fault::SyncError
            && at == number
        {
            state.fault = None;
            fault = Some(kind);
            n = if kind == Fault::WriteError {
                0
            } else {
                n.div_ceil(2)
            };
        }
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let used: u64 = state.files.values().map(|f| lock(f).cached.len() as u64).sum();
        let mut data = lock(&self.data);
        if let Some(room) = state.room {
            let grow = (start + n).saturating_sub(data.cached.len()) as u64;
            let short = (used + grow).saturating_sub(room);
            if short > 0 {
                n = n.saturating_sub(usize::try_from(short).unwrap_or(usize::MAX));
                fault = (n == 0).then_some(Fault::NoRoom);
            }
        }
        if n > 0 {
            if data.cached.len() < start + n {
                data.cached.resize(start + n, 0);
            }
            data.cached[start..start + n].copy_from_slice(&buf[..n]);
            data.dirty
                .extend(start / PAGE_BYTES..(start + n).div_ceil(PAGE_BYTES));
        }
        match fault {
            Some(Fault::NoRoom) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::WriteError) => Err(io::Error::other("injected")),
            _ => Ok(n),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut data = lock(&self.data);
        let old = data.cached.len();
        data.cached.resize(len, 0);
        data.dirty
            .extend(old.min(len) / PAGE_BYTES..old.max(len).div_ceil(PAGE_BYTES));
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(lock(&self.data).cached.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        let number = state.syncs;
        state.syncs += 1;
        let mut data = lock(&self.data);
        if let Some((at, Fault::SyncError)) = state.fault
            && at == number
        {
            state.fault = None;
            data.dirty.clear();
            return Err(io::Error::other("injected"));
        }
        data.sync();
        Ok(())
    }
}

impl FaultVolume {
    fn file(&self, data: &Arc<Mutex<Data>>) -> Arc<dyn VolumeFile> {
        Arc::new(FaultFile {
            state: Arc::clone(&self.state),
            data: Arc::clone(data),
        })
    }
}

impl Volume for FaultVolume {
    fn create(&self, name: &str) -> io::Result<Arc<dyn VolumeFile>> {
        let data = Arc::new(Mutex::new(Data::default()));
        lock(&self.state).files.insert(name.to_owned(), Arc::clone(&data));
        Ok(self.file(&data))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn VolumeFile>> {
        let state = lock(&self.state);
        let data = state.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(data))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.state).files.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let data = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), data);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = lock(&self.state).files.remove(name);
        removed.map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.durable_names = state.files.clone();
        Ok(())
    }
}
