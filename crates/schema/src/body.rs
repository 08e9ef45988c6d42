//! The definition of a table: columns, keys, options and actions, of which only the
//! other tables count, and what keeps a statement from being repeated elsewhere.

use weir_types::{Flavor, TableName};

use crate::lexer::Token;
use crate::marks::{Meaning, NameMark, Refusal};
use crate::parser::{Parser, Result};

/// Functions whose value differs from server to server or from row to row.
const NONDETERMINISTIC: [&str; 14] = [
    "RAND",
    "UUID",
    "UUID_SHORT",
    "UUID_V4",
    "UUID_V7",
    "SYS_GUID",
    "SYSDATE",
    "RANDOM_BYTES",
    "CONNECTION_ID",
    "USER",
    "SESSION_USER",
    "SYSTEM_USER",
    "CURRENT_ROLE",
    "LAST_INSERT_ID",
];

/// Words of an ALTER IGNORE that may meet duplicate keys.
const MEETS_DUPLICATES: [&str; 6] = ["UNIQUE", "PRIMARY", "SERIAL", "MODIFY", "CHANGE", "CONVERT"];

/// Engines whose tables are windows to another server or a store that several share.
const ENGINES_ELSEWHERE: [&str; 6] = ["FEDERATED", "FEDERATEDX", "CONNECT", "SPIDER", "S3", "SPHINX"];

/// Most parts of a name with dots: schema, table and column.
const PARTS_MAX: usize = 3;

/// What a table's definition says beside columns and options.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) reads: Vec<TableName>,
    /// Filled by a query: the statement itself writes rows.
    pub(crate) selects: bool,
    /// Other tables that take part: EXCHANGE.
    pub(crate) partners: Vec<TableName>,
    pub(crate) renamed: Option<TableName>,
    /// A table that CONVERT makes.
    pub(crate) made: Option<TableName>,
    /// A table that CONVERT takes in.
    pub(crate) taken: Option<TableName>,
}

pub(crate) fn add(names: &mut Vec<TableName>, name: TableName) {
    if !names.contains(&name) {
        names.push(name);
    }
}

struct Walk<'t> {
    table: &'t TableName,
    /// ALTER TABLE rather than CREATE TABLE.
    alters: bool,
    /// ALTER IGNORE TABLE.
    ignores: bool,
    depth: u32,
    /// The next word begins an action of an ALTER.
    at_action: bool,
    /// Inside of an ADD.
    adding: bool,
    body: Body,
}

/// Walks the definition of `table` to the end of the statement. The words looked for are
/// reserved, or stand where no name can.
pub(crate) fn scan(parser: &mut Parser<'_>, table: &TableName, alters: bool, ignores: bool) -> Result<Body> {
    let mut walk = Walk {
        table,
        alters,
        ignores,
        depth: 0,
        at_action: alters,
        adding: false,
        body: Body::default(),
    };
    loop {
        let start = parser.start();
        let Some(token) = parser.advance()? else {
            return Ok(walk.body);
        };
        walk.token(parser, start, &token)?;
    }
}

/// A word of digits, in front of a dot: a number rather than a name.
fn is_number(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

/// Reads on if the word begins `ALGORITHM [=] word` or `LOCK [=] word`: how a server is
/// to do its work, which says nothing about the result, and which another may not be able
/// to do.
pub(crate) fn way_of_altering(parser: &mut Parser<'_>, word: &Token<'_>) -> Result<bool> {
    if !word.is("ALGORITHM") && !word.is("LOCK") {
        return Ok(false);
    }
    parser.eat_punct('=')?;
    parser.identifier()?;
    Ok(true)
}

/// Behind ENGINE; looks ahead only.
fn names_engine_elsewhere(parser: &Parser<'_>) -> Result<bool> {
    let mut ahead = parser.clone();
    ahead.eat_punct('=')?;
    let engine = match ahead.advance()? {
        Some(Token::Word(name) | Token::Text(name)) => name.to_ascii_uppercase(),
        Some(Token::Name(name)) => name.to_ascii_uppercase(),
        _ => return Ok(false),
    };
    Ok(ENGINES_ELSEWHERE.contains(&&*engine))
}

impl Walk<'_> {
    fn token(&mut self, parser: &mut Parser<'_>, start: usize, token: &Token<'_>) -> Result<()> {
        let begins_action = std::mem::take(&mut self.at_action);
        if begins_action {
            self.adding = token.is("ADD");
        }
        match token {
            Token::Punct('(') => self.depth += 1,
            Token::Punct(')') => self.depth = self.depth.saturating_sub(1),
            Token::Punct(',') if self.depth == 0 => self.at_action = self.alters,
            Token::Word(word) if parser.at_punct('.') && !is_number(word) => {
                self.dotted(parser, start, word)?;
            }
            Token::Name(name) if parser.at_punct('.') => self.dotted(parser, start, name)?,
            Token::Word(_) if begins_action && way_of_altering(parser, token)? => {
                let range = start..parser.end();
                let text = if token.is("LOCK") {
                    "LOCK=DEFAULT"
                } else {
                    "ALGORITHM=DEFAULT"
                };
                parser.marks.edit(range, text);
            }
            Token::Word(_) => {
                self.note(parser, start, token)?;
                self.word(parser, token)?;
            }
            Token::Name(_) | Token::Text(_) | Token::Punct(_) => {}
        }
        Ok(())
    }

    /// A name with dots outside of the places where tables are named: a column with its
    /// table in front, which old grammars allow, or something else.
    fn dotted(&self, parser: &mut Parser<'_>, start: usize, first: &str) -> Result<()> {
        let mut parts = vec![(first.to_owned(), parser.end())];
        while parts.len() < PARTS_MAX && parser.eat_punct('.')? {
            if !matches!(parser.peek(), Some(Token::Word(_) | Token::Name(_))) {
                break;
            }
            let part = parser.identifier()?;
            parts.push((part, parser.end()));
        }
        let is_table = |name: &str| name.eq_ignore_ascii_case(&self.table.table);
        let is_schema = |name: &str| name.eq_ignore_ascii_case(&self.table.schema);
        let own = match parts.as_slice() {
            _ if parser.at_punct('(') => None,
            [(table, end), _] if is_table(table) => Some((*end, false)),
            [(schema, _), (table, end), _] if is_schema(schema) && is_table(table) => Some((*end, true)),
            _ => None,
        };
        let (end, meaning) = match own {
            Some((end, qualified)) => {
                let name = self.table.clone();
                (end, Meaning::Qualifier { name, qualified })
            }
            None => (parser.end(), Meaning::Unsure),
        };
        let range = start..end;
        parser.marks.names.push(NameMark { range, meaning });
        Ok(())
    }

    /// What concerns the run at a database rather than order.
    fn note(&self, parser: &mut Parser<'_>, start: usize, word: &Token<'_>) -> Result<()> {
        let mariadb = parser.session.flavor == Flavor::Mariadb;
        if mariadb && (word.is("SYSTEM") && parser.at("VERSIONING") || word.is("SYSTEM_TIME")) {
            parser.marks.refuse(Refusal::SystemVersioning);
        } else if mariadb && self.is_sequence(parser, word) {
            parser.marks.refuse(Refusal::Sequence);
        } else if self.ignores && MEETS_DUPLICATES.iter().any(|w| word.is(w)) {
            parser.marks.refuse(Refusal::Ignore);
        } else if self.depth == 0
            && (word.is("DISCARD") || word.is("IMPORT"))
            && parser.at_any(&["TABLESPACE", "PARTITION"])
        {
            parser.marks.refuse(Refusal::Tablespace);
        } else if self.depth == 0 && !self.alters && word.is("START") && parser.eat("TRANSACTION")? {
            let cut = start..parser.end();
            parser.marks.edit(cut, " ");
        } else if self.depth == 0 && word.is("ENGINE") && names_engine_elsewhere(parser)? {
            parser.marks.refuse(Refusal::Elsewhere);
        } else if self.adding {
            if word.is("AUTO_INCREMENT") && !parser.at_punct('=') || word.is("SERIAL") {
                parser.marks.numbers_rows = true;
            } else if word.is("CURRENT_USER")
                || parser.at_punct('(') && NONDETERMINISTIC.iter().any(|w| word.is(w))
            {
                parser.marks.refuse(Refusal::Nondeterministic);
            }
        }
        Ok(())
    }

    /// `NEXT VALUE FOR s`, `NEXTVAL(s)` and their like, or the option SEQUENCE of a table.
    fn is_sequence(&self, parser: &Parser<'_>, word: &Token<'_>) -> bool {
        let drawn = (word.is("NEXT") || word.is("PREVIOUS")) && parser.at("VALUE");
        let function = ["NEXTVAL", "LASTVAL", "SETVAL"].iter().any(|w| word.is(w));
        let option = self.depth == 0 && word.is("SEQUENCE") && (parser.at_punct('=') || parser.at("1"));
        drawn || function && parser.at_punct('(') || option
    }

    fn word(&mut self, parser: &mut Parser<'_>, word: &Token<'_>) -> Result<()> {
        let body = &mut self.body;
        if word.is("REFERENCES") {
            // Without schema it is the schema of the child, not the session's.
            add(&mut body.reads, parser.table_in(&self.table.schema)?);
        } else if word.is("SELECT") {
            body.selects = true;
        } else if self.depth > 0 {
            return Ok(());
        } else if word.is("UNION") {
            union(parser, body)?;
        } else if word.is("TABLE") || word.is("VALUES") && (parser.at("ROW") || parser.at_punct('(')) {
            body.selects = true;
        } else if word.is("WITH") && parser.eat("TABLE")? {
            body.partners.push(parser.table()?);
        } else if word.is("CONVERT") {
            convert(parser, body)?;
        } else if word.is("RENAME") && !parser.at_any(&["COLUMN", "INDEX", "KEY", "CONSTRAINT"]) {
            if !parser.eat_any(&["TO", "AS"])? {
                parser.eat_punct('=')?;
            }
            body.renamed = Some(parser.table()?);
        }
        Ok(())
    }
}

/// Behind `UNION`: members of a MERGE table, or the second part of a query.
fn union(parser: &mut Parser<'_>, body: &mut Body) -> Result<()> {
    parser.eat_punct('=')?;
    if !parser.eat_punct('(')? || parser.at("SELECT") {
        return Ok(());
    }
    if !parser.at_punct(')') {
        for name in parser.tables()? {
            add(&mut body.reads, name);
        }
    }
    parser.eat_punct(')')?;
    Ok(())
}

/// Behind `CONVERT`: TABLE t TO PARTITION p …, or PARTITION p TO TABLE t (MariaDB), or
/// TO CHARACTER SET.
fn convert(parser: &mut Parser<'_>, body: &mut Body) -> Result<()> {
    if parser.eat("TABLE")? {
        let name = parser.table()?;
        body.taken = Some(name);
    } else if parser.eat("PARTITION")? {
        parser.identifier()?;
        if parser.eat("TO")? && parser.eat("TABLE")? {
            body.made = Some(parser.table()?);
        }
    }
    Ok(())
}
