//! Transactions of the load that change rows.

use mysql_async::Error;

use super::tables::{CHANGING, FIRST_ROWS, Names};
use crate::client::Client;
use crate::rng::Rng;

/// Temporary values of `slot` lie below this one.
const ASIDE: i64 = -1_000_000;

type Done = Result<(), Error>;

/// One client's share of the load.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    pub(super) names: &'a Names,
    pub(super) rng: Rng,
    /// Number of this client among all.
    pub(super) client: u64,
    /// Whether tables tied by foreign keys are written to.
    pub(super) family: bool,
    /// Counts up within the client: for values that must be new.
    pub(super) count: u64,
}

impl Writer<'_> {
    /// One transaction of some kind, committed; after an error the caller rolls back.
    pub(super) fn transaction(&mut self, db: &mut Client) -> Done {
        self.count += 1;
        match self.rng.below(20) {
            0..3 => self.insert_accounts(db),
            3..6 => self.move_money(db),
            6 | 7 => self.swap_slots(db),
            8 => self.swap_over_transactions(db),
            9 => self.key_changes(db),
            10 => self.unique_moves_to_a_new_row(db),
            11 | 12 => self.wide(db),
            13 | 14 => self.without_key(db),
            15 => self.nullable_unique(db),
            16 => self.family(db),
            17 => self.savepoint(db),
            _ => self.changing(db),
        }
    }

    fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.client * 100_000_000 + self.count
    }

    fn account(&mut self) -> u64 {
        1 + self.rng.below(FIRST_ROWS)
    }

    /// Counts the client's transactions in a table, so that a test sees how far the sink is.
    fn beat(&self, db: &mut Client) -> Done {
        let (main, client) = (&self.names.main, self.client);
        db.run(&format!(
            "INSERT INTO {main}.beat VALUES ({client}, 1) ON DUPLICATE KEY UPDATE n = n + 1"
        ))
    }

    fn insert_accounts(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let rows: Vec<String> = (0..=self.rng.below(5))
            .map(|_| {
                let new = self.fresh();
                let note = "é漢'\\\\\"x".repeat(usize::try_from(self.rng.below(40)).unwrap_or(0));
                format!(
                    "('n-{new}', {new}, {}, {}.5, '{}', NOW(3), NOW(6))",
                    self.rng.below(1000),
                    self.rng.below(100_000),
                    note.replace('\'', "''")
                )
            })
            .collect();
        db.run(&format!(
            "INSERT INTO {main}.acct (code, slot, v, amount, note, ts, dt) VALUES {}",
            rows.join(", ")
        ))?;
        if self.rng.one_in(3) {
            let (low, high) = (FIRST_ROWS, self.rng.below(400));
            db.run(&format!(
                "DELETE FROM {main}.acct WHERE id > {low} AND v < {high} ORDER BY id LIMIT 3"
            ))?;
        }
        Ok(())
    }

    /// Two accounts and the other database in one transaction.
    fn move_money(&mut self, db: &mut Client) -> Done {
        let Names { main, two, .. } = self.names;
        let (from, to, sum) = (self.account(), self.account(), self.rng.below(50));
        db.run("BEGIN")?;
        db.run(&format!("UPDATE {main}.acct SET v = v - {sum} WHERE id = {from}"))?;
        db.run(&format!(
            "UPDATE {main}.acct SET v = v + {sum}, dt = NOW(6) WHERE id = {to}"
        ))?;
        db.run(&format!(
            "INSERT INTO {two}.ledger (acct, delta, at) VALUES ({from}, -{sum}, NOW(3)), ({to}, {sum}, NOW(3))"
        ))?;
        if self.rng.one_in(4) {
            db.run(&format!(
                "DELETE FROM {two}.ledger WHERE acct = {from} ORDER BY id LIMIT 5"
            ))?;
        }
        self.beat(db)?;
        db.run("COMMIT")
    }

    /// Unique values of two rows change places by way of a temporary one.
    fn swap_slots(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let (a, b) = (self.account(), self.account());
        let column = if self.rng.one_in(2) { "slot" } else { "code" };
        db.run("BEGIN")?;
        let rows = db.text(&format!(
            "SELECT id, {column} FROM {main}.acct WHERE id IN ({a}, {b}) ORDER BY id FOR UPDATE"
        ))?;
        let [first, second] = rows.as_slice() else {
            return db.run("ROLLBACK");
        };
        let aside = ASIDE - i64::try_from(self.fresh()).unwrap_or(0);
        let value = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
        for (id, new) in [
            (value(first, 0), aside.to_string()),
            (value(second, 0), value(first, 1)),
            (value(first, 0), value(second, 1)),
        ] {
            db.run(&format!(
                "UPDATE {main}.acct SET {column} = '{new}' WHERE id = {id}"
            ))?;
        }
        self.beat(db)?;
        db.run("COMMIT")
    }

    /// The same in three transactions.
    fn swap_over_transactions(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let (a, b) = (self.account(), self.account());
        let slot =
            |db: &mut Client, id: u64| db.first(&format!("SELECT slot FROM {main}.acct WHERE id = {id}"));
        let (Some(of_a), Some(of_b)) = (slot(db, a)?, slot(db, b)?) else {
            return Ok(());
        };
        let aside = ASIDE - i64::try_from(self.fresh()).unwrap_or(0);
        for (id, new) in [(a, aside.to_string()), (b, of_a), (a, of_b)] {
            // Another client may have taken the value: then the row keeps what it has.
            db.run(&format!(
                "UPDATE IGNORE {main}.acct SET slot = {new} WHERE id = {id}"
            ))?;
        }
        Ok(())
    }

    /// Primary keys change: one row, and many rows by one statement.
    fn key_changes(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let new = self.fresh();
        let (low, high) = (FIRST_ROWS, FIRST_ROWS + 100_000);
        db.run("BEGIN")?;
        db.run(&format!(
            "UPDATE {main}.acct SET id = {} WHERE id > {low} AND id < {high} ORDER BY id DESC LIMIT 1",
            1_000_000_000 + new
        ))?;
        db.run(&format!(
            "UPDATE {main}.ukonly SET id = id + 1 WHERE id BETWEEN {0} AND {0} + 20 ORDER BY id DESC",
            self.rng.below(500)
        ))?;
        db.run(&format!(
            "INSERT IGNORE INTO {main}.ukonly VALUES ({}, 'u-{new}', {new} % 1000)",
            self.rng.below(500)
        ))?;
        db.run(&format!(
            "UPDATE {main}.wide SET k2 = CONCAT('k', k1, '-{new}') WHERE k1 = {} LIMIT 1",
            self.rng.below(60)
        ))?;
        db.run("COMMIT")
    }

    /// A row goes and another one with its unique value comes, in one transaction.
    fn unique_moves_to_a_new_row(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        db.run("BEGIN")?;
        let row = db.text(&format!(
            "SELECT id, code, slot FROM {main}.acct WHERE id > {FIRST_ROWS} ORDER BY id LIMIT 1 FOR UPDATE"
        ))?;
        let Some([id, code, slot]) = row.first().map(Vec::as_slice) else {
            return db.run("ROLLBACK");
        };
        db.run(&format!("DELETE FROM {main}.acct WHERE id = {id}"))?;
        // A value that the collation takes for the same one.
        let code = if self.rng.one_in(2) {
            code.to_uppercase()
        } else {
            code.clone()
        };
        db.run(&format!(
            "INSERT INTO {main}.acct (code, slot, v) VALUES ('{code}', {slot}, 1)"
        ))?;
        self.beat(db)?;
        db.run("COMMIT")
    }

    fn wide(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let (k1, new) = (self.rng.below(60), self.fresh());
        match self.rng.below(4) {
            0 => db.run(&format!("DELETE FROM {main}.wide WHERE k1 = {k1} ORDER BY k2 LIMIT 1")),
            1 => db.run(&format!(
                "UPDATE {main}.wide SET f = f * -1.5, d = d / 3, bits = ~bits & 2047, ti = '-{:02}:10:11.25', \
                 js = '{{\"n\": [{new}, null, 1.5, \"é\"]}}' WHERE k1 = {k1}",
                self.rng.below(800)
            )),
            2 => db.run(&format!(
                "INSERT INTO {main}.wide (k1, k2) VALUES ({k1}, 'null-{new}')"
            )),
            _ => {
                let part = self.rng.draw();
                db.run(&format!(
                    "INSERT INTO {main}.wide (k1, k2, t1, t2, s1, m1, m2, b1, f, d, dec1, bits, da, ti, y, dt, ts, c, \
                     vb, bi, bl, mt, en, se, js) VALUES ({k1}, 'k{k1}-{new}', -{}, {}, -{}, -{}, {}, {part}, \
                     {}e-3, {}.7e20, -{part}.0123456789, {}, '20{:02}-02-28', '{:02}:59:59.99', 19{:02}, \
                     '1999-12-31 23:59:59', '2038-01-01 00:00:00', 'ä{}', UNHEX('00FF{part:016X}'), \
                     UNHEX('{:06X}000000'), REPEAT(UNHEX('0A0D5C27'), {}), REPEAT('漢\\\\n', {}), 'ö', 'x,z', \
                     '{{\"a\": {new}, \"b\": [true, false, null], \"c\": {{\"d\": -1.25}}}}')",
                    part % 128,
                    part % 256,
                    part % 30_000,
                    part % 8_388_608,
                    part % 16_777_216,
                    part % 100_000,
                    part % 1000,
                    part % 2048,
                    part % 70,
                    part % 24,
                    10 + part % 90,
                    part % 1000,
                    part % 0xff_ffff,
                    part % 300,
                    part % 500
                ))
            }
        }
    }

    /// Equal rows many times; some of them change or go.
    fn without_key(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let a = self.rng.below(12);
        match self.rng.below(5) {
            0 | 1 => {
                let value =
                    self.rng
                        .pick(&["0.1", "-0.0", "1e30", "NULL", "16777217", "0.30000001192092896"]);
                let row = format!("({a}, {value}, {value}, 'same', x'00ff')");
                let rows = vec![row; 1 + usize::try_from(self.rng.below(4)).unwrap_or(0)];
                db.run(&format!("INSERT INTO {main}.nokey VALUES {}", rows.join(", ")))
            }
            2 => db.run(&format!("DELETE FROM {main}.nokey WHERE a = {a} LIMIT 2")),
            3 => db.run(&format!(
                "UPDATE {main}.nokey SET s = CONCAT(LEFT(s, 8), 'x'), d = d / 3 WHERE a = {a} LIMIT 2"
            )),
            _ => db.run(&format!(
                "UPDATE {main}.nokey SET a = NULL, f = NULL WHERE a = {a} LIMIT 1"
            )),
        }
    }

    fn nullable_unique(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let a = self.rng.below(300);
        match self.rng.below(4) {
            0 => db.run(&format!(
                "INSERT IGNORE INTO {main}.unull VALUES ({a}, 'b', {a}), (NULL, 'n', 1), (NULL, 'n', 1)"
            )),
            1 => db.run(&format!("UPDATE {main}.unull SET a = NULL WHERE a = {a}")),
            2 => db.run(&format!(
                "UPDATE IGNORE {main}.unull SET a = {a} WHERE a IS NULL LIMIT 1"
            )),
            _ => db.run(&format!("DELETE FROM {main}.unull WHERE a IS NULL LIMIT 1")),
        }
    }

    /// Parents, children, grandchildren: made together, moved and removed by cascades.
    fn family(&mut self, db: &mut Client) -> Done {
        if !self.family {
            return self.beat(db);
        }
        let main = &self.names.main;
        let (parent, new) = (1 + self.rng.below(20), self.fresh() % 2_000_000_000);
        match self.rng.below(6) {
            0..3 => {
                db.run("BEGIN")?;
                db.run(&format!("INSERT INTO {main}.child VALUES ({new}, {parent}, 1)"))?;
                db.run(&format!(
                    "INSERT INTO {main}.grand (child_id, v) VALUES ({new}, 1), ({new}, 2)"
                ))?;
                db.run(&format!(
                    "INSERT INTO {main}.side (parent_ref, v) VALUES ({}, {new})",
                    1000 + parent
                ))?;
                self.beat(db)?;
                db.run("COMMIT")
            }
            3 => {
                // Removed with all that hangs on it, and made again under the same key.
                db.run("BEGIN")?;
                db.run(&format!("DELETE FROM {main}.parent WHERE id = {parent}"))?;
                db.run(&format!(
                    "INSERT INTO {main}.parent VALUES ({parent}, {}, {})",
                    1000 + parent,
                    new % 1000
                ))?;
                db.run("COMMIT")
            }
            4 => db.run(&format!(
                "UPDATE {main}.child SET id = {new} WHERE parent_id = {parent} ORDER BY id LIMIT 1"
            )),
            _ => {
                db.run("BEGIN")?;
                db.run(&format!(
                    "UPDATE {main}.parent SET id = id + 500, ref = ref + 5000 WHERE id = {parent}"
                ))?;
                db.run(&format!(
                    "UPDATE {main}.parent SET id = id - 500, ref = ref - 5000 WHERE id = {}",
                    parent + 500
                ))?;
                db.run("COMMIT")
            }
        }
    }

    /// Rows that are rolled back leave nothing.
    fn savepoint(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let (new, id) = (self.fresh(), self.account());
        db.run("BEGIN")?;
        db.run(&format!("UPDATE {main}.acct SET v = v + 1 WHERE id = {id}"))?;
        db.run("SAVEPOINT s")?;
        db.run(&format!(
            "INSERT INTO {main}.acct (code, slot, v) VALUES ('gone-{new}', {new}, 0)"
        ))?;
        db.run(&format!("DELETE FROM {main}.nokey LIMIT 3"))?;
        db.run("ROLLBACK TO s")?;
        self.beat(db)?;
        db.run(if self.rng.one_in(4) { "ROLLBACK" } else { "COMMIT" })
    }

    /// The tables that DDL works on meanwhile.
    fn changing(&mut self, db: &mut Client) -> Done {
        let main = &self.names.main;
        let (number, new) = (self.rng.below(CHANGING), self.fresh());
        let table = format!("{main}.d{number}");
        match self.rng.below(5) {
            0..3 => db.run(&format!(
                "INSERT INTO {table} (v, s) VALUES ({new}, 's-{new}'), ({new} + 1, NULL)"
            )),
            3 => db.run(&format!(
                "UPDATE {table} SET v = v + 1, s = CONCAT('u', {new} % 100) LIMIT 4"
            )),
            _ => db.run(&format!("DELETE FROM {table} LIMIT 2")),
        }
    }
}
