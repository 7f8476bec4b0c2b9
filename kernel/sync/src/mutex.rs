//! [`Mutex`]: a lock that sleeps and owns its data. Never in an interrupt handler, never with a
//! spin lock held.

use crate::{AtomicBool, WaitQueue, coherence, hart};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// A lock for sections that may sleep; see the crate head.
#[repr(C, align(64))]
pub struct Mutex<T: ?Sized> {
    locked: AtomicBool,
    waiters: WaitQueue,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, through a guard.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free lock.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            locked: AtomicBool::new(false),
            waiters: WaitQueue::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, by consuming the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, sleeping while another thread has it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        hart::assert_may_sleep();
        self.waiters.wait_until(|| self.try_lock())
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if self.locked.swap(true) {
            return None;
        }
        coherence::acquire(self.value.get().cast(), size_of_val(self));
        Some(MutexGuard { lock: self, not_send: core::marker::PhantomData })
    }

    /// True while some thread holds the lock (out of date as soon as it is known).
    pub fn is_locked(&self) -> bool {
        self.locked.load()
    }

    /// The value, when the borrow checker knows that no one else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

/// Access to what a [`Mutex`] guards; gives the lock back when dropped.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    not_send: core::marker::PhantomData<*const ()>,
}

// SAFETY: sharing a guard is sharing a reference to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        coherence::release(self.lock.value.get().cast(), size_of_val(self.lock));
        self.lock.locked.store(false);
        self.lock.waiters.wake_one();
    }
}
