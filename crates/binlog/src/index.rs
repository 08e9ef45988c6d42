//! Which binlog files a folder holds, in order.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::BinlogError;
use crate::file::{MAGIC, MAGIC_ENCRYPTED};

/// Digits of a file number at least.
const NUMBER_DIGITS_MIN: usize = 6;
/// Looks at an index file that is not there or not whole, before that counts.
const INDEX_LOOKS: u32 = 40;
/// Time between them.
const INDEX_LOOK_AGAIN: Duration = Duration::from_millis(25);

/// Files of one server, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIndex {
    folder: PathBuf,
    names: Vec<String>,
}

impl FileIndex {
    /// Lists the files that the index file `index` (in `folder`, or a path) names. Only
    /// the last part of each entry counts: the folder may have been copied.
    ///
    /// A server that rotates or purges may be at it: MySQL removes the index file before
    /// it renames the new one, MariaDB writes into it. So what is missing is looked for
    /// again, for a second in all.
    ///
    /// # Errors
    /// `Io`; `NoFiles` if the index is empty or names a file that is not there.
    pub fn read(folder: impl Into<PathBuf>, index: &str) -> Result<Self, BinlogError> {
        let folder = folder.into();
        for _ in 1..INDEX_LOOKS {
            match Self::read_once(folder.clone(), index) {
                Err(error) if may_appear(&error) && folder.is_dir() => thread::sleep(INDEX_LOOK_AGAIN),
                result => return result,
            }
        }
        Self::read_once(folder, index)
    }

    fn read_once(folder: PathBuf, index: &str) -> Result<Self, BinlogError> {
        let path = folder.join(index);
        let text = fs::read(&path).map_err(|source| BinlogError::Io {
            path: path.display().to_string(),
            source,
        })?;
        let names: Vec<String> = String::from_utf8_lossy(&text)
            .lines()
            .map(|line| line.rsplit(['/', '\\']).next().unwrap_or(line).trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        if names.is_empty() {
            return Err(no_files(&folder, format!("named by `{index}`")));
        }
        if let Some(missing) = names.iter().find(|name| !folder.join(name).is_file()) {
            return Err(no_files(&folder, format!("`{missing}`, named by `{index}`,")));
        }
        Ok(Self { folder, names })
    }

    /// Lists the files named `base.NNNNNN` that begin as binlog files do, by number.
    ///
    /// # Errors
    /// `Io`; `NoFiles` if there is none, or files of more than one base name.
    pub fn scan(folder: impl Into<PathBuf>) -> Result<Self, BinlogError> {
        let folder = folder.into();
        let io = |source| BinlogError::Io {
            path: folder.display().to_string(),
            source,
        };
        let mut by_base: BTreeMap<String, BTreeMap<u64, String>> = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((base, number)) = split_number(&name) else {
                continue;
            };
            if begins_as_binlog(&entry.path()) {
                by_base.entry(base.to_owned()).or_default().insert(number, name);
            }
        }
        let mut bases = by_base.into_iter();
        let (Some((_, files)), more) = (bases.next(), bases.next()) else {
            return Err(no_files(&folder, "named like `binlog.000001`".to_owned()));
        };
        if let Some((base, _)) = more {
            return Err(no_files(
                &folder,
                format!("series can be told (there are several, one is `{base}.*`: name the index file)"),
            ));
        }
        let names = files.into_values().collect();
        Ok(Self { folder, names })
    }

    /// Names, oldest first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Folder of the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of a file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file behind `name`: as its ROTATE event says if it has one, else by order.
    /// `None` if it is not there (yet).
    pub fn next_after(&self, name: &str, rotate: Option<&str>) -> Option<&str> {
        if let Some(next) = rotate {
            return self.names.iter().find(|known| *known == next).map(String::as_str);
        }
        let at = self.names.iter().position(|known| known == name)?;
        self.names.get(at + 1).map(String::as_str)
    }
}

fn may_appear(error: &BinlogError) -> bool {
    match error {
        BinlogError::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        BinlogError::NoFiles { .. } => true,
        _ => false,
    }
}

fn no_files(folder: &Path, what: String) -> BinlogError {
    BinlogError::NoFiles {
        what,
        path: folder.display().to_string(),
    }
}

/// Base name and number of `base.NNNNNN`.
fn split_number(name: &str) -> Option<(&str, u64)> {
    let (base, digits) = name.rsplit_once('.')?;
    let plain = digits.len() >= NUMBER_DIGITS_MIN && digits.bytes().all(|b| b.is_ascii_digit());
    let number = digits.parse().ok()?;
    (plain && !base.is_empty()).then_some((base, number))
}

/// A file that was just made may still be empty.
fn begins_as_binlog(path: &Path) -> bool {
    use std::io::Read as _;
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(4).read_to_end(&mut head));
    read.is_ok() && (head == MAGIC || head == MAGIC_ENCRYPTED || head.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    #[test]
    fn numbers_order_files_not_texts() {
        let folder = folder(&[
            ("b.1000000", &MAGIC),
            ("b.999999", &MAGIC),
            ("b.index", b"x"),
            ("ib.000001", b"no binlog"),
            ("b.0001", &MAGIC),
        ]);
        let index = FileIndex::scan(folder.path()).unwrap();
        assert_eq!(index.names(), ["b.999999", "b.1000000"]);
        assert_eq!(index.next_after("b.999999", None), Some("b.1000000"));
        assert_eq!(index.next_after("b.1000000", None), None);
        assert_eq!(index.next_after("b.999999", Some("b.1000001")), None);
    }

    #[test]
    fn two_series_need_an_index() {
        let folder = folder(&[
            ("b.000001", &MAGIC),
            ("relay.000001", &MAGIC),
            ("b.index", b"/var/lib/mysql/b.000001\n"),
            ("bad.index", b"./b.000001\n./b.000002\n"),
        ]);
        assert!(FileIndex::scan(folder.path()).is_err());
        let index = FileIndex::read(folder.path(), "b.index").unwrap();
        assert_eq!(index.names(), ["b.000001"]);
        let missing = FileIndex::read(folder.path(), "bad.index").unwrap_err();
        assert!(missing.to_string().contains("b.000002"), "{missing}");
    }

    #[test]
    fn an_index_that_is_being_replaced_is_waited_for() {
        let folder = folder(&[("b.000001", &MAGIC)]);
        let path = folder.path().to_owned();
        let read = thread::spawn(move || FileIndex::read(path, "b.index").unwrap());
        thread::sleep(INDEX_LOOK_AGAIN);
        // A line that is written in part, then the file that it names.
        fs::write(folder.path().join("b.index"), "./b.000001\n./b.0000").unwrap();
        thread::sleep(INDEX_LOOK_AGAIN * 4);
        fs::write(folder.path().join("b.000002"), MAGIC).unwrap();
        fs::write(folder.path().join("b.index"), "./b.000001\n./b.000002\n").unwrap();
        assert_eq!(read.join().unwrap().names(), ["b.000001", "b.000002"]);
    }

    #[test]
    fn an_empty_folder_is_an_error() {
        let folder = folder(&[]);
        assert!(matches!(
            FileIndex::scan(folder.path()),
            Err(BinlogError::NoFiles { .. })
        ));
    }
}
