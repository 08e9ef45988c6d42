//! CREATE, ALTER, DROP, RENAME and TRUNCATE.

use weir_types::{DdlKind, TableName};

use crate::lexer::Token;
use crate::parser::{Parser, Result};
use crate::statement::{Ddl, IgnoreReason, Statement};

/// Objects that are told by one word behind CREATE, ALTER or DROP and their modifiers.
const OBJECTS: [(&[&str], IgnoreReason); 8] = [
    (&["VIEW"], IgnoreReason::View),
    (&["TRIGGER"], IgnoreReason::Trigger),
    (
        &["PROCEDURE", "FUNCTION", "PACKAGE", "LIBRARY"],
        IgnoreReason::Routine,
    ),
    (&["EVENT"], IgnoreReason::Event),
    (&["SEQUENCE"], IgnoreReason::Sequence),
    (&["USER", "ROLE"], IgnoreReason::Account),
    (
        &[
            "TABLESPACE",
            "SERVER",
            "LOGFILE",
            "INSTANCE",
            "RESOURCE",
            "CATALOG",
        ],
        IgnoreReason::Instance,
    ),
    (&["PREPARE"], IgnoreReason::Session),
];

/// Words between CREATE, ALTER or DROP and the object, each by itself.
const MODIFIERS: [&str; 16] = [
    "OR",
    "REPLACE",
    "ONLINE",
    "OFFLINE",
    "IGNORE",
    "UNIQUE",
    "FULLTEXT",
    "SPATIAL",
    "VECTOR",
    "AGGREGATE",
    "UNDO",
    "JSON",
    "RELATIONAL",
    "DUALITY",
    "MATERIALIZED",
    "EXTERNAL",
];

fn ignored(reason: IgnoreReason) -> Option<Statement> {
    Some(Statement::Ignored(reason))
}

fn ddl(
    kind: DdlKind,
    writes: Vec<TableName>,
    makes: Vec<TableName>,
    reads: Vec<TableName>,
) -> Option<Statement> {
    Some(Statement::Ddl(Ddl {
        kind,
        writes,
        makes,
        reads,
    }))
}

/// Reads a statement that begins with CREATE, ALTER, DROP, RENAME or TRUNCATE; none if
/// it begins otherwise.
pub(crate) fn definition(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if parser.eat("CREATE")? {
        create(parser)
    } else if parser.eat("ALTER")? {
        alter(parser)
    } else if parser.eat("DROP")? {
        drop_object(parser)
    } else if parser.eat("RENAME")? {
        rename(parser)
    } else if parser.eat("TRUNCATE")? {
        parser.eat("TABLE")?;
        let table = parser.table()?;
        Ok(ddl(DdlKind::TruncateTable, vec![table], Vec::new(), Vec::new()))
    } else {
        Ok(None)
    }
}

/// What the words in front of the object's name say.
enum Object {
    Table { temporary: bool },
    Index,
    Database,
    Passed(IgnoreReason),
}

/// Moves over the words up to and including the object's kind.
fn object(parser: &mut Parser<'_>) -> Result<Object> {
    let mut temporary = false;
    loop {
        if parser.eat("TEMPORARY")? {
            temporary = true;
        } else if parser.eat_any(&["TABLE", "TABLES"])? {
            return Ok(Object::Table { temporary });
        } else if parser.eat_any(&["INDEX", "KEY"])? {
            return Ok(Object::Index);
        } else if parser.eat_any(&["DATABASE", "SCHEMA"])? {
            return Ok(Object::Database);
        } else if parser.at("REFERENCE") {
            // CREATE SPATIAL REFERENCE SYSTEM.
            return Ok(Object::Passed(IgnoreReason::Instance));
        } else if let Some(&(_, reason)) = OBJECTS.iter().find(|(words, _)| parser.at_any(words)) {
            return Ok(Object::Passed(if temporary {
                IgnoreReason::TemporaryTable
            } else {
                reason
            }));
        } else if !parser.eat_any(&MODIFIERS)? && !definer(parser)? {
            return Err(parser.names_error());
        }
    }
}

/// `DEFINER = user@host`, `ALGORITHM = word`, `SQL SECURITY word`.
fn definer(parser: &mut Parser<'_>) -> Result<bool> {
    if parser.eat("SQL")? {
        let known = parser.eat("SECURITY")?;
        parser.advance()?;
        return Ok(known);
    }
    if parser.eat("ALGORITHM")? {
        parser.eat_punct('=')?;
        parser.advance()?;
        return Ok(true);
    }
    if !parser.eat("DEFINER")? {
        return Ok(false);
    }
    parser.eat_punct('=')?;
    parser.advance()?;
    if parser.eat_punct('(')? {
        parser.eat_punct(')')?;
    }
    if parser.eat_punct('@')? {
        parser.advance()?;
    }
    Ok(true)
}

fn create(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    match object(parser)? {
        Object::Passed(reason) => Ok(ignored(reason)),
        Object::Table { temporary: true } => Ok(ignored(IgnoreReason::TemporaryTable)),
        Object::Table { temporary: false } => create_table(parser),
        Object::Index => index(parser),
        Object::Database => {
            parser.eat_if_exists()?;
            let schema = TableName::new(parser.identifier()?, "");
            Ok(ddl(DdlKind::CreateDatabase, vec![schema], Vec::new(), Vec::new()))
        }
    }
}

fn create_table(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    parser.eat_if_exists()?;
    let table = parser.table()?;
    let mut reads = Vec::new();
    let mut like = parser.clone();
    like.eat_punct('(')?;
    if like.eat("LIKE")? {
        reads.push(like.table()?);
    } else {
        let body = scan_body(parser)?;
        if body.selects {
            return Ok(Some(Statement::Dml {
                tables: Some(vec![table]),
            }));
        }
        reads = body.reads;
    }
    reads.retain(|name| *name != table);
    Ok(ddl(DdlKind::CreateTable, vec![table.clone()], vec![table], reads))
}

/// What a table's definition says beside columns and options.
#[derive(Default)]
struct Body {
    reads: Vec<TableName>,
    /// Filled by a query: the statement itself writes rows.
    selects: bool,
    /// Other tables that take part: EXCHANGE and CONVERT.
    partners: Vec<TableName>,
    renamed: Option<TableName>,
    /// A table that CONVERT makes.
    made: Option<TableName>,
    /// A table that CONVERT takes in.
    taken: Option<TableName>,
}

fn add(names: &mut Vec<TableName>, name: TableName) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Walks the definition of a table to its end. The words looked for are reserved, or
/// stand where no name can.
fn scan_body(parser: &mut Parser<'_>) -> Result<Body> {
    let mut body = Body::default();
    let mut depth = 0_u32;
    while let Some(token) = parser.advance()? {
        match &token {
            Token::Punct('(') => depth += 1,
            Token::Punct(')') => depth = depth.saturating_sub(1),
            Token::Word(_) => body_word(parser, &token, depth, &mut body)?,
            Token::Name(_) | Token::Text(_) | Token::Punct(_) => {}
        }
    }
    Ok(body)
}

fn body_word(parser: &mut Parser<'_>, word: &Token<'_>, depth: u32, body: &mut Body) -> Result<()> {
    if word.is("REFERENCES") {
        add(&mut body.reads, parser.table()?);
    } else if word.is("SELECT") {
        body.selects = true;
    } else if depth > 0 {
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

fn alter(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    match object(parser)? {
        Object::Passed(reason) => Ok(ignored(reason)),
        Object::Table { temporary: true } => Ok(ignored(IgnoreReason::TemporaryTable)),
        Object::Table { temporary: false } => alter_table(parser),
        Object::Index => Err(parser.names_error()),
        Object::Database => {
            let schema = if database_named(parser)? {
                parser.identifier()?
            } else if parser.session.default_schema.is_empty() {
                return Err(parser.names_error());
            } else {
                parser.session.default_schema.to_owned()
            };
            let writes = vec![TableName::new(schema, "")];
            Ok(ddl(DdlKind::AlterDatabase, writes, Vec::new(), Vec::new()))
        }
    }
}

/// Whether ALTER DATABASE goes on with a name rather than with its first option.
fn database_named(parser: &Parser<'_>) -> Result<bool> {
    if parser.at_any(&["CHARACTER", "COLLATE", "DEFAULT", "READ"]) {
        return Ok(false);
    }
    if !parser.at_any(&["CHARSET", "ENCRYPTION", "COMMENT", "CHAR"]) {
        return Ok(true);
    }
    // An option has a value behind it; a name has an option.
    let mut ahead = parser.clone();
    ahead.advance()?;
    if ahead.at_punct('=') || matches!(ahead.peek(), Some(Token::Text(_))) {
        return Ok(false);
    }
    Ok(ahead.at_any(&[
        "CHARACTER",
        "COLLATE",
        "DEFAULT",
        "READ",
        "CHARSET",
        "ENCRYPTION",
        "COMMENT",
    ]))
}

fn alter_table(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    parser.eat_if_exists()?;
    let table = parser.table()?;
    let body = scan_body(parser)?;
    let mut reads = body.reads;
    reads.retain(|name| *name != table);
    let mut writes = vec![table.clone()];
    for name in body.partners {
        add(&mut writes, name);
    }
    let mut makes = Vec::new();
    let kept = body.renamed.is_none();
    if let Some(name) = body.renamed {
        add(&mut writes, name.clone());
        makes.push(name);
    }
    let converted = body.made.is_some() || body.taken.is_some();
    if let Some(name) = body.made {
        add(&mut writes, name.clone());
        makes.push(name);
    }
    if let Some(name) = body.taken {
        add(&mut writes, name);
    }
    if kept && !converted {
        return Ok(ddl(DdlKind::AlterTable, writes, Vec::new(), reads));
    }
    if kept {
        makes.insert(0, table);
    }
    Ok(ddl(DdlKind::RenameTable, writes, makes, reads))
}

fn drop_object(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    match object(parser)? {
        Object::Passed(reason) => Ok(ignored(reason)),
        Object::Table { temporary: true } => Ok(ignored(IgnoreReason::TemporaryTable)),
        Object::Table { temporary: false } => {
            parser.eat_if_exists()?;
            let tables = parser.tables()?;
            parser.eat_any(&["RESTRICT", "CASCADE"])?;
            wait(parser)?;
            parser.expect_end()?;
            Ok(ddl(DdlKind::DropTable, tables, Vec::new(), Vec::new()))
        }
        Object::Index => index(parser),
        Object::Database => {
            parser.eat_if_exists()?;
            let writes = vec![TableName::new(parser.identifier()?, "")];
            Ok(ddl(DdlKind::DropDatabase, writes, Vec::new(), Vec::new()))
        }
    }
}

/// `WAIT n` or `NOWAIT` (MariaDB).
fn wait(parser: &mut Parser<'_>) -> Result<()> {
    if parser.eat("WAIT")? {
        parser.advance()?;
    } else {
        parser.eat("NOWAIT")?;
    }
    Ok(())
}

/// Behind INDEX: `[IF [NOT] EXISTS] name [USING type] ON table`.
fn index(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    parser.eat_if_exists()?;
    parser.identifier()?;
    if parser.eat_any(&["USING", "TYPE"])? {
        parser.identifier()?;
    }
    if !parser.eat("ON")? {
        return Err(parser.names_error());
    }
    let table = parser.table()?;
    Ok(ddl(DdlKind::Index, vec![table], Vec::new(), Vec::new()))
}

/// Behind RENAME: pairs of tables, carried out one after another.
fn rename(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    if parser.at("USER") {
        return Ok(ignored(IgnoreReason::Account));
    }
    if !parser.eat_any(&["TABLE", "TABLES"])? {
        return Err(parser.names_error());
    }
    parser.eat_if_exists()?;
    let (mut writes, mut makes) = (Vec::new(), Vec::new());
    loop {
        let from = parser.table()?;
        wait(parser)?;
        if !parser.eat("TO")? {
            return Err(parser.names_error());
        }
        let to = parser.table()?;
        makes.retain(|name| *name != from);
        add(&mut writes, from);
        add(&mut writes, to.clone());
        add(&mut makes, to);
        if !parser.eat_punct(',')? {
            break;
        }
    }
    parser.expect_end()?;
    Ok(ddl(DdlKind::RenameTable, writes, makes, Vec::new()))
}
