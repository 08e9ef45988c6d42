//! `decode`: our decoder ÷ `mysql_common`'s over the same files, every value visited and hashed on both sides,
//! checksums checked on both.

mod other;
mod ours;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;
use weir_bench::files::{binlogs, total_bytes};
use weir_bench::{Pairs, Report, Side, measure, pairs};

/// Shapes, and whether both sides represent all of their values alike, so that the hashes can be compared and not
/// only the counts.
const SHAPES: &[(&str, bool)] = &[
    ("tpcc", true),
    ("narrow", true),
    ("mixed20", false),
    ("rows100", true),
];

#[derive(Parser, Debug)]
struct Arguments {
    /// Folder with one folder of binlog files per shape.
    #[arg(long)]
    data: PathBuf,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Measures this shape only.
    #[arg(long)]
    shape: Option<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut worst: Option<Report> = None;
    for (shape, comparable) in SHAPES {
        if arguments.shape.as_deref().is_some_and(|only| only != *shape) {
            continue;
        }
        let report = shape_report(&arguments.data.join(shape), shape, *comparable)?;
        report.print(arguments.json);
        if worst.as_ref().is_none_or(|worst| report.ratio < worst.ratio) {
            worst = Some(report);
        }
    }
    let Some(mut headline) = worst else {
        bail!("no such shape")
    };
    headline.notes = format!("headline: the worst shape, {}; {}", headline.name, headline.notes);
    headline.name = "decode".to_owned();
    headline.print(arguments.json);
    Ok(())
}

fn shape_report(folder: &Path, shape: &str, comparable: bool) -> Result<Report> {
    let files = binlogs(folder)?;
    let ours = ours::pass(&files)?;
    let other = other::pass(&files)?;
    let same = (ours.rows, ours.values, ours.nulls) == (other.rows, other.values, other.nulls);
    if !same || (comparable && ours.hash != other.hash) {
        bail!("`{shape}`: the sides disagree: ours {ours:?}, other {other:?}");
    }
    let pairs: Pairs = measure(|side| {
        pairs::rate(|| {
            let visit = match side {
                Side::Ours => ours::pass(&files)?,
                Side::Other => other::pass(&files)?,
            };
            if visit.hash != (if side == Side::Ours { ours.hash } else { other.hash }) {
                bail!("`{shape}`: a pass differs from the first one");
            }
            Ok(visit.rows)
        })
    })?;
    let bytes = total_bytes(&files)?;
    let per_row = bytes as f64 / ours.rows as f64;
    let (our_rate, other_rate) = pairs.medians();
    let notes = format!(
        "{bytes} bytes, {} rows, {} values, {} nulls, hash ours {:016x} other {:016x}, {} compared; {:.0} and {:.0} MB/s; \
         files in the page cache, 256 KiB reads, one thread, crc on",
        ours.rows,
        ours.values,
        ours.nulls,
        ours.hash,
        other.hash,
        if comparable { "counts and hashes" } else { "counts" },
        our_rate * per_row / 1e6,
        other_rate * per_row / 1e6,
    );
    Ok(Report::rates(
        &format!("decode/{shape}"),
        "rows/s",
        &pairs,
        "cargo xtask bench decode --json",
        notes,
    ))
}
