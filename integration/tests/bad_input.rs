//! Wrong input is one clear error with a code and the right exit status.

use std::path::Path;

use weir_integration::command::{RUN_LIMIT, Running};
use weir_integration::{Changefeed, Finished, Output, Recording};

const USAGE: i32 = 2;
const DEFINITE: i32 = 3;

fn run_file(text: &[u8]) -> Finished {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("feed.toml");
    std::fs::write(&file, text).unwrap();
    let arguments = [
        "run",
        &file.to_string_lossy(),
        "--until",
        "caught-up",
        "--output",
        "json",
    ];
    Running::start(&arguments, dir.path())
        .unwrap()
        .finish(RUN_LIMIT)
        .unwrap()
}

#[test]
fn a_wrong_command_line_is_status_2() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["run"][..],
        &["walk"],
        &["run", "a.toml", "--unti", "caught-up"],
        &["quickstart", "--dir"],
    ] {
        let finished = Running::start(arguments, dir.path())
            .unwrap()
            .finish(RUN_LIMIT)
            .unwrap();
        finished.assert_code(USAGE);
        assert!(
            finished.stdout.is_empty(),
            "text errors belong on stderr: {}",
            finished.stdout
        );
        assert!(!finished.stderr.is_empty());
    }
}

#[test]
fn malformed_toml_is_status_2() {
    let texts: [&[u8]; 6] = [
        b"id = \"a",
        b"id = \"a\"\n[source\nuri = 1\n",
        b"\xff\xfe\x00",
        b"",
        b"id = \"a\"\nid = \"b\"\n",
        b"id = \"a\"\n[source]\nuri = 7\n[sink]\nuri = \"blackhole://\"\n",
    ];
    for text in texts {
        let finished = run_file(text);
        finished.assert_code(USAGE);
        finished.error();
    }
}

#[test]
fn unknown_keys_name_path_and_nearest_key() {
    let base = "id = \"a\"\n[source]\nuri = \"binlog-files:///nowhere\"\n[sink]\nuri = \"blackhole://\"\n";
    for (more, path, nearest) in [
        (
            "[flow-control]\nmemory-qota = \"64MiB\"\n",
            "flow-control.memory-qota",
            "memory-quota",
        ),
        (
            "[store]\ndisk_quota = \"1GiB\"\n",
            "store.disk_quota",
            "disk-quota",
        ),
        ("[metric]\nlisten = \"\"\n", "metric", "metrics"),
    ] {
        let finished = run_file(format!("{base}{more}").as_bytes());
        finished.assert_code(USAGE);
        let (_, message) = finished.error();
        let all = format!("{message} {}", finished.stdout);
        assert!(all.contains(path) && all.contains(nearest), "{all}");
    }
}

#[test]
fn values_out_of_range_are_status_2() {
    let base = "id = \"a\"\n[source]\nuri = \"binlog-files:///nowhere\"\n[sink]\nuri = \"blackhole://\"\n";
    for more in [
        "[flow-control]\nmemory-quota = \"1KiB\"\n",
        "[flow-control]\nmemory-quota = \"many\"\n",
        "[store]\ndisk-quota = -5\n",
        "[filter]\nrules = [\"nodot\"]\n",
    ] {
        let finished = run_file(format!("{base}{more}").as_bytes());
        finished.assert_code(USAGE);
        finished.error();
    }
}

#[test]
fn a_missing_changefeed_file_is_status_2() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["run", "no-such.toml", "--output", "json"];
    let finished = Running::start(&arguments, dir.path())
        .unwrap()
        .finish(RUN_LIMIT)
        .unwrap();
    finished.assert_code(USAGE);
    finished.error();
}

#[test]
fn a_missing_source_folder_is_a_definite_error() {
    let dir = tempfile::tempdir().unwrap();
    let feed = Changefeed::to_files(&dir.path().join("nowhere"), "").unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(DEFINITE);
    let (_, message) = finished.error();
    assert!(message.contains("nowhere"), "{message}");
}

#[test]
fn a_folder_without_binlogs_is_a_definite_error() {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("readme.txt"), "nothing").unwrap();
    let feed = Changefeed::to_files(source.path(), "").unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(DEFINITE);
    finished.error();
}

#[test]
fn a_file_that_is_no_binlog_is_a_definite_error() {
    for start in [
        &b"not a binlog at all"[..],
        b"",
        b"\xfe",
        b"\xfd\x62\x69\x6e encrypted",
    ] {
        let source = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join("binlog.000001"), start).unwrap();
        let feed = Changefeed::to_files(source.path(), "").unwrap();
        let finished = feed.catch_up().unwrap();
        // A file without a byte is one that the server is about to write.
        if start.is_empty() {
            assert!([0, DEFINITE].contains(&finished.code()), "{}", finished.status);
        } else {
            finished.assert_code(DEFINITE);
            finished.error();
        }
    }
}

/// After the folder is there, the same state goes on.
#[test]
fn a_repaired_source_goes_on() {
    let recording = Recording::open("mysql-9.7-xa").unwrap();
    let source = tempfile::tempdir().unwrap();
    let folder = source.path().join("binlogs");
    let feed = Changefeed::to_files(&folder, "").unwrap();
    assert_ne!(feed.catch_up().unwrap().code(), 0);
    std::fs::create_dir(&folder).unwrap();
    copy(&recording, &folder);
    feed.catch_up().unwrap().assert_ok();
    assert_eq!(Output::read(&feed.out).unwrap().tables, recording.tables);
}

/// What this build does not understand stops with an error that says what; nothing is skipped.
#[test]
fn binlogs_that_are_not_understood_are_definite_errors() {
    for (name, wanted) in [
        ("statement-format", "statement"),
        ("minimal-metadata", "binlog_row_metadata"),
        ("partial-json", "json"),
    ] {
        let recording = Recording::refused(name).unwrap();
        let feed = Changefeed::to_files(&recording.folder, "").unwrap();
        let finished = feed.catch_up().unwrap();
        finished.assert_code(DEFINITE);
        finished.error();
        let said = finished.stdout.to_lowercase();
        assert!(said.contains(wanted), "{name}: {said}");
    }
}

/// A missing file in the middle is a gap, never skipped.
#[test]
fn a_missing_file_in_the_middle_is_a_definite_error() {
    let recording = Recording::open("quickstart").unwrap();
    let source = tempfile::tempdir().unwrap();
    copy(&recording, source.path());
    std::fs::remove_file(source.path().join("binlog.000002")).unwrap();
    let feed = Changefeed::to_files(source.path(), "").unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(DEFINITE);
    finished.error();
    let partial = Output::read(&feed.out).unwrap();
    copy(&recording, source.path());
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert!(partial.is_prefix_of(&output));
    assert_eq!(output.tables, recording.tables);
}

/// What a changefeed has behind it would be missing in a new output without a word.
#[test]
fn an_output_that_is_gone_is_a_definite_error() {
    let recording = Recording::open("mysql-9.7-xa").unwrap();
    let mut feed = Changefeed::to_files(&recording.folder, "").unwrap();
    feed.catch_up().unwrap().assert_ok();
    let moved = feed.dir.path().join("moved");
    std::fs::rename(&feed.out, &moved).unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(DEFINITE);
    assert_eq!(finished.error().0, "WEIR-SNK-014");
    assert!(!feed.out.exists());
    feed.set_out(&moved).unwrap();
    feed.catch_up().unwrap().assert_ok();
    assert_eq!(Output::read(&feed.out).unwrap().tables, recording.tables);
}

fn copy(recording: &Recording, folder: &Path) {
    for file in recording.files().unwrap() {
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
}
