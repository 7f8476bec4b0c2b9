//! Builds the guest images: firmware, kernel, user programs.
//!
//! Each guest crate has a `link.ld` and a `build.rs` that names it to the linker. Images do not
//! depend on where the tree stands: paths are remapped, so that their hashes repeat anywhere.

use crate::{Failure, flat, paths, toolchain};
use std::path::Path;
use std::process::Command;

/// Package, its binary, and the name of the image made of it.
const IMAGES: [(&str, &str, &str); 8] = [
    ("hive-firmware", "hive-firmware", "firmware"),
    ("hive-kernel", "hive-kernel", "kernel"),
    ("hive-init", "hive-init", "init"),
    ("hive-bench-guest", "integer", "bench-integer"),
    ("hive-bench-guest", "memory", "bench-memory"),
    ("hive-bench-guest", "float", "bench-float"),
    ("hive-bench-guest", "paging", "bench-paging"),
    ("hive-bench-guest", "contention", "bench-contention"),
];

/// Builds the named images, or all; those already built cost nothing.
pub fn build(names: &[&str]) -> Result<(), Failure> {
    if let Some(wrong) = names.iter().find(|n| !IMAGES.iter().any(|(.., image)| image == *n)) {
        let known = IMAGES.map(|(.., image)| image).join(", ");
        return Err(format!("no guest image {wrong}: there are {known}"));
    }
    let wanted = || IMAGES.iter().filter(|(.., n)| names.is_empty() || names.contains(n));
    let tools = toolchain::find()?;
    let out = paths::guest();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .current_dir(paths::root())
        .args(["build", "--profile", "guest", "--target", toolchain::TARGET, "--target-dir"])
        .arg(&out);
    for (package, binary, _) in wanted() {
        cargo.args(["-p", package, "--bin", binary]);
    }
    // The caller's settings for host builds would leak into the images.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "RUSTC_WRAPPER"] {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_TARGET_RISCV64GC_UNKNOWN_NONE_ELF_RUSTFLAGS", flags());
    cargo.env("CARGO_TARGET_RISCV64GC_UNKNOWN_NONE_ELF_LINKER", &tools.linker);
    if let Some(rustc) = &tools.rustc {
        cargo.env("RUSTC", rustc);
    }
    if tools.build_std {
        cargo
            .arg("-Zbuild-std=core,alloc")
            .arg("-Zbuild-std-features=compiler-builtins-mem")
            .env("RUSTC_BOOTSTRAP", "1");
    }
    let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("a guest image does not build (see above)".into());
    }
    let built = out.join(toolchain::TARGET).join("guest");
    for (_, binary, name) in wanted() {
        let elf = read(&built.join(binary))?;
        let image = flat::flatten(&elf).map_err(|e| format!("{binary}: {e}"))?;
        write_if_changed(&out.join(name).with_extension("elf"), &elf)?;
        write_if_changed(&out.join(name).with_extension("bin"), &image)?;
    }
    Ok(())
}

/// Compiler flags common to all guest crates, separated by spaces.
fn flags() -> String {
    let mut flags = vec!["-Clinker-flavor=ld.lld".into(), "-Cforce-frame-pointers=yes".into()];
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    };
    remap(&paths::root(), ".");
    remap(&paths::private().join("toolchain"), "toolchain");
    let home = std::env::var_os("CARGO_HOME").map(Into::into);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    if let Some(home) = home {
        remap(&home, "cargo");
    }
    flags.join(" ")
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Leaves an unchanged file alone, so that what depends on its date is not made again.
fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}
