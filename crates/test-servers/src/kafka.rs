//! Apache Kafka in KRaft mode, from Maven Central: one node, or a second one that joins it.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::apt;
use crate::cache::{is_root, locked};

const VERSION: &str = "4.1.1";
const SLF4J_VERSION: &str = "2.0.17";
const LOG4J_VERSION: &str = "2.25.3";
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// Half of the work of a start is compiling what runs once.
const QUICK_START: [&str; 2] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
/// Small enough for a test machine; the broker's own default is 1 GiB.
const HEAP: [&str; 2] = ["-Xms256m", "-Xmx512m"];

/// What a broker of a test has besides the usual.
#[derive(Clone, Debug, Default)]
pub struct KafkaOptions {
    /// Lines of `server.properties`; they win over the usual ones.
    pub properties: Vec<String>,
    /// Further listeners on 127.0.0.1: name of the protocol (`SSL`, `SASL_PLAINTEXT`, `SASL_SSL`) and port.
    pub listeners: Vec<(&'static str, u16)>,
    /// SCRAM users: name and password.
    pub scram_users: Vec<(String, String)>,
    /// It is started often and has little to do: the machine is to spend less on its start.
    pub starts_often: bool,
    /// The node of the cluster that it joins; a cluster of its own without.
    pub joins: Option<FirstNode>,
}

/// The node that a second one joins: it alone is the controller.
#[derive(Clone, Debug)]
pub struct FirstNode {
    /// Port of its controller on 127.0.0.1.
    pub controller_port: u16,
    /// Id of the cluster.
    pub cluster_id: String,
}

impl FirstNode {
    /// The broker that runs, or ran, in `dir`.
    ///
    /// # Errors
    /// When it never ran there.
    pub fn of(dir: &Path, controller_port: u16) -> Result<Self> {
        let text = std::fs::read_to_string(dir.join("data").join("meta.properties"))
            .with_context(|| format!("the cluster's id in {}", dir.display()))?;
        let id = text.lines().find_map(|line| line.strip_prefix("cluster.id="));
        Ok(Self {
            controller_port,
            cluster_id: id.context("a cluster id")?.to_owned(),
        })
    }
}

/// A running broker.
#[derive(Debug)]
pub struct Kafka {
    port: u16,
    child: Child,
}

impl Kafka {
    /// Downloads the broker into `cache` where it is missing, and starts one with its files in `dir`.
    ///
    /// `controller_port` is for its own controller.
    ///
    /// # Errors
    /// When it cannot be downloaded or does not come up.
    pub fn start(cache: &Path, dir: &Path, port: u16, controller_port: u16) -> Result<Self> {
        Self::start_with(cache, dir, port, controller_port, &KafkaOptions::default())
    }

    /// The same with options. A broker that had run in `dir` goes on with what it had.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_with(
        cache: &Path,
        dir: &Path,
        port: u16,
        controller_port: u16,
        options: &KafkaOptions,
    ) -> Result<Self> {
        let libraries = libraries(cache)?;
        let java = java(cache)?;
        std::fs::create_dir_all(dir)?;
        let dir = std::path::absolute(dir)?;
        let properties = dir.join("server.properties");
        std::fs::write(&properties, configuration(&dir, port, controller_port, options))?;
        let tool = |arguments: &[&str]| run_tool(&java, &libraries, "kafka.tools.StorageTool", arguments);
        let path = properties.to_string_lossy().into_owned();
        if !dir.join("data").exists() {
            let id = match &options.joins {
                Some(first) => first.cluster_id.clone(),
                None => tool(&["random-uuid"])?,
            };
            let id = id.lines().last().context("a cluster id")?;
            let mut arguments = vec!["format", "-t", id, "-c", &path, "--ignore-formatted"];
            let users: Vec<String> = options.scram_users.iter().flat_map(scram).collect();
            for user in &users {
                arguments.extend(["--add-scram", user]);
            }
            tool(&arguments)?;
        }
        let mut command = jvm(&java, &libraries, options.starts_often);
        command.args(["kafka.Kafka", &path]).stdin(Stdio::null());
        command
            .stdout(File::create(dir.join("out.log"))?)
            .stderr(File::create(dir.join("error.log"))?);
        let child = command.process_group(0).spawn().context("start java")?;
        let mut kafka = Self { port, child };
        kafka.wait_ready(&dir)?;
        Ok(kafka)
    }

    fn wait_ready(&mut self, dir: &Path) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the broker ended at once ({status}): see {}",
                    dir.join("out.log").display()
                );
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("the broker did not come up in {} s", START_LIMIT.as_secs())
    }

    /// The address as a URI that the tests take.
    pub fn uri(&self) -> String {
        format!("kafka://127.0.0.1:{}/", self.port)
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Leaves the broker running after this process.
    pub fn leave_running(self) {
        std::mem::forget(self);
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

fn jvm(java: &Path, libraries: &Path, quick: bool) -> Command {
    let mut command = Command::new(java);
    if quick {
        command.args(QUICK_START);
    }
    command.args(HEAP).arg("-Dlog4j2.level=warn").arg("-cp");
    command.arg(libraries.join("*"));
    command
}

/// Runs a program of the broker's release, named by its class; what it prints.
///
/// # Errors
/// When it does not end with status 0.
pub fn kafka_tool(cache: &Path, class: &str, arguments: &[&str]) -> Result<String> {
    run_tool(&java(cache)?, &libraries(cache)?, class, arguments)
}

fn run_tool(java: &Path, libraries: &Path, class: &str, arguments: &[&str]) -> Result<String> {
    let output = jvm(java, libraries, true)
        .arg(class)
        .args(arguments)
        .output()
        .context("run java")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        bail!("{class}: {}{}", text(&output.stdout), text(&output.stderr));
    }
    Ok(text(&output.stdout))
}

/// What `--add-scram` takes, for both mechanisms.
fn scram((name, password): &(String, String)) -> [String; 2] {
    ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        .map(|mechanism| format!("{mechanism}=[name={name},password={password}]"))
}

fn configuration(dir: &Path, port: u16, controller_port: u16, options: &KafkaOptions) -> String {
    let more = |form: &dyn Fn(&str, u16) -> String| -> String {
        options
            .listeners
            .iter()
            .map(|(name, port)| form(name, *port))
            .collect()
    };
    let listeners = more(&|name, port| format!(",{name}://127.0.0.1:{port}"));
    let protocols = more(&|name, _| format!(",{name}:{name}"));
    let (roles, node, controller_port, own) = match &options.joins {
        Some(first) => ("broker", 2, first.controller_port, String::new()),
        None => {
            let own = format!(",CONTROLLER://127.0.0.1:{controller_port}");
            ("broker,controller", 1, controller_port, own)
        }
    };
    let usual = format!(
        "process.roles={roles}\nnode.id={node}\n\
         controller.quorum.voters=1@127.0.0.1:{controller_port}\n\
         listeners=PLAINTEXT://127.0.0.1:{port}{own}{listeners}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}{listeners}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}\n\
         log.dirs={}\nnum.partitions=3\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=3\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=3\nshare.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
         broker.session.timeout.ms=1500\nbroker.heartbeat.interval.ms=300\n",
        dir.join("data").display()
    );
    format!("{usual}{}\n", options.properties.join("\n"))
}

/// Folder with the broker's class files.
fn libraries(cache: &Path) -> Result<PathBuf> {
    let _lock = locked(cache, "kafka")?;
    let dest = std::path::absolute(cache.join(format!("kafka-{VERSION}")))?;
    let folder = dest.join("libs");
    if dest.join("complete").exists() {
        return Ok(folder);
    }
    eprintln!("installing Apache Kafka {VERSION} into {}", dest.display());
    std::fs::create_dir_all(&dest)?;
    std::fs::write(dest.join("pom.xml"), pom())?;
    let maven = maven()?;
    let output = Command::new(&maven)
        .args([
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
        ])
        .arg(format!("-DoutputDirectory={}", folder.display()))
        .current_dir(&dest)
        .stdin(Stdio::null())
        .output()
        .context("run mvn")?;
    if !output.status.success() {
        bail!(
            "mvn could not fetch Kafka: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    std::fs::write(dest.join("complete"), "")?;
    Ok(folder)
}

fn pom() -> String {
    let dependencies: String = [
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        ("org.slf4j", "slf4j-api", SLF4J_VERSION),
        ("org.apache.logging.log4j", "log4j-api", LOG4J_VERSION),
        ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j2-impl", LOG4J_VERSION),
    ]
    .iter()
    .map(|(group, name, version)| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency>\n"
        )
    })
    .collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\n\
         <groupId>weir</groupId><artifactId>test-broker</artifactId><version>1</version>\n\
         <dependencies>\n{dependencies}</dependencies></project>\n"
    )
}

/// The machine's Java, or Debian's, unpacked privately.
fn java(cache: &Path) -> Result<PathBuf> {
    if apt::runs("java", "-version") {
        return Ok(PathBuf::from("java"));
    }
    let _lock = locked(cache, "java")?;
    let dest = std::path::absolute(cache.join("java"))?;
    let root = apt::unpack(&dest, "bookworm", &["openjdk-17-jre-headless"])?;
    std::fs::read_dir(root.join("usr/lib/jvm"))?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/java")))
        .find(|path| path.exists())
        .context("the unpacked package has no java")
}

/// The machine's Maven; installed where there is none and we may.
fn maven() -> Result<PathBuf> {
    if !apt::runs("mvn", "--version") {
        if !is_root() {
            bail!("Kafka comes from Maven Central: install Maven (Debian package `maven`)");
        }
        apt::install("mvn", "maven")?;
    }
    Ok(PathBuf::from("mvn"))
}
