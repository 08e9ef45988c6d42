//! Questions about topics, asked on a thread of their own: whoever needs a topic is called
//! when it is known.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::asker::{Asker, TopicInfo};
use crate::config::KafkaSinkConfig;
use crate::error::{KafkaSinkError, Result};

/// How often what is known of topics is read again.
const REFRESH_EVERY: Duration = Duration::from_secs(30);
/// How long it counts that a topic cannot be written to: whoever comes later, because
/// someone has repaired it, asks anew.
const ERROR_KEPT: Duration = Duration::from_secs(1);
/// First wait after a question without an answer.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Longest wait between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Topics whose settings are asked for at once.
const ASKED_AT_ONCE: usize = 500;

/// Topics that are made at once.
const MADE_AT_ONCE: usize = 100;

type Call = Box<dyn FnOnce() + Send>;

enum Entry {
    /// Who is called when it is known.
    Asked(Vec<Call>),
    Known(Result<TopicInfo>, Instant),
}

impl Entry {
    fn answer(&self) -> Option<&Result<TopicInfo>> {
        match self {
            Self::Known(Err(_), since) if since.elapsed() >= ERROR_KEPT => None,
            Self::Known(answer, _) => Some(answer),
            Self::Asked(_) => None,
        }
    }
}

#[derive(Default)]
struct State {
    topics: HashMap<Arc<str>, Entry>,
    /// Something was asked for that the thread has not seen.
    is_new: bool,
    stopped: bool,
}

struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    /// Rises when a known topic has become another one.
    generation: AtomicU64,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits up to `limit` for something new to be asked for; false if all is over.
    fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.stopped || std::mem::take(&mut state.is_new) || left.is_zero() {
                return !state.stopped;
            }
            let waited = self.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn asked(&self) -> Vec<Arc<str>> {
        let mut state = self.state();
        state.is_new = false;
        let asked =
            |(name, entry): (&Arc<str>, &Entry)| matches!(entry, Entry::Asked(_)).then(|| Arc::clone(name));
        state.topics.iter().filter_map(asked).collect()
    }

    fn known(&self) -> Vec<(Arc<str>, TopicInfo)> {
        let state = self.state();
        let known = |(name, entry): (&Arc<str>, &Entry)| match entry {
            Entry::Known(Ok(info), _) => Some((Arc::clone(name), *info)),
            _ => None,
        };
        state.topics.iter().filter_map(known).collect()
    }

    fn set(&self, name: &Arc<str>, answer: Result<TopicInfo>) {
        let entry = Entry::Known(answer, Instant::now());
        let before = self.state().topics.insert(Arc::clone(name), entry);
        if let Some(Entry::Asked(calls)) = before {
            calls.into_iter().for_each(|call| call());
        }
    }
}

/// What is known of the topics of a cluster.
pub(crate) struct Cluster {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Reaches the cluster.
    ///
    /// # Errors
    /// No broker answers, or none takes the login.
    pub(crate) fn connect(config: &KafkaSinkConfig) -> Result<Self> {
        let asker = Asker::new(config)?;
        asker.probe()?;
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            wake: Condvar::new(),
            generation: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&inner);
        let thread = std::thread::Builder::new()
            .name("weir-kafka-topics".to_owned())
            .spawn(move || run(&weak, &asker))
            .map_err(|error| KafkaSinkError::Unavailable {
                reason: format!("a thread cannot be started: {error}"),
            })?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }

    /// What is known of a topic; none if it was not asked for or has not been answered.
    pub(crate) fn known(&self, name: &str) -> Option<Result<TopicInfo>> {
        self.inner.state().topics.get(name)?.answer().cloned()
    }

    /// Asks for a topic, makes it if it is missing and that is configured, and calls when
    /// it is known.
    pub(crate) fn request(&self, name: &Arc<str>, call: Call) {
        let mut state = self.inner.state();
        match state.topics.get_mut(name) {
            Some(Entry::Asked(calls)) => calls.push(call),
            Some(entry) if entry.answer().is_some() => {
                drop(state);
                call();
            }
            _ => {
                state.topics.insert(Arc::clone(name), Entry::Asked(vec![call]));
                state.is_new = true;
                drop(state);
                self.inner.wake.notify_one();
            }
        }
    }

    /// Changes when a known topic has become another one.
    pub(crate) fn generation(&self) -> u64 {
        self.inner.generation.load(Ordering::Acquire)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.inner.state().stopped = true;
        self.inner.wake.notify_all();
        // It may be waiting for an answer, which is bounded; nobody waits for it.
        drop(self.thread.take());
    }
}

fn run(inner: &Weak<Inner>, asker: &Asker) {
    let mut refreshed = Instant::now();
    let mut wait = RETRY_MIN;
    let mut is_told = false;
    loop {
        let Some(inner) = inner.upgrade() else { return };
        match ask(&inner, asker) {
            Ok(()) => {
                wait = RETRY_MIN;
                is_told = false;
            }
            Err((topic, error)) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%topic, %error, "a topic cannot be asked for; it is tried again until it can");
                }
                if !inner.wait(wait) {
                    return;
                }
                wait = (wait * 2).min(RETRY_MAX);
                continue;
            }
        }
        if refreshed.elapsed() >= REFRESH_EVERY {
            refresh(&inner, asker);
            refreshed = Instant::now();
        }
        asker.rest();
        if !inner.wait(REFRESH_EVERY.saturating_sub(refreshed.elapsed())) {
            return;
        }
    }
}

/// Asks for the topics that someone waits for; the last that has no answer yet.
fn ask(inner: &Inner, asker: &Asker) -> std::result::Result<(), (Arc<str>, KafkaSinkError)> {
    let mut passing = Ok(());
    for names in inner.asked().chunks(MADE_AT_ONCE) {
        let answers = match asker.topics(names) {
            Ok(answers) => answers,
            Err(error) => {
                let first = names.first().map_or_else(|| Arc::from(""), Arc::clone);
                return Err((first, error));
            }
        };
        for (name, answer) in names.iter().zip(answers) {
            match answer {
                Err(error) if error.is_passing() => passing = Err((Arc::clone(name), error)),
                answer => inner.set(name, answer),
            }
        }
    }
    passing
}

/// Reads what is known of topics again. What cannot be read now keeps what it had; a topic
/// that is gone shows where messages are refused.
fn refresh(inner: &Inner, asker: &Asker) {
    for topics in inner.known().chunks(ASKED_AT_ONCE) {
        let mut partitions = Vec::with_capacity(topics.len());
        for (name, known) in topics {
            partitions.push(match asker.layout(name) {
                Ok(layout) => layout.map_or(known.partitions, |layout| layout.partitions),
                Err(error) if error.is_silence() => return,
                Err(_) => known.partitions,
            });
        }
        let names: Vec<&str> = topics.iter().map(|(name, _)| &**name).collect();
        let settings = asker.settings(&names).unwrap_or_default();
        for (at, ((name, known), partitions)) in topics.iter().zip(partitions).enumerate() {
            let settings = settings.get(at).and_then(|settings| settings.as_ref().ok());
            let limit = settings.and_then(|settings| settings.message_max_bytes);
            let now = TopicInfo {
                partitions,
                message_max_bytes: limit.unwrap_or(known.message_max_bytes),
            };
            if now != *known {
                tracing::info!(topic = %name, before = ?known, ?now, "a topic has changed");
                inner.set(name, Ok(now));
                inner.generation.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}
