//! The session of a DDL: what ran at the source, as far as the target can be set so.

use weir_types::ddl::DdlSession;
use weir_types::{DdlEvent, Flavor};

use crate::connect::ServerInfo;
use crate::session::LOCK_WAIT_SECONDS;
use crate::sql::{literal, push_name};

/// Bits of `sql_mode` that both families have, by their place ("Server SQL Modes").
const SHARED_MODES: [(u32, &str); 18] = [
    (0, "REAL_AS_FLOAT"),
    (1, "PIPES_AS_CONCAT"),
    (2, "ANSI_QUOTES"),
    (3, "IGNORE_SPACE"),
    (5, "ONLY_FULL_GROUP_BY"),
    (6, "NO_UNSIGNED_SUBTRACTION"),
    (7, "NO_DIR_IN_CREATE"),
    (19, "NO_AUTO_VALUE_ON_ZERO"),
    (20, "NO_BACKSLASH_ESCAPES"),
    (21, "STRICT_TRANS_TABLES"),
    (22, "STRICT_ALL_TABLES"),
    (23, "NO_ZERO_IN_DATE"),
    (24, "NO_ZERO_DATE"),
    (25, "ALLOW_INVALID_DATES"),
    (26, "ERROR_FOR_DIVISION_BY_ZERO"),
    (29, "HIGH_NOT_PRECEDENCE"),
    (30, "NO_ENGINE_SUBSTITUTION"),
    (31, "PAD_CHAR_TO_FULL_LENGTH"),
];
/// Bits that MySQL alone has.
const MYSQL_MODES: [(u32, &str); 1] = [(32, "TIME_TRUNCATE_FRACTIONAL")];
/// Bits that MariaDB alone has.
const MARIADB_MODES: [(u32, &str); 5] = [
    (4, "IGNORE_BAD_TABLE_OPTIONS"),
    (9, "ORACLE"),
    (32, "EMPTY_STRING_IS_NULL"),
    (33, "SIMULTANEOUS_ASSIGNMENT"),
    (34, "TIME_ROUND_FRACTIONAL"),
];

/// Collations of MySQL that MariaDB before 11.4 lacks, as (first id, last id).
const UCA_0900: (u16, u16) = (255, 323);
/// The nearest that MariaDB has: later Unicode weights, no padding.
const NEAREST_TO_0900: &str = "utf8mb4_unicode_520_nopad_ci";
/// The name of 0900 collations in MariaDB releases that do not know MySQL's.
const SAME_AS_0900: &str = "uca1400_nopad_ai_ci";
/// `utf8mb4_general_ci`, by which MariaDB numbers the charset too.
const UTF8MB4_GENERAL: u16 = 45;
/// MariaDB has `character_set_collations` from this release on.
const CHARSET_COLLATIONS_SINCE: (u32, u32, u32) = (11, 2, 1);
/// Nothing can be made in it: unqualified names without a default schema fail.
const NOWHERE: &str = "information_schema";

/// What a setting is for, where the target may lack it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The statement.
    pub(crate) sql: String,
    /// What a person calls it.
    pub(crate) what: String,
    /// What is set instead if the target does not know the value.
    pub(crate) otherwise: Option<String>,
    /// Where it cannot be had, the DDL runs without it, with a warning; else it fails.
    pub(crate) optional: bool,
    /// Without the warning: it is often not there, and not needed.
    pub(crate) quiet: bool,
    /// Asks, where it may not be set, whether it is so already.
    pub(crate) holds: Option<String>,
}

fn needed(sql: String, what: impl Into<String>) -> Setting {
    Setting {
        sql,
        what: what.into(),
        otherwise: None,
        optional: false,
        quiet: false,
        holds: None,
    }
}

fn optional(sql: String, what: impl Into<String>) -> Setting {
    Setting {
        optional: true,
        ..needed(sql, what)
    }
}

/// `sql_mode` of the source in the words of the target. Modes that it does not have are
/// left out; those that stand for others (ANSI, TRADITIONAL) come with them.
pub(crate) fn sql_mode(bits: u64, from: Flavor, to: Flavor) -> String {
    let own: &[(u32, &str)] = match (from, to) {
        (Flavor::Mysql, Flavor::Mysql) => &MYSQL_MODES,
        (Flavor::Mariadb, Flavor::Mariadb) => &MARIADB_MODES,
        _ => &[],
    };
    let set = SHARED_MODES
        .iter()
        .chain(own)
        .filter(|(bit, _)| bits >> bit & 1 == 1);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

/// Settings before a DDL, in order. `schema`: its default schema at the target, empty for
/// none; the session stays nowhere if the target does not have it.
pub(crate) fn settings(event: &DdlEvent, schema: &str, info: &ServerInfo) -> Vec<Setting> {
    let session: &DdlSession = &event.session;
    let from = session.flavor.unwrap_or(info.flavor);
    let mut all = vec![needed(base(info), "a session of its own")];
    let mut nowhere = String::from("USE ");
    push_name(&mut nowhere, NOWHERE);
    all.push(needed(nowhere, "the schema `information_schema`"));
    if !schema.is_empty() {
        let mut sql = String::from("USE ");
        push_name(&mut sql, schema);
        // CREATE DATABASE runs in the schema that it makes.
        all.push(Setting {
            quiet: true,
            ..optional(sql, format!("the schema `{schema}`"))
        });
    }
    if let Some(bits) = session.sql_mode {
        let modes = sql_mode(bits, from, info.flavor);
        all.push(needed(format!("SET SESSION sql_mode='{modes}'"), "`sql_mode`"));
    }
    for (name, id) in [
        ("collation_connection", session.collation_connection),
        ("collation_server", session.collation_server),
    ] {
        all.extend(id.map(|id| collation(name, id)));
    }
    all.extend(default_collations(session, from, info));
    if let Some(zone) = &session.time_zone {
        all.push(needed(
            format!("SET SESSION time_zone={}", literal(zone)),
            format!("the time zone `{zone}`"),
        ));
    }
    if session.no_foreign_key_checks {
        all.push(needed(
            "SET SESSION foreign_key_checks=0".to_owned(),
            "`foreign_key_checks`",
        ));
    }
    all.push(explicit_timestamps(session.explicit_defaults_for_timestamp));
    if let Some(seconds) = session.timestamp {
        all.push(needed(format!("SET SESSION timestamp={seconds}"), "`timestamp`"));
    }
    all
}

/// Takes back what the DDL before it set.
fn base(info: &ServerInfo) -> String {
    let mut sql = format!(
        "SET NAMES utf8mb4; SET SESSION sql_mode=DEFAULT, time_zone=DEFAULT, foreign_key_checks=1, unique_checks=1, \
         collation_server=DEFAULT, timestamp=DEFAULT, autocommit=1, lock_wait_timeout={LOCK_WAIT_SECONDS}, \
         innodb_lock_wait_timeout={LOCK_WAIT_SECONDS}"
    );
    if info.flavor == Flavor::Mariadb {
        sql.push_str(", max_statement_time=0");
    }
    sql
}

/// Both families number collations alike, and take the number.
fn collation(name: &str, id: u16) -> Setting {
    let near = (UCA_0900.0..=UCA_0900.1).contains(&id);
    Setting {
        sql: format!("SET SESSION {name}={id}"),
        what: format!("the collation with id {id}"),
        otherwise: near.then(|| format!("SET SESSION {name}={NEAREST_TO_0900}")),
        optional: true,
        quiet: false,
        holds: None,
    }
}

/// What a charset without a collation means, in the words of the target.
fn default_collations(session: &DdlSession, from: Flavor, info: &ServerInfo) -> Option<Setting> {
    match (from, info.flavor) {
        (Flavor::Mysql, Flavor::Mysql) => session.default_collation_utf8mb4.map(utf8mb4_default),
        (Flavor::Mariadb, Flavor::Mysql) => {
            // A collation that MySQL lacks is left to its own default.
            let pairs = session.character_set_collations.as_deref().unwrap_or_default();
            let plain = !pairs.iter().any(|(charset, _)| *charset == UTF8MB4_GENERAL);
            plain.then(|| utf8mb4_default(UTF8MB4_GENERAL))
        }
        _ if info.numbers < CHARSET_COLLATIONS_SINCE => None,
        (Flavor::Mariadb, Flavor::Mariadb) => {
            Some(charset_collations(session.character_set_collations.as_deref()))
        }
        (Flavor::Mysql, Flavor::Mariadb) => Some(match session.default_collation_utf8mb4 {
            // The empty setting means the same, and any other charset is as in MySQL too.
            None | Some(UTF8MB4_GENERAL) => charset_collations(None),
            Some(_) => Setting {
                otherwise: Some(format!(
                    "SET SESSION character_set_collations='utf8mb4={SAME_AS_0900}'"
                )),
                ..optional(
                    "SET SESSION character_set_collations='utf8mb4=utf8mb4_0900_ai_ci'".to_owned(),
                    "the collation `utf8mb4_0900_ai_ci`",
                )
            },
        }),
    }
}

/// MySQL's default collation of utf8mb4. Setting it takes a privilege; most sessions have
/// it already.
fn utf8mb4_default(id: u16) -> Setting {
    Setting {
        holds: Some(format!(
            "SELECT 1 FROM information_schema.COLLATIONS WHERE ID={id} AND \
             COLLATION_NAME=@@default_collation_for_utf8mb4"
        )),
        ..needed(
            format!("SET SESSION default_collation_for_utf8mb4={id}"),
            format!("the privilege SESSION_VARIABLES_ADMIN for `default_collation_for_utf8mb4` {id}"),
        )
    }
}

/// What MariaDB makes of a charset without a collation; none: as ever. The names are
/// looked up by the server.
fn charset_collations(pairs: Option<&[(u16, u16)]>) -> Setting {
    let parts: Vec<String> = pairs
        .unwrap_or_default()
        .iter()
        .map(|(default, collation)| {
            format!(
                "(SELECT CONCAT(d.CHARACTER_SET_NAME, '=', c.FULL_COLLATION_NAME) FROM \
                     information_schema.COLLATION_CHARACTER_SET_APPLICABILITY d, \
                     information_schema.COLLATION_CHARACTER_SET_APPLICABILITY c WHERE d.ID={default} AND \
                     c.ID={collation} AND c.CHARACTER_SET_NAME=d.CHARACTER_SET_NAME LIMIT 1)"
            )
        })
        .collect();
    let value = if parts.is_empty() {
        "''".to_owned()
    } else {
        format!("(SELECT CONCAT_WS(',', {}))", parts.join(", "))
    };
    optional(
        format!("SET SESSION character_set_collations={value}"),
        "`character_set_collations`",
    )
}

/// Whether a TIMESTAMP column without NULL and DEFAULT gets none; the target's own choice
/// where the source does not tell. MySQL asks for a privilege.
fn explicit_timestamps(explicit: Option<bool>) -> Setting {
    let what = "`explicit_defaults_for_timestamp`";
    match explicit.map(u8::from) {
        Some(explicit) => Setting {
            holds: Some(format!(
                "SELECT 1 FROM DUAL WHERE @@explicit_defaults_for_timestamp={explicit}"
            )),
            ..optional(
                format!("SET SESSION explicit_defaults_for_timestamp={explicit}"),
                what,
            )
        },
        None => Setting {
            quiet: true,
            ..optional(
                "SET SESSION explicit_defaults_for_timestamp=DEFAULT".to_owned(),
                what,
            )
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_types::DdlKind;

    use super::*;

    fn info(flavor: Flavor) -> ServerInfo {
        ServerInfo {
            flavor,
            version: String::new(),
            numbers: (0, 0, 0),
            max_allowed_packet: 1 << 26,
            fold_names: false,
            read_only: false,
            log_bin: true,
            identity: String::new(),
            account: String::new(),
        }
    }

    fn event(session: DdlSession) -> DdlEvent {
        DdlEvent {
            kind: DdlKind::AlterTable,
            schema: "s".into(),
            session: Arc::new(session),
            sql: "ALTER TABLE t ADD c INT".into(),
            writes: Vec::new(),
            makes: Vec::new(),
            reads: Vec::new(),
            commit_time_ms: 0,
        }
    }

    #[test]
    fn modes_of_the_other_family_are_left_out() {
        let bits = 1 << 2 | 1 << 21 | 1 << 32 | 1 << 27;
        let mode = |from, to| sql_mode(bits, from, to);
        assert_eq!(
            mode(Flavor::Mysql, Flavor::Mysql),
            "ANSI_QUOTES,STRICT_TRANS_TABLES,TIME_TRUNCATE_FRACTIONAL"
        );
        assert_eq!(
            mode(Flavor::Mysql, Flavor::Mariadb),
            "ANSI_QUOTES,STRICT_TRANS_TABLES"
        );
        assert_eq!(
            mode(Flavor::Mariadb, Flavor::Mariadb),
            "ANSI_QUOTES,STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL"
        );
    }

    #[test]
    fn the_session_of_the_source_is_set_and_the_one_before_taken_back() {
        let session = DdlSession {
            sql_mode: Some(0),
            time_zone: Some("Europe/Berlin".into()),
            no_foreign_key_checks: true,
            collation_server: Some(255),
            timestamp: Some(7),
            ..DdlSession::default()
        };
        let all = settings(&event(session), "s`2", &info(Flavor::Mariadb));
        let texts: Vec<&str> = all.iter().map(|setting| setting.sql.as_str()).collect();
        assert!(texts[0].contains("foreign_key_checks=1"));
        assert_eq!(texts[1..3], ["USE `information_schema`", "USE `s``2`"]);
        for text in [
            "SET SESSION sql_mode=''",
            "SET SESSION time_zone='Europe/Berlin'",
            "SET SESSION foreign_key_checks=0",
            "SET SESSION timestamp=7",
        ] {
            assert!(texts.contains(&text), "{text}");
        }
        let server = all
            .iter()
            .find(|s| s.sql.contains("collation_server=255"))
            .unwrap();
        assert!(server.otherwise.as_ref().unwrap().contains("nopad"));
        let zone = all.iter().find(|s| s.sql.contains("Berlin")).unwrap();
        assert!(!zone.optional);
    }
    fn sql_of(all: &[Setting], word: &str) -> Vec<String> {
        let with = all.iter().filter(|setting| setting.sql.contains(word));
        with.map(|setting| setting.sql.clone()).collect()
    }

    #[test]
    fn a_charset_without_a_collation_means_what_it_meant_at_the_source() {
        let of = |flavor: Flavor, id: Option<u16>, pairs: Option<Vec<(u16, u16)>>, to: Flavor, numbers| {
            let session = DdlSession {
                flavor: Some(flavor),
                default_collation_utf8mb4: id,
                character_set_collations: pairs,
                ..DdlSession::default()
            };
            let info = ServerInfo { numbers, ..info(to) };
            sql_of(&settings(&event(session), "", &info), "collation")
                .pop()
                .filter(|sql| !sql.contains("collation_server=DEFAULT"))
                .unwrap_or_default()
        };
        let set = |value: &str| format!("SET SESSION character_set_collations={value}");
        let (mysql, maria) = (Flavor::Mysql, Flavor::Mariadb);
        let (old, new) = ((10, 11, 19), (11, 8, 9));
        assert_eq!(
            of(mysql, Some(255), None, maria, new),
            set("'utf8mb4=utf8mb4_0900_ai_ci'")
        );
        assert_eq!(of(mysql, Some(45), None, maria, new), set("''"));
        assert_eq!(of(mysql, None, None, maria, new), set("''"));
        assert_eq!(of(maria, None, None, maria, new), set("''"));
        assert_eq!(of(maria, None, Some(Vec::new()), maria, new), set("''"));
        let uca = of(maria, None, Some(vec![(45, 2304)]), maria, new);
        assert!(uca.contains("c.ID=2304") && uca.contains("d.ID=45"), "{uca}");
        assert_eq!(of(mysql, Some(255), None, maria, old), "");
        assert_eq!(of(maria, None, None, maria, old), "");
        let general = "SET SESSION default_collation_for_utf8mb4=45";
        assert_eq!(of(maria, None, None, mysql, (9, 7, 4)), general);
        assert_eq!(of(maria, None, Some(vec![(45, 2304)]), mysql, (9, 7, 4)), "");
        assert_eq!(of(mysql, Some(45), None, mysql, (9, 7, 4)), general);
    }

    #[test]
    fn implicit_timestamps_do_not_stay_from_the_ddl_before() {
        let of = |explicit| {
            let session = DdlSession {
                explicit_defaults_for_timestamp: explicit,
                ..DdlSession::default()
            };
            sql_of(&settings(&event(session), "", &info(Flavor::Mysql)), "explicit").join(";")
        };
        let set = |value| format!("SET SESSION explicit_defaults_for_timestamp={value}");
        assert_eq!(of(Some(false)), set("0"));
        assert_eq!(of(None), set("DEFAULT"));
    }
}
