//! Durable progress.

use serde::{Deserialize, Serialize};

use crate::ids::{LineageId, Xid};
use crate::key::OrderKey;
use crate::position::SourcePosition;

/// Everything up to and including `key` is durable; go on with what is greater. Never
/// splits a row event. Counts by commit-ts only within its lineage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// History that `key` belongs to.
    pub lineage: LineageId,
    /// Last durable place.
    pub key: OrderKey,
    /// Position before the transaction of `key`; none before the first transaction, and for a
    /// place that the store does not hold any more.
    pub position: Option<SourcePosition>,
    /// GTID of the transaction of `key`, if it has one.
    pub gtid: Option<String>,
    /// XA groups that were prepared and not yet ended at that place.
    pub open_xa: Vec<Xid>,
}
