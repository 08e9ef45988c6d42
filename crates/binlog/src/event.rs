//! Events, decoded as far as no table is needed.

use weir_types::{GtidSet, RowKind};

use crate::compress::{TransactionPayload, parse_transaction_payload};
use crate::cursor::Cursor;
use crate::error::BinlogError;
use crate::event_type::EventType;
use crate::format::FormatDescription;
use crate::gtid::{GtidEvent, MariadbGtid, parse_gtid_list, parse_previous_gtids};
use crate::header::EventHeader;
use crate::query::{Query, UserVar};
use crate::table_map::TableMap;
use crate::xa::XaPrepare;

/// Flag of a row event: the last one of its statement.
pub const ROWS_FLAG_STATEMENT_END: u16 = 1;
/// Table ids of a row event without rows, which only ends its statement.
const DUMMY_TABLE_IDS: [u64; 2] = [0x00ff_ffff, 0xffff_ffff_ffff];

/// Flag of a row event: foreign key checks were off.
pub const ROWS_FLAG_NO_FOREIGN_KEY_CHECKS: u16 = 2;

/// A row event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    /// Insert, update or delete.
    pub kind: RowKind,
    /// Number of the table map that describes the rows.
    pub table_id: u64,
    /// `ROWS_FLAG_*`.
    pub flags: u16,
    /// The after images may hold JSON differences (PARTIAL_UPDATE_ROWS_EVENT).
    pub partial_json: bool,
    /// From the column count to the end: the body of `weir_types::block`.
    pub body: &'a [u8],
}

impl Rows<'_> {
    /// Whether the statement ends with this event.
    pub const fn is_statement_end(&self) -> bool {
        self.flags & ROWS_FLAG_STATEMENT_END != 0
    }

    /// Whether the event has no table map and no rows and only ends its statement: the
    /// server writes it where the last rows of a statement did not reach the binlog.
    pub fn is_dummy(&self) -> bool {
        DUMMY_TABLE_IDS.contains(&self.table_id)
    }

    /// The flags that `weir_types::block` keeps.
    pub const fn block_flags(&self) -> u8 {
        let mut flags = 0;
        if self.partial_json {
            flags |= weir_types::block::FLAG_PARTIAL_JSON;
        }
        if self.flags & ROWS_FLAG_NO_FOREIGN_KEY_CHECKS != 0 {
            flags |= weir_types::block::FLAG_NO_FOREIGN_KEY_CHECKS;
        }
        flags
    }
}

/// ROTATE_EVENT: the next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotate<'a> {
    /// Offset in the next file.
    pub position: u64,
    /// Name of the next file, without folder.
    pub file: &'a [u8],
}

/// INCIDENT_EVENT: the server may have lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident<'a> {
    /// Number of the incident; 1 is lost events.
    pub number: u16,
    /// Message of the server.
    pub message: &'a [u8],
}

/// Heartbeat: where the server stands while it has nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// Name of the binlog file.
    pub file: &'a [u8],
    /// Offset in the file. Of the first form only the lower 32 bits are known, from the
    /// header.
    pub position: u64,
}

impl<'a> Heartbeat<'a> {
    const fn first_form(header: &EventHeader, body: &'a [u8]) -> Self {
        Self {
            file: body,
            position: header.end_log_pos as u64,
        }
    }
}

/// Why an event is read over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredReason {
    /// Marked by the server as safe to skip.
    MarkedIgnorable,
    /// Certification data of group replication; the transaction itself follows as usual.
    GroupReplication,
}

/// Why an event stands for a change that rows do not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementPart {
    /// `LOAD DATA` under statement format.
    LoadData,
    /// LAST_INSERT_ID or INSERT_ID of the next statement.
    IntVar,
    /// Seed of RAND() in the next statement.
    Rand,
}

/// An event. Texts and row bodies are borrowed from the event's bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// Who wrote the binlog and how.
    FormatDescription(Box<FormatDescription>),
    /// The file ends; the next one is named.
    Rotate(Rotate<'a>),
    /// The server stopped; the file ends.
    Stop,
    /// Transactions in all files before this one (MySQL).
    PreviousGtids(GtidSet),
    /// A transaction starts (tagged or not).
    Gtid(GtidEvent<'a>),
    /// A transaction without identifier starts.
    AnonymousGtid(GtidEvent<'a>),
    /// An event group starts (MariaDB).
    MariadbGtid(Box<MariadbGtid>),
    /// Last transactions in all files before this one (MariaDB).
    GtidList(GtidSet),
    /// A statement: BEGIN, COMMIT, XA …, SAVEPOINT, DDL, or DML in statement format.
    Query(Box<Query<'a>>),
    /// A statement whose text is compressed (MariaDB).
    QueryCompressed(Box<Query<'a>>),
    /// Commit of a transaction, with its number.
    Xid(u64),
    /// An XA transaction was prepared, or committed in one phase (MySQL).
    XaPrepare(XaPrepare),
    /// Describes the rows that follow under its table id.
    TableMap(TableMap<'a>),
    /// Row changes.
    Rows(Rows<'a>),
    /// Row changes whose rows are compressed (MariaDB): see `compress::inflate_rows`.
    RowsCompressed(Rows<'a>),
    /// Text of the statement whose rows follow (MySQL).
    RowsQuery(&'a [u8]),
    /// Text of the statement whose rows follow (MariaDB).
    AnnotateRows(&'a [u8]),
    /// A whole transaction, compressed (MySQL): see `compress::PayloadReader`.
    TransactionPayload(TransactionPayload<'a>),
    /// The server is alive.
    Heartbeat(Heartbeat<'a>),
    /// Part of a statement-format change; the caller reports it.
    Statement(StatementPart),
    /// A user variable of the next statement; part of a statement-format change.
    UserVar(UserVar<'a>),
    /// Events may be lost.
    Incident(Incident<'a>),
    /// What follows in this file is encrypted (MariaDB); on the wire it is not.
    StartEncryption,
    /// Oldest file that crash recovery of the server needs (MariaDB).
    BinlogCheckpoint(&'a [u8]),
    /// Read over, with the reason.
    Ignored(IgnoredReason),
}

impl<'a> Event<'a> {
    /// Decodes the body: behind the header, without checksum.
    ///
    /// # Errors
    /// `MalformedEvent`, `UnknownEvent`, `UnsupportedFormat`; `Malformed` for another
    /// event than FORMAT_DESCRIPTION, ROTATE or a heartbeat without `format`.
    pub fn decode(
        header: &EventHeader,
        body: &'a [u8],
        format: Option<&FormatDescription>,
    ) -> Result<Self, BinlogError> {
        let Some(event_type) = header.event_type()? else {
            return Ok(Self::Ignored(IgnoredReason::MarkedIgnorable));
        };
        check_format(event_type, format)?;
        if let Some(what) = outdated(event_type) {
            return Err(BinlogError::UnsupportedFormat { what });
        }
        Self::read(event_type, header, body, format).ok_or_else(|| BinlogError::MalformedEvent {
            event: event_type.name(),
            length: body.len(),
        })
    }

    /// Every type by name; where one is read over, the reason stands in `IgnoredReason`
    /// or `StatementPart`.
    fn read(
        event_type: EventType,
        header: &EventHeader,
        body: &'a [u8],
        format: Option<&FormatDescription>,
    ) -> Option<Self> {
        use EventType as T;
        let v1 = |kind| parse_rows(kind, Extra::None, body);
        let v2 = |kind| parse_rows(kind, Extra::Sized, body);
        match event_type {
            T::FormatDescription => format.map(|f| Self::FormatDescription(Box::new(f.clone()))),
            T::Rotate => parse_rotate(body).map(Self::Rotate),
            T::Stop => Some(Self::Stop),
            T::PreviousGtids => parse_previous_gtids(body).map(Self::PreviousGtids),
            T::Gtid => GtidEvent::parse(body).map(Self::Gtid),
            T::GtidTagged => GtidEvent::parse_tagged(body).map(Self::Gtid),
            T::AnonymousGtid => GtidEvent::parse(body).map(Self::AnonymousGtid),
            T::MariadbGtid => MariadbGtid::parse(body, header.server_id, header.flags)
                .map(|gtid| Self::MariadbGtid(Box::new(gtid))),
            T::GtidList => parse_gtid_list(body).map(Self::GtidList),
            T::Query => Query::parse(body).map(|query| Self::Query(Box::new(query))),
            T::QueryCompressed => Query::parse(body).map(|query| Self::QueryCompressed(Box::new(query))),
            T::Xid => Cursor::new(body).u64().map(Self::Xid),
            T::XaPrepare => XaPrepare::parse(body).map(Self::XaPrepare),
            T::TableMap => TableMap::parse(body).map(Self::TableMap),
            T::WriteRowsV1 => v1(RowKind::Insert).map(Self::Rows),
            T::UpdateRowsV1 => v1(RowKind::Update).map(Self::Rows),
            T::DeleteRowsV1 => v1(RowKind::Delete).map(Self::Rows),
            T::WriteRows => v2(RowKind::Insert).map(Self::Rows),
            T::UpdateRows => v2(RowKind::Update).map(Self::Rows),
            T::DeleteRows => v2(RowKind::Delete).map(Self::Rows),
            T::PartialUpdateRows => parse_partial_rows(body).map(Self::Rows),
            T::WriteRowsCompressedV1 => v1(RowKind::Insert).map(Self::RowsCompressed),
            T::UpdateRowsCompressedV1 => v1(RowKind::Update).map(Self::RowsCompressed),
            T::DeleteRowsCompressedV1 => v1(RowKind::Delete).map(Self::RowsCompressed),
            T::WriteRowsCompressed => v2(RowKind::Insert).map(Self::RowsCompressed),
            T::UpdateRowsCompressed => v2(RowKind::Update).map(Self::RowsCompressed),
            T::DeleteRowsCompressed => v2(RowKind::Delete).map(Self::RowsCompressed),
            // The length in the first byte is cut to 8 bits; the text goes to the end.
            T::RowsQuery => body.get(1..).map(Self::RowsQuery),
            T::AnnotateRows => Some(Self::AnnotateRows(body)),
            T::TransactionPayload => parse_transaction_payload(body).map(Self::TransactionPayload),
            T::Heartbeat => Some(Self::Heartbeat(Heartbeat::first_form(header, body))),
            T::HeartbeatV2 => parse_heartbeat(body).map(Self::Heartbeat),
            T::IntVar => Some(Self::Statement(StatementPart::IntVar)),
            T::Rand => Some(Self::Statement(StatementPart::Rand)),
            T::UserVar => UserVar::parse(body).map(Self::UserVar),
            T::BeginLoadQuery | T::ExecuteLoadQuery | T::AppendBlock | T::DeleteFile => {
                Some(Self::Statement(StatementPart::LoadData))
            }
            T::Incident => parse_incident(body).map(Self::Incident),
            T::StartEncryption => Some(Self::StartEncryption),
            T::BinlogCheckpoint => parse_checkpoint(body).map(Self::BinlogCheckpoint),
            T::Ignorable => Some(Self::Ignored(IgnoredReason::MarkedIgnorable)),
            T::TransactionContext | T::ViewChange => Some(Self::Ignored(IgnoredReason::GroupReplication)),
            // Refused by `outdated`.
            T::Unknown
            | T::StartV3
            | T::Load
            | T::Slave
            | T::CreateFile
            | T::ExecLoad
            | T::NewLoad
            | T::PreGaWriteRows
            | T::PreGaUpdateRows
            | T::PreGaDeleteRows => None,
        }
    }
}

/// Name of a type that releases before MySQL 5.1 wrote, or that no server writes.
const fn outdated(event_type: EventType) -> Option<&'static str> {
    let outdated = matches!(
        event_type,
        EventType::Unknown
            | EventType::StartV3
            | EventType::Load
            | EventType::Slave
            | EventType::CreateFile
            | EventType::ExecLoad
            | EventType::NewLoad
            | EventType::PreGaWriteRows
            | EventType::PreGaUpdateRows
            | EventType::PreGaDeleteRows
    );
    if outdated { Some(event_type.name()) } else { None }
}

/// Only what the wire sends before a format description may come without one.
fn check_format(event_type: EventType, format: Option<&FormatDescription>) -> Result<(), BinlogError> {
    let early = matches!(
        event_type,
        EventType::FormatDescription | EventType::Rotate | EventType::Heartbeat | EventType::HeartbeatV2
    );
    if format.is_some() || early {
        Ok(())
    } else {
        Err(BinlogError::Malformed {
            what: "event before the format description",
        })
    }
}

/// Whether the post-header of a row event ends with extra data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    /// Version 1: no.
    None,
    /// Version 2: a length and as many bytes.
    Sized,
}

fn parse_rows(kind: RowKind, extra: Extra, body: &[u8]) -> Option<Rows<'_>> {
    let mut c = Cursor::new(body);
    let (table_id, flags) = (c.u48()?, c.u16()?);
    if extra == Extra::Sized {
        // The length counts its own two bytes. Extra data (NDB, partition ids) say
        // nothing about values.
        let length = usize::from(c.u16()?).checked_sub(2)?;
        c.take(length)?;
    }
    Some(Rows {
        kind,
        table_id,
        flags,
        partial_json: false,
        body: c.take_rest(),
    })
}

fn parse_partial_rows(body: &[u8]) -> Option<Rows<'_>> {
    let rows = parse_rows(RowKind::Update, Extra::Sized, body)?;
    Some(Rows {
        partial_json: true,
        ..rows
    })
}

pub(crate) fn parse_rotate(body: &[u8]) -> Option<Rotate<'_>> {
    let mut c = Cursor::new(body);
    Some(Rotate {
        position: c.u64()?,
        file: c.take_rest(),
    })
}

fn parse_incident(body: &[u8]) -> Option<Incident<'_>> {
    let mut c = Cursor::new(body);
    Some(Incident {
        number: c.u16()?,
        message: c.short_bytes()?,
    })
}

fn parse_checkpoint(body: &[u8]) -> Option<&[u8]> {
    let mut c = Cursor::new(body);
    let length = c.u32()?;
    c.take(length as usize)
}

/// HEARTBEAT_LOG_EVENT_V2: fields as type, length, value; 0 ends, 1 is the file name, 2
/// the offset.
fn parse_heartbeat(body: &[u8]) -> Option<Heartbeat<'_>> {
    let mut c = Cursor::new(body);
    let mut heartbeat = Heartbeat {
        file: &[],
        position: 0,
    };
    while !c.is_empty() {
        match c.lenenc()? {
            0 => break,
            1 => heartbeat.file = c.lenenc_bytes()?,
            2 => heartbeat.position = Cursor::new(c.lenenc_bytes()?).lenenc()?,
            _ => drop(c.lenenc_bytes()?),
        }
    }
    Some(heartbeat)
}
