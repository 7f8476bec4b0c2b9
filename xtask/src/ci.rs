//! `./hive test`: everything CI runs, in the order of what fails fastest.
//!
//! Format and lints (where rustfmt and clippy are installed), then the host's tests, then those
//! that need guest images: `#[ignore = "guest: .."]` tests of `sim`, which a plain `cargo test`
//! leaves out. With `--all` also `#[ignore = "long: .."]` ones. The last line is
//! `N passed, N failed`; a step that is not a test program counts as one test.

use crate::{Failure, paths};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// What failed, for the last lines.
    names: Vec<String>,
}

/// Runs the tier; `all` adds the long tests. Fails if anything failed.
pub fn test(all: bool) -> Result<(), Failure> {
    let mut tally = Tally::default();
    if available("fmt") {
        tally.step("format", cargo(&["fmt", "--all", "--check"]));
    } else {
        println!("format: rustfmt is not installed: left out");
    }
    if available("clippy") {
        // Denied lints fail (Cargo.toml says which); the others are shown.
        tally.step("clippy", cargo(&["clippy", "--quiet", "--all-targets"]));
    } else {
        println!("clippy: not installed: left out");
    }
    tally.tests(cargo(&["test", "--no-fail-fast"]));
    let filter = if all { &["--ignored"][..] } else { &["--ignored", "--skip", "long_"] };
    let mut guest = cargo(&["test", "--no-fail-fast", "-p", "hive-sim", "--"]);
    guest.args(filter);
    tally.tests(guest);
    for name in &tally.names {
        println!("failed: {name}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed == 0 { Ok(()) } else { Err("tests failed (see above)".into()) }
}

impl Tally {
    /// A command that passes or fails as a whole.
    fn step(&mut self, name: &str, mut command: Command) {
        println!("{name}:");
        let _ = std::io::stdout().flush();
        match command.status() {
            Ok(status) if status.success() => self.passed += 1,
            Ok(_) => self.fail(name.into()),
            Err(e) => self.fail(format!("{name}: {e}")),
        }
    }

    /// A `cargo test`: its output passes through, its summary lines are added up.
    fn tests(&mut self, mut command: Command) {
        let before = self.failed;
        let mut child = match command.stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(e) => return self.fail(format!("cargo test: {e}")),
        };
        if let Some(pipe) = child.stdout.take() {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                println!("{line}");
                if let Some((passed, failed)) = summary(&line) {
                    self.passed += passed;
                    self.failed += failed;
                } else if let Some(test) = line.strip_prefix("test ")
                    && let Some(test) = test.strip_suffix(" ... FAILED")
                {
                    self.names.push(test.into());
                }
            }
        }
        let ok = child.wait().is_ok_and(|status| status.success());
        if !ok && self.failed == before {
            self.fail("cargo test did not run (see above)".into());
        }
    }

    fn fail(&mut self, name: String) {
        self.failed += 1;
        self.names.push(name);
    }
}

/// Counts of a line `test result: ok. 3 passed; 0 failed; ..`.
fn summary(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut parts = counts.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(paths::root()).args(arguments);
    command
}

/// Whether cargo has the subcommand.
fn available(subcommand: &str) -> bool {
    let mut probe = cargo(&[subcommand, "--version"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn summaries_are_added_from_cargos_lines_only() {
        let line = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(summary(line), Some((3, 2)));
        assert_eq!(summary("test summaries ... ok"), None);
        assert_eq!(summary("test result: nonsense"), None);
    }
}
