//! DDL of the load: every kind of ordinary use, while rows are written.

use mysql_async::Error;

use super::tables::{CHANGING, Names, changing};
use crate::client::Client;
use crate::rng::Rng;

type Done = Result<(), Error>;

/// The thread that runs DDL.
#[derive(Debug)]
pub(super) struct Changer<'a> {
    pub(super) names: &'a Names,
    pub(super) rng: Rng,
    /// Whether tables with foreign keys come and go too.
    pub(super) family: bool,
    pub(super) count: u64,
}

impl Changer<'_> {
    /// One or a few statements of some kind.
    pub(super) fn step(&mut self, db: &mut Client) -> Done {
        self.count += 1;
        match self.rng.below(14) {
            0 => self.create(db),
            1 => self.add_column(db),
            2 => self.drop_column(db),
            3 => self.rename(db),
            4 => self.truncate(db),
            5 => self.indexes(db),
            6 => self.drop_several(db),
            7 | 8 => self.swap(db),
            9 => self.passing_database(db),
            10 => self.with_foreign_key(db),
            11 => self.table_of_the_load(db),
            12 => self.like(db),
            _ => self.drop_and_create(db),
        }
    }

    fn some(&mut self) -> String {
        format!("{}.d{}", self.names.main, self.rng.below(CHANGING))
    }

    fn create(&mut self, db: &mut Client) -> Done {
        let number = self.rng.below(CHANGING);
        db.run(&changing(&self.names.main, number))
    }

    fn add_column(&mut self, db: &mut Client) -> Done {
        let (table, count) = (self.some(), self.count);
        let place = self.rng.pick(&["", " FIRST", " AFTER v"]);
        db.run(&format!(
            "ALTER TABLE {table} ADD COLUMN c{count} INT DEFAULT {count}{place}"
        ))?;
        db.run(&format!("UPDATE {table} SET c{count} = v LIMIT 5"))
    }

    fn drop_column(&mut self, db: &mut Client) -> Done {
        let table = self.some();
        let (schema, name) = table.split_once('.').unwrap_or(("", &table));
        let column = db.first(&format!(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{schema}' \
             AND TABLE_NAME = '{name}' AND COLUMN_NAME LIKE 'c%' ORDER BY COLUMN_NAME LIMIT 1"
        ))?;
        match column {
            Some(column) => db.run(&format!("ALTER TABLE {table} DROP COLUMN {column}")),
            None => Ok(()),
        }
    }

    fn rename(&mut self, db: &mut Client) -> Done {
        let table = self.some();
        db.run(&format!("RENAME TABLE {table} TO {}.away", self.names.main))?;
        db.run(&format!(
            "INSERT INTO {}.away (v, s) VALUES ({}, 'away')",
            self.names.main, self.count
        ))?;
        db.run(&format!("ALTER TABLE {}.away RENAME TO {table}", self.names.main))
    }

    fn truncate(&mut self, db: &mut Client) -> Done {
        let main = self.names.main.clone();
        let table = match self.rng.below(4) {
            0 => format!("{main}.nokey"),
            1 => format!("{main}.unull"),
            _ => self.some(),
        };
        db.run(&format!("TRUNCATE TABLE {table}"))
    }

    fn indexes(&mut self, db: &mut Client) -> Done {
        let (table, name) = (self.some(), self.count);
        db.run(&format!("CREATE INDEX i{name} ON {table} (v, s)"))?;
        db.run(&format!("INSERT INTO {table} (v, s) VALUES ({name}, 'indexed')"))?;
        if self.rng.one_in(2) {
            db.run(&format!("DROP INDEX i{name} ON {table}"))
        } else {
            db.run(&format!(
                "ALTER TABLE {table} DROP INDEX i{name}, ADD INDEX j{name} (s)"
            ))
        }
    }

    fn drop_several(&mut self, db: &mut Client) -> Done {
        let (first, second) = (self.some(), self.some());
        if first == second {
            return Ok(());
        }
        db.run(&format!("DROP TABLE IF EXISTS {first}, {second}"))?;
        self.all_there(db)
    }

    fn all_there(&mut self, db: &mut Client) -> Done {
        (0..CHANGING).try_for_each(|number| db.run(&changing(&self.names.main, number)))
    }

    /// Two tables change names; both keep being written to.
    fn swap(&mut self, db: &mut Client) -> Done {
        let (first, second, main) = (self.some(), self.some(), &self.names.main);
        if first == second {
            return Ok(());
        }
        db.run(&format!(
            "RENAME TABLE {first} TO {main}.between, {second} TO {first}, {main}.between TO {second}"
        ))
    }

    fn passing_database(&mut self, db: &mut Client) -> Done {
        let (name, count) = (&self.names.passing, self.count);
        db.run(&format!(
            "CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"
        ))?;
        db.run(&format!(
            "CREATE TABLE {name}.t (id INT PRIMARY KEY, v VARCHAR(20))"
        ))?;
        db.run(&format!("CREATE TABLE {name}.u (v INT)"))?;
        db.run(&format!(
            "INSERT INTO {name}.t VALUES (1, 'a'), (2, 'b'), ({count} + 3, 'c')"
        ))?;
        db.run(&format!("INSERT INTO {name}.u VALUES (1), (1), ({count})"))?;
        db.run(&format!("UPDATE {name}.t SET id = id + 1 ORDER BY id DESC"))?;
        if self.rng.one_in(3) {
            db.run(&format!("DROP TABLE {name}.t"))?;
        }
        db.run(&format!("DROP DATABASE {name}"))
    }

    /// A child of a table of the load is made, filled, and goes again.
    fn with_foreign_key(&mut self, db: &mut Client) -> Done {
        if !self.family {
            return Ok(());
        }
        let (main, name) = (&self.names.main, self.count);
        db.run(&format!(
            "CREATE TABLE {main}.late{name} (id INT AUTO_INCREMENT PRIMARY KEY, p INT, KEY k_p (p), \
             CONSTRAINT f_late{name} FOREIGN KEY (p) REFERENCES {main}.parent (id) ON DELETE CASCADE ON UPDATE CASCADE)"
        ))?;
        let filled = db.run(&format!(
            "INSERT INTO {main}.late{name} (p) VALUES (1), (2), (NULL), (3)"
        ));
        db.run(&format!("DROP TABLE {main}.late{name}"))?;
        filled
    }

    /// Tables that all clients write to get a column, or lose one, or an index.
    fn table_of_the_load(&mut self, db: &mut Client) -> Done {
        let (main, count) = (&self.names.main, self.count);
        let table = self.rng.pick(&["acct", "wide", "nokey"]);
        match self.rng.below(3) {
            0 => {
                db.run(&format!(
                    "ALTER TABLE {main}.{table} ADD COLUMN x{count} INT NULL"
                ))?;
                db.run(&format!("UPDATE {main}.{table} SET x{count} = {count} LIMIT 10"))?;
                db.run(&format!("ALTER TABLE {main}.{table} DROP COLUMN x{count}"))
            }
            1 => {
                db.run(&format!(
                    "ALTER TABLE {main}.acct ADD UNIQUE KEY u_{count} (slot, v)"
                ))?;
                db.run(&format!("ALTER TABLE {main}.acct DROP KEY u_{count}"))
            }
            _ => db.run(&format!(
                "ALTER TABLE {main}.wide MODIFY mt {}",
                if self.rng.one_in(2) {
                    "LONGTEXT"
                } else {
                    "MEDIUMTEXT"
                }
            )),
        }
    }

    fn like(&mut self, db: &mut Client) -> Done {
        let (main, count) = (&self.names.main, self.count);
        db.run(&format!("CREATE TABLE {main}.like{count} LIKE {main}.acct"))?;
        db.run(&format!(
            "INSERT INTO {main}.like{count} (code, slot) VALUES ('l', 1), ('m', 2)"
        ))?;
        if self.rng.one_in(3) {
            return Ok(());
        }
        db.run(&format!("DROP TABLE {main}.like{count}"))
    }

    /// One name, two tables: rows of the old one must not meet the new one.
    fn drop_and_create(&mut self, db: &mut Client) -> Done {
        let number = self.rng.below(CHANGING);
        let main = &self.names.main;
        db.run(&format!("DROP TABLE IF EXISTS {main}.d{number}"))?;
        db.run(&changing(main, number))?;
        db.run(&format!(
            "INSERT INTO {main}.d{number} (v, s) VALUES ({}, 'new')",
            self.count
        ))
    }
}
