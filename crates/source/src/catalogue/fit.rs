//! Whether a description fits a table map, column by column.

use std::sync::Arc;

use weir_binlog::BareVersion;
use weir_types::table::BINARY_COLLATION;
use weir_types::{Column, Flavor, TableName, TableVersion, WireType};

use super::members::members;
use super::{Described, Description};

/// Members of other charsets than utf8 are kept in this collation (`utf8mb4_general_ci`):
/// the catalogue tells them in utf8.
const MEMBERS_COLLATION: u16 = 45;
/// Bytes that MariaDB's column compression adds to a VARCHAR's length.
const COMPRESSED_EXTRA: u64 = 1;
/// MariaDB: bytes of types that are fixed strings to the binlog.
const FIXED_TYPES: [(&str, u64); 3] = [("uuid", 16), ("inet6", 16), ("inet4", 4)];
/// Bytes of a number in a MariaDB vector.
const VECTOR_ITEM_BYTES: u64 = 4;
/// Geometry types by their number.
const GEOMETRY_TYPES: [&str; 8] = [
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geomcollection",
];

/// The table version, if each column is what the table map says; otherwise what is not.
pub(super) fn fit(
    name: &TableName,
    flavor: Flavor,
    bare: &BareVersion,
    found: &Description,
) -> Result<TableVersion, String> {
    if bare.columns.len() != found.columns.len() {
        return Err(format!(
            "it has {} columns in the binlog and {} in the catalogue",
            bare.columns.len(),
            found.columns.len()
        ));
    }
    let columns = bare.columns.iter().zip(&found.columns);
    let columns = columns.map(|(column, described)| {
        fit_column(flavor, bare, column, described).map_err(|what| {
            format!(
                "column `{}` is `{}` in the catalogue, {what} in the binlog",
                described.name, described.data_type
            )
        })
    });
    Ok(TableVersion {
        name: name.clone(),
        flavor,
        columns: columns.collect::<Result<_, _>>()?,
        primary_key: found.primary_key.clone(),
    })
}

fn fit_column(
    flavor: Flavor,
    bare: &BareVersion,
    column: &Column,
    described: &Described,
) -> Result<Column, String> {
    if !is_type(column.wire, column.meta, described) {
        return Err(format!("{:?} of {}", column.wire, column.meta));
    }
    if column.nullable != described.nullable {
        return Err(if column.nullable {
            "nullable"
        } else {
            "not nullable"
        }
        .to_owned());
    }
    let mut out = column.clone();
    out.name = Arc::from(&*described.name);
    out.visible = described.visible || flavor == Flavor::Mariadb;
    if is_number(column.wire) {
        let words = described.column_type.split([' ', ')']);
        let unsigned = words.clone().any(|word| word == "unsigned" || word == "zerofill");
        if bare.has_signedness && unsigned != column.unsigned {
            return Err(if column.unsigned { "unsigned" } else { "signed" }.to_owned());
        }
        out.unsigned = unsigned;
    }
    match column.wire {
        WireType::Enum | WireType::Set => fit_list(bare, &mut out, described)?,
        WireType::Geometry => fit_geometry(bare, &mut out, described)?,
        wire if is_text(wire) => {
            let collation = match described.collation {
                0 => BINARY_COLLATION,
                id => id,
            };
            if bare.has_collations && collation != column.collation {
                return Err(format!("of collation {}", column.collation));
            }
            out.collation = collation;
        }
        _ => {}
    }
    Ok(out)
}

fn fit_list(bare: &BareVersion, out: &mut Column, described: &Described) -> Result<(), String> {
    if bare.has_list_collations && out.collation != described.collation {
        return Err(format!("of collation {}", out.collation));
    }
    let members = members(&described.column_type).ok_or("a list of members")?;
    let is_utf8 = described.charset.starts_with("utf8");
    let is_ascii = members.iter().all(|member| member.is_ascii());
    out.collation = match described.charset.as_str() {
        _ if is_utf8 => described.collation,
        // Bytes that are no text cannot be told from the catalogue's text.
        "binary" if is_ascii => described.collation,
        "binary" => return Err("of members that are no text".to_owned()),
        _ => MEMBERS_COLLATION,
    };
    out.members = members
        .into_iter()
        .map(|member| Arc::from(member.into_bytes()))
        .collect();
    Ok(())
}

fn fit_geometry(bare: &BareVersion, out: &mut Column, described: &Described) -> Result<(), String> {
    let number = geometry_type(&described.data_type).unwrap_or(0);
    if bare.has_geometry_types && number != out.geometry {
        return Err(format!("a geometry of type {}", out.geometry));
    }
    out.geometry = number;
    Ok(())
}

fn geometry_type(data_type: &str) -> Option<u8> {
    let name = match data_type {
        "geometrycollection" => "geomcollection",
        other => other,
    };
    let at = GEOMETRY_TYPES.iter().position(|known| *known == name)?;
    u8::try_from(at).ok()
}

const fn is_number(wire: WireType) -> bool {
    use WireType as W;
    matches!(
        wire,
        W::Tiny | W::Short | W::Int24 | W::Long | W::LongLong | W::Float | W::Double | W::NewDecimal
    )
}

const fn is_text(wire: WireType) -> bool {
    use WireType as W;
    matches!(
        wire,
        W::VarChar | W::String | W::Blob | W::VarCharCompressed | W::BlobCompressed
    )
}

/// Whether a type of the catalogue is written to the binlog as this type and metadata.
fn is_type(wire: WireType, meta: u16, described: &Described) -> bool {
    use WireType as W;
    let name = described.data_type.as_str();
    let meta = u64::from(meta);
    let digits = described.fraction_digits.unwrap_or(0);
    let octets = described.octets;
    match wire {
        W::Tiny => name == "tinyint",
        W::Short => name == "smallint",
        W::Int24 => name == "mediumint",
        W::Long => name == "int",
        W::LongLong => name == "bigint",
        W::Float => name == "float",
        W::Double => name == "double",
        W::NewDecimal => {
            let told = described.precision.unwrap_or(0) << 8 | described.scale.unwrap_or(0);
            name == "decimal" && told == meta
        }
        W::Year => name == "year",
        W::Date => name == "date",
        // The older ones, of tables that were made by a release that had no other.
        W::Time => name == "time" && digits == 0,
        W::Datetime => name == "datetime" && digits == 0,
        W::Timestamp => name == "timestamp" && digits == 0,
        W::Time2 => name == "time" && digits == meta,
        W::Datetime2 => name == "datetime" && digits == meta,
        W::Timestamp2 => name == "timestamp" && digits == meta,
        W::VarChar => match name {
            "varchar" | "varbinary" => octets == Some(meta) && !is_compressed(described),
            // MariaDB's.
            "vector" => dimensions(&described.column_type).is_some_and(|n| n * VECTOR_ITEM_BYTES == meta),
            _ => false,
        },
        W::VarCharCompressed => {
            let fits = octets.is_some_and(|octets| octets == meta || octets + COMPRESSED_EXTRA == meta);
            matches!(name, "varchar" | "varbinary") && is_compressed(described) && fits
        }
        W::String => match name {
            "char" | "binary" => octets == Some(meta),
            name => FIXED_TYPES.contains(&(name, meta)),
        },
        W::Enum => {
            name == "enum" && members(&described.column_type).is_some_and(|m| enum_bytes(m.len()) == meta)
        }
        W::Set => {
            name == "set" && members(&described.column_type).is_some_and(|m| set_bytes(m.len()) == meta)
        }
        W::Bit => name == "bit" && described.precision == Some(meta),
        W::Blob => blob_bytes(name) == Some(meta) && !is_compressed(described),
        W::BlobCompressed => blob_bytes(name) == Some(meta) && is_compressed(described),
        W::Json => name == "json",
        W::Geometry => geometry_type(name).is_some(),
        W::Vector => name == "vector",
    }
}

/// Of `vector(3)`.
fn dimensions(column_type: &str) -> Option<u64> {
    let inner = column_type.split(['(', ')']).nth(1)?;
    inner.parse::<u32>().ok().map(u64::from)
}

/// MariaDB tells it in a comment behind the type.
fn is_compressed(described: &Described) -> bool {
    described.column_type.contains("COMPRESSED*/")
}

const fn enum_bytes(members: usize) -> u64 {
    if members < 256 { 1 } else { 2 }
}

const fn set_bytes(members: usize) -> u64 {
    match members.div_ceil(8) {
        bytes @ 0..=4 => bytes as u64,
        _ => 8,
    }
}

/// Length of the length.
fn blob_bytes(name: &str) -> Option<u64> {
    Some(match name {
        "tinyblob" | "tinytext" => 1,
        "blob" | "text" => 2,
        "mediumblob" | "mediumtext" => 3,
        "longblob" | "longtext" => 4,
        _ => return None,
    })
}
