//! `weir binlog stat SOURCE`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_binlog::Event;
use weir_config::format_rfc3339;
use weir_types::RowKind;

use super::files;
use super::walk::{Flow, Located, ON, RowsSeen, Visitor, walk};
use crate::args::StatArgs;
use crate::outcome::{Failure, Outcome, Status};
use crate::table::{grouped, render};

/// Prints counts and bytes per event type and table.
pub(crate) fn run(args: &StatArgs) -> Result<Outcome, Failure> {
    let files = files::resolve(&args.source)?;
    let mut stat = Stat::default();
    walk(&files, &mut stat)?;
    Ok(Outcome {
        text: stat.text(),
        json: stat.json(),
        status: Status::Done,
    })
}

#[derive(Clone, Copy, Default)]
struct Amount {
    count: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

#[derive(Default)]
struct TableStat {
    inserts: u64,
    updates: u64,
    deletes: u64,
    events: Amount,
    /// Row events whose rows could not be read.
    unread: u64,
}

/// Place and time of an event.
struct Mark {
    file: String,
    offset: u64,
    seconds: u32,
}

#[derive(Default)]
struct Stat {
    files: Vec<String>,
    server_version: String,
    /// By name; and whether inside a transaction payload.
    types: BTreeMap<(bool, &'static str), Amount>,
    tables: BTreeMap<String, TableStat>,
    total: Amount,
    /// Event groups: transactions and DDL.
    groups: u64,
    /// Groups with rows.
    transactions: u64,
    group_has_rows: bool,
    compressed: u64,
    uncompressed: u64,
    first: Option<Mark>,
    last: Option<Mark>,
}

impl Stat {
    fn add(&mut self, at: &Located<'_>) {
        self.types
            .entry((at.inner, at.header.type_name()))
            .or_default()
            .add(u64::from(at.header.event_length));
        if at.inner {
            return;
        }
        self.total.add(u64::from(at.header.event_length));
        let mark = || Mark {
            file: at.file.to_owned(),
            offset: at.offset,
            seconds: at.header.timestamp,
        };
        if self.first.is_none() {
            self.first = Some(mark());
        }
        match &mut self.last {
            // No allocation per event.
            Some(last) if last.file == at.file => {
                last.offset = at.offset;
                last.seconds = at.header.timestamp;
            }
            _ => self.last = Some(mark()),
        }
    }

    fn start_group(&mut self) {
        self.groups += 1;
        self.group_has_rows = false;
    }
}

impl Visitor for Stat {
    fn file(&mut self, name: &str) {
        self.files.push(name.to_owned());
    }

    fn event(&mut self, at: &Located<'_>, event: &Event<'_>) -> Flow {
        self.add(at);
        match event {
            Event::FormatDescription(format) => self.server_version.clone_from(&format.server_version),
            Event::Gtid(_) | Event::AnonymousGtid(_) | Event::MariadbGtid(_) => self.start_group(),
            Event::TransactionPayload(payload) => {
                self.compressed += payload.payload.len() as u64;
                self.uncompressed += payload.uncompressed_bytes.unwrap_or(0);
            }
            _ => {}
        }
        ON
    }

    fn rows(&mut self, at: &Located<'_>, seen: &RowsSeen<'_>) -> Flow {
        self.add(at);
        if !self.group_has_rows {
            self.group_has_rows = true;
            self.transactions += 1;
        }
        if let Some(stored) = seen.compressed_bytes {
            self.compressed += stored;
            self.uncompressed += seen.rows.body.len() as u64;
        }
        let count = seen.table.count(&seen.rows)?;
        if !self.tables.contains_key(&seen.table.name) {
            self.tables.insert(seen.table.name.clone(), TableStat::default());
        }
        let Some(table) = self.tables.get_mut(&seen.table.name) else {
            return ON;
        };
        table.events.add(u64::from(at.header.event_length));
        match count {
            Some(count) => match seen.rows.kind {
                RowKind::Insert => table.inserts += count,
                RowKind::Update => table.updates += count,
                RowKind::Delete => table.deletes += count,
            },
            None => table.unread += 1,
        }
        ON
    }
}

fn ratio(stat: &Stat) -> Option<f64> {
    // Sizes of files: far below 2^52.
    #[allow(clippy::cast_precision_loss)]
    (stat.uncompressed > 0).then(|| stat.compressed as f64 / stat.uncompressed as f64)
}

impl Stat {
    fn sums(&self) -> (u64, u64, u64) {
        self.tables.values().fold((0, 0, 0), |(i, u, d), t| {
            (i + t.inserts, u + t.updates, d + t.deletes)
        })
    }

    fn json(&self) -> Value {
        let mark = |mark: &Option<Mark>| {
            mark.as_ref().map(|m| {
                json!({"file": m.file, "offset": m.offset, "time": format_rfc3339(u64::from(m.seconds) * 1_000)})
            })
        };
        let types: Vec<Value> = self
            .types
            .iter()
            .map(|((inner, name), a)| {
                json!({"type": name, "in-payload": inner, "count": a.count, "bytes": a.bytes})
            })
            .collect();
        let tables: Vec<Value> = self
            .tables
            .iter()
            .map(|(name, t)| {
                json!({
                    "table": name,
                    "inserts": t.inserts,
                    "updates": t.updates,
                    "deletes": t.deletes,
                    "row-events": t.events.count,
                    "bytes": t.events.bytes,
                    "row-events-not-read": t.unread,
                })
            })
            .collect();
        let (inserts, updates, deletes) = self.sums();
        json!({
            "files": self.files,
            "server-version": self.server_version,
            "events": self.total.count,
            "bytes": self.total.bytes,
            "groups": self.groups,
            "transactions": self.transactions,
            "rows": inserts + updates + deletes,
            "inserts": inserts,
            "updates": updates,
            "deletes": deletes,
            "first": mark(&self.first),
            "last": mark(&self.last),
            "compressed-bytes": self.compressed,
            "uncompressed-bytes": self.uncompressed,
            "compression-ratio": ratio(self),
            "event-types": types,
            "tables": tables,
        })
    }

    fn text(&self) -> String {
        let mark = |mark: &Option<Mark>| {
            mark.as_ref().map_or_else(String::new, |m| {
                format!(
                    "{}:{} at {}",
                    m.file,
                    m.offset,
                    format_rfc3339(u64::from(m.seconds) * 1_000)
                )
            })
        };
        let (inserts, updates, deletes) = self.sums();
        let mut out = format!(
            "server        {}\nfiles         {}\nfirst event   {}\nlast event    {}\n\
             events        {} in {} bytes\ntransactions  {} with rows, {} event groups in all\n\
             rows          {} ({} inserts, {} updates, {} deletes)\n",
            self.server_version,
            self.files.len(),
            mark(&self.first),
            mark(&self.last),
            grouped(self.total.count),
            grouped(self.total.bytes),
            grouped(self.transactions),
            grouped(self.groups),
            grouped(inserts + updates + deletes),
            grouped(inserts),
            grouped(updates),
            grouped(deletes),
        );
        if let Some(ratio) = ratio(self) {
            out.push_str(&format!(
                "compressed    {} bytes out of {}, ratio {ratio:.2}\n",
                grouped(self.compressed),
                grouped(self.uncompressed),
            ));
        }
        out.push('\n');
        out.push_str(&self.type_table());
        out.push('\n');
        out.push_str(&self.row_table());
        out
    }

    fn type_table(&self) -> String {
        let mut rows = vec![["event type", "count", "bytes"].map(str::to_owned).to_vec()];
        rows.extend(self.types.iter().map(|((inner, name), a)| {
            let place = if *inner { " (in payload)" } else { "" };
            vec![format!("{name}{place}"), grouped(a.count), grouped(a.bytes)]
        }));
        render(&rows, &[1, 2])
    }

    fn row_table(&self) -> String {
        let header = ["table", "inserts", "updates", "deletes", "row events", "bytes"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.tables.iter().map(|(name, t)| {
            let mark = if t.unread > 0 { " (not all rows read)" } else { "" };
            vec![
                format!("{name}{mark}"),
                grouped(t.inserts),
                grouped(t.updates),
                grouped(t.deletes),
                grouped(t.events.count),
                grouped(t.events.bytes),
            ]
        }));
        render(&rows, &[1, 2, 3, 4, 5])
    }
}
