//! The first words decide.

use weir_types::TableName;

use crate::ddl;
use crate::error::SchemaError;
use crate::lexer::Token;
use crate::marks::Marks;
use crate::parser::{Parser, Result};
use crate::statement::{IgnoreReason, Session, Statement};
use crate::transaction;

/// Statements that begin with these words change neither rows nor shape of a table.
const MAINTENANCE: [&str; 9] = [
    "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "FLUSH", "CACHE", "RESET", "PURGE",
];
const ACCOUNT: [&str; 2] = ["GRANT", "REVOKE"];
const INSTANCE: [&str; 8] = [
    "INSTALL",
    "UNINSTALL",
    "CHANGE",
    "STOP",
    "SHUTDOWN",
    "RESTART",
    "KILL",
    "IMPORT",
];
const SESSION: [&str; 8] = [
    "USE", "RELEASE", "LOCK", "UNLOCK", "SHOW", "EXPLAIN", "DESCRIBE", "BACKUP",
];
/// Settings of `SET STATEMENT` that need not be repeated: the event tells them beside the
/// statement, or they limit time and memory of the source.
const SETTINGS_TOLD: [&str; 12] = [
    "SQL_MODE",
    "FOREIGN_KEY_CHECKS",
    "UNIQUE_CHECKS",
    "TIMESTAMP",
    "TIME_ZONE",
    "MAX_STATEMENT_TIME",
    "LOCK_WAIT_TIMEOUT",
    "INNODB_LOCK_WAIT_TIMEOUT",
    "SORT_BUFFER_SIZE",
    "MAX_HEAP_TABLE_SIZE",
    "TMP_TABLE_SIZE",
    "ALTER_ALGORITHM",
];
/// They may change rows through functions; a server writes them for that reason alone.
const OPAQUE_DML: [&str; 5] = ["SELECT", "DO", "CALL", "WITH", "HANDLER"];

/// Says what a statement of a query event is.
///
/// # Errors
/// A statement that is not known, or a DDL of tables whose names cannot be told.
pub fn classify(sql: &str, session: &Session<'_>) -> std::result::Result<Statement, SchemaError> {
    analyse(sql, session).map(|(statement, _)| statement)
}

/// As `classify`, with what was noted on the way.
pub(crate) fn analyse(sql: &str, session: &Session<'_>) -> Result<(Statement, Marks)> {
    let mut parser = Parser::new(sql, session)?;
    let found = statement(&mut parser)?;
    Ok((found, parser.marks))
}

fn statement(parser: &mut Parser<'_>) -> Result<Statement> {
    while parser.eat_punct('(')? || parser.eat_punct(';')? {}
    if parser.peek().is_none() {
        return Ok(Statement::Ignored(IgnoreReason::Empty));
    }
    if let Some(found) = transaction_or_row(parser)? {
        return Ok(found);
    }
    if let Some(found) = ddl::definition(parser)? {
        return Ok(found);
    }
    let without_effect = [
        (&MAINTENANCE[..], IgnoreReason::Maintenance),
        (&ACCOUNT[..], IgnoreReason::Account),
        (&INSTANCE[..], IgnoreReason::Instance),
        (&SESSION[..], IgnoreReason::Session),
    ];
    without_effect
        .iter()
        .find(|(words, _)| parser.at_any(words))
        .map(|&(_, reason)| Statement::Ignored(reason))
        .ok_or_else(|| parser.unknown_error())
}

fn transaction_or_row(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    let found = if parser.eat("BEGIN")? {
        Statement::Begin
    } else if parser.eat("COMMIT")? {
        Statement::Commit
    } else if parser.eat("ROLLBACK")? {
        transaction::rollback(parser)?
    } else if parser.eat("SAVEPOINT")? {
        transaction::savepoint(parser)?
    } else if parser.eat("XA")? {
        transaction::xa(parser)?
    } else if parser.eat("START")? {
        transaction::start(parser)?
    } else if parser.at("SET") {
        return set(parser).map(Some);
    } else if parser.eat_any(&["INSERT", "REPLACE"])? {
        while parser.eat_any(&["LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "IGNORE", "INTO"])? {}
        dml(Some(parser.table()?))
    } else if parser.eat("UPDATE")? {
        dml(updated(parser)?)
    } else if parser.eat("DELETE")? {
        dml(deleted(parser)?)
    } else if parser.eat("LOAD")? {
        return load(parser).map(Some);
    } else if parser.at_any(&OPAQUE_DML) {
        Statement::Dml { tables: None }
    } else {
        return Ok(None);
    };
    Ok(Some(found))
}

fn dml(table: Option<TableName>) -> Statement {
    Statement::Dml {
        tables: table.map(|name| vec![name]),
    }
}

/// At `SET`. MariaDB's `SET STATEMENT … FOR` stands before another statement.
fn set(parser: &mut Parser<'_>) -> Result<Statement> {
    let start = parser.start();
    parser.advance()?;
    if parser.at_any(&["PASSWORD", "ROLE", "DEFAULT"]) {
        return Ok(Statement::Ignored(IgnoreReason::Account));
    }
    if !parser.eat("STATEMENT")? {
        return Ok(Statement::Ignored(IgnoreReason::Session));
    }
    let mut told = true;
    let mut at_name = true;
    while !parser.at("FOR") {
        match parser.advance()? {
            None => return Err(parser.unknown_error()),
            Some(token) if at_name => {
                told &= SETTINGS_TOLD.iter().any(|name| token.is(name));
                at_name = false;
            }
            Some(token) => at_name = token == Token::Punct(','),
        }
    }
    parser.advance()?;
    if told {
        let range = start..parser.end();
        parser.marks.edit(range, " ");
    }
    statement(parser)
}

/// Behind `UPDATE`: the table, if it is only one.
fn updated(parser: &mut Parser<'_>) -> Result<Option<TableName>> {
    while parser.eat_any(&["LOW_PRIORITY", "IGNORE"])? {}
    let Ok(table) = parser.table() else {
        return Ok(None);
    };
    if !parser.at("SET") {
        parser.eat("AS")?;
        if parser.identifier().is_err() {
            return Ok(None);
        }
    }
    Ok(parser.at("SET").then_some(table))
}

/// Behind `DELETE`: the table, if it is only one.
fn deleted(parser: &mut Parser<'_>) -> Result<Option<TableName>> {
    while parser.eat_any(&["LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY"])? {}
    if !parser.eat("FROM")? {
        return Ok(None);
    }
    let Ok(table) = parser.table() else {
        return Ok(None);
    };
    let ends = ["WHERE", "ORDER", "LIMIT", "RETURNING", "BEFORE", "FOR"];
    if !parser.at_end() && !parser.at_any(&ends) && !parser.eat("AS")? && parser.identifier().is_err() {
        return Ok(None);
    }
    Ok((parser.at_end() || parser.at_any(&ends)).then_some(table))
}

/// Behind `LOAD`.
fn load(parser: &mut Parser<'_>) -> Result<Statement> {
    if parser.at("INDEX") {
        return Ok(Statement::Ignored(IgnoreReason::Maintenance));
    }
    while !parser.eat("INTO")? {
        if parser.advance()?.is_none() {
            return Ok(Statement::Dml { tables: None });
        }
    }
    if parser.eat("TABLE")? {
        return Ok(dml(Some(parser.table()?)));
    }
    Ok(Statement::Dml { tables: None })
}
