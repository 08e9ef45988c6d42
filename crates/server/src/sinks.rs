//! Opens the sink of a generation and asks it how far it is.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_config::{Changefeed, EnumAs, MysqlAddress, SinkUri, UtcOffset};
use weir_event_store::Recovered;
use weir_filter::Router;
use weir_sink::{BlackholeConfig, FileConfig, PreparedSink, SinkConfig};
use weir_sink_mysql::{MysqlSinkConfig, Prepared};
use weir_types::{ErrorReport, LineageId, OrderKey, TableName};

use crate::blueprint::Blueprint;
use crate::ends::Ends;
use crate::{kafka, resume};

/// A sink that is ready but does not run.
pub(crate) struct OpenedSink {
    pub(crate) prepared: PreparedSink,
    /// How far it is per source table: a floor.
    pub(crate) progress: HashMap<TableName, OrderKey>,
    /// Source tables that foreign keys tie together at the target.
    pub(crate) components: Vec<Vec<TableName>>,
}

/// Opens the sink and compares its progress with what the store recovered. `tables` are
/// all that may be registered, `ahead` others that may come.
pub(crate) fn open(
    blueprint: &Blueprint,
    recovered: &Recovered,
    resumed: bool,
    tables: &HashSet<TableName>,
    ahead: &[TableName],
) -> Result<OpenedSink, ErrorReport> {
    let config = match &blueprint.changefeed.sink.uri {
        SinkUri::Mysql(address) => return open_mysql(blueprint, address, recovered, tables, ahead),
        SinkUri::Kafka(address) => return kafka::open(blueprint, address, recovered.lineage),
        SinkUri::File { dir } => SinkConfig::File(file_config(blueprint, dir, recovered.lineage, resumed)),
        SinkUri::Blackhole { delay, stall } => {
            SinkConfig::Blackhole(blackhole_config(&blueprint.changefeed, *delay, *stall))
        }
    };
    let prepared =
        PreparedSink::new(config, Arc::clone(&blueprint.counters)).map_err(|e| ErrorReport::new(&e))?;
    let output = prepared.progress();
    resume::check_output(output.greatest(), recovered.resolved).map_err(|e| ErrorReport::new(&e))?;
    let progress = known(tables, |source| output.last(&blueprint.router.route(source)));
    Ok(OpenedSink {
        prepared,
        progress,
        components: Vec::new(),
    })
}

fn open_mysql(
    blueprint: &Blueprint,
    address: &MysqlAddress,
    recovered: &Recovered,
    tables: &HashSet<TableName>,
    ahead: &[TableName],
) -> Result<OpenedSink, ErrorReport> {
    let end = OrderKey::end_of(recovered.resolved);
    let config = mysql_config(
        &blueprint.changefeed,
        address,
        &blueprint.ends,
        &blueprint.router,
        recovered.lineage,
        end,
    );
    let target = Prepared::open(config, Arc::clone(&blueprint.counters)).map_err(|e| ErrorReport::new(&e))?;
    let greatest = target.floors().values().max().copied();
    resume::check_output(greatest, recovered.resolved).map_err(|e| ErrorReport::new(&e))?;
    let progress = known(tables, |source| {
        let floor = target.floor(source);
        (floor > OrderKey::MIN).then_some(floor)
    });
    let mut pairs: Vec<_> = tables
        .iter()
        .chain(ahead)
        .map(|source| (source.clone(), blueprint.router.route(source)))
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    let components = target.components(&pairs).map_err(|e| ErrorReport::new(&e))?;
    Ok(OpenedSink {
        prepared: target.into_sink(),
        progress,
        components,
    })
}

/// What is known of the tables that may be registered.
fn known(
    tables: &HashSet<TableName>,
    last: impl Fn(&TableName) -> Option<OrderKey>,
) -> HashMap<TableName, OrderKey> {
    let of = |table: &TableName| Some((table.clone(), last(table)?));
    tables.iter().filter_map(of).collect()
}

/// `continued`: the folder has been opened in this lineage before.
fn file_config(blueprint: &Blueprint, dir: &Path, lineage: LineageId, continued: bool) -> FileConfig {
    let changefeed = &blueprint.changefeed;
    let file = &changefeed.sink.file;
    let router = Arc::clone(&blueprint.router);
    let mut config = FileConfig::new(dir.to_owned(), changefeed.id.clone(), lineage, router);
    config.continued = continued;
    config.rotate_bytes = file.rotate_size.bytes();
    config.rotate_age = file.rotate_age.get();
    config.canal.enum_as = codec_enum(file.enum_as);
    config.canal.time_zone = codec_offset(file.time_zone);
    config
}

fn blackhole_config(changefeed: &Changefeed, delay: Duration, stall: Duration) -> BlackholeConfig {
    let mut config = BlackholeConfig::new(changefeed.id.clone());
    config.delay = delay;
    config.stall = stall;
    config
}

/// `replay_upto`: rows up to here may have been written before by an earlier generation.
pub(crate) fn mysql_config(
    changefeed: &Changefeed,
    address: &MysqlAddress,
    ends: &Ends,
    router: &Arc<Router>,
    lineage: LineageId,
    replay_upto: OrderKey,
) -> MysqlSinkConfig {
    let (host, user) = (address.host.clone(), address.user.clone());
    let mut config = MysqlSinkConfig::new(changefeed.id.clone(), lineage, host, address.port, user);
    config.password = ends.sink_password().cloned();
    config.tls.clone_from(&changefeed.sink.tls);
    config.worker_count = usize::from(changefeed.sink.mysql.worker_count);
    config.router = Arc::clone(router);
    // The changefeed file was checked: its rules compile.
    config.filter = changefeed.table_filter().ok().map(Arc::new);
    config.replay_upto = replay_upto;
    config.run = ends.sink_run();
    config.connect_timeout = ends.connect_timeout();
    config
}

pub(crate) const fn codec_enum(enum_as: EnumAs) -> weir_codec::EnumAs {
    match enum_as {
        EnumAs::Text => weir_codec::EnumAs::Text,
        EnumAs::Index => weir_codec::EnumAs::Index,
    }
}

/// The codec prints whole minutes; the configuration accepts nothing finer.
pub(crate) fn codec_offset(offset: UtcOffset) -> weir_codec::UtcOffset {
    weir_codec::UtcOffset::parse(&offset.to_string()).unwrap_or(weir_codec::UtcOffset::UTC)
}
