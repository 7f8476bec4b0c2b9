//! The scheduler as this crate needs it. The kernel installs its own once at boot; on the host
//! `std::thread` stands in.

/// A thread, opaquely: valid while the thread lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(pub usize);

/// What a scheduler provides.
pub trait Scheduler: Sync {
    /// The running thread.
    fn current(&self) -> ThreadId;
    /// Sleeps until the running thread's wake token is set or `deadline_ns` has come, and clears
    /// the token. May return early; returns at once if the token is set already.
    fn park(&self, deadline_ns: Option<u64>);
    /// Sets `thread`'s wake token. Interrupt handlers may call it.
    fn unpark(&self, thread: ThreadId);
    /// True if the running thread's interruptible waits must end (a signal is pending).
    fn interrupted(&self) -> bool;
    /// Monotonic time in nanoseconds since boot.
    fn now_ns(&self) -> u64;
}

/// Monotonic time in nanoseconds since boot.
pub fn now_ns() -> u64 {
    get().now_ns()
}

/// Sleeps for `ns` nanoseconds, signals or not.
pub fn sleep_ns(ns: u64) {
    let deadline = now_ns().saturating_add(ns);
    while now_ns() < deadline {
        get().park(Some(deadline));
    }
}

#[cfg(target_os = "none")]
mod plug {
    use super::Scheduler;
    use crate::Once;

    static SCHEDULER: Once<&'static dyn Scheduler> = Once::new();

    /// Plugs the kernel's scheduler in; panics if called twice.
    pub fn install(scheduler: &'static dyn Scheduler) {
        assert!(SCHEDULER.set(scheduler).is_ok(), "a scheduler is installed already");
    }

    pub(crate) fn get() -> &'static dyn Scheduler {
        *SCHEDULER.get().expect("scheduler is installed before the first wait")
    }
}

#[cfg(not(target_os = "none"))]
mod plug {
    use super::{Scheduler, ThreadId};
    use std::boxed::Box;
    use std::thread::{self, Thread};
    use std::time::{Duration, UNIX_EPOCH};

    struct Host;
    static HOST: Host = Host;

    // One leaked handle per test thread: a ThreadId must stay valid for late unparks.
    std::thread_local!(static SELF: &'static Thread = Box::leak(Box::new(thread::current())));

    impl Scheduler for Host {
        fn current(&self) -> ThreadId {
            ThreadId(SELF.with(|t| core::ptr::from_ref(*t).expose_provenance()))
        }
        fn park(&self, deadline_ns: Option<u64>) {
            match deadline_ns {
                None => thread::park(),
                Some(at) => {
                    let left = at.saturating_sub(self.now_ns());
                    thread::park_timeout(Duration::from_nanos(left));
                }
            }
        }
        fn unpark(&self, thread: ThreadId) {
            // SAFETY: a ThreadId is made by `current` only, from a leaked handle.
            unsafe { &*core::ptr::with_exposed_provenance::<Thread>(thread.0) }.unpark();
        }
        fn interrupted(&self) -> bool {
            false
        }
        fn now_ns(&self) -> u64 {
            UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64)
        }
    }

    pub(crate) fn get() -> &'static dyn Scheduler {
        &HOST
    }
}

pub(crate) use plug::get;
#[cfg(target_os = "none")]
pub use plug::install;
