//! From a table map to the table version that travels with the rows.

use std::sync::Arc;

use weir_types::table::BINARY_COLLATION;
use weir_types::{Column, Flavor, TableName, TableVersion, WireType};

use crate::cursor::{Cursor, bit_high_first, bit_low_first};
use crate::error::BinlogError;
use crate::table_map::{OptionalMetadata, TableMap};

/// Type numbers on the wire (`enum_field_types`).
mod number {
    pub(super) const DECIMAL: u8 = 0;
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const NULL: u8 = 6;
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const DATE: u8 = 10;
    pub(super) const TIME: u8 = 11;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const YEAR: u8 = 13;
    pub(super) const NEWDATE: u8 = 14;
    pub(super) const VARCHAR: u8 = 15;
    pub(super) const BIT: u8 = 16;
    pub(super) const TIMESTAMP2: u8 = 17;
    pub(super) const DATETIME2: u8 = 18;
    pub(super) const TIME2: u8 = 19;
    pub(super) const TYPED_ARRAY: u8 = 20;
    pub(super) const BLOB_COMPRESSED: u8 = 140;
    pub(super) const VARCHAR_COMPRESSED: u8 = 141;
    pub(super) const VECTOR: u8 = 242;
    pub(super) const JSON: u8 = 245;
    pub(super) const NEWDECIMAL: u8 = 246;
    pub(super) const ENUM: u8 = 247;
    pub(super) const SET: u8 = 248;
    pub(super) const TINY_BLOB: u8 = 249;
    pub(super) const MEDIUM_BLOB: u8 = 250;
    pub(super) const LONG_BLOB: u8 = 251;
    pub(super) const BLOB: u8 = 252;
    pub(super) const VAR_STRING: u8 = 253;
    pub(super) const STRING: u8 = 254;
    pub(super) const GEOMETRY: u8 = 255;
}

/// Most digits of a DECIMAL, and most of them behind the point.
const DECIMAL_PRECISION_MAX: u8 = 65;
const DECIMAL_SCALE_MAX: u8 = 38;
/// Most fraction digits of a temporal value.
const FRACTION_DIGITS_MAX: u8 = 6;
/// Most bits of a BIT column.
const BITS_MAX: u16 = 64;

/// What a table map without column names says. What the server left out of it is as in a
/// column without: signed, binary, of no members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareVersion {
    /// Columns in the order of the rows, without names.
    pub columns: Vec<Column>,
    /// `unsigned` is as the server said.
    pub has_signedness: bool,
    /// Collations of strings are as the server said.
    pub has_collations: bool,
    /// Collations of ENUM and SET columns are as the server said.
    pub has_list_collations: bool,
    /// `geometry` is as the server said.
    pub has_geometry_types: bool,
}

/// Why a type cannot be decoded.
enum TypeError {
    /// Its metadata is cut or out of range.
    Metadata,
    /// It is not supported.
    Unsupported(&'static str),
}

impl TableMap<'_> {
    /// Decodes the table map.
    ///
    /// # Errors
    /// `NoColumnNames` without `binlog_row_metadata=FULL`; `UnsupportedType`;
    /// `Metadata` where the optional metadata do not fit the columns.
    pub fn to_version(&self, flavor: Flavor) -> Result<TableVersion, BinlogError> {
        let bad = |what| BinlogError::Metadata {
            table: self.display_name(),
            what,
        };
        let optional = self.optional_metadata().ok_or_else(|| bad("optional metadata"))?;
        let Some(names) = optional.column_names else {
            return Err(BinlogError::NoColumnNames {
                table: self.display_name(),
            });
        };
        let mut columns = self.bare_columns(Some(names))?;
        fill_signedness(&mut columns, &optional);
        fill_charsets(&mut columns, &optional, flavor).ok_or_else(|| bad("charset"))?;
        fill_members(&mut columns, &optional).ok_or_else(|| bad("members of ENUM or SET"))?;
        fill_geometry(&mut columns, &optional).ok_or_else(|| bad("geometry type"))?;
        if let Some(bitmap) = optional.visibility {
            for (at, column) in columns.iter_mut().enumerate() {
                column.visible = bit_high_first(bitmap, at);
            }
        }
        let primary_key = primary_key(&optional, columns.len()).ok_or_else(|| bad("primary key"))?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| bad("name that is not utf8"));
        Ok(TableVersion {
            name: TableName::new(text(self.schema)?, text(self.table)?),
            flavor,
            columns,
            primary_key,
        })
    }

    /// Whether the table map names its columns (`binlog_row_metadata=FULL`).
    pub fn has_names(&self) -> bool {
        self.optional_metadata()
            .is_none_or(|optional| optional.column_names.is_some())
    }

    /// Decodes a table map without names, as far as it goes (`binlog_row_metadata` of
    /// `MINIMAL` and `NO_LOG`).
    ///
    /// # Errors
    /// `UnsupportedType`; `Metadata` where the optional metadata do not fit the columns.
    pub fn to_bare_version(&self, flavor: Flavor) -> Result<BareVersion, BinlogError> {
        let bad = |what| BinlogError::Metadata {
            table: self.display_name(),
            what,
        };
        let optional = self.optional_metadata().ok_or_else(|| bad("optional metadata"))?;
        let mut columns = self.bare_columns(None)?;
        fill_signedness(&mut columns, &optional);
        fill_charsets(&mut columns, &optional, flavor).ok_or_else(|| bad("charset"))?;
        fill_geometry(&mut columns, &optional).ok_or_else(|| bad("geometry type"))?;
        Ok(BareVersion {
            columns,
            has_signedness: optional.signedness.is_some(),
            has_collations: optional.default_charset.is_some() || optional.column_charset.is_some(),
            has_list_collations: optional.enum_set_default_charset.is_some()
                || optional.enum_set_column_charset.is_some(),
            has_geometry_types: optional.geometry_types.is_some(),
        })
    }

    /// Names, types and nullability.
    fn bare_columns(&self, names: Option<&[u8]>) -> Result<Vec<Column>, BinlogError> {
        let bad = |what| BinlogError::Metadata {
            table: self.display_name(),
            what,
        };
        let mut names = names.map(Cursor::new);
        let mut metadata = Cursor::new(self.metadata);
        let mut columns = Vec::with_capacity(self.types.len());
        for (at, type_number) in self.types.iter().enumerate() {
            let name = match &mut names {
                Some(names) => names.lenenc_bytes().ok_or_else(|| bad("number of names"))?,
                None => &[],
            };
            let name = std::str::from_utf8(name).map_err(|_| bad("name that is not utf8"))?;
            let (wire, meta) = wire_type(*type_number, &mut metadata).map_err(|error| match error {
                TypeError::Metadata => bad("type metadata"),
                TypeError::Unsupported(type_name) => BinlogError::UnsupportedType {
                    table: self.display_name(),
                    column: match name {
                        "" => format!("{}", at + 1),
                        name => format!("`{name}`"),
                    },
                    type_name,
                },
            })?;
            columns.push(Column {
                name: Arc::from(name),
                wire,
                meta,
                nullable: bit_low_first(self.nullable, at),
                unsigned: false,
                collation: 0,
                members: Vec::new(),
                geometry: 0,
                visible: true,
            });
        }
        if names.is_some_and(|names| !names.is_empty()) {
            return Err(bad("number of names"));
        }
        if !metadata.is_empty() {
            return Err(bad("type metadata"));
        }
        Ok(columns)
    }
}

/// Type and `Column::meta` of one column; moves over its bytes of metadata.
fn wire_type(type_number: u8, metadata: &mut Cursor<'_>) -> Result<(WireType, u16), TypeError> {
    use TypeError::Unsupported;
    let wire = match type_number {
        number::TINY => (WireType::Tiny, 0),
        number::SHORT => (WireType::Short, 0),
        number::INT24 => (WireType::Int24, 0),
        number::LONG => (WireType::Long, 0),
        number::LONGLONG => (WireType::LongLong, 0),
        number::YEAR => (WireType::Year, 0),
        number::DATE | number::NEWDATE => (WireType::Date, 0),
        number::TIME => (WireType::Time, 0),
        number::DATETIME => (WireType::Datetime, 0),
        number::TIMESTAMP => (WireType::Timestamp, 0),
        number::FLOAT => (WireType::Float, one(metadata, 4..=4)?),
        number::DOUBLE => (WireType::Double, one(metadata, 8..=8)?),
        number::TIME2 => (WireType::Time2, one(metadata, 0..=FRACTION_DIGITS_MAX)?),
        number::DATETIME2 => (WireType::Datetime2, one(metadata, 0..=FRACTION_DIGITS_MAX)?),
        number::TIMESTAMP2 => (WireType::Timestamp2, one(metadata, 0..=FRACTION_DIGITS_MAX)?),
        number::BLOB | number::TINY_BLOB | number::MEDIUM_BLOB | number::LONG_BLOB => {
            (WireType::Blob, one(metadata, 1..=4)?)
        }
        number::JSON => (WireType::Json, one(metadata, 1..=4)?),
        number::GEOMETRY => (WireType::Geometry, one(metadata, 1..=4)?),
        number::VECTOR => (WireType::Vector, one(metadata, 1..=4)?),
        number::BLOB_COMPRESSED => (WireType::BlobCompressed, one(metadata, 1..=4)?),
        number::VARCHAR | number::VAR_STRING => (WireType::VarChar, two(metadata)?),
        number::VARCHAR_COMPRESSED => (WireType::VarCharCompressed, two(metadata)?),
        number::NEWDECIMAL => (WireType::NewDecimal, decimal(metadata)?),
        number::BIT => (WireType::Bit, bits(metadata)?),
        number::STRING | number::ENUM | number::SET => return string_type(metadata),
        number::DECIMAL => return Err(Unsupported("DECIMAL of a release before MySQL 5.0")),
        number::NULL => return Err(Unsupported("NULL")),
        number::TYPED_ARRAY => return Err(Unsupported("TYPED_ARRAY")),
        _ => return Err(Unsupported("a type that this release does not know")),
    };
    Ok(wire)
}

fn one(metadata: &mut Cursor<'_>, range: std::ops::RangeInclusive<u8>) -> Result<u16, TypeError> {
    let byte = metadata.u8().ok_or(TypeError::Metadata)?;
    if range.contains(&byte) {
        Ok(byte.into())
    } else {
        Err(TypeError::Metadata)
    }
}

fn two(metadata: &mut Cursor<'_>) -> Result<u16, TypeError> {
    metadata.u16().ok_or(TypeError::Metadata)
}

fn decimal(metadata: &mut Cursor<'_>) -> Result<u16, TypeError> {
    let [precision, scale] = metadata.array().ok_or(TypeError::Metadata)?;
    let fits =
        (1..=DECIMAL_PRECISION_MAX).contains(&precision) && scale <= DECIMAL_SCALE_MAX && scale <= precision;
    if fits {
        Ok(u16::from_be_bytes([precision, scale]))
    } else {
        Err(TypeError::Metadata)
    }
}

/// Whole bytes stand behind the remaining bits.
fn bits(metadata: &mut Cursor<'_>) -> Result<u16, TypeError> {
    let [rest, bytes] = metadata.array().ok_or(TypeError::Metadata)?;
    let bits = u16::from(bytes) * 8 + u16::from(rest);
    if rest < 8 && (1..=BITS_MAX).contains(&bits) {
        Ok(bits)
    } else {
        Err(TypeError::Metadata)
    }
}

/// CHAR, ENUM and SET. The first byte of the metadata is the real type; of a CHAR of
/// more than 255 bytes, bits 8 and 9 of the length are hidden in it, inverted.
fn string_type(metadata: &mut Cursor<'_>) -> Result<(WireType, u16), TypeError> {
    let [real, length] = metadata.array().ok_or(TypeError::Metadata)?;
    if real & 0x30 != 0x30 {
        let high = u16::from((real & 0x30) ^ 0x30) << 4;
        return Ok((WireType::String, high | u16::from(length)));
    }
    match (real, length) {
        (number::STRING | number::VAR_STRING, _) => Ok((WireType::String, length.into())),
        (number::ENUM, 1..=2) => Ok((WireType::Enum, length.into())),
        (number::SET, 1..=8) => Ok((WireType::Set, length.into())),
        _ => Err(TypeError::Metadata),
    }
}

/// Whether the signedness bitmap has a bit for this type.
const fn is_numeric(wire: WireType) -> bool {
    use WireType as W;
    match wire {
        W::Tiny | W::Short | W::Int24 | W::Long | W::LongLong => true,
        W::Float | W::Double | W::NewDecimal | W::Year => true,
        W::Date | W::Time | W::Time2 | W::Datetime | W::Datetime2 | W::Timestamp | W::Timestamp2 => false,
        W::VarChar | W::String | W::Enum | W::Set | W::Bit | W::Blob | W::Json | W::Geometry => false,
        W::Vector | W::VarCharCompressed | W::BlobCompressed => false,
    }
}

/// Whether the charset fields have an entry for this type.
const fn is_character(wire: WireType, flavor: Flavor) -> bool {
    use WireType as W;
    match wire {
        W::VarChar | W::String | W::Blob | W::VarCharCompressed | W::BlobCompressed => true,
        W::Vector => true,
        W::Geometry => matches!(flavor, Flavor::Mariadb),
        W::Tiny | W::Short | W::Int24 | W::Long | W::LongLong | W::Float | W::Double => false,
        W::NewDecimal | W::Year | W::Date | W::Time | W::Time2 | W::Datetime | W::Datetime2 => false,
        W::Timestamp | W::Timestamp2 | W::Enum | W::Set | W::Bit | W::Json => false,
    }
}

fn fill_signedness(columns: &mut [Column], optional: &OptionalMetadata<'_>) {
    let bitmap = optional.signedness.unwrap_or_default();
    let numeric = columns.iter_mut().filter(|column| is_numeric(column.wire));
    for (at, column) in numeric.enumerate() {
        column.unsigned = bit_high_first(bitmap, at) && column.wire != WireType::Year;
    }
}

fn fill_charsets(columns: &mut [Column], optional: &OptionalMetadata<'_>, flavor: Flavor) -> Option<()> {
    let mut text: Vec<&mut Column> = columns
        .iter_mut()
        .filter(|column| is_character(column.wire, flavor))
        .collect();
    set_collations(&mut text, optional.default_charset, optional.column_charset)?;
    for column in text {
        if matches!(column.wire, WireType::Geometry | WireType::Vector) {
            column.collation = 0;
        }
    }
    let mut lists: Vec<&mut Column> = columns
        .iter_mut()
        .filter(|column| matches!(column.wire, WireType::Enum | WireType::Set))
        .collect();
    set_collations(
        &mut lists,
        optional.enum_set_default_charset,
        optional.enum_set_column_charset,
    )
}

/// One of the two forms; where the server wrote neither, the columns are binary.
fn set_collations(columns: &mut [&mut Column], default: Option<&[u8]>, each: Option<&[u8]>) -> Option<()> {
    if let Some(each) = each {
        let mut c = Cursor::new(each);
        for column in columns.iter_mut() {
            column.collation = u16::try_from(c.lenenc()?).ok()?;
        }
        return c.is_empty().then_some(());
    }
    let mut c = Cursor::new(default.unwrap_or_default());
    let fallback = if c.is_empty() {
        BINARY_COLLATION
    } else {
        u16::try_from(c.lenenc()?).ok()?
    };
    for column in columns.iter_mut() {
        column.collation = fallback;
    }
    while !c.is_empty() {
        let (at, collation) = (c.lenenc()?, c.lenenc()?);
        let column = columns.get_mut(usize::try_from(at).ok()?)?;
        column.collation = u16::try_from(collation).ok()?;
    }
    Some(())
}

fn fill_members(columns: &mut [Column], optional: &OptionalMetadata<'_>) -> Option<()> {
    let mut enums = Cursor::new(optional.enum_members.unwrap_or_default());
    let mut sets = Cursor::new(optional.set_members.unwrap_or_default());
    for column in columns {
        let source = match column.wire {
            WireType::Enum => &mut enums,
            WireType::Set => &mut sets,
            _ => continue,
        };
        // A name takes a byte at least, so that the count bounds itself.
        for _ in 0..source.lenenc()? {
            column.members.push(Arc::from(source.lenenc_bytes()?));
        }
    }
    (enums.is_empty() && sets.is_empty()).then_some(())
}

fn fill_geometry(columns: &mut [Column], optional: &OptionalMetadata<'_>) -> Option<()> {
    let Some(types) = optional.geometry_types else {
        return Some(());
    };
    let mut c = Cursor::new(types);
    for column in columns.iter_mut().filter(|c| c.wire == WireType::Geometry) {
        column.geometry = u8::try_from(c.lenenc()?).ok()?;
    }
    Some(())
}

fn primary_key(optional: &OptionalMetadata<'_>, columns: usize) -> Option<Vec<u16>> {
    let (bytes, prefixed) = match (optional.simple_primary_key, optional.primary_key_with_prefix) {
        (Some(bytes), _) => (bytes, false),
        (None, Some(bytes)) => (bytes, true),
        (None, None) => return Some(Vec::new()),
    };
    let mut c = Cursor::new(bytes);
    let mut key = Vec::new();
    while !c.is_empty() {
        let at = u16::try_from(c.lenenc()?).ok()?;
        if usize::from(at) >= columns {
            return None;
        }
        if prefixed {
            // Characters of the prefix, 0 for the whole column.
            c.lenenc()?;
        }
        key.push(at);
    }
    Some(key)
}
