//! Durable progress of one changefeed: what a restart begins from.
//!
//! A trait with an embedded implementation ([`RedbMetaStore`]) and a twin in memory
//! ([`MemoryMetaStore`]); both pass one conformance suite.

mod memory;
mod redb_file;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use weir_types::{Generation, TableName, Token};

pub use self::memory::MemoryMetaStore;
pub use self::redb_file::RedbMetaStore;
use crate::error::{Error, Result};
use crate::maintainer::SavedKeys;

/// Saved progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Where the changefeed began, exclusive.
    pub start: Token,
    /// Progress of the schema dispatcher.
    pub schema: Token,
    /// Progress per table that has a dispatcher.
    pub tables: BTreeMap<TableName, Token>,
}

impl Progress {
    /// A changefeed that begins behind `start`, where `tables` exist.
    pub fn fresh(start: &Token, tables: impl IntoIterator<Item = TableName>) -> Self {
        Self {
            start: start.clone(),
            schema: start.clone(),
            tables: tables.into_iter().map(|table| (table, start.clone())).collect(),
        }
    }

    /// The keys alone, as the maintainer uses them within one lineage.
    pub fn keys(&self) -> SavedKeys {
        SavedKeys {
            start: self.start.key,
            schema: self.schema.key,
            tables: self
                .tables
                .iter()
                .map(|(table, token)| (table.clone(), token.key))
                .collect(),
        }
    }

    /// Every token is of the start's lineage.
    fn check(&self) -> Result<()> {
        let all = std::iter::once(&self.schema).chain(self.tables.values());
        for token in all {
            check_lineage(&self.start, token)?;
        }
        Ok(())
    }
}

/// What one save changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUpdate {
    /// Progress of the schema dispatcher.
    pub schema: Token,
    /// Tables whose progress moved, and new tables.
    pub changed: Vec<(TableName, Token)>,
    /// Tables whose dispatcher has ended.
    pub removed: Vec<TableName>,
}

/// Where progress is kept. Each call is one transaction, durable when it returns.
pub trait MetaStore: Send {
    /// Reads everything; none before `init`.
    ///
    /// # Errors
    /// The storage cannot be read, or is damaged.
    fn load(&mut self) -> Result<Option<Progress>>;

    /// Writes the start of a changefeed in place of everything that was saved.
    ///
    /// # Errors
    /// The storage cannot be written; tokens of different lineages.
    fn init(&mut self, progress: &Progress) -> Result<()>;

    /// Saves.
    ///
    /// # Errors
    /// The storage cannot be written; another lineage than the start's; no start.
    fn save(&mut self, update: &TokenUpdate) -> Result<()>;

    /// Counts the pipeline's generations, from 1; never gives a number twice.
    ///
    /// # Errors
    /// The storage cannot be written.
    fn next_generation(&mut self) -> Result<Generation>;
}

fn check_lineage(start: &Token, token: &Token) -> Result<()> {
    if token.lineage == start.lineage {
        return Ok(());
    }
    Err(Error::OtherLineage {
        found: token.lineage,
        expected: start.lineage,
    })
}

fn check_update(start: &Token, update: &TokenUpdate) -> Result<()> {
    check_lineage(start, &update.schema)?;
    for (_, token) in &update.changed {
        check_lineage(start, token)?;
    }
    Ok(())
}
