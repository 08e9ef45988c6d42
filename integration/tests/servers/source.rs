//! The connection to the source by itself: rows that come over a bad network into files are those that come over a good
//! one.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::pair::{filter, start_position};
use weir_integration::rng::Rng;
use weir_integration::{
    Changefeed, End, Fault, Kind, Load, Names, Output, Proxy, TestServer, caught_up, load, wait_until,
};

const LIMIT: Duration = Duration::from_secs(120);
const FAULTS: u32 = 20;
const CLOSED_MIN: u64 = 8;

/// Rows per table in order, without what differs between two runs: the place in the store, and the time given there
/// (an idle connection moves it on, and a commit that comes later may not lie before).
fn rows(output: &Output) -> Vec<(String, Vec<String>)> {
    let line = |line: &String| {
        let row = line
            .rsplit_once(",\"_weir\":")
            .map_or(line.as_str(), |(row, _)| row);
        let (data, rest) = row.rsplit_once(",\"es\":").unwrap_or((row, ""));
        let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{data}{rest}")
    };
    output
        .streams
        .iter()
        .map(|(table, lines)| (table.clone(), lines.iter().map(line).collect()))
        .collect()
}

fn over_a_bad_network(kind: Kind, seed: u64) {
    let _machine = crate::shared();
    let source = TestServer::get(kind, End::Source).unwrap();
    let mut client = source.client().unwrap();
    let names = Names::new(&format!("s{}x{seed}", std::process::id()));
    let start = start_position(&mut client).unwrap();
    let proxy = Proxy::start(source.address().unwrap(), seed).unwrap();
    let feed = |uri: &str| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let more = format!("{}[sink.file]\nrotate-age = \"1s\"\n", filter(&names));
        let mut feed = Changefeed::between(uri, &format!("file://{}", out.display()), &start, &more).unwrap();
        feed.out = out;
        (feed, dir)
    };
    let (good, _good_dir) = feed(source.uri());
    let (bad, _bad_dir) = feed(&source.uri_at(proxy.port()).unwrap());
    load::setup(&mut client, &names).unwrap();
    let options = Options {
        seed,
        ..Options::default()
    };
    let running_load = Load::start(source.uri(), &names, &options).unwrap();
    let mut running = bad.start(&[]).unwrap();
    wait_until("the first rows", LIMIT, || {
        Ok(Output::read(&bad.out)?.total().all() > 0)
    })
    .unwrap();
    let mut rng = Rng::new(seed);
    for _ in 0..FAULTS {
        proxy.set(match rng.below(5) {
            0 => Fault::Stall,
            1 => Fault::CutWithin(300),
            2 => Fault::CutWithin(200_000),
            3 => Fault::HalfCloseWithin(50_000),
            _ => Fault::Refuse,
        });
        std::thread::sleep(Duration::from_millis(rng.below(1_000)));
        proxy.set(Fault::None);
        std::thread::sleep(Duration::from_millis(rng.below(1_000)));
        assert!(running.is_running().unwrap(), "{}", running.trouble());
    }
    proxy.cut_all();
    let report = running_load.stop().unwrap();
    caught_up(&bad, running).unwrap();
    println!(
        "{kind:?}: {} connections closed by faults, {report:?}",
        proxy.closed()
    );
    good.catch_up().unwrap().assert_ok();
    let (wanted, got) = (Output::read(&good.out).unwrap(), Output::read(&bad.out).unwrap());
    assert!(wanted.total().all() > report.transactions / 2);
    assert_eq!(wanted.tables, got.tables);
    assert_eq!(wanted.statements.len(), got.statements.len());
    for ((table, wanted), (_, got)) in rows(&wanted).iter().zip(&rows(&got)) {
        let differs = wanted.iter().zip(got).position(|(wanted, got)| wanted != got);
        let around = |lines: &[String]| {
            let at = differs.unwrap_or(0);
            lines
                .get(at.saturating_sub(1)..(at + 3).min(lines.len()))
                .unwrap_or_default()
                .join("\n")
        };
        assert!(
            differs.is_none(),
            "`{table}` at row {differs:?} of {}:\n{}\ninstead of\n{}",
            wanted.len(),
            around(got),
            around(wanted)
        );
    }
    got.assert_nothing_twice("over a bad network");
    assert!(
        proxy.closed() >= CLOSED_MIN,
        "only {} connections were closed",
        proxy.closed()
    );
}

#[test]
fn mysql_over_a_bad_network() {
    over_a_bad_network(Kind::Mysql, 61);
}

#[test]
fn mariadb_1011_over_a_bad_network() {
    over_a_bad_network(Kind::Mariadb1011, 62);
}

#[test]
fn mariadb_118_over_a_bad_network() {
    over_a_bad_network(Kind::Mariadb118, 63);
}
