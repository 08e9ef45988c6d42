//! The tables of the load.

/// Rows that each of the main tables begins with.
pub(super) const FIRST_ROWS: u64 = 200;
/// Tables that DDL works on while rows are written to them: `d0`, `d1`, …
pub(super) const CHANGING: u64 = 6;

/// Database of the tables, and a second one, so that transactions span both.
#[derive(Clone, Debug)]
pub struct Names {
    /// The main database; all others begin with its name and `_`.
    pub main: String,
    /// The other one.
    pub two: String,
    /// One that comes and goes.
    pub passing: String,
}

impl Names {
    /// Names below a prefix.
    pub fn new(prefix: &str) -> Self {
        Self {
            main: prefix.to_owned(),
            two: format!("{prefix}_two"),
            passing: format!("{prefix}_passing"),
        }
    }
}

/// Statements that make databases and tables, with their first rows.
///
/// Collations are named, since the defaults of MySQL and MariaDB differ and neither knows the other's.
pub(super) fn setup(names: &Names) -> Vec<String> {
    let Names { main, two, .. } = names;
    let database =
        |name: &str| format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
    let mut statements = vec![database(main), database(two)];
    statements.extend(main_tables(main));
    statements.push(format!(
        "CREATE TABLE {two}.ledger (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, acct BIGINT UNSIGNED NOT NULL, \
         delta INT NOT NULL, at DATETIME(3) NOT NULL, KEY k_acct (acct))"
    ));
    statements.extend(family(main));
    statements.extend((0..CHANGING).map(|number| changing(main, number)));
    for id in 1..=FIRST_ROWS {
        statements.push(format!(
            "INSERT INTO {main}.acct (code, slot, v, amount) VALUES ('code-{id}', {id}, {id}, {id}.125)"
        ));
    }
    for id in 1..=20 {
        statements.push(format!(
            "INSERT INTO {main}.parent VALUES ({id}, {}, 0)",
            1000 + id
        ));
    }
    statements
}

fn main_tables(main: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE TABLE {main}.acct (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
             code VARCHAR(40) NOT NULL, slot INT NOT NULL, v INT NOT NULL DEFAULT 0, amount DECIMAL(14,3), \
             note TEXT, ts TIMESTAMP(3) NULL, dt DATETIME(6) NULL, \
             UNIQUE KEY u_code (code), UNIQUE KEY u_slot (slot), KEY k_v (v))"
        ),
        format!(
            "CREATE TABLE {main}.wide (k1 INT NOT NULL, k2 VARCHAR(24) NOT NULL, t1 TINYINT, t2 TINYINT UNSIGNED, \
             s1 SMALLINT, m1 MEDIUMINT, m2 MEDIUMINT UNSIGNED, b1 BIGINT UNSIGNED, f FLOAT, d DOUBLE, \
             dec1 DECIMAL(40,10), bits BIT(11), da DATE, ti TIME(2), y YEAR, dt DATETIME, ts TIMESTAMP NULL, \
             c CHAR(10) CHARACTER SET latin1 COLLATE latin1_swedish_ci, vb VARBINARY(60), bi BINARY(6), bl BLOB, \
             mt MEDIUMTEXT, en ENUM('a','b','ö'), se SET('x','y','z'), js JSON, \
             g INT GENERATED ALWAYS AS (t1 + s1) STORED, gv VARCHAR(30) GENERATED ALWAYS AS (CONCAT(k2, '!')) VIRTUAL, \
             PRIMARY KEY (k1, k2))"
        ),
        format!("CREATE TABLE {main}.nokey (a INT, f FLOAT, d DOUBLE, s VARCHAR(30), bl BLOB)"),
        format!("CREATE TABLE {main}.unull (a INT NULL, b VARCHAR(20), v INT, UNIQUE KEY u_a (a))"),
        format!("CREATE TABLE {main}.ukonly (id INT NOT NULL, v VARCHAR(20), n INT, UNIQUE KEY u_id (id))"),
        format!("CREATE TABLE {main}.beat (client INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)"),
    ]
}

/// Tables tied by foreign keys, with every action that changes rows of another table.
fn family(main: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE TABLE {main}.parent (id INT NOT NULL PRIMARY KEY, ref INT NOT NULL, v INT, UNIQUE KEY u_ref (ref))"
        ),
        format!(
            "CREATE TABLE {main}.child (id INT NOT NULL PRIMARY KEY, parent_id INT NOT NULL, v INT, \
             KEY k_parent (parent_id), CONSTRAINT f_child FOREIGN KEY (parent_id) REFERENCES {main}.parent (id) \
             ON DELETE CASCADE ON UPDATE CASCADE)"
        ),
        format!(
            "CREATE TABLE {main}.grand (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, child_id INT NOT NULL, v INT, \
             KEY k_child (child_id), CONSTRAINT f_grand FOREIGN KEY (child_id) REFERENCES {main}.child (id) \
             ON DELETE CASCADE ON UPDATE CASCADE)"
        ),
        format!(
            "CREATE TABLE {main}.side (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, parent_ref INT NULL, v INT, \
             KEY k_ref (parent_ref), CONSTRAINT f_side FOREIGN KEY (parent_ref) REFERENCES {main}.parent (ref) \
             ON DELETE SET NULL ON UPDATE CASCADE)"
        ),
    ]
}

/// A table that DDL works on. Every third has no key.
pub(super) fn changing(main: &str, number: u64) -> String {
    let id = if number % 3 == 2 {
        "id BIGINT NOT NULL DEFAULT 0"
    } else {
        "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY"
    };
    format!("CREATE TABLE IF NOT EXISTS {main}.d{number} ({id}, v INT, s VARCHAR(50))")
}
