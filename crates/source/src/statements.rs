//! Query events: transaction borders, DDL, and what may not be there.

use std::sync::Arc;

use weir_binlog::header::EventHeader;
use weir_binlog::query::Query;
use weir_schema::{Ddl, IgnoreReason, Session, Statement, classify};
use weir_types::{DdlEvent, DdlKind, TableName};

use crate::assembler::TransactionAssembler;
use crate::catalogue::{At, Change};
use crate::error::{Result, SourceError};
use crate::open::{AlterHalf, Open, Phase};
use crate::statement_text;

impl TransactionAssembler {
    pub(crate) fn compressed_query(&mut self, header: &EventHeader, query: &Query<'_>) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.inflated);
        let limit = self.event_bytes_max;
        let result = match weir_binlog::compress::inflate_query(query, limit, &mut buffer) {
            Ok(query) => self.query(header, &query),
            Err(error) => Err(self.binlog_error(error)),
        };
        self.keep_buffer(buffer);
        result
    }

    pub(crate) fn query(&mut self, header: &EventHeader, query: &Query<'_>) -> Result<()> {
        // Nearly all of them; no text to read.
        let statement = match query.sql {
            b"BEGIN" => Statement::Begin,
            b"COMMIT" => Statement::Commit,
            _ => self.classify(query)?,
        };
        if self.open.is_none() {
            // Servers before GTIDs, or with them switched off in old releases.
            let time_ms = u64::from(header.timestamp) * 1000;
            self.announce(Open::new(Phase::Announced, None, time_ms))?;
        }
        self.statement(statement, header.timestamp, query)
    }

    fn classify(&self, query: &Query<'_>) -> Result<Statement> {
        let collation = query.settings.charset.map(|charset| charset.client);
        let unreadable = || SourceError::StatementText {
            place: self.place(),
            collation: collation.unwrap_or(0),
        };
        let schema = std::str::from_utf8(query.schema).map_err(|_| unreadable())?;
        let session = Session {
            default_schema: schema,
            flavor: self.flavor,
            sql_mode: query.settings.sql_mode.unwrap_or(0),
        };
        let Some(sql) = statement_text::decode(query.sql, collation) else {
            // Keywords are ASCII in every charset: they tell what is no concern of ours.
            return match classify(&String::from_utf8_lossy(query.sql), &session) {
                Ok(ignored @ Statement::Ignored(_)) => Ok(ignored),
                _ => Err(unreadable()),
            };
        };
        classify(&sql, &session).map_err(|source| SourceError::Statement {
            place: self.place(),
            source,
        })
    }

    fn phase(&self) -> Option<Phase> {
        self.open.as_ref().map(|open| open.phase)
    }

    fn statement(&mut self, statement: Statement, timestamp: u32, query: &Query<'_>) -> Result<()> {
        let begun = self.phase() == Some(Phase::Begun);
        match statement {
            Statement::Begin => self.begin(None),
            Statement::XaStart(xid) => self.begin(Some(xid)),
            Statement::Commit if begun => self.commit(),
            Statement::Rollback if begun => self.roll_back(),
            Statement::Savepoint(name) if begun => {
                if let Some(open) = &mut self.open {
                    open.set_savepoint(name);
                }
            }
            Statement::RollbackTo(name) if begun => {
                if !self.roll_back_to(&name) {
                    return Err(SourceError::UnknownSavepoint { place: self.place() });
                }
            }
            // The rows end here; XA PREPARE or a commit in one phase follows.
            Statement::XaEnd(_) if begun => {}
            Statement::XaPrepare(xid) if begun => self.prepare(xid),
            Statement::XaCommit { one_phase: true, .. } if begun => self.commit(),
            Statement::XaCommit { xid, .. } => self.end_prepared(xid, true),
            // Of the transaction that is open: it was never prepared.
            Statement::XaRollback(xid) if begun && self.is_xa(&xid) => self.roll_back(),
            Statement::XaRollback(xid) => self.end_prepared(xid, false),
            Statement::Ddl(ddl) => {
                self.ddl(&ddl, timestamp, query)?;
                self.end_of_statement();
            }
            Statement::Dml { tables } => {
                self.statement_format(tables)?;
                self.end_of_statement();
            }
            Statement::Ignored(reason) => {
                self.ignored(reason);
                self.end_of_statement();
            }
            // Without BEGIN they end an empty transaction, or mean nothing.
            Statement::Commit
            | Statement::Rollback
            | Statement::Savepoint(_)
            | Statement::RollbackTo(_)
            | Statement::XaEnd(_)
            | Statement::XaPrepare(_) => self.end_of_statement(),
        }
        Ok(())
    }

    fn ignored(&mut self, reason: IgnoreReason) {
        if matches!(reason, IgnoreReason::Session | IgnoreReason::Empty) {
            return;
        }
        self.counts.ignored_statements += 1;
        tracing::debug!(reason = reason.label(), place = %self.place(), "statement is not replicated");
    }

    fn begin(&mut self, xa: Option<weir_types::Xid>) {
        if let Some(open) = &mut self.open {
            open.phase = Phase::Begun;
            if xa.is_some() {
                open.xa = xa;
            }
        }
    }

    fn is_xa(&self, xid: &weir_types::Xid) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.xa.as_ref() == Some(xid))
    }

    /// A statement outside of BEGIN and COMMIT is a transaction.
    fn end_of_statement(&mut self) {
        if self.phase() != Some(Phase::Begun) {
            self.commit();
        }
    }

    /// A row change as text: what it changed cannot be told.
    pub(crate) fn statement_format(&mut self, tables: Option<Vec<TableName>>) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.skipped) {
            return Ok(());
        }
        let wanted = match &tables {
            Some(tables) => tables.iter().find(|name| self.tables.wants(name)),
            None => return Err(self.statement_format_error(String::new())),
        };
        match wanted {
            Some(name) => Err(self.statement_format_error(format!(" of `{name}`"))),
            None => Ok(()),
        }
    }

    fn statement_format_error(&self, table: String) -> SourceError {
        SourceError::StatementFormat {
            place: self.place(),
            table,
        }
    }

    fn ddl(&mut self, ddl: &Ddl, timestamp: u32, query: &Query<'_>) -> Result<()> {
        let ordinal = self.next_ordinal()?;
        let Some(open) = &self.open else {
            return Ok(());
        };
        if open.alter == AlterHalf::WithoutEffect {
            return Ok(());
        }
        let skipped = open.skipped;
        self.pass_ddl(&Change {
            kind: ddl.kind,
            sql: query.sql,
            writes: &ddl.writes,
            makes: &ddl.makes,
        })?;
        let wanted = ddl
            .writes
            .iter()
            .chain(&ddl.makes)
            .any(|name| self.tables.wants(name));
        if wanted && !skipped {
            self.record_ddl(ddl, ordinal, timestamp, query)?;
        }
        if !skipped {
            self.tables.apply(ddl.kind, &ddl.writes, &ddl.makes);
        }
        Ok(())
    }

    /// Tells the catalogue of a DDL.
    ///
    /// # Errors
    /// `CatalogueAhead`.
    fn pass_ddl(&mut self, change: &Change<'_>) -> Result<()> {
        let at = At {
            file: &self.file,
            offset: self.event_offset,
            end: self.at,
            time_ms: self.last_time_ms,
        };
        self.tables.pass(change, at)
    }

    fn record_ddl(&mut self, ddl: &Ddl, ordinal: u32, timestamp: u32, query: &Query<'_>) -> Result<()> {
        if matches!(
            ddl.kind,
            DdlKind::AlterTable | DdlKind::Index | DdlKind::TruncateTable
        ) {
            self.meet(&ddl.writes, ordinal);
        }
        let collation = query.settings.charset.map(|charset| charset.client);
        let unreadable = || SourceError::StatementText {
            place: self.place(),
            collation: collation.unwrap_or(0),
        };
        let sql = statement_text::decode(query.sql, collation).ok_or_else(unreadable)?;
        let schema = std::str::from_utf8(query.schema).map_err(|_| unreadable())?;
        let event = DdlEvent {
            kind: ddl.kind,
            schema: Arc::from(schema),
            session: Arc::new(statement_text::session(self.flavor, timestamp, &query.settings)),
            sql: Arc::from(&*sql),
            writes: ddl.writes.clone(),
            makes: ddl.makes.clone(),
            reads: ddl.reads.clone(),
            commit_time_ms: self.open.as_ref().map_or(0, |open| open.commit_time_ms),
        };
        self.group.push_ddl(ordinal, Arc::new(event));
        self.counts.ddls += 1;
        if let Some(open) = &mut self.open {
            open.has_ddl = true;
        }
        Ok(())
    }

    /// Tables that a DDL changes, and that no CREATE made: they exist all the same.
    fn meet(&mut self, writes: &[TableName], ordinal: u32) {
        for name in writes.iter().filter(|name| !name.table.is_empty()) {
            if !self.tables.wants(name) {
                continue;
            }
            let no = self.tables.number(name.clone());
            let number = self.number;
            if self
                .tables
                .get(no)
                .is_some_and(|t| !t.known && t.created_in != number)
            {
                self.implicit_create(no, ordinal - 1);
            }
        }
    }
}
