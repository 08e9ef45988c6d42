//! A network that delays, stalls, cuts and half-closes connections at random bytes.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::rng::Rng;
use weir_integration::{Fault, Kind, Load, Pair, Proxy, caught_up};

const LIMIT: Duration = Duration::from_secs(180);
/// Faults one after the other, each for a random time below this.
const FAULTS: u32 = 24;
const FAULT_MILLIS: u64 = 1_500;
/// Connections that faults must have closed in a test.
const CLOSED_MIN: u64 = 10;
/// Times that all connections of the sink fall silent.
const STALLS: u32 = 6;
/// Within this time a connection that says nothing is given up for a new one.
const HALF_OPEN_LIMIT: Duration = Duration::from_secs(90);
fn fault(rng: &mut Rng) -> Fault {
    match rng.below(7) {
        0 => Fault::Delay(Duration::from_millis(1 + rng.below(40))),
        1 => Fault::Stall,
        // From within the login to some way into the stream.
        2 => Fault::CutWithin(200),
        3 => Fault::CutWithin(100_000),
        4 => Fault::HalfCloseWithin(1_000),
        5 => Fault::HalfCloseWithin(100_000),
        _ => Fault::Refuse,
    }
}

/// Proxies in front of the ends that are named; faults under load; then source and sink are the same.
fn faults(kind: Kind, at_source: bool, at_sink: bool, seed: u64) {
    let _machine = crate::shared();
    let pair = Pair::new(kind, kind).unwrap();
    let to_source = Proxy::start(pair.source.address().unwrap(), seed).unwrap();
    let to_sink = Proxy::start(pair.sink.address().unwrap(), seed + 1).unwrap();
    let feed = pair
        .feed_by(
            &pair.source.uri_at(to_source.port()).unwrap(),
            &pair.sink.uri_at(to_sink.port()).unwrap(),
            "",
        )
        .unwrap();
    pair.setup().unwrap();
    let load = Load::start(pair.source.uri(), &pair.names, &Options::default()).unwrap();
    let mut running = feed.start(&[]).unwrap();
    // Outages before the first connection are errors; afterwards they are waited for.
    pair.lag(LIMIT).unwrap();
    let mut rng = Rng::new(seed);
    for _ in 0..FAULTS {
        for (proxy, wanted) in [(&to_source, at_source), (&to_sink, at_sink)] {
            if wanted {
                proxy.set(fault(&mut rng));
            }
        }
        std::thread::sleep(Duration::from_millis(rng.below(FAULT_MILLIS)));
        // A little way on between two faults, so that there is something to break.
        to_source.set(Fault::None);
        to_sink.set(Fault::None);
        std::thread::sleep(Duration::from_millis(rng.below(FAULT_MILLIS)));
        assert!(running.is_running().unwrap(), "{}", running.trouble());
    }
    load.stop().unwrap();
    // What half-closes left behind.
    to_source.cut_all();
    to_sink.cut_all();
    let closed = to_source.closed() + to_sink.closed();
    println!("{kind:?}: {closed} connections closed by faults");
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
    assert!(closed >= CLOSED_MIN, "only {closed} connections were closed");
}

#[test]
fn faults_at_the_mysql_source() {
    faults(Kind::Mysql, true, false, 31);
}

#[test]
fn faults_at_the_mysql_sink() {
    faults(Kind::Mysql, false, true, 32);
}

#[test]
fn faults_at_both_mariadb_ends() {
    faults(Kind::Mariadb118, true, true, 33);
}

/// A connection that is open and silent is noticed by its missing heartbeats.
#[test]
fn a_forgotten_connection_of_the_source_is_noticed() {
    let _machine = crate::shared();
    let pair = Pair::new(Kind::Mysql, Kind::Mysql).unwrap();
    let proxy = Proxy::start(pair.source.address().unwrap(), 41).unwrap();
    let feed = pair
        .feed_by(&pair.source.uri_at(proxy.port()).unwrap(), pair.sink.uri(), "")
        .unwrap();
    pair.setup().unwrap();
    let running = feed.start(&[]).unwrap();
    pair.lag(LIMIT).unwrap();
    proxy.set(Fault::StallOpen);
    let lag = pair.lag(HALF_OPEN_LIMIT);
    assert!(lag.is_ok(), "{lag:?}\n{}", running.trouble());
    println!("noticed after {:.1} s", lag.unwrap().as_secs_f64());
    proxy.cut_all();
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
}

/// The same at the sink: writes go on over new connections, and what the old ones began is not written twice.
#[test]
fn forgotten_connections_of_the_sink_are_noticed() {
    let _machine = crate::shared();
    let pair = Pair::new(Kind::Mysql, Kind::Mysql).unwrap();
    let proxy = Proxy::start(pair.sink.address().unwrap(), 42).unwrap();
    let feed = pair
        .feed_by(pair.source.uri(), &pair.sink.uri_at(proxy.port()).unwrap(), "")
        .unwrap();
    pair.setup().unwrap();
    let load = Load::start(pair.source.uri(), &pair.names, &Options::default()).unwrap();
    let running = feed.start(&[]).unwrap();
    pair.lag(LIMIT).unwrap();
    // In the middle of whatever the sink is at: rows, a DDL, the settings before it, spans that are formed anew.
    let mut rng = Rng::new(42);
    for _ in 0..STALLS {
        proxy.set(Fault::StallOpen);
        std::thread::sleep(Duration::from_millis(rng.below(3_000)));
    }
    load.stop().unwrap();
    let equal = pair.equal_within(HALF_OPEN_LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    println!("equal after {:.1} s", equal.unwrap().as_secs_f64());
    proxy.cut_all();
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
}

/// A source that is idle for longer than a heartbeat keeps its connection.
#[test]
fn an_idle_source_keeps_its_connection() {
    let _machine = crate::shared();
    let pair = Pair::own(Kind::Mariadb1011, Kind::Mariadb1011).unwrap();
    pair.setup().unwrap();
    let feed = pair.feed("").unwrap();
    let running = feed.start(&[]).unwrap();
    // Foreign keys that arrive form spans anew, with a new connection.
    pair.equal_within(LIMIT).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let mut source = pair.source.client().unwrap();
    let sql = "SELECT MIN(ID) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
    let before = source.number(sql).unwrap();
    std::thread::sleep(Duration::from_secs(40));
    assert_eq!(source.number(sql).unwrap(), before, "{}", running.trouble());
    let lag = pair.lag(Duration::from_secs(5)).unwrap();
    println!("{:.3} s after idling", lag.as_secs_f64());
    caught_up(&feed, running).unwrap();
    pair.assert_equal().unwrap();
}
