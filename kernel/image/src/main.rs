//! The cell kernel: boot order and wiring.
//!
//! Reading order: [`boot`] (the order of boot), [`cell`] (who we are), [`sched`] (threads), [`time`] (ticks, deadlines),
//! [`smp`] (the other harts), [`trap`] (what each kind of trap leads to).
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod cell;
#[cfg(target_os = "none")]
mod sched;
#[cfg(target_os = "none")]
mod selftest;
#[cfg(target_os = "none")]
mod smp;
#[cfg(target_os = "none")]
mod time;
#[cfg(target_os = "none")]
mod trap;

#[cfg(target_os = "none")]
#[allow(unsafe_code)] // the two entry symbols
mod entry {
    hive_hal::entry!(crate::boot::main, crate::smp::hart_main);
}

#[cfg(not(target_os = "none"))]
fn main() {}
