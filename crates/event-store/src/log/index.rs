//! Index of one segment: in memory while it is open, as a footer once it is sealed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_segment::{Codec, FrameAddress, SegmentReader, SegmentWriter};
use weir_types::{AttemptId, CommitTs, OrderKey};

use super::record::{
    BLOCK, BlockHead, COMMIT, DIRECTORY, FRAGMENT, FRAGMENT_INDEX, META, META_INDEX, Outcome, TABLE_INDEX,
    fragment, key, put_fragment, put_key, put_ranges, ranges,
};
use crate::catalog::TableId;
use crate::entry::{Entry, FragmentRef, NewRows, Place, entry_of};
use crate::error::Result;
use crate::meta::MetaBatch;
use crate::wire::{Input, put};

/// A stored batch of transaction groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetaRef {
    pub(crate) first: CommitTs,
    pub(crate) last: CommitTs,
    /// Whether it holds the state before it.
    pub(crate) before: bool,
    pub(crate) address: FrameAddress,
}

/// A group, as far as coalescing needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupInfo {
    pub(crate) raw_bytes: u64,
    /// Holds nothing of attempts.
    pub(crate) plain: bool,
}

/// Bytes that an index entry takes in memory, about.
pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>() + 16;

#[derive(Clone, Default)]
pub(crate) struct OpenIndex {
    pub(crate) entries: HashMap<TableId, Vec<Entry>>,
    pub(crate) fragments: BTreeMap<(AttemptId, u32), (FragmentRef, FrameAddress)>,
    pub(crate) metas: Vec<MetaRef>,
    pub(crate) groups: Vec<GroupInfo>,
    /// Bytes stored per table, fragments included.
    pub(crate) stored: HashMap<TableId, u64>,
    pub(crate) count: usize,
}

impl OpenIndex {
    pub(crate) fn add(&mut self, table: TableId, entry: Entry) {
        if let Place::Block(address) = &entry.place {
            *self.stored.entry(table).or_default() += u64::from(address.stored_bytes);
        }
        self.entries.entry(table).or_default().push(entry);
        self.count += 1;
    }

    pub(crate) fn add_fragment(&mut self, at: FragmentRef, address: FrameAddress) {
        *self.stored.entry(at.table).or_default() += u64::from(address.stored_bytes);
        self.fragments.insert((at.attempt, at.number), (at, address));
        self.count += 1;
    }

    pub(crate) fn add_meta(&mut self, meta: &MetaBatch, address: FrameAddress) {
        self.metas.push(MetaRef {
            first: meta.first(),
            last: meta.last(),
            before: meta.before.is_some(),
            address,
        });
        self.count += 1;
    }

    /// Enters a stored frame of segment `number`; None if it is not what it should be.
    pub(crate) fn add_frame(
        &mut self,
        kind: u8,
        head: &[u8],
        raw_bytes: u32,
        body: Option<&[u8]>,
        at: (u64, FrameAddress),
    ) -> Option<()> {
        let (number, address) = at;
        match kind {
            BLOCK => {
                let head = BlockHead::decode(head)?;
                let entry = Entry {
                    first: head.first,
                    last: head.last,
                    version: head.version,
                    events: head.events,
                    raw_bytes,
                    place: Place::Block(address),
                };
                self.add(head.table, entry);
            }
            FRAGMENT => {
                let mut at = fragment(&mut Input::new(head))?;
                at.segment = number;
                at.stored_bytes = address.stored_bytes;
                self.add_fragment(at, address);
            }
            META => self.add_meta(&MetaBatch::decode(body?)?, address),
            COMMIT => {
                let outcome = Outcome::decode(body?)?;
                for at in &outcome.fragments {
                    self.add(at.table, entry_of(at, outcome.commit_ts));
                }
            }
            _ => {}
        }
        Some(())
    }

    /// First and last key of all row events.
    fn bounds(&self) -> (OrderKey, OrderKey) {
        let first = self
            .entries
            .values()
            .filter_map(|e| e.first())
            .map(|e| e.first)
            .min();
        let last = self
            .entries
            .values()
            .filter_map(|e| e.last())
            .map(|e| e.last)
            .max();
        (first.unwrap_or(OrderKey::MAX), last.unwrap_or(OrderKey::MIN))
    }

    /// Greatest commit key per (segment, table) of the fragments shown here.
    pub(crate) fn pins(&self) -> Vec<Pin> {
        let mut pins: BTreeMap<(u64, TableId), OrderKey> = BTreeMap::new();
        for (table, entries) in &self.entries {
            for entry in entries {
                if let Place::Fragment { segment, .. } = &entry.place {
                    let pin = pins.entry((*segment, *table)).or_default();
                    *pin = (*pin).max(entry.last);
                }
            }
        }
        let pin = |((segment, table), last)| Pin { segment, table, last };
        pins.into_iter().map(pin).collect()
    }
}

/// A segment's fragments are needed until the table has passed a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) segment: u64,
    pub(crate) table: TableId,
    pub(crate) last: OrderKey,
}

impl Pin {
    /// Of rows that are fragments of an attempt.
    pub(crate) fn of(rows: &NewRows) -> Option<Self> {
        match &rows.entry.place {
            Place::Block(_) => None,
            Place::Fragment { segment, .. } => Some(Self {
                segment: *segment,
                table: rows.table,
                last: rows.entry.last,
            }),
        }
    }
}

/// One table in a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TablePointer {
    pub(crate) table: TableId,
    /// Keys of its row events; first > last if there are only fragments.
    pub(crate) first: OrderKey,
    pub(crate) last: OrderKey,
    pub(crate) stored_bytes: u64,
    pub(crate) section: FrameAddress,
}

/// What memory keeps of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) directory: FrameAddress,
    pub(crate) fragments: FrameAddress,
    pub(crate) metas: FrameAddress,
    pub(crate) first: OrderKey,
    pub(crate) last: OrderKey,
    pub(crate) base: FrameAddress,
    pub(crate) base_ts: CommitTs,
}

fn put_address(out: &mut Vec<u8>, address: FrameAddress) {
    put(out, address.offset);
    put(out, u64::from(address.stored_bytes));
}

fn address(input: &mut Input<'_>) -> Option<FrameAddress> {
    Some(FrameAddress {
        offset: input.number()?,
        stored_bytes: input.small()?,
    })
}

fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * 32);
    put(&mut out, entries.len() as u64);
    for entry in entries {
        put_key(&mut out, entry.first);
        put_key(&mut out, entry.last);
        for number in [entry.version, entry.events, entry.raw_bytes] {
            put(&mut out, u64::from(number));
        }
        match &entry.place {
            Place::Block(at) => {
                out.push(0);
                put_address(&mut out, *at);
            }
            Place::Fragment {
                segment,
                attempt,
                number,
                aborted,
            } => {
                out.push(1);
                put(&mut out, *segment);
                put(&mut out, attempt.0);
                put(&mut out, u64::from(*number));
                put_ranges(&mut out, aborted);
            }
        }
    }
    out
}

pub(crate) fn decode_entries(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut input = Input::new(bytes);
    let count = input.count()?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        let (first, last) = (key(&mut input)?, key(&mut input)?);
        let (version, events, raw_bytes) = (input.small()?, input.small()?, input.small()?);
        let place = match input.number()? {
            0 => Place::Block(address(&mut input)?),
            1 => Place::Fragment {
                segment: input.number()?,
                attempt: AttemptId(input.number()?),
                number: input.small()?,
                aborted: ranges(&mut input)?,
            },
            _ => return None,
        };
        out.push(Entry {
            first,
            last,
            version,
            events,
            raw_bytes,
            place,
        });
    }
    Some(out)
}

pub(crate) fn decode_fragments(bytes: &[u8]) -> Option<Vec<(FragmentRef, FrameAddress)>> {
    let mut input = Input::new(bytes);
    let count = input.count()?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push((fragment(&mut input)?, address(&mut input)?));
    }
    Some(out)
}

pub(crate) fn decode_metas(bytes: &[u8]) -> Option<Vec<MetaRef>> {
    let mut input = Input::new(bytes);
    let count = input.count()?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(MetaRef {
            first: CommitTs(input.number()?),
            last: CommitTs(input.number()?),
            before: input.number()? != 0,
            address: address(&mut input)?,
        });
    }
    Some(out)
}

pub(crate) fn decode_directory(bytes: &[u8]) -> Option<Vec<TablePointer>> {
    let mut input = Input::new(bytes);
    let count = input.count()?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(TablePointer {
            table: input.small()?,
            first: key(&mut input)?,
            last: key(&mut input)?,
            stored_bytes: input.number()?,
            section: address(&mut input)?,
        });
    }
    Some(out)
}

/// Writes the index as the last group, the pointer to it, and syncs. Returns the
/// footer and the length of the file.
pub(crate) fn write_footer(
    mut writer: SegmentWriter,
    index: &OpenIndex,
    base: (FrameAddress, CommitTs),
) -> Result<(Footer, u64)> {
    let mut tables: Vec<TableId> = index.stored.keys().chain(index.entries.keys()).copied().collect();
    tables.sort_unstable();
    tables.dedup();
    let mut directory = Vec::with_capacity(tables.len() * 40);
    put(&mut directory, tables.len() as u64);
    for table in tables {
        let entries = index.entries.get(&table).map(Vec::as_slice).unwrap_or_default();
        let section = writer.append(TABLE_INDEX, b"", Codec::Lz4, &encode_entries(entries))?;
        put(&mut directory, u64::from(table));
        put_key(&mut directory, entries.first().map_or(OrderKey::MAX, |e| e.first));
        put_key(&mut directory, entries.last().map_or(OrderKey::MIN, |e| e.last));
        put(&mut directory, index.stored.get(&table).copied().unwrap_or(0));
        put_address(&mut directory, section);
    }
    let mut bytes = Vec::new();
    put(&mut bytes, index.fragments.len() as u64);
    for (at, place) in index.fragments.values() {
        put_fragment(&mut bytes, at);
        put_address(&mut bytes, *place);
    }
    let fragments = writer.append(FRAGMENT_INDEX, b"", Codec::Lz4, &bytes)?;
    bytes.clear();
    put(&mut bytes, index.metas.len() as u64);
    for meta in &index.metas {
        put(&mut bytes, meta.first.0);
        put(&mut bytes, meta.last.0);
        bytes.push(u8::from(meta.before));
        put_address(&mut bytes, meta.address);
    }
    let metas = writer.append(META_INDEX, b"", Codec::Lz4, &bytes)?;
    let (first, last) = index.bounds();
    let mut footer = Footer {
        directory: FrameAddress::default(),
        fragments,
        metas,
        first,
        last,
        base: base.0,
        base_ts: base.1,
    };
    footer.directory = writer.append(
        DIRECTORY,
        &encode_footer(&footer, &index.pins()),
        Codec::Lz4,
        &directory,
    )?;
    writer.end_group(b"")?;
    let bytes = writer.finish(footer.directory)?;
    Ok((footer, bytes))
}

fn encode_footer(footer: &Footer, pins: &[Pin]) -> Vec<u8> {
    let mut out = Vec::new();
    put_address(&mut out, footer.fragments);
    put_address(&mut out, footer.metas);
    put_key(&mut out, footer.first);
    put_key(&mut out, footer.last);
    put_address(&mut out, footer.base);
    put(&mut out, footer.base_ts.0);
    put(&mut out, pins.len() as u64);
    for pin in pins {
        put(&mut out, pin.segment);
        put(&mut out, u64::from(pin.table));
        put_key(&mut out, pin.last);
    }
    out
}

fn decode_footer(bytes: &[u8], directory: FrameAddress) -> Option<(Footer, Vec<Pin>)> {
    let mut input = Input::new(bytes);
    let footer = Footer {
        directory,
        fragments: address(&mut input)?,
        metas: address(&mut input)?,
        first: key(&mut input)?,
        last: key(&mut input)?,
        base: address(&mut input)?,
        base_ts: CommitTs(input.number()?),
    };
    let count = input.count()?;
    let mut pins = Vec::with_capacity(count);
    for _ in 0..count {
        pins.push(Pin {
            segment: input.number()?,
            table: input.small()?,
            last: key(&mut input)?,
        });
    }
    Some((footer, pins))
}

/// A footer as it is read when a store is opened.
pub(crate) struct ReadFooter {
    pub(crate) footer: Footer,
    pub(crate) tables: Arc<Vec<TablePointer>>,
    pub(crate) pins: Vec<Pin>,
}

pub(crate) fn read_footer(reader: &SegmentReader) -> Result<ReadFooter> {
    let at = reader.footer()?;
    let frame = reader.read(at)?;
    let parsed = decode_footer(&frame.head, at).zip(decode_directory(&frame.body));
    let Some(((footer, pins), tables)) = parsed.filter(|_| frame.kind == DIRECTORY) else {
        return Err(reader.corrupt(at.offset, "the footer is malformed").into());
    };
    Ok(ReadFooter {
        footer,
        tables: Arc::new(tables),
        pins,
    })
}
