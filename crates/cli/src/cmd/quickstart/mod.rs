//! `weir quickstart`: the main job on embedded defaults.

mod count;
mod data;
mod folder;

use serde_json::{Value, json};
use weir_config::{Changefeed, Until};
use weir_server::{RunSummary, StopReason};
use weir_types::{ErrorClass, ErrorReport};

use self::count::Counts;
use self::data::{EXPECTED, Expected};
use self::folder::Folder;
use crate::args::{Output, QuickstartArgs};
use crate::outcome::{Failure, Outcome};
use crate::pipeline::{self, Task};
use crate::table::{grouped, per_second};

/// Replays the recording, or goes on where an earlier start was interrupted.
pub(crate) fn run(output: Output, args: &QuickstartArgs) -> Result<Outcome, Failure> {
    let folder = Folder::open(&args.dir)?;
    let changefeed = Changefeed::parse(&folder.write_changefeed()?)?;
    let task = Task {
        changefeed,
        data_dir: folder.data(),
        until: Some(Until::CaughtUp),
        connect_timeout: None,
    };
    let (summary, status) = pipeline::run(output, task)?;
    let counts = Counts::of_folder(&folder.out())?;
    let json = to_json(&folder, &summary, &counts);
    let finished = summary.reason == StopReason::Finished;
    if finished {
        counts.compare(&expected()?)?;
        folder.finish(&json)?;
    }
    let text = if finished {
        finished_text(&folder, &summary, &counts)
    } else {
        format!(
            "stopped after {} rows; the same command goes on from there",
            grouped(rows(&counts))
        )
    };
    Ok(Outcome { text, json, status })
}

fn expected() -> Result<Expected, Failure> {
    serde_json::from_str(EXPECTED).map_err(|error| {
        Failure(ErrorReport {
            class: ErrorClass::Bug,
            code: "WEIR-CLI-012",
            message: format!("the embedded counts cannot be read: {error}"),
            action: "report it".to_owned(),
        })
    })
}

fn rows(counts: &Counts) -> u64 {
    let total = counts.total();
    total.insert + total.update + total.delete
}

/// Rows that this run wrote, not the ones before it.
fn rate(summary: &RunSummary) -> u64 {
    per_second(
        summary.inserts + summary.updates + summary.deletes,
        summary.elapsed,
    )
}

fn to_json(folder: &Folder, summary: &RunSummary, counts: &Counts) -> Value {
    let total = counts.total();
    json!({
        "transactions": counts.transactions,
        "rows": rows(counts),
        "inserts": total.insert,
        "updates": total.update,
        "deletes": total.delete,
        "tables": counts.tables.len(),
        "ddl": counts.ddl,
        "bytes": counts.bytes,
        "seconds": summary.elapsed.as_secs_f64(),
        "rows-per-second": rate(summary),
        "output-dir": folder.out(),
        "output-files": counts.files,
        "resumed": summary.resumed,
    })
}

fn finished_text(folder: &Folder, summary: &RunSummary, counts: &Counts) -> String {
    let total = counts.total();
    let changefeed = folder.changefeed();
    format!(
        "replayed {} transactions with {} rows of {} tables in {:.2} s ({} rows/s{})\n\
         rows          {} inserted, {} updated, {} deleted: as mysqlbinlog counted them\n\
         ddl           {}\n\
         output        {} bytes of canal-json in {} files under {}\n\
         \n\
         Try next:\n  \
         ls {}\n  \
         weir check {}\n  \
         weir binlog stat {}",
        grouped(counts.transactions),
        grouped(rows(counts)),
        counts.tables.len(),
        summary.elapsed.as_secs_f64(),
        grouped(rate(summary)),
        if summary.resumed { ", resumed" } else { "" },
        grouped(total.insert),
        grouped(total.update),
        grouped(total.delete),
        counts.ddl,
        grouped(counts.bytes),
        counts.files,
        folder.out().display(),
        folder.out().display(),
        changefeed.display(),
        changefeed.with_file_name("source").display(),
    )
}
