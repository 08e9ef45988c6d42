//! QUERY_EVENT: a statement with the session settings it depends on.

use crate::cursor::Cursor;

/// Charset settings of the session: collation ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryCharset {
    /// `character_set_client`.
    pub client: u16,
    /// `collation_connection`.
    pub connection: u16,
    /// `collation_server`.
    pub server: u16,
}

/// Settings that the status variables of a query event carry; those that Weir has no
/// use for are read over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuerySettings<'a> {
    /// `OPTION_*` bits (foreign key checks and so on).
    pub flags2: Option<u32>,
    /// `sql_mode` bits.
    pub sql_mode: Option<u64>,
    /// Charset of the session.
    pub charset: Option<QueryCharset>,
    /// `time_zone`; only there if the statement depends on it.
    pub time_zone: Option<&'a [u8]>,
    /// `auto_increment_increment` and `auto_increment_offset`.
    pub auto_increment: Option<(u16, u16)>,
    /// Collation of the default schema.
    pub schema_collation: Option<u16>,
    /// Collation that `utf8mb4` stands for (MySQL).
    pub utf8mb4_collation: Option<u16>,
    /// `explicit_defaults_for_timestamp`.
    pub explicit_defaults_for_timestamp: Option<bool>,
    /// Microseconds of the statement's start time.
    pub micros: Option<u32>,
    /// Transaction number of a DDL statement: MySQL's atomic DDL, MariaDB's crash-safe
    /// DDL.
    pub ddl_xid: Option<u64>,
    /// MariaDB's pairs of charset and default collation
    /// (`character_set_collations`), as the server packed them: 2 + 2 bytes each.
    pub charset_collations: Option<&'a [u8]>,
    /// First status variable that is not known. Those behind it could not be read.
    pub unknown: Option<u8>,
}

/// QUERY_EVENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Connection id at the origin.
    pub thread: u32,
    /// Seconds that the statement took.
    pub exec_seconds: u32,
    /// Error code that the statement is expected to give; 0 for none.
    pub error_code: u16,
    /// Default schema, empty for none; utf8.
    pub schema: &'a [u8],
    /// Session settings.
    pub settings: QuerySettings<'a>,
    /// Text in the session's client charset. For MariaDB's QUERY_COMPRESSED_EVENT the
    /// compressed text: see `compress::inflate_query`.
    pub sql: &'a [u8],
}

impl<'a> Query<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut c = Cursor::new(body);
        let (thread, exec_seconds) = (c.u32()?, c.u32()?);
        let schema_length = c.u8()?;
        let error_code = c.u16()?;
        let variables_length = c.u16()?;
        let settings = parse_settings(c.take(variables_length.into())?)?;
        let schema = c.take(schema_length.into())?;
        if c.u8()? != 0 {
            return None;
        }
        Some(Self {
            thread,
            exec_seconds,
            error_code,
            schema,
            settings,
            sql: c.take_rest(),
        })
    }
}

/// Codes of the status variables (MySQL `Query_event_status_vars`; from 128 on
/// MariaDB's).
mod code {
    pub(super) const FLAGS2: u8 = 0;
    pub(super) const SQL_MODE: u8 = 1;
    pub(super) const CATALOG: u8 = 2;
    pub(super) const AUTO_INCREMENT: u8 = 3;
    pub(super) const CHARSET: u8 = 4;
    pub(super) const TIME_ZONE: u8 = 5;
    pub(super) const CATALOG_NZ: u8 = 6;
    pub(super) const LC_TIME_NAMES: u8 = 7;
    pub(super) const CHARSET_DATABASE: u8 = 8;
    pub(super) const TABLE_MAP_FOR_UPDATE: u8 = 9;
    pub(super) const MASTER_DATA_WRITTEN: u8 = 10;
    pub(super) const INVOKER: u8 = 11;
    pub(super) const UPDATED_SCHEMAS: u8 = 12;
    pub(super) const MICROSECONDS: u8 = 13;
    pub(super) const EXPLICIT_DEFAULTS: u8 = 16;
    pub(super) const DDL_XID: u8 = 17;
    pub(super) const UTF8MB4_COLLATION: u8 = 18;
    pub(super) const REQUIRE_PRIMARY_KEY: u8 = 19;
    pub(super) const TABLE_ENCRYPTION: u8 = 20;
    pub(super) const CASCADE_TRIGGERS: u8 = 21;
    pub(super) const HRNOW: u8 = 128;
    pub(super) const XID: u8 = 129;
    pub(super) const GTID_FLAGS3: u8 = 130;
    pub(super) const CHARACTER_SET_COLLATIONS: u8 = 131;
}

/// Count of updated schemas that stands for "too many to list".
const UPDATED_SCHEMAS_OVER: u8 = 254;

fn parse_settings(bytes: &[u8]) -> Option<QuerySettings<'_>> {
    let mut c = Cursor::new(bytes);
    let mut s = QuerySettings::default();
    while !c.is_empty() {
        match c.u8()? {
            code::FLAGS2 => s.flags2 = Some(c.u32()?),
            code::SQL_MODE => s.sql_mode = Some(c.u64()?),
            code::CATALOG => {
                c.short_bytes()?;
                c.u8()?;
            }
            code::AUTO_INCREMENT => s.auto_increment = Some((c.u16()?, c.u16()?)),
            code::CHARSET => {
                s.charset = Some(QueryCharset {
                    client: c.u16()?,
                    connection: c.u16()?,
                    server: c.u16()?,
                });
            }
            code::TIME_ZONE => s.time_zone = Some(c.short_bytes()?),
            code::CATALOG_NZ => drop(c.short_bytes()?),
            code::LC_TIME_NAMES => drop(c.u16()?),
            code::CHARSET_DATABASE => s.schema_collation = Some(c.u16()?),
            code::TABLE_MAP_FOR_UPDATE => drop(c.u64()?),
            code::MASTER_DATA_WRITTEN => drop(c.u32()?),
            code::INVOKER => {
                c.short_bytes()?;
                c.short_bytes()?;
            }
            code::UPDATED_SCHEMAS => skip_updated_schemas(&mut c)?,
            code::MICROSECONDS | code::HRNOW => s.micros = Some(c.u24()?),
            code::EXPLICIT_DEFAULTS => s.explicit_defaults_for_timestamp = Some(c.u8()? != 0),
            code::DDL_XID | code::XID => s.ddl_xid = Some(c.u64()?),
            code::UTF8MB4_COLLATION => s.utf8mb4_collation = Some(c.u16()?),
            code::REQUIRE_PRIMARY_KEY | code::TABLE_ENCRYPTION | code::CASCADE_TRIGGERS => drop(c.u8()?),
            code::GTID_FLAGS3 => {
                let flags = c.u8()?;
                if flags & (crate::gtid::EXTRA_COMMIT_ALTER | crate::gtid::EXTRA_ROLLBACK_ALTER) != 0 {
                    c.u64()?;
                }
            }
            code::CHARACTER_SET_COLLATIONS => {
                let count = c.u8()?;
                s.charset_collations = Some(c.take(usize::from(count) * 4)?);
            }
            unknown => {
                s.unknown = Some(unknown);
                break;
            }
        }
    }
    Some(s)
}

fn skip_updated_schemas(c: &mut Cursor<'_>) -> Option<()> {
    let count = c.u8()?;
    if count == UPDATED_SCHEMAS_OVER {
        return Some(());
    }
    for _ in 0..count {
        let end = memchr::memchr(0, c.rest())?;
        c.take(end + 1)?;
    }
    Some(())
}

/// USER_VAR_EVENT: a user variable that the next statement reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserVar<'a> {
    /// Name without `@`.
    pub name: &'a [u8],
    /// Whether the value is NULL.
    pub is_null: bool,
}

impl<'a> UserVar<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut c = Cursor::new(body);
        let length = c.u32()?;
        Some(Self {
            name: c.take(length as usize)?,
            is_null: c.u8()? != 0,
        })
    }
}
