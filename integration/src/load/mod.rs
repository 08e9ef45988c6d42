//! A seeded load on a source: concurrent transactions, and DDL while they run.
//!
//! What each client does follows from the seed; how clients interleave does not. Errors that such a load makes at the
//! source itself (a duplicate key, a deadlock, a table that is just not there) are counted and roll back; any other
//! error ends the load and fails the test. A server that is gone for a while is waited for.

mod ddl;
mod rows;
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mysql_async::Error;

pub use tables::Names;

use crate::client::Client;
use crate::rng::Rng;

/// How long a load waits for a server that is gone.
const OUTAGE_LIMIT: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(100);

/// Errors of the source that a load like this one makes by itself. Numbers: MySQL "Server Error Message Reference",
/// MariaDB "MariaDB Error Codes".
const EXPECTED: &[u16] = &[
    1007, // database exists
    1008, // database does not exist
    1020, // row changed since last read (MariaDB)
    1049, // unknown database
    1050, // table exists
    1051, // unknown table
    1054, // unknown column
    1060, // duplicate column
    1061, // duplicate index name
    1062, // duplicate key
    1091, // nothing to drop
    1136, // column count
    1146, // no such table
    1205, // lock wait timeout
    1213, // deadlock
    1264, // out of range
    1412, // definition changed within the transaction
    1451, 1452, // foreign keys
    1690, // out of range in an expression
    1701, // truncate of a parent
    1761, 1762, // foreign key and duplicate
    3572, // lock not granted at once
];

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Writing connections.
    pub clients: u64,
    /// Time between two transactions of a client.
    pub pause: Duration,
    /// Time between two DDL statements; none without it.
    pub ddl_pause: Option<Duration>,
    /// Whether tables tied by foreign keys are written to.
    pub family: bool,
    /// Same seed, same statements per client.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clients: 4,
            pause: Duration::from_millis(3),
            ddl_pause: Some(Duration::from_millis(150)),
            family: true,
            seed: 20_261_130,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    stop: AtomicBool,
    transactions: AtomicU64,
    ddl: AtomicU64,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    counters: Arc<Counters>,
    threads: Vec<JoinHandle<Result<BTreeMap<u16, u64>>>>,
    started: Instant,
}

/// What a load did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Transactions that committed.
    pub transactions: u64,
    /// Groups of DDL statements that went through.
    pub ddl: u64,
    /// Expected errors by number.
    pub errors: BTreeMap<u16, u64>,
    /// Time from start to stop.
    pub elapsed: Duration,
}

/// Makes the tables of the load.
///
/// # Errors
/// At the first statement that fails.
pub fn setup(client: &mut Client, names: &Names) -> Result<()> {
    client.run_all(tables::setup(names))
}

impl Load {
    /// Starts the threads; [`setup`] has made the tables.
    ///
    /// # Errors
    /// When a client cannot connect.
    pub fn start(uri: &str, names: &Names, options: &Options) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let mut seeds = Rng::new(options.seed);
        let mut threads = Vec::new();
        for client in 1..=options.clients {
            let (names, inner, options) = (names.clone(), Arc::clone(&counters), options.clone());
            let (mut db, rng) = (Client::connect(uri)?, Rng::new(seeds.draw()));
            threads.push(std::thread::spawn(move || {
                let mut writer = rows::Writer {
                    names: &names,
                    rng,
                    client,
                    family: options.family,
                    count: 0,
                };
                repeat(&mut db, &inner, options.pause, &inner.transactions, |db| {
                    writer.transaction(db)
                })
            }));
        }
        if let Some(pause) = options.ddl_pause {
            let (names, inner, family) = (names.clone(), Arc::clone(&counters), options.family);
            let (mut db, rng) = (Client::connect(uri)?, Rng::new(seeds.draw()));
            threads.push(std::thread::spawn(move || {
                let mut changer = ddl::Changer {
                    names: &names,
                    rng,
                    family,
                    count: 0,
                };
                repeat(&mut db, &inner, pause, &inner.ddl, |db| changer.step(db))
            }));
        }
        Ok(Self {
            counters,
            threads,
            started: Instant::now(),
        })
    }

    /// Transactions committed so far.
    pub fn transactions(&self) -> u64 {
        self.counters.transactions.load(Ordering::Relaxed)
    }

    /// Ends the load.
    ///
    /// # Errors
    /// When a thread met an error that is not expected, or nothing was done.
    pub fn stop(mut self) -> Result<Report> {
        self.counters.stop.store(true, Ordering::SeqCst);
        let mut errors = BTreeMap::new();
        for thread in self.threads.drain(..) {
            let counted = thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread of the load panicked"))??;
            for (code, count) in counted {
                *errors.entry(code).or_insert(0) += count;
            }
        }
        let report = Report {
            transactions: self.transactions(),
            ddl: self.counters.ddl.load(Ordering::Relaxed),
            errors,
            elapsed: self.started.elapsed(),
        };
        if report.transactions == 0 {
            bail!("the load did nothing: {report:?}");
        }
        Ok(report)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // A test that failed: the threads end by themselves.
        self.counters.stop.store(true, Ordering::SeqCst);
    }
}

/// Runs an action until the load stops, and counts what it made.
fn repeat(
    db: &mut Client,
    counters: &Counters,
    pause: Duration,
    done: &AtomicU64,
    mut action: impl FnMut(&mut Client) -> Result<(), Error>,
) -> Result<BTreeMap<u16, u64>> {
    let mut errors = BTreeMap::new();
    let mut gone_since = None;
    while !counters.stop.load(Ordering::SeqCst) {
        match action(db) {
            Ok(()) => {
                done.fetch_add(1, Ordering::Relaxed);
                gone_since = None;
                std::thread::sleep(pause);
            }
            Err(Error::Server(error)) if EXPECTED.contains(&error.code) => {
                *errors.entry(error.code).or_insert(0) += 1;
                gone_since = None;
                // Where this fails too, the next statement says why.
                drop(db.run("ROLLBACK"));
            }
            // A server that is stopping says so (1053) before it closes the connection.
            Err(Error::Server(error)) if error.code != 1053 => return Err(Error::Server(error).into()),
            Err(error) => {
                let since = *gone_since.get_or_insert_with(Instant::now);
                if since.elapsed() > OUTAGE_LIMIT {
                    return Err(error.into());
                }
                std::thread::sleep(RETRY);
            }
        }
    }
    Ok(errors)
}
