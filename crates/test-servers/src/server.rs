//! A running database server.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache::copy_folder;
use crate::install::{Install, Kind};

/// How often a killed server is started before it counts as broken.
const STARTS: u32 = 3;
/// Lines of its log that an error shows.
const LOG_LINES: usize = 40;
const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Password of the user `root` over TCP; the socket needs none.
pub const ROOT_PASSWORD: &str = "weir";

/// Watches a process of ours for as long as this one lives, and kills it then: a test that is killed leaves no server.
const GUARDIAN: &str = "trap '' INT TERM; while kill -0 $1 2>/dev/null; do kill -0 $2 2>/dev/null || exit 0; \
    sleep 1; done; kill -9 $2 2>/dev/null";

/// A server whose files all lie in one folder.
#[derive(Debug)]
pub struct Server {
    install: Install,
    dir: PathBuf,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
    guarded: bool,
}

impl Server {
    /// Starts a server; an existing data folder in `dir` is used again, otherwise the release's template is copied.
    /// `extra` are arguments of the server program and win over ours. It is killed when this process ends, in whatever
    /// way.
    ///
    /// # Errors
    /// When it does not come up; the message names its log.
    pub fn start(install: &Install, dir: &Path, port: u16, extra: &[&str]) -> Result<Self> {
        Self::begin(install, dir, port, extra, true)
    }

    /// The same for a server that [`Server::leave_running`] leaves behind.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_to_stay(install: &Install, dir: &Path, port: u16, extra: &[&str]) -> Result<Self> {
        Self::begin(install, dir, port, extra, false)
    }

    fn begin(install: &Install, dir: &Path, port: u16, extra: &[&str], guarded: bool) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut server = Self {
            install: install.clone(),
            dir: std::path::absolute(dir)?,
            port,
            arguments: extra.iter().map(|&argument| argument.to_owned()).collect(),
            child: None,
            guarded,
        };
        server.launch()?;
        Ok(server)
    }

    fn launch(&mut self) -> Result<()> {
        let data = self.data_dir();
        let fresh = !data.exists();
        if fresh {
            copy_folder(&self.install.template.join("data"), &data)?;
            // Each server needs an identity of its own.
            let uuid = data.join("auto.cnf");
            if uuid.exists() {
                std::fs::remove_file(uuid)?;
            }
        }
        let mut command = self.command();
        if fresh {
            let path = self.dir.join("init.sql");
            std::fs::write(&path, users())?;
            command.arg(format!("--init-file={}", path.display()));
        }
        command.args(&self.arguments).stdin(Stdio::null());
        command
            .stdout(File::create(self.dir.join("out.log"))?)
            .stderr(Stdio::null());
        command.process_group(0);
        self.child = Some(command.spawn().context("start the server")?);
        if self.guarded {
            self.guard()?;
        }
        self.wait_ready()
    }

    fn command(&self) -> Command {
        let (dir, data) = (&self.dir, self.data_dir());
        let mut command = self.install.program(self.install.server_program());
        command.args(self.install.base_arguments(&data, dir));
        command
            .arg(format!("--port={}", self.port))
            .arg(format!("--server-id={}", self.port));
        command.arg(format!("--socket={}", dir.join("s.sock").display()));
        command.arg(format!("--pid-file={}", dir.join("pid").display()));
        command.arg(format!("--log-error={}", dir.join("error.log").display()));
        command.arg(format!("--log-bin={}", data.join("binlog").display()));
        command.args([
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL",
            "--local-infile=OFF",
        ]);
        match self.install.kind {
            Kind::Mysql => command.args([
                "--mysqlx=OFF",
                "--gtid-mode=ON",
                "--enforce-gtid-consistency=ON",
                "--performance-schema=OFF",
            ]),
            Kind::Mariadb1011 | Kind::Mariadb118 => command.args([
                "--gtid-domain-id=7",
                "--gtid-strict-mode=ON",
                "--log-slave-updates=ON",
            ]),
        };
        command
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child()?.try_wait()? {
                self.child = None;
                bail!("the server ended at once ({status}):\n{}", self.log_end());
            }
            // The client is asked only when the server listens: starting it takes longer than the wait.
            let listens = std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            if listens && self.client().args(["-e", "SELECT 1"]).output()?.status.success() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!(
            "the server did not come up in {} s: see {}",
            START_LIMIT.as_secs(),
            self.dir.display()
        )
    }

    fn child(&mut self) -> Result<&mut Child> {
        self.child.as_mut().context("the server is not running")
    }

    /// The address as a URI that the tests take.
    pub fn uri(&self) -> String {
        format!("mysql://root:{ROOT_PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The release.
    pub fn kind(&self) -> Kind {
        self.install.kind
    }

    /// Folder of all its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Folder that holds the data and the binlog files.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Process id; 0 while it is down.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// A command line client that reads SQL from its standard input.
    pub fn client(&self) -> Command {
        let mut command = self.install.program(if self.install.kind == Kind::Mysql {
            "bin/mysql"
        } else {
            "bin/mariadb"
        });
        command.args([
            "--no-defaults",
            "--default-character-set=utf8mb4",
            "--batch",
            "--skip-column-names",
        ]);
        command
            .arg("-uroot")
            .arg(format!("-S{}", self.dir.join("s.sock").display()));
        if self.install.kind.is_mariadb() {
            // It would want encryption of the socket, which a server may be without.
            command.arg("--skip-ssl");
        }
        command
    }

    /// Starts a client for a script that the caller writes; statement results are thrown away.
    ///
    /// # Errors
    /// When the client cannot be started.
    pub fn pipe(&self) -> Result<Child> {
        self.client()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the SQL client")
    }

    /// Runs a script and returns what it printed.
    ///
    /// # Errors
    /// When a statement fails; the message is the client's.
    pub fn sql(&self, script: &str) -> Result<String> {
        let mut child = self
            .client()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("the client's standard input")?;
        let text = script.to_owned();
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output()?;
        let written = writer
            .join()
            .map_err(|_| anyhow::anyhow!("the script writer panicked"))?;
        if !output.status.success() {
            bail!("SQL script failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        written?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Clean stop: the last binlog file gets its STOP event.
    ///
    /// # Errors
    /// When it does not stop in time.
    pub fn stop(mut self) -> Result<()> {
        self.shut_down()
    }

    /// Clean stop; [`Server::start_again`] starts it on the same port and data.
    ///
    /// # Errors
    /// When it does not stop in time.
    pub fn shut_down(&mut self) -> Result<()> {
        self.signal("TERM")?;
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if self.child()?.try_wait()?.is_some() {
                self.child = None;
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("the server did not stop in {} s", STOP_LIMIT.as_secs())
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&mut self) -> Result<()> {
        let child = self.child()?;
        child.kill()?;
        child.wait()?;
        self.child = None;
        Ok(())
    }

    /// Starts a stopped or killed server on the same port and data; again where it ends by itself, as whoever
    /// supervises a server does: a recovery that fails may work the next time.
    ///
    /// # Errors
    /// When it runs, or does not come up.
    pub fn start_again(&mut self) -> Result<()> {
        if self.child.is_some() {
            bail!("the server runs already");
        }
        for _ in 1..STARTS {
            match self.launch() {
                Err(error) if self.child.is_none() => eprintln!("{error:#}"),
                started => return started,
            }
        }
        self.launch()
    }

    /// The last lines of its log.
    fn log_end(&self) -> String {
        let log = std::fs::read(self.dir.join("error.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(LOG_LINES)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Leaves the server running after this process.
    pub fn leave_running(self) {
        std::mem::forget(self);
    }

    fn guard(&self) -> Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARDIAN, "sh"]);
        shell
            .arg(std::process::id().to_string())
            .arg(self.pid().to_string());
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        drop(shell.spawn().context("start sh")?);
        Ok(())
    }

    /// Sends a signal by name, for example `STOP` and `CONT`.
    ///
    /// # Errors
    /// When it could not be sent.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.pid().to_string())
            .status()?;
        if !status.success() {
            bail!("could not signal the server process {}", self.pid());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child
            && child.kill().is_ok()
        {
            drop(child.wait());
        }
    }
}

/// Statements of a fresh server, outside of its binlog.
fn users() -> String {
    format!(
        "SET SESSION sql_log_bin=0;\n\
         CREATE USER IF NOT EXISTS root@'127.0.0.1';\n\
         ALTER USER root@'127.0.0.1' IDENTIFIED BY '{ROOT_PASSWORD}';\n\
         GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
    )
}
