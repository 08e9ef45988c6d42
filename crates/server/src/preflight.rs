//! Checks before a run of the ends that are servers: every requirement with setting,
//! expected and actual.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use weir_config::{Changefeed, ConfigError, SinkUri, Start};
use weir_event_store::LogStore;
use weir_source::server::server_preflight;
use weir_types::{LineageId, OrderKey, TableName};

use crate::blueprint::{LOCK_FILE, STORE_DIR};
use crate::ends::{ATTEMPT_MAX, Ends, check_apart};
use crate::kafka::{self, STATE_FILE};
use crate::sinks::mysql_config;

/// Setting of the check that looks for our id among the replicas.
const SERVER_ID: &str = "source.server-id";
/// Missing tables that are named.
const MISSING_SHOWN_MAX: usize = 5;

/// One requirement and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// `source`, `sink` or `state`.
    pub end: &'static str,
    /// What is required, in words.
    pub name: String,
    /// Key of the changefeed file or setting of the server.
    pub setting: String,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub actual: String,
    /// Whether that will do.
    pub ok: bool,
}

impl Check {
    /// What was found at an end: `source` or `sink`.
    pub fn at(end: &'static str, found: weir_types::Check) -> Self {
        Self {
            end,
            name: found.name.to_owned(),
            setting: found.setting.to_owned(),
            expected: found.expected,
            actual: found.actual,
            ok: found.ok,
        }
    }
}

/// Makes all checks of servers at either end. `data_dir`: where store and state lie, or
/// would lie.
///
/// # Errors
/// A password is not where the file says.
pub fn servers(changefeed: &Changefeed, data_dir: &Path) -> Result<Vec<Check>, ConfigError> {
    let ends = Ends::of(changefeed, ATTEMPT_MAX)?;
    let mut changefeed = changefeed.clone();
    // A source that cannot be reached is a finding below.
    let _reported = ends.learn(&mut changefeed);
    let mut checks = source(&ends, &changefeed);
    if is_running(data_dir) {
        // The replica with our id is ourselves.
        for check in checks.iter_mut().filter(|check| check.setting == SERVER_ID) {
            check.ok = true;
            check.actual.push_str(": this changefeed is running");
        }
    }
    checks.extend(sink(&ends, &changefeed, data_dir));
    checks.extend(kafka(&ends, &changefeed, data_dir));
    if changefeed.source.uri.mysql().is_some() && changefeed.sink.uri.mysql().is_some() {
        checks.push(apart(&ends, &changefeed));
    }
    Ok(checks)
}

/// Whether a process runs in the data folder.
fn is_running(data_dir: &Path) -> bool {
    let lock = File::open(data_dir.join(LOCK_FILE));
    lock.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn source(ends: &Ends, changefeed: &Changefeed) -> Vec<Check> {
    let Some(address) = changefeed.source.uri.mysql() else {
        return Vec::new();
    };
    let options = ends.server_options(changefeed, address, None, None);
    let found = server_preflight(&options);
    let mut checks: Vec<Check> = found
        .into_iter()
        .map(|found| Check::at("source", found))
        .collect();
    checks.push(not_copied(changefeed.start()));
    checks
}

fn sink(ends: &Ends, changefeed: &Changefeed, data_dir: &Path) -> Vec<Check> {
    let Some(address) = changefeed.sink.uri.mysql() else {
        return Vec::new();
    };
    let (Ok(filter), Ok(router)) = (changefeed.table_filter(), changefeed.router()) else {
        return Vec::new();
    };
    // A source that cannot be asked is a finding of its own.
    let tables = ends.wanted_tables(changefeed, &filter).unwrap_or_default();
    let schemas: BTreeSet<String> = tables
        .iter()
        .map(|table| router.route(table).schema.to_string())
        .collect();
    let schemas: Vec<String> = schemas.into_iter().collect();
    // No store's: progress of any at the sink is another's. A store that is damaged says
    // so when it is opened.
    let none = LineageId(0);
    let lineage = LogStore::lineage(&data_dir.join(STORE_DIR)).ok().flatten();
    let (router, lineage) = (Arc::new(router), lineage.unwrap_or(none));
    let config = mysql_config(changefeed, address, ends, &router, lineage, OrderKey::MIN);
    let found = weir_sink_mysql::preflight(config, &schemas);
    let mut checks: Vec<Check> = found.into_iter().map(|found| Check::at("sink", found)).collect();
    if lineage == none && !tables.is_empty() {
        let targets: Vec<TableName> = tables.iter().map(|table| router.route(table)).collect();
        checks.push(targets_exist(ends, changefeed, &targets));
    }
    checks
}

fn kafka(ends: &Ends, changefeed: &Changefeed, data_dir: &Path) -> Vec<Check> {
    let SinkUri::Kafka(address) = &changefeed.sink.uri else {
        return Vec::new();
    };
    let (Ok(filter), Ok(router)) = (changefeed.table_filter(), changefeed.router()) else {
        return Vec::new();
    };
    // A source that cannot be asked is a finding of its own.
    let tables = ends.wanted_tables(changefeed, &filter).unwrap_or_default();
    let targets: Vec<TableName> = tables.iter().map(|table| router.route(table)).collect();
    let state_file = data_dir.join(STATE_FILE);
    let config = kafka::config(
        changefeed,
        address,
        ends,
        &Arc::new(router),
        LineageId(0),
        &state_file,
    );
    let found = weir_sink_kafka::preflight(&config, &targets);
    found.into_iter().map(|found| Check::at("sink", found)).collect()
}

/// A table that is at the source already is not made at the sink: the start is behind its
/// CREATE, unless the whole binlog is read.
fn targets_exist(ends: &Ends, changefeed: &Changefeed, targets: &[TableName]) -> Check {
    let (actual, ok) = match ends.missing_at_sink(changefeed, targets) {
        Ok(missing) if missing.is_empty() => (format!("all {}", targets.len()), true),
        Ok(missing) => {
            let first = missing.iter().take(MISSING_SHOWN_MAX).map(TableName::to_string);
            let first: Vec<String> = first.collect();
            let text = format!(
                "{} of {} missing: {}",
                missing.len(),
                targets.len(),
                first.join(", ")
            );
            (text, *changefeed.start() == Start::Earliest)
        }
        Err(error) => (error.message, false),
    };
    Check {
        end: "sink",
        name: "tables of the source".to_owned(),
        setting: "sink.uri".to_owned(),
        expected: "at the sink, unless their CREATE is behind the start".to_owned(),
        actual,
        ok,
    }
}

/// Says what a start leaves out. Not a failure: a sink may have been loaded before.
fn not_copied(start: &Start) -> Check {
    Check {
        end: "source",
        name: "rows from before the start".to_owned(),
        setting: "source.start".to_owned(),
        expected: "at the sink already".to_owned(),
        actual: format!("{start}: not copied yet"),
        ok: true,
    }
}

/// One server at both ends is for tables that are routed apart.
fn apart(ends: &Ends, changefeed: &Changefeed) -> Check {
    let found = ends.are_one_server(changefeed).and_then(|one| {
        if !one {
            return Ok("two servers".to_owned());
        }
        let failed = |e: &dyn weir_types::Classified| weir_types::ErrorReport::new(e);
        let filter = changefeed.table_filter().map_err(|e| failed(&e))?;
        let router = changefeed.router().map_err(|e| failed(&e))?;
        let tables = ends.wanted_tables(changefeed, &filter)?;
        check_apart(&tables, &filter, &router).map_err(|e| failed(&e))?;
        Ok(format!("one server, {} tables routed apart", tables.len()))
    });
    let (actual, ok) = match found {
        Ok(actual) => (actual, true),
        Err(error) => (error.message, false),
    };
    Check {
        end: "sink",
        name: "not the source".to_owned(),
        setting: "sink.uri".to_owned(),
        expected: "another server, or tables routed to names that are left out".to_owned(),
        actual,
        ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changefeed_runs_while_its_lock_is_held() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_running(dir.path()));
        let lock = File::create(dir.path().join(LOCK_FILE)).unwrap();
        assert!(!is_running(dir.path()));
        lock.try_lock().unwrap();
        assert!(is_running(dir.path()));
        drop(lock);
        assert!(!is_running(dir.path()));
    }
}
