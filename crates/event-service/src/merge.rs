//! One scan over several tables: their row events in one order.
//!
//! Each table is read ahead a little; the smallest next key decides what comes out. What
//! was read ahead and is not sent is dropped and read again by the next scan, so that
//! nothing but the batch outlives a scan. A table that is read empty is read on with
//! what is left of the limits: where one table has most of the rows, it gets most of the
//! room.

use std::cmp::Ordering;
use std::sync::Arc;

use weir_event_store::{ScanEnd, ScanRequest, StoreReader, detach_slice};
use weir_protocol::collector::RUN_BYTES;
use weir_types::{Block, BlockSlice, ErrorReport, OrderKey, TableName};

use crate::error::{ServiceError, check_slices};

/// Least bytes that a table is read ahead, as far as the limit allows that many: a share
/// of a small limit holds no row event.
const AHEAD_BYTES_MIN: usize = 16 << 10;
/// Least row events that a table is read ahead.
const AHEAD_EVENTS_MIN: usize = 64;
/// No table is read on once less than this part of the bytes is left.
const REFILL_PART: usize = 8;

/// Limits of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// End, inclusive.
    pub(crate) upto: OrderKey,
    /// Most charged bytes, the lane aside.
    pub(crate) bytes_max: usize,
    /// Most row events.
    pub(crate) events_max: usize,
    /// The next row event passes by itself, whatever it takes.
    pub(crate) lane: bool,
}

/// What a scan over several tables found.
#[derive(Debug)]
pub(crate) struct Merged {
    /// Runs of row events, ascending over all tables.
    pub(crate) slices: Vec<BlockSlice>,
    /// Where it stopped.
    pub(crate) end: ScanEnd,
    /// The table of a row event that is too large.
    pub(crate) large: Option<TableName>,
}

/// What comes next of a table.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// This row event.
    Event(Head),
    /// A row event that was too large for what the table was read with.
    Large { key: OrderKey, bytes: usize },
    /// Unknown until more is read.
    Unread,
    /// Nothing up to the end.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    key: OrderKey,
    offset: usize,
    end: usize,
}

/// One table's part of the scan.
struct Lookahead<'a> {
    table: &'a TableName,
    /// Everything up to here has come out or lies in `slices`.
    read_upto: OrderKey,
    slices: std::vec::IntoIter<BlockSlice>,
    current: Option<BlockSlice>,
    /// The current block is charged, since a run of it came out.
    charged: bool,
    next: Next,
    end: ScanEnd,
}

impl<'a> Lookahead<'a> {
    fn new(table: &'a TableName, after: OrderKey) -> Self {
        Self {
            table,
            read_upto: after,
            slices: Vec::new().into_iter(),
            current: None,
            charged: false,
            next: Next::Unread,
            end: ScanEnd::More,
        }
    }

    /// Reads on; returns the bytes that it took.
    fn read(&mut self, store: &dyn StoreReader, limits: &Limits) -> Result<usize, ErrorReport> {
        let request = ScanRequest {
            table: self.table.clone(),
            after: self.read_upto,
            upto: limits.upto,
            bytes_max: limits.bytes_max,
            events_max: limits.events_max,
            lane: limits.lane,
        };
        let outcome = store.scan(&request).map_err(|e| ErrorReport::new(&e))?;
        check_slices(self.table, &outcome.slices, self.read_upto, limits.upto)
            .map_err(|e| ErrorReport::new(&e))?;
        if outcome.slices.is_empty() && outcome.end == ScanEnd::More {
            return Err(self.broken("a scan returned nothing and asked to be repeated"));
        }
        let bytes = outcome.slices.iter().map(BlockSlice::pinned_bytes).sum();
        self.end = outcome.end;
        self.slices = outcome.slices.into_iter();
        self.turn_over();
        self.look()?;
        Ok(bytes)
    }

    /// Takes the next slice up, if there is one.
    fn turn_over(&mut self) {
        self.current = self.slices.next();
        self.charged = false;
        if let Some(slice) = &self.current {
            self.read_upto = slice.last;
        }
    }

    /// Finds what comes next.
    fn look(&mut self) -> Result<(), ErrorReport> {
        self.next = match &self.current {
            Some(slice) => match slice.iter().next() {
                Some(Ok(event)) => Next::Event(Head {
                    key: event.key,
                    offset: event.offset,
                    end: event.end,
                }),
                _ => return Err(self.broken("a slice does not hold what it states")),
            },
            None => match self.end {
                ScanEnd::Exhausted => Next::Nothing,
                ScanEnd::More => Next::Unread,
                ScanEnd::TooLarge { bytes, key } => Next::Large { key, bytes },
            },
        };
        Ok(())
    }

    /// Key of what comes next, if known.
    const fn key(&self) -> Option<OrderKey> {
        match self.next {
            Next::Event(Head { key, .. }) | Next::Large { key, .. } => Some(key),
            Next::Unread | Next::Nothing => None,
        }
    }

    fn broken(&self, what: &'static str) -> ErrorReport {
        ErrorReport::new(&ServiceError::StoreContract {
            table: self.table.clone(),
            what,
        })
    }
}

/// The batch as it grows.
struct Output {
    slices: Vec<BlockSlice>,
    events: usize,
    bytes: usize,
    last: OrderKey,
    limits: Limits,
}

impl Output {
    /// Takes row events of the table that come before `bound`; true if a limit is
    /// reached.
    fn take(&mut self, from: &mut Lookahead<'_>, bound: OrderKey) -> Result<bool, ErrorReport> {
        let mut run: Option<BlockSlice> = None;
        let mut full = false;
        while let Next::Event(head) = from.next
            && head.key < bound
        {
            let Some(slice) = from.current.as_mut() else {
                break;
            };
            let cost = match (&run, from.charged) {
                (Some(_), _) => 0,
                (None, true) => RUN_BYTES,
                (None, false) => slice.pinned_bytes(),
            };
            let fits = self.events < self.limits.events_max && self.bytes + cost <= self.limits.bytes_max;
            if !fits && self.events > 0 {
                full = true;
                break;
            }
            if head.key <= self.last {
                return Err(from.broken("row events of several tables do not ascend"));
            }
            from.charged = true;
            self.bytes += cost;
            let room = self.limits.events_max.max(1) - self.events;
            let whole = run.is_none() && slice.last < bound && slice.events as usize <= room;
            let taken = if whole { slice.events } else { 1 };
            let (end, last) = if whole {
                (slice.range.end, slice.last)
            } else {
                (head.end, head.key)
            };
            let part = run.get_or_insert_with(|| BlockSlice {
                block: Arc::clone(&slice.block),
                range: head.offset..head.offset,
                events: 0,
                first: head.key,
                last: head.key,
            });
            part.range.end = end;
            part.events += taken;
            part.last = last;
            self.events += taken as usize;
            self.last = last;
            slice.range.start = end;
            slice.events = slice.events.saturating_sub(taken);
            if slice.range.is_empty() != (slice.events == 0) {
                return Err(from.broken("a slice does not hold what it states"));
            }
            if slice.events == 0 {
                self.slices.extend(run.take());
                from.turn_over();
            }
            from.look()?;
        }
        self.slices.extend(run);
        Ok(full)
    }

    /// Copies small used parts of blocks out that are not used up, as a scan of one
    /// table does.
    fn finish(&mut self, tables: &[Lookahead<'_>]) -> Result<(), ErrorReport> {
        for table in tables {
            let Some(slice) = table.current.as_ref().filter(|_| table.charged) else {
                continue;
            };
            let runs = || self.slices.iter().filter(|s| Arc::ptr_eq(&s.block, &slice.block));
            let (Some(first), Some(last)) = (runs().next(), runs().next_back()) else {
                continue;
            };
            let used = BlockSlice {
                block: Arc::clone(&slice.block),
                range: first.range.start..last.range.end,
                events: runs().map(|run| run.events).sum(),
                first: first.first,
                last: last.last,
            };
            if used.range.len() * 2 >= slice.pinned_bytes() {
                continue;
            }
            let copy: Arc<Block> = detach_slice(&used)
                .map(Arc::new)
                .map_err(|e| ErrorReport::new(&e))?;
            let moved = self
                .slices
                .iter_mut()
                .filter(|s| Arc::ptr_eq(&s.block, &slice.block));
            for run in moved {
                run.range.start -= used.range.start;
                run.range.end -= used.range.start;
                run.block = Arc::clone(&copy);
            }
        }
        Ok(())
    }
}

/// Reads row events of several tables, each behind its own place, in one order.
///
/// # Errors
/// A table cannot be read, or the store broke its contract.
pub(crate) fn merge<'a>(
    store: &dyn StoreReader,
    tables: impl Iterator<Item = (&'a TableName, OrderKey)>,
    limits: Limits,
) -> Result<Merged, ErrorReport> {
    let mut tables: Vec<_> = tables
        .filter(|(table, after)| *after < limits.upto && store.last_key(table, *after).is_some())
        .map(|(table, after)| Lookahead::new(table, after))
        .collect();
    let ahead = if limits.lane { 0 } else { limits.bytes_max };
    let mut left = Left {
        bytes: ahead,
        events: limits.events_max,
        live: tables.len(),
    };
    for table in &mut tables {
        left.read(store, table, &limits)?;
    }
    let mut out = Output {
        slices: Vec::new(),
        events: 0,
        bytes: 0,
        last: OrderKey::MIN,
        limits,
    };
    let end = loop {
        let Some((at, bound)) = smallest(&tables) else {
            break ScanEnd::Exhausted;
        };
        let Some(table) = tables.get_mut(at) else {
            break ScanEnd::Exhausted;
        };
        if table.key().is_some_and(|key| key >= bound) {
            return Err(table.broken("row events of two tables have the same place"));
        }
        match table.next {
            Next::Event(_) => {
                if out.take(table, bound)? {
                    break ScanEnd::More;
                }
            }
            Next::Large { .. } if !out.slices.is_empty() => break ScanEnd::More,
            Next::Large { key, bytes } if limits.lane || bytes <= limits.bytes_max => {
                // The share was too small; this one passes with all there is.
                return alone(store, table, key, bound, limits);
            }
            Next::Large { key, bytes } => {
                return Ok(Merged {
                    slices: Vec::new(),
                    end: ScanEnd::TooLarge { bytes, key },
                    large: Some(table.table.clone()),
                });
            }
            Next::Unread | Next::Nothing => {
                let spent = left.bytes < limits.bytes_max / REFILL_PART || out.events >= limits.events_max;
                if spent && !out.slices.is_empty() {
                    break ScanEnd::More;
                }
                left.events = limits.events_max.saturating_sub(out.events);
                left.live = tables.iter().filter(|t| t.end != ScanEnd::Exhausted).count();
                if let Some(table) = tables.get_mut(at) {
                    left.read(store, table, &limits)?;
                }
            }
        }
    };
    out.finish(&tables)?;
    Ok(Merged {
        slices: out.slices,
        end,
        large: None,
    })
}

/// What may still be read ahead.
struct Left {
    bytes: usize,
    events: usize,
    /// Tables that share it.
    live: usize,
}

impl Left {
    fn read(
        &mut self,
        store: &dyn StoreReader,
        table: &mut Lookahead<'_>,
        limits: &Limits,
    ) -> Result<(), ErrorReport> {
        let live = self.live.max(1);
        let share = Limits {
            upto: limits.upto,
            bytes_max: if limits.lane {
                0
            } else {
                (self.bytes / live).max(AHEAD_BYTES_MIN).min(limits.bytes_max)
            },
            events_max: (self.events / live).max(AHEAD_EVENTS_MIN).min(limits.events_max),
            lane: false,
        };
        let took = table.read(store, &share)?;
        self.bytes = self.bytes.saturating_sub(took);
        self.live = live - 1;
        Ok(())
    }
}

/// The table that comes next, and the key before which it has the turn. A table whose
/// next key is unknown comes first: it has to be read on.
fn smallest(tables: &[Lookahead<'_>]) -> Option<(usize, OrderKey)> {
    let (mut best, mut bound): (Option<(usize, OrderKey)>, OrderKey) = (None, OrderKey::MAX);
    for (at, table) in tables.iter().enumerate() {
        let key = match (table.next, table.key()) {
            (Next::Unread, _) => return Some((at, OrderKey::MAX)),
            (_, Some(key)) => key,
            (_, None) => continue,
        };
        match best.map_or(Ordering::Less, |(_, least)| key.cmp(&least)) {
            Ordering::Less => {
                bound = best.map_or(bound, |(_, least)| least);
                best = Some((at, key));
            }
            Ordering::Equal | Ordering::Greater => bound = bound.min(key),
        }
    }
    best.map(|(at, _)| (at, bound))
}

/// Row events of one table, from the one at `key` on, before `bound`.
fn alone(
    store: &dyn StoreReader,
    table: &mut Lookahead<'_>,
    key: OrderKey,
    bound: OrderKey,
    limits: Limits,
) -> Result<Merged, ErrorReport> {
    let upto = if limits.lane {
        key
    } else {
        limits.upto.min(bound.before())
    };
    let request = Limits {
        upto,
        bytes_max: if limits.lane { 0 } else { limits.bytes_max },
        events_max: if limits.lane { 1 } else { limits.events_max },
        lane: limits.lane,
    };
    table.read(store, &request)?;
    let slices: Vec<_> = table
        .current
        .take()
        .into_iter()
        .chain(table.slices.by_ref())
        .collect();
    if slices.first().is_none_or(|slice| slice.first != key) {
        return Err(table.broken("a row event that was announced did not come"));
    }
    Ok(Merged {
        slices,
        end: ScanEnd::More,
        large: None,
    })
}
