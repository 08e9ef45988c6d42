//! Which rows of a pull may meet in a unique key, and what may be written side by side.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use weir_types::Value;

use crate::plan::{ConflictKey, Equality};

/// Bytes of SQL below which a second connection is not worth its round trips.
pub(super) const GROUP_BYTES_MIN: usize = 16 << 10;

/// Takes hashes as they are: the keys of the maps below are hashes already.
#[derive(Clone, Copy, Default)]
pub(super) struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map by hash.
pub(super) type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Passed>>;

/// Rows that may meet, found by the values of unique keys.
#[derive(Debug)]
pub(super) struct Conflicts {
    /// Parent of each entry; a root is its own.
    parents: Vec<u32>,
    /// An entry of each value of a key.
    holders: ByHash<u32>,
    seed: RandomState,
    /// Any two rows may meet.
    serial: bool,
}

/// What a key's values say of a row.
enum Held {
    /// A NULL: meets no row.
    Nothing,
    /// Rows of this hash.
    Value(u64),
    /// Any row.
    Any,
}

impl Conflicts {
    pub(super) fn new(serial: bool, seed: RandomState) -> Self {
        Self {
            parents: Vec::new(),
            holders: ByHash::default(),
            seed,
            serial,
        }
    }

    /// Makes room for the next entry.
    pub(super) fn add(&mut self) {
        let next = u32::try_from(self.parents.len()).unwrap_or(u32::MAX);
        self.parents.push(next);
    }

    fn root(&mut self, mut at: u32) -> u32 {
        while let Some(&parent) = self.parents.get(at as usize) {
            if parent == at {
                break;
            }
            let above = self.parents.get(parent as usize).copied().unwrap_or(parent);
            if let Some(slot) = self.parents.get_mut(at as usize) {
                *slot = above;
            }
            at = above;
        }
        at
    }

    /// Two entries belong together. The older one stays the root, so that the order of
    /// roots is that of the rows.
    fn union(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        let (old, new) = (a.min(b), a.max(b));
        if let Some(slot) = self.parents.get_mut(new as usize) {
            *slot = old;
        }
    }

    /// An image of an entry's row holds these values.
    pub(super) fn hold(&mut self, entry: u32, keys: &[ConflictKey], image: &[Value<'_>]) {
        if self.serial {
            return;
        }
        for (number, key) in keys.iter().enumerate() {
            match held(&self.seed, number, key, image) {
                Held::Nothing => {}
                Held::Any => self.serial = true,
                Held::Value(hash) => {
                    let holder = *self.holders.entry(hash).or_insert(entry);
                    if holder != entry {
                        self.union(holder, entry);
                    }
                }
            }
        }
    }

    /// Spreads entries over at most `groups_max` groups of about equal size, so that
    /// entries that may meet are in one, and that a group has `bytes_min` at least. `sizes`
    /// gives the bytes of each entry.
    pub(super) fn spread(&mut self, sizes: &[usize], groups_max: usize, bytes_min: usize) -> Vec<Vec<u32>> {
        let count = u32::try_from(sizes.len()).unwrap_or(u32::MAX);
        let total: usize = sizes.iter().sum();
        let wanted = groups_max.min(total.div_ceil(bytes_min)).max(1);
        if wanted == 1 || self.serial {
            return vec![(0..count).collect()];
        }
        let mut weights = vec![0_usize; sizes.len()];
        for (entry, size) in (0..count).zip(sizes) {
            let root = self.root(entry);
            if let Some(weight) = weights.get_mut(root as usize) {
                *weight += size;
            }
        }
        // Neighbours stay together: they are likely neighbours in the target's pages.
        let share = total.div_ceil(wanted);
        let (mut group, mut filled) = (0, 0);
        let mut group_of = vec![0_usize; sizes.len()];
        for entry in 0..count {
            let at = entry as usize;
            let root = self.root(entry) as usize;
            if root == at {
                if filled >= share && group + 1 < wanted {
                    (group, filled) = (group + 1, 0);
                }
                filled += weights.get(at).copied().unwrap_or(0);
            }
            // A root comes before the entries under it.
            let of_root = if root == at {
                group
            } else {
                group_of.get(root).copied().unwrap_or(group)
            };
            if let Some(slot) = group_of.get_mut(at) {
                *slot = of_root;
            }
        }
        let mut groups = vec![Vec::new(); wanted];
        for (entry, of) in (0..count).zip(group_of) {
            if let Some(group) = groups.get_mut(of) {
                group.push(entry);
            }
        }
        groups.retain(|group| !group.is_empty());
        groups
    }
}

/// The key's number is part of the hash: the same value in two keys is no conflict.
fn held(seed: &RandomState, number: usize, key: &ConflictKey, image: &[Value<'_>]) -> Held {
    let mut hasher = seed.build_hasher();
    hasher.write_usize(number);
    for column in &key.columns {
        let Some(value) = image.get(column.source) else {
            return Held::Any;
        };
        match column.equality {
            Equality::Folded => match value {
                Value::Null => return Held::Nothing,
                Value::Bytes(text) if is_printable(text) => fold(text, &mut hasher),
                _ => return Held::Any,
            },
            Equality::Padded => match value {
                Value::Null => return Held::Nothing,
                Value::Bytes(text) => {
                    hasher.write(trimmed(text));
                    hasher.write_u8(0xff);
                }
                _ => return Held::Any,
            },
            Equality::Exact | Equality::Float => {
                if matches!(value, Value::Null) {
                    return Held::Nothing;
                }
                hash_value(value, &mut hasher);
            }
        }
    }
    Held::Value(hasher.finish())
}

/// Control characters weigh nothing in many collations.
fn is_printable(text: &[u8]) -> bool {
    text.iter().all(|byte| (b' '..=b'~').contains(byte))
}

fn trimmed(text: &[u8]) -> &[u8] {
    let spaces = text.iter().rev().take_while(|byte| **byte == b' ').count();
    text.get(..text.len() - spaces).unwrap_or_default()
}

fn fold(text: &[u8], hasher: &mut impl Hasher) {
    for byte in trimmed(text) {
        hasher.write_u8(byte.to_ascii_lowercase());
    }
    hasher.write_u8(0xff);
}

fn hash_value(value: &Value<'_>, hasher: &mut impl Hasher) {
    match *value {
        Value::Null => {}
        Value::Int(number) => hasher.write_i64(number),
        Value::UInt(number) => hasher.write_u64(number),
        // Both zeros are one number.
        Value::Float(number) => hasher.write_u64((f64::from(number) + 0.0).to_bits()),
        Value::Double(number) => hasher.write_u64((number + 0.0).to_bits()),
        Value::Decimal(decimal) => hasher.write(decimal.bytes),
        Value::Bytes(bytes)
        | Value::Bit(bytes)
        | Value::Json(bytes)
        | Value::Geometry(bytes)
        | Value::Vector(bytes) => {
            hasher.write_usize(bytes.len());
            hasher.write(bytes);
        }
        Value::Date { year, month, day } => {
            hasher.write_u32(u32::from(year) << 16 | u32::from(month) << 8 | u32::from(day));
        }
        Value::Time {
            negative,
            hours,
            minutes,
            seconds,
            micros,
        } => {
            hasher.write_u8(negative.into());
            hasher.write_u32(u32::from(hours) << 16 | u32::from(minutes) << 8 | u32::from(seconds));
            hasher.write_u32(micros);
        }
        Value::DateTime {
            year,
            month,
            day,
            hour,
            minute,
            second,
            micros,
        } => {
            hasher.write_u32(u32::from(year) << 16 | u32::from(month) << 8 | u32::from(day));
            hasher.write_u32(u32::from(hour) << 16 | u32::from(minute) << 8 | u32::from(second));
            hasher.write_u32(micros);
        }
        Value::Timestamp { seconds, micros } => {
            hasher.write_u32(seconds);
            hasher.write_u32(micros);
        }
        Value::Year(number) | Value::Enum(number) => hasher.write_u16(number),
        Value::Set(bits) => hasher.write_u64(bits),
    }
}

#[cfg(test)]
#[path = "conflict_tests.rs"]
mod tests;
