//! The kernel's atomics. Loads acquire, stores release, read-modify-writes do both: there is no
//! ordering to choose and so none to choose wrongly.

use crate::coherence;
use core::sync::atomic as core_atomic;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Orders everything before it against everything after it, device accesses included.
#[inline(always)]
pub fn fence() {
    core_atomic::fence(core_atomic::Ordering::SeqCst);
    #[cfg(target_os = "none")]
    // SAFETY: FENCE has no effect but ordering.
    unsafe {
        core::arch::asm!("fence iorw, iorw", options(nostack, preserves_flags));
    }
}

macro_rules! atomic {
    ($(#[$doc:meta])* $name:ident, $value:ty) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(core_atomic::$name);

        impl $name {
            /// A new cell holding `value`.
            pub const fn new(value: $value) -> Self {
                Self(core_atomic::$name::new(value))
            }
            /// Reads with acquire ordering.
            #[inline(always)]
            pub fn load(&self) -> $value {
                coherence::acquire(core::ptr::from_ref(self).cast(), size_of::<Self>());
                self.0.load(Acquire)
            }
            /// Reads without ordering: good for statistics and for hints only.
            #[inline(always)]
            pub fn advisory(&self) -> $value {
                coherence::advisory(core::ptr::from_ref(self).cast(), size_of::<Self>());
                self.0.load(Relaxed)
            }
            /// Writes with release ordering.
            #[inline(always)]
            pub fn store(&self, value: $value) {
                self.0.store(value, Release);
                coherence::release(core::ptr::from_ref(self).cast(), size_of::<Self>());
            }
            /// Exchanges; returns what was there.
            #[inline(always)]
            pub fn swap(&self, value: $value) -> $value {
                self.0.swap(value, AcqRel)
            }
            /// Writes `new` if the cell holds `old`; `Err` has what it holds instead.
            #[inline(always)]
            pub fn compare_exchange(&self, old: $value, new: $value) -> Result<$value, $value> {
                self.0.compare_exchange(old, new, AcqRel, Acquire)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty) => {
        impl $name {
            /// Adds, wrapping; returns what was there.
            #[inline(always)]
            pub fn fetch_add(&self, value: $value) -> $value {
                self.0.fetch_add(value, AcqRel)
            }
            /// Subtracts, wrapping; returns what was there.
            #[inline(always)]
            pub fn fetch_sub(&self, value: $value) -> $value {
                self.0.fetch_sub(value, AcqRel)
            }
            /// Sets the bits of `value`; returns what was there.
            #[inline(always)]
            pub fn fetch_or(&self, value: $value) -> $value {
                self.0.fetch_or(value, AcqRel)
            }
            /// Keeps the bits of `value` only; returns what was there.
            #[inline(always)]
            pub fn fetch_and(&self, value: $value) -> $value {
                self.0.fetch_and(value, AcqRel)
            }
        }
    };
}

atomic!(
    /// A shared flag.
    AtomicBool,
    bool
);
atomic!(
    /// A shared `u8`.
    AtomicU8,
    u8
);
atomic!(
    /// A shared `u32`.
    AtomicU32,
    u32
);
atomic!(
    /// A shared `u64`.
    AtomicU64,
    u64
);
atomic!(
    /// A shared `usize`.
    AtomicUsize,
    usize
);
arithmetic!(AtomicU8, u8);
arithmetic!(AtomicU32, u32);
arithmetic!(AtomicU64, u64);
arithmetic!(AtomicUsize, usize);
