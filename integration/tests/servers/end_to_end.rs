//! Source and sink hold the same after a concurrent load with DDL, for every pair of servers.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::pair::run_to_end;
use weir_integration::{Kind, Load, Pair, caught_up};

const LOAD: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(120);

/// The load runs while the changefeed does; then both ends are compared, before and after a clean restart.
fn live(source: Kind, sink: Kind, seed: u64) {
    let _machine = crate::shared();
    let pair = Pair::new(source, sink).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let options = Options {
        seed,
        ..Options::default()
    };
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    let mut running = feed.start(&[]).unwrap();
    std::thread::sleep(LOAD);
    let report = load.stop().unwrap();
    println!("{source:?} to {sink:?}: {report:?}");
    assert!(report.transactions > 500 && report.ddl > 20, "{report:?}");
    let equal = pair.equal_within(LIMIT);
    assert!(
        equal.is_ok() && running.is_running().unwrap(),
        "{equal:?}\n{}",
        running.trouble()
    );
    println!("equal after {:.1} s", equal.unwrap().as_secs_f64());
    // What comes after it finds the checkpoint of the first run.
    let more = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    std::thread::sleep(LOAD / 10);
    more.stop().unwrap();
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
}

#[test]
fn mysql_to_mysql() {
    live(Kind::Mysql, Kind::Mysql, 1);
}

#[test]
fn mariadb_1011_to_mariadb_1011() {
    live(Kind::Mariadb1011, Kind::Mariadb1011, 2);
}

#[test]
fn mariadb_118_to_mariadb_118() {
    live(Kind::Mariadb118, Kind::Mariadb118, 3);
}

#[test]
fn mysql_to_mariadb_118() {
    live(Kind::Mysql, Kind::Mariadb118, 4);
}

/// With collations that both know; the load names them.
#[test]
fn mysql_to_mariadb_1011() {
    live(Kind::Mysql, Kind::Mariadb1011, 5);
}

#[test]
fn mariadb_to_mysql() {
    live(Kind::Mariadb118, Kind::Mysql, 6);
}

/// The binlog files of a server, without the server: into a database that knows nothing of it.
#[test]
fn files_to_mysql() {
    let _machine = crate::shared();
    let mut pair = Pair::own(Kind::Mysql, Kind::Mysql).unwrap();
    pair.setup().unwrap();
    let load = Load::start(pair.source.uri(), &pair.names, &Options::default()).unwrap();
    std::thread::sleep(LOAD / 2);
    load.stop().unwrap();
    let data = pair.source.process().unwrap().data_dir();
    let files = format!("binlog-files://{}?index=binlog.index", data.display());
    let feed = pair.feed_by(&files, pair.sink.uri(), "").unwrap();
    run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
    // Once more: all of it was there already.
    run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
}

/// A store that is lost, and a changefeed that starts again from the progress at the target.
#[test]
fn a_lost_data_folder_goes_on_from_the_target() {
    let _machine = crate::shared();
    let pair = Pair::new(Kind::Mysql, Kind::Mysql).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let options = Options::default();
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    let running = feed.start(&[]).unwrap();
    std::thread::sleep(LOAD / 4);
    load.stop().unwrap();
    pair.equal_within(LIMIT).unwrap();
    running.signal("TERM").unwrap();
    running.finish(LIMIT).unwrap().assert_ok();
    std::fs::remove_dir_all(&feed.data).unwrap();
    let finished = feed.catch_up().unwrap();
    // Refused by name, or gone on with: what must not be is a wrong row.
    if finished.code() != 0 {
        finished.assert_code(3);
        let (code, message) = finished.error();
        assert!(code.starts_with("WEIR-"), "{code}: {message}");
    }
    pair.assert_equal().unwrap();
}
