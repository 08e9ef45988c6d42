//! The two ends of a changefeed, where they are servers: how they are reached, who they
//! are, and whether both are one server.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_config::{Changefeed, ConfigError, MysqlAddress, Until};
use weir_filter::{Router, TableFilter};
use weir_source::server::{ServerOptions, identify};
use weir_types::{ErrorReport, Secret, SourcePosition, TableName, TlsOptions};
use weir_wire::{Connection, Endpoint, WireError};

use crate::error::ServerError;
use crate::translate::{start_at, stop_at};

/// Longest wait for one attempt to connect.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for an answer to a question that a server answers from memory.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// All tables and nothing else.
const TABLES: &str = "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t FROM information_schema.TABLES \
     WHERE TABLE_TYPE NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE')";

/// How the ends of a changefeed are reached, where they are servers.
#[derive(Clone, Debug)]
pub struct Ends {
    source_password: Option<Secret>,
    sink_password: Option<Secret>,
    connect_timeout: Duration,
    sink_run: Arc<weir_sink_mysql::Run>,
}

fn endpoint(
    address: &MysqlAddress,
    password: Option<&Secret>,
    tls: &TlsOptions,
    connect_timeout: Duration,
) -> Endpoint {
    Endpoint {
        host: address.host.clone(),
        port: address.port,
        user: address.user.clone(),
        password: password.cloned(),
        tls: tls.clone(),
        connect_timeout,
        read_timeout: READ_TIMEOUT,
    }
}

impl Ends {
    /// Reads the passwords. `connect_timeout` is that of the first connections.
    ///
    /// # Errors
    /// A password is not where the file says.
    pub fn of(changefeed: &Changefeed, connect_timeout: Duration) -> Result<Self, ConfigError> {
        Ok(Self {
            source_password: changefeed.source_password()?,
            sink_password: changefeed.sink_password()?,
            connect_timeout: connect_timeout.min(ATTEMPT_MAX),
            sink_run: Arc::default(),
        })
    }

    /// The source, if it is a server.
    pub fn source(&self, changefeed: &Changefeed) -> Option<Endpoint> {
        let address = changefeed.source.uri.mysql()?;
        let password = self.source_password.as_ref();
        let tls = &changefeed.source.tls;
        Some(endpoint(address, password, tls, self.connect_timeout))
    }

    /// The sink, if it is a server.
    pub fn sink(&self, changefeed: &Changefeed) -> Option<Endpoint> {
        let address = changefeed.sink.uri.mysql()?;
        let password = self.sink_password.as_ref();
        let tls = &changefeed.sink.tls;
        Some(endpoint(address, password, tls, self.connect_timeout))
    }

    /// Password of the sink.
    pub const fn sink_password(&self) -> Option<&Secret> {
        self.sink_password.as_ref()
    }

    /// This life of the process, as the sink tells it from others.
    pub(crate) fn sink_run(&self) -> Arc<weir_sink_mysql::Run> {
        Arc::clone(&self.sink_run)
    }

    /// Longest time for one attempt to connect.
    pub const fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Options of a source that is a server: where it ends, and where it goes on.
    pub fn server_options(
        &self,
        changefeed: &Changefeed,
        address: &MysqlAddress,
        until: Option<&Until>,
        resume: Option<SourcePosition>,
    ) -> ServerOptions {
        let password = self.source_password.as_ref();
        ServerOptions {
            endpoint: endpoint(address, password, &changefeed.source.tls, self.connect_timeout),
            changefeed: changefeed.id.to_string(),
            server_id: changefeed.server_id(),
            start: start_at(changefeed.start()),
            stop: until.map(stop_at),
            resume,
            event_bytes_max: changefeed.source.max_event_size.bytes(),
            heartbeat: changefeed.source.heartbeat_interval.get(),
        }
    }

    /// Asks a source server who it is, and takes over what the changefeed leaves to it.
    ///
    /// # Errors
    /// The connection's.
    pub fn learn(&self, changefeed: &mut Changefeed) -> Result<(), ErrorReport> {
        if let Some(endpoint) = self.source(changefeed) {
            let found = identify(&endpoint).map_err(|e| ErrorReport::new(&e))?;
            tracing::info!(
                source = %changefeed.source.uri,
                version = found.version,
                lower_case_table_names = found.lower_case_table_names,
                "source found"
            );
            changefeed.learn_name_case(found.lower_case_table_names);
        }
        Ok(())
    }

    /// Whether both ends are one server. A lock that is taken at one and seen at the
    /// other tells it for sure: names and addresses of one server may be many, and
    /// MariaDB has no identifier before 10.11.
    ///
    /// # Errors
    /// The connections'.
    pub fn are_one_server(&self, changefeed: &Changefeed) -> Result<bool, ErrorReport> {
        let (Some(source), Some(sink)) = (self.source(changefeed), self.sink(changefeed)) else {
            return Ok(false);
        };
        are_one(&source, &sink).map_err(|e| ErrorReport::new(&e))
    }

    /// Tables of the source that the filter lets through, by name.
    ///
    /// # Errors
    /// The connection's.
    pub fn wanted_tables(
        &self,
        changefeed: &Changefeed,
        filter: &TableFilter,
    ) -> Result<Vec<TableName>, ErrorReport> {
        let Some(source) = self.source(changefeed) else {
            return Ok(Vec::new());
        };
        let mut tables = tables_of(&source).map_err(|e| ErrorReport::new(&e))?;
        tables.retain(|table| filter.matches(table));
        tables.sort_unstable();
        Ok(tables)
    }

    /// Tables of a database sink.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn tables_at_sink(&self, changefeed: &Changefeed) -> Result<Vec<TableName>, ErrorReport> {
        let Some(sink) = self.sink(changefeed) else {
            return Ok(Vec::new());
        };
        tables_of(&sink).map_err(|e| ErrorReport::new(&e))
    }

    /// Which of the tables are not at the sink. Names are compared without case: the
    /// sink may keep them in another one.
    ///
    /// # Errors
    /// The connection's.
    pub fn missing_at_sink(
        &self,
        changefeed: &Changefeed,
        tables: &[TableName],
    ) -> Result<Vec<TableName>, ErrorReport> {
        let Some(sink) = self.sink(changefeed) else {
            return Ok(Vec::new());
        };
        let folded = |t: &TableName| (t.schema.to_lowercase(), t.table.to_lowercase());
        let there = tables_of(&sink).map_err(|e| ErrorReport::new(&e))?;
        let there: HashSet<_> = there.iter().map(folded).collect();
        let missing = tables.iter().filter(|table| !there.contains(&folded(table)));
        Ok(missing.cloned().collect())
    }
}

fn tables_of(endpoint: &Endpoint) -> Result<Vec<TableName>, WireError> {
    let rows = Connection::open(endpoint)?.query(TABLES)?;
    let name = |row| Some(TableName::new(rows.text(row, "s")?, rows.text(row, "t")?));
    Ok((0..rows.len()).filter_map(name).collect())
}

fn are_one(source: &Endpoint, sink: &Endpoint) -> Result<bool, WireError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let lock = format!("weir.probe.{}.{}", std::process::id(), now.as_nanos());
    // Kept open until the other end has answered: the lock goes with it.
    let mut holder = Connection::open(source)?;
    holder.execute(&format!("DO GET_LOCK('{lock}', 0)"))?;
    let mut other = Connection::open(sink)?;
    let answer = other.query(&format!("SELECT IS_USED_LOCK('{lock}') AS holder"))?;
    Ok(answer.get(0, "holder").is_some())
}

/// The first table whose target is a table that the changefeed reads as well: where both
/// ends are one server, its rows would come back for ever.
///
/// # Errors
/// There is one.
pub fn check_apart(tables: &[TableName], filter: &TableFilter, router: &Router) -> Result<(), ServerError> {
    for table in tables {
        let target = router.route(table);
        if filter.matches(&target) {
            return Err(ServerError::SameServer {
                table: table.clone(),
                target,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_types::Classified as _;

    use super::*;

    const FEED: &str = r#"
id = "orders"
[source]
uri = "mysql://repl:one@[::1]:3310"
start = "file:b.000002:4"
server-id = 7
heartbeat-interval = "2s"
[source.tls]
mode = "verify-ca"
ca = "/ca.pem"
[filter]
rules = ["shop.*", "!shop.copy_*"]
[[route]]
match = "shop.*"
target-table = "copy_{table}"
[sink]
uri = "mysql://app:two@db"
[sink.tls]
mode = "disabled"
"#;

    #[test]
    fn each_end_has_its_own_account() {
        let changefeed = Changefeed::parse(FEED).unwrap();
        let ends = Ends::of(&changefeed, Duration::from_secs(60)).unwrap();
        let (source, sink) = (ends.source(&changefeed).unwrap(), ends.sink(&changefeed).unwrap());
        let password = |end: &Endpoint| end.password.as_ref().unwrap().expose().to_owned();
        assert_eq!((source.host.as_str(), source.port), ("::1", 3310));
        assert_eq!(
            (source.user.as_str(), password(&source)),
            ("repl", "one".to_owned())
        );
        assert_eq!(source.tls.mode, weir_types::TlsMode::VerifyCa);
        assert_eq!(source.tls.ca.as_deref(), Some("/ca.pem".as_ref()));
        assert_eq!(source.connect_timeout, ATTEMPT_MAX);
        assert_eq!((sink.host.as_str(), sink.port), ("db", 3306));
        assert_eq!((sink.user.as_str(), password(&sink)), ("app", "two".to_owned()));
        assert_eq!(sink.tls.mode, weir_types::TlsMode::Disabled);

        let address = changefeed.source.uri.mysql().unwrap();
        let options = ends.server_options(&changefeed, address, Some(&Until::CaughtUp), None);
        assert_eq!(options.server_id, 7);
        assert_eq!(options.heartbeat, Duration::from_secs(2));
        assert_eq!(options.stop, Some(weir_source::files::StopAt::CaughtUp));
    }

    #[test]
    fn one_server_needs_targets_that_are_left_out() {
        let changefeed = Changefeed::parse(FEED).unwrap();
        let (filter, router) = (changefeed.table_filter().unwrap(), changefeed.router().unwrap());
        let tables = [TableName::new("shop", "a"), TableName::new("shop", "b")];
        assert!(check_apart(&tables, &filter, &router).is_ok());
        let narrow = TableFilter::new(&["shop.?"], weir_filter::NameCase::Sensitive).unwrap();
        assert!(check_apart(&tables, &narrow, &router).is_ok());
        // `copy_a` would be read, and written to `copy_copy_a`, and so on.
        let wide = TableFilter::new(&["shop.*"], weir_filter::NameCase::Sensitive).unwrap();
        let error = check_apart(&tables, &wide, &router).unwrap_err();
        assert_eq!(error.code(), "WEIR-SRV-013");
        assert!(error.to_string().contains("`shop.copy_a`"), "{error}");
        let same = weir_filter::Router::identity(weir_filter::NameCase::Sensitive);
        assert!(check_apart(&tables, &narrow, &same).is_err());
        assert!(check_apart(&[], &narrow, &same).is_ok());
    }
}
