//! The HTTP port of `weir run`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use weir_integration::command::Running;
use weir_integration::{Changefeed, Output, Recording};

const LIMIT: Duration = Duration::from_secs(30);
/// Every stage of the flow shows itself.
const STAGES: &[&str] = &[
    "source",
    "store",
    "event_service",
    "event_collector",
    "dispatcher",
    "sink",
];
/// What a name may end with: a base unit, a count, or what a histogram adds to its own name.
const ENDINGS: &[&str] = &["_bytes", "_seconds", "_total", "_sum", "_count", "_bucket"];

fn get(port: u16, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// Lines `name{labels} value` of the text format.
fn samples(body: &str) -> impl Iterator<Item = (&str, f64)> {
    body.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.split('{').next()?, value.parse().ok()?))
        })
}

fn wait(running: &mut Running, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(
            running.is_running().unwrap(),
            "ended early: {}",
            running.stderr().unwrap()
        );
        assert!(
            Instant::now() < deadline,
            "not in time: {}",
            running.stderr().unwrap()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_stage_is_measured() {
    let recording = Recording::open("mysql-9.7").unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let more = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n[sink.file]\nrotate-age = \"200ms\"");
    let feed = Changefeed::to_files(&recording.folder, &more).unwrap();
    let mut running = feed.start(&[]).unwrap();
    let rows = recording.total().all();
    wait(&mut running, || {
        Output::read(&feed.out).is_ok_and(|output| output.total().all() == rows)
    });
    // Counters are folded a moment after the files are renamed.
    let written = |body: &str| {
        samples(body)
            .filter(|(name, _)| *name == "weir_sink_rows_total")
            .map(|s| s.1)
            .sum::<f64>()
    };
    wait(&mut running, || {
        get(port, "/metrics").is_some_and(|(_, body)| written(&body) >= rows as f64)
    });
    let (head, body) = get(port, "/metrics").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200") && head.to_lowercase().contains("text/plain"),
        "{head}"
    );
    assert!(
        (written(&body) - rows as f64).abs() < 0.5,
        "{} of {rows} rows",
        written(&body)
    );
    for stage in STAGES {
        let prefix = format!("weir_{stage}_");
        assert!(
            samples(&body).any(|(name, _)| name.starts_with(&prefix)),
            "nothing of {stage}:\n{body}"
        );
    }
    for wanted in [
        "bytes_total",
        "lag_seconds",
        "in_flight_bytes",
        "blocked_seconds_total",
    ] {
        assert!(
            samples(&body).any(|(name, _)| name.ends_with(wanted)),
            "nothing about {wanted}:\n{body}"
        );
    }
    for (name, value) in samples(&body) {
        assert!(name.starts_with("weir_"), "{name}");
        assert!(value.is_finite(), "{name} is {value}");
    }
    let counters = body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
    for name in counters {
        assert!(
            ENDINGS.iter().any(|ending| name.ends_with(ending)),
            "a counter without unit: {name}"
        );
    }
    let (_, flow) = get(port, "/debug/flow").unwrap();
    check_flow(&serde_json::from_str(&flow).unwrap());
    running.signal("TERM").unwrap();
    running.finish(LIMIT).unwrap().assert_ok();
}

/// The page holds the ledger, and for each table what it holds and what it has waited for.
fn check_flow(page: &serde_json::Value) {
    assert!(page["ledger"]["budget-bytes"].as_u64() > Some(0), "{page}");
    let tables = page["tables-slowest"].as_array().unwrap();
    assert!(!tables.is_empty(), "{page}");
    for table in tables {
        let (account, stream) = (&table["dispatcher"], &table["stream"]);
        assert!(account["window-bytes"].as_u64() > Some(0), "{table}");
        assert!(
            account["held-bytes"].is_u64() && account["open-bytes"].is_u64(),
            "{table}"
        );
        assert!(
            stream["phase"].is_string() && stream["credit-bytes"].is_u64(),
            "{table}"
        );
        for reason in ["not_ready", "no_credit", "barrier", "scan_slot"] {
            assert!(stream["waited-ms"][reason].is_u64(), "{table}");
        }
        assert!(table["lag-ms"].is_u64(), "{table}");
    }
}
