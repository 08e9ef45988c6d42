//! DDL as canal-json.

use std::io::Write;

use weir_types::{DdlEvent, DdlKind, OrderKey, TableName};

use crate::error::Result;
use crate::escape;

/// The text behind leading white space and comments.
fn statement(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        let behind = if let Some(comment) = rest.strip_prefix("/*") {
            // An executable comment is part of the statement.
            if comment.starts_with(['!', 'M']) {
                return comment
                    .trim_start_matches(|c: char| c == '!' || c == 'M' || c.is_ascii_digit())
                    .trim_start();
            }
            comment.split_once("*/").map(|(_, behind)| behind)
        } else if rest.starts_with('#') || rest.starts_with("-- ") {
            rest.split_once('\n').map(|(_, behind)| behind)
        } else {
            return rest;
        };
        match behind {
            Some(behind) => rest = behind.trim_start(),
            None => return "",
        }
    }
}

fn starts_with_word(sql: &str, word: &str) -> bool {
    statement(sql)
        .get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// What canal calls the statement.
pub(super) fn type_name(event: &DdlEvent) -> &'static str {
    match event.kind {
        DdlKind::ImplicitCreate | DdlKind::CreateTable => "CREATE",
        DdlKind::AlterTable => "ALTER",
        DdlKind::Index if starts_with_word(&event.sql, "drop") => "DINDEX",
        DdlKind::Index => "CINDEX",
        DdlKind::RenameTable => "RENAME",
        DdlKind::TruncateTable => "TRUNCATE",
        DdlKind::DropTable => "ERASE",
        DdlKind::CreateDatabase | DdlKind::AlterDatabase | DdlKind::DropDatabase | DdlKind::Other => "QUERY",
    }
}

/// Writes the message of a DDL. `target` is the routed name of the
/// first table that it writes.
pub(super) fn write<W: Write>(
    out: &mut W,
    key: OrderKey,
    event: &DdlEvent,
    target: &TableName,
) -> Result<()> {
    out.write_all(b"{\"id\":0,\"database\":")?;
    escape::write_string(out, &target.schema)?;
    out.write_all(b",\"table\":")?;
    escape::write_string(out, &target.table)?;
    out.write_all(b",\"pkNames\":null,\"isDdl\":true,\"type\":\"")?;
    out.write_all(type_name(event).as_bytes())?;
    let built = key.commit_ts.millis();
    write!(out, "\",\"es\":{},\"ts\":{built},\"sql\":", event.commit_time_ms)?;
    escape::write_string(out, &event.sql)?;
    out.write_all(b",\"sqlType\":null,\"mysqlType\":null,\"old\":null,\"data\":null,")?;
    write!(out, "\"_weir\":{{\"key\":\"{key}\"}}}}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_decides() {
        assert!(starts_with_word(" /* a */ -- b\n# c\n DROP INDEX i ON t", "drop"));
        assert!(starts_with_word("/*!40000 drop index i on t*/", "drop"));
        assert!(!starts_with_word("/* drop", "drop"));
        assert!(!starts_with_word("é", "drop"));
    }
}
