//! Device registers, through the direct map.

use crate::memory::{self, Pa};

/// A window of device registers.
#[derive(Clone, Copy, Debug)]
pub struct Mmio {
    base: *mut u8,
    size: u64,
}

// SAFETY: an Mmio is an address; what racing accesses mean is the device's and its driver's affair.
unsafe impl Send for Mmio {}
// SAFETY: as above.
unsafe impl Sync for Mmio {}

macro_rules! register {
    ($read:ident, $write:ident, $value:ty) => {
        /// Reads the register at `offset`.
        #[inline(always)]
        pub fn $read(&self, offset: u64) -> $value {
            // SAFETY: `at` keeps the access aligned and inside the window.
            unsafe { self.at::<$value>(offset).read_volatile() }
        }
        /// Writes the register at `offset`.
        #[inline(always)]
        pub fn $write(&self, offset: u64, value: $value) {
            // SAFETY: `at` keeps the access aligned and inside the window.
            unsafe { self.at::<$value>(offset).write_volatile(value) }
        }
    };
}

impl Mmio {
    /// The window of `size` bytes at `base`.
    ///
    /// # Safety
    /// The range must be a device's registers, not memory.
    pub unsafe fn new(base: Pa, size: u64) -> Mmio {
        assert!(base.0.is_multiple_of(8) && base.0 + size <= memory::DIRECT_SIZE);
        Mmio { base: memory::direct(base), size }
    }

    register!(read8, write8, u8);
    register!(read32, write32, u32);
    register!(read64, write64, u64);

    #[inline(always)]
    fn at<T>(&self, offset: u64) -> *mut T {
        let size = size_of::<T>() as u64;
        assert!(offset.is_multiple_of(size) && offset <= self.size - size, "register offset");
        // SAFETY: inside the window, so inside the direct map.
        unsafe { self.base.add(offset as usize) }.cast()
    }
}
