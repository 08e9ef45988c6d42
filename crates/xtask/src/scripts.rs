//! SQL scripts of the small recordings.
//!
//! Each covers one family of what a binlog can hold; the rows are few, the shapes many.

use std::fmt::Write;

use crate::rng::Rng;

/// A schema with the usual column types, and every kind of row change on it.
///
/// `collation` is one that both the server and older peers know.
pub(crate) fn types(seed: u64, rows: u64) -> String {
    let mut rng = Rng::new(seed);
    let mut out = String::from(
        "CREATE DATABASE shapes; USE shapes;
CREATE TABLE mixed (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, tiny TINYINT, small SMALLINT UNSIGNED, medium MEDIUMINT, wide BIGINT, price DECIMAL(20,6), ratio DOUBLE, part FLOAT, day DATE, moment DATETIME(6), stamp TIMESTAMP(3) NULL, span TIME(2), year YEAR, flags BIT(9), code CHAR(10), name VARCHAR(120) CHARACTER SET utf8mb4, note TEXT, data BLOB, kind ENUM('red','green','blue'), tags SET('a','b','c','d'));
CREATE TABLE narrow (id INT NOT NULL PRIMARY KEY, v INT);
CREATE TABLE nokey (a INT, b VARCHAR(80));
CREATE TABLE pair (a INT NOT NULL, b VARCHAR(20) NOT NULL, v DECIMAL(8,2), PRIMARY KEY (a, b));
",
    );
    for id in 1..=rows {
        let mut name = String::new();
        rng.text(&mut name, 0, 60);
        let sign = if rng.percent(50) { "-" } else { "" };
        let (number, small) = (rng.range(0, 8_000_000), rng.range(0, 120));
        let second = rng.range(10, 59);
        line(
            &mut out,
            format_args!(
                "INSERT INTO mixed VALUES ({id},{sign}{small},{small},{sign}{number},{sign}{number}00000,{sign}{number}.{second}0125,\
                 {sign}{number}.5,{sign}{small}.25,'2026-02-{:02}','2026-03-04 05:06:{second}.123456',\
                 '2026-03-04 05:06:{second}.5','{sign}{small}:07:{second}.25',{},{},'{small}','{name}é漢😀',\
                 REPEAT('n',{small}),X'00FF{second}27','{}','a,{}')",
                rng.range(1, 28),
                if rng.percent(10) { 0 } else { rng.range(1902, 2155) },
                rng.range(0, 511),
                ["red", "green", "blue"][usize::try_from(id % 3).unwrap_or(0)],
                ["b", "c", "d"][usize::try_from(small % 3).unwrap_or(0)],
            ),
        );
        line(
            &mut out,
            format_args!("INSERT INTO narrow VALUES ({id},{number})"),
        );
        line(
            &mut out,
            format_args!("INSERT INTO nokey VALUES ({small},'{name}'),({small},'{name}'),(NULL,NULL)"),
        );
        line(
            &mut out,
            format_args!("INSERT INTO pair VALUES ({id},'{second}',{sign}{small}.5)"),
        );
        if id % 3 == 0 {
            line(
                &mut out,
                format_args!("UPDATE mixed SET note = NULL, kind = NULL, wide = wide + 1 WHERE id = {id}"),
            );
            line(
                &mut out,
                format_args!("UPDATE narrow SET v = -v WHERE id BETWEEN {} AND {id}", id - 2),
            );
            line(
                &mut out,
                format_args!("UPDATE pair SET a = a + 100000 WHERE a = {id}"),
            );
        }
        if id % 5 == 0 {
            line(&mut out, format_args!("DELETE FROM mixed WHERE id = {}", id - 1));
            line(
                &mut out,
                format_args!("DELETE FROM nokey WHERE a = {small} LIMIT 1"),
            );
        }
    }
    out
}

fn line(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    out.write_fmt(arguments).unwrap_or_default();
    out.push_str(";\n");
}

/// Savepoints, rolled back halves, an empty transaction, statements that fail.
pub(crate) const SAVEPOINTS: &str = "
CREATE DATABASE saves; USE saves;
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v VARCHAR(20));
BEGIN; INSERT INTO t VALUES (1,'kept'); SAVEPOINT a; INSERT INTO t VALUES (2,'gone'); ROLLBACK TO a; INSERT INTO t VALUES (3,'kept'); COMMIT;
BEGIN; INSERT INTO t VALUES (4,'gone'); ROLLBACK;
BEGIN; SAVEPOINT a; INSERT INTO t VALUES (5,'gone'); SAVEPOINT b; INSERT INTO t VALUES (6,'gone'); ROLLBACK TO b; ROLLBACK TO a; COMMIT;
BEGIN; INSERT INTO t VALUES (7,'kept'); SAVEPOINT a; UPDATE t SET v = 'gone' WHERE id = 1; ROLLBACK TO a; SAVEPOINT a; UPDATE t SET v = 'new' WHERE id = 1; RELEASE SAVEPOINT a; COMMIT;
BEGIN; INSERT IGNORE INTO t VALUES (1,'twice'),(8,'kept'); DELETE FROM t WHERE id = 3; COMMIT;
INSERT INTO t VALUES (9,'kept') ON DUPLICATE KEY UPDATE v = 'no';
INSERT INTO t VALUES (9,'no') ON DUPLICATE KEY UPDATE v = 'changed';
REPLACE INTO t VALUES (9,'replaced');
";

/// Schema changes of each kind that changes what rows look like or where they go.
pub(crate) const DDL: &str = "
CREATE DATABASE shop; CREATE DATABASE archive; USE shop;
CREATE TABLE orders (id INT NOT NULL PRIMARY KEY, total DECIMAL(10,2), note VARCHAR(40));
INSERT INTO orders VALUES (1,10.00,'first'),(2,20.50,'second');
ALTER TABLE orders ADD COLUMN state ENUM('new','paid') NOT NULL DEFAULT 'new' AFTER id;
INSERT INTO orders VALUES (3,'paid',30.00,'third'); UPDATE orders SET state = 'paid' WHERE id < 3;
ALTER TABLE orders DROP COLUMN note, MODIFY total DECIMAL(14,4);
UPDATE orders SET total = total * 2;
ALTER TABLE orders CHANGE total amount DECIMAL(14,4), ADD INDEX by_state (state);
INSERT INTO orders VALUES (4,'new',1.0001);
CREATE TABLE orders_new LIKE orders;
INSERT INTO orders_new SELECT * FROM orders;
RENAME TABLE orders TO orders_old, orders_new TO orders;
INSERT INTO orders VALUES (5,'new',5); INSERT INTO orders_old VALUES (99,'paid',9.9);
DELETE FROM orders WHERE id = 1;
TRUNCATE TABLE orders_old; INSERT INTO orders_old VALUES (1,'new',1);
RENAME TABLE orders_old TO archive.orders;
INSERT INTO archive.orders VALUES (2,'paid',2);
CREATE TABLE copy AS SELECT * FROM orders;
INSERT INTO copy VALUES (6,'new',6);
CREATE TABLE IF NOT EXISTS copy (id INT);
CREATE VIEW open_orders AS SELECT * FROM orders WHERE state = 'new';
CREATE TABLE `odd name.é` (`a b` INT PRIMARY KEY, `c``d` TEXT);
INSERT INTO `odd name.é` VALUES (1,'x'),(2,'y');
DROP TABLE copy; CREATE TABLE copy (id INT NOT NULL PRIMARY KEY, v INT); INSERT INTO copy VALUES (1,1);
DROP VIEW open_orders;
CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY); INSERT INTO a VALUES (1); INSERT INTO b VALUES (1),(2);
DROP TABLE a, b;
DROP DATABASE archive;
CREATE DATABASE archive; CREATE TABLE archive.orders (id INT PRIMARY KEY, again INT); INSERT INTO archive.orders VALUES (1,2);
ALTER TABLE archive.orders RENAME TO archive.past;
INSERT INTO archive.past VALUES (3,4);
";

/// XA groups: committed, rolled back, in one phase, and prepared in another file than the decision.
pub(crate) const XA: &str = "
CREATE DATABASE bank; USE bank;
CREATE TABLE account (id INT NOT NULL PRIMARY KEY, balance DECIMAL(10,2));
INSERT INTO account VALUES (1,100),(2,200),(3,300),(4,400);
XA START 'one'; UPDATE account SET balance = balance - 10 WHERE id = 1; XA END 'one'; XA PREPARE 'one';
XA COMMIT 'one';
XA START 'two','branch',7; UPDATE account SET balance = 0 WHERE id = 2; INSERT INTO account VALUES (20,1); XA END 'two','branch',7; XA PREPARE 'two','branch',7;
XA ROLLBACK 'two','branch',7;
XA START 'three'; INSERT INTO account VALUES (30,3); XA END 'three'; XA COMMIT 'three' ONE PHASE;
XA START X'00FF27'; INSERT INTO account VALUES (50,5); SAVEPOINT s; INSERT INTO account VALUES (51,5); ROLLBACK TO s; XA END X'00FF27'; XA PREPARE X'00FF27';
";

/// The decision on a group that [`XA`] left prepared, and one more that is decided two files later.
///
/// The second group is prepared by this script and left open; the session must end before the decision.
pub(crate) const XA_SECOND_FILE: &str = "
USE bank; INSERT INTO account VALUES (31,6);
XA COMMIT X'00FF27';
XA START 'late'; DELETE FROM account WHERE id = 4; UPDATE account SET balance = balance + 1 WHERE id = 3; XA END 'late'; XA PREPARE 'late';
";

/// The last decisions; a rolled back group whose rows lie in the file before.
pub(crate) const XA_THIRD_FILE: &str = "
USE bank; INSERT INTO account VALUES (32,7);
XA ROLLBACK 'late';
UPDATE account SET balance = balance + 1 WHERE id = 3;
";

/// GTIDs with tags between ones without (MySQL 8.3 and later).
pub(crate) const TAGGED: &str = "
CREATE DATABASE tags; USE tags;
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT);
INSERT INTO t VALUES (1,1);
SET gtid_next = 'AUTOMATIC:blue'; INSERT INTO t VALUES (2,2); INSERT INTO t VALUES (3,3);
SET gtid_next = 'AUTOMATIC:a_rather_long_tag_of_32_letters'; UPDATE t SET v = v + 1;
SET gtid_next = 'AUTOMATIC:blue'; BEGIN; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (4,4); COMMIT;
ALTER TABLE t ADD COLUMN w INT;
SET gtid_next = 'AUTOMATIC'; INSERT INTO t VALUES (5,5,5);
SET gtid_next = 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee:manual:17'; INSERT INTO t VALUES (6,6,6);
SET gtid_next = 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee:9'; INSERT INTO t VALUES (7,7,7);
SET gtid_next = 'AUTOMATIC';
";

/// A table with a JSON column, one row event of each kind.
pub(crate) const FEW: &str = "
CREATE DATABASE few; USE few;
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v VARCHAR(20), doc JSON);
INSERT INTO t VALUES (1,'one','{\"a\": 1, \"long\": \"a text that is long enough to be left out of a difference\"}'),(2,'two','{\"a\": 2, \"long\": \"a text that is long enough to be left out of a difference\"}');
UPDATE t SET doc = JSON_SET(doc, '$.a', 2) WHERE id = 1;
DELETE FROM t WHERE id = 1;
";
