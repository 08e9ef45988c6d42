//! CREATE, ALTER, DROP, RENAME and TRUNCATE.

use weir_types::{DdlKind, Flavor, TableName};

use crate::body::{self, add, way_of_altering};
use crate::lexer::Token;
use crate::marks::{Meaning, NameMark, Refusal};
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
const MODIFIERS: [&str; 15] = [
    "OR",
    "REPLACE",
    "ONLINE",
    "OFFLINE",
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
        wait(parser)?;
        Ok(ddl(DdlKind::TruncateTable, vec![table], Vec::new(), Vec::new()))
    } else {
        Ok(None)
    }
}

/// What the words in front of the object's name say.
enum Object {
    Table { temporary: bool, ignores: bool },
    Index,
    Database,
    Passed(IgnoreReason),
}

/// Moves over the words up to and including the object's kind.
fn object(parser: &mut Parser<'_>) -> Result<Object> {
    let (mut temporary, mut ignores) = (false, false);
    loop {
        if parser.eat("TEMPORARY")? {
            temporary = true;
        } else if parser.eat("IGNORE")? {
            ignores = true;
        } else if parser.eat_any(&["TABLE", "TABLES"])? {
            return Ok(Object::Table { temporary, ignores });
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
        Object::Table { temporary: true, .. } => Ok(ignored(IgnoreReason::TemporaryTable)),
        Object::Table { .. } => create_table(parser),
        Object::Index => index(parser),
        Object::Database => {
            parser.eat_if_exists()?;
            let schema = TableName::new(parser.schema()?, "");
            Ok(ddl(DdlKind::CreateDatabase, vec![schema], Vec::new(), Vec::new()))
        }
    }
}

fn create_table(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    parser.eat_if_exists()?;
    let table = parser.table()?;
    let mut reads = Vec::new();
    let mut ahead = parser.clone();
    ahead.eat_punct('(')?;
    if ahead.eat("LIKE")? {
        *parser = ahead;
        reads.push(parser.table()?);
    } else {
        let body = body::scan(parser, &table, false, false)?;
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

fn alter(parser: &mut Parser<'_>) -> Result<Option<Statement>> {
    match object(parser)? {
        Object::Passed(reason) => Ok(ignored(reason)),
        Object::Table { temporary: true, .. } => Ok(ignored(IgnoreReason::TemporaryTable)),
        Object::Table { ignores, .. } => alter_table(parser, ignores),
        Object::Index => Err(parser.names_error()),
        Object::Database => {
            let schema = if database_named(parser)? {
                parser.schema()?
            } else {
                default_schema(parser)?
            };
            if parser.at("UPGRADE") {
                parser.marks.refuse(Refusal::UpgradeName);
            }
            let writes = vec![TableName::new(schema, "")];
            Ok(ddl(DdlKind::AlterDatabase, writes, Vec::new(), Vec::new()))
        }
    }
}

/// The schema of an ALTER DATABASE that names none.
fn default_schema(parser: &mut Parser<'_>) -> Result<String> {
    if parser.session.default_schema.is_empty() {
        return Err(parser.names_error());
    }
    // Directly behind DATABASE: a comment may begin in front of the next word.
    let range = parser.end()..parser.end();
    let meaning = Meaning::DefaultSchema;
    parser.marks.names.push(NameMark { range, meaning });
    Ok(parser.session.default_schema.to_owned())
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

fn alter_table(parser: &mut Parser<'_>, ignores: bool) -> Result<Option<Statement>> {
    parser.eat_if_exists()?;
    let table = parser.table()?;
    wait(parser)?;
    let body = body::scan(parser, &table, true, ignores)?;
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
        Object::Table { temporary: true, .. } => Ok(ignored(IgnoreReason::TemporaryTable)),
        Object::Table { .. } => {
            parser.marks.if_exists = parser.at("IF");
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
            let writes = vec![TableName::new(parser.schema()?, "")];
            Ok(ddl(DdlKind::DropDatabase, writes, Vec::new(), Vec::new()))
        }
    }
}

/// `WAIT n` or `NOWAIT` (MariaDB): about locks at the source.
fn wait(parser: &mut Parser<'_>) -> Result<()> {
    if parser.session.flavor != Flavor::Mariadb || !parser.at_any(&["WAIT", "NOWAIT"]) {
        return Ok(());
    }
    let start = parser.start();
    if parser.eat("WAIT")? {
        parser.advance()?;
    } else {
        parser.eat("NOWAIT")?;
    }
    let cut = start..parser.end();
    parser.marks.edit(cut, " ");
    Ok(())
}

/// Moves behind a list in parentheses, if one is next.
fn parentheses(parser: &mut Parser<'_>) -> Result<()> {
    let mut depth = 0_u32;
    while depth > 0 || parser.at_punct('(') {
        match parser.advance()? {
            Some(Token::Punct('(')) => depth += 1,
            Some(Token::Punct(')')) => depth = depth.saturating_sub(1),
            Some(_) => {}
            None => break,
        }
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
    parentheses(parser)?;
    wait(parser)?;
    loop {
        let start = parser.start();
        let Some(token) = parser.advance()? else {
            break;
        };
        if way_of_altering(parser, &token)? {
            let cut = start..parser.end();
            parser.marks.edit(cut, " ");
        }
    }
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
