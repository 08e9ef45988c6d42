//! Into a real broker: a consumer builds the tables again from the topics, and compares them with the source.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_integration::load::Options;
use weir_integration::metrics::metric;
use weir_integration::pair::{filter, run_to_end, start_position};
use weir_integration::rng::Rng;
use weir_integration::topics::{Repeats, Topics, compare};
use weir_integration::{
    Broker, Changefeed, Client, End, Kind, Load, Names, Running, TestServer, caught_up, wait_until,
};
use weir_test_servers::{KafkaOptions, free_port};

const LOAD: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(90);
/// Longest run before a kill.
const RUN_MILLIS: u64 = 1_200;
/// Kills that must have found messages on their way.
const KILLS: u32 = 20;
const ATTEMPTS_MAX: u32 = 120;
/// How long a kill waits for messages in flight.
const FLIGHT_LIMIT: Duration = Duration::from_millis(500);
/// The bounds that the documentation gives for what comes twice after a crash: in time that Weir ran, and the memory
/// quota.
const REPLAY_AGE_MILLIS_MAX: i64 = 10_000;
const REPLAY_BYTES_MAX: usize = 64 << 20;

/// A source with the load's tables, a broker, and a changefeed between them.
struct Flow {
    source: TestServer,
    broker: Broker,
    names: Names,
    feed: Changefeed,
}

impl Flow {
    fn new(kind: Kind, broker: Broker, settings: &str) -> Self {
        let source = TestServer::get(kind, End::Source).unwrap();
        Self::from(source, broker, settings, "64MiB")
    }

    fn from(source: TestServer, broker: Broker, settings: &str, quota: &str) -> Self {
        Self::by(source, None, broker, settings, quota)
    }

    /// `files`: where the changes are read instead of from the server.
    fn by(source: TestServer, files: Option<&str>, broker: Broker, settings: &str, quota: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = Names::new(&format!("k{}x{number}", std::process::id()));
        let start = match files {
            Some(_) => "start = \"earliest\"".to_owned(),
            None => start_position(&mut source.client().unwrap()).unwrap(),
        };
        let more = format!(
            "[flow-control]\nmemory-quota = \"{quota}\"\n{}{settings}",
            filter(&names)
        );
        let from = files.unwrap_or(source.uri());
        let feed = Changefeed::between(from, &broker.uri(), &start, &more).unwrap();
        Self {
            source,
            broker,
            names,
            feed,
        }
    }

    fn setup(&self) {
        weir_integration::load::setup(&mut self.client(), &self.names).unwrap();
    }

    fn client(&self) -> Client {
        self.source.client().unwrap()
    }

    fn load(&self, seed: u64, ddl: bool) -> Load {
        let options = Options {
            seed,
            // Rows that cascades change are not in a binlog.
            family: false,
            ddl_pause: ddl.then_some(Duration::from_millis(150)),
            ..Options::default()
        };
        Load::start(self.source.uri(), &self.names, &options).unwrap()
    }

    fn topics(&self) -> Topics {
        Topics::read(self.broker.address(), &self.names.main).unwrap()
    }

    /// Tables whose rows the topics tell wholly. Those that DDL makes, renames or fills are told by DDL too.
    fn tables(&self, ddl: bool) -> Vec<String> {
        let Names { main, two, .. } = &self.names;
        let mut tables: Vec<String> = ["acct", "wide", "nokey", "unull", "ukonly", "beat", "parent"]
            .map(|table| format!("{main}.{table}"))
            .into();
        tables.push(format!("{two}.ledger"));
        if !ddl {
            tables.extend((0..6).map(|number| format!("{main}.d{number}")));
        }
        tables
    }

    fn assert_equal(&self, ddl: bool) -> Repeats {
        let topics = self.topics();
        let repeats = topics.check_order().unwrap();
        compare(&mut self.client(), &self.tables(ddl), &topics).unwrap();
        println!(
            "{} messages, {} rows, {repeats:?}",
            topics.messages.len(),
            topics.rows()
        );
        repeats
    }
}

/// All rows of a topic that stand before a DDL arrived before it, and those behind it after it.
fn check_ddl(topics: &Topics) -> usize {
    let mut by_topic: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for message in &topics.messages {
        by_topic.entry(&message.topic).or_default().push(message);
    }
    let mut found = 0;
    for (topic, messages) in by_topic {
        for ddl in messages.iter().filter(|message| message.is_ddl()) {
            found += 1;
            assert_eq!((ddl.partition, &ddl.key), (0, &None), "{topic}");
            assert!(!ddl.text("sql").is_empty());
            for row in messages.iter().filter(|message| !message.is_ddl()) {
                let in_order = match row.place().0.cmp(&ddl.place().0) {
                    std::cmp::Ordering::Less => row.millis <= ddl.millis,
                    _ => row.millis >= ddl.millis,
                };
                assert!(in_order, "{topic}: {:?} around {:?}", row.place(), ddl.place());
            }
        }
    }
    found
}

fn live(kind: Kind, seed: u64, settings: &str, ddl: bool) -> Topics {
    let _machine = crate::shared();
    let flow = Flow::new(kind, Broker::get().unwrap(), settings);
    flow.setup();
    let load = flow.load(seed, ddl);
    let mut running = flow.feed.start(&[]).unwrap();
    std::thread::sleep(LOAD);
    let report = load.stop().unwrap();
    println!("{kind:?}: {report:?}");
    assert!(report.transactions > 300, "{report:?}");
    assert!(running.is_running().unwrap(), "{}", running.trouble());
    caught_up(&flow.feed, running).unwrap();
    let repeats = flow.assert_equal(ddl);
    // Nothing went wrong, so that nothing came twice.
    assert_eq!(repeats, Repeats::default());
    let topics = flow.topics();
    let uncommitted =
        Topics::read_isolated(flow.broker.address(), &flow.names.main, "read_uncommitted").unwrap();
    assert_eq!(topics.messages.len(), uncommitted.messages.len());
    topics
}

#[test]
fn mysql_with_ddl() {
    let topics = live(Kind::Mysql, 51, "", true);
    let ddl = check_ddl(&topics);
    println!("{ddl} DDL messages");
    assert!(ddl > 20, "{ddl}");
    assert!(topics.partitions.values().all(|partitions| *partitions == 3));
}

#[test]
fn mariadb_with_ddl() {
    let topics = live(Kind::Mariadb118, 52, "", true);
    assert!(check_ddl(&topics) > 20);
}

#[test]
fn mariadb_1011_by_table() {
    let settings = "[sink.kafka]\npartition = \"table\"\npartitions = 5\n";
    let topics = live(Kind::Mariadb1011, 53, settings, false);
    let mut homes: BTreeMap<String, i32> = BTreeMap::new();
    for message in topics.messages.iter().filter(|message| !message.is_ddl()) {
        let home = homes.entry(message.table()).or_insert(message.partition);
        assert_eq!(*home, message.partition, "{}", message.table());
    }
    assert!(topics.partitions.values().all(|partitions| *partitions == 5));
}

/// Every row of a transaction has the same number, so that it is on the same partition in topics of one size.
#[test]
fn mysql_by_transaction() {
    let _machine = crate::shared();
    let settings = "[sink.kafka]\npartition = \"transaction\"\n";
    let flow = Flow::new(Kind::Mysql, Broker::get().unwrap(), settings);
    flow.setup();
    let load = flow.load(54, false);
    std::thread::sleep(LOAD / 3);
    load.stop().unwrap();
    run_to_end(&flow.feed).unwrap();
    let topics = flow.topics();
    compare(&mut flow.client(), &flow.tables(false), &topics).unwrap();
    let mut homes: BTreeMap<String, i32> = BTreeMap::new();
    for message in topics.messages.iter().filter(|message| !message.is_ddl()) {
        // The commit-ts is the first 16 digits of the order key.
        let transaction = message.place().0.get(..16).unwrap().to_owned();
        let home = homes.entry(transaction).or_insert(message.partition);
        assert_eq!(*home, message.partition);
    }
    let used: std::collections::BTreeSet<i32> = homes.into_values().collect();
    assert_eq!(used.len(), 3);
}

/// All tables on one topic, DDL on another.
#[test]
fn one_topic_for_all() {
    let _machine = crate::shared();
    let name = format!("one{}", std::process::id());
    let settings = format!("[sink.kafka]\ntopic = \"{name}\"\nddl-topic = \"{name}-ddl\"\n");
    let flow = Flow::new(Kind::Mysql, Broker::get().unwrap(), &settings);
    flow.setup();
    let load = flow.load(55, true);
    std::thread::sleep(LOAD / 3);
    load.stop().unwrap();
    run_to_end(&flow.feed).unwrap();
    let topics = Topics::read(flow.broker.address(), &name).unwrap();
    assert_eq!(topics.partitions.len(), 2, "{:?}", topics.partitions);
    for message in &topics.messages {
        assert_eq!(message.is_ddl(), message.topic.ends_with("-ddl"));
    }
    compare(&mut flow.client(), &flow.tables(true), &topics).unwrap();
    assert!(flow.topics().messages.is_empty());
}

/// The binlog files of a server, without the server; once more from the same place: nothing comes.
#[test]
fn files() {
    let _machine = crate::shared();
    let mut source = TestServer::own(Kind::Mysql, &[]).unwrap();
    let folder = source.process().unwrap().data_dir();
    let from = format!("binlog-files://{}?index=binlog.index", folder.display());
    let flow = Flow::by(source, Some(&from), Broker::get().unwrap(), "", "64MiB");
    flow.setup();
    let load = flow.load(56, true);
    std::thread::sleep(LOAD / 3);
    load.stop().unwrap();
    run_to_end(&flow.feed).unwrap();
    assert_eq!(flow.assert_equal(true), Repeats::default());
    let messages = flow.topics().messages.len();
    run_to_end(&flow.feed).unwrap();
    assert_eq!(flow.topics().messages.len(), messages);
}

/// Waits for the next moment at which messages are handed over and not confirmed; whether it came.
fn in_flight(port: u16) -> bool {
    wait_until("messages in flight", FLIGHT_LIMIT, || {
        Ok(metric(port, "weir_kafka_in_flight_bytes", "test").is_some_and(|bytes| bytes > 0.0))
    })
    .is_ok()
}

fn metrics(port: u16) -> String {
    format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n")
}

/// Kills it; returns whether that was with messages on their way: handed over and not confirmed, or not even there; and
/// when it was, Unix milliseconds.
fn kill_on_the_way(flow: &Flow, running: Running, port: u16, from: &mut Client) -> (bool, i64) {
    let sql = format!("SELECT IFNULL(SUM(n), 0) FROM {}.beat", flow.names.main);
    let in_flight = in_flight(port);
    let before = from.number(&sql).unwrap();
    assert!(running.kill().unwrap());
    let killed = unix_millis();
    // Read after the kill: what the source had before it is not all there.
    let beat = format!("{}.beat", flow.names.main);
    let topics = Topics::read(flow.broker.address(), &beat).unwrap();
    let tables = topics.tables().unwrap();
    let arrived: u64 = tables.get(&beat).map_or(0, |table| table.sum("n"));
    (in_flight && before > arrived, killed)
}

fn kill_weir(kind: Kind, seed: u64) {
    let _machine = crate::shared();
    let port = free_port().unwrap();
    let flow = Flow::new(kind, Broker::get().unwrap(), &metrics(port));
    flow.setup();
    let mut from = flow.client();
    let mut rng = Rng::new(seed);
    let load = flow.load(seed, false);
    let (mut counted, mut attempts, mut runs) = (0, 0, Vec::new());
    while counted < KILLS {
        attempts += 1;
        assert!(
            attempts <= ATTEMPTS_MAX,
            "only {counted} of {attempts} kills counted"
        );
        let mut running = flow.feed.start(&[]).unwrap();
        let started = unix_millis();
        std::thread::sleep(Duration::from_millis(200 + rng.below(RUN_MILLIS)));
        assert!(running.is_running().unwrap(), "{}", running.trouble());
        let (on_the_way, killed) = kill_on_the_way(&flow, running, port, &mut from);
        counted += u32::from(on_the_way);
        runs.push((started, killed));
    }
    load.stop().unwrap();
    let started = unix_millis();
    run_to_end(&flow.feed).unwrap();
    runs.push((started, unix_millis()));
    flow.assert_equal(false);
    let repeats = flow.topics().in_running_time(&runs).check_order().unwrap();
    println!("in running time: {repeats:?}");
    println!("{kind:?}: {counted} kills with messages on their way, {attempts} attempts");
    assert!(repeats.messages > 0, "no kill left anything unconfirmed");
    assert!(repeats.steps_back <= attempts as usize, "{repeats:?}");
    assert!(repeats.age_millis <= REPLAY_AGE_MILLIS_MAX, "{repeats:?}");
    assert!(repeats.bytes <= REPLAY_BYTES_MAX, "{repeats:?} in all");
}

fn unix_millis() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[test]
fn weir_is_killed_behind_mysql() {
    kill_weir(Kind::Mysql, 61);
}

#[test]
fn weir_is_killed_behind_mariadb() {
    kill_weir(Kind::Mariadb118, 62);
}

#[test]
fn the_broker_is_killed() {
    let _machine = crate::shared();
    let broker = Broker::own(KafkaOptions {
        starts_often: true,
        ..KafkaOptions::default()
    })
    .unwrap();
    let port = free_port().unwrap();
    let flow = Flow::new(Kind::Mysql, broker, &metrics(port));
    flow.setup();
    let mut rng = Rng::new(63);
    // A broker that starts needs the machine too.
    let options = Options {
        seed: 63,
        clients: 2,
        pause: Duration::from_millis(20),
        family: false,
        ddl_pause: None,
    };
    let load = Load::start(flow.source.uri(), &flow.names, &options).unwrap();
    let mut running = flow.feed.start(&[]).unwrap();
    let (mut counted, mut attempts) = (0, 0);
    while counted < KILLS {
        attempts += 1;
        assert!(
            attempts <= ATTEMPTS_MAX,
            "only {counted} of {attempts} kills counted"
        );
        std::thread::sleep(Duration::from_millis(300 + rng.below(RUN_MILLIS)));
        counted += u32::from(in_flight(port));
        flow.broker
            .kill_and_start_again(Duration::from_millis(rng.below(500)))
            .unwrap();
        assert!(
            running.is_running().unwrap(),
            "kill {attempts}:\n{}",
            running.trouble()
        );
    }
    load.stop().unwrap();
    let sql = format!("SELECT IFNULL(SUM(n), 0) FROM {}.beat", flow.names.main);
    let wanted = flow.client().number(&sql).unwrap();
    let beat = format!("{}.beat", flow.names.main);
    wait_until("the last rows", LIMIT, || {
        let topics = Topics::read(flow.broker.address(), &beat)?;
        Ok(topics.tables()?.get(&beat).map_or(0, |table| table.sum("n")) == wanted)
    })
    .unwrap();
    caught_up(&flow.feed, running).unwrap();
    let repeats = flow.assert_equal(false);
    println!("{counted} kills with messages in flight, {attempts} attempts");
    // The producer tells the broker what it has sent already.
    assert_eq!(repeats.messages, 0, "{repeats:?}");
}

/// The broker is gone, or stands still, for a while under load: Weir stays inside its memory.
fn broker_away(kill: bool) {
    let _machine = crate::alone();
    let seconds = std::env::var("WEIR_TEST_AWAY_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let away = Duration::from_secs(seconds.unwrap_or(60));
    let broker = Broker::own(KafkaOptions::default()).unwrap();
    let source = TestServer::get(Kind::Mysql, End::Source).unwrap();
    let flow = Flow::from(source, broker, "", "64MiB");
    flow.setup();
    let mut options = Options {
        seed: 71,
        family: false,
        ddl_pause: None,
        ..Options::default()
    };
    options.pause = Duration::ZERO;
    let load = Load::start(flow.source.uri(), &flow.names, &options).unwrap();
    let mut running = flow.feed.start(&[]).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    if kill {
        flow.broker.kill().unwrap();
    } else {
        flow.broker.signal("STOP").unwrap();
    }
    let begun = Instant::now();
    let mut wide = flow.client();
    let filler = "x".repeat(100_000);
    let mut number = 0;
    while begun.elapsed() < away {
        // More than the quota, in large rows too.
        number += 1;
        let sql = format!(
            "INSERT INTO {}.nokey (a, s, bl) VALUES ({number}, 'large', '{}')",
            flow.names.main,
            &filler[..60_000]
        );
        wide.run(&sql).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(running.is_running().unwrap(), "{}", running.trouble());
    if kill {
        flow.broker.start_again().unwrap();
    } else {
        flow.broker.signal("CONT").unwrap();
    }
    load.stop().unwrap();
    running.signal("TERM").unwrap();
    let stopped = running.finish(LIMIT).unwrap();
    stopped.assert_ok();
    let peak = stopped.high_water_bytes >> 20;
    println!("{number} large rows, VmHWM {peak} MiB");
    // memory-quota × 1.2 + 100 MiB
    assert!(peak <= 64 * 12 / 10 + 100, "{peak} MiB");
    run_to_end(&flow.feed).unwrap();
    flow.assert_equal(false);
}

#[test]
fn memory_while_the_broker_is_gone() {
    broker_away(true);
}

#[test]
fn memory_while_the_broker_stands_still() {
    broker_away(false);
}
