//! `cargo xtask TASK`: what the build of Hive needs beyond cargo.
//!
//! | task | does |
//! |---|---|
//! | `guest [NAME..]` | builds firmware, kernel and user programs into `target/guest/` |
//! | `rootfs` | makes the root file system's image, `target/guest/rootfs.ext2` |
//! | `rootfs --pin` | takes the packages in use as the tested ones (`xtask/rootfs.lock`) |
//! | `test [--all]` | what CI runs (`./hive test` makes the images first) |
//! | `tidy` | the repository's rules that no compiler holds |
//! | `toolchain` | unpacks the guest toolchain, if it is missing, and prints where it is |
//!
//! Everything fetched from outside lives in the private folder `.hive/` of the main working tree
//! (so all worktrees of one clone share it); everything built lives in `target/`. Exit code 1 and
//! one line on stderr when a task fails, 2 when the task's name is wrong.

mod ci;
mod flat;
mod guest;
mod paths;
mod rootfs;
mod tidy;
mod toolchain;

/// One line that says what failed and how to mend it.
pub type Failure = String;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["guest", names @ ..] => guest::build(names),
        ["rootfs"] => rootfs::build(),
        ["rootfs", "--pin"] => rootfs::pin(),
        ["test"] => ci::test(false),
        ["test", "--all"] => ci::test(true),
        ["tidy"] => tidy(),
        ["toolchain"] => toolchain::find().map(|found| println!("{found}")),
        _ => {
            eprintln!(
                "xtask: usage: cargo xtask guest [NAME..]|rootfs [--pin]|test [--all]|tidy|toolchain"
            );
            return 2.into();
        }
    };
    match result {
        Ok(()) => 0.into(),
        Err(line) => {
            eprintln!("xtask: {line}");
            1.into()
        }
    }
}

fn tidy() -> Result<(), Failure> {
    for line in tidy::notices() {
        println!("long: {line}");
    }
    let found = tidy::findings();
    for line in &found {
        println!("{line}");
    }
    if found.is_empty() { Ok(()) } else { Err(format!("tidy: {} findings", found.len())) }
}
