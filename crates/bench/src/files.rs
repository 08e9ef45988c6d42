//! Binlog files of a shape.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Files `binlog.NNNNNN` of a folder in order.
///
/// # Errors
/// When the folder cannot be read or has none.
pub fn binlogs(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or("");
        if !extension.is_empty() && extension.bytes().all(|byte| byte.is_ascii_digit()) {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!(
            "no binlog files in {}: `cargo xtask bench-data all` makes them",
            folder.display()
        );
    }
    files.sort();
    Ok(files)
}

/// Bytes of all files.
///
/// # Errors
/// When a file cannot be looked at.
pub fn total_bytes(files: &[PathBuf]) -> Result<u64> {
    files.iter().map(|file| Ok(std::fs::metadata(file)?.len())).sum()
}
