//! `kill -9` of Weir, of the sink and of the source under load: nothing lost, nothing doubled, no row wrong.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::rng::Rng;
use weir_integration::{Client, Kind, Load, Pair, caught_up};

/// Kills that must have found rows that were not acknowledged.
const KILLS: u32 = 30;
/// Attempts after which the machine is too fast or too slow for the test to say anything.
const ATTEMPTS_MAX: u32 = 150;
/// Compared after that many kills, so that a wrong row is found near the kill that made it.
const KILLS_PER_ROUND: u32 = 6;
const LIMIT: Duration = Duration::from_secs(120);
/// Longest run before a kill.
const RUN_MILLIS: u64 = 1_500;

/// Kills the command at random moments until enough of them had rows in flight.
fn kill_weir(source: Kind, sink: Kind, seed: u64) {
    let _machine = crate::shared();
    let pair = Pair::new(source, sink).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let (mut from, mut to) = (pair.source.client().unwrap(), pair.sink.client().unwrap());
    let mut rng = Rng::new(seed);
    let (mut counted, mut attempts) = (0, 0);
    while counted < KILLS {
        let options = Options {
            seed: rng.draw(),
            ..Options::default()
        };
        let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
        let mut here = 0;
        while here < KILLS_PER_ROUND {
            attempts += 1;
            assert!(
                attempts <= ATTEMPTS_MAX,
                "only {counted} of {attempts} kills had rows in flight"
            );
            let mut running = feed.start(&[]).unwrap();
            std::thread::sleep(Duration::from_millis(200 + rng.below(RUN_MILLIS)));
            let before = pair.beats(&mut from).unwrap();
            let log = running.trouble();
            let alive = running.is_running().unwrap();
            assert!(running.kill().unwrap() && alive, "it ended by itself:\n{log}");
            // Read after the kill: what the source had before it is not all there.
            here += u32::from(before > pair.beats(&mut to).unwrap());
        }
        counted += here;
        load.stop().unwrap();
        let running = feed.start(&[]).unwrap();
        let equal = pair.equal_within(LIMIT);
        assert!(
            equal.is_ok(),
            "after {counted} kills: {equal:?}\n{}",
            running.trouble()
        );
        caught_up(&feed, running).unwrap();
        pair.assert_equal().unwrap();
    }
    println!("{source:?} to {sink:?}: {counted} kills with rows in flight, {attempts} attempts");
}

#[test]
fn weir_is_killed_between_mysql_servers() {
    kill_weir(Kind::Mysql, Kind::Mysql, 11);
}

#[test]
fn weir_is_killed_between_mariadb_servers() {
    kill_weir(Kind::Mariadb118, Kind::Mariadb118, 12);
}

/// The server that is killed comes back after that long, at most.
const OUTAGE_MILLIS: u64 = 2_000;
const SERVER_KILLS: u32 = 4;

fn kill_server(kind: Kind, which: fn(&mut Pair) -> &mut weir_integration::TestServer, seed: u64) {
    let _machine = crate::shared();
    let mut pair = Pair::own(kind, kind).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let mut rng = Rng::new(seed);
    let options = Options {
        seed,
        ..Options::default()
    };
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    let mut running = feed.start(&[]).unwrap();
    for kill in 0..SERVER_KILLS {
        std::thread::sleep(Duration::from_millis(1_000 + rng.below(3_000)));
        let pause = Duration::from_millis(rng.below(OUTAGE_MILLIS));
        which(&mut pair).kill_and_start_again(pause).unwrap();
        assert!(
            running.is_running().unwrap(),
            "ended after kill {kill}:\n{}",
            running.trouble()
        );
    }
    std::thread::sleep(Duration::from_secs(1));
    load.stop().unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
}

#[test]
fn the_mysql_sink_is_killed() {
    kill_server(Kind::Mysql, |pair| &mut pair.sink, 21);
}

#[test]
fn the_mysql_source_is_killed() {
    kill_server(Kind::Mysql, |pair| &mut pair.source, 22);
}

#[test]
fn the_mariadb_sink_is_killed() {
    kill_server(Kind::Mariadb118, |pair| &mut pair.sink, 23);
}

#[test]
fn the_mariadb_source_is_killed() {
    kill_server(Kind::Mariadb118, |pair| &mut pair.source, 24);
}

/// No session of a run that was killed writes after its successor has begun.
#[test]
fn a_stopped_process_that_wakes_up_writes_nothing() {
    let _machine = crate::shared();
    let pair = Pair::new(Kind::Mysql, Kind::Mysql).unwrap();
    let feed = pair.feed("").unwrap();
    pair.setup().unwrap();
    let load = Load::start(pair.source.uri(), &pair.names, &Options::default()).unwrap();
    let old = feed.start(&[]).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    // The data folder of the old process is locked by it: the successor has a copy.
    old.signal("STOP").unwrap();
    let second = pair.feed("").unwrap();
    weir_test_servers::copy_folder(&feed.data, &second.data).unwrap();
    let running = second.start(&[]).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    load.stop().unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    let mut client: Client = pair.sink.client().unwrap();
    client
        .run(&format!(
            "UPDATE {}.acct SET note = 'mark' WHERE id = 3",
            pair.names.main
        ))
        .unwrap();
    old.signal("CONT").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    drop(old);
    let marked = client
        .number(&format!(
            "SELECT COUNT(*) FROM {}.acct WHERE id = 3 AND note = 'mark'",
            pair.names.main
        ))
        .unwrap();
    assert_eq!(marked, 1, "the old process wrote over the row");
}
