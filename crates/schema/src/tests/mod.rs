//! The recorded statements of three servers, and what they do not cover.

mod ordinary;
mod rewrite;

use proptest::prelude::*;
use weir_types::{DdlKind, Flavor, TableName};

use super::*;
use crate::transaction::xid_text;

fn mysql(sql: &str) -> Result<Statement, SchemaError> {
    let session = Session {
        default_schema: "d",
        ..Session::default()
    };
    classify(sql, &session)
}

fn mariadb(sql: &str) -> Result<Statement, SchemaError> {
    let session = Session {
        default_schema: "d",
        flavor: Flavor::Mariadb,
        sql_mode: 0,
    };
    classify(sql, &session)
}

fn ddl(found: Result<Statement, SchemaError>) -> Ddl {
    match found {
        Ok(Statement::Ddl(ddl)) => ddl,
        other => panic!("no DDL: {other:?}"),
    }
}

fn names(list: &[&str]) -> Vec<TableName> {
    list.iter()
        .map(|name| {
            let (schema, table) = name.split_once('.').expect("schema.table");
            TableName::new(schema, table)
        })
        .collect()
}

/// The session of a recorded statement.
fn session_of<'a>(entry: &'a serde_json::Value, server: &str) -> Session<'a> {
    Session {
        default_schema: entry["schema"].as_str().unwrap_or_default(),
        flavor: if server == "mysql" {
            Flavor::Mysql
        } else {
            Flavor::Mariadb
        },
        sql_mode: entry["sql-mode"].as_u64().unwrap_or(0),
    }
}

/// A statement as a server wrote it to its binlog, what it is, and (`changed`) which
/// tables and schemas the server showed differently afterwards.
fn recorded(entry: &serde_json::Value, server: &str) {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let list = |key: &str| -> Vec<TableName> {
        let pairs = entry[key].as_array().cloned().unwrap_or_default();
        pairs
            .iter()
            .map(|p| TableName::new(p[0].as_str().expect("schema"), p[1].as_str().expect("table")))
            .collect()
    };
    let sql = text("sql");
    let session = session_of(entry, server);
    let found = classify(&sql, &session).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let kind = match &found {
        Statement::Ddl(ddl) => {
            assert_eq!(ddl.writes, list("writes"), "{sql}");
            assert_eq!(ddl.makes, list("makes"), "{sql}");
            assert_eq!(ddl.reads, list("reads"), "{sql}");
            for name in entry["changed"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("name");
                let written = ddl.writes.iter().any(|w| {
                    if w.table.is_empty() {
                        name == format!("schema {}", w.schema)
                    } else {
                        name == w.to_string()
                    }
                });
                assert!(written, "{sql}: {name} changed");
            }
            format!("{:?}", ddl.kind)
        }
        Statement::Ignored(reason) => format!("ignored {}", reason.label()),
        Statement::Savepoint(name) => format!("Savepoint({name:?})"),
        Statement::RollbackTo(name) => format!("RollbackTo({name:?})"),
        other => format!("{other:?}"),
    };
    assert_eq!(kind, text("kind"), "{sql}");
}

/// Every recorded statement, with the server that wrote it.
fn recordings() -> Vec<(serde_json::Value, String)> {
    let data = include_str!("../../tests/data/statements.json");
    let entries: serde_json::Value = serde_json::from_str(data).expect("valid test data");
    let mut found = Vec::new();
    for entry in entries.as_array().expect("a list") {
        for server in entry["server"].as_array().expect("servers") {
            found.push((entry.clone(), server.as_str().expect("server").to_owned()));
        }
    }
    assert!(found.len() > 500, "only {} statements", found.len());
    found
}

#[test]
fn statements_of_three_servers() {
    for (entry, server) in recordings() {
        recorded(&entry, &server);
    }
}

#[test]
fn temporary_tables_are_left_out() {
    for sql in [
        "CREATE TEMPORARY TABLE a (id INT)",
        "DROP TEMPORARY TABLE IF EXISTS a",
        "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`",
        "CREATE OR REPLACE TEMPORARY TABLE a SELECT 1",
    ] {
        assert_eq!(
            mysql(sql),
            Ok(Statement::Ignored(IgnoreReason::TemporaryTable)),
            "{sql}"
        );
    }
}

#[test]
fn comments_are_run_by_the_server_that_knows_them() {
    let found = ddl(mysql("ALTER TABLE a /*M! RENAME TO b */ ADD c INT"));
    assert_eq!(found.kind, DdlKind::AlterTable);
    let found = ddl(mariadb("ALTER TABLE a /*M!100100 RENAME TO b */"));
    assert_eq!((found.kind, found.makes), (DdlKind::RenameTable, names(&["d.b"])));
    let found = ddl(mysql("/*!50001 DROP TABLE a*/,b -- c, d\n, e # f"));
    assert_eq!(found.writes, names(&["d.a", "d.b", "d.e"]));
}

#[test]
fn partitions_move_rows_between_tables() {
    let found = ddl(mysql(
        "ALTER TABLE a EXCHANGE PARTITION p WITH TABLE o.b WITHOUT VALIDATION",
    ));
    assert_eq!(
        (found.kind, found.writes),
        (DdlKind::AlterTable, names(&["d.a", "o.b"]))
    );
    let found = ddl(mariadb("ALTER TABLE a CONVERT PARTITION p TO TABLE b"));
    assert_eq!(
        (found.kind, found.makes),
        (DdlKind::RenameTable, names(&["d.a", "d.b"]))
    );
    let found = ddl(mariadb(
        "ALTER TABLE a CONVERT TABLE b TO PARTITION p VALUES LESS THAN (5)",
    ));
    assert_eq!(found.kind, DdlKind::RenameTable);
    assert_eq!(
        (found.writes, found.makes),
        (names(&["d.a", "d.b"]), names(&["d.a"]))
    );
    let found = ddl(mysql(
        "ALTER TABLE a ADD PARTITION (PARTITION p VALUES LESS THAN (1))",
    ));
    assert_eq!((found.kind, found.writes), (DdlKind::AlterTable, names(&["d.a"])));
}

#[test]
fn a_default_schema_can_be_altered_without_its_name() {
    let found = ddl(mysql("ALTER DATABASE CHARACTER SET utf8mb4"));
    assert_eq!(found.writes, names(&["d."]));
    let found = ddl(mysql("ALTER SCHEMA CHARSET = utf8mb4"));
    assert_eq!(found.writes, names(&["d."]));
    let found = ddl(mysql("ALTER DATABASE comment CHARACTER SET utf8mb4"));
    assert_eq!(found.writes, names(&["comment."]));
}

#[test]
fn tables_made_by_a_query_are_row_changes() {
    for sql in [
        "CREATE TABLE a AS SELECT 1 AS x",
        "CREATE TABLE a (id INT) IGNORE SELECT id FROM b UNION (SELECT 2)",
        "CREATE TABLE a (SELECT 1)",
        "CREATE TABLE a VALUES ROW(1), ROW(2)",
        "CREATE TABLE a TABLE b",
    ] {
        let tables = Some(names(&["d.a"]));
        assert_eq!(mysql(sql), Ok(Statement::Dml { tables }), "{sql}");
    }
}

#[test]
fn row_changes_name_their_table_where_it_is_one() {
    let cases = [
        ("INSERT INTO a VALUES (1)", Some("d.a")),
        ("INSERT IGNORE o.b SET x = 1", Some("o.b")),
        ("REPLACE DELAYED `b` VALUES (1)", Some("d.b")),
        ("UPDATE LOW_PRIORITY a SET x = 1", Some("d.a")),
        ("UPDATE a AS t SET x = 1", Some("d.a")),
        ("UPDATE a, b SET a.x = b.x", None),
        ("UPDATE a JOIN b SET a.x = b.x", None),
        ("DELETE FROM `d`.`a`", Some("d.a")),
        ("DELETE FROM a WHERE x = 1", Some("d.a")),
        ("DELETE a FROM a JOIN b", None),
        ("DELETE FROM a USING a JOIN b", None),
        (
            "LOAD DATA INFILE 'f' IGNORE INTO TABLE a FIELDS TERMINATED BY ','",
            Some("d.a"),
        ),
        ("SELECT `d`.`f`()", None),
        ("CALL p()", None),
    ];
    for (sql, table) in cases {
        let tables = table.map(|t| names(&[t]));
        assert_eq!(mysql(sql), Ok(Statement::Dml { tables }), "{sql}");
    }
}

#[test]
fn transactions_savepoints_and_xa() {
    let xid = xid_text(b"g1", b"\x0b", 7);
    assert_eq!(&*xid.0, "X'6731',X'0b',7");
    let cases = [
        ("BEGIN", Statement::Begin),
        ("begin work;", Statement::Begin),
        ("START TRANSACTION READ WRITE", Statement::Begin),
        ("COMMIT", Statement::Commit),
        ("ROLLBACK", Statement::Rollback),
        (
            "ROLLBACK WORK TO SAVEPOINT `S``1`",
            Statement::RollbackTo("s`1".into()),
        ),
        ("ROLLBACK TO s1", Statement::RollbackTo("s1".into())),
        ("SAVEPOINT `S``1`", Statement::Savepoint("s`1".into())),
        ("RELEASE SAVEPOINT s1", Statement::Ignored(IgnoreReason::Session)),
        ("XA START X'6731',X'0B',7", Statement::XaStart(xid.clone())),
        ("XA END 'g1',0x0b,7", Statement::XaEnd(xid.clone())),
        ("XA PREPARE X'6731',X'0b',7", Statement::XaPrepare(xid.clone())),
        ("XA ROLLBACK X'6731',X'0b',7", Statement::XaRollback(xid.clone())),
        (
            "XA COMMIT X'6731',X'0b',7",
            Statement::XaCommit {
                xid: xid.clone(),
                one_phase: false,
            },
        ),
        (
            "XA COMMIT X'6731',X'0b',7 ONE PHASE",
            Statement::XaCommit { xid, one_phase: true },
        ),
        ("XA START 'a'", Statement::XaStart(xid_text(b"a", b"", 1))),
    ];
    for (sql, expected) in cases {
        assert_eq!(mysql(sql), Ok(expected), "{sql}");
    }
}

#[test]
fn mariadb_settings_for_one_statement() {
    let found = ddl(mariadb(
        "SET STATEMENT max_statement_time=60, sort_buffer_size=1 FOR DROP TABLE a",
    ));
    assert_eq!((found.kind, found.writes), (DdlKind::DropTable, names(&["d.a"])));
    assert_eq!(
        mysql("SET PASSWORD FOR 'a' = 'x'"),
        Ok(Statement::Ignored(IgnoreReason::Account))
    );
}

#[test]
fn what_is_not_understood_is_an_error_without_values() {
    let error = mysql("DROP TABLE a b 'secret'").expect_err("two names without comma");
    assert!(matches!(error, SchemaError::Names { .. }));
    let error = mysql("ALTER TABLE 'secret' ADD x INT").expect_err("a string is no name");
    assert!(!error.to_string().contains("secret"));
    assert!(matches!(mysql("CREATE TABLE `a"), Err(SchemaError::Text { .. })));
    assert!(matches!(mysql("FROBNICATE a"), Err(SchemaError::Unknown { .. })));
    assert!(matches!(mysql("CREATE WONDER a"), Err(SchemaError::Names { .. })));
    let nowhere = classify("DROP TABLE a", &Session::default());
    assert!(matches!(nowhere, Err(SchemaError::NoSchema { .. })));
}

#[test]
fn sql_modes_change_what_quotes_mean() {
    let session = Session {
        default_schema: "d",
        flavor: Flavor::Mysql,
        sql_mode: 4,
    };
    let found = ddl(classify(r#"DROP TABLE "a"".b", c"#, &session));
    assert_eq!(
        found.writes,
        [TableName::new("d", "a\".b"), TableName::new("d", "c")]
    );
    let session = Session {
        default_schema: "d",
        flavor: Flavor::Mysql,
        sql_mode: 0x10_0000,
    };
    let found = ddl(classify(r"ALTER TABLE a COMMENT 'x\', RENAME TO b", &session));
    assert_eq!(found.makes, names(&["d.b"]));
}

#[test]
fn a_parent_without_schema_is_in_the_schema_of_its_child() {
    for sql in [
        "CREATE TABLE o.c (p INT, FOREIGN KEY (p) REFERENCES p (id))",
        "CREATE TABLE o.c (p INT REFERENCES p (id), q INT REFERENCES o.p)",
        "ALTER TABLE o.c ADD CONSTRAINT k FOREIGN KEY (p) REFERENCES p (id)",
    ] {
        assert_eq!(ddl(mysql(sql)).reads, names(&["o.p"]), "{sql}");
    }
    // A new name without schema is in the session's, as a template and a partner are.
    assert_eq!(ddl(mysql("ALTER TABLE o.a RENAME b")).makes, names(&["d.b"]));
    assert_eq!(ddl(mysql("CREATE TABLE o.a LIKE b")).reads, names(&["d.b"]));
    let exchanged = ddl(mysql("ALTER TABLE o.a EXCHANGE PARTITION p WITH TABLE b"));
    assert_eq!(exchanged.writes, names(&["o.a", "d.b"]));
}

/// Whatever the text is, there is an answer, and routes that change nothing change
/// nothing.
fn answers(sql: &str, session: &Session<'_>) {
    let known = classify(sql, session).is_ok();
    let same = crate::rewrite(sql, session, &TableName::clone, &str::to_owned);
    assert_eq!(same.ok().as_deref(), known.then_some(sql), "{sql}");
    let moved = |name: &TableName| TableName::new(format!("{}2", name.schema), &*name.table);
    let schema = |name: &str| format!("{name}2");
    for step in ordinary(DdlKind::AlterTable, sql, session).unwrap_or_default() {
        assert!(classify(&step.sql, session).is_ok(), "{sql}");
        let _answer = crate::rewrite(&step.sql, session, &moved, &schema);
    }
}

proptest! {
    #[test]
    fn any_text_ends_in_an_answer(sql in "\\PC{0,80}", mode in prop::sample::select(vec![0_u64, 4, 0x10_0000])) {
        let session = Session { default_schema: "d", flavor: Flavor::Mariadb, sql_mode: mode };
        answers(&sql, &session);
    }

    #[test]
    fn cut_statements_end_in_an_answer(at in 0_usize..200, entry in 0_usize..200) {
        let data = include_str!("../../tests/data/statements.json");
        if let Some(line) = data.lines().nth(entry) {
            let cut: String = line.chars().skip(20).take(at).collect();
            answers(&cut, &Session { default_schema: "d", ..Session::default() });
        }
    }

    #[test]
    fn statements_with_parts_exchanged_end_in_an_answer(
        parts in prop::collection::vec((0_usize..220, 0_usize..60, 1_usize..6), 1..6),
        mariadb in any::<bool>(),
    ) {
        let data = include_str!("../../tests/data/statements.json");
        let lines: Vec<&str> = data.lines().collect();
        let mut sql = String::new();
        for (line, from, count) in parts {
            for word in lines[line].split(' ').skip(3 + from).take(count) {
                sql.push_str(word);
                sql.push(' ');
            }
        }
        let flavor = if mariadb { Flavor::Mariadb } else { Flavor::Mysql };
        for first in ["", "CREATE TABLE t (", "ALTER TABLE t ADD "] {
            answers(&format!("{first}{sql}"), &Session { default_schema: "d", flavor, sql_mode: 0 });
        }
    }

    #[test]
    fn quoted_names_come_back(schema in "[^\0]{1,12}", table in "[^\0]{1,12}") {
        let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
        let sql = format!("TRUNCATE TABLE {}.{}", quote(&schema), quote(&table));
        let found = ddl(mysql(&sql));
        prop_assert_eq!(found.writes, vec![TableName::new(schema, table)]);
    }
}
