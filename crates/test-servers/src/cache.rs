//! Where unpacked releases are kept, and small helpers around it.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

/// Ports below the range that the kernel gives to outgoing connections (32768 and up), so that a server that is killed
/// finds its port free when it comes back.
const FIRST_PORT: u32 = 20_000;
/// Size of the range.
const PORTS: u32 = 10_000;
/// Step through the range; has no common divisor with its size.
const PORT_STEP: u32 = 37;

/// The folder with the workspace's `Cargo.toml`.
///
/// # Errors
/// When this crate does not lie where it was built.
pub fn workspace_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here
        .ancestors()
        .nth(2)
        .context("the workspace folder")?
        .to_path_buf())
}

/// Cargo's target folder.
///
/// # Errors
/// When it cannot be made.
pub fn target_dir() -> Result<PathBuf> {
    let folder = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => workspace_root()?.join("target"),
    };
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Where unpacked releases are kept between runs.
///
/// # Errors
/// When it cannot be made.
pub fn cache_dir() -> Result<PathBuf> {
    let folder = target_dir()?.join("services");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Takes the lock of one part of the cache; dropping the file gives it back.
pub(crate) fn locked(cache: &Path, name: &str) -> Result<File> {
    std::fs::create_dir_all(cache)?;
    let path = cache.join(format!("{name}.lock"));
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)?;
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

/// A port on loopback that nobody listens on, and that no other call of this process has given out.
///
/// # Errors
/// When the whole range is in use.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        // Processes that run at once begin at different places.
        let at = (std::process::id().wrapping_mul(101) % PORTS + turn * PORT_STEP) % PORTS;
        let port = u16::try_from(FIRST_PORT + at)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {FIRST_PORT} and {}", FIRST_PORT + PORTS)
}

/// Whether this process has the root user's rights.
pub fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}

/// Copies a folder with everything below it.
///
/// # Errors
/// When a file cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
