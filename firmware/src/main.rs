//! The firmware: M-mode, one copy per node, in the node's remap window (DESIGN §2, §3).
//!
//! It gives S-mode the SBI (base, time, IPI, rfence, HSM, reset, debug console, and the legacy
//! console calls), keeps S-mode out of its own frames with one PMP entry, turns on the firewall,
//! and copies the kernel of its partition from flash.
//!
//! The harts of a firmware share nothing. Each works out its own partition from the controller
//! and the flash header; all that passes between harts, on one node or between nodes, are
//! mailbox messages. So a hart that dies takes no lock with it, and no wait is longer than
//! [`mailbox::PATIENCE_TICKS`].
//!
//! Reading order: [`boot`], [`partition`], [`trap`], [`sbi`], [`mailbox`], [`hw`].
//! Absent: durable memory (issue of its own), non-retentive suspend, PMU.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod hart;
#[cfg(target_os = "none")]
mod hw;
#[cfg(target_os = "none")]
mod mailbox;
#[cfg(target_os = "none")]
mod partition;
#[cfg(target_os = "none")]
mod sbi;
#[cfg(target_os = "none")]
mod trap;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("hive-firmware is a guest image: build it with `cargo xtask guest`");
}
