//! Private database servers on loopback for recordings, tests and benchmarks.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::apt;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A server release that the tests know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// MySQL 9.x of Debian sid.
    Mysql,
    /// MariaDB 10.11 of Debian 12.
    Mariadb1011,
    /// MariaDB 11.8 of Debian 13.
    Mariadb118,
}

impl Kind {
    /// Name of the folder in the cache and of the recordings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb1011 => "mariadb-10.11",
            Self::Mariadb118 => "mariadb-11.8",
        }
    }

    fn packages(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Mysql => ("sid", &["mysql-server-core", "mysql-client-core"]),
            Self::Mariadb1011 => ("bookworm", MARIADB_PACKAGES),
            Self::Mariadb118 => ("trixie", MARIADB_PACKAGES),
        }
    }

    /// Share folder, and the prefix of the files with the system tables.
    fn mariadb_share(self) -> (&'static str, &'static str) {
        if self == Self::Mariadb1011 {
            ("mysql", "mysql")
        } else {
            ("mariadb", "mariadb")
        }
    }
}

const MARIADB_PACKAGES: &[&str] = &[
    "mariadb-server-core",
    "mariadb-client-core",
    "mariadb-client",
    "mariadb-server",
];

/// An unpacked release: knows how to run its programs through its own loader and libraries.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    kind: Kind,
    root: PathBuf,
    loader: PathBuf,
    library_path: String,
    template: PathBuf,
}

impl Install {
    /// Finds the release in `cache`, unpacking it first where it is missing.
    pub(crate) fn get(cache: &Path, kind: Kind) -> Result<Self> {
        let dest = std::path::absolute(cache.join(kind.name()))?;
        let (suite, packages) = kind.packages();
        let root = apt::unpack(&dest, suite, packages)?;
        let (triple, file) = match std::env::consts::ARCH {
            "x86_64" => ("x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
            "aarch64" => ("aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
            other => bail!("no test servers for the architecture {other}"),
        };
        let mut folders = vec![root.join("usr/lib").join(triple), root.join("lib").join(triple)];
        let loader = folders
            .iter()
            .map(|folder| folder.join(file))
            .find(|path| path.exists())
            .context("the unpacked server has no loader; remove its folder in the cache and try again")?;
        folders.push(folders[0].join("systemd"));
        folders.push(folders[0].join("mysql/private"));
        folders.push(root.join("usr/lib"));
        let library_path = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect::<Vec<_>>()
            .join(":");
        let install = Self {
            kind,
            root,
            loader,
            library_path,
            template: dest.join("template"),
        };
        install.make_template()?;
        Ok(install)
    }

    /// A command for one of the release's programs, named by its path below `usr`.
    pub(crate) fn program(&self, path: &str) -> Command {
        let mut command = Command::new(&self.loader);
        command
            .arg("--library-path")
            .arg(&self.library_path)
            .arg(self.root.join("usr").join(path));
        command
    }

    /// The release's binlog printer.
    pub(crate) fn binlog_printer(&self) -> Command {
        self.program(if self.kind == Kind::Mysql {
            "bin/mysqlbinlog"
        } else {
            "bin/mariadb-binlog"
        })
    }

    fn server_program(&self) -> &'static str {
        if self.kind == Kind::Mysql {
            "sbin/mysqld"
        } else {
            "sbin/mariadbd"
        }
    }

    fn base_arguments(&self, data: &Path, tmp: &Path) -> Vec<OsString> {
        let usr = self.root.join("usr");
        let share = match self.kind {
            Kind::Mysql => usr.join("share/mysql"),
            other => usr.join("share").join(other.mariadb_share().0),
        };
        let mut arguments: Vec<OsString> = vec!["--no-defaults".into()];
        if is_root() {
            arguments.push("--user=root".into());
        }
        let mut push = |name: &str, path: &Path| {
            let mut argument = OsString::from(name);
            argument.push(path);
            arguments.push(argument);
        };
        push("--basedir=", &usr);
        push("--lc-messages-dir=", &share);
        push("--character-sets-dir=", &share.join("charsets"));
        push("--plugin-dir=", &usr.join("lib/mysql/plugin"));
        push("--datadir=", data);
        push("--tmpdir=", tmp);
        if self.kind == Kind::Mysql {
            push("--secure-file-priv=", tmp);
        }
        arguments
    }

    /// Initialises a data folder once; servers start from a copy of it.
    fn make_template(&self) -> Result<()> {
        if self.template.join("complete").exists() {
            return Ok(());
        }
        let data = self.template.join("data");
        if self.template.exists() {
            std::fs::remove_dir_all(&self.template)?;
        }
        std::fs::create_dir_all(&self.template)?;
        let log = self.template.join("init.log");
        let mut command = self.program(self.server_program());
        command
            .args(self.base_arguments(&data, &self.template))
            .stdout(File::create(&log)?);
        command.stderr(File::options().append(true).open(&log)?);
        let status = if self.kind == Kind::Mysql {
            command.args(["--initialize-insecure", "--innodb-redo-log-capacity=64M"]);
            command.stdin(Stdio::null()).status()?
        } else {
            std::fs::create_dir_all(data.join("mysql"))?;
            command.args([
                "--bootstrap",
                "--skip-networking",
                "--log-warnings=0",
                "--enforce-storage-engine=",
            ]);
            command
                .args(["--max-allowed-packet=8M", "--net-buffer-length=16K"])
                .stdin(Stdio::piped());
            let mut child = command.spawn()?;
            let mut input = child.stdin.take().context("the server's standard input")?;
            input.write_all(&self.mariadb_bootstrap()?)?;
            drop(input);
            child.wait()?
        };
        if !status.success() {
            bail!(
                "{} could not initialise its data folder: see {}",
                self.kind.name(),
                log.display()
            );
        }
        std::fs::write(self.template.join("complete"), "")?;
        Ok(())
    }

    fn mariadb_bootstrap(&self) -> Result<Vec<u8>> {
        let (folder, prefix) = self.kind.mariadb_share();
        let share = self.root.join("usr/share").join(folder);
        let mut sql = b"create database if not exists mysql;\nuse mysql;\nSET @auth_root_socket=NULL;\n\
            SET @skip_auth_anonymous=1;\nSET @current_hostname='localhost';\n"
            .to_vec();
        for file in [
            format!("{prefix}_system_tables.sql"),
            format!("{prefix}_performance_tables.sql"),
            format!("{prefix}_system_tables_data.sql"),
            "fill_help_tables.sql".to_owned(),
            "maria_add_gis_sp_bootstrap.sql".to_owned(),
            format!("{prefix}_sys_schema.sql"),
        ] {
            let path = share.join(&file);
            sql.extend(std::fs::read(&path).with_context(|| format!("read {}", path.display()))?);
        }
        Ok(sql)
    }

    /// Starts a server whose files all lie in `dir`; an existing data folder there is used again.
    pub(crate) fn start(&self, dir: &Path, port: u16, extra: &[&str]) -> Result<Server> {
        std::fs::create_dir_all(dir)?;
        let dir = std::path::absolute(dir)?;
        let data = dir.join("data");
        if !data.exists() {
            copy_folder(&self.template.join("data"), &data)?;
            // Each server needs an identity of its own.
            let uuid = data.join("auto.cnf");
            if uuid.exists() {
                std::fs::remove_file(uuid)?;
            }
        }
        let mut command = self.program(self.server_program());
        command.args(self.base_arguments(&data, &dir));
        command
            .arg(format!("--port={port}"))
            .arg(format!("--server-id={port}"));
        command.arg(format!("--socket={}", dir.join("s.sock").display()));
        command.arg(format!("--pid-file={}", dir.join("pid").display()));
        command.arg(format!("--log-error={}", dir.join("error.log").display()));
        command.arg(format!("--log-bin={}", data.join("binlog").display()));
        command.args([
            "--bind-address=127.0.0.1",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
        ]);
        command.args(["--binlog-row-metadata=FULL", "--local-infile=OFF"]);
        match self.kind {
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
        command.args(extra).stdin(Stdio::null());
        command
            .stdout(File::create(dir.join("out.log"))?)
            .stderr(Stdio::null());
        command.process_group(0);
        let child = command.spawn().context("start the server")?;
        let mut server = Server {
            install: self.clone(),
            dir,
            port,
            child,
        };
        server.wait_ready()?;
        Ok(server)
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    install: Install,
    dir: PathBuf,
    port: u16,
    child: Child,
}

impl Server {
    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the server ended at once ({status}): see {}",
                    self.dir.join("error.log").display()
                );
            }
            if self.client().args(["-e", "SELECT 1"]).output()?.status.success() {
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

    /// The address as a URI that the tests take.
    pub(crate) fn uri(&self) -> String {
        format!("mysql://weir@127.0.0.1:{}", self.port)
    }

    /// Folder that holds the binlog files.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A command line client that reads SQL from its standard input.
    pub(crate) fn client(&self) -> Command {
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
        command
    }

    /// Starts a client for a script that the caller writes; statement results are thrown away.
    pub(crate) fn pipe(&self) -> Result<Child> {
        self.client()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the SQL client")
    }

    /// Runs a script and returns what it printed.
    pub(crate) fn sql(&self, script: &str) -> Result<String> {
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
    pub(crate) fn stop(mut self) -> Result<()> {
        self.signal("TERM")?;
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("the server did not stop in {} s", STOP_LIMIT.as_secs())
    }

    /// Leaves the server running after this process.
    pub(crate) fn leave_running(self) {
        std::mem::forget(self);
    }

    fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()?;
        if !status.success() {
            bail!("could not signal the server process {}", self.child.id());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// Whether this process has the root user's rights.
pub(crate) fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}

/// Copies a folder with everything below it.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
