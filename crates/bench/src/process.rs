//! What the kernel tells of processes.

use anyhow::{Context, Result};

/// Ticks of a second in `/proc/*/stat` (`USER_HZ`, 100 on every Linux platform that Rust supports).
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of all children that have been waited for.
///
/// # Errors
/// `/proc` cannot be read.
pub fn children_cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields after the command name, which may hold spaces; cutime and cstime are the 16th and 17th in all.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks =
        |field: usize| -> Result<f64> { Ok(fields.get(field).context("short /proc/self/stat")?.parse()?) };
    Ok((ticks(13)? + ticks(14)?) / TICKS_PER_SECOND)
}
