//! Locks that own their data, and the only atomics of the kernel.
//!
//! All shared mutable kernel data is reached through this crate (DESIGN §4, "Written for
//! incoherent memory"; `shared-memory-clusters.txt` §3): a lock and what it guards stand in
//! 64-byte blocks of their own, and [`coherence`] has a hook wherever a machine without hardware
//! coherence must write back or drop cached lines.
//!
//! | type | waits by | may be taken in an interrupt handler |
//! |---|---|---|
//! | [`SpinLock`] | spinning, interrupts off | yes |
//! | [`Mutex`] | sleeping | no |
//! | [`WaitQueue`] | sleeping until a condition holds | only its wake side |
//! | [`Once`], [`Lazy`] | spinning | yes |
//!
//! Invariants: a thread sleeps only with no spin lock held and interrupts on (checked in debug
//! builds); spin locks are taken in the order of [`rank`] (checked in debug builds).
//!
//! The scheduler is plugged in once at boot ([`sched::install`]). On the host the same API works
//! over `std::thread`, so that `hive-vm`, `hive-fs` and `hive-cells` are tested there.
//!
//! Absent: reader-writer locks, priority inheritance, robust locks (a hart that dies takes its
//! cell with it, so no lock outlives its holder's cell).
#![no_std]
#![allow(unsafe_code)] // one of the two crates that are the kernel's unsafe surface

#[cfg(not(target_os = "none"))]
extern crate std;

mod atomic;
pub mod coherence;
pub mod hart;
mod mutex;
mod once;
pub mod rank;
pub mod sched;
mod spin;
mod wait;

pub use atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
pub use mutex::{Mutex, MutexGuard};
pub use once::{Lazy, Once};
pub use rank::Rank;
pub use sched::{ThreadId, now_ns};
pub use spin::{SpinGuard, SpinLock};
pub use wait::{Limit, WaitError, WaitQueue};

/// One turn of a spin loop: PAUSE, which gives up the hart's slice on our machine. On the host
/// the thread yields, as a lock's holder may not be running.
#[inline(always)]
pub fn pause() {
    #[cfg(target_os = "none")]
    core::hint::spin_loop();
    #[cfg(not(target_os = "none"))]
    std::thread::yield_now();
}
