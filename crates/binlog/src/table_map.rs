//! TABLE_MAP_EVENT: what the rows that follow look like (MySQL source documentation,
//! `Table_map_event`).

use crate::cursor::Cursor;

/// A table map, taken apart but not yet decoded per column: cheap enough to be read
/// before every row event. `version::to_version` or `cache::TableMapCache` decode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMap<'a> {
    /// Number that the row events name.
    pub table_id: u64,
    /// Flags of the event.
    pub flags: u16,
    /// Schema name, utf8.
    pub schema: &'a [u8],
    /// Table name, utf8.
    pub table: &'a [u8],
    /// One type number per column.
    pub types: &'a [u8],
    /// Lengths and the like, of the types that have them.
    pub metadata: &'a [u8],
    /// Bitmap of nullable columns, lowest bit first.
    pub nullable: &'a [u8],
    /// Optional metadata (`binlog_row_metadata`).
    pub optional: &'a [u8],
    /// Everything behind table id and flags: equal bytes mean an equal table version.
    pub shape: &'a [u8],
}

impl<'a> TableMap<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut c = Cursor::new(body);
        let (table_id, flags) = (c.u48()?, c.u16()?);
        let shape = c.rest();
        let schema = terminated(&mut c)?;
        let table = terminated(&mut c)?;
        let columns = usize::try_from(c.lenenc()?).ok()?;
        let types = c.take(columns)?;
        let metadata = c.lenenc_bytes()?;
        let nullable = c.take(columns.div_ceil(8))?;
        Some(Self {
            table_id,
            flags,
            schema,
            table,
            types,
            metadata,
            nullable,
            optional: c.take_rest(),
            shape,
        })
    }

    /// `schema.table` for messages.
    pub fn display_name(&self) -> String {
        format!(
            "{}.{}",
            String::from_utf8_lossy(self.schema),
            String::from_utf8_lossy(self.table)
        )
    }

    /// The optional metadata, split by field.
    pub(crate) fn optional_metadata(&self) -> Option<OptionalMetadata<'a>> {
        OptionalMetadata::parse(self.optional)
    }
}

/// A length byte, as many bytes, and a zero byte.
fn terminated<'a>(c: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let name = c.short_bytes()?;
    (c.u8()? == 0).then_some(name)
}

/// Optional metadata by field, each as the server packed it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OptionalMetadata<'a> {
    /// Bitmap over numeric columns, highest bit first.
    pub(crate) signedness: Option<&'a [u8]>,
    /// Default collation, then pairs of index and collation of character columns.
    pub(crate) default_charset: Option<&'a [u8]>,
    /// Collation of each character column.
    pub(crate) column_charset: Option<&'a [u8]>,
    /// Name of each column.
    pub(crate) column_names: Option<&'a [u8]>,
    /// Members of each SET column.
    pub(crate) set_members: Option<&'a [u8]>,
    /// Members of each ENUM column.
    pub(crate) enum_members: Option<&'a [u8]>,
    /// Geometry type of each GEOMETRY column.
    pub(crate) geometry_types: Option<&'a [u8]>,
    /// Column indexes of the primary key.
    pub(crate) simple_primary_key: Option<&'a [u8]>,
    /// Column indexes and prefix lengths of the primary key.
    pub(crate) primary_key_with_prefix: Option<&'a [u8]>,
    /// As `default_charset`, of ENUM and SET columns.
    pub(crate) enum_set_default_charset: Option<&'a [u8]>,
    /// As `column_charset`, of ENUM and SET columns.
    pub(crate) enum_set_column_charset: Option<&'a [u8]>,
    /// Bitmap over all columns, highest bit first.
    pub(crate) visibility: Option<&'a [u8]>,
}

impl<'a> OptionalMetadata<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut c = Cursor::new(bytes);
        let mut m = Self::default();
        while !c.is_empty() {
            let field = c.u8()?;
            let value = Some(c.lenenc_bytes()?);
            match field {
                1 => m.signedness = value,
                2 => m.default_charset = value,
                3 => m.column_charset = value,
                4 => m.column_names = value,
                5 => m.set_members = value,
                6 => m.enum_members = value,
                7 => m.geometry_types = value,
                8 => m.simple_primary_key = value,
                9 => m.primary_key_with_prefix = value,
                10 => m.enum_set_default_charset = value,
                11 => m.enum_set_column_charset = value,
                12 => m.visibility = value,
                // 13 is the dimensions of VECTOR columns: the bytes of a value say it
                // too. Fields of later releases add to what is known; none changes how
                // rows are laid out.
                _ => {}
            }
        }
        Some(m)
    }
}
