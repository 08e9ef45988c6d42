//! What a reader of a statement notes on the way: where names stand, and what does not
//! concern order and registration but the way it is run at a database.

use std::ops::Range;

use weir_types::TableName;

/// What a name in the text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A table.
    Table {
        name: TableName,
        /// Its schema is written with it.
        qualified: bool,
    },
    /// A schema by itself.
    Schema(String),
    /// A place where the name of the default schema may be put; nothing stands there.
    DefaultSchema,
    /// The table in front of one of its own columns.
    Qualifier {
        name: TableName,
        /// Its schema is written with it.
        qualified: bool,
    },
    /// A name with dots that may mean a table, a column or a function.
    Unsure,
}

/// A name and its bytes in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameMark {
    pub(crate) range: Range<usize>,
    pub(crate) meaning: Meaning,
}

/// Why a statement cannot be run at another server with the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The statement is a query's result, which only rows can tell.
    Query,
    /// MariaDB's system versioning.
    SystemVersioning,
    /// A default drawn from a MariaDB sequence, or a table that is one.
    Sequence,
    /// DISCARD or IMPORT TABLESPACE.
    Tablespace,
    /// MariaDB's ALTER IGNORE TABLE.
    Ignore,
    /// Rows that are there get a value that differs from server to server.
    Nondeterministic,
    /// An engine whose rows are at another server.
    Elsewhere,
    /// MariaDB's ALTER DATABASE … UPGRADE DATA DIRECTORY NAME.
    UpgradeName,
}

impl Refusal {
    /// End of a sentence that says what the statement does.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Query => "it changes rows",
            Self::SystemVersioning => "it concerns a system-versioned table",
            Self::Sequence => "it draws numbers from a sequence, and sequences are not replicated",
            Self::Tablespace => "it exchanges data files, which are only at the source",
            Self::Ignore => {
                "with IGNORE it may remove rows, and which of them depends on their place on disk"
            }
            Self::Nondeterministic => {
                "it fills rows with values of a function that gives other values at each server"
            }
            Self::Elsewhere => "the engine keeps rows at another server, where they would be written twice",
            Self::UpgradeName => "it renames files of an old release",
        }
    }
}

/// Notes of one statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// In the order of the text.
    pub(crate) names: Vec<NameMark>,
    /// Bytes that mean something to the source server only, and what stands for them
    /// elsewhere.
    pub(crate) edits: Vec<(Range<usize>, &'static str)>,
    /// The first thing found.
    pub(crate) refusal: Option<Refusal>,
    /// IF EXISTS of a DROP TABLE.
    pub(crate) if_exists: bool,
    /// An ALTER numbers the rows that are there.
    pub(crate) numbers_rows: bool,
}

impl Marks {
    pub(crate) fn edit(&mut self, range: Range<usize>, text: &'static str) {
        self.edits.push((range, text));
    }

    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }
}
