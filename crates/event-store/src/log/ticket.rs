//! Sync tickets: what was written becomes durable, then visible.

use std::sync::Arc;

use weir_segment::SyncHandle;

use super::disk::Shared;
use super::index::GroupInfo;
use super::seal;
use crate::contract::{SyncTicket, Synced};
use crate::entry::{Batch, Place};
use crate::error::Result;

/// Groups of one sync.
pub(crate) struct LogTicket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sync: SyncHandle,
    pub(crate) number: u64,
    pub(crate) end: u64,
    pub(crate) groups: u64,
    pub(crate) infos: Vec<GroupInfo>,
    pub(crate) batch: Batch,
    pub(crate) published: bool,
}

impl Drop for LogTicket {
    /// Without it later groups would be visible and this one not.
    fn drop(&mut self) {
        if !self.published {
            self.shared.fail();
        }
    }
}

impl SyncTicket for LogTicket {
    fn wait(mut self: Box<Self>) -> Result<Synced> {
        let shared = Arc::clone(&self.shared);
        shared.check()?;
        if let Err(error) = self.sync.sync(self.end) {
            shared.fail();
            return Err(error.into());
        }
        let number = self.number;
        let synced = self.publish();
        seal::offer(&shared, number)?;
        Ok(synced)
    }
}

impl LogTicket {
    fn publish(&mut self) -> Synced {
        self.published = true;
        let shared = Arc::clone(&self.shared);
        let mut shown = shared.write();
        let shown = &mut *shown;
        shown.view.publish(&mut self.batch);
        let (events, mut stored_bytes) = (self.batch.events(), 0);
        if let Some(slot) = shown.segments.get_mut(&self.number)
            && let Some(index) = slot.open.as_mut().map(Arc::make_mut)
        {
            stored_bytes = self.end.saturating_sub(slot.bytes);
            slot.bytes = self.end;
            slot.groups = self.groups;
            index.groups.append(&mut self.infos);
            for (at, address) in self.batch.fragments.drain(..) {
                shown.view.add_live(at.table, u64::from(address.stored_bytes));
                index.add_fragment(at, address);
            }
            for (meta, address) in self.batch.metas.drain(..) {
                index.add_meta(&meta, address);
            }
            for rows in self.batch.rows.drain(..) {
                if let Place::Block(address) = &rows.entry.place {
                    shown.view.add_live(rows.table, u64::from(address.stored_bytes));
                }
                match rows.block {
                    Some(block) => shown.view.tail.push(rows.table, block),
                    None => shown.view.tail.reset(rows.table, rows.entry.last),
                }
                index.add(rows.table, rows.entry);
            }
        }
        Synced {
            resolved: shown.view.resolved,
            raw_bytes: self.batch.raw_bytes,
            stored_bytes,
            events,
        }
    }
}
