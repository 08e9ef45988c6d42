//! Names move, and nothing else does.

use std::collections::BTreeSet;

use super::*;

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn moved_schema(schema: &str) -> String {
    format!("to {schema}`")
}

fn moved(name: &TableName) -> TableName {
    TableName::new(moved_schema(&name.schema), format!("{}.x", name.table))
}

fn mapped(names: &[TableName]) -> BTreeSet<TableName> {
    let target = |name: &TableName| match &*name.table {
        "" => TableName::new(moved_schema(&name.schema), ""),
        _ => moved(name),
    };
    names.iter().map(target).collect()
}

fn all_moved(sql: &str, session: &Session<'_>) -> Result<String, SchemaError> {
    crate::rewrite(sql, session, &moved, &moved_schema)
}

/// Routes one table only.
fn one_moved(sql: &str, session: &Session<'_>, from: (&str, &str), to: (&str, &str)) -> String {
    let table = |name: &TableName| {
        if (&*name.schema, &*name.table) == from {
            TableName::new(to.0, to.1)
        } else {
            name.clone()
        }
    };
    crate::rewrite(sql, session, &table, &str::to_owned).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn in_d(sql_mode: u64) -> Session<'static> {
    Session {
        default_schema: "d",
        flavor: Flavor::Mysql,
        sql_mode,
    }
}

#[test]
fn recorded_statements_lead_to_the_routed_tables() {
    let mut seen = 0;
    for (entry, server) in recordings() {
        let sql = entry["sql"].as_str().expect("text");
        let session = session_of(&entry, &server);
        let same = crate::rewrite(sql, &session, &TableName::clone, &str::to_owned);
        assert_eq!(same.as_deref(), Ok(sql));
        let Ok(Statement::Ddl(before)) = classify(sql, &session) else {
            continue;
        };
        if matches!(
            ordinary(before.kind, sql, &session),
            Err(SchemaError::NotOrdinary { .. })
        ) {
            continue;
        }
        seen += 1;
        let text = all_moved(sql, &session).unwrap_or_else(|error| panic!("{sql}: {error}"));
        // No name relies on the session any more.
        let nowhere = Session {
            default_schema: "",
            ..session
        };
        let after = ddl(classify(&text, &nowhere));
        let set = |names: &[TableName]| names.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(after.kind, before.kind, "{text}");
        assert_eq!(set(&after.writes), mapped(&before.writes), "{text}");
        assert_eq!(set(&after.makes), mapped(&before.makes), "{text}");
        assert_eq!(set(&after.reads), mapped(&before.reads), "{text}");
    }
    assert!(seen > 430, "only {seen} DDL statements");
}

#[test]
fn only_what_is_routed_changes() {
    let cases = [
        (
            "ALTER TABLE a ADD CONSTRAINT `a` FOREIGN KEY fk_a (a) REFERENCES b (a) -- a",
            "ALTER TABLE `o`.`n` ADD CONSTRAINT `a` FOREIGN KEY fk_a (a) REFERENCES `d`.`b` (a) -- a",
        ),
        (
            "rename table x to y, a to b /* a */, `d` . `a` to d.a2",
            "rename table `d`.`x` to `d`.`y`, `o`.`n` to `d`.`b` /* a */, `o`.`n` to d.a2",
        ),
        (
            "CREATE TABLE IF NOT EXISTS e.c (LIKE a)",
            "CREATE TABLE IF NOT EXISTS e.c (LIKE `o`.`n`)",
        ),
        (
            "CREATE TABLE a (a INT COMMENT 'a', b INT AS (a.a + 1.5), CHECK (d.a.a > .5))",
            "CREATE TABLE `o`.`n` (a INT COMMENT 'a', b INT AS (`n`.a + 1.5), CHECK (`o`.`n`.a > .5))",
        ),
        (
            "DROP INDEX a ON a ALGORITHM = INPLACE",
            "DROP INDEX a ON `o`.`n` ALGORITHM = INPLACE",
        ),
        ("TRUNCATE a;", "TRUNCATE `o`.`n`;"),
        (
            "ALTER TABLE a RENAME COLUMN a TO b, RENAME INDEX a TO b",
            "ALTER TABLE `o`.`n` RENAME COLUMN a TO b, RENAME INDEX a TO b",
        ),
        (
            "DROP TABLE e.a, /*!50001 a*/",
            "DROP TABLE e.a, /*!50001 `o`.`n`*/",
        ),
        (
            "CREATE TABLE m (i INT) ENGINE=MERGE UNION=(a, d.b)",
            "CREATE TABLE `d`.`m` (i INT) ENGINE=MERGE UNION=(`o`.`n`, d.b)",
        ),
        ("ALTER TABLE b ADD a INT", "ALTER TABLE b ADD a INT"),
    ];
    for (sql, expected) in cases {
        assert_eq!(one_moved(sql, &in_d(0), ("d", "a"), ("o", "n")), expected);
    }
}

#[test]
fn quotes_follow_the_sql_mode() {
    let ansi = in_d(4);
    let found = one_moved(r#"ALTER TABLE "a" COMMENT '"a"'"#, &ansi, ("d", "a"), ("o", "n"));
    assert_eq!(found, r#"ALTER TABLE `o`.`n` COMMENT '"a"'"#);
    let text = one_moved(r#"ALTER TABLE a COMMENT "a""#, &in_d(0), ("d", "a"), ("o", "n"));
    assert_eq!(text, r#"ALTER TABLE `o`.`n` COMMENT "a""#);
}

#[test]
fn a_moved_default_schema_is_written_out() {
    let schema = |name: &str| format!("{name}2");
    let table = |name: &TableName| TableName::new(format!("{}2", name.schema), &*name.table);
    let cases = [
        (
            "ALTER DATABASE CHARACTER SET utf8mb4",
            "ALTER DATABASE `d2` CHARACTER SET utf8mb4",
        ),
        (
            "ALTER DATABASE/*!40100 CHARACTER SET gbk */",
            "ALTER DATABASE `d2`/*!40100 CHARACTER SET gbk */",
        ),
        (
            "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `o` /*!40100 DEFAULT CHARACTER SET gbk */",
            "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `o2` /*!40100 DEFAULT CHARACTER SET gbk */",
        ),
        ("DROP SCHEMA IF EXISTS o", "DROP SCHEMA IF EXISTS `o2`"),
        ("DROP TABLE .a", "DROP TABLE `d2`.`a`"),
    ];
    for (sql, expected) in cases {
        assert_eq!(
            crate::rewrite(sql, &in_d(0), &table, &schema).as_deref(),
            Ok(expected)
        );
    }
    // A table that stays while its schema as a whole moves.
    let stays = crate::rewrite("DROP TABLE a", &in_d(0), &TableName::clone, &schema);
    assert_eq!(stays.as_deref(), Ok("DROP TABLE `d`.`a`"));
}

#[test]
fn a_name_that_may_mean_anything_is_an_error_only_if_routes_change_the_statement() {
    let sql = "CREATE TABLE a (b INT DEFAULT (o.f(1)))";
    let same = crate::rewrite(sql, &in_d(0), &TableName::clone, &str::to_owned);
    assert_eq!(same.as_deref(), Ok(sql));
    let error = all_moved(sql, &in_d(0)).expect_err("a function of a schema");
    assert!(matches!(error, SchemaError::Unplaced { .. }), "{error}");
    // Two tables that become one.
    let merged = crate::rewrite(
        "CREATE TABLE a LIKE b",
        &in_d(0),
        &|_| TableName::new("o", "n"),
        &str::to_owned,
    );
    assert!(matches!(merged, Err(SchemaError::Unplaced { .. })), "{merged:?}");
}

/// Statements with places for tables: `{0}` to `{2}` with their schema or, being in the
/// default one, without; `{s}` for the schema `s`.
const TEMPLATES: [&str; 18] = [
    "CREATE TABLE {0} ( `a` INT COMMENT ' {1} ' , KEY `b` ( `a` ) )",
    "CREATE TABLE IF NOT EXISTS {0} LIKE {1}",
    "CREATE OR REPLACE TABLE {0} ( LIKE {1} )",
    "CREATE TABLE {0} ( a INT , CONSTRAINT c FOREIGN KEY ( a ) REFERENCES {1} ( a ) ON DELETE CASCADE ) COMMENT = \" {2} \"",
    "ALTER TABLE {0} ADD COLUMN c INT , RENAME TO {1}",
    "ALTER TABLE {0} RENAME {1}",
    "ALTER TABLE {0} RENAME = {1} , ADD x INT DEFAULT ' , RENAME TO t '",
    "ALTER TABLE {0} ADD FOREIGN KEY ( a ) REFERENCES {1} ( b ) , ADD FOREIGN KEY ( c ) REFERENCES {2} ( d )",
    "ALTER TABLE {0} EXCHANGE PARTITION p WITH TABLE {1} WITHOUT VALIDATION",
    "RENAME TABLE {0} TO {1} , {2} TO {0} , {1} TO {2}",
    "DROP TABLE IF EXISTS {0} , {1} , {2} RESTRICT",
    "TRUNCATE TABLE {0}",
    "CREATE UNIQUE INDEX i USING BTREE ON {0} ( a , ( b + 1 ) )",
    "DROP INDEX `i` ON {0}",
    "CREATE DATABASE IF NOT EXISTS {s} CHARACTER SET utf8mb4",
    "ALTER SCHEMA {s} COLLATE utf8mb4_bin",
    "DROP DATABASE {s}",
    "ALTER TABLE {0} COMMENT ' {1} ''{2}\\' ' , ADD x TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
];

/// What may stand between two tokens.
fn gap() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        " ",
        "\n\t",
        " /* `x` , REFERENCES y */ ",
        " -- it's\n",
        " # \"\n ",
        "/**/",
        " /*! */ ",
        " /*!50001*/ ",
    ])
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9_$]{0,6}",
        "[^\0]{1,8}",
        prop::sample::select(vec![
            "select",
            "table",
            "a.b",
            "`",
            "\"",
            "rename to",
            "größe",
            "表"
        ])
        .prop_map(str::to_owned),
    ]
}

/// Fills a template; places are tokens between blanks outside of texts.
fn filled(template: &str, gaps: &[&str], place: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut in_text = None;
    for (i, token) in template.split(' ').enumerate() {
        if i > 0 {
            out.push_str(if in_text.is_some() {
                " "
            } else {
                gaps[i % gaps.len()]
            });
        }
        match place(token).filter(|_| in_text.is_none()) {
            Some(text) => out.push_str(&text),
            None => out.push_str(token),
        }
        let quote = |c: char| matches!(c, '\'' | '"');
        match in_text {
            None => in_text = token.chars().next().filter(|&c| quote(c)),
            Some(open) if token.len() == 1 && token.starts_with(open) => in_text = None,
            Some(_) => {}
        }
    }
    out
}

proptest! {
    #[test]
    fn names_move_and_all_else_stays(
        template in prop::sample::select(TEMPLATES.to_vec()),
        gaps in prop::collection::vec(gap(), 1..8),
        tables in prop::collection::btree_set((name(), name()), 3),
        default in name(),
        unqualified in prop::array::uniform3(any::<bool>()),
    ) {
        let tables: Vec<(String, String)> = tables.into_iter().collect();
        let schema_of = |i: usize| if unqualified[i] { &default } else { &tables[i].0 };
        let index = |token: &str| ["{0}", "{1}", "{2}"].iter().position(|place| *place == token);
        // A parent's schema is written out: without, it would be that of its child.
        let parent = |i: usize| i > 0 && template.contains("REFERENCES");
        let source = filled(template, &gaps, &|token| {
            if token == "{s}" {
                return Some(quoted(&tables[0].0));
            }
            let i = index(token)?;
            let table = quoted(&tables[i].1);
            Some(if unqualified[i] && !parent(i) { table } else { format!("{}.{table}", quoted(schema_of(i))) })
        });
        let target = filled(template, &gaps, &|token| {
            if token == "{s}" {
                return Some(quoted(&moved_schema(&tables[0].0)));
            }
            let i = index(token)?;
            let to = moved(&TableName::new(&**schema_of(i), &*tables[i].1));
            Some(format!("{}.{}", quoted(&to.schema), quoted(&to.table)))
        });
        let session = Session { default_schema: &default, flavor: Flavor::Mariadb, sql_mode: 0 };
        prop_assert_eq!(all_moved(&source, &session), Ok(target));
    }
}
