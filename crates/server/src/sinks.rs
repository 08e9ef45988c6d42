//! Opens the sink of a generation and asks it how far it is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_event_store::Recovered;
use weir_sink::PreparedSink;
use weir_types::{ErrorReport, OrderKey, TableName};

use crate::blueprint::Blueprint;
use crate::{resume, translate};

/// A sink that is ready but does not run.
pub(crate) struct OpenedSink {
    pub(crate) prepared: PreparedSink,
    /// How far it is per source table: a floor.
    pub(crate) progress: HashMap<TableName, OrderKey>,
}

/// Opens the sink and compares its progress with what the store recovered. `tables` are
/// all that may be registered.
pub(crate) fn open(
    blueprint: &Blueprint,
    recovered: &Recovered,
    resumed: bool,
    tables: &HashSet<TableName>,
) -> Result<OpenedSink, ErrorReport> {
    let config = translate::sink_config(
        &blueprint.changefeed,
        recovered.lineage,
        resumed,
        &blueprint.router,
    )
    .ok_or_else(|| translate::unsupported("sink.uri = mysql://"))?;
    let prepared =
        PreparedSink::new(config, Arc::clone(&blueprint.counters)).map_err(|e| ErrorReport::new(&e))?;
    let output = prepared.progress();
    resume::check_output(output, recovered.resolved).map_err(|e| ErrorReport::new(&e))?;
    let progress = per_source(blueprint, tables, |target| output.last(target));
    Ok(OpenedSink { prepared, progress })
}

/// Progress of targets as progress of the tables that are routed to them.
fn per_source(
    blueprint: &Blueprint,
    tables: &HashSet<TableName>,
    last: impl Fn(&TableName) -> Option<OrderKey>,
) -> HashMap<TableName, OrderKey> {
    let of = |table: &TableName| Some((table.clone(), last(&blueprint.router.route(table))?));
    tables.iter().filter_map(of).collect()
}
