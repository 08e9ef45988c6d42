//! DDL as it is run at a database: which statements give the same result there, and in
//! which steps. The decisions, one by one, are in `docs/ddl.md`.

use std::ops::Range;

use weir_types::{DdlKind, TableName};

use crate::classify::analyse;
use crate::error::SchemaError;
use crate::lexer::{CommentMark, Lexer, Token};
use crate::marks::{Marks, Refusal};
use crate::parser::{Result, first_words};
use crate::rewrite::{push_table, replace};
use crate::statement::{Ddl, Session, Statement};

/// First words of an executable comment that does something of its own.
const ACTIONS: [&str; 9] = [
    "CREATE", "ALTER", "DROP", "ADD", "MODIFY", "CHANGE", "RENAME", "TRUNCATE", "CONVERT",
];

/// One statement to be run at a database, in the session that ran the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Text, with the names of the source: see `rewrite`.
    pub sql: String,
    /// What it does.
    pub kind: DdlKind,
    /// Tables that it makes, changes or drops, both names of a rename. An empty table
    /// name stands for every table of the schema.
    pub writes: Vec<TableName>,
    /// Tables that exist afterwards and may not have existed before.
    pub makes: Vec<TableName>,
    /// Tables that it reads.
    pub reads: Vec<TableName>,
    /// It adds an AUTO_INCREMENT column: the rows that are there are numbered in the
    /// order in which the server meets them, which is the same at the target only if
    /// the table had a primary key before.
    pub numbers_rows: bool,
}

/// Says how a DDL is run at a database: no step if there is nothing to run, one for
/// each table of a DROP TABLE, else one. The text is that of the source but for what
/// concerns the source only (WAIT and NOWAIT, ALGORITHM and LOCK, settings of the session
/// in front of it, START TRANSACTION behind the definition of a table, comments that the
/// source did not execute), and executable comments around whole actions are opened, so
/// that no server skips them.
///
/// # Errors
/// As for `classify`; `NotOrdinary` with the reason if the statement's text alone does
/// not lead to the same rows and shape at another server.
pub fn ordinary(kind: DdlKind, sql: &str, session: &Session<'_>) -> Result<Vec<Step>> {
    if matches!(kind, DdlKind::ImplicitCreate | DdlKind::Other) {
        return Ok(Vec::new());
    }
    let (statement, marks) = analyse(sql, session)?;
    let words = || first_words(sql, session);
    let refused = |refusal: Refusal| SchemaError::NotOrdinary {
        words: words(),
        reason: refusal.reason(),
    };
    let ddl = match statement {
        Statement::Ddl(ddl) => ddl,
        Statement::Dml { .. } => return Err(refused(Refusal::Query)),
        _ => return Err(SchemaError::Unknown { words: words() }),
    };
    if let Some(refusal) = marks.refusal {
        return Err(refused(refusal));
    }
    if ddl.kind == DdlKind::DropTable && ddl.writes.len() > 1 {
        return Ok(drops(&ddl, &marks));
    }
    let text = own_text(sql, &marks, session).ok_or_else(|| SchemaError::Text { words: words() })?;
    Ok(vec![Step {
        sql: text,
        kind: ddl.kind,
        writes: ddl.writes,
        makes: ddl.makes,
        reads: ddl.reads,
        numbers_rows: marks.numbers_rows,
    }])
}

/// One DROP TABLE for each table: a server that dies in the middle of a list has dropped
/// some of them.
fn drops(ddl: &Ddl, marks: &Marks) -> Vec<Step> {
    let drop_of = |name: &TableName| {
        let mut sql = String::from(if marks.if_exists {
            "DROP TABLE IF EXISTS "
        } else {
            "DROP TABLE "
        });
        push_table(&mut sql, name);
        Step {
            sql,
            kind: DdlKind::DropTable,
            writes: vec![name.clone()],
            makes: Vec::new(),
            reads: Vec::new(),
            numbers_rows: false,
        }
    };
    ddl.writes.iter().map(drop_of).collect()
}

/// The text without what means something at the source only.
fn own_text(sql: &str, marks: &Marks, session: &Session<'_>) -> Option<String> {
    // Tokens on both sides of a cut stay apart.
    let cuts = comment_cuts(sql, session)?.into_iter().map(|cut| (cut, " "));
    let edits: Vec<_> = cuts
        .chain(marks.edits.iter().cloned())
        .map(|(range, text)| (range, text.to_owned()))
        .collect();
    replace(sql, edits)
}

/// An executable comment that is open.
struct OpenComment {
    mark: Range<usize>,
    depth: u32,
    /// Nothing of it was read yet.
    fresh: bool,
    /// It holds a whole action or column.
    acts: bool,
}

/// Comments that the source did not run go. Of those that it ran, the marks go if a
/// whole action or column is in them: another server may skip the comment by its
/// version, and would then succeed at something else. Options stay as they are.
fn comment_cuts(sql: &str, session: &Session<'_>) -> Option<Vec<Range<usize>>> {
    let mut lexer = Lexer::new(sql, session);
    let mut cuts = Vec::new();
    let mut open: Vec<OpenComment> = Vec::new();
    let mut depth = 0_u32;
    loop {
        let token = lexer.next().ok()?;
        for mark in lexer.comments.drain(..) {
            match mark {
                CommentMark::Foreign(range) => cuts.push(range),
                CommentMark::Open(mark) => open.push(OpenComment {
                    mark,
                    depth,
                    fresh: true,
                    acts: false,
                }),
                CommentMark::Close(range) => {
                    if let Some(comment) = open.pop().filter(|comment| comment.acts) {
                        cuts.push(comment.mark);
                        cuts.push(range);
                    }
                }
            }
        }
        let Some(token) = token else {
            return Some(cuts);
        };
        for comment in &mut open {
            let begins = std::mem::take(&mut comment.fresh);
            comment.acts |= begins && ACTIONS.iter().any(|word| token.is(word))
                || token == Token::Punct(',') && depth == comment.depth;
        }
        match token {
            Token::Punct('(') => depth += 1,
            Token::Punct(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
}
