//! Saving progress off the maintainer's thread: each save is an fsync.
//!
//! The maintainer has at most one save under way and puts everything that changed
//! meanwhile into the next one, so that the channel never holds more than one.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use weir_types::{ErrorReport, OrderKey, Token};

use crate::error::{Error, Result};
use crate::maintainer::SaveProgress;
use crate::meta_store::{MetaStore, TokenUpdate};
use crate::metrics::SaverMetrics;

/// One store for all generations of a changefeed's pipeline.
pub type SharedMetaStore = Arc<Mutex<dyn MetaStore>>;

/// Makes the token of a durable place: position before its transaction, GTID, open XA
/// groups. Called on the saver's thread.
pub type TokenSource = Arc<dyn Fn(OrderKey) -> std::result::Result<Token, ErrorReport> + Send + Sync>;

/// Result of one save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveDone {
    /// `SaveProgress::seq`.
    pub seq: u64,
    /// None if it is on disk.
    pub error: Option<ErrorReport>,
}

/// The thread that saves. Dropping it waits for the save under way, so that no old
/// generation writes after a new one has begun.
#[derive(Debug)]
pub struct Saver {
    work: Option<Sender<SaveProgress>>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Starts the thread; `done` is called on it after each save.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        store: SharedMetaStore,
        tokens: TokenSource,
        metrics: SaverMetrics,
        done: impl Fn(SaveDone) + Send + 'static,
    ) -> Result<Self> {
        let (work, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("weir-saver".to_owned())
            .spawn(move || run(&inbox, &store, &tokens, &metrics, &done))
            .map_err(|_| Error::SaverGone)?;
        Ok(Self {
            work: Some(work),
            thread: Some(thread),
        })
    }

    /// Hands a save over.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn save(&self, update: SaveProgress) -> Result<()> {
        let work = self.work.as_ref().ok_or(Error::SaverGone)?;
        work.send(update).map_err(|_| Error::SaverGone)
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that saves progress panicked");
        }
    }
}

fn run(
    inbox: &Receiver<SaveProgress>,
    store: &SharedMetaStore,
    tokens: &TokenSource,
    metrics: &SaverMetrics,
    done: &dyn Fn(SaveDone),
) {
    for progress in inbox {
        let started = Instant::now();
        // A save without an answer would be waited for for ever.
        let saved = catch_unwind(AssertUnwindSafe(|| save(&progress, store, tokens)));
        let error = match saved {
            Ok(result) => result.err(),
            Err(_) => Some(ErrorReport::new(&Error::SaverGone)),
        };
        metrics.saved(started.elapsed(), error.is_none());
        done(SaveDone {
            seq: progress.seq,
            error,
        });
    }
}

fn save(
    progress: &SaveProgress,
    store: &SharedMetaStore,
    tokens: &TokenSource,
) -> std::result::Result<(), ErrorReport> {
    // Idle tables share one key: everything resolved.
    let mut known: HashMap<OrderKey, Token> = HashMap::new();
    let mut token = |key: OrderKey| -> std::result::Result<Token, ErrorReport> {
        if let Some(token) = known.get(&key) {
            return Ok(token.clone());
        }
        let token = tokens(key)?;
        known.insert(key, token.clone());
        Ok(token)
    };
    let mut changed = Vec::with_capacity(progress.changed.len());
    for (table, key) in &progress.changed {
        changed.push((table.clone(), token(*key)?));
    }
    let update = TokenUpdate {
        schema: token(progress.schema)?,
        changed,
        removed: progress.removed.clone(),
    };
    // A panic inside a transaction rolled it back; what is stored is whole.
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    store.save(&update).map_err(|error| ErrorReport::new(&error))
}
