//! Runs the built command: streams, exit statuses, errors as text and JSON.

#![allow(clippy::unwrap_used)] // a failed helper is a failed test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must fail with `code` and `status`, in both forms.
fn check_failure(args: &[&str], code: &str, status: i32) -> String {
    let plain = weir(args);
    let stderr = text(&plain.stderr);
    assert_eq!(plain.status.code(), Some(status), "{args:?}: {stderr}");
    assert_eq!(text(&plain.stdout), "", "{args:?}");
    assert!(!stderr.is_empty(), "{args:?}");
    let mut with_json = args.to_vec();
    with_json.extend(["--output", "json"]);
    let json = weir(&with_json);
    assert_eq!(json.status.code(), Some(status));
    let stdout = text(&json.stdout);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["error"]["code"], code, "{args:?}: {stdout}");
    assert!(!answer["error"]["action"].as_str().unwrap().is_empty());
    assert_eq!(stdout.lines().count(), 1);
    answer["error"]["message"].as_str().unwrap().to_owned()
}

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn changefeed(&self, source: &Path, extra: &str) -> String {
        let content = format!(
            "id = \"test\"\n[source]\nuri = \"binlog-files://{}\"\n[sink]\nuri = \"file://{}\"\n{extra}\n",
            source.display(),
            self.path("out").display(),
        );
        fs::write(self.path("feed.toml"), content).unwrap();
        self.arg("feed.toml")
    }
}

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../integration/data")
        .join(name)
}

#[test]
fn help_and_version_are_results() {
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let output = weir(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
    let help = text(&weir(&["--help"]).stdout);
    for command in ["quickstart", "run", "check", "binlog"] {
        assert!(help.contains(command), "{command}");
    }
}

#[test]
fn wrong_command_lines_have_status_2() {
    let message = check_failure(&["run"], "WEIR-CLI-001", 2);
    assert!(message.contains("<FILE>"), "{message}");
    check_failure(&["run", "a.toml", "--nope"], "WEIR-CLI-001", 2);
    check_failure(&["binlog"], "WEIR-CLI-001", 2);
    let message = check_failure(&["fly"], "WEIR-CLI-001", 2);
    assert!(message.contains("fly"), "{message}");
    check_failure(&["binlog", "stat", "x", "--log-level", "loud"], "WEIR-CLI-002", 2);
    let output = weir(&["run", "a.toml", "--output=yaml"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn wrong_changefeed_files_have_status_2() {
    let files = Files::new();
    check_failure(&["run", "/no/such/file.toml"], "WEIR-CFG-001", 2);
    let feed = files.changefeed(Path::new("/x"), "[flow-control]\nmemory_quota = \"1GiB\"");
    for command in ["run", "check"] {
        let message = check_failure(&[command, &feed], "WEIR-CFG-003", 2);
        assert!(message.contains("`flow-control.memory-quota`"), "{message}");
    }
    fs::write(files.path("bad.toml"), "id = ").unwrap();
    check_failure(&["check", &files.arg("bad.toml")], "WEIR-CFG-002", 2);
    let feed = files.changefeed(Path::new("/x"), "");
    check_failure(&["run", &feed, "--until", "tomorrow"], "WEIR-CFG-007", 2);
}

#[test]
fn quickstart_refuses_a_folder_that_is_not_its_own() {
    let files = Files::new();
    fs::write(files.path("mine"), "x").unwrap();
    let dir = files.dir.path().to_str().unwrap();
    check_failure(&["quickstart", "--dir", dir], "WEIR-CLI-007", 2);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
}

#[test]
fn servers_that_are_not_there() {
    let files = Files::new();
    let data = files.arg("data");
    let write = |source: &str| {
        // Port 1 of this machine: nobody listens there.
        let content = format!(
            "id = \"test\"\n[source]\nuri = \"mysql://u:topsecret@127.0.0.1:1\"\n{source}[sink]\nuri = \"mysql://u@127.0.0.1:1\"\n[metrics]\nlisten = \"\"\n[store]\ndisk-quota = \"8MiB\"\nsegment-size = \"2MiB\"\n"
        );
        fs::write(files.path("feed.toml"), content).unwrap();
        files.arg("feed.toml")
    };
    let feed = write("");
    let run = ["run", &feed, "--data-dir", &data, "--connect-timeout", "200ms"];
    let message = check_failure(&run, "WEIR-WIR-001", 1);
    assert!(message.contains("127.0.0.1:1"), "{message}");
    let wrong = ["run", &feed, "--connect-timeout", "5"];
    assert!(check_failure(&wrong, "WEIR-CLI-001", 2).contains("connect-timeout"));

    let output = weir(&["check", &feed, "--data-dir", &data, "--output", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{answer:#}");
    let failed = |end: &str| {
        let checks = answer["checks"].as_array().unwrap();
        checks.iter().any(|c| c["end"] == end && c["ok"] == false)
    };
    assert!(
        failed("source") && failed("sink") && !failed("state"),
        "{answer:#}"
    );
    assert!(!text(&output.stdout).contains("topsecret"));
    let shown = weir(&["check", &feed, "--data-dir", &data]);
    assert!(text(&shown.stdout).contains("not copied yet"));
    assert!(!text(&shown.stdout).contains("topsecret"));

    let feed = write("password-env = \"WEIR_NO_SUCH_VARIABLE\"\n");
    check_failure(&["check", &feed], "WEIR-CFG-005", 2);
}

#[test]
fn check_passes_on_a_recording() {
    let files = Files::new();
    let data = files.arg("data");
    for name in ["quickstart", "mariadb-10.11", "mysql-9.7-compressed"] {
        let feed = files.changefeed(
            &recording(name),
            "[store]\ndisk-quota = \"8MiB\"\nsegment-size = \"2MiB\"",
        );
        let output = weir(&["check", &feed, "--data-dir", &data, "--output", "json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {answer:#}");
        assert_eq!(answer["ok"], true);
        let ends: Vec<&str> = answer["checks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["end"].as_str().unwrap())
            .collect();
        for end in ["source", "sink", "state"] {
            assert!(ends.contains(&end), "{end}");
        }
    }
    let text = text(&weir(&["check", &files.arg("feed.toml"), "--data-dir", &data]).stdout);
    assert!(text.contains("checks passed"), "{text}");
    assert!(
        !files.path("data").exists(),
        "check must not make the state folder"
    );
}

#[test]
fn failed_checks_have_status_1_and_are_a_result() {
    let files = Files::new();
    let data = files.arg("data");
    let failed = |feed: &str| -> Vec<String> {
        let output = weir(&["check", feed, "--data-dir", &data, "--output", "json"]);
        assert_eq!(output.status.code(), Some(1));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = answer["checks"].as_array().unwrap().iter();
        checks
            .filter(|c| c["ok"] == false)
            .map(|c| c["setting"].as_str().unwrap().to_owned())
            .collect()
    };
    let quota = "[store]\ndisk-quota = \"8MiB\"\nsegment-size = \"2MiB\"";
    assert_eq!(
        failed(&files.changefeed(Path::new("/no/such/folder"), quota)),
        ["source.uri"]
    );
    let source = recording("quickstart");
    let huge = "[store]\ndisk-quota = \"8000000TiB\"";
    assert_eq!(failed(&files.changefeed(&source, huge)), ["store.disk-quota"]);
    fs::create_dir(files.path("out")).unwrap();
    fs::write(files.path("out").join("mine"), "").unwrap();
    assert_eq!(failed(&files.changefeed(&source, quota)), ["id"]);
    fs::write(files.path("out").join("_weir.json"), r#"{"changefeed":"other"}"#).unwrap();
    assert_eq!(failed(&files.changefeed(&source, quota)), ["id"]);
    fs::write(files.path("out").join("_weir.json"), r#"{"changefeed":"test"}"#).unwrap();
    assert_eq!(
        failed(&files.changefeed(&source, quota)),
        ["id"],
        "the store is gone"
    );
    let plain = weir(&["check", &files.arg("feed.toml"), "--data-dir", &data]);
    assert!(text(&plain.stdout).contains("FAILED"));
    fs::create_dir(files.path("data")).unwrap();
    fs::write(files.path("data").join("store"), "x").unwrap();
    let output = weir(&["check", &files.arg("feed.toml"), "--data-dir", &data]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

/// Counts by `mysqlbinlog -vv`, checked in beside each recording.
fn expected(name: &str) -> Value {
    let text = fs::read_to_string(recording(name).join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// All recordings whose rows all commit.
fn recordings() -> Vec<String> {
    let dir = recording("");
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| expected(name)["xa-rollbacks"] == 0).collect();
    names.sort();
    names
}

#[test]
fn stat_counts_as_mysqlbinlog_does() {
    let names = recordings();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let output = weir(&[
            "binlog",
            "stat",
            recording(&name).to_str().unwrap(),
            "--output",
            "json",
        ]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        let stat: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = expected(&name);
        for key in ["rows", "inserts", "updates", "deletes", "transactions"] {
            assert_eq!(stat[key], expected[key], "{name}: {key}");
        }
        for table in stat["tables"].as_array().unwrap() {
            let wanted = &expected["tables"][table["table"].as_str().unwrap()];
            for (ours, theirs) in [
                ("inserts", "insert"),
                ("updates", "update"),
                ("deletes", "delete"),
            ] {
                assert_eq!(table[ours], wanted[theirs], "{name}: {table}");
            }
        }
        let compressed = stat["compressed-bytes"].as_u64().unwrap() > 0;
        assert_eq!(compressed, name.ends_with("compressed"), "{name}");
        let files = expected["files"].as_array().unwrap();
        let length: u64 = files.iter().map(|f| f["bytes"].as_u64().unwrap()).sum();
        // Every byte but the magic numbers belongs to an event.
        assert_eq!(stat["bytes"].as_u64().unwrap() + 4 * files.len() as u64, length);
    }
}

#[test]
fn a_source_is_a_file_a_folder_or_a_uri() {
    let dir = recording("mysql-9.7");
    let stat = |source: &str| -> Value {
        let output = weir(&["binlog", "stat", source, "--output", "json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let folder = stat(dir.to_str().unwrap());
    let uri = stat(&format!(
        "binlog-files://{}?index=binlog.index",
        dir.canonicalize().unwrap().display()
    ));
    assert_eq!(folder, uri);
    let file = stat(dir.join("binlog.000002").to_str().unwrap());
    assert_eq!(file["files"], serde_json::json!(["binlog.000002"]));
    let plain = text(&weir(&["binlog", "stat", dir.to_str().unwrap()]).stdout);
    assert!(
        plain.contains("WRITE_ROWS_EVENT") && plain.contains("inserts"),
        "{plain}"
    );
    check_failure(&["binlog", "stat", "/no/such/folder"], "WEIR-CLI-011", 2);
    check_failure(&["binlog", "stat", "mysql://u:p@h"], "WEIR-CLI-014", 2);
    check_failure(&["binlog", "stat", env!("CARGO_MANIFEST_DIR")], "WEIR-BIN-012", 3);
    check_failure(
        &[
            "binlog",
            "cat",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ],
        "WEIR-BIN-009",
        3,
    );
}

#[test]
fn damaged_files_name_file_and_offset() {
    let files = Files::new();
    let whole = fs::read(recording("mysql-9.7-tagged").join("binlog.000001")).unwrap();
    let damaged = files.arg("binlog.000001");
    fs::write(&damaged, &whole[..whole.len() - 5]).unwrap();
    let message = check_failure(&["binlog", "stat", &damaged], "WEIR-CLI-013", 3);
    assert!(message.contains("`binlog.000001`"), "{message}");
    let mut flipped = whole;
    let at = flipped.len() - 60;
    flipped[at] ^= 1;
    fs::write(&damaged, &flipped).unwrap();
    let output = weir(&["binlog", "stat", &damaged]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("`binlog.000001` at offset") && stderr.contains("WEIR-BIN-"),
        "{stderr}"
    );
}

#[test]
fn cat_prints_events_and_no_values_unless_asked() {
    let dir = recording("mysql-9.7-compressed");
    let dir = dir.to_str().unwrap();
    let plain = text(&weir(&["binlog", "cat", dir]).stdout);
    assert!(
        plain.contains("binlog.000001:4 FORMAT_DESCRIPTION_EVENT"),
        "{plain}"
    );
    assert!(plain.contains("+ WRITE_ROWS_EVENT"), "inner events are marked");
    let json = text(&weir(&["binlog", "cat", dir, "--output", "json"]).stdout);
    let events: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events.len(), plain.lines().count());
    let rows: u64 = events.iter().filter_map(|e| e["rows"].as_u64()).sum();
    assert_eq!(Value::from(rows), expected("mysql-9.7-compressed")["rows"]);
    assert!(events.iter().all(|e| e.get("sql").is_none()));

    let output = weir(&["binlog", "cat", dir, "--rows", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let lines: Vec<Value> = shown.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(
        lines.iter().filter(|l| l.get("data").is_some()).count() as u64,
        rows
    );
    assert!(lines.iter().any(|l| l.get("sql").is_some()));
}

#[test]
fn a_closed_pipe_is_no_error() {
    use std::io::Read as _;
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["binlog", "cat", recording("quickstart").to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
