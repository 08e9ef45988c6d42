//! Statements that begin, end and cut transactions.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_types::Xid;

use crate::lexer::Token;
use crate::parser::{Parser, Result};
use crate::statement::{IgnoreReason, Statement};

/// Format id where an XA statement names none.
const XA_FORMAT_DEFAULT: u64 = 1;

/// An XA identifier as the servers print it in their binlogs: `X'…',X'…',1`, with
/// hexadecimal digits in lower case.
pub(crate) fn xid_text(global: &[u8], branch: &[u8], format: u64) -> Xid {
    let mut out = String::with_capacity(16 + 2 * (global.len() + branch.len()));
    for (i, part) in [global, branch].iter().enumerate() {
        out.push_str(if i == 0 { "X'" } else { ",X'" });
        for byte in *part {
            // Writing to a string does not fail.
            let _written = write!(out, "{byte:02x}");
        }
        out.push('\'');
    }
    let _written = write!(out, ",{format}");
    Xid(Arc::from(out))
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        })
        .collect()
}

/// `'text'`, `X'6731'` or `0x6731`.
fn xid_part(parser: &mut Parser<'_>) -> Result<Vec<u8>> {
    let part = match parser.advance()? {
        Some(Token::Text(text)) => Some(text.as_bytes().to_vec()),
        Some(Token::Word(word)) if word.eq_ignore_ascii_case("x") => match parser.advance()? {
            Some(Token::Text(digits)) => from_hex(digits),
            _ => None,
        },
        Some(Token::Word(word)) => word.strip_prefix("0x").and_then(from_hex),
        _ => None,
    };
    part.ok_or_else(|| parser.unknown_error())
}

fn xid(parser: &mut Parser<'_>) -> Result<Xid> {
    let global = xid_part(parser)?;
    let mut branch = Vec::new();
    let mut format = XA_FORMAT_DEFAULT;
    if parser.eat_punct(',')? {
        branch = xid_part(parser)?;
        if parser.eat_punct(',')? {
            format = match parser.advance()? {
                Some(Token::Word(number)) => number.parse().ok(),
                _ => None,
            }
            .ok_or_else(|| parser.unknown_error())?;
        }
    }
    Ok(xid_text(&global, &branch, format))
}

/// Behind `XA`.
pub(crate) fn xa(parser: &mut Parser<'_>) -> Result<Statement> {
    if parser.eat_any(&["START", "BEGIN"])? {
        Ok(Statement::XaStart(xid(parser)?))
    } else if parser.eat("END")? {
        Ok(Statement::XaEnd(xid(parser)?))
    } else if parser.eat("PREPARE")? {
        Ok(Statement::XaPrepare(xid(parser)?))
    } else if parser.eat("COMMIT")? {
        let xid = xid(parser)?;
        let one_phase = parser.eat("ONE")?;
        Ok(Statement::XaCommit { xid, one_phase })
    } else if parser.eat("ROLLBACK")? {
        Ok(Statement::XaRollback(xid(parser)?))
    } else {
        Err(parser.unknown_error())
    }
}

/// Behind `ROLLBACK`.
pub(crate) fn rollback(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.eat("WORK")?;
    if parser.eat("TO")? {
        parser.eat("SAVEPOINT")?;
        return Ok(Statement::RollbackTo(parser.identifier()?.to_lowercase()));
    }
    Ok(Statement::Rollback)
}

/// Behind `SAVEPOINT`.
pub(crate) fn savepoint(parser: &mut Parser<'_>) -> Result<Statement> {
    Ok(Statement::Savepoint(parser.identifier()?.to_lowercase()))
}

/// Behind `START`.
pub(crate) fn start(parser: &mut Parser<'_>) -> Result<Statement> {
    if parser.eat("TRANSACTION")? {
        return Ok(Statement::Begin);
    }
    if parser.at_any(&["REPLICA", "SLAVE", "ALL", "GROUP_REPLICATION"]) {
        return Ok(Statement::Ignored(IgnoreReason::Instance));
    }
    Err(parser.unknown_error())
}
