//! Keys of the target as the rows of the source meet them: which one names a row, and
//! which values of two rows may be equal.

use weir_types::{Column, TableVersion, WireType};

use crate::target::{TargetColumn, TargetKey, TargetTable};

/// Which values of a column may be equal at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// Values that are equal at the source, and no others.
    Exact,
    /// Numbers with a sign of zero.
    Float,
    /// Texts that differ in spaces at the end.
    Padded,
    /// ASCII texts that differ in case and in spaces at the end; a text with other
    /// characters may equal any.
    Folded,
}

/// A column of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    /// Index into the source's columns.
    pub(crate) source: usize,
    /// Which of its values may be equal.
    pub(crate) equality: Equality,
}

/// What may be equal in two rows that a unique key of the target keeps apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConflictKey {
    /// Columns whose values say which rows may meet: the key's, without those that the
    /// source does not have or whose equality is not known. Fewer columns mean more
    /// conflicts, never fewer.
    pub(crate) columns: Vec<KeyColumn>,
}

/// How a key counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyUse {
    /// Rows conflict if these values may be equal.
    Conflict(ConflictKey),
    /// Any two rows may conflict.
    Serial,
    /// No two rows do: the target makes the values itself.
    Never,
}

/// Collations under which texts of printable ASCII are equal only if they differ in case
/// or in spaces at the end. Checked with each pair of characters on MySQL 9.7, MariaDB
/// 10.11 and 11.8. Others tailor letters (`v` and `w`, `i` and `y`), or hold odd pairs equal:
/// `Y` and `~` in `gbk_chinese_ci`.
const FOLDED: &[&str] = &[
    "armscii8_general_ci",
    "ascii_general_ci",
    "cp1250_general_ci",
    "cp1251_general_ci",
    "cp1256_general_ci",
    "cp1257_general_ci",
    "cp850_general_ci",
    "cp852_general_ci",
    "cp866_general_ci",
    "cp932_japanese_ci",
    "eucjpms_japanese_ci",
    "euckr_korean_ci",
    "gb18030_chinese_ci",
    "greek_general_ci",
    "hebrew_general_ci",
    "koi8r_general_ci",
    "latin1_danish_ci",
    "latin1_general_ci",
    "latin1_general_cs",
    "latin1_german1_ci",
    "latin1_spanish_ci",
    "latin1_swedish_ci",
    "latin2_general_ci",
    "latin5_turkish_ci",
    "latin7_general_ci",
    "tis620_thai_ci",
    "ujis_japanese_ci",
    "utf8mb3_general_ci",
    "utf8mb3_general_mysql500_ci",
    "utf8mb3_unicode_520_ci",
    "utf8mb3_unicode_ci",
    "utf8mb3_uca1400_ai_ci",
    "utf8mb3_uca1400_ai_cs",
    "utf8mb3_uca1400_as_ci",
    "utf8mb3_uca1400_as_cs",
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_as_ci",
    "utf8mb4_0900_as_cs",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb4_uca1400_ai_cs",
    "utf8mb4_uca1400_as_ci",
    "utf8mb4_uca1400_as_cs",
];

/// Whether the collation is binary or one of the list; MariaDB's names of collations
/// without padding are those of the padding ones.
fn folds_ascii(collation: &str) -> bool {
    let padding = collation.replace("_nopad_", "_");
    padding.ends_with("_bin") || FOLDED.contains(&padding.as_str())
}

/// Which texts may be equal; none if that is not known.
fn text_equality(column: &Column, target: &TargetColumn) -> Option<Equality> {
    let source = weir_codec::charset::of_collation(column.collation)?.name();
    let collation = target.collation.as_deref()?;
    // Different bytes stay different: some other charsets have two codes for a character
    // of Unicode.
    let same = target.charset.as_deref() == Some(source) || matches!(source, "utf8mb3" | "utf8mb4");
    if same && collation.ends_with("_bin") {
        // A space of these has several bytes.
        let wide = matches!(source, "ucs2" | "utf16" | "utf16le" | "utf32");
        return (!wide).then_some(Equality::Padded);
    }
    (folds_ascii(collation) && ascii_is_ascii(source)).then_some(Equality::Folded)
}

/// Which values may be equal; none if that is not known.
fn equality(column: &Column, target: &TargetColumn) -> Option<Equality> {
    use WireType as W;
    let data_type = target.data_type.as_str();
    let exact = match column.wire {
        W::Tiny | W::Short | W::Int24 | W::Long | W::LongLong => {
            matches!(data_type, "tinyint" | "smallint" | "mediumint" | "int" | "bigint")
        }
        W::NewDecimal => data_type == "decimal" && same_scale(column, target),
        W::Year => data_type == "year",
        W::Date => matches!(data_type, "date" | "datetime"),
        W::Time | W::Time2 => data_type == "time" && same_fraction(column, target),
        W::Datetime | W::Datetime2 => data_type == "datetime" && same_fraction(column, target),
        W::Timestamp | W::Timestamp2 => data_type == "timestamp" && same_fraction(column, target),
        W::Enum | W::Set => matches!(data_type, "enum" | "set"),
        W::Bit => data_type == "bit",
        W::Float | W::Double => {
            return matches!((column.wire, data_type), (W::Float, "float") | (_, "double"))
                .then_some(Equality::Float);
        }
        W::VarChar | W::String | W::Blob | W::VarCharCompressed | W::BlobCompressed if column.is_binary() => {
            // Padding makes values of different lengths equal in a BINARY column.
            let padded = matches!(data_type, "binary" | "uuid" | "inet4" | "inet6");
            (padded && column.wire == W::String) || data_type == "varbinary" || data_type.ends_with("blob")
        }
        W::VarChar | W::String | W::Blob | W::VarCharCompressed | W::BlobCompressed => {
            let text = matches!(data_type, "char" | "varchar") || data_type.ends_with("text");
            return text_equality(column, target).filter(|_| text);
        }
        W::Json | W::Geometry | W::Vector => false,
    };
    exact.then_some(Equality::Exact)
}

/// Whether bytes below 128 are ASCII characters in a charset of the source.
fn ascii_is_ascii(charset: &str) -> bool {
    !matches!(charset, "swe7" | "ucs2" | "utf16" | "utf16le" | "utf32")
}

/// Digits in the last number of a column type: scale or fraction; 0 for none.
fn last_number(column_type: &str) -> u16 {
    let inside = column_type
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let last = inside.and_then(|(numbers, _)| numbers.rsplit(',').next());
    last.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn same_scale(column: &Column, target: &TargetColumn) -> bool {
    let [_, scale] = column.meta.to_be_bytes();
    last_number(&target.column_type) >= u16::from(scale)
}

fn same_fraction(column: &Column, target: &TargetColumn) -> bool {
    last_number(&target.column_type) >= column.meta
}

/// Index of the source's column of each column of the target; none for what it does not
/// have.
pub(crate) type SourceOf = [Option<usize>];

fn key_columns(
    key: &TargetKey,
    version: &TableVersion,
    target: &TargetTable,
    source_of: &SourceOf,
) -> Vec<Option<KeyColumn>> {
    let of = |at: &usize| {
        let column = target.columns.get(*at)?;
        let source = source_of.get(*at).copied().flatten()?;
        let equality = equality(version.columns.get(source)?, column)?;
        (!column.generated).then_some(KeyColumn { source, equality })
    };
    key.columns.iter().map(of).collect()
}

/// How a unique key counts for conflicts.
pub(crate) fn key_use(
    key: &TargetKey,
    version: &TableVersion,
    target: &TargetTable,
    source_of: &SourceOf,
) -> KeyUse {
    if key.functional_or_prefix {
        return KeyUse::Serial;
    }
    let made_by_target = |at: &usize| {
        let counted = target
            .columns
            .get(*at)
            .is_some_and(|column| column.auto_increment);
        counted && source_of.get(*at).copied().flatten().is_none()
    };
    if key.columns.iter().any(made_by_target) {
        return KeyUse::Never;
    }
    let columns: Vec<_> = key_columns(key, version, target, source_of)
        .into_iter()
        .flatten()
        .collect();
    if columns.is_empty() {
        KeyUse::Serial
    } else {
        KeyUse::Conflict(ConflictKey { columns })
    }
}

/// The key that names rows: the primary key, else the first unique key of NOT NULL
/// columns, if the source has all of its columns. Index into the target's keys.
pub(crate) fn identifying(
    version: &TableVersion,
    target: &TargetTable,
    source_of: &SourceOf,
) -> Option<usize> {
    let usable = |key: &TargetKey| {
        let comparable = |at: &usize| {
            let column = target.columns.get(*at);
            let source = source_of.get(*at).copied().flatten();
            let source = source.and_then(|at| version.columns.get(at));
            let opaque = |column: &Column| {
                matches!(
                    column.wire,
                    WireType::Json | WireType::Geometry | WireType::Vector
                )
            };
            column.is_some_and(|column| !column.generated) && source.is_some_and(|column| !opaque(column))
        };
        !key.nullable
            && !key.functional_or_prefix
            && !key.columns.is_empty()
            && key.columns.iter().all(comparable)
    };
    let primary = target.keys.iter().position(|key| key.primary && usable(key));
    primary.or_else(|| target.keys.iter().position(usable))
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
