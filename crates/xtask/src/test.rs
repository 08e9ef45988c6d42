//! The whole test run, as the README and continuous integration start it.
//!
//! One profile, `ci`, is built for all of it: optimised, with debug assertions, which check ledgers and invariants.
//! The end-to-end tests run the command that the unit tests of its package have built. Clippy and rustdoc use the
//! profile too, so that build scripts and macros are compiled once.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use weir_test_servers::{Install, Kind};

use crate::bench::cargo;

/// See the module documentation.
const PROFILE: &str = "--profile=ci";

/// Sum of what the steps reported.
#[derive(Default, Debug)]
struct Tally {
    passed: u64,
    failed: u64,
    lines: Vec<String>,
}

impl Tally {
    /// Runs a step that passes or fails as one.
    fn check(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let start = banner(name);
        let ok = command
            .status()
            .with_context(|| format!("run {}", command.get_program().display()))?
            .success();
        self.note(name, start, u64::from(ok), u64::from(!ok));
        Ok(())
    }

    /// Runs test binaries and adds up what they print.
    fn tests(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let start = banner(name);
        let mut child = command.stdout(Stdio::piped()).spawn().context("run cargo test")?;
        let (mut passed, mut failed) = (0, 0);
        for line in BufReader::new(child.stdout.take().context("the output of cargo test")?).lines() {
            let line = line?;
            if let Some((p, f)) = test_result(&line) {
                passed += p;
                failed += f;
            }
            println!("{line}");
        }
        let ok = child.wait()?.success();
        if !ok && failed == 0 {
            // It did not build, or a test process died before its result line.
            failed = 1;
        }
        self.note(name, start, passed, failed);
        Ok(())
    }

    fn note(&mut self, name: &str, start: Instant, passed: u64, failed: u64) {
        self.passed += passed;
        self.failed += failed;
        let seconds = start.elapsed().as_secs_f64();
        self.lines.push(format!(
            "{name:<24} {passed:>5} passed {failed:>3} failed {seconds:>7.1} s"
        ));
    }
}

fn banner(name: &str) -> Instant {
    eprintln!("== {name}");
    Instant::now()
}

/// Numbers of a line `test result: ok. 12 passed; 0 failed; …`.
fn test_result(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?;
        before.split_whitespace().next_back()?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

fn in_workspace(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(cargo());
    command.args(arguments).current_dir(crate::workspace_root()?);
    Ok(command)
}

/// Runs everything, or with `fast` what the end-to-end tests do not cover: lints and unit tests.
///
/// # Errors
/// When anything failed; the counts are printed before.
pub(crate) fn run(fast: bool) -> Result<()> {
    let mut tally = Tally::default();
    tally.check("format", &mut in_workspace(&["fmt", "--all", "--check"])?)?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--test",
        "e2e",
        "--test",
        "servers",
        PROFILE,
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    tally.check("clippy", &mut in_workspace(&clippy)?)?;
    let mut doc = in_workspace(&["doc", "--workspace", "--no-deps", PROFILE, "--locked", "--quiet"])?;
    tally.check("rustdoc", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    let unit = [
        "test",
        "--workspace",
        PROFILE,
        "--locked",
        "--quiet",
        "--no-fail-fast",
    ];
    tally.tests("unit and property tests", &mut in_workspace(&unit)?)?;
    if !fast {
        // Before the tests, so that a download is not taken for a slow test.
        for kind in [Kind::Mysql, Kind::Mariadb1011, Kind::Mariadb118] {
            Install::get(&crate::services_cache()?, kind)?;
        }
        // Of the whole workspace, so that its libraries have the features that they were built with before.
        let mut whole = in_workspace(&[
            "test",
            "--workspace",
            "--test",
            "e2e",
            "--test",
            "servers",
            PROFILE,
            "--locked",
            "--no-fail-fast",
        ])?;
        whole.env("WEIR_BIN", crate::target_dir()?.join("ci/weir"));
        tally.tests("end-to-end tests", &mut whole)?;
    }
    println!();
    tally.lines.iter().for_each(|line| println!("{line}"));
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        bail!("{} failed", tally.failed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(test_result(line), Some((12, 3)));
        assert_eq!(test_result("running 3 tests"), None);
    }
}
