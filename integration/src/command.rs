//! The built `weir` command.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Longest that a run of a test may take.
pub const RUN_LIMIT: Duration = Duration::from_secs(120);

/// How much of the command's log a failure shows.
const LOG_LINES: usize = 20;
/// Longest line of it.
const LOG_LINE_CHARS: usize = 500;

/// Time between two looks at a process.
const POLL: Duration = Duration::from_millis(5);

/// The command under test: `WEIR_BIN`, or the newest of `target/release/weir` and `target/debug/weir`.
///
/// # Panics
/// When none is there; a test must not pass for want of what it tests.
pub fn weir() -> PathBuf {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        // Relative to the workspace: that is where the command line was written, and tests run elsewhere.
        return Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        PathBuf::from,
    );
    ["release", "debug"]
        .iter()
        .map(|profile| target.join(profile).join("weir"))
        .filter_map(|path| Some((std::fs::metadata(&path).ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .expect("no weir command: `cargo build --release --bin weir` makes it")
}

/// A changefeed file in a folder of its own, with store and output beside it.
#[derive(Debug)]
pub struct Changefeed {
    /// Folder that holds all of it.
    pub dir: tempfile::TempDir,
    /// The TOML file.
    pub file: PathBuf,
    /// `--data-dir`.
    pub data: PathBuf,
    /// Folder of the file sink.
    pub out: PathBuf,
}

impl Changefeed {
    /// From a folder of binlog files into files; `more` is TOML that is added at the end.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn to_files(source: &Path, more: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let out = dir.path().join("out");
        let uri = format!("file://{}", out.display());
        Self::write(dir, source, &uri, more)
    }

    /// From a folder of binlog files into the blackhole; `query` starts with `?` or is empty.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn to_blackhole(source: &Path, query: &str, more: &str) -> Result<Self> {
        Self::write(
            tempfile::tempdir()?,
            source,
            &format!("blackhole://{query}"),
            more,
        )
    }

    /// Between two addresses; `source` holds more lines of the table `[source]`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn between(from: &str, to: &str, source: &str, more: &str) -> Result<Self> {
        Self::write_uris(tempfile::tempdir()?, from, to, source, more)
    }

    fn write(dir: tempfile::TempDir, source: &Path, sink: &str, more: &str) -> Result<Self> {
        Self::write_uris(
            dir,
            &format!("binlog-files://{}", source.display()),
            sink,
            "",
            more,
        )
    }

    fn write_uris(dir: tempfile::TempDir, from: &str, to: &str, source: &str, more: &str) -> Result<Self> {
        let path = dir.path().to_path_buf();
        let feed = Self {
            file: path.join("feed.toml"),
            data: path.join("data"),
            out: path.join("out"),
            dir,
        };
        let listen = if more.contains("[metrics]") {
            ""
        } else {
            "[metrics]\nlisten = \"\"\n"
        };
        let text = format!(
            "id = \"test\"\n[source]\nuri = \"{from}\"\n{source}\n[sink]\nuri = \"{to}\"\n{listen}{more}\n"
        );
        std::fs::write(&feed.file, text)?;
        Ok(feed)
    }

    /// Moves the file sink's folder.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set_out(&mut self, out: &Path) -> Result<()> {
        let text = std::fs::read_to_string(&self.file)?;
        let (before, after) = (self.out.display().to_string(), out.display().to_string());
        std::fs::write(&self.file, text.replace(&before, &after))?;
        self.out = out.to_path_buf();
        Ok(())
    }

    /// Adds a line to the table `[source]`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add_to_source(&self, line: &str) -> Result<()> {
        let text = std::fs::read_to_string(&self.file)?;
        std::fs::write(
            &self.file,
            text.replace("[source]\n", &format!("[source]\n{line}\n")),
        )?;
        Ok(())
    }

    /// Starts `weir run`; `arguments` come after the usual ones.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(&self, arguments: &[&str]) -> Result<Running> {
        let mut all = vec![
            OsStr::new("run"),
            self.file.as_os_str(),
            OsStr::new("--data-dir"),
            self.data.as_os_str(),
        ];
        all.extend([OsStr::new("--output"), OsStr::new("json")]);
        all.extend(arguments.iter().map(OsStr::new));
        Running::start(&all, self.dir.path())
    }

    fn keep_logs(&self) -> Result<()> {
        let name = self.dir.path().file_name().context("a folder name")?;
        let kept = weir_test_servers::target_dir()?.join("failed").join(name);
        std::fs::create_dir_all(&kept)?;
        for entry in std::fs::read_dir(self.dir.path())? {
            let path = entry?.path();
            if path.is_file()
                && let Some(name) = path.file_name()
            {
                std::fs::copy(&path, kept.join(name))?;
            }
        }
        eprintln!("logs: {}", kept.display());
        Ok(())
    }

    /// Runs to the end of what the source has.
    ///
    /// # Errors
    /// When the process cannot be started or does not end.
    pub fn catch_up(&self) -> Result<Finished> {
        self.start(&["--until", "caught-up"])?.finish(RUN_LIMIT)
    }
}

impl Drop for Changefeed {
    /// The logs of a test that fails stay in `target/failed`.
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Err(error) = self.keep_logs()
        {
            eprintln!("the logs are lost: {error:#}");
        }
    }
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Largest resident size seen, bytes.
    high_water_bytes: u64,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Everything on standard output.
    pub stdout: String,
    /// Everything on standard error.
    pub stderr: String,
    /// Wall time.
    pub elapsed: Duration,
    /// Largest resident size that was seen (`VmHWM`), bytes.
    pub high_water_bytes: u64,
}

impl Running {
    /// Starts the command; its output goes to files in `scratch`.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(arguments: &[impl AsRef<OsStr>], scratch: &Path) -> Result<Self> {
        let stdout = scratch.join("stdout");
        let stderr = scratch.join("stderr");
        if stderr.exists() {
            // The logs of earlier runs stay, for a test that fails in the end.
            let runs = std::fs::read_dir(scratch)?.count();
            std::fs::rename(&stderr, scratch.join(format!("stderr.{runs:04}")))?;
        }
        let child = Command::new(weir())
            .args(arguments)
            .current_dir(scratch)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("start {}", weir().display()))?;
        Ok(Self {
            child,
            started: Instant::now(),
            stdout,
            stderr,
            high_water_bytes: 0,
        })
    }

    /// Whether it has not ended.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn is_running(&mut self) -> Result<bool> {
        self.look_at_memory();
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends a signal by name, for example `TERM`.
    ///
    /// # Errors
    /// When it could not be sent.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()?;
        if !status.success() {
            bail!("could not send {name}");
        }
        Ok(())
    }

    /// Kills it at once. True if it was still running.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn kill(self) -> Result<bool> {
        Ok(self.kill_with_peak()?.is_some())
    }

    /// The same; the largest resident size that was seen (`VmHWM`), bytes, unless it had ended by itself.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn kill_with_peak(mut self) -> Result<Option<u64>> {
        let running = self.is_running()?;
        self.child.kill()?;
        let status = self.child.wait()?;
        // Ended by itself between the look and the kill: there is an exit code.
        Ok((running && status.code().is_none()).then_some(self.high_water_bytes))
    }

    /// The largest resident size that was seen (`VmHWM`), bytes.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn peak_bytes(&mut self) -> Result<u64> {
        self.is_running()?;
        Ok(self.high_water_bytes)
    }

    /// Waits for the end, with an eye on memory.
    ///
    /// # Errors
    /// When it has not ended within `limit`; it is killed then.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        let deadline = Instant::now() + limit;
        loop {
            self.look_at_memory();
            if let Some(status) = self.child.try_wait()? {
                return Ok(Finished {
                    status,
                    stdout: lossy(&self.stdout)?,
                    stderr: lossy(&self.stderr)?,
                    elapsed: self.started.elapsed(),
                    high_water_bytes: self.high_water_bytes,
                });
            }
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                bail!(
                    "not ended within {} s; stderr:\n{}",
                    limit.as_secs(),
                    lossy(&self.stderr)?
                );
            }
            std::thread::sleep(POLL);
        }
    }

    /// What it has written to standard error so far.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stderr(&self) -> Result<String> {
        lossy(&self.stderr)
    }

    /// What went wrong according to its log, for the message of a test that fails.
    pub fn trouble(&self) -> String {
        self.stderr()
            .map_or_else(|error| error.to_string(), |log| trouble(&log))
    }

    fn look_at_memory(&mut self) {
        // Gone when the process has ended.
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())) else {
            return;
        };
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.trim().strip_suffix("kB"))
            .and_then(|number| number.trim().parse::<u64>().ok());
        self.high_water_bytes = self.high_water_bytes.max(kibibytes.unwrap_or(0) * 1024);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

impl Finished {
    /// The exit code; -1 after a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Fails unless the exit code is 0.
    ///
    /// # Panics
    /// With what the command wrote.
    pub fn assert_ok(&self) -> &Self {
        self.assert_code(0)
    }

    /// Fails unless the exit code is `code`.
    ///
    /// # Panics
    /// With what the command wrote.
    pub fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(
            self.code(),
            code,
            "status {}\nstdout: {}\nstderr: {}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// The error code (`WEIR-XXX-NNN`) of a failure with `--output json`, with its message.
    ///
    /// # Panics
    /// When standard output does not end with an error object, or one of its parts is empty.
    pub fn error(&self) -> (String, String) {
        let last = self.stdout.lines().last().unwrap_or("");
        let value: Value = serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("no error object ({error}): {}\n{}", self.stdout, self.stderr));
        let part = |name: &str| value["error"][name].as_str().unwrap_or("").to_owned();
        let (code, message, action) = (part("code"), part("message"), part("action"));
        let numbered = code.strip_prefix("WEIR-").and_then(|rest| rest.split_once('-'));
        assert!(
            numbered.is_some_and(|(area, number)| area.len() == 3 && number.parse::<u16>().is_ok()),
            "`{code}` is not a code: {last}"
        );
        assert!(
            !message.is_empty() && !action.is_empty(),
            "message or action is missing: {last}"
        );
        (code, message)
    }

    /// The result object on standard output.
    ///
    /// # Panics
    /// When there is none.
    pub fn result(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or("");
        serde_json::from_str(last).unwrap_or_else(|error| panic!("no result ({error}): {}", self.stdout))
    }
}

/// The last warnings and errors of a log; of lines without a level, all.
pub fn trouble(log: &str) -> String {
    let lines: Vec<String> = log
        .lines()
        .filter(|line| {
            !["INFO", "DEBUG", "TRACE"]
                .iter()
                .any(|level| line.contains(&format!("\"level\":\"{level}\"")))
        })
        .map(|line| line.chars().take(LOG_LINE_CHARS).collect())
        .collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    lines.get(from..).unwrap_or_default().join("\n")
}

fn lossy(path: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}
