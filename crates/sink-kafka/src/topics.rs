//! The partition counts that rows are spread by: kept, so that a count that has changed
//! while Weir was not there is noticed as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::config::PartitionCountChange;
use crate::error::{KafkaSinkError, Result};

/// Version of the file's layout.
const LAYOUT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    layout: u32,
    /// Partitions by topic.
    partitions: BTreeMap<String, u32>,
}

/// What rows of a topic are spread by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Partitions: as before.
    Same(u32),
    /// Everything under way has to arrive before the new count is adopted.
    Flush {
        /// Partitions now.
        found: u32,
    },
}

/// The file.
pub(crate) struct TopicBook {
    path: PathBuf,
    policy: PartitionCountChange,
    partitions: Mutex<BTreeMap<String, u32>>,
}

fn state_error(path: &Path, reason: impl ToString) -> KafkaSinkError {
    KafkaSinkError::State {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

impl TopicBook {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// It cannot be read or is none of ours.
    pub(crate) fn open(path: &Path, policy: PartitionCountChange) -> Result<Self> {
        let partitions = match std::fs::read(path) {
            Ok(bytes) => {
                let layout: Layout =
                    serde_json::from_slice(&bytes).map_err(|error| state_error(path, error))?;
                if layout.layout != LAYOUT {
                    return Err(state_error(path, "it was written by another version of Weir"));
                }
                layout.partitions
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(state_error(path, error)),
        };
        Ok(Self {
            path: path.to_owned(),
            policy,
            partitions: Mutex::new(partitions),
        })
    }

    fn partitions(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Partitions that rows of a topic are spread by; none for a topic that had no rows.
    pub(crate) fn expected(&self, topic: &str) -> Option<u32> {
        self.partitions().get(topic).copied()
    }

    /// Compares what a topic has with what its rows are spread by. A topic that is met for
    /// the first time is written down before this returns.
    ///
    /// # Errors
    /// The count has changed, and that is refused; the file cannot be written.
    pub(crate) fn settle(&self, topic: &str, found: u32) -> Result<Spread> {
        match self.expected(topic) {
            Some(expected) if expected == found => Ok(Spread::Same(found)),
            Some(expected) => match self.policy {
                PartitionCountChange::Flush => Ok(Spread::Flush { found }),
                PartitionCountChange::Refuse => Err(KafkaSinkError::PartitionsChanged {
                    topic: topic.to_owned(),
                    found,
                    expected,
                }),
            },
            None => {
                self.adopt(topic, found)?;
                Ok(Spread::Same(found))
            }
        }
    }

    /// Rows of a topic are spread by `found` from now on; durable when it returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn adopt(&self, topic: &str, found: u32) -> Result<()> {
        let mut partitions = self.partitions();
        let mut changed = partitions.clone();
        changed.insert(topic.to_owned(), found);
        self.write(&changed)
            .map_err(|error| state_error(&self.path, error))?;
        *partitions = changed;
        Ok(())
    }

    fn write(&self, partitions: &BTreeMap<String, u32>) -> std::io::Result<()> {
        let layout = Layout {
            layout: LAYOUT,
            partitions: partitions.clone(),
        };
        let text = serde_json::to_vec_pretty(&layout)?;
        let temporary = self.path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_and_changes_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("topics.json");
        let book = TopicBook::open(&path, PartitionCountChange::Refuse).unwrap();
        assert_eq!(book.settle("a", 3), Ok(Spread::Same(3)));
        drop(book);
        let book = TopicBook::open(&path, PartitionCountChange::Refuse).unwrap();
        assert!(matches!(
            book.settle("a", 4),
            Err(KafkaSinkError::PartitionsChanged {
                found: 4,
                expected: 3,
                ..
            })
        ));
        let book = TopicBook::open(&path, PartitionCountChange::Flush).unwrap();
        assert_eq!(book.settle("a", 4), Ok(Spread::Flush { found: 4 }));
        book.adopt("a", 4).unwrap();
        assert_eq!(book.settle("a", 4), Ok(Spread::Same(4)));
        let book = TopicBook::open(&path, PartitionCountChange::Refuse).unwrap();
        assert_eq!(book.settle("a", 4), Ok(Spread::Same(4)));
    }

    #[test]
    fn a_file_that_is_none_of_ours_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("topics.json");
        for text in [
            "",
            "{}",
            "[1]",
            r#"{"layout":2,"partitions":{}}"#,
            "{\"layout\":1,",
        ] {
            std::fs::write(&path, text).unwrap();
            let opened = TopicBook::open(&path, PartitionCountChange::Refuse);
            assert!(matches!(opened, Err(KafkaSinkError::State { .. })), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_not_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing").join("topics.json");
        let book = TopicBook::open(&path, PartitionCountChange::Refuse).unwrap();
        assert!(book.settle("a", 3).is_err());
        assert!(book.partitions().is_empty());
    }
}
