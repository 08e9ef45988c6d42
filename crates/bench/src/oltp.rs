//! A backlog of row changes for catch-up benchmarks, made on a real source.

use anyhow::{Context, Result};
use weir_wire::{Connection, Endpoint};

/// Tables of the small-transaction load.
pub const TABLES: u64 = 8;
/// Rows of each of them before the backlog.
pub const ROWS_PER_TABLE: u64 = 10_000;
/// Row changes of one small transaction: two updates, a delete, an insert.
pub const CHANGES_PER_TXN: u64 = 4;
/// Rows of one multi-row insert of the bulk load.
pub const BULK_ROWS: u64 = 200;
/// Clients that write side by side, so that the source's binlog holds transactions that
/// a parallel replica may run side by side.
const CLIENTS: u64 = 4;
/// Rows of one statement of the initial load.
const LOAD_ROWS: u64 = 500;

/// Small deterministic generator (Steele, Lea, Flood: `SplitMix64`, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn text(&mut self, length: usize) -> String {
        let mut text = String::with_capacity(length);
        while text.len() < length {
            text.push_str(&format!("{:011}-", self.draw() % 100_000_000_000));
        }
        text.truncate(length);
        text
    }
}

fn row(rng: &mut Rng, id: u64) -> String {
    format!(
        "({id},{},'{}','{}')",
        rng.draw() % ROWS_PER_TABLE,
        rng.text(119),
        rng.text(59)
    )
}

/// Statements that make the tables of `schema` and fill them: the same on every server.
pub fn base(schema: &str) -> Vec<String> {
    let mut statements = vec![format!("CREATE DATABASE {schema}")];
    for table in 0..=TABLES {
        statements.push(format!(
            "CREATE TABLE {schema}.t{table} (id INT UNSIGNED NOT NULL PRIMARY KEY, k INT UNSIGNED NOT NULL, c CHAR(120) NOT NULL, \
             pad CHAR(60) NOT NULL, KEY k (k)) CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
        ));
    }
    for table in 0..TABLES {
        let mut rng = Rng(table);
        let mut id = 0;
        while id < ROWS_PER_TABLE {
            let rows: Vec<String> = (id..id + LOAD_ROWS).map(|id| row(&mut rng, id)).collect();
            statements.push(format!("INSERT INTO {schema}.t{table} VALUES {}", rows.join(",")));
            id += LOAD_ROWS;
        }
    }
    statements
}

/// Runs `txns` small transactions over all tables of `schema`; each client works on ids
/// of its own, so that none waits for another.
///
/// # Errors
/// The first error of a client.
pub fn small_transactions(source: &Endpoint, schema: &str, txns: u64) -> Result<()> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || small_client(source, schema, client, txns / CLIENTS)))
            .collect();
        clients.into_iter().try_for_each(join)
    })
}

fn small_client(source: &Endpoint, schema: &str, client: u64, txns: u64) -> Result<()> {
    let mut connection = Connection::open(source)?;
    let mut rng = Rng(1_000 + client);
    for _ in 0..txns {
        let table = rng.draw() % TABLES;
        let mut id = || rng.draw() % (ROWS_PER_TABLE / CLIENTS) * CLIENTS + client;
        let (a, b, c) = (id(), id(), id());
        let name = format!("{schema}.t{table}");
        let fresh = row(&mut rng, c);
        for statement in [
            "BEGIN".to_owned(),
            format!("UPDATE {name} SET k=k+1 WHERE id={a}"),
            format!("UPDATE {name} SET c='{}' WHERE id={b}", rng.text(119)),
            format!("DELETE FROM {name} WHERE id={c}"),
            format!("INSERT INTO {name} VALUES {fresh}"),
            "COMMIT".to_owned(),
        ] {
            connection.execute(&statement)?;
        }
    }
    Ok(())
}

/// Inserts `rows` rows into the table behind the others, many to a statement.
///
/// # Errors
/// The server's.
pub fn bulk_inserts(source: &Endpoint, schema: &str, rows: u64) -> Result<()> {
    let mut connection = Connection::open(source)?;
    let mut rng = Rng(2_000);
    let mut id = 0;
    while id < rows {
        let values: Vec<String> = (id..id + BULK_ROWS).map(|id| row(&mut rng, id)).collect();
        connection.execute(&format!(
            "INSERT INTO {schema}.t{TABLES} VALUES {}",
            values.join(",")
        ))?;
        id += BULK_ROWS;
    }
    Ok(())
}

fn join(client: std::thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
}

/// One text value of a one-row answer.
///
/// # Errors
/// The server's; no row.
pub fn scalar(connection: &mut Connection, sql: &str) -> Result<String> {
    let rows = connection.query(sql)?;
    let value = rows.rows.first().and_then(|row| row.first()).cloned().flatten();
    let value = value.with_context(|| format!("`{sql}` gave nothing"))?;
    Ok(String::from_utf8_lossy(&value).into_owned())
}
