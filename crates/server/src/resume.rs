//! Whether saved progress, output and store still belong together.
//!
//! Both are made durable only after the store has synced what they speak of: one that
//! is ahead of the store means that the store has lost synced data. Going on would give
//! what is read again other order keys, below or beside those already delivered.

use weir_changefeed::Progress;
use weir_types::{CommitTs, OrderKey, TableName};

use crate::error::ServerError;

/// Compares the saved tokens with what the store recovered.
pub(crate) fn check_saved(saved: &Progress, resolved: CommitTs) -> Result<(), ServerError> {
    let end = OrderKey::end_of(resolved);
    let tables = saved.tables.iter();
    let ahead = tables
        .map(|(table, token)| (name(table), token.key))
        .chain([
            ("the DDL history".to_owned(), saved.schema.key),
            ("the start".to_owned(), saved.start.key),
        ])
        .filter(|(_, key)| *key > end)
        .max_by_key(|(_, key)| *key);
    ahead.map_or(Ok(()), |(of, key)| {
        Err(ServerError::StoreBehind {
            what: format!("saved progress of {of}"),
            at: key.to_string(),
            resolved: end.to_string(),
        })
    })
}

/// Compares the greatest key of the output's own progress with what the store recovered.
pub(crate) fn check_output(greatest: Option<OrderKey>, resolved: CommitTs) -> Result<(), ServerError> {
    let end = OrderKey::end_of(resolved);
    match greatest {
        Some(key) if key > end => Err(ServerError::StoreBehind {
            what: "the output".to_owned(),
            at: key.to_string(),
            resolved: end.to_string(),
        }),
        _ => Ok(()),
    }
}

fn name(table: &TableName) -> String {
    format!("`{table}`")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use weir_sink::FileProgress;
    use weir_types::{LineageId, Token};

    use super::*;

    fn token(key: OrderKey) -> Token {
        Token {
            lineage: LineageId(1),
            key,
            position: None,
            gtid: None,
            open_xa: Vec::new(),
        }
    }

    #[test]
    fn a_token_may_reach_the_end_of_the_store_and_no_further() {
        let table = TableName::new("s", "t");
        let mut saved = Progress::fresh(&token(OrderKey::MIN), [table.clone()]);
        assert!(check_saved(&saved, CommitTs::ZERO).is_ok());
        let end = OrderKey::end_of(CommitTs(7));
        saved.tables.insert(table, token(end));
        saved.schema = token(end);
        assert!(check_saved(&saved, CommitTs(7)).is_ok());
        let error = check_saved(&saved, CommitTs(6)).unwrap_err();
        assert!(matches!(&error, ServerError::StoreBehind { at, .. } if *at == end.to_string()));
        saved.tables.clear();
        let error = check_saved(&saved, CommitTs(6)).unwrap_err();
        assert!(error.to_string().contains("DDL history"), "{error}");
        saved.schema = token(OrderKey::MIN);
        assert!(check_saved(&saved, CommitTs(6)).is_ok());
    }

    #[test]
    fn rows_and_ddl_of_the_output_count() {
        let dir = tempfile::tempdir().unwrap();
        let key = |ts| OrderKey::new(CommitTs(ts), 1);
        let output = || FileProgress::scan(dir.path()).unwrap().greatest();
        assert!(check_output(output(), CommitTs::ZERO).is_ok());
        fs::write(dir.path().join(format!("s.t.{}-{}.ndjson", key(2), key(5))), "").unwrap();
        assert!(check_output(output(), CommitTs(5)).is_ok());
        assert!(check_output(output(), CommitTs(4)).is_err());
        fs::write(dir.path().join(format!("_ddl.{}.ndjson", key(6))), "").unwrap();
        assert!(check_output(output(), CommitTs(5)).is_err());
        assert!(check_output(output(), CommitTs(6)).is_ok());
    }
}
