//! The compiler and linker of guest images.
//!
//! In order: the private prefix, once it exists; a host toolchain that has the target (rustup);
//! else Debian's Rust is unpacked into the private prefix (see `sh/toolchain.sh`, decision 0002).

use crate::{Failure, paths};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of every guest image.
pub const TARGET: &str = "riscv64gc-unknown-none-elf";

/// What compiles and links guest images.
pub struct Toolchain {
    /// `rustc` to use, if not the host's.
    pub rustc: Option<PathBuf>,
    /// `core` and `alloc` must be built from the prefix's sources.
    pub build_std: bool,
    /// `rust-lld` or `ld.lld`.
    pub linker: PathBuf,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rustc = self.rustc.as_deref().unwrap_or(Path::new("rustc"));
        write!(f, "{} linking with {}", rustc.display(), self.linker.display())
    }
}

/// Finds the toolchain, or unpacks one.
pub fn find() -> Result<Toolchain, Failure> {
    let prefix = paths::private().join("toolchain");
    let sysroot = host_sysroot();
    let native = sysroot.as_ref().is_some_and(|s| s.join("lib/rustlib").join(TARGET).is_dir());
    let linker = linker(sysroot.as_deref());
    if native && !prefix.join("packages").exists() {
        let linker = linker.ok_or("no rust-lld and no ld.lld here: install the package lld")?;
        return Ok(Toolchain { rustc: None, build_std: false, linker });
    }
    let linker = match linker {
        Some(found) => {
            if !prefix.join("packages").exists() {
                unpack(&prefix, &[])?;
            }
            found
        }
        None => {
            let private = prefix.join("bin/ld.lld");
            if !private.exists() {
                unpack(&prefix, &["lld"])?;
            }
            private
        }
    };
    Ok(Toolchain { rustc: Some(prefix.join("bin/rustc")), build_std: true, linker })
}

/// Runs `sh/toolchain.sh`; another process that is at it already is waited for.
fn unpack(prefix: &Path, packages: &[&str]) -> Result<(), Failure> {
    let script = paths::root().join("xtask/sh/toolchain.sh");
    let _lock = lock()?;
    let mut kept = String::new();
    if let Ok(list) = std::fs::read_to_string(prefix.join("packages")) {
        kept = list;
    }
    let extra = ["cargo-web", "lld"].into_iter().filter(|p| kept.lines().any(|line| line == *p));
    let status = Command::new("sh")
        .arg(&script)
        .arg(prefix)
        .args(extra)
        .args(packages)
        .status()
        .map_err(|e| format!("sh: {e}"))?;
    if status.success() { Ok(()) } else { Err("no guest toolchain (see above)".into()) }
}

/// Holds the private folder against other builds of the same clone until dropped.
pub fn lock() -> Result<std::fs::File, Failure> {
    let private = paths::private();
    let fail = |e: std::io::Error| format!("{}: {e}", private.display());
    std::fs::create_dir_all(&private).map_err(fail)?;
    let file = std::fs::File::create(private.join("lock")).map_err(fail)?;
    file.lock().map_err(fail)?;
    Ok(file)
}

fn host_sysroot() -> Option<PathBuf> {
    let out = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    out.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&out.stdout).trim_end()))
}

/// The host toolchain's `rust-lld`, else an `ld.lld` on the PATH.
fn linker(sysroot: Option<&Path>) -> Option<PathBuf> {
    let mut places = Vec::new();
    if let Some(hosts) = sysroot.and_then(|s| std::fs::read_dir(s.join("lib/rustlib")).ok()) {
        places.extend(hosts.flatten().map(|host| host.path().join("bin/rust-lld")));
    }
    places.sort();
    if let Some(path) = std::env::var_os("PATH") {
        places.extend(std::env::split_paths(&path).map(|dir| dir.join("ld.lld")));
    }
    places.into_iter().find(|place| place.exists())
}
