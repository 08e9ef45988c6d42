//! `weir check FILE`: every pre-flight check on both ends.

mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use serde::Deserialize;
use serde_json::{Value, json};
use weir_config::{ByteSize, Changefeed, SinkUri};
use weir_server::preflight::{self, Check};

use crate::args::CheckArgs;
use crate::outcome::{Failure, Outcome, Status};
use crate::pipeline;
use crate::table::render;

/// File of an output folder that says whose it is.
const IDENTITY: &str = "_weir.json";

/// Validates the file and tries both ends. Failed checks are a result, with status 1.
pub(crate) fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    let changefeed = Changefeed::load(&args.file)?;
    let data_dir = pipeline::data_dir(args.data_dir.as_deref(), &changefeed);
    let mut checks = source::checks(&changefeed)?;
    checks.extend(preflight::servers(&changefeed, &data_dir)?);
    checks.extend(sink(&changefeed, &data_dir));
    checks.extend(state(&changefeed, &data_dir));
    Ok(outcome(&changefeed, &checks))
}

fn outcome(changefeed: &Changefeed, checks: &[Check]) -> Outcome {
    let failed = checks.iter().filter(|check| !check.ok).count();
    let header = ["", "end", "check", "setting", "expected", "actual"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(checks.iter().map(|c| {
        let mark = if c.ok { "ok" } else { "FAILED" };
        [mark, c.end, &c.name, &c.setting, &c.expected, &c.actual]
            .map(str::to_owned)
            .to_vec()
    }));
    let mut text = render(&rows, &[]);
    text.push_str(&match failed {
        0 => format!(
            "\nchangefeed `{}`: all {} checks passed",
            changefeed.id,
            checks.len()
        ),
        n => format!(
            "\nchangefeed `{}`: {n} of {} checks failed",
            changefeed.id,
            checks.len()
        ),
    });
    let list: Vec<Value> = checks
        .iter()
        .map(|c| {
            json!({
                "end": c.end,
                "name": c.name,
                "setting": c.setting,
                "expected": c.expected,
                "actual": c.actual,
                "ok": c.ok,
            })
        })
        .collect();
    Outcome {
        text,
        json: json!({"changefeed": &*changefeed.id.0, "ok": failed == 0, "failed": failed, "checks": list}),
        status: if failed == 0 { Status::Done } else { Status::Failed },
    }
}

fn sink(changefeed: &Changefeed, data_dir: &Path) -> Vec<Check> {
    match &changefeed.sink.uri {
        SinkUri::File { dir } => vec![
            writable("sink", "sink.uri", dir),
            belongs(changefeed, dir, data_dir),
        ],
        SinkUri::Mysql(_) | SinkUri::Kafka(_) => Vec::new(),
        SinkUri::Blackhole { .. } => vec![Check {
            end: "sink",
            name: "sink can be opened".to_owned(),
            setting: "sink.uri".to_owned(),
            expected: "nothing".to_owned(),
            actual: changefeed.sink.uri.to_string(),
            ok: true,
        }],
    }
}

fn state(changefeed: &Changefeed, data_dir: &Path) -> Vec<Check> {
    // What the store holds already counts in its quota.
    let quota = changefeed.store.disk_quota.bytes();
    let wanted = quota.saturating_sub(used_bytes(data_dir));
    // Whole mebibytes read better.
    let mib = |bytes: u64| ByteSize(bytes >> 20 << 20);
    let (actual, ok) = match free_bytes(data_dir) {
        Ok(free) => (format!("{} free", mib(free)), free >= wanted),
        Err(error) => (error.to_string(), false),
    };
    vec![
        writable("state", "--data-dir", data_dir),
        Check {
            end: "state",
            name: "disk holds the store".to_owned(),
            setting: "store.disk-quota".to_owned(),
            expected: format!("{} free", mib(wanted)),
            actual,
            ok,
        },
    ]
}

/// The folder itself, or the nearest one above it that is there.
fn existing(dir: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    let found = absolute.ancestors().find(|path| path.exists());
    found
        .map(Path::to_owned)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn free_bytes(dir: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(&existing(dir)?)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes of all files below a folder; what cannot be read counts as nothing.
fn used_bytes(dir: &Path) -> u64 {
    let mut folders = vec![dir.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) => bytes += meta.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// Asks whether files can be made in the folder, or, where it is not there yet, in the
/// one that it will be made in. Nothing is written: a check leaves no trace.
fn writable(end: &'static str, setting: &str, dir: &Path) -> Check {
    let attempt = existing(dir).and_then(|dir| {
        rustix::fs::access(&dir, Access::WRITE_OK | Access::EXEC_OK)?;
        match dir.is_dir() {
            true => Ok(dir),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    });
    let (actual, ok) = match attempt {
        Ok(_) if dir.exists() => ("writable".to_owned(), true),
        Ok(found) => (format!("will be made in `{}`", found.display()), true),
        Err(error) => (error.to_string(), false),
    };
    Check {
        end,
        name: format!("folder `{}`", dir.display()),
        setting: setting.to_owned(),
        expected: "writable".to_owned(),
        actual,
        ok,
    }
}

/// `_weir.json` of an output folder, as far as it is compared.
#[derive(Deserialize)]
struct Identity {
    changefeed: String,
}

/// An output folder is empty, or this changefeed's together with the store that wrote
/// it: another store counts commit-ts anew and would not know what is there.
fn belongs(changefeed: &Changefeed, dir: &Path, data_dir: &Path) -> Check {
    let (actual, ok) = match fs::read(dir.join(IDENTITY)) {
        Ok(text) => match serde_json::from_slice::<Identity>(&text) {
            Ok(found) if found.changefeed == *changefeed.id.0 && used_bytes(data_dir) == 0 => (
                format!("ours, but its store is not in `{}`", data_dir.display()),
                false,
            ),
            Ok(found) => {
                let ok = found.changefeed == *changefeed.id.0;
                (format!("of changefeed `{}`", found.changefeed), ok)
            }
            Err(_) => (format!("`{IDENTITY}` is damaged"), false),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_dir(dir).map(Iterator::count)
        {
            Ok(1..) => (format!("other files, no `{IDENTITY}`"), false),
            Ok(_) => ("empty".to_owned(), true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => ("not there yet".to_owned(), true),
            Err(error) => (error.to_string(), false),
        },
        Err(error) => (error.to_string(), false),
    };
    Check {
        end: "sink",
        name: "output is ours".to_owned(),
        setting: "id".to_owned(),
        expected: format!("empty, or of changefeed `{}`", changefeed.id),
        actual,
        ok,
    }
}
