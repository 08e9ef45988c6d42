//! Other names in the text of a statement: each table and schema that it means is put
//! where the routes say, and everything else stays byte for byte.

use std::collections::BTreeSet;
use std::ops::Range;

use weir_types::TableName;

use crate::classify::{analyse, classify};
use crate::error::SchemaError;
use crate::marks::{Marks, Meaning, NameMark};
use crate::parser::{Result, first_words};
use crate::statement::{Ddl, Session, Statement};

/// A name in backticks, which both server families read in every `sql_mode`.
fn push_quoted(out: &mut String, name: &str) {
    out.push('`');
    for part in name.split_inclusive('`') {
        out.push_str(part);
        if part.ends_with('`') {
            out.push('`');
        }
    }
    out.push('`');
}

pub(crate) fn push_table(out: &mut String, name: &TableName) {
    push_quoted(out, &name.schema);
    out.push('.');
    push_quoted(out, &name.table);
}

/// Puts other text in place of ranges, which do not overlap.
pub(crate) fn replace(sql: &str, mut edits: Vec<(Range<usize>, String)>) -> Option<String> {
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(sql.len() + 32 * edits.len());
    let mut at = 0;
    for (range, text) in edits {
        out.push_str(sql.get(at..range.start)?);
        out.push_str(&text);
        at = range.end;
    }
    out.push_str(sql.get(at..)?);
    Some(out)
}

/// The two routes of a statement, and what they do to its default schema.
struct Routes<'r> {
    table: &'r dyn Fn(&TableName) -> TableName,
    schema: &'r dyn Fn(&str) -> String,
    /// Default schema at the target.
    default_schema: String,
    default_moves: bool,
}

impl Routes<'_> {
    fn changes(&self, mark: &NameMark) -> bool {
        match &mark.meaning {
            Meaning::Table { name, qualified } => {
                (self.table)(name) != *name || (!qualified && self.default_moves)
            }
            Meaning::Qualifier { name, .. } => (self.table)(name) != *name,
            Meaning::Schema(schema) => (self.schema)(schema) != *schema,
            Meaning::DefaultSchema => self.default_moves,
            Meaning::Unsure => false,
        }
    }

    /// Text in place of a name; none where the name stays. A name without schema gets
    /// one as soon as anything of the statement changes: what it would mean beside the
    /// changed names is the server's to say.
    fn text(&self, meaning: &Meaning) -> Option<String> {
        let mut out = String::new();
        match meaning {
            Meaning::Table { name, qualified } => {
                let to = (self.table)(name);
                if to == *name && *qualified {
                    return None;
                }
                push_table(&mut out, &to);
            }
            Meaning::Qualifier { name, qualified } => {
                let to = (self.table)(name);
                if *qualified {
                    push_table(&mut out, &to);
                } else {
                    push_quoted(&mut out, &to.table);
                }
            }
            Meaning::Schema(schema) => {
                let to = (self.schema)(schema);
                if to == *schema {
                    return None;
                }
                push_quoted(&mut out, &to);
            }
            Meaning::DefaultSchema => {
                out.push(' ');
                push_quoted(&mut out, &self.default_schema);
            }
            Meaning::Unsure => return None,
        }
        Some(out)
    }

    fn name(&self, name: &TableName) -> TableName {
        if name.table.is_empty() {
            return TableName::new((self.schema)(&name.schema), "");
        }
        (self.table)(name)
    }

    fn names(&self, names: &[TableName]) -> BTreeSet<TableName> {
        names.iter().map(|name| self.name(name)).collect()
    }

    /// Whether `after` is what `before` is, at the tables of the routes.
    fn lead(&self, before: &Ddl, after: &Ddl) -> bool {
        let pairs = [
            (&before.writes, &after.writes),
            (&before.makes, &after.makes),
            (&before.reads, &after.reads),
        ];
        before.kind == after.kind
            && pairs
                .iter()
                .all(|(before, after)| self.names(before) == after.iter().cloned().collect())
    }
}

/// Puts the tables and schemas that a DDL names where `table` and `schema` say, with
/// their schema and in backticks; the rest stays byte for byte. The text comes back as
/// it is if the routes change nothing. The result means the same whether the session
/// that runs it stands in the session's default schema or in where `schema` puts it.
///
/// # Errors
/// As for `classify`; `Unplaced` if the text holds a name with dots that may mean
/// something that is routed, or if the result would be read otherwise than the original.
pub fn rewrite(
    sql: &str,
    session: &Session<'_>,
    table: &dyn Fn(&TableName) -> TableName,
    schema: &dyn Fn(&str) -> String,
) -> Result<String> {
    let (statement, marks) = analyse(sql, session)?;
    let default_schema = match session.default_schema {
        "" => String::new(),
        name => schema(name),
    };
    let routes = Routes {
        table,
        schema,
        default_moves: default_schema != session.default_schema,
        default_schema,
    };
    if !marks.names.iter().any(|mark| routes.changes(mark)) {
        return Ok(sql.to_owned());
    }
    let unplaced = || SchemaError::Unplaced {
        words: first_words(sql, session),
    };
    let text = changed_text(sql, &marks, &routes).ok_or_else(unplaced)?;
    let target = Session {
        default_schema: &routes.default_schema,
        ..*session
    };
    match (statement, classify(&text, &target)) {
        (Statement::Ddl(before), Ok(Statement::Ddl(after))) if routes.lead(&before, &after) => Ok(text),
        _ => Err(unplaced()),
    }
}

fn changed_text(sql: &str, marks: &Marks, routes: &Routes<'_>) -> Option<String> {
    if marks.names.iter().any(|mark| mark.meaning == Meaning::Unsure) {
        return None;
    }
    let edits = marks
        .names
        .iter()
        .filter_map(|mark| Some((mark.range.clone(), routes.text(&mark.meaning)?)))
        .collect();
    replace(sql, edits)
}
