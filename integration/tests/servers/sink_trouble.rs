//! Trouble at a running sink: what passes is waited for, what does not stops one table with one clear error, and after
//! the repair nothing is lost.

use std::time::Duration;

use weir_integration::load::Options;
use weir_integration::{Changefeed, Client, Kind, Load, Pair, Running, SmallDisk, TestServer, wait_until};

const LIMIT: Duration = Duration::from_secs(120);
/// A value that no message may show.
const SECRET: &str = "top-secret-value";

/// Two tables that each hold some rows, at both ends; the changefeed runs.
struct Bench {
    pair: Pair,
    feed: Changefeed,
    running: Running,
    source: Client,
    sink: Client,
    rows: u32,
}

impl Bench {
    fn new(kind: Kind) -> Self {
        Self::with(Pair::own(kind, kind).unwrap(), |pair| pair.sink.uri().to_owned())
    }

    /// `to`: the address that the changefeed writes to.
    fn with(pair: Pair, to: impl FnOnce(&Pair) -> String) -> Self {
        let main = pair.names.main.clone();
        let mut source = pair.source.client().unwrap();
        source
            .run(&format!(
                "CREATE DATABASE {main} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
            ))
            .unwrap();
        for table in ["broken", "fine"] {
            source
                .run(&format!(
                    "CREATE TABLE {main}.{table} (id INT PRIMARY KEY, code VARCHAR(60) NOT NULL, v LONGBLOB, \
                     UNIQUE KEY u_code (code))"
                ))
                .unwrap();
        }
        let sink = pair.sink.client().unwrap();
        let uri = to(&pair);
        let feed = pair.feed_by(pair.source.uri(), &uri, "").unwrap();
        let running = feed.start(&[]).unwrap();
        let mut bench = Self {
            pair,
            feed,
            running,
            source,
            sink,
            rows: 0,
        };
        bench.write("broken", 20);
        bench.write("fine", 20);
        bench.equal();
        bench
    }

    /// New rows at the source, and changes of the row before.
    fn write(&mut self, table: &str, rows: u32) {
        let main = &self.pair.names.main;
        for _ in 0..rows {
            self.rows += 1;
            let id = self.rows;
            self.source
                .run_all([
                    format!("INSERT INTO {main}.{table} VALUES ({id}, 'c{id}', 'x')"),
                    format!("UPDATE {main}.{table} SET v = CONCAT(v, 'y') WHERE id >= {id} - 1"),
                ])
                .unwrap();
        }
    }

    fn equal(&self) {
        let equal = self.pair.equal_within(LIMIT);
        assert!(equal.is_ok(), "{equal:?}\n{}", self.running.trouble());
    }

    fn same(&mut self, table: &str) -> bool {
        let sql = format!(
            "SELECT COUNT(*), IFNULL(SUM(CRC32(CONCAT(id, code, v))), 0) FROM {}.{table}",
            self.pair.names.main
        );
        self.source.text(&sql).unwrap() == self.sink.text(&sql).unwrap()
    }

    fn restart(&mut self) {
        self.running.signal("TERM").unwrap();
        wait_until("the end", LIMIT, || Ok(!self.running.is_running()?)).unwrap();
        self.running = self.feed.start(&[]).unwrap();
    }

    /// The other table goes on, and the log tells of `broken` with a code.
    fn only_broken_stops(&mut self, code: &str) {
        self.write("broken", 5);
        self.write("fine", 5);
        let arrived = wait_until("the other table", LIMIT, || Ok(self.same("fine")));
        assert!(arrived.is_ok(), "{arrived:?}\n{}", self.running.trouble());
        let told = wait_until("the error in the log", LIMIT, || {
            Ok(self.running.stderr()?.contains(code))
        });
        assert!(told.is_ok(), "{told:?}\n{}", self.running.trouble());
        assert!(self.running.is_running().unwrap(), "{}", self.running.trouble());
    }

    /// Stops, and runs to the end with the error of the stopped table; then again after `repair`, without one.
    fn repaired_by(self, code: &str, words: &[&str], repair: impl FnOnce(&Pair, &mut Client, &mut Client)) {
        let Self {
            pair,
            feed,
            running,
            mut source,
            mut sink,
            ..
        } = self;
        running.signal("TERM").unwrap();
        let stopped = running.finish(LIMIT).unwrap();
        let again = feed.catch_up().unwrap();
        again.assert_code(3);
        let (found, message) = again.error();
        println!("{found}: {message}");
        assert_eq!(found, code, "{message}");
        for word in words {
            assert!(message.contains(word), "`{word}` is missing: {message}");
        }
        for told in [&stopped.stderr, &stopped.stdout, &again.stderr, &again.stdout] {
            assert!(!told.contains(SECRET), "a value is told");
        }
        repair(&pair, &mut source, &mut sink);
        weir_integration::pair::run_to_end(&feed).unwrap();
        pair.assert_equal().unwrap();
    }
}

/// A user of the sink that may do what the documentation asks for, and nothing else.
fn plain_user(sink: &TestServer) -> String {
    let mut admin = sink.client().unwrap();
    admin
        .run_all([
            "CREATE USER 'app'@'%' IDENTIFIED BY 'weir'",
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, PROCESS ON *.* TO \
             'app'@'%'",
        ])
        .unwrap();
    sink.uri().replace("root:", "app:")
}

/// What was lost with the table is loaded from the source while the other tables go on; changes that are in the copy
/// already are no harm.
#[test]
fn a_dropped_table_is_loaded_anew() {
    let _machine = crate::shared();
    let mut bench = Bench::new(Kind::Mysql);
    let main = bench.pair.names.main.clone();
    bench.sink.run(&format!("DROP TABLE {main}.broken")).unwrap();
    bench.only_broken_stops("WEIR-MYS-012");
    let rows = bench
        .source
        .text(&format!("SELECT id, code, v FROM {main}.broken"))
        .unwrap();
    let create = bench
        .source
        .text(&format!("SHOW CREATE TABLE {main}.broken"))
        .unwrap();
    // What the copy does not have: it comes by the changefeed.
    bench.write("broken", 5);
    bench.repaired_by("WEIR-MYS-012", &["broken"], |_, _, sink| {
        sink.run(&format!("USE {main}")).unwrap();
        sink.run(&create[0][1]).unwrap();
        for row in rows {
            sink.run(&format!(
                "INSERT INTO broken VALUES ({}, '{}', '{}')",
                row[0], row[1], row[2]
            ))
            .unwrap();
        }
    });
}

/// The row of the source wins where it is written again after a restart.
#[test]
fn a_unique_value_that_somebody_else_wrote() {
    let _machine = crate::shared();
    let mut bench = Bench::new(Kind::Mysql);
    let main = bench.pair.names.main.clone();
    bench
        .sink
        .run(&format!(
            "INSERT INTO {main}.broken VALUES (999999, '{SECRET}', 'z')"
        ))
        .unwrap();
    bench
        .source
        .run(&format!(
            "INSERT INTO {main}.broken VALUES (500000, '{SECRET}', 'x')"
        ))
        .unwrap();
    bench.only_broken_stops("WEIR-MYS-011");
    bench.running.signal("TERM").unwrap();
    let Bench {
        pair, feed, running, ..
    } = bench;
    let stopped = running.finish(LIMIT).unwrap();
    assert!(stopped.stderr.contains("u_code") && stopped.stderr.contains("1062"));
    for told in [&stopped.stderr, &stopped.stdout] {
        assert!(!told.contains(SECRET), "a value is told");
    }
    weir_integration::pair::run_to_end(&feed).unwrap();
    pair.assert_equal().unwrap();
}

#[test]
fn a_row_that_is_larger_than_the_sink_takes() {
    let _machine = crate::shared();
    let mut bench = Bench::new(Kind::Mysql);
    let main = bench.pair.names.main.clone();
    bench.sink.run("SET GLOBAL max_allowed_packet = 1048576").unwrap();
    // Connections keep the limit that they were opened with.
    bench.restart();
    bench
        .source
        .run(&format!(
            "INSERT INTO {main}.broken VALUES (500000, 'large', REPEAT('{SECRET}', 200000))"
        ))
        .unwrap();
    bench.only_broken_stops("WEIR-MYS-115");
    let words = ["broken", "max_allowed_packet", "1047552"];
    bench.repaired_by("WEIR-MYS-115", &words, |_, _, sink| {
        sink.run("SET GLOBAL max_allowed_packet = 67108864").unwrap();
    });
}

#[test]
fn a_privilege_that_is_missing_on_one_table() {
    let _machine = crate::shared();
    for (kind, grants, code, hint) in [
        (Kind::Mysql, "SELECT", "WEIR-MYS-017", "privilege"),
        (Kind::Mariadb118, "", "WEIR-MYS-012", "may not see it"),
    ] {
        let pair = Pair::own(kind, kind).unwrap();
        let main = pair.names.main.clone();
        let mut bench = Bench::with(pair, |pair| plain_user(&pair.sink));
        let most = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES";
        bench
            .sink
            .run_all([
                format!("REVOKE {most} ON *.* FROM 'app'@'%'"),
                format!("GRANT {most} ON weir.* TO 'app'@'%'"),
                format!("GRANT {most} ON {main}.fine TO 'app'@'%'"),
            ])
            .unwrap();
        if !grants.is_empty() {
            bench
                .sink
                .run(&format!("GRANT {grants} ON {main}.broken TO 'app'@'%'"))
                .unwrap();
        }
        // Privileges on all databases count for sessions that begin later.
        bench.restart();
        bench.only_broken_stops(code);
        bench.repaired_by(code, &["broken", hint], |_, _, sink| {
            sink.run(&format!("GRANT {most} ON {main}.broken TO 'app'@'%'"))
                .unwrap();
        });
    }
}

/// Options that forbid writes come and go under load.
fn read_only(kind: Kind, on: &str, off: &[&str]) {
    let _machine = crate::shared();
    let pair = Pair::own(kind, kind).unwrap();
    pair.setup().unwrap();
    let uri = plain_user(&pair.sink);
    let feed = pair.feed_by(pair.source.uri(), &uri, "").unwrap();
    let mut running = feed.start(&[]).unwrap();
    let options = Options {
        ddl_pause: Some(Duration::from_millis(500)),
        clients: 2,
        ..Options::default()
    };
    let load = Load::start(pair.source.uri(), &pair.names, &options).unwrap();
    let mut sink = pair.sink.client().unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        sink.run(on).unwrap();
        let told = wait_until("the reason in the log", LIMIT, || {
            Ok(running.stderr()?.contains("read-only"))
        });
        assert!(told.is_ok(), "{told:?}\n{}", running.trouble());
        std::thread::sleep(Duration::from_secs(2));
        assert!(running.is_running().unwrap(), "{}", running.trouble());
        sink.run_all(off).unwrap();
    }
    load.stop().unwrap();
    let equal = pair.equal_within(LIMIT);
    assert!(equal.is_ok(), "{equal:?}\n{}", running.trouble());
}

#[test]
fn mysql_that_becomes_read_only_under_load() {
    read_only(
        Kind::Mysql,
        "SET GLOBAL super_read_only = ON",
        &["SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF"],
    );
}

#[test]
fn mariadb_that_becomes_read_only_under_load() {
    read_only(
        Kind::Mariadb118,
        "SET GLOBAL read_only = ON",
        &["SET GLOBAL read_only = OFF"],
    );
}

/// Others take all connections while Weir has lost its own.
#[test]
fn no_connection_is_free() {
    let _machine = crate::shared();
    let source = TestServer::own(Kind::Mysql, &[]).unwrap();
    let sink = TestServer::own(Kind::Mysql, &["--max-connections=40"]).unwrap();
    let pair = Pair::of(source, sink).unwrap();
    let mut bench = Bench::with(pair, |pair| plain_user(&pair.sink));
    let uri = bench.pair.sink.uri().replace("root:", "other:");
    bench
        .sink
        .run("CREATE USER 'other'@'%' IDENTIFIED BY 'weir'")
        .unwrap();
    let mut others: Vec<Client> = Vec::new();
    let full = wait_until("the last connection", LIMIT, || {
        let sessions = bench
            .sink
            .text("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app'")?;
        for id in sessions.iter().flatten() {
            // It may have ended already.
            drop(bench.sink.run(&format!("KILL {id}")));
        }
        while let Ok(other) = Client::connect(&uri) {
            others.push(other);
        }
        let own = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'";
        Ok(bench.sink.number(own)? == 0)
    });
    assert!(full.is_ok(), "{full:?}");
    bench.write("fine", 10);
    let told = wait_until("the reason in the log", LIMIT, || {
        Ok(bench.running.stderr()?.contains("WEIR-MYS-005"))
    });
    assert!(told.is_ok(), "{told:?}\n{}", bench.running.trouble());
    assert!(bench.running.is_running().unwrap(), "{}", bench.running.trouble());
    drop(others);
    bench.equal();
}

/// The disk of the sink's binlog is full: the server takes no commit until there is room.
#[test]
fn a_full_disk_below_the_binlog_of_the_sink() {
    let _machine = crate::shared();
    let disk = SmallDisk::new(BINLOG_KIBIBYTES).unwrap();
    std::fs::create_dir_all(disk.folder()).unwrap();
    let binlog = format!("--log-bin={}", disk.folder().join("binlog").display());
    let source = TestServer::own(Kind::Mysql, &[]).unwrap();
    let sink = TestServer::own(Kind::Mysql, &[&binlog]).unwrap();
    let pair = Pair::of(source, sink).unwrap();
    let mut bench = Bench::with(pair, |pair| pair.sink.uri().to_owned());
    let main = bench.pair.names.main.clone();
    for id in 0..60 {
        bench
            .source
            .run(&format!(
                "INSERT INTO {main}.fine VALUES ({}, 'l{id}', REPEAT(UUID(), 8000))",
                100_000 + id
            ))
            .unwrap();
    }
    bench.write("broken", 10);
    let log = bench.pair.sink.process().unwrap().dir().join("error.log");
    wait_until("the full disk in the server's log", LIMIT, || {
        Ok(std::fs::read_to_string(&log)?.contains("Disk is full"))
    })
    .unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert!(bench.running.is_running().unwrap(), "{}", bench.running.trouble());
    disk.enlarge().unwrap();
    bench.equal();
}

/// Less than the rows of the test.
const BINLOG_KIBIBYTES: u32 = 8 << 10;
