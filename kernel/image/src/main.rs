//! The cell kernel: boot order and wiring.
//!
//! Reading order: [`boot`] (the order of boot), [`cell`] (who we are), [`sched`] (threads), [`time`] (ticks),
//! [`smp`] (the other harts), [`trap`] (what each kind of trap leads to); then processes:
//! [`tree`], [`signal`], [`creds`] (pure rules, tested on the host), [`process`], [`user`],
//! [`fault`], [`exec`], [`syscall`], and what they stand on: [`frames`], [`space`], [`files`],
//! [`console`]. [`start`] brings them up.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

/// Prints a kernel message on the console.
#[cfg(target_os = "none")]
macro_rules! log {
    ($($argument:tt)*) => { hive_hal::println!($($argument)*) };
}

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod cell;
#[cfg(target_os = "none")]
mod console;
#[cfg(any(target_os = "none", test))]
#[cfg_attr(not(target_os = "none"), allow(dead_code))]
mod creds;
#[cfg(target_os = "none")]
mod exec;
#[cfg(target_os = "none")]
mod fault;
#[cfg(target_os = "none")]
mod files;
#[cfg(target_os = "none")]
mod frames;
#[cfg(target_os = "none")]
mod futex;
#[cfg(target_os = "none")]
mod process;
#[cfg(target_os = "none")]
mod procfs_source;
#[cfg(any(target_os = "none", test))]
#[cfg_attr(not(target_os = "none"), allow(dead_code))]
mod random;
#[cfg(target_os = "none")]
mod sched;
#[cfg(target_os = "none")]
mod selftest;
#[cfg(any(target_os = "none", test))]
#[cfg_attr(not(target_os = "none"), allow(dead_code))]
mod signal;
#[cfg(target_os = "none")]
mod smp;
#[cfg(target_os = "none")]
mod space;
#[cfg(target_os = "none")]
mod start;
#[cfg(target_os = "none")]
mod syscall;
#[cfg(target_os = "none")]
mod time;
#[cfg(target_os = "none")]
mod trap;
#[cfg(any(target_os = "none", test))]
#[cfg_attr(not(target_os = "none"), allow(dead_code))]
mod tree;
#[cfg(target_os = "none")]
mod user;

#[cfg(target_os = "none")]
#[allow(unsafe_code)] // the two entry symbols
mod entry {
    hive_hal::entry!(crate::boot::main, crate::smp::hart_main);
}

#[cfg(not(target_os = "none"))]
fn main() {}
