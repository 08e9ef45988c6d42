//! Database servers for the tests: from the environment where it names them, else private ones.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weir_test_servers::{Install, Kind, Server, cache_dir, free_port, target_dir};

use crate::client::Client;

/// Small and quick; a killed process loses nothing with them, only a machine that stops would.
const SETTINGS: &[&str] = &[
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--max-connections=300",
];
/// Time between two looks at something that is waited for.
const POLL: Duration = Duration::from_millis(5);
const MYSQL_SETTINGS: &[&str] = &["--innodb-redo-log-capacity=64M"];

/// Which end a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Changes are read from it.
    Source,
    /// Changes are written to it.
    Sink,
}

/// A server of a test.
#[derive(Debug)]
pub struct TestServer {
    uri: String,
    kind: Kind,
    own: Option<Server>,
    // Behind the server, so that it is removed after the server has ended.
    _dir: Option<tempfile::TempDir>,
}

impl TestServer {
    /// The server that the environment names for this kind and end (see `cargo xtask services`), or a private one.
    ///
    /// # Errors
    /// When a private one does not start.
    pub fn get(kind: Kind, end: End) -> Result<Self> {
        let variable = match (kind, end) {
            (Kind::Mysql, End::Source) => Some("WEIR_TEST_MYSQL"),
            (Kind::Mysql, End::Sink) => Some("WEIR_TEST_MYSQL_SINK"),
            (Kind::Mariadb118, End::Source) => Some("WEIR_TEST_MARIADB"),
            (Kind::Mariadb118, End::Sink) => Some("WEIR_TEST_MARIADB_SINK"),
            (Kind::Mariadb1011, _) => None,
        };
        match variable.and_then(|name| std::env::var(name).ok()) {
            Some(uri) => Ok(Self {
                uri,
                kind,
                own: None,
                _dir: None,
            }),
            None => Self::own(kind, &[]),
        }
    }

    /// A private server, whatever the environment says: one that the test kills or sets up in its own way.
    ///
    /// # Errors
    /// When it does not start.
    pub fn own(kind: Kind, extra: &[&str]) -> Result<Self> {
        let install = Install::get(&cache_dir()?, kind)?;
        let scratch = target_dir()?.join("tmp");
        std::fs::create_dir_all(&scratch)?;
        let dir = tempfile::tempdir_in(scratch)?;
        let mut settings = SETTINGS.to_vec();
        if kind == Kind::Mysql {
            settings.extend(MYSQL_SETTINGS);
        }
        settings.extend(extra);
        let server = Server::start(&install, &dir.path().join("s"), free_port()?, &settings)?;
        Ok(Self {
            uri: server.uri(),
            kind,
            own: Some(server),
            _dir: Some(dir),
        })
    }

    /// Address with user and password.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Host and port.
    ///
    /// # Errors
    /// When the address has another form than `mysql://user:password@host:port`.
    pub fn address(&self) -> Result<&str> {
        let rest = self.uri.rsplit('@').next().context("an address")?;
        Ok(rest.trim_end_matches('/'))
    }

    /// The same user and password at another port on 127.0.0.1, for a proxy in between.
    ///
    /// # Errors
    /// As `address`.
    pub fn uri_at(&self, port: u16) -> Result<String> {
        Ok(self.uri.replace(self.address()?, &format!("127.0.0.1:{port}")))
    }

    /// The release.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A new connection.
    ///
    /// # Errors
    /// When the server is not reachable.
    pub fn client(&self) -> Result<Client> {
        Client::connect(&self.uri)
    }

    /// The private server.
    ///
    /// # Errors
    /// When it is one of the environment's.
    pub fn process(&mut self) -> Result<&mut Server> {
        self.own.as_mut().context("the server is not ours")
    }

    /// `kill -9`, a moment of nothing, and the same server again.
    ///
    /// # Errors
    /// When it is not ours, or does not come back.
    pub fn kill_and_start_again(&mut self, pause: Duration) -> Result<()> {
        let server = self.process()?;
        server.kill()?;
        std::thread::sleep(pause);
        server.start_again()
    }
}

/// Asks again until something holds.
///
/// # Errors
/// When it does not hold within `limit`; the message says what was waited for.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let start = Instant::now();
    loop {
        if holds()? {
            return Ok(start.elapsed());
        }
        if start.elapsed() > limit {
            bail!("not within {} s: {what}", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
}
