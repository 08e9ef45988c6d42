//! A cache bounded in bytes that forgets what was not used for longest.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

struct Inner<K, V> {
    values: HashMap<K, (V, usize, u64)>,
    order: BTreeMap<u64, K>,
    bytes: usize,
    clock: u64,
}

pub(crate) struct Cache<K, V> {
    inner: Mutex<Inner<K, V>>,
    bytes_max: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                values: HashMap::new(),
                order: BTreeMap::new(),
                bytes: 0,
                clock: 0,
            }),
            bytes_max,
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        let (value, _, used) = inner.values.get_mut(key)?;
        inner.clock += 1;
        inner.order.remove(used);
        *used = inner.clock;
        inner.order.insert(inner.clock, key.clone());
        Some(value.clone())
    }

    /// A value larger than the cache is not kept.
    pub(crate) fn put(&self, key: K, value: V, bytes: usize) {
        if bytes > self.bytes_max {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        inner.clock += 1;
        if let Some((_, old, used)) = inner.values.insert(key.clone(), (value, bytes, inner.clock)) {
            inner.bytes -= old;
            inner.order.remove(&used);
        }
        inner.order.insert(inner.clock, key);
        inner.bytes += bytes;
        while inner.bytes > self.bytes_max {
            let Some((_, key)) = inner.order.pop_first() else {
                break;
            };
            if let Some((_, bytes, _)) = inner.values.remove(&key) {
                inner.bytes -= bytes;
            }
        }
    }
}
