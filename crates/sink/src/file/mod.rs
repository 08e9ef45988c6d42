//! The file sink: canal-json lines, one set of files per table, exactly once.
//!
//! A file ends in `.tmp` while it is written. It is finished by its size, its age, a
//! flush or a DDL: synced, renamed to a name that holds its first and last order key,
//! and, once the folder is synced, its rows are durable. That name is the table's
//! progress: at start unfinished files are dropped and each table goes on behind the
//! last key of its finished ones.

mod config;
mod disk;
mod folder;
mod naming;
mod output;
mod progress;
mod writer;

#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use weir_codec::CanalJson;
use weir_types::DispatcherId;

pub use config::{FileConfig, OPEN_FILES_MAX, ROTATE_AGE_DEFAULT, ROTATE_BYTES_DEFAULT, WORKERS_DEFAULT};
pub use folder::IDENTITY_FILE;
pub use progress::FileProgress;

use crate::contract::{Backend, PullLimits, SpanTable, SpanWriter, WorkerContext};
use crate::counters::SinkCounters;
use crate::error::Result;
use disk::{Disk, OsDisk};
use output::{HandlePool, Output, when_there_is_room};
use writer::FileSpan;

/// What the spans share.
struct FileShared {
    config: FileConfig,
    format: CanalJson,
    progress: FileProgress,
    counters: Arc<SinkCounters>,
    disk: Box<dyn Disk>,
    handles: Mutex<HandlePool>,
    stems: Mutex<HashSet<String>>,
}

impl FileShared {
    /// False if another span writes under this begin of name.
    fn claim(&self, stem: &str) -> bool {
        self.stems
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(stem.to_owned())
    }

    fn give_up(&self, stem: &str) {
        self.stems
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(stem);
    }

    fn take_handle(&self, dispatcher: DispatcherId) -> Option<Output> {
        self.handles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(dispatcher)
    }

    fn keep_handle(&self, dispatcher: DispatcherId, output: Output) {
        let closed = self
            .handles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(dispatcher, output);
        drop(closed);
    }

    /// Syncs a file and gives it the name of a finished one. The folder is not synced.
    fn finish(&self, mut output: Output, name: &str, worker: &WorkerContext) -> Result<()> {
        output.sync()?;
        let target = self.config.dir.join(name);
        when_there_is_room(worker, "rename", &output.path, || {
            self.disk.rename(&output.path, &target)
        })?;
        self.counters.add_file();
        worker.metrics.file();
        Ok(())
    }
}

/// The file sink's part behind the scheduler.
pub(crate) struct FileBackend {
    shared: Arc<FileShared>,
}

impl FileBackend {
    /// Prepares the folder and reads the progress in it.
    ///
    /// # Errors
    /// The folder cannot be used, is another's, or holds overlapping files.
    pub(crate) fn open(config: FileConfig, counters: Arc<SinkCounters>) -> Result<(Self, FileProgress)> {
        Self::open_on(config, counters, Box::new(OsDisk), OPEN_FILES_MAX)
    }

    fn open_on(
        config: FileConfig,
        counters: Arc<SinkCounters>,
        disk: Box<dyn Disk>,
        handles: usize,
    ) -> Result<(Self, FileProgress)> {
        folder::prepare(&config)?;
        let progress = FileProgress::scan(&config.dir)?;
        let shared = FileShared {
            format: CanalJson::new(config.canal),
            config,
            progress: progress.clone(),
            counters,
            disk,
            handles: Mutex::new(HandlePool::new(handles)),
            stems: Mutex::default(),
        };
        let backend = Self {
            shared: Arc::new(shared),
        };
        Ok((backend, progress))
    }
}

impl Backend for FileBackend {
    fn pull_limits(&self) -> PullLimits {
        PullLimits::default()
    }

    fn open(&self, dispatcher: DispatcherId, tables: &[SpanTable]) -> Result<Box<dyn SpanWriter>> {
        Ok(Box::new(FileSpan::new(
            Arc::clone(&self.shared),
            dispatcher,
            tables.first(),
        )?))
    }

    fn commit(&self, worker: &mut WorkerContext) -> Result<()> {
        let dir = &self.shared.config.dir;
        when_there_is_room(worker, "sync folder", dir, || self.shared.disk.sync_folder(dir))
    }
}
