//! Checks before a run: every requirement names setting, expected and actual.

use std::collections::BTreeSet;

use mysql_async::Row;
use weir_types::{Check, ErrorReport, TableName};

use crate::backend::Engine;
use crate::catalogue::{self, is_mysql};
use crate::client::{Client, own};
use crate::config::MysqlSinkConfig;
use crate::connect::{Connector, ServerInfo, text};
use crate::error::{MysqlSinkError, Result};
use crate::progress;

/// Smallest `max_allowed_packet` that takes Weir's statements without cutting them down.
const PACKET_WANTED: usize = 16 << 20;
/// Privileges that rows and DDL need.
const PRIVILEGES: [&str; 9] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE",
    "ALTER",
    "DROP",
    "INDEX",
    "REFERENCES",
];

fn failed(name: &'static str, setting: &'static str, expected: &str, error: &MysqlSinkError) -> Check {
    Check::new(name, setting, expected, ErrorReport::new(error).message, false)
}

/// Checks the target. `schemas`: target schemas that are known to get rows; may be empty.
/// Writes nothing. Blocks.
pub fn preflight(config: MysqlSinkConfig, schemas: &[String]) -> Vec<Check> {
    let run = || {
        let engine = Engine::start()?;
        let connector = Connector::new(config)?;
        engine
            .block_on(checks(&connector, schemas))
            .unwrap_or(Err(MysqlSinkError::Stopping))
    };
    let ran = std::thread::scope(|scope| scope.spawn(run).join().unwrap_or(Err(MysqlSinkError::Panicked)));
    ran.unwrap_or_else(|error| vec![failed("target reachable", "sink.uri", "a connection", &error)])
}

async fn checks(connector: &Connector, schemas: &[String]) -> Result<Vec<Check>> {
    let (mut conn, info) = connector.connect().await?;
    let mut checks = vec![Check::new(
        "target reachable",
        "sink.uri",
        "a connection",
        format!(
            "{} {}",
            if is_mysql(&info) { "MySQL" } else { "MariaDB" },
            info.version
        ),
        true,
    )];
    checks.push(version(&info));
    checks.push(Check::new(
        "target takes writes",
        "read_only",
        "OFF",
        if info.read_only { "ON" } else { "OFF" },
        !info.read_only,
    ));
    checks.push(Check::new(
        "large rows fit",
        "max_allowed_packet",
        format!("at least {PACKET_WANTED}"),
        info.max_allowed_packet.to_string(),
        info.max_allowed_packet >= PACKET_WANTED,
    ));
    checks.push(own_schema(&mut conn, connector.config(), &info).await?);
    checks.push(process(&mut conn, &info).await);
    checks.extend(privileges(&mut conn, schemas).await?);
    checks.extend(surroundings(&mut conn, schemas).await?);
    Ok(checks)
}

fn version(info: &ServerInfo) -> Check {
    let (expected, ok) = if is_mysql(info) {
        ("8.0 or later", info.numbers >= (8, 0, 0))
    } else {
        ("10.5 or later", info.numbers >= (10, 5, 0))
    };
    Check::new(
        "version of the target",
        "version",
        expected,
        info.version.clone(),
        ok,
    )
}

/// The schema `weir` is there, or can be made, and holds no progress of another store than
/// the one that `MysqlSinkConfig::lineage` names.
async fn own_schema(conn: &mut Client, config: &MysqlSinkConfig, info: &ServerInfo) -> Result<Check> {
    let name = "progress in schema `weir`";
    let grants = grants(conn).await?;
    let covers = |privilege: &str| covers(&grants, progress::SCHEMA, privilege);
    let missing: Vec<&str> = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"]
        .into_iter()
        .filter(|privilege| !covers(privilege))
        .collect();
    if !missing.is_empty() {
        return Ok(Check::new(
            name,
            "GRANT",
            progress::grant(&info.account),
            format!("no {}", missing.join(", ")),
            false,
        ));
    }
    let expected = "none, or of the store in the data folder";
    let ours = config.lineage.to_string();
    Ok(match progress::owner(conn, config).await {
        Ok(None) => Check::new(name, "weir.changefeeds", expected, "none", true),
        Ok(Some(lineage)) => Check::new(
            name,
            "weir.changefeeds",
            expected,
            match lineage == ours {
                true => "of our store".to_owned(),
                false => format!("of another store, `{lineage}`"),
            },
            lineage == ours,
        ),
        Err(error) => failed(name, "weir.changefeeds", expected, &error),
    })
}

async fn process(conn: &mut Client, info: &ServerInfo) -> Check {
    let table = if is_mysql(info) {
        "INNODB_TABLES"
    } else {
        "INNODB_SYS_TABLES"
    };
    let query = format!("SELECT COUNT(*) FROM information_schema.{table} WHERE TABLE_ID = 0");
    let (name, setting, expected) = (
        "ids of tables can be read",
        "GRANT",
        format!("GRANT PROCESS ON *.* TO {}", info.account),
    );
    match own("read the ids of InnoDB tables", conn.query_drop(query)).await {
        Ok(()) => Check::new(name, setting, expected, "granted", true),
        Err(error) => failed(name, setting, &expected, &error),
    }
}

/// A privilege list and what it is granted on: `*`, or a pattern of schemas.
struct Grant {
    privileges: Vec<String>,
    schema: String,
}

/// The account's own grants, those of its active roles included.
async fn grants(conn: &mut Client) -> Result<Vec<Grant>> {
    let rows: Vec<Row> = own("read the grants", conn.query("SHOW GRANTS")).await?;
    Ok(rows.iter().filter_map(|row| parse_grant(&text(row, 0))).collect())
}

/// `GRANT SELECT, INSERT (a) ON `s`.* TO …`; grants on single tables do not count.
fn parse_grant(line: &str) -> Option<Grant> {
    let (privileges, rest) = line.strip_prefix("GRANT ")?.split_once(" ON ")?;
    let (target, _) = rest.split_once(" TO ")?;
    let schema = target.strip_suffix(".*")?;
    Some(Grant {
        privileges: privileges
            .split(',')
            .map(|p| p.trim().to_ascii_uppercase())
            .collect(),
        schema: schema.trim_matches('`').to_owned(),
    })
}

fn covers(grants: &[Grant], schema: &str, privilege: &str) -> bool {
    grants.iter().any(|grant| {
        let of = |p: &String| p == privilege || p == "ALL PRIVILEGES" || p == "ALL";
        matches_schema(&grant.schema, schema) && grant.privileges.iter().any(of)
    })
}

/// Patterns of grants: `%` and `_`, escaped by a backslash.
fn matches_schema(pattern: &str, schema: &str) -> bool {
    fn matches(pattern: &[char], schema: &[char]) -> bool {
        match pattern {
            [] => schema.is_empty(),
            ['%', rest @ ..] => {
                (0..=schema.len()).any(|n| matches(rest, schema.get(n..).unwrap_or_default()))
            }
            ['\\', literal, rest @ ..] => {
                schema.first() == Some(literal) && matches(rest, schema.get(1..).unwrap_or_default())
            }
            ['_', rest @ ..] => !schema.is_empty() && matches(rest, schema.get(1..).unwrap_or_default()),
            [literal, rest @ ..] => {
                schema.first() == Some(literal) && matches(rest, schema.get(1..).unwrap_or_default())
            }
        }
    }
    if pattern == "*" {
        return true;
    }
    let (pattern, schema): (Vec<char>, Vec<char>) = (pattern.chars().collect(), schema.chars().collect());
    matches(&pattern, &schema)
}

async fn privileges(conn: &mut Client, schemas: &[String]) -> Result<Vec<Check>> {
    let grants = grants(conn).await?;
    let mut checks = Vec::new();
    for schema in schemas {
        let missing: Vec<&str> = PRIVILEGES
            .into_iter()
            .filter(|privilege| !covers(&grants, schema, privilege))
            .collect();
        let actual = if missing.is_empty() {
            format!("granted on `{schema}`")
        } else {
            format!("no {} on `{schema}`", missing.join(", "))
        };
        checks.push(Check::new(
            "privileges on the target schema",
            "GRANT",
            format!("{} on `{schema}`", PRIVILEGES.join(", ")),
            actual,
            missing.is_empty(),
        ));
    }
    Ok(checks)
}

/// Foreign keys and triggers: no reason to stop, but good to know.
async fn surroundings(conn: &mut Client, schemas: &[String]) -> Result<Vec<Check>> {
    let of = || schemas.iter().map(String::as_str);
    let keys = catalogue::foreign_keys(conn, of()).await?;
    let tied: BTreeSet<&TableName> = keys.iter().flat_map(|key| [&key.child, &key.parent]).collect();
    let triggers = catalogue::triggers(conn, of()).await?;
    let named = |count: usize, first: Option<&TableName>| match first {
        Some(first) => format!("{count}, first `{first}`"),
        None => "none".to_owned(),
    };
    Ok(vec![
        Check::new(
            "tables tied by foreign keys (each group is written serially)",
            "FOREIGN KEY",
            "any",
            named(tied.len(), tied.first().copied()),
            true,
        ),
        Check::new(
            "tables with triggers (they run for replicated rows too)",
            "TRIGGER",
            "none",
            named(triggers.len(), triggers.first()),
            triggers.is_empty(),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_and_matched() {
        let lines = [
            "GRANT SELECT, INSERT, UPDATE ON *.* TO `u`@`%`",
            "GRANT ALL PRIVILEGES ON `shop\\_%`.* TO `u`@`%`",
            "GRANT DELETE ON `one`.`t` TO `u`@`%`",
            "GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*X'",
        ];
        let grants: Vec<Grant> = lines.iter().filter_map(|line| parse_grant(line)).collect();
        assert_eq!(grants.len(), 3);
        assert!(covers(&grants, "any", "SELECT"));
        assert!(!covers(&grants, "any", "DROP"));
        assert!(covers(&grants, "shop_1", "DROP"));
        assert!(!covers(&grants, "shopx1", "DROP"));
        assert!(!covers(&grants, "one", "DELETE"));
    }
}
