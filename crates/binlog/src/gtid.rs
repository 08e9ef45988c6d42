//! Events that carry transaction identifiers.

use std::sync::Arc;

use weir_types::gtid::{GtidSource, TAG_LENGTH_MAX};
use weir_types::{Gtid, GtidSet, Xid};

use crate::cursor::Cursor;
use crate::xa::xid_text;

/// Type code before the logical timestamps of a GTID event.
const LOGICAL_TIMESTAMP_CODE: u8 = 2;
/// Version of the serialization format in a tagged GTID event (the byte 2 on the wire).
const TAGGED_FORMAT: u64 = 1;

/// Transaction flag: the transaction may hold statements besides rows.
pub const GTID_FLAG_MAY_HAVE_STATEMENTS: u8 = 1;

/// GTID_LOG_EVENT, ANONYMOUS_GTID_LOG_EVENT or GTID_TAGGED_LOG_EVENT: the start of a
/// MySQL transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GtidEvent<'a> {
    /// Server uuid of the origin; zeros in an anonymous one.
    pub uuid: [u8; 16],
    /// Tag, empty for none.
    pub tag: &'a str,
    /// Number, from 1; 0 in an anonymous one.
    pub number: u64,
    /// `GTID_FLAG_*`.
    pub flags: u8,
    /// Logical clock: the last transaction that must have committed before.
    pub last_committed: u64,
    /// Logical clock: this transaction.
    pub sequence_number: u64,
    /// Commit time at the origin, microseconds since the Unix epoch; 0 if not known.
    pub original_commit_micros: u64,
    /// Commit time at the server that wrote this binlog, microseconds since the Unix
    /// epoch; 0 if not known.
    pub immediate_commit_micros: u64,
    /// Bytes of the transaction, this event included; 0 if not known.
    pub transaction_length: u64,
}

impl<'a> GtidEvent<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut c = Cursor::new(body);
        let mut event = Self {
            flags: c.u8()?,
            uuid: c.array()?,
            tag: "",
            number: c.u64()?,
            last_committed: 0,
            sequence_number: 0,
            original_commit_micros: 0,
            immediate_commit_micros: 0,
            transaction_length: 0,
        };
        // Each further part is there from some release on.
        if c.is_empty() || c.u8()? != LOGICAL_TIMESTAMP_CODE {
            return Some(event);
        }
        event.last_committed = c.u64()?;
        event.sequence_number = c.u64()?;
        if c.is_empty() {
            return Some(event);
        }
        let immediate = c.u56()?;
        event.immediate_commit_micros = immediate & !(1 << 55);
        event.original_commit_micros = if immediate & (1 << 55) == 0 {
            immediate
        } else {
            c.u56()?
        };
        if !c.is_empty() {
            event.transaction_length = c.lenenc()?;
        }
        Some(event)
    }

    /// Format of `mysql::serialization`: version, size, last field that must be known,
    /// then fields as id and value.
    pub(crate) fn parse_tagged(body: &'a [u8]) -> Option<Self> {
        let mut c = Cursor::new(body);
        if c.varlen()? != TAGGED_FORMAT {
            return None;
        }
        let size = c.varlen()?;
        let must_know = c.varlen()?;
        let used = body.len() - c.len();
        let fields = usize::try_from(size).ok()?.checked_sub(used)?;
        let mut c = Cursor::new(c.take(fields)?);
        let mut event = Self {
            uuid: [0; 16],
            tag: "",
            number: 0,
            flags: 0,
            last_committed: 0,
            sequence_number: 0,
            original_commit_micros: 0,
            immediate_commit_micros: 0,
            transaction_length: 0,
        };
        let mut original = None;
        while !c.is_empty() {
            match c.varlen()? {
                0 => event.flags = u8::try_from(c.varlen()?).ok()?,
                1 => {
                    for byte in &mut event.uuid {
                        *byte = u8::try_from(c.varlen()?).ok()?;
                    }
                }
                2 => event.number = u64::try_from(c.varlen_signed()?).ok()?,
                3 => {
                    let length = c.varlen()?;
                    event.tag = tag_text(c.take_u64(length)?)?;
                }
                4 => event.last_committed = u64::try_from(c.varlen_signed()?).ok()?,
                5 => event.sequence_number = u64::try_from(c.varlen_signed()?).ok()?,
                6 => event.immediate_commit_micros = c.varlen()?,
                7 => original = Some(c.varlen()?),
                8 => event.transaction_length = c.varlen()?,
                // Server versions (9: immediate, 10: original) and the commit group
                // ticket: nothing depends on them.
                9..=11 => {
                    c.varlen()?;
                }
                // The length of a later field is not known, so nothing behind it can be
                // read either.
                unknown if unknown > must_know => break,
                _ => return None,
            }
        }
        event.original_commit_micros = original.unwrap_or(event.immediate_commit_micros);
        Some(event)
    }

    /// The identifier; `None` for an anonymous transaction.
    pub fn gtid(&self) -> Option<Gtid> {
        (self.number != 0).then(|| Gtid::Mysql {
            source: GtidSource {
                uuid: self.uuid,
                tag: Arc::from(self.tag),
            },
            number: self.number,
        })
    }
}

/// A tag in lower case: letters, digits and `_`.
fn tag_text(bytes: &[u8]) -> Option<&str> {
    let plain = bytes.len() <= TAG_LENGTH_MAX
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
    if plain {
        std::str::from_utf8(bytes).ok()
    } else {
        None
    }
}

/// PREVIOUS_GTIDS_LOG_EVENT. Since 8.3 the first eight bytes may hold a format number in
/// both outer bytes; format 1 has a tag behind each uuid.
pub(crate) fn parse_previous_gtids(body: &[u8]) -> Option<GtidSet> {
    let mut c = Cursor::new(body);
    let first = c.u64()?;
    let (tagged, sources) = match first >> 56 {
        0 => (false, first),
        1 => (true, (first >> 8) & 0xffff_ffff_ffff),
        _ => return None,
    };
    let mut set = GtidSet::default();
    for _ in 0..sources {
        let uuid = c.array()?;
        let tag = if tagged {
            let length = c.varlen()?;
            tag_text(c.take_u64(length)?)?
        } else {
            ""
        };
        let source = GtidSource {
            uuid,
            tag: Arc::from(tag),
        };
        for _ in 0..c.u64()? {
            let (start, end) = (c.u64()?, c.u64()?);
            // `end` is exclusive.
            if start == 0 || end <= start {
                return None;
            }
            set.insert_range(&source, start, end - 1);
        }
    }
    c.is_empty().then_some(set)
}

/// MariaDB group flag: no COMMIT or XID event follows (a DDL statement, mostly).
pub const FL_STANDALONE: u8 = 1;
/// MariaDB group flag: committed together with others; a commit id is there.
pub const FL_GROUP_COMMIT_ID: u8 = 2;
/// MariaDB group flag: only transactional tables.
pub const FL_TRANSACTIONAL: u8 = 4;
/// MariaDB group flag: may be applied in parallel.
pub const FL_ALLOW_PARALLEL: u8 = 8;
/// MariaDB group flag: waited for a row lock.
pub const FL_WAITED: u8 = 16;
/// MariaDB group flag: holds DDL.
pub const FL_DDL: u8 = 32;
/// MariaDB group flag: the rows of a prepared XA transaction.
pub const FL_PREPARED_XA: u8 = 64;
/// MariaDB group flag: XA COMMIT or XA ROLLBACK of a prepared transaction.
pub const FL_COMPLETED_XA: u8 = 128;

/// MariaDB extra flag: more than one engine takes part; a byte with their number.
const EXTRA_MULTI_ENGINE: u8 = 1;
/// MariaDB extra flag: first half of a two-phase ALTER.
pub const EXTRA_START_ALTER: u8 = 2;
/// MariaDB extra flag: second half of a two-phase ALTER.
pub const EXTRA_COMMIT_ALTER: u8 = 4;
/// MariaDB extra flag: a two-phase ALTER was rolled back.
pub const EXTRA_ROLLBACK_ALTER: u8 = 8;

/// MariaDB's GTID_EVENT: the start of an event group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MariadbGtid {
    /// Replication domain.
    pub domain: u32,
    /// Server id of the origin, from the event's header.
    pub server: u32,
    /// Sequence number in the domain.
    pub sequence: u64,
    /// Flags of the event's header.
    pub flags: u16,
    /// `FL_*`.
    pub flags2: u8,
    /// `EXTRA_*`.
    pub flags_extra: u8,
    /// Groups with the same id committed together.
    pub commit_id: Option<u64>,
    /// The XA transaction that was prepared or completed.
    pub xid: Option<Xid>,
    /// Sequence number of the first half that a second half of ALTER belongs to.
    pub start_alter_sequence: Option<u64>,
}

impl MariadbGtid {
    pub(crate) fn parse(body: &[u8], server: u32, flags: u16) -> Option<Self> {
        let mut c = Cursor::new(body);
        let (sequence, domain, flags2) = (c.u64()?, c.u32()?, c.u8()?);
        let commit_id = if flags2 & FL_GROUP_COMMIT_ID != 0 {
            Some(c.u64()?)
        } else {
            None
        };
        let xid = if flags2 & (FL_PREPARED_XA | FL_COMPLETED_XA) != 0 {
            let format = c.u32()?;
            let (global, branch) = (c.u8()?, c.u8()?);
            let (global, branch) = (c.take(global.into())?, c.take(branch.into())?);
            Some(xid_text(format, global, branch))
        } else {
            None
        };
        // Without a commit id the event is padded with zeros to the old length.
        let flags_extra = c.u8().unwrap_or(0);
        if flags_extra & EXTRA_MULTI_ENGINE != 0 {
            c.u8()?;
        }
        let start_alter_sequence = if flags_extra & (EXTRA_COMMIT_ALTER | EXTRA_ROLLBACK_ALTER) != 0 {
            Some(c.u64()?)
        } else {
            None
        };
        Some(Self {
            domain,
            server,
            sequence,
            flags,
            flags2,
            flags_extra,
            commit_id,
            xid,
            start_alter_sequence,
        })
    }

    /// The identifier.
    pub const fn gtid(&self) -> Gtid {
        Gtid::Mariadb {
            domain: self.domain,
            server: self.server,
            sequence: self.sequence,
        }
    }

    /// Whether the group is the first half of a two-phase ALTER. It holds the statement,
    /// but nothing has changed yet: the second half, which holds the statement again, says
    /// whether it was done (`is_rollback_alter`: it was not).
    pub const fn is_start_alter(&self) -> bool {
        self.flags_extra & EXTRA_START_ALTER != 0
    }

    /// Whether the group takes a two-phase ALTER back; `start_alter_sequence` names its
    /// first half.
    pub const fn is_rollback_alter(&self) -> bool {
        self.flags_extra & EXTRA_ROLLBACK_ALTER != 0
    }

    /// Whether the group has no COMMIT or XID event: it ends with its one statement.
    pub const fn is_standalone(&self) -> bool {
        self.flags2 & FL_STANDALONE != 0
    }
}

/// MariaDB's GTID_LIST_EVENT: what the files before this one hold, the last transaction
/// per domain and server, the newest of a domain last.
pub(crate) fn parse_gtid_list(body: &[u8]) -> Option<GtidSet> {
    let mut c = Cursor::new(body);
    // The four highest bits are flags.
    let count = c.u32()? & 0x0fff_ffff;
    let mut set = GtidSet::default();
    for _ in 0..count {
        let (domain, server, sequence) = (c.u32()?, c.u32()?, c.u64()?);
        set.insert(&Gtid::Mariadb {
            domain,
            server,
            sequence,
        });
    }
    Some(set)
}
