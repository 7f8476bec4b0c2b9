//! [`SpinLock`]: turns interrupts off and owns its data.
//!
//! Not fair. A queue of tickets was tried: on a host that runs several harts on one core (QEMU) the
//! next in line is mostly one that does not run, and four harts were slower than one by far.

use crate::rank::{Rank, UNRANKED};
use crate::{AtomicBool, coherence, hart};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// A lock for short sections that never sleep; see the crate head.
#[repr(C, align(64))]
pub struct SpinLock<T: ?Sized> {
    locked: AtomicBool,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one hart at a time, through a guard.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock outside the lock order.
    pub const fn new(value: T) -> SpinLock<T> {
        SpinLock::ranked(UNRANKED, value)
    }

    /// A free lock at `rank` of the lock order.
    pub const fn ranked(rank: Rank, value: T) -> SpinLock<T> {
        SpinLock { locked: AtomicBool::new(false), rank, value: UnsafeCell::new(value) }
    }

    /// The value, by consuming the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Takes the lock, spinning; interrupts are off until the guard is dropped.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        hart::irq_push();
        hart::check_order(self.rank, self.address());
        while self.locked.swap(true) {
            while self.locked.advisory() {
                crate::pause();
            }
        }
        self.taken()
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        hart::irq_push();
        if self.locked.swap(true) {
            hart::irq_pop();
            return None;
        }
        Some(self.taken())
    }

    /// The value, when the borrow checker knows that no one else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline(always)]
    fn taken(&self) -> SpinGuard<'_, T> {
        hart::note_taken(self.rank, self.address());
        coherence::acquire(self.value.get().cast(), size_of_val(self));
        SpinGuard { lock: self, not_send: core::marker::PhantomData }
    }

    #[inline(always)]
    fn address(&self) -> usize {
        core::ptr::from_ref(self).cast::<u8>().addr()
    }
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        SpinLock::new(T::default())
    }
}

/// Access to what a [`SpinLock`] guards; gives the lock back when dropped.
#[must_use]
pub struct SpinGuard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
    not_send: core::marker::PhantomData<*const ()>,
}

// SAFETY: sharing a guard is sharing a reference to the value.
unsafe impl<T: ?Sized + Sync> Sync for SpinGuard<'_, T> {}

impl<T: ?Sized> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        coherence::release(self.lock.value.get().cast(), size_of_val(self.lock));
        hart::note_released(self.lock.address());
        self.lock.locked.store(false);
        hart::irq_pop();
    }
}
