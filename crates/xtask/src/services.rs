//! Test servers that stay up between commands.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use weir_test_servers::{Install, Kafka, Kind, Server, free_port};

const STOP_LIMIT: Duration = Duration::from_secs(30);
/// The broker's variable and folder.
const KAFKA: (&str, &str) = ("WEIR_TEST_KAFKA", "kafka");

/// Variable with the address, folder name, release.
const DATABASES: &[(&str, &str, Kind)] = &[
    ("WEIR_TEST_MYSQL", "mysql", Kind::Mysql),
    ("WEIR_TEST_MYSQL_SINK", "mysql-sink", Kind::Mysql),
    ("WEIR_TEST_MARIADB", "mariadb", Kind::Mariadb118),
    ("WEIR_TEST_MARIADB_SINK", "mariadb-sink", Kind::Mariadb118),
];

fn run_dir() -> Result<PathBuf> {
    Ok(crate::services_cache()?.join("run"))
}

fn env_file() -> Result<PathBuf> {
    Ok(run_dir()?.join("env"))
}

fn folders() -> impl Iterator<Item = &'static str> {
    DATABASES.iter().map(|(_, name, _)| *name).chain([KAFKA.1])
}

/// Installs what is missing and starts the servers on free loopback ports; servers that run already are left alone.
///
/// # Errors
/// When one does not start.
pub(crate) fn up() -> Result<()> {
    let running = folders()
        .filter_map(|name| Some(running_pid(&run_dir().ok()?.join(name)).is_some()))
        .filter(|&running| running)
        .count();
    if running == DATABASES.len() + 1 && env_file()?.exists() {
        eprintln!("the test servers are up already");
        return env();
    }
    // Some are gone, for example after a restart of the machine: all anew, so that addresses and data belong together.
    down()?;
    std::fs::create_dir_all(run_dir()?)?;
    let mut lines = String::new();
    for (variable, name, kind) in DATABASES {
        let install = Install::get(&crate::services_cache()?, *kind)?;
        let dir = run_dir()?.join(name);
        let server =
            Server::start_to_stay(&install, &dir, free_port()?, &["--innodb-buffer-pool-size=128M"])?;
        std::fs::write(dir.join("xtask.pid"), server.pid().to_string())?;
        writeln!(lines, "{variable}={}", server.uri())?;
        server.leave_running();
    }
    let dir = run_dir()?.join(KAFKA.1);
    let kafka = Kafka::start(&crate::services_cache()?, &dir, free_port()?, free_port()?)?;
    std::fs::write(dir.join("xtask.pid"), kafka.pid().to_string())?;
    writeln!(lines, "{}={}", KAFKA.0, kafka.uri())?;
    kafka.leave_running();
    std::fs::write(env_file()?, &lines)?;
    env()
}

/// The process that [`up`] started with its files in `dir`, if it runs: a process id may be another program's by now,
/// but only ours names the folder.
fn running_pid(dir: &Path) -> Option<u32> {
    let pid: u32 = std::fs::read_to_string(dir.join("xtask.pid"))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    String::from_utf8_lossy(&line)
        .contains(&*dir.to_string_lossy())
        .then_some(pid)
}

/// Stops the servers that [`up`] started; nothing happens where none runs.
///
/// # Errors
/// When a server does not stop in time.
pub(crate) fn down() -> Result<()> {
    for name in folders() {
        let dir = run_dir()?.join(name);
        if let Some(pid) = running_pid(&dir) {
            Command::new("kill")
                .arg(pid.to_string())
                .status()
                .context("run kill")?;
            let deadline = Instant::now() + STOP_LIMIT;
            while running_pid(&dir).is_some() {
                if Instant::now() > deadline {
                    bail!("{name} (process {pid}) did not stop");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
    }
    if env_file()?.exists() {
        std::fs::remove_file(env_file()?)?;
    }
    Ok(())
}

/// Prints the addresses as shell assignments.
///
/// # Errors
/// When the servers are not up.
pub(crate) fn env() -> Result<()> {
    let text = std::fs::read_to_string(env_file()?)
        .context("the test servers are not up; `cargo xtask services up` starts them")?;
    print!("{text}");
    Ok(())
}
