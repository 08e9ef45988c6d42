//! Unpacks Debian packages into a private folder; the root file system is never touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache::{cache_dir, locked};

/// Used when the machine's own apt sources name no mirror.
const FALLBACK_MIRROR: &str = "http://deb.debian.org/debian";

/// Packages that a server lists as dependencies and never loads when it runs through its own loader.
const NOT_NEEDED: &[&str] = &[
    "perl",
    "libperl",
    "gcc-",
    "coreutils",
    "bash",
    "dpkg",
    "tar",
    "systemd",
    "debconf",
    "adduser",
    "passwd",
    "util-linux",
    "init-system",
    "dash",
    "sed",
    "grep",
    "findutils",
    "login",
    "mount",
    "base-",
];

/// Unpacks `packages` of Debian `suite`, with everything they depend on (libc included), into `dest/root`.
///
/// A finished unpack leaves a marker, so the next call returns at once.
///
/// # Errors
/// When apt-get or dpkg-deb is missing, or the mirror cannot be reached.
pub(crate) fn unpack(dest: &Path, suite: &str, packages: &[&str]) -> Result<PathBuf> {
    let root = dest.join("root");
    let marker = dest.join("complete");
    if marker.exists() {
        return Ok(root);
    }
    eprintln!(
        "installing {} of Debian {suite} into {}",
        packages.join(" "),
        root.display()
    );
    let lists = dest.join("lists");
    let debs = dest.join("debs");
    for folder in [&lists.join("partial"), &debs, &root] {
        std::fs::create_dir_all(folder)?;
    }
    // An empty status file makes the solver print the full closure, the suite's own libc included.
    std::fs::write(dest.join("status"), "")?;
    std::fs::write(
        dest.join("sources.list"),
        format!("deb {} {suite} main\n", mirror()),
    )?;
    let options = [
        format!("Dir::Etc::sourcelist={}", dest.join("sources.list").display()),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", lists.display()),
        format!("Dir::State::status={}", dest.join("status").display()),
        "Dir::Cache::pkgcache=".to_owned(),
        "Dir::Cache::srcpkgcache=".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ];
    apt(&options, &debs, &["-qq", "update"])?;
    let mut simulate = vec!["-qq", "--no-install-recommends", "-s", "install"];
    simulate.extend(packages);
    let plan = apt(&options, &debs, &simulate)?;
    let names: Vec<&str> = plan
        .lines()
        .filter_map(|line| line.strip_prefix("Inst "))
        .filter_map(|rest| rest.split_whitespace().next())
        .filter(|name| is_needed(name))
        .collect();
    if names.is_empty() {
        bail!(
            "apt-get found nothing to install for {} in suite {suite}",
            packages.join(" ")
        );
    }
    let mut download = vec!["-qq", "download"];
    download.extend(&names);
    apt(&options, &debs, &download)?;
    for entry in std::fs::read_dir(&debs)? {
        let deb = entry?.path();
        let status = Command::new("dpkg-deb")
            .arg("-x")
            .arg(&deb)
            .arg(&root)
            .status()
            .context("run dpkg-deb")?;
        if !status.success() {
            bail!("dpkg-deb could not unpack {}", deb.display());
        }
    }
    std::fs::remove_dir_all(&debs)?;
    std::fs::write(marker, "")?;
    Ok(root)
}

/// Installs a program from a package of the machine's own release where it is missing; needs root then. Whoever comes
/// meanwhile, in this process or another, waits.
///
/// # Errors
/// When apt-get fails.
pub fn install(program: &str, package: &str) -> Result<()> {
    let _lock = locked(&cache_dir()?, "apt")?;
    if runs(program, "--version") {
        return Ok(());
    }
    eprintln!("installing {package}");
    let here = std::env::temp_dir();
    apt(&[], &here, &["-qq", "update"])?;
    apt(
        &[],
        &here,
        &["-qq", "-y", "--no-install-recommends", "install", package],
    )?;
    Ok(())
}

/// Whether a program is there and answers.
pub(crate) fn runs(program: &str, argument: &str) -> bool {
    Command::new(program)
        .arg(argument)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn is_needed(name: &str) -> bool {
    !(NOT_NEEDED.iter().any(|prefix| name.starts_with(prefix))
        || (name.starts_with("lib") && name.ends_with("-perl")))
}

fn apt(options: &[String], folder: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("apt-get");
    for option in options {
        command.args(["-o", option]);
    }
    let output = command
        .args(arguments)
        .current_dir(folder)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("run apt-get (the test servers come from Debian packages)")?;
    if !output.status.success() {
        bail!(
            "apt-get {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The mirror that the machine's apt already uses, so that a configured proxy or local mirror is kept.
fn mirror() -> String {
    let deb822 = std::fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    let listed = deb822
        .lines()
        .find_map(|line| line.strip_prefix("URIs:"))
        .map(str::trim);
    if let Some(uri) = listed.and_then(|uris| uris.split_whitespace().next()) {
        return uri.to_owned();
    }
    let classic = std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    classic
        .lines()
        .filter_map(|line| line.strip_prefix("deb "))
        .flat_map(str::split_whitespace)
        .find(|word| word.starts_with("http"))
        .map_or_else(|| FALLBACK_MIRROR.to_owned(), str::to_owned)
}
