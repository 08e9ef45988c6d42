//! A Kafka broker for the tests: that of the environment, one that the tests of a process share, or one of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use weir_test_servers::{FirstNode, Kafka, KafkaOptions, cache_dir, free_port, kafka_tool, target_dir};

/// Where the environment names a broker.
const VARIABLE: &str = "WEIR_TEST_KAFKA";

#[derive(Debug)]
struct Own {
    kafka: Mutex<Option<Kafka>>,
    port: u16,
    controller_port: u16,
    options: KafkaOptions,
    // Behind the broker, so that it is removed after the broker has ended.
    dir: tempfile::TempDir,
}

/// A broker.
#[derive(Clone, Debug)]
pub struct Broker {
    address: String,
    own: Option<Arc<Own>>,
}

/// The one that tests of a process share; ends with the last of them.
static SHARED: Mutex<std::sync::Weak<Own>> = Mutex::new(std::sync::Weak::new());

impl Broker {
    /// The broker that the environment names, or the shared one of this process.
    ///
    /// # Errors
    /// When it does not start.
    pub fn get() -> Result<Self> {
        if let Ok(uri) = std::env::var(VARIABLE) {
            let address = uri
                .trim_start_matches("kafka://")
                .trim_end_matches('/')
                .to_owned();
            return Ok(Self { address, own: None });
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = shared.upgrade() {
            return Ok(Self::of(own));
        }
        let broker = Self::own(KafkaOptions::default())?;
        if let Some(own) = &broker.own {
            *shared = Arc::downgrade(own);
        }
        Ok(broker)
    }

    /// A broker of its own, for a test that kills it or sets it up in its own way.
    ///
    /// # Errors
    /// When it does not start.
    pub fn own(options: KafkaOptions) -> Result<Self> {
        let scratch = target_dir()?.join("tmp");
        std::fs::create_dir_all(&scratch)?;
        let dir = tempfile::tempdir_in(scratch)?;
        let (port, controller_port) = (free_port()?, free_port()?);
        let kafka = Kafka::start_with(
            &cache_dir()?,
            &dir.path().join("k"),
            port,
            controller_port,
            &options,
        )?;
        Ok(Self::of(Arc::new(Own {
            kafka: Mutex::new(Some(kafka)),
            port,
            controller_port,
            options,
            dir,
        })))
    }

    /// A second broker of this one's cluster.
    ///
    /// # Errors
    /// When this one is not ours, or the second does not start.
    pub fn second(&self) -> Result<Self> {
        let own = self.private()?;
        Self::own(KafkaOptions {
            joins: Some(FirstNode::of(&own.dir.path().join("k"), own.controller_port)?),
            ..KafkaOptions::default()
        })
    }

    fn of(own: Arc<Own>) -> Self {
        Self {
            address: format!("127.0.0.1:{}", own.port),
            own: Some(own),
        }
    }

    /// `host:port` for clients without TLS and login.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address as a sink's URI.
    pub fn uri(&self) -> String {
        format!("kafka://{}/", self.address)
    }

    fn private(&self) -> Result<&Own> {
        self.own.as_deref().context("the broker is not ours")
    }

    /// Runs a program of the broker's release; `--bootstrap-server` is given.
    ///
    /// # Errors
    /// When it does not end with status 0.
    pub fn tool(&self, class: &str, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["--bootstrap-server", self.address()];
        all.extend(arguments);
        kafka_tool(&cache_dir()?, class, &all)
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// When the broker is not ours.
    pub fn kill(&self) -> Result<()> {
        let own = self.private()?;
        drop(own.kafka.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }

    /// Starts it again with what it had.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&self) -> Result<()> {
        let own = self.private()?;
        let kafka = Kafka::start_with(
            &cache_dir()?,
            &own.dir.path().join("k"),
            own.port,
            own.controller_port,
            &own.options,
        )?;
        *own.kafka.lock().unwrap_or_else(PoisonError::into_inner) = Some(kafka);
        Ok(())
    }

    /// `kill -9`, a moment of nothing, and the same broker again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn kill_and_start_again(&self, pause: Duration) -> Result<()> {
        self.kill()?;
        std::thread::sleep(pause);
        self.start_again()
    }

    /// Stops the process where it is (`STOP`), or lets it go on (`CONT`).
    ///
    /// # Errors
    /// When the broker is not ours.
    pub fn signal(&self, name: &str) -> Result<()> {
        let own = self.private()?;
        let kafka = own.kafka.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = kafka.as_ref().context("the broker is not running")?.pid();
        let status = std::process::Command::new("kill")
            .args([format!("-{name}"), pid.to_string()])
            .status()?;
        anyhow::ensure!(status.success(), "kill -{name}: {status}");
        Ok(())
    }
}
