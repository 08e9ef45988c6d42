//! What bounds how far streams read, besides their own credit.

use weir_types::CommitTs;

use crate::fence::FenceMember;

/// What bounds how far streams read, besides their own credit.
#[derive(Clone, Debug, Default)]
pub enum ScanPolicy {
    /// Nothing: no stream's progress is any other one's business.
    #[default]
    PerDispatcher,
    /// All stop a while behind the slowest. Kept for the benchmark that shows why not: no
    /// setting leads here.
    GlobalFence(FenceMember),
}

impl ScanPolicy {
    /// The commit-ts up to which streams may read where everything up to `resolved` is
    /// there.
    pub fn limit(&self, resolved: CommitTs) -> CommitTs {
        match self {
            Self::PerDispatcher => resolved,
            Self::GlobalFence(fence) => resolved.min(fence.limit()),
        }
    }

    /// The slowest stream has sent everything up to `slowest`. True if the limit has moved.
    pub fn observe(&self, now_ms: u64, slowest: Option<CommitTs>) -> bool {
        match self {
            Self::PerDispatcher => false,
            Self::GlobalFence(fence) => fence.observe(now_ms, slowest),
        }
    }
}
