//! Each thing that can be wrong with a server is one clear error with a code and the right status, and after repair the
//! run goes on with nothing lost.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::{Changefeed, Client, Finished, Kind, Load, Pair, SmallDisk, TestServer, wait_until};
use weir_test_servers::free_port;

const LIMIT: Duration = Duration::from_secs(120);
/// Longer than any error at the start takes.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A run that ends with an error; returns its message.
fn fails(feed: &Changefeed, status: i32, arguments: &[&str]) -> (String, String) {
    let finished: Finished = feed.start(arguments).unwrap().finish(START_LIMIT).unwrap();
    finished.assert_code(status);
    let (code, message) = finished.error();
    println!("{code}: {message}");
    (code, message)
}

/// Source and sink with a few tables; the load is short.
fn small() -> Pair {
    let pair = Pair::own(Kind::Mysql, Kind::Mysql).unwrap();
    pair.setup().unwrap();
    pair
}

fn some_load(pair: &Pair) {
    let options = Options {
        ddl_pause: None,
        clients: 2,
        ..Options::default()
    };
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    load.stop().unwrap();
}

#[test]
fn wrong_password() {
    let _machine = crate::shared();
    let pair = small();
    let wrong = |uri: &str| uri.replace("root:weir@", "root:secret-guess@");
    for (from, to) in [
        (wrong(pair.source.uri()), pair.sink.uri().to_owned()),
        (pair.source.uri().to_owned(), wrong(pair.sink.uri())),
    ] {
        let feed = pair.feed_by(&from, &to, "").unwrap();
        let (_, message) = fails(&feed, 3, &[]);
        assert!(!message.contains("secret-guess"), "{message}");
    }
    let feed = pair.feed("").unwrap();
    weir_integration::pair::run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
}

#[test]
fn unreachable_hosts() {
    let _machine = crate::shared();
    let pair = small();
    let nowhere = format!("mysql://root:weir@127.0.0.1:{}", free_port().unwrap());
    for (from, to) in [
        (nowhere.as_str(), pair.sink.uri()),
        (pair.source.uri(), nowhere.as_str()),
    ] {
        let feed = pair.feed_by(from, to, "").unwrap();
        let (_, message) = fails(&feed, 1, &["--connect-timeout", "2s"]);
        let port = nowhere.rsplit(':').next().unwrap();
        assert!(message.contains(port), "the address is missing: {message}");
    }
}

/// A setting of the source that would lose rows: refused with its name, fine after repair.
fn setting(name: &str, wrong: &str, right: &str) {
    let _machine = crate::shared();
    let pair = small();
    let mut source = pair.source.client().unwrap();
    let feed = pair.feed("").unwrap();
    source.run(&format!("SET GLOBAL {name} = {wrong}")).unwrap();
    let (_, message) = fails(&feed, 3, &[]);
    assert!(message.contains(name) && message.contains(wrong), "{message}");
    source.run(&format!("SET GLOBAL {name} = {right}")).unwrap();
    some_load(&pair);
    weir_integration::pair::run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
}

#[test]
fn statement_format() {
    setting("binlog_format", "STATEMENT", "ROW");
}

#[test]
fn row_image_not_full() {
    setting("binlog_row_image", "MINIMAL", "FULL");
}

#[test]
fn a_server_id_that_another_replica_has() {
    let _machine = crate::shared();
    let pair = small();
    let feed = pair.feed("").unwrap();
    let id = pair
        .source
        .address()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    // The source's own id: our servers have their port for it.
    feed.add_to_source(&format!("server-id = {id}")).unwrap();
    let (_, message) = fails(&feed, 3, &[]);
    assert!(message.contains("server") && message.contains(&id), "{message}");
}

#[test]
fn purged_transactions() {
    let _machine = crate::shared();
    let pair = small();
    some_load(&pair);
    let mut source = pair.source.client().unwrap();
    let uuid = source.first("SELECT @@server_uuid").unwrap().unwrap();
    source.run("FLUSH BINARY LOGS").unwrap();
    let last = source.first("SHOW BINARY LOG STATUS").unwrap().unwrap();
    source.run(&format!("PURGE BINARY LOGS TO '{last}'")).unwrap();
    let feed = Changefeed::between(
        pair.source.uri(),
        pair.sink.uri(),
        &format!("start = \"gtid:{uuid}:1\""),
        "",
    )
    .unwrap();
    let (_, message) = fails(&feed, 3, &[]);
    assert!(
        message.contains(&uuid[..8]),
        "what is missing is not named: {message}"
    );
}

#[test]
fn a_table_dropped_at_the_sink() {
    let _machine = crate::shared();
    let pair = small();
    let main = &pair.names.main;
    let feed = pair.feed("").unwrap();
    let mut running = feed.start(&[]).unwrap();
    pair.equal_within(LIMIT).unwrap();
    let mut sink = pair.sink.client().unwrap();
    let create = sink.text(&format!("SHOW CREATE TABLE {main}.acct")).unwrap()[0][1].clone();
    sink.run(&format!("RENAME TABLE {main}.acct TO {main}.kept_aside"))
        .unwrap();
    some_load(&pair);
    // The other tables go on.
    pair.lag(LIMIT).unwrap();
    assert!(running.is_running().unwrap());
    running.signal("TERM").unwrap();
    running.finish(LIMIT).unwrap();
    let finished = feed.catch_up().unwrap();
    finished.assert_code(3);
    let (_, message) = finished.error();
    assert!(message.contains("acct"), "{message}");
    assert!(create.contains("u_slot"));
    sink.run(&format!("RENAME TABLE {main}.kept_aside TO {main}.acct"))
        .unwrap();
    weir_integration::pair::run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
}

#[test]
fn a_read_only_sink() {
    let _machine = crate::shared();
    let pair = small();
    let feed = pair.feed("").unwrap();
    let mut running = feed.start(&[]).unwrap();
    pair.equal_within(LIMIT).unwrap();
    let mut sink = pair.sink.client().unwrap();
    sink.run("SET GLOBAL super_read_only = ON").unwrap();
    some_load(&pair);
    std::thread::sleep(Duration::from_secs(3));
    assert!(running.is_running().unwrap(), "{}", running.trouble());
    let log = running.stderr().unwrap();
    assert!(
        log.contains("read-only") || log.contains("read only"),
        "nothing says why:\n{log}"
    );
    sink.run("SET GLOBAL super_read_only = OFF").unwrap();
    sink.run("SET GLOBAL read_only = OFF").unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
}

/// Source and sink are the same server: each row would come back as a new change.
#[test]
fn the_same_server_at_both_ends() {
    let _machine = crate::shared();
    let pair = small();
    let feed = pair.feed_by(pair.source.uri(), pair.source.uri(), "").unwrap();
    fails(&feed, 3, &[]);
    let main = &pair.names.main;
    let route = format!("[[route]]\nmatch = \"{main}.*\"\ntarget-schema = \"copy_{main}\"\n");
    let without_two =
        format!("{route}[[route]]\nmatch = \"{main}_*.*\"\ntarget-schema = \"copy_{{schema}}\"\n");
    let feed = pair
        .feed_by(pair.source.uri(), pair.source.uri(), &without_two)
        .unwrap();
    let running = feed.start(&[]).unwrap();
    let mut source = pair.source.client().unwrap();
    let arrived = wait_until("the routed rows", LIMIT, || {
        Ok(source
            .number(&format!("SELECT COUNT(*) FROM copy_{main}.acct"))
            .is_ok_and(|count| count == 200))
    });
    assert!(arrived.is_ok(), "{arrived:?}\n{}", running.trouble());
}

/// A disk of the sink that is full is waited for: one table lies on a small disk of its own.
#[test]
fn a_full_disk_at_the_sink() {
    let _machine = crate::shared();
    let disk = SmallDisk::new(DISK_KIBIBYTES).unwrap();
    std::fs::create_dir_all(disk.folder()).unwrap();
    let directories = format!("--innodb-directories={}", disk.folder().display());
    let source = TestServer::own(Kind::Mysql, &[]).unwrap();
    let sink = TestServer::own(Kind::Mysql, &[&directories]).unwrap();
    let pair = Pair::of(source, sink).unwrap();
    let main = pair.names.main.clone();
    let (mut from, mut to) = (pair.source.client().unwrap(), pair.sink.client().unwrap());
    let large = format!(
        "CREATE TABLE IF NOT EXISTS {main}.large (id INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(8000))"
    );
    let database =
        format!("CREATE DATABASE IF NOT EXISTS {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
    let on_disk = format!("{large} DATA DIRECTORY = '{}'", disk.folder().display());
    to.run_all([&database, &on_disk]).unwrap();
    let small = format!("CREATE TABLE {main}.small (id INT PRIMARY KEY, v INT)");
    from.run_all([&database, &large, &small]).unwrap();
    let feed = pair.feed("").unwrap();
    let mut running = feed.start(&[]).unwrap();
    pair.equal_within(LIMIT).unwrap();
    let rows = ["(REPEAT(UUID(), 200))"; 25].join(",");
    for id in 0..100 {
        from.run(&format!("INSERT INTO {main}.large (v) VALUES {rows}"))
            .unwrap();
        from.run(&format!("INSERT INTO {main}.small VALUES ({id}, {id})"))
            .unwrap();
    }
    let others = wait_until("the other table", LIMIT, || {
        Ok(to.number(&format!("SELECT COUNT(*) FROM {main}.small"))? == 100)
    });
    assert!(others.is_ok(), "{others:?}\n{}", running.trouble());
    wait_until("the error in the log", LIMIT, || {
        Ok(running.stderr()?.contains("1114"))
    })
    .unwrap();
    let count = |to: &mut Client| to.number(&format!("SELECT COUNT(*) FROM {main}.large")).unwrap();
    assert!(count(&mut to) < 2_500);
    assert!(running.is_running().unwrap(), "{}", running.trouble());
    disk.enlarge().unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
    assert_eq!(count(&mut to), 2_500);
}

/// Larger than an empty table, smaller than the rows of the test.
const DISK_KIBIBYTES: u32 = 8 << 10;
