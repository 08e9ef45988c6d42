//! What `weir check` asks of a server. Every check names setting, expected and actual.

use std::sync::Arc;

use weir_types::{Check, ErrorReport, Flavor, SourcePosition};

use super::ServerOptions;
use super::alias::Listed;
use super::facts::Facts;
use super::place::Place;
use super::plan::{Here, plan};
use super::session::Session;
use super::start::{first_place, resolve_start};
use crate::error::{Result, SourceError};

/// Shortest time that binlogs should be kept, seconds: an outage of Weir must not outlast
/// them.
const RETENTION_MIN_SECONDS: f64 = 86_400.0;

fn message(error: &SourceError) -> String {
    ErrorReport::new(error).message
}

/// Checks connection, settings, server id, retention, and that events can be read from
/// the start (or the saved position) on.
pub fn server_preflight(options: &ServerOptions) -> Vec<Check> {
    let expected = "a server that takes our login";
    let begun = Session::open(&options.endpoint).and_then(|mut session| {
        let facts = session.facts()?;
        Ok((session, facts))
    });
    let (mut session, facts) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            return vec![Check::new(
                "connection",
                "source.uri",
                expected,
                message(&error),
                false,
            )];
        }
    };
    let encrypted = if session.connection.server().encrypted {
        "encrypted"
    } else {
        "not encrypted"
    };
    let actual = format!("version {}, {encrypted}", facts.version);
    let mut checks = vec![Check::new("connection", "source.uri", expected, actual, true)];
    checks.extend(settings(&facts));
    let listed = session.listed(&facts, options);
    checks.push(server_id(options, &facts, listed));
    let has_binlog = facts.required().all(|(name, .., ok)| ok || name != "log_bin");
    if has_binlog {
        checks.push(start(options, &facts));
    }
    checks
}

fn settings(facts: &Facts) -> Vec<Check> {
    let expected = "MySQL 8.0 or MariaDB 10.5, or later";
    let mut checks = vec![Check::new(
        "version",
        "version",
        expected,
        facts.version.clone(),
        facts.is_supported(),
    )];
    let names = ["binary log", "row format", "row image"];
    for (name, (setting, expected, actual, ok)) in names.into_iter().zip(facts.required()) {
        checks.push(Check::new(name, setting, expected, actual.to_owned(), ok));
    }
    checks.push(Check::new(
        "row metadata",
        "binlog_row_metadata",
        "FULL; otherwise columns are named by the catalogue, which may have changed since",
        facts.variable("binlog_row_metadata").to_owned(),
        true,
    ));
    if facts.flavor == Flavor::Mysql {
        let options = facts.variable("binlog_row_value_options");
        let ok = !options.to_ascii_uppercase().contains("PARTIAL_JSON");
        let expected = "without PARTIAL_JSON";
        checks.push(Check::new(
            "whole JSON values",
            "binlog_row_value_options",
            expected,
            format!("`{options}`"),
            ok,
        ));
        let mode = facts.variable("gtid_mode").to_owned();
        let expected = "ON; otherwise a place counts at this server only";
        checks.push(Check::new("resume by GTID", "gtid_mode", expected, mode, true));
    }
    checks.push(retention(facts));
    checks
}

/// 0 keeps binlogs for ever. MariaDB counts days, newer releases of both seconds.
fn retention(facts: &Facts) -> Check {
    let number = |name: &str| facts.variable(name).parse::<f64>().unwrap_or(0.0);
    let seconds = number("binlog_expire_logs_seconds").max(number("expire_logs_days") * 86_400.0);
    let actual = if seconds > 0.0 {
        format!("{seconds} s")
    } else {
        "for ever".to_owned()
    };
    let ok = seconds <= 0.0 || seconds >= RETENTION_MIN_SECONDS;
    let expected = "0, or a day (86400) at least";
    Check::new(
        "binlog retention",
        "binlog_expire_logs_seconds",
        expected,
        actual,
        ok,
    )
}

fn server_id(options: &ServerOptions, facts: &Facts, listed: Result<Listed>) -> Check {
    let ours = options.server_id;
    let (actual, ok) = match listed {
        _ if facts.server_id() == Some(ours) => (format!("{ours} is the server's own"), false),
        Ok(Listed::Other) => (format!("another replica with {ours} is connected"), false),
        Ok(Listed::Own) => (format!("{ours} is this changefeed's, which is connected"), true),
        Ok(Listed::Free) => (format!("{ours} is free"), true),
        Ok(Listed::Hidden) => (
            format!("{ours}; the list of replicas takes REPLICATION MASTER ADMIN"),
            true,
        ),
        Err(error) => (message(&error), false),
    };
    let expected = "an id that no other server or replica has";
    Check::new("server id", "source.server-id", expected, actual, ok)
}

/// Whether the server sends events from the place where a run would begin.
fn start(options: &ServerOptions, facts: &Facts) -> Check {
    let position = match &options.resume {
        Some(position) => Ok(position.clone()),
        None => resolve_start(options),
    };
    let begins = position.and_then(|position| readable(options, facts, &position));
    let expected = "a place from which the server sends its binlog";
    match begins {
        Ok(place) => {
            let actual = format!("{}:{}", place.file, place.offset);
            Check::new("start", "source.start", expected, actual, true)
        }
        Err(error) => Check::new("start", "source.start", expected, message(&error), false),
    }
}

fn readable(options: &ServerOptions, facts: &Facts, position: &SourcePosition) -> Result<Place> {
    let place = Place {
        file: Arc::clone(&position.file),
        offset: position.offset,
    };
    let here = Here {
        identity: &position.identity,
        place: &place,
        seen: &position.gtids,
    };
    let dump = plan(&here, facts)?;
    let session = Session::open(&options.endpoint)?;
    first_place(options, session, facts, &dump, &position.gtids)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::facts::tests::facts;

    fn failing(flavor: Flavor, variables: &[(&str, &str)]) -> Vec<&'static str> {
        let checks = settings(&facts(flavor, "", variables));
        checks.iter().filter(|c| !c.ok).map(|c| c.setting).collect()
    }

    #[test]
    fn each_setting_is_named() {
        assert!(failing(Flavor::Mysql, &[]).is_empty());
        assert_eq!(
            failing(
                Flavor::Mysql,
                &[
                    ("binlog_format", "MIXED"),
                    ("binlog_row_image", "NOBLOB"),
                    ("binlog_row_metadata", "MINIMAL"),
                    ("binlog_row_value_options", "PARTIAL_JSON"),
                    ("binlog_expire_logs_seconds", "60"),
                ]
            ),
            [
                "binlog_format",
                "binlog_row_image",
                "binlog_row_value_options",
                "binlog_expire_logs_seconds"
            ]
        );
        assert_eq!(
            failing(Flavor::Mariadb, &[("log_bin", "OFF"), ("expire_logs_days", "10")]),
            ["log_bin"]
        );
    }
}
