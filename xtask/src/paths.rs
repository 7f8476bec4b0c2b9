//! Where things are: the working tree, the private folder, the guest images.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Root of the working tree this was built from.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or_else(|| manifest.to_owned(), Path::to_owned)
}

/// What is fetched once for all worktrees of a clone: `$HIVE_PRIVATE`, or `.hive/` beside the
/// clone's git folder, or (without git) `.hive/` in the working tree.
pub fn private() -> PathBuf {
    if let Some(set) = std::env::var_os("HIVE_PRIVATE") {
        return PathBuf::from(set);
    }
    let git = Command::new("git")
        .arg("-C")
        .arg(root())
        .args(["rev-parse", "--path-format=absolute", "--git-common-dir"])
        .output();
    let common = git.ok().filter(|out| out.status.success()).map(|out| {
        PathBuf::from(String::from_utf8_lossy(&out.stdout).trim_end_matches('\n').to_owned())
    });
    match common.as_deref().and_then(Path::parent) {
        Some(tree) if tree.join("Cargo.toml").exists() => tree.join(".hive"),
        _ => root().join(".hive"),
    }
}

/// Where guest images are left: `NAME.elf` with debug information, `NAME.bin` flat.
pub fn guest() -> PathBuf {
    root().join("target/guest")
}
