//! How transactions end.

use weir_protocol::store::StoreInput;
use weir_types::Xid;

use crate::assembler::TransactionAssembler;
use crate::open::Open;

impl TransactionAssembler {
    /// COMMIT, XID, or the end of a single statement.
    pub(crate) fn commit(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        for no in &open.created {
            if let Some(table) = self.tables.get_mut(*no) {
                table.known = true;
            }
        }
        if open.skipped {
            self.pass(&open);
            return;
        }
        let meta = self.meta(&open);
        match open.attempt {
            None => {
                self.group.end_txn(meta);
                self.ended(&open, open.has_ddl);
            }
            Some(attempt) => {
                let (blocks, ddls) = self.group.take_open();
                self.position_told(&open);
                let upto = self.position();
                self.output(StoreInput::Commit {
                    attempt,
                    meta,
                    blocks,
                    ddls,
                    aborted: open.aborted,
                    upto,
                });
            }
        }
    }

    /// A transaction before the start: nothing of it is kept, only the position moves.
    fn pass(&mut self, open: &Open) {
        debug_assert!(
            open.attempt.is_none(),
            "rows of a skipped transaction are not kept"
        );
        self.group.undo_all();
        self.ended(open, false);
    }

    /// ROLLBACK of the whole transaction. It has a GTID all the same.
    pub(crate) fn roll_back(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.forget(&open);
        if open.skipped {
            self.pass(&open);
            return;
        }
        self.group.end_txn(self.meta(&open));
        self.ended(&open, false);
    }

    /// Drops what is in memory and in the store of a transaction that does not count.
    pub(crate) fn forget(&mut self, open: &Open) {
        self.group.undo_all();
        for no in &open.created {
            if let Some(table) = self.tables.get_mut(*no) {
                table.created_in = 0;
            }
        }
        if let Some(attempt) = open.attempt {
            self.output(StoreInput::Discard { attempt });
        }
    }

    /// ROLLBACK TO SAVEPOINT; false if there is no such savepoint.
    pub(crate) fn roll_back_to(&mut self, name: &str) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        match open.roll_back_to(name) {
            Some(ordinal) => {
                self.group.undo_behind(ordinal);
                true
            }
            None => false,
        }
    }

    /// XA PREPARE: rows stay invisible in the store until the XA transaction ends. Its
    /// implicit creations may never count, so that the tables stay unknown.
    pub(crate) fn prepare(&mut self, xid: Xid) {
        if self.open.as_ref().is_some_and(|open| open.skipped) {
            if let Some(open) = self.open.take() {
                self.pass(&open);
            }
            return;
        }
        self.flush();
        let attempt = self.attempt();
        let Some(open) = self.open.take() else {
            return;
        };
        let (blocks, ddls) = self.group.take_open();
        let meta = self.meta(&open);
        self.position_told(&open);
        let upto = self.position();
        self.output(StoreInput::Prepare {
            attempt,
            xid,
            meta,
            blocks,
            ddls,
            aborted: open.aborted,
            upto,
        });
    }

    /// XA COMMIT or XA ROLLBACK of a prepared transaction, in a group of its own.
    pub(crate) fn end_prepared(&mut self, xid: Xid, commits: bool) {
        let Some(open) = self.open.take() else {
            return;
        };
        if open.skipped {
            self.pass(&open);
            return;
        }
        self.flush();
        let meta = self.meta(&open);
        self.position_told(&open);
        let upto = self.position();
        self.output(if commits {
            StoreInput::CommitPrepared { xid, meta, upto }
        } else {
            StoreInput::RollbackPrepared { xid, meta, upto }
        });
    }
}
