//! Rules of the repository that no compiler holds (STYLE: "rules are tests").
//!
//! Each check reads every tracked or trackable file once and says `file:line: what, and why`.
//! The allow-list below is the only way round a rule, and each entry carries its reason.

use crate::paths;
use std::path::Path;
use std::process::Command;

/// Files longer than this are named; [`LINES_LIMIT`] fails.
const LINES_NOTICE: usize = 500;
const LINES_LIMIT: usize = 800;
/// Larger files belong elsewhere.
const BLOB_LIMIT: usize = 256 << 10;

/// A word that must not stand in code under some folders.
struct Ban {
    word: &'static str,
    under: &'static [&'static str],
    why: &'static str,
}

const DETERMINISTIC: &[&str] = &["machine/src", "sim/src", "kernel", "spec", "firmware", "user"];
const BANS: &[Ban] = &[
    Ban { word: "HashMap", under: DETERMINISTIC, why: "iteration order is random: use BTreeMap" },
    Ban { word: "HashSet", under: DETERMINISTIC, why: "iteration order is random: use BTreeSet" },
    Ban { word: "Instant", under: DETERMINISTIC, why: "host time must not reach a run" },
    Ban { word: "SystemTime", under: DETERMINISTIC, why: "host time must not reach a run" },
    // Guest crates have no std but in their host tests, where threads are contenders for locks.
    Ban {
        word: "std::thread",
        under: &["machine/src", "sim/src"],
        why: "host threads must not reach a run",
    },
    Ban {
        word: "core::sync::atomic",
        under: &["kernel"],
        why: "atomics live in kernel/sync, where incoherent machines are served too",
    },
    Ban { word: "dbg!(", under: &[""], why: "left over from debugging" },
    Ban { word: "todo!(", under: &[""], why: "return an error that says what is missing" },
    Ban { word: "unimplemented!(", under: &[""], why: "return an error that says what is missing" },
    Ban { word: "https://git", under: &["hive", "xtask", "cli", ".ci"], why: "no host is named" },
];

/// Files let off a rule: (path prefix, word, reason).
const ALLOWED: &[(&str, &str, &str)] = &[
    ("kernel/sync/", "core::sync::atomic", "the one place for atomics"),
    ("sim/src/bench/engine.rs", "Instant", "measures the host; nothing of it enters a machine"),
    ("sim/src/bench/engine.rs", "std::thread", "sleeps while another simulator runs"),
    ("sim/src/bench/simulator.rs", "std::thread", "counts the host's cores for the report"),
    ("xtask/src/tidy.rs", "", "names what it bans"),
];

/// Crates that may hold `unsafe`: the surface towards hardware, guests and host memory.
const UNSAFE_ALLOWED: &[&str] = &[
    "kernel/hal/",
    "kernel/sync/",
    "kernel/image/",
    "firmware/",
    "machine/",
    "user/",
    "bench/guest/",
];

/// Crate folder, and the workspace crates it may depend on.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("spec/platform", &[]),
    ("spec/protocol", &["hive-platform"]),
    ("machine", &["hive-platform"]),
    ("firmware", &["hive-platform"]),
    ("kernel/sync", &[]),
    ("kernel/vm", &["hive-sync", "hive-protocol", "hive-platform"]),
    ("kernel/fs", &["hive-sync", "hive-protocol", "hive-platform", "hive-vm"]),
    ("kernel/cells", &["hive-sync", "hive-protocol", "hive-platform"]),
    ("kernel/hal", &["hive-sync", "hive-protocol", "hive-platform"]),
    ("user/init", &["hive-platform", "hive-protocol"]),
];

/// Runs every check; the result is the list of findings, empty when all is well.
pub fn findings() -> Vec<String> {
    let mut found = Vec::new();
    for path in files() {
        let Ok(bytes) = std::fs::read(paths::root().join(&path)) else { continue };
        if bytes.len() > BLOB_LIMIT {
            found.push(format!("{path}: {} KB, over {}", bytes.len() >> 10, BLOB_LIMIT >> 10));
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if path.ends_with(".rs") {
            rust(&path, &text, &mut found);
        }
        if path.ends_with(".md") {
            links(&path, &text, &mut found);
        }
        if path.ends_with("Cargo.toml") {
            dependencies(&path, &text, &mut found);
        }
        if path != "xtask/src/tidy.rs" {
            machine_paths(&path, &text, &mut found);
        }
    }
    found
}

/// Long files that are not yet too long: worth splitting next time.
pub fn notices() -> Vec<String> {
    let lines = |path: &String| {
        std::fs::read_to_string(paths::root().join(path)).map_or(0, |text| text.lines().count())
    };
    let mut long: Vec<(usize, String)> = files()
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .map(|path| (lines(&path), path))
        .filter(|(count, _)| *count > LINES_NOTICE)
        .collect();
    long.sort();
    long.into_iter().map(|(count, path)| format!("{path}: {count} lines")).collect()
}

fn rust(path: &str, text: &str, found: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > LINES_LIMIT && !path.contains("/tests/") {
        found.push(format!("{path}: {} lines, over {LINES_LIMIT}: split it", lines.len()));
    }
    let head = lines.iter().take(20).any(|line| line.trim_start().starts_with("//!"));
    let exempt = path.ends_with("build.rs") || path.ends_with("tests.rs");
    if !head && !exempt {
        found.push(format!("{path}: no module head (//! purpose, invariants, what is absent)"));
    }
    for (number, line) in lines.iter().enumerate().map(|(i, line)| (i + 1, *line)) {
        let code = line.split("//").next().unwrap_or_default();
        for ban in BANS {
            let here = ban.under.iter().any(|folder| path.starts_with(folder));
            if here && has_word(code, ban.word) && !allowed(path, ban.word) {
                found.push(format!("{path}:{number}: {}: {}", ban.word, ban.why));
            }
        }
        let uses_unsafe = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"]
            .iter()
            .any(|form| code.contains(form));
        if uses_unsafe && !allowed(path, "unsafe") {
            if !UNSAFE_ALLOWED.iter().any(|folder| path.starts_with(folder)) {
                found.push(format!("{path}:{number}: unsafe outside the crates that are for it"));
            } else if code.contains("unsafe {") && !explained(&lines, number - 1) {
                found.push(format!("{path}:{number}: unsafe block without // SAFETY:"));
            }
        }
    }
}

/// A `SAFETY:` comment on the line or in the comment above the statement it stands in.
fn explained(lines: &[&str], at: usize) -> bool {
    lines[at].contains("SAFETY:")
        || lines[..at]
            .iter()
            .rev()
            .take(12)
            .take_while(|line| !line.trim().is_empty())
            .any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
}

/// `word` in `code`, not as part of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !part(before) && !(part(after) && !word.ends_with('('))
    })
}

fn allowed(path: &str, word: &str) -> bool {
    ALLOWED
        .iter()
        .any(|(file, what, _)| path.starts_with(file) && (what.is_empty() || *what == word))
}

/// Relative links of Markdown files lead somewhere.
fn links(path: &str, text: &str, found: &mut Vec<String>) {
    let folder = paths::root().join(path);
    let folder = folder.parent().unwrap_or(Path::new("."));
    for (number, line) in text.lines().enumerate() {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !folder.join(target).exists() {
                found.push(format!("{path}:{}: dead link {target}", number + 1));
            }
        }
    }
}

/// The layers: who may know whom.
fn dependencies(path: &str, text: &str, found: &mut Vec<String>) {
    let Some(allowed) = DEPENDENCIES
        .iter()
        .find(|(folder, _)| path.strip_suffix("/Cargo.toml") == Some(*folder))
        .map(|(_, allowed)| *allowed)
    else {
        return;
    };
    for line in text.lines().take_while(|line| line.trim() != "[dev-dependencies]") {
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if name.starts_with("hive-") && !allowed.contains(&name) && !line.contains("[[") {
            found.push(format!("{path}: must not depend on {name}"));
        }
    }
}

/// Nothing of the machine it was written on.
fn machine_paths(path: &str, text: &str, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for place in ["/work/", "/root/.", "/Users/", "deb.debian.org", "crates.io/"] {
            if line.contains(place) && !line.contains("/root/.bashrc") && path != "Cargo.lock" {
                found.push(format!("{path}:{}: names a machine or host: {place}", number + 1));
            }
        }
    }
}

/// Paths of tracked files and of new ones that are not ignored.
fn files() -> Vec<String> {
    let out = Command::new("git")
        .arg("-C")
        .arg(paths::root())
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output();
    let listed = out.ok().filter(|out| out.status.success());
    let text = listed.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let mut files: Vec<String> = text.unwrap_or_default().lines().map(str::to_owned).collect();
    files.retain(|path| paths::root().join(path).is_file());
    files
}

#[cfg(test)]
mod tests {
    #[test]
    fn tidy() {
        assert!(!super::files().is_empty(), "tidy asks git for the list of files");
        let found = super::findings();
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn words_are_whole() {
        assert!(super::has_word("use std::time::Instant;", "Instant"));
        assert!(!super::has_word("fn Instantly()", "Instant"));
        assert!(super::has_word("todo!()", "todo!("));
    }
}
