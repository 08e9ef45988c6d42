//! A connection: what the server says about itself, and how a dump is asked for.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_types::{Flavor, SourceIdentity};
use weir_wire::{Closer, Connection, DumpRequest, Endpoint, Rows};

use super::ServerOptions;
use super::alias::{Alias, Listed};
use super::facts::{Facts, Reading, VARIABLES};
use super::place::Place;
use super::plan::Dump;
use super::stream::EventStream;
use crate::error::{Result, SourceError};

/// One attempt to connect may take so long, so that a stop need not wait longer.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Offset of the first event of a file.
pub(crate) const FIRST_EVENT_OFFSET: u64 = 4;
/// How long the server waits for us to read, seconds: the store may make us pause.
const NET_WRITE_TIMEOUT_SECONDS: u32 = 3600;

/// What tells a server apart from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// As it stands in saved positions.
    pub identity: SourceIdentity,
    /// Family.
    pub flavor: Flavor,
    /// Version text.
    pub version: String,
    /// `lower_case_table_names`: 0 compares names as they are written.
    pub lower_case_table_names: u8,
}

/// Asks a server who it is.
///
/// # Errors
/// The connection's.
pub fn identify(endpoint: &Endpoint) -> Result<ServerIdentity> {
    let mut session = Session::open(endpoint)?;
    let facts = session.facts()?;
    Ok(ServerIdentity {
        lower_case_table_names: facts.variable("lower_case_table_names").parse().unwrap_or(0),
        identity: facts.identity,
        flavor: facts.flavor,
        version: facts.version,
    })
}

/// A connection before its dump.
pub(crate) struct Session {
    pub(crate) connection: Connection,
}

/// Our clock, milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A value of a row as text; empty for NULL and for a column that is not there.
pub(crate) fn text(rows: &Rows, row: usize, column: &str) -> String {
    let value = rows.get(row, column).unwrap_or_default();
    String::from_utf8_lossy(value).into_owned()
}

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn open(endpoint: &Endpoint) -> Result<Self> {
        let attempt = Endpoint {
            connect_timeout: endpoint.connect_timeout.min(ATTEMPT_MAX),
            ..endpoint.clone()
        };
        Ok(Self {
            connection: Connection::open(&attempt)?,
        })
    }

    /// Reads what there is to know.
    ///
    /// # Errors
    /// The connection's; `Setting` if there is no binlog.
    pub(crate) fn facts(&mut self) -> Result<Facts> {
        let flavor = self.connection.server().flavor;
        let version = self.connection.server().version.clone();
        let variables = self.variables()?;
        let clock_ahead_ms = self.clock_ahead_ms()?;
        let (end, executed) = self.end_of_log(flavor, &version)?;
        Facts::new(Reading {
            flavor,
            version,
            variables,
            end,
            executed,
            clock_ahead_ms,
        })
    }

    fn variables(&mut self) -> Result<HashMap<String, String>> {
        let names: Vec<String> = VARIABLES.iter().map(|name| format!("'{name}'")).collect();
        let sql = format!(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})",
            names.join(",")
        );
        let rows = self.connection.query(&sql)?;
        let pair = |row| {
            let name = text(&rows, row, "Variable_name").to_ascii_lowercase();
            (name, text(&rows, row, "Value"))
        };
        Ok((0..rows.len()).map(pair).collect())
    }

    fn clock_ahead_ms(&mut self) -> Result<i64> {
        let rows = self
            .connection
            .query("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) AS ms")?;
        let theirs: i64 = text(&rows, 0, "ms").parse().unwrap_or(0);
        let ours = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        Ok(theirs.saturating_sub(ours))
    }

    /// End of the binlog and the GTID set there; an empty file name without a binlog.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn end_of_log(&mut self, flavor: Flavor, version: &str) -> Result<(Place, String)> {
        let renamed = flavor == Flavor::Mysql && super::facts::version(version) >= (8, 2);
        let statement = if renamed {
            "SHOW BINARY LOG STATUS"
        } else {
            "SHOW MASTER STATUS"
        };
        let rows = self.connection.query(statement)?;
        if rows.is_empty() {
            return Ok((Place::new("", 0), String::new()));
        }
        let offset = text(&rows, 0, "Position")
            .parse()
            .map_err(|_| SourceError::Answer { statement })?;
        let end = Place::new(&text(&rows, 0, "File"), offset);
        let executed = match flavor {
            Flavor::Mysql => text(&rows, 0, "Executed_Gtid_Set"),
            Flavor::Mariadb => self.gtids_at(&end)?,
        };
        Ok((end, executed))
    }

    /// MariaDB: last transactions before the end of the binlog. The function that tells it
    /// of a place is NULL before 11 where an event of the file is larger than
    /// `max_allowed_packet`, and an empty set would say that nothing is there. What the
    /// variable says may be ahead of the place by what is just being written; reading goes
    /// by the set, so that this is only a later end.
    fn gtids_at(&mut self, place: &Place) -> Result<String> {
        let file = place.file.replace('\\', "\\\\").replace('\'', "''");
        let sql = format!(
            "SELECT COALESCE(BINLOG_GTID_POS('{file}', {}), @@GLOBAL.gtid_binlog_pos) AS gtids",
            place.offset
        );
        let rows = self.connection.query(&sql)?;
        Ok(text(&rows, 0, "gtids"))
    }

    /// Names of the binlog files, oldest first.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn files(&mut self) -> Result<Vec<String>> {
        let rows = self.connection.query("SHOW BINARY LOGS")?;
        Ok((0..rows.len()).map(|row| text(&rows, row, "Log_name")).collect())
    }

    /// Who of the server's replicas has our id.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn listed(&mut self, facts: &Facts, options: &ServerOptions) -> Result<Listed> {
        let statement = if facts.new_names((8, 1)) {
            "SHOW REPLICAS"
        } else {
            "SHOW SLAVE HOSTS"
        };
        let rows = match self.connection.query(statement).map_err(SourceError::from) {
            // MariaDB shows the list to REPLICATION MASTER ADMIN only, which reading the
            // binlog does not need.
            Err(SourceError::Privilege { .. }) => return Ok(Listed::Hidden),
            answer => answer?,
        };
        let id = options.server_id.to_string();
        let alias = Alias::of(options);
        let same_id = (0..rows.len()).filter(|row| text(&rows, *row, "Server_Id") == id);
        let mut listed = Listed::Free;
        for row in same_id {
            let name = match facts.flavor {
                Flavor::Mysql => text(&rows, row, facts.replica_uuid_column()),
                Flavor::Mariadb => text(&rows, row, "Host"),
            };
            if name != alias.shown(facts.flavor) {
                return Ok(Listed::Other);
            }
            listed = Listed::Own;
        }
        Ok(listed)
    }

    /// Has the server list us among its replicas.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn register(&mut self, options: &ServerOptions, flavor: Flavor) -> Result<()> {
        let alias = Alias::of(options);
        if flavor == Flavor::Mysql {
            // The list names it; a dump ends an older one of the same replica by it.
            let uuid = &alias.uuid;
            let statement = format!("SET @slave_uuid = '{uuid}', @replica_uuid = '{uuid}'");
            self.connection.execute(&statement)?;
        }
        Ok(self.connection.register_replica(options.server_id, &alias.host)?)
    }

    /// A handle that ends the connection from another thread.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn closer(&self) -> Result<Closer> {
        Ok(self.connection.closer()?)
    }

    /// Asks for the events. `silence`: how long the first one may take.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn dump(
        mut self,
        options: &ServerOptions,
        facts: &Facts,
        dump: &Dump,
        silence: Duration,
    ) -> Result<EventStream> {
        for statement in settings(options, facts.flavor, dump) {
            self.connection.execute(&statement)?;
        }
        let server_id = options.server_id;
        let request = match (dump, facts.flavor) {
            (Dump::Gtids(executed), Flavor::Mysql) => DumpRequest::MysqlGtid {
                server_id,
                executed: executed.clone(),
            },
            // The set was named by a variable.
            (Dump::Gtids(_), Flavor::Mariadb) => DumpRequest::File {
                server_id,
                file: String::new(),
                offset: FIRST_EVENT_OFFSET,
            },
            (Dump::File(place), _) => DumpRequest::File {
                server_id,
                file: place.file.to_string(),
                offset: place.offset,
            },
        };
        Ok(EventStream::new(self.connection.dump(&request)?, silence))
    }
}

/// Variables of the session that the server's dump looks at (MySQL manual "Replication
/// Source Connection"; MariaDB knowledge base "Replication Protocol"). Older names beside
/// the newer ones: a server ignores those that it does not know.
fn settings(options: &ServerOptions, flavor: Flavor, dump: &Dump) -> Vec<String> {
    let heartbeat_nanos = options.heartbeat.as_nanos();
    let mut out = vec![
        "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'".to_owned(),
        format!(
            "SET @master_heartbeat_period = {heartbeat_nanos}, @source_heartbeat_period = {heartbeat_nanos}"
        ),
        format!("SET SESSION net_write_timeout = {NET_WRITE_TIMEOUT_SECONDS}"),
    ];
    match flavor {
        Flavor::Mysql => {
            let uuid = Alias::of(options).uuid;
            out.push(format!("SET @slave_uuid = '{uuid}', @replica_uuid = '{uuid}'"));
        }
        Flavor::Mariadb => {
            out.push("SET @mariadb_slave_capability = 4".to_owned());
            if let Dump::Gtids(set) = dump {
                out.push(format!(
                    "SET @slave_connect_state = '{set}', @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0"
                ));
            }
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_types::GtidSet;
    use weir_types::{TlsMode, TlsOptions};

    use super::*;
    use crate::server::{HEARTBEAT, StartAt};

    pub(crate) fn options() -> ServerOptions {
        ServerOptions {
            endpoint: Endpoint {
                host: "localhost".to_owned(),
                port: 1,
                user: "u".to_owned(),
                password: None,
                tls: TlsOptions {
                    mode: TlsMode::Disabled,
                    ca: None,
                    cert: None,
                    key: None,
                },
                connect_timeout: Duration::from_secs(1),
                read_timeout: Duration::from_secs(1),
            },
            changefeed: "shop".to_owned(),
            server_id: 4201,
            start: StartAt::Latest,
            stop: None,
            resume: None,
            event_bytes_max: 1 << 20,
            heartbeat: HEARTBEAT,
        }
    }

    #[test]
    fn the_session_says_what_the_dump_needs() {
        let set = GtidSet::parse("0-1-5,7-2-9").expect("a set");
        let maria = settings(&options(), Flavor::Mariadb, &Dump::Gtids(set)).join(";");
        assert!(maria.contains("@slave_connect_state = '0-1-5,7-2-9'"), "{maria}");
        assert!(maria.contains("@master_heartbeat_period = 1000000000"), "{maria}");
        let place = Dump::File(Place::new("b.1", 4));
        assert!(
            !settings(&options(), Flavor::Mariadb, &place)
                .join(";")
                .contains("connect_state")
        );
        let mysql = settings(&options(), Flavor::Mysql, &place).join(";");
        let uuid = Alias::of(&options()).uuid;
        assert!(mysql.contains(&format!("@replica_uuid = '{uuid}'")), "{mysql}");
    }
}
