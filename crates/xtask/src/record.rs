//! Recordings of real servers' binlogs, with the counts that the servers' own tools find in them.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::count;
use crate::scripts;
use crate::tpcc::{SCHEMA, Scale, Tpcc};
use weir_test_servers::{Install, Kind, Server, free_port};

/// Size that the files of the quickstart may not pass: they are part of the command.
const QUICKSTART_LIMIT_BYTES: u64 = 12 << 20;
/// Size that a small recording may not pass.
const SMALL_LIMIT_BYTES: u64 = 2 << 20;
const QUICKSTART_SCALE: Scale = Scale {
    warehouses: 2,
    districts: 4,
    customers: 60,
    items: 400,
};
const SMALL_SCALE: Scale = Scale {
    warehouses: 1,
    districts: 2,
    customers: 20,
    items: 60,
};
/// Transactions in half a file of the quickstart.
const QUICKSTART_HALF: u32 = 280;
const SEED: u64 = 20_261_130;

/// What is recorded.
#[derive(Clone, Copy, Debug)]
enum Load {
    Quickstart,
    /// Types, savepoints, DDL and a little TPC-C.
    Mixed,
    Xa,
    Tagged,
    /// A few rows with a JSON column.
    Few,
}

struct Recording {
    name: &'static str,
    kind: Kind,
    arguments: &'static [&'static str],
    load: Load,
}

const RECORDINGS: &[Recording] = &[
    Recording {
        name: "quickstart",
        kind: Kind::Mysql,
        arguments: &[],
        load: Load::Quickstart,
    },
    Recording {
        name: "mysql-9.7",
        kind: Kind::Mysql,
        arguments: &["--binlog-rows-query-log-events=ON"],
        load: Load::Mixed,
    },
    Recording {
        name: "mysql-9.7-compressed",
        kind: Kind::Mysql,
        arguments: &["--binlog-transaction-compression=ON"],
        load: Load::Mixed,
    },
    Recording {
        name: "mysql-9.7-no-checksum",
        kind: Kind::Mysql,
        arguments: &["--binlog-checksum=NONE"],
        load: Load::Few,
    },
    Recording {
        name: "mysql-9.7-xa",
        kind: Kind::Mysql,
        arguments: &[],
        load: Load::Xa,
    },
    Recording {
        name: "mysql-9.7-tagged",
        kind: Kind::Mysql,
        arguments: &[],
        load: Load::Tagged,
    },
    Recording {
        name: "mariadb-10.11",
        kind: Kind::Mariadb1011,
        arguments: &[],
        load: Load::Mixed,
    },
    Recording {
        name: "mariadb-10.11-compressed",
        kind: Kind::Mariadb1011,
        arguments: MARIADB_COMPRESSED,
        load: Load::Mixed,
    },
    Recording {
        name: "mariadb-10.11-xa",
        kind: Kind::Mariadb1011,
        arguments: &[],
        load: Load::Xa,
    },
    Recording {
        name: "mariadb-11.8",
        kind: Kind::Mariadb118,
        arguments: &[],
        load: Load::Mixed,
    },
    Recording {
        name: "mariadb-11.8-compressed",
        kind: Kind::Mariadb118,
        arguments: MARIADB_COMPRESSED,
        load: Load::Mixed,
    },
    Recording {
        name: "mariadb-11.8-xa",
        kind: Kind::Mariadb118,
        arguments: &[],
        load: Load::Xa,
    },
];

/// Binlogs that are refused with an error; they lie in `integration/refused`.
const REFUSED: &[Recording] = &[
    Recording {
        name: "statement-format",
        kind: Kind::Mysql,
        arguments: &["--binlog-format=STATEMENT"],
        load: Load::Few,
    },
    Recording {
        name: "minimal-metadata",
        kind: Kind::Mysql,
        arguments: &["--binlog-row-metadata=MINIMAL"],
        load: Load::Few,
    },
    Recording {
        name: "partial-json",
        kind: Kind::Mysql,
        arguments: &["--binlog-row-value-options=PARTIAL_JSON"],
        load: Load::Few,
    },
];

const MARIADB_COMPRESSED: &[&str] = &["--log-bin-compress=ON", "--log-bin-compress-min-len=10"];

/// Names that [`run`] takes.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    RECORDINGS.iter().chain(REFUSED).map(|recording| recording.name)
}

/// Makes one recording, or `all`.
///
/// # Errors
/// For an unknown name, when a server cannot be had, or when the result is too large to check in.
pub(crate) fn run(name: &str) -> Result<()> {
    let wanted = |recording: &&Recording| name == "all" || recording.name == name;
    let mut chosen: Vec<_> = RECORDINGS
        .iter()
        .filter(wanted)
        .map(|recording| (recording, "data"))
        .collect();
    chosen.extend(
        REFUSED
            .iter()
            .filter(wanted)
            .map(|recording| (recording, "refused")),
    );
    if chosen.is_empty() {
        bail!(
            "no recording `{name}`; there are: all, {}",
            names().collect::<Vec<_>>().join(", ")
        );
    }
    chosen
        .into_iter()
        .try_for_each(|(recording, folder)| record(recording, folder))
}

fn record(recording: &Recording, folder: &str) -> Result<()> {
    let root = crate::workspace_root()?;
    let install = Install::get(&crate::services_cache()?, recording.kind)?;
    let dir = tempfile::tempdir_in(crate::target_dir()?)?;
    let mut arguments = vec!["--innodb-buffer-pool-size=128M"];
    arguments.extend(recording.arguments);
    let server = Server::start(&install, dir.path(), free_port()?, &arguments)?;
    let version = server.sql("SELECT VERSION()")?.trim().to_owned();
    server.sql(if recording.kind == Kind::Mysql {
        "RESET BINARY LOGS AND GTIDS"
    } else {
        "RESET MASTER"
    })?;
    match recording.load {
        Load::Quickstart => quickstart(&server)?,
        Load::Mixed => mixed(&server)?,
        Load::Xa => xa(&server)?,
        Load::Few => {
            server.sql(scripts::FEW)?;
            rotate(&server)?;
            server.sql("UPDATE few.t SET doc = JSON_SET(doc, '$.a', 3) WHERE id = 2")?;
        }
        Load::Tagged => {
            server.sql(scripts::TAGGED)?;
            rotate(&server)?;
            server.sql("INSERT INTO tags.t VALUES (100,1,1)")?;
        }
    }
    let data = server.data_dir();
    server.stop()?;
    let target = root.join("integration").join(folder).join(recording.name);
    let files = copy_binlogs(&data, &target)?;
    let summary = count::summarise(&install, &files)?;
    count::write_expected(&target, &version, &files, &summary)?;
    let bytes: u64 = files
        .iter()
        .map(|file| std::fs::metadata(file).map_or(0, |meta| meta.len()))
        .sum();
    let limit = if matches!(recording.load, Load::Quickstart) {
        QUICKSTART_LIMIT_BYTES
    } else {
        SMALL_LIMIT_BYTES
    };
    if bytes > limit || files.len() < 2 {
        bail!(
            "`{}` has {} files of {bytes} bytes; wanted at least 2 and at most {limit}",
            recording.name,
            files.len()
        );
    }
    println!(
        "{}: {} files, {bytes} bytes, {} transactions, {} DDL, {} tables",
        recording.name,
        files.len(),
        summary.transactions,
        summary.ddl,
        summary.tables.len()
    );
    Ok(())
}

fn quickstart(server: &Server) -> Result<()> {
    let mut load = Tpcc::new(SEED, QUICKSTART_SCALE, 1..=QUICKSTART_SCALE.warehouses);
    let mut script = format!("CREATE DATABASE tpcc; USE tpcc;{SCHEMA}");
    load.load(&mut script, true);
    feed(server, &script)?;
    for part in 0..3 {
        let mut script = String::from("USE tpcc;\n");
        for _ in 0..QUICKSTART_HALF {
            load.transaction(&mut script);
        }
        if part == 1 {
            script.push_str("ALTER TABLE customer ADD COLUMN c_email VARCHAR(64) DEFAULT NULL;\n");
            script.push_str(
                "UPDATE customer SET c_email = CONCAT('c', c_id, '@example.com') WHERE c_d_id = 1;\n",
            );
        }
        for _ in 0..QUICKSTART_HALF {
            load.transaction(&mut script);
        }
        feed(server, &script)?;
        if part < 2 {
            rotate(server)?;
        }
    }
    Ok(())
}

fn mixed(server: &Server) -> Result<()> {
    server.sql(&scripts::types(SEED, 120))?;
    server.sql(scripts::SAVEPOINTS)?;
    rotate(server)?;
    server.sql(scripts::DDL)?;
    rotate(server)?;
    let mut load = Tpcc::new(SEED, SMALL_SCALE, 1..=1);
    let mut script = format!("CREATE DATABASE tpcc; USE tpcc;{SCHEMA}");
    load.load(&mut script, true);
    for _ in 0..60 {
        load.transaction(&mut script);
    }
    feed(server, &script)
}

/// Every script in a session of its own: a prepared group is decided by a session that did not make it.
fn xa(server: &Server) -> Result<()> {
    server.sql(scripts::XA)?;
    rotate(server)?;
    server.sql(scripts::XA_SECOND_FILE)?;
    rotate(server)?;
    server.sql(scripts::XA_THIRD_FILE)?;
    Ok(())
}

/// Pipes a long script into a client.
pub(crate) fn feed(server: &Server, script: &str) -> Result<()> {
    let mut child = server.pipe()?;
    let mut input = child.stdin.take().context("the client's standard input")?;
    let written = input.write_all(script.as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("SQL script failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    written.context("write the SQL script")
}

/// Begins a new binlog file without leaving a statement in it.
pub(crate) fn rotate(server: &Server) -> Result<()> {
    server.sql("FLUSH NO_WRITE_TO_BINLOG BINARY LOGS")?;
    Ok(())
}

/// Copies the binlog files of a stopped server, with an index that names them relative to itself.
pub(crate) fn copy_binlogs(data: &Path, target: &Path) -> Result<Vec<PathBuf>> {
    if target.exists() {
        std::fs::remove_dir_all(target)?;
    }
    std::fs::create_dir_all(target)?;
    let mut names: Vec<String> = std::fs::read_dir(data)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            name.strip_prefix("binlog.")
                .is_some_and(|end| end.bytes().all(|b| b.is_ascii_digit()))
        })
        .collect();
    names.sort_unstable();
    let mut index = String::new();
    let mut files = Vec::new();
    for name in names {
        let file = target.join(&name);
        // Not `copy`, which would keep the server's permissions.
        std::fs::write(&file, std::fs::read(data.join(&name))?)?;
        index.push_str("./");
        index.push_str(&name);
        index.push('\n');
        files.push(file);
    }
    std::fs::write(target.join("binlog.index"), index)?;
    Ok(files)
}
