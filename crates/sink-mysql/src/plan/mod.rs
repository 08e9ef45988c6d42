//! How the rows of a table version are written to a table of the target.
//!
//! Columns are matched by name. Columns that are generated at the target are left out; a
//! source column that the target lacks is an error, as is a target column that needs a
//! value and that the source does not have. Differing types are left to the server, which
//! refuses what does not fit (strict mode).
//!
//! A table is *keyed* if the target has a primary key, or a unique key of NOT NULL columns,
//! that the source has all columns of, and no foreign keys: writing its rows again does no
//! harm. All others are *exact*.

mod error;
mod keys;

use std::sync::Arc;

use weir_binlog::RowPlan;
use weir_types::{Flavor, TableName, TableVersion, WireType};

use crate::rows::literal::Literal;
use crate::target::TargetTable;

pub use error::PlanError;
#[cfg(test)]
pub(crate) use keys::KeyColumn;
use keys::KeyUse;
pub(crate) use keys::{ConflictKey, Equality};

/// Why a table is written exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExactReason {
    /// No key at the target names a row.
    NoKey,
    /// The table is tied to others by foreign keys.
    ForeignKeys,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Compacted by key, in parallel, repeatable.
    Keyed,
    /// In the source's order, each once.
    Exact {
        /// Why.
        reason: ExactReason,
    },
}

/// How a column of the target is compared with the value of an old row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// `c<=>literal`.
    Plain,
    /// `c+0<=>literal`: by number, not by text.
    Number,
    /// `CAST(c AS BINARY)<=>literal`: each byte.
    Bytes,
    /// As bytes; the literal is text in another charset, and is brought into this one.
    BytesIn(String),
    /// `c<=>CAST(literal AS JSON)`.
    Json,
}

/// A column that is written.
#[derive(Clone, Debug)]
pub(crate) struct PlannedColumn {
    /// Index into the source's columns.
    pub(crate) source: usize,
    /// Its literals.
    pub(crate) literal: Literal,
    /// Name at the target, quoted.
    pub(crate) name: Box<str>,
    /// How it is compared.
    pub(crate) matched: Match,
    /// May have ON UPDATE CURRENT_TIMESTAMP: is always set by an UPDATE.
    pub(crate) temporal: bool,
}

/// How the rows of a table version are written to a table of the target.
#[derive(Clone, Debug)]
pub struct TablePlan {
    /// Shape of the rows.
    pub(crate) version: Arc<TableVersion>,
    /// Name at the target.
    pub(crate) target: TableName,
    /// Name at the target, quoted.
    pub(crate) quoted: Box<str>,
    /// Family of the target.
    pub(crate) flavor: Flavor,
    /// Reads rows.
    pub(crate) reader: RowPlan,
    /// Columns that are written, in the source's order.
    pub(crate) columns: Vec<PlannedColumn>,
    /// Indexes into `columns` of the key that names rows; empty for none.
    pub(crate) identity: Vec<usize>,
    /// The names of `identity` as a comparison's left side.
    pub(crate) identity_names: Box<str>,
    /// Rows that share a value of one of these may conflict. Without the identifying key
    /// if equal rows of it always have equal literals.
    pub(crate) conflicts: Vec<ConflictKey>,
    /// Source columns of all unique keys but the identifying one.
    pub(crate) other_unique: Vec<usize>,
    /// There are unique keys beside the identifying one.
    pub(crate) has_other_unique: bool,
    /// Some of them hold values that the source does not have: expressions, prefixes,
    /// generated columns. Any change of a row may change them.
    pub(crate) opaque_unique: bool,
    /// Any two rows may conflict.
    pub(crate) serial: bool,
    /// What a transaction wrote can be undone.
    pub(crate) transactional: bool,
    /// `(a,b,…) VALUES ` behind the table's name.
    pub(crate) insert_columns: Box<str>,
    /// ` ON DUPLICATE KEY UPDATE …`.
    pub(crate) on_duplicate: Box<str>,
    mode: Mode,
}

/// Quotes a name.
pub(crate) fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

impl TablePlan {
    /// Makes the plan.
    ///
    /// # Errors
    /// The rows do not fit the target's table, or cannot be read.
    pub fn new(version: &Arc<TableVersion>, target: &TargetTable) -> Result<Self, PlanError> {
        let source_of = match_columns(version, target)?;
        let columns = planned_columns(version, target, &source_of)?;
        let reader = RowPlan::new(version).map_err(|error| PlanError::Rows {
            source_table: version.name.clone(),
            error,
        })?;
        let identifying = keys::identifying(version, target, &source_of);
        let planned = |source: usize| columns.iter().position(|column| column.source == source);
        let of_key = |at: usize| -> Option<Vec<usize>> {
            let key = target.keys.get(at)?;
            let place = |at: &usize| source_of.get(*at).copied().flatten().and_then(planned);
            key.columns.iter().map(place).collect()
        };
        let identity = identifying.and_then(of_key).unwrap_or_default();
        let mode = match (identity.is_empty(), target.foreign) {
            (_, true) => Mode::Exact {
                reason: ExactReason::ForeignKeys,
            },
            (true, false) => Mode::Exact {
                reason: ExactReason::NoKey,
            },
            (false, false) => Mode::Keyed,
        };
        let identity_names = join(identity.iter().filter_map(|at| columns.get(*at)));
        let mut plan = Self {
            version: Arc::clone(version),
            target: target.name.clone(),
            quoted: format!("{}.{}", quote(&target.name.schema), quote(&target.name.table)).into(),
            flavor: target.flavor,
            reader,
            identity_names: match identity.len() {
                0 | 1 => identity_names.into(),
                _ => format!("({identity_names})").into(),
            },
            insert_columns: format!(" ({}) VALUES ", join(columns.iter())).into(),
            on_duplicate: on_duplicate(&columns).into(),
            columns,
            identity,
            conflicts: Vec::new(),
            other_unique: Vec::new(),
            has_other_unique: false,
            opaque_unique: false,
            serial: false,
            transactional: target.transactional,
            mode,
        };
        plan.add_keys(target, &source_of, identifying);
        Ok(plan)
    }

    fn add_keys(&mut self, target: &TargetTable, source_of: &keys::SourceOf, identifying: Option<usize>) {
        for (at, key) in target.keys.iter().enumerate() {
            let is_identity = Some(at) == identifying;
            if !is_identity {
                self.has_other_unique = true;
                let generated = |at: &usize| target.columns.get(*at).is_some_and(|c| c.generated);
                self.opaque_unique |= key.functional_or_prefix || key.columns.iter().any(generated);
                let sources = key
                    .columns
                    .iter()
                    .filter_map(|at| source_of.get(*at).copied().flatten());
                self.other_unique.extend(sources);
            }
            match keys::key_use(key, &self.version, target, source_of) {
                KeyUse::Never => {}
                KeyUse::Serial => self.serial = true,
                KeyUse::Conflict(conflict) => {
                    let exact = conflict.columns.len() == key.columns.len()
                        && conflict.columns.iter().all(|c| c.equality == Equality::Exact);
                    if !(is_identity && exact) {
                        self.conflicts.push(conflict);
                    }
                }
            }
        }
        self.other_unique.sort_unstable();
        self.other_unique.dedup();
    }

    /// How rows are written.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Shape of the rows.
    pub const fn version(&self) -> &Arc<TableVersion> {
        &self.version
    }

    /// Table at the target.
    pub const fn target(&self) -> &TableName {
        &self.target
    }
}

/// Source column of each target column.
fn match_columns(version: &TableVersion, target: &TargetTable) -> Result<Vec<Option<usize>>, PlanError> {
    let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
    let source_of: Vec<_> = target
        .columns
        .iter()
        .map(|column| version.columns.iter().position(|c| same(&c.name, &column.name)))
        .collect();
    let known = |source: usize| source_of.contains(&Some(source));
    if let Some((_, column)) = version.columns.iter().enumerate().find(|(at, _)| !known(*at)) {
        return Err(PlanError::MissingColumn {
            source_table: version.name.clone(),
            target: target.name.clone(),
            column: column.name.to_string(),
        });
    }
    let needed = target.columns.iter().zip(&source_of).find(|(column, source)| {
        let optional = column.nullable || column.generated || column.has_default || column.auto_increment;
        source.is_none() && !optional
    });
    match needed {
        Some((column, _)) => Err(PlanError::UnknownColumn {
            source_table: version.name.clone(),
            target: target.name.clone(),
            column: column.name.clone(),
        }),
        None => Ok(source_of),
    }
}

fn planned_columns(
    version: &TableVersion,
    target: &TargetTable,
    source_of: &[Option<usize>],
) -> Result<Vec<PlannedColumn>, PlanError> {
    let mut columns = Vec::with_capacity(source_of.len());
    for (column, source) in target.columns.iter().zip(source_of) {
        let Some(source) = source.filter(|_| !column.generated) else {
            continue;
        };
        let Some(of_source) = version.columns.get(source) else {
            continue;
        };
        let literal =
            Literal::new(of_source, column, target.flavor).ok_or_else(|| PlanError::UnknownCollation {
                source_table: version.name.clone(),
                column: of_source.name.to_string(),
                collation: of_source.collation,
            })?;
        columns.push(PlannedColumn {
            source,
            matched: Match::new(of_source, column, &literal),
            literal,
            name: quote(&column.name).into(),
            temporal: matches!(column.data_type.as_str(), "timestamp" | "datetime"),
        });
    }
    if columns.is_empty() {
        return Err(PlanError::NothingToWrite {
            target: target.name.clone(),
        });
    }
    columns.sort_by_key(|column| column.source);
    Ok(columns)
}

impl Match {
    fn new(source: &weir_types::Column, target: &crate::target::TargetColumn, literal: &Literal) -> Self {
        let to_text = target.charset.as_deref().filter(|charset| *charset != "binary");
        match (literal, source.wire) {
            _ if target.data_type == "json" && target.charset.is_none() => Self::Json,
            (Literal::Plain, WireType::Enum | WireType::Set | WireType::Bit) => Self::Number,
            (_, WireType::Geometry | WireType::Vector) => Self::Bytes,
            // MySQL compares no vector with bytes; MariaDB's have no type of their own in
            // the binlog.
            _ if target.data_type == "vector" => Self::Bytes,
            (Literal::Text(_) | Literal::Enum { .. } | Literal::Set(..), _)
            | (Literal::Plain, WireType::Json) => match to_text {
                Some(charset) => Self::BytesIn(charset.to_owned()),
                None => Self::Bytes,
            },
            _ => Self::Plain,
        }
    }
}

fn join<'a>(columns: impl Iterator<Item = &'a PlannedColumn>) -> String {
    columns.map(|column| &*column.name).collect::<Vec<_>>().join(",")
}

fn on_duplicate(columns: &[PlannedColumn]) -> String {
    let set = |column: &PlannedColumn| format!("{0}=VALUES({0})", column.name);
    let sets = columns.iter().map(set).collect::<Vec<_>>().join(",");
    format!(" ON DUPLICATE KEY UPDATE {sets}")
}

#[cfg(test)]
mod tests;
