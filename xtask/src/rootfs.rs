//! The root file system: Debian packages, our init, the demo's scripts (decision 0003).
//!
//! Two cached steps (`sh/rootfs.sh`): the packages' tree, once per list of packages; and the
//! image, once per tree, init and scripts. A cached image needs neither network nor packages.
//! Both carry the hash of what went in as their name, so nothing is ever stale.

use crate::{Failure, flat, paths, toolchain};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the spine's userland needs, and larger text files to work on.
const PACKAGES: [&str; 15] = [
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "mawk",
    "pci.ids",
    "procps",
    "publicsuffix",
    "sed",
    "usb.ids",
    "util-linux",
];

/// Nominal size; what is free costs nothing on the host.
const SIZE_MB: u64 = 256;
/// One mount point per cell that a machine can be cut into.
const CELLS: u32 = 64;
/// Images kept in the private folder.
const KEPT: usize = 6;

/// Makes `target/guest/rootfs.ext2` and `rootfs.ext2.sha256` if they are not up to date.
pub fn build() -> Result<(), Failure> {
    let init_elf = paths::guest().join("init.elf");
    let init = std::fs::read(&init_elf)
        .map_err(|e| format!("{}: {e}: run 'cargo xtask guest' first", init_elf.display()))?;
    let init = flat::strip(&init).map_err(|e| format!("{}: {e}", init_elf.display()))?;
    let script = paths::root().join("xtask/sh/rootfs.sh");
    let store = paths::private().join("rootfs");

    let recipe = std::fs::read(&script).map_err(|e| format!("{}: {e}", script.display()))?;
    let tree_key = sha256(&[&recipe, PACKAGES.join(" ").as_bytes()])?;
    let tree = store.join(format!("tree-{}", &tree_key[..16]));
    if !tree.join("resolved").exists() {
        let _lock = toolchain::lock()?;
        if !tree.join("resolved").exists() {
            run(sh(&script).arg("tree").arg(&tree).arg(lock_file()).args(PACKAGES))?;
        }
    }
    let resolved = std::fs::read(tree.join("resolved")).map_err(|e| format!("resolved: {e}"))?;

    let overlay = overlay(init)?;
    let mut parts: Vec<&[u8]> = vec![tree_key.as_bytes(), &resolved];
    for (path, mode, bytes) in &overlay {
        parts.extend([path.as_bytes(), mode.as_bytes(), bytes]);
    }
    let image = store.join(format!("{}.ext2", &sha256(&parts)?[..16]));
    let sum = image.with_extension("ext2.sha256");
    if !sum.exists() {
        let _lock = toolchain::lock()?;
        if !sum.exists() {
            make(&script, &tree, &overlay, &image, &sum)?;
            forget_old(&store);
        }
    }
    let out = paths::guest();
    install(&image, &out.join("rootfs.ext2"))?;
    install(&sum, &out.join("rootfs.ext2.sha256"))
}

/// Writes the list of packages of the present tree as the tested one.
pub fn pin() -> Result<(), Failure> {
    let store = paths::private().join("rootfs");
    let entries = std::fs::read_dir(&store).map_err(|e| format!("{}: {e}", store.display()))?;
    let lists = entries.flatten().map(|entry| entry.path().join("resolved"));
    let newest = lists
        .filter_map(|list| Some((std::fs::metadata(&list).ok()?.modified().ok()?, list)))
        .max()
        .ok_or("no tree yet: run 'cargo xtask rootfs' first")?;
    std::fs::copy(&newest.1, lock_file()).map_err(|e| e.to_string())?;
    Ok(())
}

fn lock_file() -> PathBuf {
    paths::root().join("xtask/rootfs.lock")
}

/// Path in the image, mode, contents. A mode that starts with `d` is a folder.
type Entry = (String, &'static str, Vec<u8>);

/// What lies over the packages.
fn overlay(init: Vec<u8>) -> Result<Vec<Entry>, Failure> {
    let text = |path: &str, text: &str| (path.to_owned(), "644", text.as_bytes().to_vec());
    let mut entries = vec![
        ("usr/sbin/init".to_owned(), "755", init),
        text("etc/hostname", "hive\n"),
        text("etc/hosts", "127.0.0.1 localhost hive\n"),
        text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        text("root/.bashrc", "PS1='\\h:\\w# '\nalias ll='ls -l'\n"),
        text("root/.profile", "[ -z \"$BASH\" ] || . /root/.bashrc\n"),
    ];
    entries.extend(["demo", "run", "sys"].map(|dir| (dir.to_owned(), "d755", Vec::new())));
    entries.extend((0..CELLS).map(|cell| (format!("cells/{cell}"), "d755", Vec::new())));
    let scripts = paths::root().join("sim/guest");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&scripts)
        .map(|all| all.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    for file in files {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        entries.push((format!("demo/{name}"), "755", bytes));
    }
    Ok(entries)
}

/// Makes the image and, last, the file with its hash.
fn make(
    script: &Path,
    tree: &Path,
    overlay: &[Entry],
    image: &Path,
    sum: &Path,
) -> Result<(), Failure> {
    let fail = |e: std::io::Error| format!("root file system: {e}");
    let files = image.with_extension("overlay");
    if files.exists() {
        std::fs::remove_dir_all(&files).map_err(fail)?;
    }
    for (path, mode, bytes) in overlay {
        let to = files.join(path);
        std::fs::create_dir_all(to.parent().unwrap_or(&files)).map_err(fail)?;
        match mode.strip_prefix('d') {
            Some(_) => std::fs::create_dir_all(&to).map_err(fail)?,
            None => std::fs::write(&to, bytes).map_err(fail)?,
        }
        run(Command::new("chmod").arg(mode.trim_start_matches('d')).arg(&to))?;
    }
    let tree = tree.join("tree");
    run(sh(script).arg("image").args([&tree, &files, &image.to_owned()]).arg(SIZE_MB.to_string()))?;
    std::fs::remove_dir_all(&files).map_err(fail)?;
    let out = Command::new("sha256sum").arg(image).output().map_err(fail)?;
    let hash = String::from_utf8_lossy(&out.stdout).chars().take(64).collect::<String>();
    std::fs::write(sum, hash + "\n").map_err(fail)
}

/// Removes images beyond the newest [`KEPT`]; those in use elsewhere live on as hard links.
fn forget_old(store: &Path) {
    let Ok(entries) = std::fs::read_dir(store) else { return };
    let mut sums: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "sha256"))
        .filter_map(|path| Some((std::fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    sums.sort();
    let old = sums.len().saturating_sub(KEPT);
    for (_, sum) in &sums[..old] {
        // A file that cannot be removed only takes room.
        let _ = std::fs::remove_file(sum);
        let _ = std::fs::remove_file(sum.with_extension(""));
    }
}

/// Hard link, or a copy where links cannot go.
fn install(from: &Path, to: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let same = |a: &Path, b: &Path| {
        let (a, b) = (std::fs::metadata(a).ok()?, std::fs::metadata(b).ok()?);
        Some(a.ino() == b.ino() && a.dev() == b.dev())
    };
    if same(from, to) == Some(true) {
        return Ok(());
    }
    if to.exists() {
        std::fs::remove_file(to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    if std::fs::hard_link(from, to).is_err() {
        run(Command::new("cp").arg("--sparse=always").args([from, to]))?;
    }
    Ok(())
}

fn sh(script: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg(script);
    command
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err("no root file system (see above)".into()) }
}

/// Hash of the parts, each preceded by its length.
fn sha256(parts: &[&[u8]]) -> Result<String, Failure> {
    let fail = |e: std::io::Error| format!("sha256sum: {e}");
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    if let Some(mut pipe) = child.stdin.take() {
        for part in parts {
            pipe.write_all(&(part.len() as u64).to_le_bytes()).map_err(fail)?;
            pipe.write_all(part).map_err(fail)?;
        }
    }
    let out = child.wait_with_output().map_err(fail)?;
    if out.stdout.len() < 64 {
        return Err("sha256sum gave no hash: install the package coreutils".into());
    }
    Ok(String::from_utf8_lossy(&out.stdout[..64]).into_owned())
}
