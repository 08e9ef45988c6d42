//! Binlog files for the benchmarks, written by a real server and kept under `target/bench-data`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::record::{copy_binlogs, feed};
use crate::tpcc::{SCHEMA, Scale, Tpcc};
use weir_test_servers::{Install, Kind, Server, free_port};

const SCALE: Scale = Scale {
    warehouses: 4,
    districts: 10,
    customers: 300,
    items: 5000,
};
/// Clients that write side by side, each on warehouses of its own.
const STREAMS: u64 = 2;
/// Transactions between two looks at the size of the files.
const CHUNK: u32 = 200;
const SEED: u64 = 4_201;
/// Durability is of no use for throw-away data; a large log keeps checkpoints out of the way.
const FAST: &[&str] = &[
    "--innodb-flush-log-at-trx-commit=0",
    "--sync-binlog=0",
    "--innodb-buffer-pool-size=512M",
    "--max-binlog-size=128M",
    "--innodb-flush-method=O_DIRECT_NO_FSYNC",
    "--innodb-doublewrite=OFF",
];

/// The shapes, with the size that is generated for each unless the caller says otherwise, in MiB.
///
/// * `tpcc`: nine tables, five transactions;
/// * `narrow`: events of one row of two integers, 500 to a transaction;
/// * `one-row`: the same rows, each its own transaction;
/// * `mixed20`: rows of 20 columns of all usual types, inserted and updated;
/// * `rows100`: events of 100 narrow rows.
pub(crate) const SHAPES: &[(&str, u64)] = &[
    ("tpcc", 320),
    ("narrow", 64),
    ("one-row", 64),
    ("mixed20", 96),
    ("rows100", 64),
];

/// Folder of a shape.
pub(crate) fn folder(shape: &str) -> Result<PathBuf> {
    Ok(crate::target_dir()?.join("bench-data").join(shape))
}

/// Generates a shape, or `all`, unless files of at least that size are there already.
///
/// # Errors
/// For an unknown shape, or when the server cannot be had.
pub(crate) fn run(shape: &str, mebibytes: Option<u64>) -> Result<()> {
    let chosen: Vec<_> = SHAPES
        .iter()
        .filter(|(name, _)| shape == "all" || *name == shape)
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = SHAPES.iter().map(|(name, _)| *name).collect();
        bail!("no shape `{shape}`; there are: all, {}", names.join(", "));
    }
    for (name, default) in chosen {
        ensure(name, mebibytes.unwrap_or(*default) << 20)?;
        let target = folder(name)?;
        println!("{name}: {} bytes in {}", binlog_bytes(&target), target.display());
    }
    Ok(())
}

/// Like [`run`] at the default size, with nothing on standard output.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_quietly(shape: &str) -> Result<()> {
    for (name, mebibytes) in SHAPES.iter().filter(|(name, _)| *name == shape) {
        ensure(name, mebibytes << 20)?;
    }
    Ok(())
}

fn ensure(name: &str, bytes: u64) -> Result<()> {
    let target = folder(name)?;
    if binlog_bytes(&target) < bytes {
        eprintln!("generating {} MiB of {name} in {}", bytes >> 20, target.display());
        generate(name, bytes, &target)?;
    }
    Ok(())
}

fn generate(shape: &str, bytes: u64, target: &Path) -> Result<()> {
    let install = Install::get(&crate::services_cache()?, Kind::Mysql)?;
    let dir = tempfile::tempdir_in(crate::target_dir()?)?;
    let server = Server::start(&install, dir.path(), free_port()?, FAST)?;
    let goal = Goal {
        data: server.data_dir(),
        bytes,
    };
    if shape == "tpcc" {
        tpcc(&server, &goal)?;
    } else {
        procedural(&server, shape, &goal)?;
    }
    let data = server.data_dir();
    server.stop()?;
    copy_binlogs(&data, target)?;
    Ok(())
}

struct Goal {
    data: PathBuf,
    bytes: u64,
}

impl Goal {
    fn reached(&self) -> bool {
        binlog_bytes(&self.data) >= self.bytes
    }
}

/// Size of the binlog files in a folder; 0 where there is none.
fn binlog_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            (name.starts_with("binlog.0")).then(|| entry.metadata().map_or(0, |meta| meta.len()))
        })
        .sum()
}

fn tpcc(server: &Server, goal: &Goal) -> Result<()> {
    let per_stream = SCALE.warehouses / STREAMS;
    let mut streams: Vec<Tpcc> = (0..STREAMS)
        .map(|n| Tpcc::new(SEED + n, SCALE, n * per_stream + 1..=(n + 1) * per_stream))
        .collect();
    let mut script = format!("CREATE DATABASE tpcc; USE tpcc;{SCHEMA}");
    for (n, stream) in streams.iter_mut().enumerate() {
        stream.load(&mut script, n == 0);
    }
    feed(server, &script)?;
    drop(script);
    // The files hold transactions only; table maps carry the full metadata.
    server.sql("RESET BINARY LOGS AND GTIDS")?;
    std::thread::scope(|scope| {
        let workers: Vec<_> = streams
            .iter_mut()
            .map(|stream| scope.spawn(|| tpcc_stream(server, stream, goal)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a load stream panicked"))?
        })
    })
}

fn tpcc_stream(server: &Server, stream: &mut Tpcc, goal: &Goal) -> Result<()> {
    let mut child = server.pipe()?;
    let mut input = child.stdin.take().context("the client's standard input")?;
    let mut script = String::from("USE tpcc;\n");
    while !goal.reached() {
        for _ in 0..CHUNK {
            stream.transaction(&mut script);
        }
        if let Err(error) = input.write_all(script.as_bytes()) {
            drop(input);
            let output = child.wait_with_output()?;
            bail!(
                "the load failed ({error}): {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        script.clear();
    }
    drop(input);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("the load failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Shapes that a stored procedure writes: one call makes some MiB without a round trip for each statement.
fn procedural(server: &Server, shape: &str, goal: &Goal) -> Result<()> {
    server.sql(PROCEDURAL_SCHEMA)?;
    let (body, step) = match shape {
        "narrow" => (NARROW, 20_000),
        "one-row" => (ONE_ROW, 20_000),
        "mixed20" => (MIXED, 5_000),
        _ => (ROWS100, 50_000),
    };
    let mut child = server
        .client()
        .args(["--delimiter=//", "shape"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("the client's standard input")?;
    input.write_all(body.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "the procedure was refused: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    server.sql("RESET BINARY LOGS AND GTIDS")?;
    let mut from = 1_u64;
    while !goal.reached() {
        server.sql(&format!("USE shape; CALL fill({from}, {})", from + step))?;
        from += step;
    }
    Ok(())
}

const PROCEDURAL_SCHEMA: &str = "
CREATE DATABASE shape; USE shape;
CREATE TABLE narrow (id INT NOT NULL PRIMARY KEY, v INT);
CREATE TABLE numbers (n INT NOT NULL PRIMARY KEY);
INSERT INTO numbers SELECT a.d + 10 * b.d + 1 FROM (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) a, (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b;
CREATE TABLE mixed (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, tiny TINYINT, small SMALLINT UNSIGNED, medium MEDIUMINT, wide BIGINT, price DECIMAL(20,6), ratio DOUBLE, part FLOAT, day DATE, moment DATETIME(6), stamp TIMESTAMP(3) NULL, span TIME(2), year YEAR, flags BIT(9), code CHAR(10), name VARCHAR(120) CHARACTER SET utf8mb4, note TEXT, data BLOB, kind ENUM('red','green','blue'), tags SET('a','b','c','d'));
";

const NARROW: &str = "CREATE PROCEDURE fill(i INT, last INT) BEGIN START TRANSACTION; WHILE i < last DO \
    INSERT INTO narrow VALUES (i, i % 250000 * 7919); SET i = i + 1; IF i % 500 = 0 THEN COMMIT; START TRANSACTION; END IF; \
    END WHILE; COMMIT; END//";

const ONE_ROW: &str = "CREATE PROCEDURE fill(i INT, last INT) BEGIN WHILE i < last DO \
    INSERT INTO narrow VALUES (i, i % 250000 * 7919); SET i = i + 1; END WHILE; END//";

const ROWS100: &str = "CREATE PROCEDURE fill(i INT, last INT) BEGIN WHILE i < last DO \
    INSERT INTO narrow SELECT i + n, n * 7919 FROM numbers; SET i = i + 100; END WHILE; END//";

/// Ten rows a statement; every second statement updates what the one before inserted.
const MIXED: &str = "CREATE PROCEDURE fill(i INT, last INT) BEGIN WHILE i < last DO \
    INSERT INTO mixed SELECT i + n, n - 50, i % 60000, -i, -i * 100003, i * 1.250001 - 5000, i / 7, -i / 3, \
    DATE_ADD('2020-01-01', INTERVAL i % 3000 DAY), TIMESTAMPADD(MICROSECOND, i * 100000007, '2020-01-01'), \
    TIMESTAMPADD(SECOND, i, '2020-01-01 00:00:01'), SEC_TO_TIME(n * 100 - 2000), 1950 + n, i % 512, CONCAT('c', n), \
    CONCAT('name é ', i, REPEAT('x', n)), REPEAT('note ', n % 20), REPEAT(X'00FF27', n % 30), 1 + n % 3, n % 16 \
    FROM numbers WHERE n <= 10; \
    UPDATE mixed SET price = price + 1.5, tiny = -tiny, moment = TIMESTAMPADD(SECOND, 1, moment), kind = NULL \
    WHERE id BETWEEN i AND i + 10; SET i = i + 10; END WHILE; END//";
