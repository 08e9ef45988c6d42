//! `weir run FILE`.

use serde_json::json;
use weir_config::Changefeed;
use weir_server::{RunSummary, StopReason};

use crate::args::{Output, RunArgs};
use crate::outcome::{Failure, Outcome};
use crate::pipeline::{self, Task};
use crate::table::{grouped, per_second};

/// Runs the changefeed of a file.
pub(crate) fn run(output: Output, args: &RunArgs) -> Result<Outcome, Failure> {
    let until = args.until()?;
    let changefeed = Changefeed::load(&args.file)?;
    let id = changefeed.id.clone();
    let task = Task {
        data_dir: pipeline::data_dir(args.data_dir.as_deref(), &changefeed),
        changefeed,
        until,
        connect_timeout: args.connect_timeout,
    };
    let (summary, status) = pipeline::run(output, task)?;
    Ok(Outcome {
        text: text(&id.0, &summary),
        json: to_json(&id.0, &summary),
        status,
    })
}

const fn rows(summary: &RunSummary) -> u64 {
    summary.inserts + summary.updates + summary.deletes
}

const fn reason(summary: &RunSummary) -> &'static str {
    match summary.reason {
        StopReason::Finished => "finished",
        StopReason::Stopped => "stopped",
    }
}

fn to_json(id: &str, s: &RunSummary) -> serde_json::Value {
    json!({
        "changefeed": id,
        "reason": reason(s),
        "transactions": s.transactions,
        "rows": rows(s),
        "inserts": s.inserts,
        "updates": s.updates,
        "deletes": s.deletes,
        "tables": s.tables,
        "ddl": s.ddl,
        "bytes": s.bytes,
        "source-bytes": s.source_bytes,
        "seconds": s.elapsed.as_secs_f64(),
        "rows-per-second": per_second(rows(s), s.elapsed),
        "output-files": s.output_files,
        "checksum": format!("{:016x}", s.checksum),
        "resumed": s.resumed,
    })
}

fn text(id: &str, s: &RunSummary) -> String {
    let (done, from) = (reason(s), if s.resumed { "resumed, " } else { "" });
    format!(
        "changefeed {id}: {from}{done}\n\
         transactions  {}\n\
         rows          {} ({} inserted, {} updated, {} deleted)\n\
         tables        {}\n\
         ddl           {}\n\
         source        {} bytes\n\
         output        {} bytes in {} files\n\
         time          {:.2} s, {} rows/s",
        grouped(s.transactions),
        grouped(rows(s)),
        grouped(s.inserts),
        grouped(s.updates),
        grouped(s.deletes),
        s.tables,
        s.ddl,
        grouped(s.source_bytes),
        grouped(s.bytes),
        s.output_files,
        s.elapsed.as_secs_f64(),
        grouped(per_second(rows(s), s.elapsed)),
    )
}
