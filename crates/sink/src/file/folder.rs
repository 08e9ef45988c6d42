//! The output's folder: whose it is, and its order at start.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::config::FileConfig;
use super::naming;
use super::progress::io_error;
use crate::error::{Result, SinkError};

/// Name of the file that says whose folder it is.
pub const IDENTITY_FILE: &str = "_weir.json";
/// Layout of the folder that this version writes.
const LAYOUT_VERSION: u32 = 1;

/// Contents of `_weir.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Identity {
    /// Layout of the folder.
    version: u32,
    /// Changefeed that writes it.
    changefeed: String,
    /// History that the order keys in names and rows belong to: 32 hexadecimal digits.
    lineage: String,
    /// When it was made, milliseconds since the Unix epoch.
    created: u64,
}

/// Syncs a folder: names made, changed and removed in it are durable then.
pub(super) fn sync(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(io_error("sync folder", dir))
}

/// Writes a small file under a temporary name, syncs it and gives it its name. The
/// folder is not synced.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(naming::UNFINISHED);
    let temporary = PathBuf::from(temporary);
    let mut file = File::create(&temporary).map_err(io_error("create", &temporary))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(io_error("write", &temporary))?;
    fs::rename(&temporary, path).map_err(io_error("rename", &temporary))
}

/// Makes the folder if need be, checks that it is this changefeed's in this lineage (or
/// empty), and drops unfinished files. A changefeed that goes on has its folder: in a
/// new one, the rows that it has behind it would be missing without a word.
///
/// # Errors
/// The folder is another's, holds something else, is gone, or cannot be used.
pub(super) fn prepare(config: &FileConfig) -> Result<()> {
    let dir = &config.dir;
    if !config.continued {
        fs::create_dir_all(dir).map_err(io_error("create folder", dir))?;
    }
    let path = dir.join(IDENTITY_FILE);
    match fs::read(&path) {
        Ok(bytes) => check(config, &path, &bytes)?,
        Err(error) if error.kind() == ErrorKind::NotFound && config.continued => {
            return Err(SinkError::OutputGone { dir: dir.clone() });
        }
        Err(error) if error.kind() == ErrorKind::NotFound => claim(config, &path)?,
        Err(error) => return Err(io_error("read", &path)(error)),
    }
    drop_unfinished(dir)?;
    // Renames of the last run count from here on.
    sync(dir)
}

fn check(config: &FileConfig, path: &Path, bytes: &[u8]) -> Result<()> {
    let found: Identity = serde_json::from_slice(bytes).map_err(|error| SinkError::Identity {
        path: path.to_path_buf(),
        reason: error.to_string(),
    })?;
    if found.version != LAYOUT_VERSION {
        return Err(SinkError::Identity {
            path: path.to_path_buf(),
            reason: format!("layout version {} is not {LAYOUT_VERSION}", found.version),
        });
    }
    let (changefeed, lineage) = (config.changefeed.to_string(), config.lineage.to_string());
    for (field, found, expected) in [
        ("changefeed", found.changefeed, changefeed),
        ("lineage", found.lineage, lineage),
    ] {
        if found != expected {
            return Err(SinkError::OtherOwner {
                dir: config.dir.clone(),
                field,
                found,
                expected,
            });
        }
    }
    Ok(())
}

fn claim(config: &FileConfig, path: &Path) -> Result<()> {
    let dir = &config.dir;
    // Left by a claim that was interrupted before its rename.
    let temporary = format!("{IDENTITY_FILE}{}", naming::UNFINISHED);
    for entry in fs::read_dir(dir).map_err(io_error("read folder", dir))? {
        let entry = entry.map_err(io_error("read folder", dir))?;
        if entry.file_name() != temporary.as_str() {
            return Err(SinkError::ForeignFolder { dir: dir.clone() });
        }
    }
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let identity = Identity {
        version: LAYOUT_VERSION,
        changefeed: config.changefeed.to_string(),
        lineage: config.lineage.to_string(),
        created: u64::try_from(created.as_millis()).unwrap_or(u64::MAX),
    };
    let mut bytes = serde_json::to_vec(&identity).map_err(|error| SinkError::Identity {
        path: path.to_path_buf(),
        reason: error.to_string(),
    })?;
    bytes.push(b'\n');
    write_whole(path, &bytes)
}

/// Removes what ends in `.ndjson.tmp` or is the temporary form of `_weir.json`; other
/// files are not ours to remove.
fn drop_unfinished(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(io_error("read folder", dir))? {
        let entry = entry.map_err(io_error("read folder", dir))?;
        let name = entry.file_name();
        let unfinished = name
            .to_str()
            .and_then(|name| name.strip_suffix(naming::UNFINISHED));
        if unfinished.is_some_and(|name| name.ends_with(naming::FINISHED) || name == IDENTITY_FILE) {
            let path = entry.path();
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}
