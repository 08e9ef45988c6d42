//! Settings of the sink.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_filter::{NameCase, Router, TableFilter, is_wanted};
use weir_types::{ChangefeedId, LineageId, OrderKey, Secret, TableName, TlsOptions};

/// Connections that write rows, unless configured otherwise.
pub const WORKER_COUNT_DEFAULT: usize = 16;
/// Most connections that write rows.
pub const WORKER_COUNT_MAX: usize = 256;
/// Longest time that one attempt to connect may take, unless configured otherwise.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// One life of Weir's process. The target keeps whose turn it is: a process that was
/// stopped, or cut off, and succeeded by another one must not write when it wakes up.
#[derive(Debug)]
pub struct Run {
    id: String,
    claimed: AtomicBool,
}

impl Default for Run {
    fn default() -> Self {
        // Each state is made of random numbers of the system.
        let random = || RandomState::new().build_hasher().finish();
        Self {
            id: format!("{:016x}{:016x}", random(), random()),
            claimed: AtomicBool::new(false),
        }
    }
}

impl Run {
    /// As the target keeps it: 32 hexadecimal digits.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether this run has had its turn: then only it may go on, not begin again.
    pub(crate) fn has_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    pub(crate) fn set_claimed(&self) {
        self.claimed.store(true, Ordering::Release);
    }
}

/// Settings of a MySQL or MariaDB sink.
#[derive(Clone, Debug)]
pub struct MysqlSinkConfig {
    /// The changefeed: its id names progress and locks at the target.
    pub changefeed: ChangefeedId,
    /// History that order keys belong to.
    pub lineage: LineageId,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password; none for a login without one.
    pub password: Option<Secret>,
    /// Encryption.
    pub tls: TlsOptions,
    /// Connections that write rows; one more runs DDL.
    pub worker_count: usize,
    /// Names at the target.
    pub router: Arc<Router>,
    /// Tables that are replicated; none for all. A DDL is run only if it concerns some.
    pub filter: Option<Arc<TableFilter>>,
    /// Rows up to here may have been written before by an earlier generation: they are
    /// written so that it does not matter.
    pub replay_upto: OrderKey,
    /// This life of the process; the same for all of its generations.
    pub run: Arc<Run>,
    /// Longest time that one attempt to connect may take.
    pub connect_timeout: Duration,
}

impl MysqlSinkConfig {
    /// Settings with defaults for all that is not an address or an identity.
    pub fn new(changefeed: ChangefeedId, lineage: LineageId, host: String, port: u16, user: String) -> Self {
        Self {
            changefeed,
            lineage,
            host,
            port,
            user,
            password: None,
            tls: TlsOptions::default(),
            worker_count: WORKER_COUNT_DEFAULT,
            router: Arc::new(Router::identity(NameCase::Sensitive)),
            filter: None,
            replay_upto: OrderKey::MAX,
            run: Arc::default(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
        }
    }

    /// `host:port`, as errors name it.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether a table, or some table of a schema, is replicated.
    pub(crate) fn wants(&self, name: &TableName) -> bool {
        is_wanted(self.filter.as_deref(), name)
    }

    pub(crate) fn connections(&self) -> usize {
        self.worker_count.clamp(1, WORKER_COUNT_MAX)
    }
}
