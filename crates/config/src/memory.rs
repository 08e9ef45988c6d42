//! How the memory quota is divided.

use crate::units::ByteSize;

/// Smallest quota that leaves every part enough for a batch of 1 MiB on each side of
/// its queue.
pub const MEMORY_QUOTA_MIN: ByteSize = ByteSize::mib(32);

/// Parts of `flow-control.memory-quota`, bytes. Their sum is the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Open transactions: a quarter, since a transaction beyond it goes to disk once.
    pub transaction_buffer: u64,
    /// Groups on the way from the source to the store: an eighth.
    pub store_in_flight: u64,
    /// Recent blocks served without a disk read: a quarter.
    pub store_tail: u64,
    /// Segment index and footers: a sixteenth.
    pub store_index: u64,
    /// Ledger of the changefeed: on the wire, queued, in the sink. The rest, 5/16.
    pub changefeed_queue: u64,
}

impl MemoryPlan {
    /// Splits `changefeed_queue` for a sink whose messages wait in its client: bytes of the
    /// ledger, then bytes of messages under way. A row as a message is larger than in the
    /// binlog, but waits shorter.
    pub const fn with_client_queue(&self) -> (u64, u64) {
        let client = self.changefeed_queue / 5 * 2;
        (self.changefeed_queue - client, client)
    }

    /// Divides a quota; none if it is below `MEMORY_QUOTA_MIN`.
    pub fn from_quota(quota: ByteSize) -> Option<Self> {
        if quota < MEMORY_QUOTA_MIN {
            return None;
        }
        let bytes = quota.bytes();
        let (transaction_buffer, store_in_flight) = (bytes / 4, bytes / 8);
        let (store_tail, store_index) = (bytes / 4, bytes / 16);
        Some(Self {
            transaction_buffer,
            store_in_flight,
            store_tail,
            store_index,
            changefeed_queue: bytes - transaction_buffer - store_in_flight - store_tail - store_index,
        })
    }
}
