//! Servers at the ends: addresses, passwords, TLS, what is derived.

use std::fs;

use proptest::prelude::*;
use weir_types::{Secret, TlsMode};

use crate::tests::{FULL_MYSQL, refused};
use crate::*;

const PAIR: &str =
    "id = \"orders\"\n[source]\nuri = \"mysql://repl@h1\"\n[sink]\nuri = \"mysql://app@h2:3307/\"\n";

fn address(uri: &str) -> Result<MysqlAddress, String> {
    match SourceUri::parse(uri)? {
        SourceUri::Mysql(address) => Ok(address),
        SourceUri::BinlogFiles { .. } => Err("files".to_owned()),
    }
}

#[test]
fn addresses_of_servers() {
    for (uri, user, password, host, port) in [
        ("mysql://u@h", "u", None, "h", 3306),
        ("mariadb://u@h:3307/", "u", None, "h", 3307),
        ("mysql://u:p@1.2.3.4:1", "u", Some("p"), "1.2.3.4", 1),
        ("mysql://u:@h", "u", Some(""), "h", 3306),
        ("mysql://u:a@b:c@h", "u", Some("a@b:c"), "h", 3306),
        ("mysql://a%40b:%2F%3F%23%25@h", "a@b", Some("/?#%"), "h", 3306),
        ("mysql://u@[::1]", "u", None, "::1", 3306),
        ("mysql://u:p@[fe80::1]:65535", "u", Some("p"), "fe80::1", 65535),
        ("mysql://ü:ß@hört", "ü", Some("ß"), "hört", 3306),
    ] {
        let found = address(uri).unwrap();
        assert_eq!(
            (
                found.user.as_str(),
                found.password.as_ref().map(Secret::expose),
                found.host.as_str(),
                found.port
            ),
            (user, password, host, port),
            "{uri}"
        );
        assert_eq!(SinkUri::parse(uri), Ok(SinkUri::Mysql(found)));
    }
    for (uri, part) in [
        ("mysql://", "no user"),
        ("mysql://h", "no user"),
        ("mysql://@h", "no user"),
        ("mysql://:p@h", "no user"),
        ("mysql://u@", "no host"),
        ("mysql://u@:3306", "no host"),
        ("mysql://u@h:", "port"),
        ("mysql://u@h:0", "65535"),
        ("mysql://u@h:65536", "65535"),
        ("mysql://u@h:+80", "port"),
        ("mysql://u@h:x", "port"),
        ("mysql://u@::1", "brackets"),
        ("mysql://u@[::1", "closing"),
        ("mysql://u@[h]", "IPv6"),
        ("mysql://u@[::1]3306", "`:PORT`"),
        ("mysql://u@h/db", "only `/`"),
        ("mysql://u@h?a=b", "only `/`"),
        ("mysql://u:%ff@h", "password is not UTF-8"),
        ("mysql://%ff@h", "user is not UTF-8"),
    ] {
        let reason = address(uri).unwrap_err();
        assert!(reason.contains(part), "{uri}: {reason}");
    }
}

#[test]
fn a_password_is_shown_nowhere() {
    let text = PAIR
        .replace("repl@", "repl:topsecret@")
        .replace("app@", "app:topsecret@");
    let changefeed = Changefeed::parse(&text).unwrap();
    let forms = [
        format!("{changefeed:?}"),
        changefeed.source.uri.to_string(),
        changefeed.sink.uri.to_string(),
        format!("{:?}", changefeed.source_password().unwrap()),
        changefeed.source_password().unwrap().unwrap().to_string(),
        toml::to_string(&changefeed).unwrap(),
    ];
    for form in forms {
        assert!(!form.contains("topsecret") && form.contains("***"), "{form}");
    }
    assert_eq!(
        changefeed.source_password().unwrap(),
        Some(Secret::new("topsecret"))
    );
    for (from, to) in [
        ("topsecret@h1", "topsecret@h1/x"),
        ("topsecret@h1", "topsecret/@h1"),
        ("topsecret@h1", "topsecret@h1:x"),
        ("topsecret@h1", "topsecret@"),
        ("orders\"", "orders\"\nsource.password-env = \"X\""),
    ] {
        let (_, message) = refused(&text.replace(from, to));
        assert!(!message.contains("topsecret"), "{message}");
    }
}

#[test]
fn what_a_server_leaves_out() {
    let changefeed = Changefeed::parse(PAIR).unwrap();
    assert_eq!(*changefeed.start(), Start::Latest);
    assert_eq!(changefeed.source_password().unwrap(), None);
    assert_eq!(changefeed.source.tls.mode, TlsMode::Preferred);
    assert_eq!(changefeed.sink.mysql.worker_count, 16);
    assert_eq!(changefeed.source.heartbeat_interval, HumanDuration::seconds(1));

    // The same at every start and in every build: a number that changes looks to the
    // server like another replica.
    assert_eq!(changefeed.server_id(), 2_992_543_468);
    let ids = ["a", "b", "orders", "orders-2"];
    let found: std::collections::BTreeSet<u32> = ids
        .iter()
        .map(|id| derived_server_id(&weir_types::ChangefeedId((*id).into())))
        .collect();
    assert_eq!(found.len(), ids.len());
    assert!(found.iter().all(|id| *id >= SERVER_ID_DERIVED_MIN));
    assert_eq!(Changefeed::parse(FULL_MYSQL).unwrap().server_id(), 4201);
}

#[test]
fn the_source_says_how_names_are_compared_unless_the_file_does() {
    use weir_types::TableName;
    let rules = format!("{PAIR}[filter]\nrules = [\"Shop.*\"]\n");
    let lower = TableName::new("shop", "t");
    for (names, matches) in [(0, false), (1, true), (2, true)] {
        let mut changefeed = Changefeed::parse(&rules).unwrap();
        assert_eq!(changefeed.filter.case_sensitive, None);
        changefeed.learn_name_case(names);
        assert_eq!(changefeed.table_filter().unwrap().matches(&lower), matches);
    }
    let mut fixed = Changefeed::parse(&format!("{rules}case-sensitive = true\n")).unwrap();
    fixed.learn_name_case(1);
    assert!(!fixed.table_filter().unwrap().matches(&lower));
}

#[test]
fn passwords_come_from_one_place() {
    let dir = std::env::temp_dir().join(format!("weir-config-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    for (content, password) in [
        ("pass word", "pass word"),
        ("secret\n", "secret"),
        ("secret\r\n", "secret"),
        (" two\n\n", " two\n"),
        ("", ""),
    ] {
        let path = dir.join("password");
        fs::write(&path, content).unwrap();
        let text = PAIR.replace("[sink]", &format!("password-file = {:?}\n[sink]", path));
        let found = Changefeed::parse(&text).unwrap().source_password().unwrap();
        assert_eq!(found, Some(Secret::new(password)), "{content:?}");
    }
    fs::write(dir.join("binary"), [b'x', 0xff]).unwrap();
    for (key, value, part) in [
        ("password-env", "WEIR_NO_SUCH_VARIABLE", "not set"),
        ("password-file", "/no/such/file", "/no/such/file"),
        ("password-file", dir.join("binary").to_str().unwrap(), "binary"),
    ] {
        let text = format!("{PAIR}{key} = {value:?}\n");
        let error = Changefeed::parse(&text).unwrap().sink_password().unwrap_err();
        let report = weir_types::ErrorReport::new(&error);
        assert_eq!(report.code, "WEIR-CFG-008");
        let whole = format!("{report} {}", report.action);
        assert!(
            whole.contains(&format!("`sink.{key}`")) && whole.contains(part),
            "{whole}"
        );
    }
    fs::remove_dir_all(&dir).unwrap();
    // A variable that every process has.
    let text = format!("{PAIR}password-env = \"PATH\"\n");
    let found = Changefeed::parse(&text).unwrap().sink_password().unwrap();
    assert_eq!(found.unwrap().expose(), std::env::var("PATH").unwrap());
}

#[test]
fn values_of_servers_that_do_not_go_together() {
    let files = "binlog-files:///b/";
    for (text, parts) in [
        (
            format!("{PAIR}password-env = \"A\"\npassword-file = \"/x\"\n"),
            ["`sink.password-file`", "`sink.password-env` is given"],
        ),
        (
            format!("{PAIR}password-env = \"\"\n"),
            ["`sink.password-env`", "name of an environment variable"],
        ),
        (
            PAIR.replace("app@", "app:p@") + "password-file = \"/x\"\n",
            ["`sink.password-file`", "`sink.uri` has a password"],
        ),
        (
            PAIR.replace("mysql://app@h2:3307/", "blackhole://") + "password-env = \"A\"\n",
            ["`sink.password-env`", "only a `mysql://` sink"],
        ),
        (
            PAIR.replace("mysql://repl@h1\"", &format!("{files}\"\nserver-id = 7")),
            ["`source.server-id`", "only a `mysql://` source"],
        ),
        (
            PAIR.replace("[sink]", "server-id = 0\n[sink]"),
            ["`source.server-id`", "nonzero"],
        ),
        (
            PAIR.replace("[sink]", "server-id = 4294967296\n[sink]"),
            ["`source.server-id`", "4294967296"],
        ),
        (
            PAIR.replace("[sink]", "heartbeat-interval = \"1ms\"\n[sink]"),
            ["`source.heartbeat-interval`", "at least"],
        ),
        (
            PAIR.replace("[sink]", "heartbeat-interval = \"2m\"\n[sink]"),
            ["`source.heartbeat-interval`", "at most"],
        ),
        (
            format!("{PAIR}[sink.tls]\ncert = \"c.pem\"\n"),
            ["`sink.tls.cert`", "`sink.tls.key` is missing"],
        ),
        (
            format!("{PAIR}[source.tls]\nkey = \"k.pem\"\n"),
            ["`source.tls.key`", "`source.tls.cert` is missing"],
        ),
        (
            format!("{PAIR}[source.tls]\nmode = \"on\"\n"),
            ["`source.tls.mode`", "`verify-ca`"],
        ),
        (
            format!("{PAIR}[sink.mysql]\nworker-count = 0\n"),
            ["`sink.mysql.worker-count`", "1 to 128"],
        ),
        (
            format!("{PAIR}[sink.mysql]\nworker-count = 129\n"),
            ["`sink.mysql.worker-count`", "1 to 128"],
        ),
    ] {
        let (code, message) = refused(&text);
        assert_eq!(code, "WEIR-CFG-005", "{message}");
        for part in parts {
            assert!(message.contains(part), "{message} must contain {part}");
        }
    }
    for (key, nearest) in [
        ("worker-count = 4", "`sink.mysql.worker-count`"),
        ("password = \"x\"", "`sink.password-"),
        ("[sink.tls]\nca-file = \"x\"", "`sink.tls.ca`"),
        ("[sink.mysql]\nworkers = 4", "`sink.mysql.worker-count`"),
    ] {
        let (code, message) = refused(&format!("{PAIR}{key}\n"));
        assert_eq!(code, "WEIR-CFG-003", "{message}");
        assert!(message.contains(nearest), "{message}");
    }
}

proptest! {
    #[test]
    fn addresses_round_trip(user in "\\PC{1,12}", host in "[a-zäé0-9. -]{1,12}", port in 1_u16..) {
        let given = SinkUri::Mysql(MysqlAddress { user, password: None, host, port });
        prop_assert_eq!(SinkUri::parse(&given.to_string()), Ok(given));
    }

    #[test]
    fn no_address_makes_the_parser_panic_or_shows_a_password(rest in "\\PC{0,30}") {
        if let Err(reason) = SinkUri::parse(&format!("mysql://u:ZQX{rest}")) {
            prop_assert!(!reason.contains("ZQX"));
        }
    }
}
