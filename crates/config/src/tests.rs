use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use weir_types::{Classified, ErrorClass, ErrorReport};

use crate::kafka_tests::FULL_KAFKA;
use crate::*;

pub(crate) const MINIMAL: &str = "id = \"orders\"\n[source]\nuri = \"binlog-files:///var/lib/mysql/\"\n[sink]\nuri = \"file:///var/lib/weir/out/\"\n";

fn with(extra: &str) -> Result<Changefeed> {
    Changefeed::parse(&format!("{MINIMAL}{extra}\n"))
}

/// Parses and gives the whole sentence of the error.
pub(crate) fn refused(text: &str) -> (String, String) {
    let error = Changefeed::parse(text).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Usage);
    assert!(!error.action().is_empty());
    let report = ErrorReport::new(&error);
    (report.code.to_owned(), report.message)
}

fn check_refused(extra: &str, code: &str, parts: &[&str]) {
    let (found, message) = refused(&format!("{MINIMAL}{extra}\n"));
    assert_eq!(found, code, "{extra}: {message}");
    for part in parts {
        assert!(message.contains(part), "{extra}: {message} must contain {part}");
    }
}

#[test]
fn the_least_file_has_the_defaults() {
    let c = with("").unwrap();
    assert_eq!(&*c.id.0, "orders");
    assert_eq!(*c.start(), Start::Earliest);
    assert_eq!(
        c.source.uri,
        SourceUri::BinlogFiles {
            dir: PathBuf::from("/var/lib/mysql/"),
            index: None
        }
    );
    assert_eq!(c.flow_control.memory_quota.bytes(), 512 << 20);
    assert!(c.flow_control.max_row_size.bytes() >= 64 << 20);
    assert_eq!(c.metrics.listen.unwrap().to_string(), "127.0.0.1:9464");
    assert_eq!(c.sink.file.rotate_age.get(), Duration::from_secs(10));
    assert!(c.table_filter().is_ok() && c.router().unwrap().is_identity());
}

#[test]
fn every_key_is_read() {
    let c = Changefeed::parse(FULL).unwrap();
    assert_eq!(c.start().to_string(), "file:bin.000007:4");
    assert_eq!(c.source.max_event_size, ByteSize(300_000_000));
    assert_eq!(c.source.follow.poll_interval.get(), Duration::from_secs(1));
    assert_eq!(c.filter.rules.len(), 2);
    assert_eq!(c.filter.case_sensitive, Some(false));
    assert_eq!(c.routes[1].target_table.as_deref(), Some("{schema}_{table}"));
    assert_eq!(
        c.sink.uri,
        SinkUri::Blackhole {
            delay: Duration::from_millis(5),
            stall: Duration::ZERO,
        }
    );
    assert_eq!(c.sink.file.enum_as, EnumAs::Index);
    assert_eq!(c.sink.file.time_zone.seconds, 8 * 3600);
    assert_eq!(c.store.disk_quota, ByteSize::gib(1));
    assert_eq!(c.metrics.listen, None);
}

const FULL: &str = r#"
id = "a"
[source]
uri = "binlog-files:///x%20y?index=bin.index"
start = "file:bin.000007:4"
max-event-size = "300MB"
[source.follow]
poll-interval = "1s"
[filter]
rules = ["shop.*", "!shop.tmp_*"]
case-sensitive = false
[[route]]
match = "shop.*"
target-schema = "s2"
[[route]]
match = "b.*"
target-schema = "s3"
target-table = "{schema}_{table}"
[sink]
uri = "blackhole://?delay=5ms"
[sink.file]
rotate-size = 1048576
rotate-age = "5m"
enum-as = "index"
time-zone = "+08:00"
[flow-control]
memory-quota = "64MiB"
max-row-size = "64 MiB"
[store]
disk-quota = "1GiB"
segment-size = "16MiB"
[metrics]
listen = ""
"#;

/// The keys that `FULL` cannot have: of servers at both ends.
pub(crate) const FULL_MYSQL: &str = r#"
id = "a"
[source]
uri = "mysql://repl@[::1]:3310"
password-env = "WEIR_SOURCE_PASSWORD"
start = "gtid:0-1-5"
server-id = 4201
heartbeat-interval = "500ms"
[source.tls]
mode = "verify-identity"
ca = "/etc/weir/ca.pem"
cert = "/etc/weir/cert.pem"
key = "/etc/weir/key.pem"
[sink]
uri = "mysql://app@db"
password-file = "/run/secrets/sink"
[sink.tls]
mode = "verify-ca"
ca = "ca.pem"
cert = "cert.pem"
key = "key.pem"
[sink.mysql]
worker-count = 4
"#;

/// Each place of a password once more, at the other end.
const OTHER_PASSWORDS: &str = "id = \"a\"\n[source]\nuri = \"mysql://r@h\"\npassword-file = \"/x\"\n[sink]\nuri = \"mysql://w@h\"\npassword-env = \"X\"\n";

fn paths(table: &toml::Table, head: &str, out: &mut BTreeSet<String>) {
    for (key, value) in table {
        let path = if head.is_empty() {
            key.clone()
        } else {
            format!("{head}.{key}")
        };
        match value {
            // Keys of a library stand in it.
            toml::Value::Table(_) if path == crate::keys::OPEN_TABLE => {
                out.insert(path);
            }
            toml::Value::Table(inner) => paths(inner, &path, out),
            toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
                out.insert(path.clone());
                for item in items {
                    paths(item.as_table().unwrap(), &path, out);
                }
            }
            _ => {
                out.insert(path);
            }
        }
    }
}

#[test]
fn the_key_list_is_that_of_the_structs() {
    let mut found = BTreeSet::new();
    for text in [FULL, FULL_MYSQL, FULL_KAFKA, OTHER_PASSWORDS] {
        let changefeed = Changefeed::parse(text).unwrap();
        let written = toml::to_string(&changefeed).unwrap();
        paths(&written.parse().unwrap(), "", &mut found);
        assert_eq!(Changefeed::parse(&written).unwrap(), changefeed);
    }
    let listed: BTreeSet<String> = KEYS.iter().map(|k| (*k).to_owned()).collect();
    assert_eq!(found, listed);
}

fn repository(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::fs::read_to_string(format!("{root}/{path}")).unwrap()
}

#[test]
fn every_key_is_documented() {
    let page = repository("docs/configuration.md");
    for key in KEYS.iter().filter(|k| **k != "route") {
        assert!(
            page.contains(&format!("`{key}`")),
            "{key} is missing in docs/configuration.md"
        );
    }
}

/// Examples comment prose as `# text` and settings as `#key = value`.
fn uncommented(text: &str) -> String {
    let setting = |line: &str| {
        line.strip_prefix('#')
            .filter(|rest| rest.starts_with('[') || rest.starts_with(|c: char| c.is_ascii_lowercase()))
            .map_or_else(|| line.to_owned(), str::to_owned)
    };
    text.lines().map(setting).collect::<Vec<_>>().join("\n")
}

/// Keys that an example has no use for.
fn elsewhere(example: &str, key: &str) -> bool {
    let (source, sink) = example.split_once("-to-").unwrap();
    let of_servers = ["password-", "tls", "server-id", "heartbeat-interval"];
    let is = |end: &str| key.strip_prefix(end).and_then(|rest| rest.strip_prefix('.'));
    let source_key = is("source").is_some_and(|rest| match source {
        "files" => of_servers.iter().any(|name| rest.starts_with(name)),
        _ => rest.starts_with("follow"),
    });
    let sink_key = is("sink").is_some_and(|rest| {
        let server = of_servers.iter().any(|name| rest.starts_with(name));
        let of = |kind: &str, key: &str| rest.starts_with(key) && sink != kind;
        (server && !matches!(sink, "mysql" | "kafka"))
            || of("mysql", "mysql")
            || of("files", "file")
            || of("kafka", "kafka")
    });
    source_key || sink_key
}

#[test]
fn the_examples_are_complete_and_show_the_defaults() {
    for name in [
        "files-to-files",
        "files-to-blackhole",
        "files-to-mysql",
        "mysql-to-mysql",
        "mariadb-to-mysql",
        "mysql-to-kafka",
    ] {
        let text = repository(&format!("config/{name}.toml"));
        let short = Changefeed::parse(&text).unwrap();
        // Values without a default are shown by prose alone.
        let long = uncommented(&text);
        assert_eq!(
            Changefeed::parse(&long).unwrap_or_else(|e| panic!("{name}: {e}")),
            short,
            "{name}"
        );
        let mut found = BTreeSet::new();
        paths(&long.parse().unwrap(), "", &mut found);
        for key in KEYS
            .iter()
            .filter(|k| !k.starts_with("route") && !elsewhere(name, k))
        {
            let prose = format!("{} = ", key.rsplit('.').next().unwrap());
            let without_default = [
                "ca",
                "cert",
                "key",
                "password-file",
                "server-id",
                "case-sensitive",
                "ddl-topic",
                "replication-factor",
            ];
            let shown = found.contains(*key)
                || (without_default
                    .iter()
                    .any(|last| key.ends_with(&format!(".{last}")))
                    && text.contains(&format!("#     {prose}")));
            assert!(shown, "{key} is missing in config/{name}.toml");
        }
    }
}

#[test]
fn unknown_keys_name_path_place_and_nearest() {
    check_refused(
        "[flow-control]\nmemory_quota = \"1GiB\"",
        "WEIR-CFG-003",
        &[
            "`flow-control.memory_quota`",
            "line 7, column 1",
            "`flow-control.memory-quota`",
        ],
    );
    check_refused(
        "rotate-size = 5",
        "WEIR-CFG-003",
        &["`sink.rotate-size`", "`sink.file.rotate-size`"],
    );
    check_refused("[stor]\nx = 1", "WEIR-CFG-003", &["`stor`", "`store`"]);
    check_refused(
        "[[route]]\nmatch = \"a.b\"\ntarget-shema = \"x\"",
        "WEIR-CFG-003",
        &["`route[0].target-shema`", "`route.target-schema`"],
    );
    let (_, message) = refused(&format!("{MINIMAL}[zzz]\n"));
    assert!(!message.contains("nearest"), "{message}");
}

#[test]
fn wrong_values_name_path_value_and_place() {
    for (extra, parts) in [
        (
            "[flow-control]\nmemory-quota = \"12XB\"",
            ["`flow-control.memory-quota`", "12XB", "line 7, column 16"],
        ),
        (
            "[flow-control]\nmemory-quota = \"1MiB\"",
            ["`flow-control.memory-quota`", "1MiB", "at least 32MiB"],
        ),
        (
            "[flow-control]\nmemory-quota = true",
            ["`flow-control.memory-quota`", "`true`", "64MiB"],
        ),
        ("[store]\ndisk-quota = -1", ["`store.disk-quota`", "-1", "size"]),
        (
            "[store]\ndisk-quota = \"100MiB\"",
            ["`store.disk-quota`", "100MiB", "256MiB"],
        ),
        (
            "[sink.file]\nrotate-age = 30",
            ["`sink.file.rotate-age`", "`30`", "line 7"],
        ),
        (
            "[sink.file]\nenum-as = \"name\"",
            ["`sink.file.enum-as`", "name", "`index`"],
        ),
        (
            "[sink.file]\ntime-zone = \"Europe/Berlin\"",
            ["`sink.file.time-zone`", "Berlin", "+08:00"],
        ),
        (
            "[metrics]\nlisten = \"here\"",
            ["`metrics.listen`", "here", "127.0.0.1:9464"],
        ),
        (
            "[filter]\nrules = [\"a.*\", \"!b\"]",
            ["`filter.rules[1]`", "`\"!b\"`", "one dot"],
        ),
        (
            "[filter]\nrules = [\"!a.*\"]",
            ["`filter.rules`", "!a.*", "none would be"],
        ),
        (
            "[[route]]\nmatch = \"a.*\"",
            ["`route[0]`", "target-schema", "line 6"],
        ),
        (
            "[flow-control]\nmax-row-size = \"2GiB\"",
            ["`flow-control.max-row-size`", "2GiB", "max-event-size"],
        ),
        (
            "[source.follow]\npoll-interval = \"0s\"",
            ["`source.follow.poll-interval`", "0s", "at least"],
        ),
        (
            "[store]\nsegment-size = \"3GiB\"",
            ["`store.segment-size`", "3GiB", "at most"],
        ),
    ] {
        check_refused(extra, "WEIR-CFG-005", &parts);
    }
}

#[test]
fn wrong_ids_uris_and_starts() {
    for (from, to, part) in [
        ("\"orders\"", "\"a b\"", "letters"),
        ("\"orders\"", "\"\"", "letters"),
        (
            "binlog-files:///var/lib/mysql/",
            "binlog-files://here",
            "three slashes",
        ),
        (
            "binlog-files:///var/lib/mysql/",
            "/var/lib/mysql",
            "binlog-files:///folder",
        ),
        (
            "binlog-files:///var/lib/mysql/",
            "binlog-files:///x?indx=a",
            "`indx`",
        ),
        ("file:///var/lib/weir/out/", "file:///x?a=b", "`a`"),
        ("file:///var/lib/weir/out/", "blackhole://x", "no path"),
        (
            "file:///var/lib/weir/out/",
            "blackhole://?delay=5",
            "`delay` is a duration",
        ),
        (
            "file:///var/lib/weir/out/",
            "blackhole://?slow=5s",
            "`delay` and `stall`",
        ),
        ("file:///var/lib/weir/out/", "http://x", "blackhole://"),
    ] {
        let text = MINIMAL.replace(from, to);
        assert_ne!(text, MINIMAL);
        let (code, message) = refused(&text);
        assert_eq!(code, "WEIR-CFG-005", "{message}");
        assert!(message.contains(part), "{message}");
    }
    for start in [
        "now",
        "gtid:",
        "gtid:x",
        "file:a",
        "file:a:x",
        "file:a:3",
        "file:/a/b:4",
        "time:x",
    ] {
        let text = MINIMAL.replace("[sink]", &format!("start = \"{start}\"\n[sink]"));
        assert_eq!(refused(&text).0, "WEIR-CFG-005", "{start}");
    }
}

#[test]
fn what_this_build_has_not_says_so() {
    check_refused("[redo]\nx = 1", "WEIR-CFG-006", &["`redo`", "line 6"]);
}

#[test]
fn missing_keys_and_bad_toml() {
    assert_eq!(
        refused(""),
        ("WEIR-CFG-004".to_owned(), "key `id` is missing".to_owned())
    );
    let (code, message) = refused("id = \"a\"\n[source]\nuri = \"binlog-files:///x\"\n");
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("WEIR-CFG-004", "key `sink.uri` is missing")
    );
    check_refused(
        "[[route]]\ntarget-schema = \"x\"",
        "WEIR-CFG-004",
        &["`route[0].match`"],
    );
    let (code, message) = refused("id = \"a\n");
    assert_eq!(code, "WEIR-CFG-002");
    assert!(message.contains("line 1"), "{message}");
    check_refused("[sink]\n", "WEIR-CFG-002", &["line 6", "duplicate"]);
    assert_eq!(
        Changefeed::load("/no/such/file".as_ref()).unwrap_err().code(),
        "WEIR-CFG-001"
    );
}

#[test]
fn until() {
    for text in [
        "caught-up",
        "file:bin.000001:400",
        "gtid:0-1-5",
        "time:2026-11-30T12:00:00Z",
    ] {
        assert_eq!(text.parse::<Until>().unwrap().to_string(), text);
    }
    for text in ["", "latest", "earliest", "tomorrow", "file:x"] {
        let error = text.parse::<Until>().unwrap_err();
        assert_eq!(error.code(), "WEIR-CFG-007");
        assert!(error.to_string().starts_with("`--until` is `"), "{error}");
    }
}

#[test]
fn the_memory_plan_is_the_whole_quota() {
    assert_eq!(
        MemoryPlan::from_quota(ByteSize(MEMORY_QUOTA_MIN.bytes() - 1)),
        None
    );
    for mib in [32, 64, 100, 512, 100_000] {
        let quota = ByteSize(ByteSize::mib(mib).bytes() + 7);
        let p = MemoryPlan::from_quota(quota).unwrap();
        let sum =
            p.transaction_buffer + p.store_in_flight + p.store_tail + p.store_index + p.changefeed_queue;
        assert_eq!(sum, quota.bytes());
        assert!(p.store_index >= 2 << 20 && p.changefeed_queue >= 10 << 20);
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        prop_assert!(Changefeed::parse(&text).is_err());
    }

    #[test]
    fn no_damage_to_a_file_makes_the_parser_panic(at in 0..FULL.len(), c in any::<char>()) {
        let text: String = FULL.char_indices().map(|(i, old)| if i == at { c } else { old }).collect();
        if let Err(error) = Changefeed::parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
