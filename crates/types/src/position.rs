//! Places in a source's binlog.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::gtid::GtidSet;

/// Which server a file and offset belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceIdentity {
    /// `server_uuid` of a MySQL server.
    Uuid([u8; 16]),
    /// Where there is no uuid (MariaDB, binlog files): a digest of the first file's
    /// FORMAT_DESCRIPTION and PREVIOUS_GTIDS or GTID_LIST events, in-use flag masked.
    Digest(u64),
}

/// GTID set and file:offset. Moves only at the end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePosition {
    /// Server that `file` and `offset` belong to.
    pub identity: SourceIdentity,
    /// Name of the binlog file, without folder.
    pub file: Arc<str>,
    /// Offset of the next event in the file, summed from event lengths.
    pub offset: u64,
    /// All transactions before this place, as far as they have GTIDs.
    pub gtids: GtidSet,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}
