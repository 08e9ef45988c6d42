//! Checks of a source of binlog files: who wrote them and how, from the first events,
//! and whether they can be replicated, from the source's own sample.

use std::ops::ControlFlow;
use std::sync::Arc;

use weir_binlog::{ChecksumAlgorithm, Event};
use weir_config::{Changefeed, SourceUri};
use weir_server::preflight::Check;
use weir_source::preflight::preflight;

use crate::cmd::binlog::files::of_folder;
use crate::cmd::binlog::walk::{Flow, Located, ON, RowsSeen, Visitor, walk};
use crate::outcome::Failure;

/// Events that are looked at for the way of writing: what it takes to see a transaction.
const EVENTS_MAX: u64 = 1_000;

/// All checks of a source of files; none of another.
pub(super) fn checks(changefeed: &Changefeed) -> Result<Vec<Check>, Failure> {
    let SourceUri::BinlogFiles { dir, index } = &changefeed.source.uri else {
        return Ok(Vec::new());
    };
    let filter = Arc::new(changefeed.table_filter()?);
    let options = weir_server::files_options(changefeed, (dir, index.as_deref()), None, None);
    let found = preflight(&options, &filter);
    let readable = found.iter().all(|c| c.ok);
    let mut checks: Vec<Check> = found
        .into_iter()
        .map(|found| Check::at("source", found))
        .collect();
    // What cannot be read was reported above, with the reason.
    if readable {
        let mut probe = Probe::default();
        walk(&of_folder(dir, index.as_deref())?, &mut probe)?;
        checks.extend(probe.checks());
    }
    Ok(checks)
}

/// What the first events have shown.
#[derive(Default)]
struct Probe {
    events: u64,
    server_version: Option<String>,
    checksum: Option<ChecksumAlgorithm>,
    /// Transactions with and without identifier.
    with_gtid: u64,
    without_gtid: u64,
}

impl Probe {
    fn checks(&self) -> [Check; 3] {
        let check = |name: &str, setting: &str, expected: &str, actual: String, ok| Check {
            end: "source",
            name: name.to_owned(),
            setting: setting.to_owned(),
            expected: expected.to_owned(),
            actual,
            ok,
        };
        let version = self.server_version.as_deref().unwrap_or("not known");
        let checksum = match self.checksum {
            Some(ChecksumAlgorithm::Crc32) => "CRC32",
            Some(ChecksumAlgorithm::None) => "NONE: damage to a file may not be noticed",
            None => "not known",
        };
        let gtids = match (self.with_gtid, self.without_gtid) {
            (0, 0) => "no transactions yet",
            (_, 0) => "ON",
            (0, _) => "OFF: progress counts by file and offset",
            _ => "mixed: progress counts by file and offset where there are none",
        };
        [
            check(
                "binlog format",
                "binlog version",
                "4",
                format!("4, server {version}"),
                self.server_version.is_some(),
            ),
            check(
                "checksums",
                "binlog_checksum",
                "CRC32 or NONE",
                checksum.to_owned(),
                self.checksum.is_some(),
            ),
            check(
                "transaction identifiers",
                "gtid_mode",
                "ON or OFF",
                gtids.to_owned(),
                true,
            ),
        ]
    }

    fn step(&mut self) -> Flow {
        self.events += 1;
        if self.events >= EVENTS_MAX {
            return Ok(ControlFlow::Break(()));
        }
        ON
    }
}

impl Visitor for Probe {
    fn file(&mut self, _name: &str) {}

    fn event(&mut self, _at: &Located<'_>, event: &Event<'_>) -> Flow {
        match event {
            Event::FormatDescription(format) => {
                self.server_version
                    .get_or_insert_with(|| format.server_version.clone());
                // The weakest of all files.
                if self.checksum != Some(ChecksumAlgorithm::None) {
                    self.checksum = Some(format.checksum);
                }
            }
            Event::Gtid(_) | Event::MariadbGtid(_) => self.with_gtid += 1,
            Event::AnonymousGtid(_) => self.without_gtid += 1,
            _ => {}
        }
        self.step()
    }

    fn rows(&mut self, _at: &Located<'_>, _seen: &RowsSeen<'_>) -> Flow {
        self.step()
    }
}
