//! `kill -9` inside of a DDL, and between a DDL of one table and rows of another that are not written yet.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::{Client, Kind, Load, Pair, Running, wait_until};

/// Kills that must have hit a running DDL.
const KILLS: u32 = 10;
const ATTEMPTS_MAX: u32 = 60;
const LIMIT: Duration = Duration::from_secs(120);
const DDL_LIMIT: Duration = Duration::from_secs(20);

/// `ER_CANNOT_CONVERT_STRING`.
const NOT_TEXT: u16 = 3854;

/// Sessions at the sink that run DDL on the test's tables now.
fn running_ddl(client: &mut Client, main: &str) -> u64 {
    let found = client.number(&format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%{main}%' AND \
         INFO REGEXP '^[^a-zA-Z]*(/[*].*[*]/)? *(ALTER|TRUNCATE|RENAME|DROP|CREATE) '"
    ));
    match found {
        // A session writes bytes that are no text: the server cannot show its statement.
        Err(mysql_async::Error::Server(error)) if error.code == NOT_TEXT => 0,
        other => other.unwrap(),
    }
}

/// Kills at a moment when the sink executes a DDL; rows and further DDL keep coming.
fn kill_inside(kind: Kind) {
    let _machine = crate::shared();
    let pair = Pair::new(kind, kind).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let mut to = pair.sink.client().unwrap();
    let options = Options {
        ddl_pause: Some(Duration::from_millis(20)),
        clients: 3,
        ..Options::default()
    };
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    let (mut kills, mut attempts) = (0, 0);
    while kills < KILLS {
        attempts += 1;
        assert!(attempts <= ATTEMPTS_MAX, "only {kills} kills hit a DDL");
        let running = feed.start(&[]).unwrap();
        let seen = wait_until("a DDL at the sink", DDL_LIMIT, || {
            Ok(running_ddl(&mut to, &pair.names.main) > 0)
        });
        let log = running.trouble();
        assert!(running.kill().unwrap(), "it ended by itself:\n{log}");
        kills += u32::from(seen.is_ok());
    }
    load.stop().unwrap();
    let running = feed.start(&[]).unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    weir_integration::caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
    println!("{kind:?}: {kills} kills inside of a DDL, {attempts} attempts");
}

#[test]
fn mysql_is_executing_a_ddl() {
    kill_inside(Kind::Mysql);
}

#[test]
fn mariadb_is_executing_a_ddl() {
    kill_inside(Kind::Mariadb118);
}

/// What happens to one table while rows of another one wait behind a lock.
struct Case {
    name: &'static str,
    /// Tables that the case needs, `DB` stands for the database.
    tables: &'static [&'static str],
    /// At the source, after the other table's rows: rows before the DDL, the DDL, rows after it.
    statements: &'static [&'static str],
    /// Answers 1 at the sink when the DDL has run there.
    has_run: &'static str,
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "truncate of a table with a key",
            tables: &["CREATE TABLE DB.k (id INT PRIMARY KEY, v INT)"],
            statements: &[
                "INSERT INTO DB.k VALUES (1,1),(2,2),(3,3)",
                "UPDATE DB.k SET v = v + 1",
                "TRUNCATE TABLE DB.k",
                "INSERT INTO DB.k VALUES (2,20)",
            ],
            has_run: "SELECT COUNT(*) = 1 FROM DB.k WHERE v = 20",
        },
        Case {
            name: "truncate of a table without a key",
            tables: &["CREATE TABLE DB.n (a INT)"],
            statements: &[
                "INSERT INTO DB.n VALUES (1),(1),(2)",
                "TRUNCATE TABLE DB.n",
                "INSERT INTO DB.n VALUES (7),(7)",
            ],
            has_run: "SELECT COUNT(*) = 2 FROM DB.n WHERE a = 7",
        },
        Case {
            name: "drop of a column",
            tables: &["CREATE TABLE DB.c (id INT PRIMARY KEY, gone INT NOT NULL, v INT)"],
            statements: &[
                "INSERT INTO DB.c VALUES (1,1,1),(2,2,2)",
                "UPDATE DB.c SET gone = gone + 5",
                "ALTER TABLE DB.c DROP COLUMN gone",
                "UPDATE DB.c SET v = v + 100",
            ],
            has_run: "SELECT COUNT(*) = 2 FROM DB.c WHERE v > 100",
        },
        Case {
            name: "two tables that change names",
            tables: &[
                "CREATE TABLE DB.a (id INT PRIMARY KEY, v INT)",
                "CREATE TABLE DB.b (id INT PRIMARY KEY, v INT)",
            ],
            statements: &[
                "INSERT INTO DB.a VALUES (1,1),(2,2)",
                "INSERT INTO DB.b VALUES (1,100),(3,300)",
                "RENAME TABLE DB.a TO DB.x, DB.b TO DB.a, DB.x TO DB.b",
                "UPDATE DB.a SET v = v + 1000",
                "DELETE FROM DB.b WHERE id = 1",
            ],
            has_run: "SELECT COUNT(*) = 2 FROM DB.a WHERE v >= 1000",
        },
        Case {
            name: "two tables without keys that change names",
            tables: &["CREATE TABLE DB.a (v INT)", "CREATE TABLE DB.b (v INT)"],
            statements: &[
                "INSERT INTO DB.a VALUES (1),(1)",
                "INSERT INTO DB.b VALUES (5)",
                "RENAME TABLE DB.a TO DB.x, DB.b TO DB.a, DB.x TO DB.b",
                "INSERT INTO DB.a VALUES (9)",
                "INSERT INTO DB.b VALUES (8)",
            ],
            has_run: "SELECT COUNT(*) = 1 FROM DB.a WHERE v = 9",
        },
        Case {
            name: "a table that is dropped and made again",
            tables: &["CREATE TABLE DB.k (id INT PRIMARY KEY, v INT)"],
            statements: &[
                "INSERT INTO DB.k VALUES (1,1),(2,2)",
                "DROP TABLE DB.k",
                "CREATE TABLE DB.k (id INT PRIMARY KEY, v INT, w INT)",
                "INSERT INTO DB.k VALUES (1,5,6)",
            ],
            has_run: "SELECT COUNT(*) = 1 FROM DB.k WHERE w = 6",
        },
        Case {
            name: "a child of a new table",
            tables: &["CREATE TABLE DB.p (id INT PRIMARY KEY)"],
            statements: &[
                "INSERT INTO DB.p VALUES (1),(2)",
                "CREATE TABLE DB.ch (id INT PRIMARY KEY, p INT, KEY (p), FOREIGN KEY (p) REFERENCES DB.p (id) ON DELETE CASCADE)",
                "INSERT INTO DB.ch VALUES (1,1),(2,2)",
                "DELETE FROM DB.p WHERE id = 2",
                "INSERT INTO DB.ch VALUES (3,1)",
            ],
            has_run: "SELECT COUNT(*) = 2 FROM DB.ch",
        },
    ]
}

/// Rows of a locked table wait, a DDL of another one and rows after it go through, Weir is killed: the replay of the
/// waiting rows does not bring back what the DDL took.
fn unflushed_rows(kind: Kind) {
    let _machine = crate::shared();
    let pair = Pair::new(kind, kind).unwrap();
    let main = pair.names.main.clone();
    let (mut from, mut to) = (pair.source.client().unwrap(), pair.sink.client().unwrap());
    from.run_all([
        format!("CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
        format!("CREATE TABLE {main}.held (id INT PRIMARY KEY, v INT)"),
        format!("INSERT INTO {main}.held VALUES (1, 0)"),
    ])
    .unwrap();
    let feed = pair.feed("").unwrap();
    for case in cases() {
        let here = |text: &str| text.replace("DB", &main);
        from.run_all(case.tables.iter().map(|text| here(text))).unwrap();
        let mut running = Some(feed.start(&[]).unwrap());
        pair.equal_within(LIMIT).unwrap();
        // Every kill of a case repeats the same window: the lock is still held when the next run begins.
        to.run("BEGIN").unwrap();
        to.run(&format!("UPDATE {main}.held SET v = -1 WHERE id = 1"))
            .unwrap();
        from.run(&format!("UPDATE {main}.held SET v = v + 1")).unwrap();
        from.run_all(case.statements.iter().map(|text| here(text)))
            .unwrap();
        let mut looker = pair.sink.client().unwrap();
        for _ in 0..2 {
            let now = running.take().unwrap_or_else(|| feed.start(&[]).unwrap());
            let arrived = wait_until(case.name, LIMIT, || {
                Ok(looker.number(&here(case.has_run)).unwrap_or(0) == 1)
            });
            assert!(arrived.is_ok(), "{arrived:?}\n{}", now.trouble());
            assert_eq!(
                looker.number(&format!("SELECT v FROM {main}.held")).unwrap(),
                before(&mut from, &main)
            );
            kill(now);
        }
        to.run("ROLLBACK").unwrap();
        let now = feed.start(&[]).unwrap();
        let equal = pair.equal_within(LIMIT);
        assert!(equal.is_ok(), "{}: {equal:?}\n{}", case.name, now.trouble());
        kill(now);
        from.run_all(drop_all(&main)).unwrap();
    }
}

/// Statements that remove what the cases made.
fn drop_all(main: &str) -> Vec<String> {
    ["k", "n", "c", "a", "b", "ch", "p"]
        .iter()
        .map(|table| format!("DROP TABLE IF EXISTS {main}.{table}"))
        .collect()
}

/// What the sink still shows of the held table: the source has one update more.
fn before(from: &mut Client, main: &str) -> u64 {
    from.number(&format!("SELECT v - 1 FROM {main}.held")).unwrap()
}

fn kill(running: Running) {
    assert!(running.kill().unwrap(), "it ended by itself");
}

#[test]
fn unflushed_rows_of_another_table_at_mysql() {
    unflushed_rows(Kind::Mysql);
}

#[test]
fn unflushed_rows_of_another_table_at_mariadb() {
    unflushed_rows(Kind::Mariadb118);
}

/// The DDL has run at the sink, and Weir is killed before it could note that: the rows from before it are not written
/// again, and it does not run twice.
fn not_noted(kind: Kind) {
    let _machine = crate::shared();
    let pair = Pair::new(kind, kind).unwrap();
    let main = pair.names.main.clone();
    let (mut from, mut looker) = (pair.source.client().unwrap(), pair.sink.client().unwrap());
    from.run(&format!(
        "CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    ))
    .unwrap();
    let feed = pair.feed("").unwrap();
    let (no_ddl, ddl_again) = match kind {
        Kind::Mysql => (&["LOCK INSTANCE FOR BACKUP"][..], "UNLOCK INSTANCE"),
        _ => (
            &[
                "BACKUP STAGE START",
                "BACKUP STAGE FLUSH",
                "BACKUP STAGE BLOCK_DDL",
            ][..],
            "BACKUP STAGE END",
        ),
    };
    for case in cases() {
        let here = |text: &str| text.replace("DB", &main);
        from.run_all(case.tables.iter().map(|text| here(text))).unwrap();
        let running = feed.start(&[]).unwrap();
        pair.equal_within(LIMIT).unwrap();
        // As for a backup: DDL waits, rows pass.
        let mut backup = pair.sink.client().unwrap();
        backup.run_all(no_ddl).unwrap();
        from.run_all(case.statements.iter().map(|text| here(text)))
            .unwrap();
        let begun = "SELECT COUNT(*) FROM weir.ddl_begun";
        let waits = wait_until(case.name, LIMIT, || Ok(looker.number(begun)? > 0));
        assert!(waits.is_ok(), "{waits:?}\n{}", running.trouble());
        let mut holder = pair.sink.client().unwrap();
        holder.run("BEGIN").unwrap();
        holder.text("SELECT * FROM weir.ddl_begun FOR UPDATE").unwrap();
        backup.run(ddl_again).unwrap();
        wait_until("the end of the DDL", LIMIT, || {
            Ok(running_ddl(&mut looker, &main) == 0)
        })
        .unwrap();
        kill(running);
        assert!(looker.number(begun).unwrap() > 0, "{}: it was noted", case.name);
        holder.run("ROLLBACK").unwrap();
        let again = feed.start(&[]).unwrap();
        let equal = pair.equal_within(LIMIT);
        assert!(equal.is_ok(), "{}: {equal:?}\n{}", case.name, again.trouble());
        kill(again);
        from.run_all(drop_all(&main)).unwrap();
    }
}

#[test]
fn a_ddl_that_is_not_noted_at_mysql() {
    not_noted(Kind::Mysql);
}

#[test]
fn a_ddl_that_is_not_noted_at_mariadb() {
    not_noted(Kind::Mariadb118);
}
