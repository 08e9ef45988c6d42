//! A disk that is soon full.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A small file system in memory. Mounted by root directly, by others in a user namespace of its own whose files are
/// reached through `/proc/PID/root`.
#[derive(Debug)]
pub struct SmallDisk {
    mount_point: PathBuf,
    /// Process that keeps the namespace.
    holder: Option<Child>,
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts a disk of that size.
    ///
    /// # Errors
    /// When the user is not root and may not make namespaces.
    pub fn new(kibibytes: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = folder.path().to_path_buf();
        let text = at.to_string_lossy().into_owned();
        let arguments = ["-t", "tmpfs", "-o", &format!("size={kibibytes}k"), "tmpfs", &text];
        let mounted = Command::new("mount")
            .args(arguments)
            .stderr(Stdio::null())
            .status()?;
        if mounted.success() {
            return Ok(Self {
                mount_point: at,
                holder: None,
                folder,
            });
        }
        let script = format!("mount {} && echo mounted && exec cat", arguments.join(" "));
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("the output of unshare")?).read_line(&mut line)?;
        ensure!(
            line == "mounted\n",
            "this test mounts a small tmpfs: it needs root or user namespaces"
        );
        let inside = PathBuf::from(format!("/proc/{}/root{}", holder.id(), at.display()));
        Ok(Self {
            mount_point: inside,
            holder: Some(holder),
            folder,
        })
    }

    /// A folder on the disk.
    pub fn folder(&self) -> PathBuf {
        self.mount_point.join("here")
    }

    /// Makes room.
    ///
    /// # Errors
    /// When it cannot be mounted again.
    pub fn enlarge(&self) -> Result<()> {
        let at = self.folder.path().to_string_lossy().into_owned();
        let remount = ["mount", "-o", "remount,size=512m", &at];
        let mut command = match &self.holder {
            None => Command::new(remount[0]),
            Some(holder) => {
                let mut command = Command::new("nsenter");
                command.args([
                    "--preserve-credentials",
                    "--user",
                    "--mount",
                    "-t",
                    &holder.id().to_string(),
                ]);
                command.arg(remount[0]);
                command
            }
        };
        ensure!(command.args(&remount[1..]).status()?.success(), "remount");
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        match &mut self.holder {
            None => drop(Command::new("umount").arg("-l").arg(&self.mount_point).status()),
            Some(holder) => {
                drop(holder.kill());
                drop(holder.wait());
            }
        }
    }
}
