//! A full disk under the store or under the output: an error that says so, and after repair nothing is lost.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_integration::{Changefeed, Output, Recording};

/// How long a run may try before it has to say that the disk is full.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);

/// A small file system in memory. Mounted by root directly, by others in a user namespace of its own whose files are
/// reached through `/proc/PID/root`.
struct SmallDisk {
    mount_point: PathBuf,
    /// Process that keeps the namespace.
    holder: Option<Child>,
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn new(kibibytes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_path_buf();
        let size = format!("size={kibibytes}k");
        let mount = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            &size,
            "tmpfs",
            &at.to_string_lossy(),
        ];
        if Command::new(mount[0])
            .args(&mount[1..])
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
        {
            return Self {
                mount_point: at,
                holder: None,
                folder,
            };
        }
        let script = format!("{} && echo mounted && exec cat", mount.join(" "));
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(
            line, "mounted\n",
            "this test mounts a small tmpfs: it needs root or user namespaces"
        );
        let inside = PathBuf::from(format!("/proc/{}/root{}", holder.id(), at.display()));
        Self {
            mount_point: inside,
            holder: Some(holder),
            folder,
        }
    }

    /// A folder on the disk.
    fn folder(&self) -> PathBuf {
        self.mount_point.join("here")
    }

    fn enlarge(&self) {
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
        assert!(command.args(&remount[1..]).status().unwrap().success());
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

/// Runs into the full disk, checks what is said, makes room, and runs to the end.
fn full_then_repaired(feed: &Changefeed, disk: &SmallDisk) {
    let recording = Recording::open("quickstart").unwrap();
    let mut running = feed.start(&["--until", "caught-up"]).unwrap();
    let deadline = Instant::now() + NOTICE_LIMIT;
    // Either it ends with an error, or it says what it waits for.
    let mut noticed = false;
    while running.is_running().unwrap() {
        let stderr = running.stderr().unwrap();
        noticed = stderr.contains("WEIR-") && (stderr.contains("disk") || stderr.contains("space"));
        if noticed || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if running.is_running().unwrap() {
        assert!(
            noticed,
            "nothing was said about the full disk: {}",
            running.stderr().unwrap()
        );
        running.signal("TERM").unwrap();
        running.finish(NOTICE_LIMIT).unwrap();
    } else {
        let finished = running.finish(NOTICE_LIMIT).unwrap();
        assert_ne!(finished.code(), 0, "the disk is too small for all of it");
        let (_, message) = finished.error();
        assert!(message.contains("space") || message.contains("disk"), "{message}");
    }
    let partial = Output::read(&feed.out).unwrap();
    disk.enlarge();
    feed.catch_up().unwrap().assert_ok();
    let output = Output::read(&feed.out).unwrap();
    assert!(partial.is_prefix_of(&output));
    assert_eq!(output.tables, recording.tables);
    assert_eq!(output.ddl, recording.ddl);
}

#[test]
fn under_the_output() {
    let recording = Recording::open("quickstart").unwrap();
    let disk = SmallDisk::new(4096);
    let mut feed = Changefeed::to_files(&recording.folder, "[sink.file]\nrotate-size = \"256KiB\"").unwrap();
    feed.set_out(&disk.folder()).unwrap();
    full_then_repaired(&feed, &disk);
}

#[test]
fn under_the_store() {
    let recording = Recording::open("quickstart").unwrap();
    let disk = SmallDisk::new(2048);
    let mut feed = Changefeed::to_files(&recording.folder, "").unwrap();
    feed.data = disk.folder();
    full_then_repaired(&feed, &disk);
}
