//! Test servers that stay up between commands.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::record::free_port;
use crate::server::{Install, Kind};

const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Variable with the address, folder name, release.
const SERVICES: &[(&str, &str, Kind)] = &[
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

/// Installs what is missing and starts the servers on free loopback ports.
///
/// # Errors
/// When they are up already, or one does not start.
pub(crate) fn up() -> Result<()> {
    if env_file()?.exists() {
        bail!("the test servers are up already; `cargo xtask services down` stops them");
    }
    std::fs::create_dir_all(run_dir()?)?;
    let mut env = String::new();
    for (variable, name, kind) in SERVICES {
        let install = Install::get(&crate::services_cache()?, *kind)?;
        let dir = run_dir()?.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let server = install.start(&dir, free_port()?, &["--innodb-buffer-pool-size=128M"])?;
        server.sql("CREATE USER weir@'127.0.0.1'; GRANT ALL ON *.* TO weir@'127.0.0.1'")?;
        std::fs::write(dir.join("xtask.pid"), server.pid().to_string())?;
        writeln!(env, "{variable}={}", server.uri()).unwrap_or_default();
        server.leave_running();
    }
    std::fs::write(env_file()?, &env)?;
    print!("{env}");
    Ok(())
}

/// Stops the servers that [`up`] started.
///
/// # Errors
/// When a server does not stop in time.
pub(crate) fn down() -> Result<()> {
    for (_, name, _) in SERVICES {
        let dir = run_dir()?.join(name);
        let Ok(pid) = std::fs::read_to_string(dir.join("xtask.pid")) else {
            continue;
        };
        let alive = || PathBuf::from("/proc").join(pid.trim()).join("stat").exists();
        // A zombie has no data folder open any more; only a process that still names our folder is ours.
        let ours = std::fs::read(PathBuf::from("/proc").join(pid.trim()).join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*dir.to_string_lossy()));
        if ours {
            Command::new("kill")
                .arg(pid.trim())
                .status()
                .context("run kill")?;
            let deadline = Instant::now() + STOP_LIMIT;
            while alive() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
            if alive() {
                bail!("{name} (process {}) did not stop", pid.trim());
            }
        }
        std::fs::remove_dir_all(&dir)?;
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
