//! [`Once`] and [`Lazy`]: values written once, then only read.

use crate::AtomicU8;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;

const EMPTY: u8 = 0;
const BUSY: u8 = 1;
const FULL: u8 = 2;

/// A value that is set at most once.
pub struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by the one thread that moved EMPTY to BUSY and shared only when
// FULL; it may be dropped by another thread than the one that set it.
unsafe impl<T: Send + Sync> Sync for Once<T> {}
// SAFETY: owning the cell is owning the value.
unsafe impl<T: Send> Send for Once<T> {}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Once<T> {
    /// An empty cell.
    pub const fn new() -> Once<T> {
        Once { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it is set.
    #[inline(always)]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: FULL says that the value is written and never will be again.
        (self.state.load() == FULL).then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Sets the value; gives it back if the cell is set, or being set, already.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.state.compare_exchange(EMPTY, BUSY).is_err() {
            return Err(value);
        }
        // SAFETY: this thread alone moved EMPTY to BUSY.
        unsafe { (*self.value.get()).write(value) };
        self.state.store(FULL);
        Ok(())
    }

    /// The value, made by `init` if the cell is empty; spins while another thread makes it.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        if self.state.compare_exchange(EMPTY, BUSY).is_ok() {
            let value = init();
            // SAFETY: this thread alone moved EMPTY to BUSY.
            unsafe { (*self.value.get()).write(value) };
            self.state.store(FULL);
        }
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            crate::pause();
        }
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if self.state.load() == FULL {
            // SAFETY: FULL says that the value is written; `&mut self` that nobody reads it.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

/// A value made on first use.
pub struct Lazy<T> {
    cell: Once<T>,
    init: fn() -> T,
}

impl<T> Lazy<T> {
    /// A value that `init` will make.
    pub const fn new(init: fn() -> T) -> Lazy<T> {
        Lazy { cell: Once::new(), init }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.cell.get_or_init(self.init)
    }
}
