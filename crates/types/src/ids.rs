//! Identifiers. Each is a type of its own, so that two of them cannot be mixed up.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One unbroken history of commit-ts from one source. A store that was lost, cut or
/// restored takes a new lineage before its first append.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LineageId(pub u128);

impl fmt::Display for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LineageId({self})")
    }
}

impl LineageId {
    /// Reads the 32 hexadecimal digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32)
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten()
            .map(Self)
    }
}

/// Name of a changefeed: `[a-zA-Z0-9_-]{1,64}`, checked by the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangefeedId(pub Arc<str>);

impl fmt::Display for ChangefeedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A dispatcher within one generation of a changefeed's pipeline. `SCHEMA` is the
/// schema dispatcher, which exists in every pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DispatcherId(pub u32);

impl DispatcherId {
    /// The schema dispatcher of the changefeed.
    pub const SCHEMA: Self = Self(0);
}

/// Incarnation of a dispatcher's stream; a reset takes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Place of a message inside one epoch. The handshake is 1; data and DDL take the next
/// number; `Resolved` repeats the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqNo(pub u64);

/// Incarnation of a changefeed's whole pipeline; a restart takes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// One reading of one transaction whose rows went to the log before its commit was
/// seen. Never used again within a store, also after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptId(pub u64);

/// Identifier of an XA transaction: format id, global id, branch qualifier, as the
/// server prints it in the binlog (`X'…',X'…',1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Xid(pub Arc<str>);

/// Schema and table name as the source server wrote them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableName {
    /// Schema (database) name.
    pub schema: Arc<str>,
    /// Table name; empty where the name stands for a whole schema.
    pub table: Arc<str>,
}

impl TableName {
    /// Makes a name from its two parts.
    pub fn new(schema: impl Into<Arc<str>>, table: impl Into<Arc<str>>) -> Self {
        Self {
            schema: schema.into(),
            table: table.into(),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}
