//! Which segments a store has, and the coverage of its tables as GC and detaching move it.
//!
//! Two files, written in turn and in place, so that a torn write leaves the other and
//! GC needs no room on a full disk. A segment that is missing here or there is told
//! apart from one that GC removed.

use serde::{Deserialize, Serialize};
use weir_segment::Volume;
use weir_types::LineageId;

use crate::coverage::Coverages;
use crate::error::{Result, StoreError};

const NAMES: [&str; 2] = ["manifest-0", "manifest-1"];
const MAGIC: [u8; 8] = *b"WEIRMANI";
const HEADER_BYTES: usize = 24;
/// Files are padded to it, so that most writes need no new room.
const PAD_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    pub(crate) lineage: LineageId,
    /// Greatest segment number made.
    pub(crate) last: u64,
    /// Segments from here on are there, except `gone`.
    pub(crate) floor: u64,
    pub(crate) gone: Vec<u64>,
    pub(crate) coverage: Coverages,
    #[serde(skip)]
    pub(crate) generation: u64,
}

fn io(path: &str, source: std::io::Error) -> StoreError {
    StoreError::Io {
        path: path.to_owned(),
        source,
    }
}

fn checksum(generation: u64, payload: &[u8]) -> u32 {
    weir_segment::crc32c(&[&generation.to_le_bytes(), payload])
}

fn parse(bytes: &[u8]) -> Option<Manifest> {
    let header = bytes.get(..HEADER_BYTES)?;
    let generation = u64::from_le_bytes(header.get(8..16)?.try_into().ok()?);
    let len = u32::from_le_bytes(header.get(16..20)?.try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(header.get(20..24)?.try_into().ok()?);
    let payload = bytes.get(HEADER_BYTES..)?.get(..len)?;
    if header.get(..8)? != MAGIC || crc != checksum(generation, payload) {
        return None;
    }
    let mut manifest: Manifest = serde_json::from_slice(payload).ok()?;
    manifest.generation = generation;
    Some(manifest)
}

impl Manifest {
    pub(crate) fn new(lineage: LineageId) -> Self {
        Self {
            format: 1,
            lineage,
            last: 0,
            floor: 1,
            gone: Vec::new(),
            coverage: Coverages::default(),
            generation: 0,
        }
    }

    pub(crate) fn is_live(&self, number: u64) -> bool {
        number >= self.floor && !self.gone.contains(&number)
    }

    /// Takes a segment out.
    pub(crate) fn remove(&mut self, number: u64) {
        self.gone.push(number);
        self.gone.sort_unstable();
        while let Some(at) = self.gone.iter().position(|n| *n == self.floor) {
            self.gone.remove(at);
            self.floor += 1;
        }
    }

    /// None if the folder has none.
    pub(crate) fn read(volume: &dyn Volume) -> Result<Option<Self>> {
        let listed = volume.list().map_err(|e| io("the store's folder", e))?;
        let (mut best, mut found): (Option<Self>, bool) = (None, false);
        for name in NAMES {
            if !listed.iter().any(|n| n == name) {
                continue;
            }
            let file = volume.open(name).map_err(|e| io(name, e))?;
            let size = usize::try_from(file.size().map_err(|e| io(name, e))?).unwrap_or(usize::MAX);
            let mut bytes = vec![0_u8; size.min(1 << 30)];
            let mut done = 0;
            while let Some(rest) = bytes.get_mut(done..).filter(|r| !r.is_empty()) {
                match file.read_at(rest, done as u64).map_err(|e| io(name, e))? {
                    0 => break,
                    n => done += n,
                }
            }
            found |= size > 0;
            if let Some(manifest) = parse(&bytes)
                && best.as_ref().is_none_or(|b| b.generation < manifest.generation)
            {
                best = Some(manifest);
            }
        }
        let segments = listed.iter().any(|n| n.ends_with(".log") || n.ends_with(".seg"));
        match best {
            Some(manifest) if manifest.format == 1 => Ok(Some(manifest)),
            Some(_) => Err(StoreError::Manifest(
                "it was written by a newer version".to_owned(),
            )),
            // A store begins with its manifest: torn files alone are a start cut short.
            None if found && segments => Err(StoreError::Manifest("both copies are damaged".to_owned())),
            None if segments => Err(StoreError::Manifest(
                "there are segments but no manifest".to_owned(),
            )),
            None => Ok(None),
        }
    }

    /// Makes the manifest durable under the next generation.
    pub(crate) fn write(&mut self, volume: &dyn Volume) -> Result<()> {
        let payload = serde_json::to_vec(self).map_err(|e| StoreError::Manifest(e.to_string()))?;
        let generation = self.generation + 1;
        let name = NAMES[usize::from(generation % 2 == 1)];
        let mut bytes = Vec::with_capacity((HEADER_BYTES + payload.len()).next_multiple_of(PAD_BYTES));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&generation.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&checksum(generation, &payload).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes.resize(bytes.len().next_multiple_of(PAD_BYTES), b' ');
        let listed = volume.list().map_err(|e| io("the store's folder", e))?;
        let known = listed.iter().any(|n| n == name);
        let file = if known {
            volume.open(name)
        } else {
            volume.create(name)
        };
        let file = file.map_err(|e| io(name, e))?;
        let mut rest = bytes.as_slice();
        let mut at = 0;
        while !rest.is_empty() {
            match file.write_at(rest, at).map_err(|e| io(name, e))? {
                0 => return Err(io(name, std::io::ErrorKind::WriteZero.into())),
                n => {
                    rest = rest.get(n..).unwrap_or_default();
                    at += n as u64;
                }
            }
        }
        file.sync_data().map_err(|e| {
            // Not a full disk: a failed sync is final.
            io(name, std::io::Error::other(e))
        })?;
        if !known {
            volume.sync().map_err(|e| io("the store's folder", e))?;
        }
        self.generation = generation;
        Ok(())
    }
}
