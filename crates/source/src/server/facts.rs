//! What a server says about itself when we connect.

use std::collections::HashMap;

use weir_types::{Flavor, GtidSet, SourceIdentity};

use super::place::Place;
use crate::error::{Result, SourceError};

/// Variables that are read at each connection.
pub(crate) const VARIABLES: &[&str] = &[
    "binlog_checksum",
    "binlog_encryption",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_transaction_compression",
    "datadir",
    "enforce_gtid_consistency",
    "expire_logs_days",
    "gtid_binlog_pos",
    "gtid_executed",
    "gtid_mode",
    "gtid_purged",
    "hostname",
    "log_bin",
    "lower_case_table_names",
    "port",
    "server_id",
    "server_uid",
    "server_uuid",
];

/// Settings without which the binlog cannot be replicated: variable and value.
const REQUIRED: [(&str, &str); 3] = [
    ("log_bin", "ON"),
    ("binlog_format", "ROW"),
    ("binlog_row_image", "FULL"),
];

/// First releases that are supported.
const MYSQL_MIN: (u32, u32) = (8, 0);
const MARIADB_MIN: (u32, u32) = (10, 5);

/// One reading of a server.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) flavor: Flavor,
    pub(crate) version: String,
    variables: HashMap<String, String>,
    pub(crate) identity: SourceIdentity,
    /// End of the binlog.
    pub(crate) end: Place,
    /// All transactions up to there, as far as they have GTIDs.
    pub(crate) executed: GtidSet,
    /// Those of them whose files are gone (MySQL).
    pub(crate) purged: GtidSet,
    /// The server's clock minus ours, milliseconds.
    pub(crate) clock_ahead_ms: i64,
}

/// What was read, as text.
pub(crate) struct Reading {
    pub(crate) flavor: Flavor,
    pub(crate) version: String,
    pub(crate) variables: HashMap<String, String>,
    pub(crate) end: Place,
    /// GTID set of that place.
    pub(crate) executed: String,
    pub(crate) clock_ahead_ms: i64,
}

impl Facts {
    /// Understands what was read.
    ///
    /// # Errors
    /// Sets that are no sets.
    pub(crate) fn new(reading: Reading) -> Result<Self> {
        let set = |text: &str, statement: &'static str| {
            GtidSet::parse(text).map_err(|_| SourceError::Answer { statement })
        };
        let variables = reading.variables;
        let value = |name: &str| variables.get(name).map_or("", String::as_str);
        let identity = identity(value);
        let purged = set(value("gtid_purged"), "SELECT @@GLOBAL.gtid_purged")?;
        Ok(Self {
            executed: set(&reading.executed, "SHOW BINARY LOG STATUS")?,
            purged,
            identity,
            flavor: reading.flavor,
            version: reading.version,
            end: reading.end,
            clock_ahead_ms: reading.clock_ahead_ms,
            variables,
        })
    }

    /// Value of a variable; empty if the server does not have it.
    pub(crate) fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    /// The server's own id.
    pub(crate) fn server_id(&self) -> Option<u32> {
        self.variable("server_id").parse().ok()
    }

    /// Whether every transaction has a GTID, so that a place is told by a set.
    pub(crate) fn by_gtid(&self) -> bool {
        match self.flavor {
            Flavor::Mariadb => true,
            Flavor::Mysql => self.variable("gtid_mode").eq_ignore_ascii_case("ON"),
        }
    }

    /// Whether the release is one that is supported.
    pub(crate) fn is_supported(&self) -> bool {
        let least = match self.flavor {
            Flavor::Mysql => MYSQL_MIN,
            Flavor::Mariadb => MARIADB_MIN,
        };
        version(&self.version) >= least
    }

    /// Whether a statement has its name without `MASTER` and `SLAVE` (MySQL 8.2 for the
    /// one, 8.0.22 for the other).
    pub(crate) fn new_names(&self, since: (u32, u32)) -> bool {
        self.flavor == Flavor::Mysql && version(&self.version) >= since
    }

    /// Column of the list of replicas that holds their uuids.
    pub(crate) fn replica_uuid_column(&self) -> &'static str {
        if self.new_names((8, 1)) {
            "Replica_UUID"
        } else {
            "Slave_UUID"
        }
    }

    /// The required settings: name, what it must be, what it is, whether that will do.
    pub(crate) fn required(&self) -> impl Iterator<Item = (&'static str, &'static str, &str, bool)> {
        REQUIRED.iter().map(|&(name, expected)| {
            let actual = self.variable(name);
            (name, expected, actual, is_met(expected, actual))
        })
    }

    /// What must hold for a run.
    ///
    /// # Errors
    /// `Version`, `Setting`, `OwnServerId`.
    pub(crate) fn check(&self, server_id: u32) -> Result<()> {
        if !self.is_supported() {
            let version = self.version.clone();
            return Err(SourceError::Version { version });
        }
        if let Some((setting, expected, actual, _)) = self.required().find(|(.., ok)| !ok) {
            let actual = actual.to_owned();
            return Err(SourceError::Setting {
                setting,
                expected,
                actual,
            });
        }
        if self.server_id() == Some(server_id) {
            return Err(SourceError::OwnServerId { server_id });
        }
        Ok(())
    }
}

fn is_met(expected: &str, actual: &str) -> bool {
    let on = |text: &str| text.eq_ignore_ascii_case("ON") || text == "1";
    actual.eq_ignore_ascii_case(expected) || (on(expected) && on(actual))
}

/// Major and minor number of a version text.
pub(crate) fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// MySQL: its uuid. MariaDB has none: a digest of what tells two servers apart, its own
/// `server_uid` (since 10.11) among it.
fn identity<'a>(value: impl Fn(&str) -> &'a str) -> SourceIdentity {
    let digits: String = value("server_uuid").chars().filter(|c| *c != '-').collect();
    if digits.len() == 32
        && let Ok(number) = u128::from_str_radix(&digits, 16)
    {
        return SourceIdentity::Uuid(number.to_be_bytes());
    }
    let mut hash = crate::digest::Digest::new();
    for name in ["server_uid", "server_id", "hostname", "port", "datadir"] {
        hash.add(value(name).as_bytes());
        hash.add(&[0]);
    }
    SourceIdentity::Digest(hash.value())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A server with the variables given on top of fitting ones.
    pub(crate) fn facts(flavor: Flavor, executed: &str, variables: &[(&str, &str)]) -> Facts {
        let mut all: HashMap<String, String> = REQUIRED
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        all.insert("server_id".to_owned(), "1".to_owned());
        for (name, value) in variables {
            all.insert((*name).to_owned(), (*value).to_owned());
        }
        Facts::new(Reading {
            flavor,
            version: if flavor == Flavor::Mysql {
                "9.7.4"
            } else {
                "10.11.19-MariaDB"
            }
            .to_owned(),
            variables: all,
            end: Place::new("b.000003", 900),
            executed: executed.to_owned(),
            clock_ahead_ms: 0,
        })
        .expect("facts")
    }

    #[test]
    fn settings_and_ids_are_checked() {
        assert!(facts(Flavor::Mysql, "", &[]).check(7).is_ok());
        let code = |variables: &[(&str, &str)]| {
            let error = facts(Flavor::Mysql, "", variables).check(7).expect_err("refused");
            error.to_string()
        };
        assert!(
            code(&[("binlog_format", "STATEMENT")]).contains("`binlog_format` of the server is `STATEMENT`")
        );
        assert!(code(&[("binlog_row_image", "MINIMAL")]).contains("binlog_row_image"));
        assert!(code(&[("log_bin", "OFF")]).contains("log_bin"));
        assert!(code(&[("server_id", "7")]).contains("server id 7"));
        let mut old = facts(Flavor::Mysql, "", &[]);
        old.version = "5.7.44-log".to_owned();
        assert!(matches!(old.check(7), Err(SourceError::Version { .. })));
        assert_eq!(version("10.11.19-MariaDB-0+deb12u1-log"), (10, 11));
    }

    #[test]
    fn a_server_without_uuid_is_told_by_what_it_is() {
        let uuid = facts(
            Flavor::Mysql,
            "",
            &[("server_uuid", "3e11fa47-71ca-11e1-9e33-c80aa9429562")],
        );
        assert!(
            matches!(uuid.identity, SourceIdentity::Uuid(bytes) if bytes[0] == 0x3e && bytes[15] == 0x62)
        );
        let one = facts(Flavor::Mariadb, "", &[("port", "1"), ("hostname", "a")]);
        let same = facts(Flavor::Mariadb, "", &[("port", "1"), ("hostname", "a")]);
        let other = facts(Flavor::Mariadb, "", &[("port", "2"), ("hostname", "a")]);
        assert_eq!(one.identity, same.identity);
        assert_ne!(one.identity, other.identity);
    }
}
