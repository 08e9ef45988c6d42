//! Folders of binlog files in every state that they can be found in.

mod model;

use std::fs;
use std::path::{Path, PathBuf};

use model::{Model, Txn, options, read};
use weir_source::files::{End, FilesOptions, FilesReader, Progress, StartAt, StopAt};
use weir_source::{AssemblerOptions, Skip, SourceError};
use weir_types::{AttemptId, Classified, ErrorReport, SourceIdentity};

const BUFFER: usize = 1 << 20;

fn recording(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../integration/data")
        .join(name)
}

/// A copy of a recording that a test may spoil.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(recording(name)).expect("the recording") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a copy");
    }
    folder
}

fn set_index(folder: &Path, names: &[&str]) {
    fs::write(folder.join("binlog.index"), names.join("\n")).expect("the index");
}

fn run(options: FilesOptions, model: &mut Model) -> Result<End, SourceError> {
    read(options, &["*.*"], BUFFER, model, usize::MAX)
}

fn whole(name: &str) -> Vec<Txn> {
    let mut model = Model::default();
    run(options(&recording(name)), &mut model).expect("a whole recording");
    model.txns
}

fn code(result: Result<End, SourceError>) -> &'static str {
    match result {
        Ok(End::Cut(error)) | Err(error) => error.code(),
        Ok(end) => panic!("ended as {end:?}"),
    }
}

#[test]
fn a_cut_last_file_gives_everything_whole_and_goes_on_when_it_is_repaired() {
    let (mut cuts, mut ends) = (0, 0);
    for name in [
        "mysql-9.7-xa",
        "mariadb-11.8-xa",
        "mysql-9.7-tagged",
        "mariadb-10.11-xa",
    ] {
        let all = whole(name);
        let folder = copy(name);
        let last = if name == "mysql-9.7-tagged" {
            "binlog.000002"
        } else {
            "binlog.000003"
        };
        let path = folder.path().join(last);
        let bytes = fs::read(&path).expect("the file");
        let step = if name == "mysql-9.7-tagged" { 1 } else { 5 };
        for length in (0..bytes.len()).step_by(step) {
            fs::write(&path, &bytes[..length]).expect("a cut file");
            let mut model = Model::default();
            match run(options(folder.path()), &mut model) {
                Ok(End::Reached) => ends += 1,
                Ok(End::Cut(error)) => {
                    assert!(["WEIR-SRC-014", "WEIR-SRC-015"].contains(&error.code()));
                    cuts += 1;
                }
                other => panic!("{name} cut at {length}: {other:?}"),
            }
            assert!(
                model.txns[..] == all[..model.txns.len()],
                "{name} cut at {length}"
            );
            fs::write(&path, &bytes).expect("the whole file");
            model.crash();
            let end = run(options(folder.path()), &mut model);
            assert!(matches!(end, Ok(End::Reached)), "{name} cut at {length}: {end:?}");
            assert!(model.txns == all, "{name} repaired after a cut at {length}");
        }
    }
    assert!(cuts > 1_000 && ends >= 5, "{cuts} cuts, {ends} ends");
}

#[test]
fn a_flipped_byte_is_an_error_or_means_nothing() {
    for (name, file) in [
        ("mysql-9.7-xa", "binlog.000003"),
        ("mariadb-11.8-xa", "binlog.000003"),
        ("mysql-9.7-xa", "binlog.000002"),
        ("mariadb-10.11-xa", "binlog.000002"),
    ] {
        let all = whole(name);
        let folder = copy(name);
        let path = folder.path().join(file);
        let bytes = fs::read(&path).expect("the file");
        let mut unnoticed = 0;
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0xff;
            fs::write(&path, &flipped).expect("a flipped file");
            let mut model = Model::default();
            match run(options(folder.path()), &mut model) {
                Ok(End::Reached) => {
                    assert!(model.txns == all, "{name}/{file} flipped at {at} loses something");
                    unnoticed += 1;
                }
                Ok(End::Cut(error)) | Err(error) => {
                    let report = ErrorReport::new(&error);
                    assert!(report.code.starts_with("WEIR-") && !report.action.is_empty());
                    assert!(
                        model.txns[..] == all[..model.txns.len()],
                        "{name}/{file} flipped at {at}"
                    );
                }
                Ok(End::Refused) => panic!("nothing was refused"),
            }
        }
        assert!(unnoticed <= 2, "{name}/{file}: {unnoticed} flips unnoticed");
    }
}

#[test]
fn a_cut_file_in_the_middle_is_an_error() {
    for name in ["mysql-9.7-xa", "mariadb-11.8-xa"] {
        let all = whole(name);
        let folder = copy(name);
        let path = folder.path().join("binlog.000002");
        let bytes = fs::read(&path).expect("the file");
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).expect("a cut file");
            let mut model = Model::default();
            let result = run(options(folder.path()), &mut model);
            let code = code(result);
            assert!(
                ["WEIR-SRC-014", "WEIR-SRC-015"].contains(&code),
                "{name} cut at {length}: {code}"
            );
            assert!(
                model.txns[..] == all[..model.txns.len()],
                "{name} cut at {length}"
            );
        }
    }
}

#[test]
fn a_missing_file_is_an_error() {
    let folder = copy("mysql-9.7-xa");
    let mut model = Model::default();
    set_index(folder.path(), &["./binlog.000001", "./binlog.000003"]);
    assert_eq!(code(run(options(folder.path()), &mut model)), "WEIR-SRC-010");
    fs::remove_file(folder.path().join("binlog.000002")).expect("removed");
    let scan = FilesOptions {
        index: None,
        ..options(folder.path())
    };
    assert_eq!(code(run(scan, &mut Model::default())), "WEIR-SRC-010");
    let none = tempfile::tempdir().expect("a folder");
    let scan = FilesOptions {
        index: None,
        ..options(none.path())
    };
    assert_eq!(code(run(scan, &mut Model::default())), "WEIR-BIN-012");
    let gone = FilesOptions {
        folder: none.path().join("gone"),
        ..options(none.path())
    };
    assert_eq!(code(run(gone, &mut Model::default())), "WEIR-BIN-011");
}

#[test]
fn a_purged_first_file_is_no_obstacle_if_the_transactions_fit() {
    for name in ["mysql-9.7", "mariadb-11.8"] {
        let all = whole(name);
        let folder = copy(name);
        set_index(folder.path(), &["binlog.000001", "binlog.000002"]);
        let mut model = Model::default();
        run(options(folder.path()), &mut model).expect(name);
        let before = model.clone();
        set_index(folder.path(), &["binlog.000002", "binlog.000003"]);
        run(options(folder.path()), &mut model).expect(name);
        assert!(model.txns == all, "{name}");
        let identity = |model: &Model| model.position.clone().expect("a position").identity;
        assert_eq!(identity(&model), identity(&before), "it stays what the store has");
        // A later file only: what lies between is gone.
        set_index(folder.path(), &["binlog.000003"]);
        assert_eq!(
            code(run(options(folder.path()), &mut before.clone())),
            "WEIR-SRC-010"
        );
    }
}

#[test]
fn another_servers_files_are_refused() {
    let mut model = Model::default();
    run(options(&recording("mysql-9.7")), &mut model).expect("a whole recording");
    let result = run(options(&recording("mysql-9.7-compressed")), &mut model);
    assert_eq!(code(result), "WEIR-SRC-012");
    let mut model = Model::default();
    run(options(&recording("mariadb-11.8")), &mut model).expect("a whole recording");
    let result = run(options(&recording("mariadb-10.11")), &mut model);
    assert_eq!(code(result), "WEIR-SRC-012");
}

#[test]
fn starts_that_are_not_there_say_so() {
    let folder = recording("mysql-9.7");
    let from = |start| FilesOptions {
        start,
        ..options(&folder)
    };
    let file = |name: &str, offset| StartAt::File {
        name: name.to_owned(),
        offset,
    };
    let cases = [
        (file("binlog.000009", 4), "WEIR-SRC-010"),
        (file("binlog.000001", 1 << 40), "WEIR-SRC-013"),
    ];
    for (start, expected) in cases {
        assert_eq!(
            code(run(from(start.clone()), &mut Model::default())),
            expected,
            "{start:?}"
        );
    }
    let all = whole("mysql-9.7");
    let end = all[3].end_offset;
    let mut model = Model::default();
    run(from(file("binlog.000001", end)), &mut model).expect("behind the fourth transaction");
    assert_eq!(model.txns.len(), all.len() - 4);
    // In the middle of an event; behind the GTID of the next transaction.
    let bytes = std::fs::read(folder.join("binlog.000001")).unwrap();
    let length_at = usize::try_from(end).unwrap() + 9;
    let length: [u8; 4] = bytes[length_at..length_at + 4].try_into().unwrap();
    for offset in [end + 3, end - 1, end + u64::from(u32::from_le_bytes(length))] {
        let refused = run(from(file("binlog.000001", offset)), &mut Model::default());
        assert_eq!(code(refused), "WEIR-SRC-013", "{offset}");
    }
    let set = weir_types::GtidSet::default();
    set_index_of_a_later_start(&set);
}

/// A set that lacks what the first file's list says was before it.
fn set_index_of_a_later_start(set: &weir_types::GtidSet) {
    let folder = copy("mysql-9.7");
    set_index(folder.path(), &["binlog.000002", "binlog.000003"]);
    let from = FilesOptions {
        start: StartAt::Gtids(set.clone()),
        ..options(folder.path())
    };
    assert_eq!(code(run(from, &mut Model::default())), "WEIR-SRC-011");
}

fn settings() -> AssemblerOptions {
    AssemblerOptions {
        filter: std::sync::Arc::new(weir_filter::TableFilter::all(weir_filter::NameCase::Sensitive)),
        known: Vec::new(),
        next_attempt: AttemptId(1),
        transaction_buffer_bytes: BUFFER,
        event_bytes_max: 1 << 20,
        skip: Skip::Nothing,
    }
}

fn follower(folder: &Path, start: StartAt) -> FilesReader {
    let assembler = settings();
    let options = FilesOptions {
        start,
        stop: None,
        index: None,
        ..options(folder)
    };
    FilesReader::open(options, assembler).expect("a folder to follow")
}

fn until_dry(reader: &mut FilesReader, model: &mut Model) {
    loop {
        let progress = reader.step(0, &mut |inputs, _| {
            inputs.into_iter().for_each(|input| model.append(input));
            true
        });
        match progress.expect("no error") {
            Progress::More => {}
            Progress::Dry => return,
            Progress::Ended(end) => panic!("a follower does not end: {end:?}"),
        }
    }
}

#[test]
fn files_are_followed_while_they_grow() {
    for name in ["mysql-9.7-tagged", "mariadb-11.8-xa"] {
        let all = whole(name);
        let folder = tempfile::tempdir().expect("a folder");
        let source = recording(name);
        let mut files: Vec<_> = fs::read_dir(&source)
            .expect("the recording")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("a name")
            })
            .filter(|file| file.starts_with("binlog.0"))
            .collect();
        files.sort();
        let mut reader = None;
        let mut model = Model::default();
        for file in files {
            let bytes = fs::read(source.join(&file)).expect("the file");
            let mut at = 0;
            while at < bytes.len() {
                at = (at + 37).min(bytes.len());
                fs::write(folder.path().join(&file), &bytes[..at]).expect("a growing file");
                if at > 300 {
                    let reader = reader.get_or_insert_with(|| follower(folder.path(), StartAt::Earliest));
                    until_dry(reader, &mut model);
                    assert!(model.txns[..] == all[..model.txns.len()]);
                }
            }
        }
        assert!(model.txns == all, "{name}");
        let position = model.position.expect("a position");
        assert!(matches!(position.identity, SourceIdentity::Digest(_)));
    }
}

#[test]
fn a_start_at_the_end_takes_what_comes_later_and_remembers_the_place() {
    let name = "mysql-9.7-tagged";
    let all = whole(name);
    let folder = copy(name);
    let (first, second) = (
        folder.path().join("binlog.000001"),
        folder.path().join("binlog.000002"),
    );
    let bytes = fs::read(&first).expect("the file");
    let rest = fs::read(&second).expect("the file");
    fs::remove_file(&second).expect("removed");
    // The server is inside the sixth transaction.
    let cut = usize::try_from(all[5].end_offset).expect("small") - 10;
    fs::write(&first, &bytes[..cut]).expect("a growing file");
    let mut reader = follower(folder.path(), StartAt::Latest);
    let mut model = Model::default();
    until_dry(&mut reader, &mut model);
    assert_eq!((model.txns.len(), model.ticks), (0, 1));
    assert_eq!(model.position.as_ref().map(|p| p.offset), Some(all[4].end_offset));
    fs::write(&first, &bytes).expect("a growing file");
    fs::write(&second, &rest).expect("the next file");
    until_dry(&mut reader, &mut model);
    let gtids = |txns: &[Txn]| txns.iter().map(|txn| txn.gtid.clone()).collect::<Vec<_>>();
    assert_eq!(gtids(&model.txns), gtids(&all[5..]));
}

#[test]
fn a_run_ends_at_what_was_there_at_its_start() {
    let name = "mysql-9.7-tagged";
    let all = whole(name);
    let folder = copy(name);
    let path = folder.path().join("binlog.000002");
    let rest = fs::read(&path).expect("the file");
    fs::remove_file(&path).expect("removed");
    set_index(folder.path(), &["binlog.000001"]);
    let mut model = Model::default();
    let mut written = false;
    let assembler = settings();
    let mut reader = FilesReader::open(options(folder.path()), assembler).expect("a folder");
    fs::write(&path, &rest).expect("a new file");
    set_index(folder.path(), &["binlog.000001", "binlog.000002"]);
    loop {
        let progress = reader.step(0, &mut |inputs, _| {
            written = true;
            inputs.into_iter().for_each(|input| model.append(input));
            true
        });
        if let Progress::Ended(End::Reached) = progress.expect("no error") {
            break;
        }
    }
    let position = model.position.expect("a position");
    assert!(written && model.txns.len() < all.len());
    assert!(model.txns[..] == all[..model.txns.len()]);
    assert_eq!((&*position.file, position.offset), ("binlog.000002", 4));
}

#[test]
fn times_start_and_end_a_run() {
    let name = "mysql-9.7";
    let all = whole(name);
    let mut model = Model::default();
    let far = FilesOptions {
        start: StartAt::Time(0),
        stop: Some(StopAt::Time(u64::MAX - 1)),
        ..options(&recording(name))
    };
    assert!(matches!(run(far, &mut model), Ok(End::Reached)));
    assert_eq!(model.txns.len(), all.len());
    let mut model = Model::default();
    let none = FilesOptions {
        start: StartAt::Time(u64::MAX),
        ..options(&recording(name))
    };
    assert!(matches!(run(none, &mut model), Ok(End::Reached)));
    assert!(model.txns.is_empty() && model.position.is_none());
    let mut model = Model::default();
    let none = FilesOptions {
        stop: Some(StopAt::Time(1)),
        ..options(&recording(name))
    };
    assert!(matches!(run(none, &mut model), Ok(End::Reached)));
    assert!(model.txns.is_empty());
}

#[test]
fn a_start_at_the_very_end_of_a_closed_file_goes_on_in_the_next_one() {
    for (name, file) in [
        ("mysql-9.7-tagged", "binlog.000001"),
        ("mariadb-11.8-xa", "binlog.000002"),
    ] {
        let length = fs::metadata(recording(name).join(file)).expect("the file").len();
        let start = StartAt::File {
            name: file.to_owned(),
            offset: length,
        };
        let mut model = Model::default();
        // An XA transaction prepared before the start is not known to the model.
        let from = FilesOptions {
            start,
            ..options(&recording(name))
        };
        if name == "mysql-9.7-tagged" {
            run(from, &mut model).expect(name);
            assert!(!model.txns.is_empty(), "{name}");
        } else {
            let opened = FilesReader::open(from, settings()).expect("a start at the end");
            assert_eq!(opened.position().offset, length);
        }
    }
}

#[test]
fn a_file_shorter_than_the_saved_position_is_an_error() {
    let folder = copy("mysql-9.7-tagged");
    let mut model = Model::default();
    run(options(folder.path()), &mut model).expect("a whole recording");
    let path = folder.path().join("binlog.000002");
    let bytes = fs::read(&path).expect("the file");
    fs::write(&path, &bytes[..bytes.len() - 200]).expect("a cut file");
    assert_eq!(code(run(options(folder.path()), &mut model)), "WEIR-SRC-014");
}

#[test]
fn preflight_names_what_is_wrong() {
    let filter = std::sync::Arc::new(weir_filter::TableFilter::all(weir_filter::NameCase::Sensitive));
    let checks = weir_source::preflight::preflight(&options(&recording("mariadb-11.8")), &filter);
    assert!(
        checks.len() == 5 && checks.iter().all(|check| check.ok),
        "{checks:?}"
    );
    let gone = FilesOptions {
        folder: PathBuf::from("/nonexistent"),
        ..options(&recording("mysql-9.7"))
    };
    let checks = weir_source::preflight::preflight(&gone, &filter);
    assert!(checks.len() == 1 && !checks[0].ok && checks[0].actual.contains("/nonexistent"));
    let start = StartAt::File {
        name: "binlog.000099".to_owned(),
        offset: 4,
    };
    let purged = FilesOptions {
        start,
        ..options(&recording("mysql-9.7"))
    };
    let checks = weir_source::preflight::preflight(&purged, &filter);
    assert_eq!(
        checks.iter().map(|check| check.ok).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn a_buffer_too_small_for_any_transaction_gives_the_same() {
    for name in [
        "mysql-9.7",
        "mysql-9.7-xa",
        "mariadb-10.11-xa",
        "mariadb-11.8",
        "quickstart",
    ] {
        let folder = recording(name);
        let mut model = Model::default();
        let end = read(options(&folder), &["*.*"], 1, &mut model, usize::MAX).expect("a recording");
        assert!(matches!(end, End::Reached), "{name}: {end:?}");
        assert!(
            model.txns == whole(name),
            "{name}: another outcome than with room for the rows"
        );
    }
}
