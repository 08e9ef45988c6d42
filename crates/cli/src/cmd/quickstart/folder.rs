//! The folder of a quickstart.
//!
//! ```text
//! .weir-quickstart       made first, locked by the running process; holds the counts
//!                        of the recording that the folder was made for
//! source/                binlog files
//! changefeed.toml
//! data/                  store and state
//! out/                   canal-json files
//! _weir-quickstart.json  made last: finished
//! ```
//!
//! A folder with the first file and without the last is unfinished and is resumed. A
//! finished one is replaced: its parts are removed, the finish mark last, so that a
//! removal that is interrupted goes on at the next start. A folder of another recording
//! is replaced too, its first file is written anew after the removal.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::data::{EXPECTED, FILES, INDEX};
use crate::error::CliError;

const STARTED: &str = ".weir-quickstart";
const FINISHED: &str = "_weir-quickstart.json";
const SOURCE: &str = "source";
const CHANGEFEED: &str = "changefeed.toml";
const DATA: &str = "data";
const OUT: &str = "out";

/// A folder that is ours and locked.
pub(crate) struct Folder {
    root: PathBuf,
    /// Holds the lock until it is dropped.
    lock: File,
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> CliError + '_ {
    move |source| CliError::Write {
        path: path.to_owned(),
        source,
    }
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> CliError + '_ {
    move |source| CliError::Read {
        path: path.to_owned(),
        source,
    }
}

/// Writes a file under another name and renames it, so that it is there whole or not
/// at all.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), CliError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".tmp");
    let partial = PathBuf::from(partial);
    let write = || -> io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(write_error(path))
}

fn remove(path: &Path) -> Result<(), CliError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(write_error(path)),
    }
}

impl Folder {
    /// Takes the folder: makes it, resumes an unfinished one, or clears a finished one.
    pub(crate) fn open(dir: &Path) -> Result<Self, CliError> {
        let root = std::path::absolute(dir).map_err(read_error(dir))?;
        if root.to_str().is_none() {
            let text = format!("`{}` is not UTF-8, which changefeed files are", root.display());
            return Err(CliError::Usage(text));
        }
        fs::create_dir_all(&root).map_err(write_error(&root))?;
        let started = root.join(STARTED);
        if !started.is_file() && fs::read_dir(&root).map_err(read_error(&root))?.next().is_some() {
            return Err(CliError::ForeignDir(root));
        }
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&started)
            .map_err(write_error(&started))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(CliError::BusyDir(root)),
            Err(TryLockError::Error(error)) => return Err(write_error(&started)(error)),
        }
        let mut folder = Self { root, lock };
        folder.prepare(&started)?;
        Ok(folder)
    }

    fn prepare(&mut self, started: &Path) -> Result<(), CliError> {
        let mut made_for = Vec::new();
        self.lock
            .read_to_end(&mut made_for)
            .map_err(read_error(started))?;
        let same = made_for == EXPECTED.as_bytes();
        if self.root.join(FINISHED).exists() || !same {
            for part in [DATA, OUT, SOURCE, CHANGEFEED, FINISHED] {
                remove(&self.root.join(part))?;
            }
        }
        if !same {
            let mut write = || -> io::Result<()> {
                self.lock.set_len(0)?;
                self.lock.rewind()?;
                self.lock.write_all(EXPECTED.as_bytes())?;
                self.lock.sync_all()
            };
            write().map_err(write_error(started))?;
        }
        let source = self.root.join(SOURCE);
        fs::create_dir_all(&source).map_err(write_error(&source))?;
        for (name, content) in FILES {
            let path = source.join(name);
            if fs::read(&path).ok().as_deref() != Some(content) {
                write_whole(&path, content)?;
            }
        }
        Ok(())
    }

    /// Writes the changefeed file of the folder and gives its text.
    pub(crate) fn write_changefeed(&self) -> Result<String, CliError> {
        let source = weir_config::file_uri("binlog-files", &self.root.join(SOURCE));
        let sink = weir_config::file_uri("file", &self.out());
        let text = format!(
            "# Made by `weir quickstart`. Run it by hand with another data folder and output:\n\
             #     weir run changefeed.toml --data-dir DIR --until caught-up\n\
             id = \"quickstart\"\n\n\
             [source]\nuri = \"{source}?index={INDEX}\"\n\n\
             [sink]\nuri = \"{sink}\"\n\n\
             # No HTTP port for a run of seconds.\n\
             [metrics]\nlisten = \"\"\n"
        );
        write_whole(&self.root.join(CHANGEFEED), text.as_bytes())?;
        Ok(text)
    }

    /// Store and state.
    pub(crate) fn data(&self) -> PathBuf {
        self.root.join(DATA)
    }

    /// Output files.
    pub(crate) fn out(&self) -> PathBuf {
        self.root.join(OUT)
    }

    /// The changefeed file.
    pub(crate) fn changefeed(&self) -> PathBuf {
        self.root.join(CHANGEFEED)
    }

    /// Marks the folder as finished.
    pub(crate) fn finish(&self, result: &serde_json::Value) -> Result<(), CliError> {
        write_whole(&self.root.join(FINISHED), format!("{result}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_folder_is_filled() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a b").join("c");
        let folder = Folder::open(&root).unwrap();
        assert_eq!(listing(&root), [STARTED, SOURCE]);
        assert_eq!(listing(&root.join(SOURCE)).len(), FILES.len());
        let text = folder.write_changefeed().unwrap();
        let changefeed = weir_config::Changefeed::parse(&text).unwrap();
        let weir_config::SinkUri::File { dir: out } = changefeed.sink.uri else {
            panic!("not a file sink");
        };
        assert_eq!(out, root.join(OUT));
    }

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = Folder::open(dir.path()).unwrap();
        assert!(matches!(Folder::open(dir.path()), Err(CliError::BusyDir(_))));
        drop(held);
        assert!(Folder::open(dir.path()).is_ok());
    }

    #[test]
    fn unfinished_is_kept_finished_replaced_foreign_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        drop(Folder::open(root).unwrap());
        let kept = root.join(OUT).join("x");
        fs::create_dir_all(root.join(OUT)).unwrap();
        fs::write(&kept, "").unwrap();
        fs::write(root.join(SOURCE).join(FILES[0].0), "torn").unwrap();
        let folder = Folder::open(root).unwrap();
        assert!(kept.exists());
        assert_eq!(fs::read(root.join(SOURCE).join(FILES[0].0)).unwrap(), FILES[0].1);
        folder.finish(&serde_json::json!({})).unwrap();
        drop(folder);
        drop(Folder::open(root).unwrap());
        assert!(!kept.exists() && !root.join(FINISHED).exists());
        // Made for another recording.
        fs::create_dir_all(root.join(OUT)).unwrap();
        fs::write(&kept, "").unwrap();
        fs::write(root.join(STARTED), "{}").unwrap();
        drop(Folder::open(root).unwrap());
        assert!(!kept.exists());
        // Not ours, also if it has our finish mark.
        fs::remove_file(root.join(STARTED)).unwrap();
        fs::write(root.join(FINISHED), "{}").unwrap();
        assert!(matches!(Folder::open(root), Err(CliError::ForeignDir(_))));
        assert!(root.join(SOURCE).exists());
    }
}
