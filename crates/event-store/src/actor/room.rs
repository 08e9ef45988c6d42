//! Making room: garbage collection, and giving up a table.

use weir_actor::post;
use weir_protocol::store::TableDetached;
use weir_types::TableName;

use super::{State, StoreActor, millis};
use crate::metrics::Blocked;

impl StoreActor {
    /// Frees what was passed meanwhile; gives a table up if it alone keeps all others
    /// waiting.
    pub(super) fn make_room(&mut self) {
        let Some((Blocked::Quota, since)) = self.blocked else {
            return;
        };
        let reader = self.writer.reader();
        let (now_ms, since_ms) = (
            millis(self.started.elapsed()),
            millis(since.saturating_duration_since(self.started)),
        );
        let quota = self.writer.usage().quota_bytes;
        let stuck = self
            .shares
            .to_detach(now_ms, since_ms, quota, &reader.live_bytes());
        if let Some(table) = stuck {
            tracing::error!(
                "table `{table}` holds most of the store's quota and does not move: it is given up"
            );
            self.detach(&table);
        }
        self.collect();
    }

    pub(super) fn detach(&mut self, table: &TableName) {
        match self.writer.detach(table) {
            Ok(()) => {
                let table = table.clone();
                post(&self.outlets.detached, TableDetached { table });
            }
            Err(error) if error.is_full() => tracing::warn!(%error, "a table cannot be detached yet"),
            Err(error) => self.fail(&error),
        }
    }

    pub(super) fn collect(&mut self) {
        let Some(floors) = self.floors.as_ref().filter(|_| self.state != State::Ended) else {
            return;
        };
        match self.writer.advance_gc(&floors.tables, floors.schema) {
            Ok(freed) => self.metrics.freed(freed, self.writer.usage()),
            Err(error) if error.is_full() => tracing::warn!(%error, "garbage collection has no room"),
            Err(error) => self.fail(&error),
        }
    }
}
