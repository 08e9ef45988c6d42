//! Releases: unpacked, with a data folder to copy, and how their programs are run.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::apt;
use crate::cache::{is_root, locked};

/// A server release that the tests know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// MySQL 9.x of Debian sid.
    Mysql,
    /// MariaDB 10.11 of Debian 12.
    Mariadb1011,
    /// MariaDB 11.8 of Debian 13.
    Mariadb118,
}

impl Kind {
    /// Name of the folder in the cache and of the recordings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb1011 => "mariadb-10.11",
            Self::Mariadb118 => "mariadb-11.8",
        }
    }

    /// Whether it is a MariaDB release.
    pub fn is_mariadb(self) -> bool {
        self != Self::Mysql
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
pub struct Install {
    pub(crate) kind: Kind,
    root: PathBuf,
    loader: PathBuf,
    library_path: String,
    pub(crate) template: PathBuf,
}

impl Install {
    /// Finds the release in `cache`, unpacking it first where it is missing. Processes that ask at once wait for the
    /// first of them.
    ///
    /// # Errors
    /// When it cannot be downloaded, unpacked or initialised.
    pub fn get(cache: &Path, kind: Kind) -> Result<Self> {
        let _lock = locked(cache, kind.name())?;
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
    pub fn program(&self, path: &str) -> Command {
        let mut command = Command::new(&self.loader);
        command
            .arg("--library-path")
            .arg(&self.library_path)
            .arg(self.root.join("usr").join(path));
        command
    }

    /// The release's binlog printer.
    pub fn binlog_printer(&self) -> Command {
        self.program(if self.kind == Kind::Mysql {
            "bin/mysqlbinlog"
        } else {
            "bin/mariadb-binlog"
        })
    }

    pub(crate) fn server_program(&self) -> &'static str {
        if self.kind == Kind::Mysql {
            "sbin/mysqld"
        } else {
            "sbin/mariadbd"
        }
    }

    pub(crate) fn base_arguments(&self, data: &Path, tmp: &Path) -> Vec<OsString> {
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
}
