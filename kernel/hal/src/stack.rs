//! Kernel stacks: 32 KB in the upper half of a 64 KB slot of virtual addresses, the lower half
//! unmapped. So bit 15 of an address says whether it is inside a stack, and an overflow faults
//! before it reaches another stack. Stacks are kept for reuse and never unmapped: no shootdown.

use crate::memory::{self, NoMemory, PAGE};
use crate::paging;
use alloc::vec::Vec;
use hive_sync::SpinLock;

/// Virtual addresses of one stack.
pub const SLOT: usize = 1 << 16;
/// Bytes of a stack: the deepest path so far (ext2 read in a page fault in execve) uses about a
/// quarter.
pub const SIZE: usize = SLOT / 2;

/// Where slots start: a gigabyte of its own in the kernel's half.
pub(crate) const REGION: u64 = 0xffff_ffff_4000_0000;
const SLOTS: usize = (1 << 30) / SLOT;

struct Pool {
    free: Vec<usize>,
    slots: usize,
}

static POOL: SpinLock<Pool> = SpinLock::new(Pool { free: Vec::new(), slots: 0 });

/// A kernel stack; goes back to the pool when dropped.
#[derive(Debug)]
pub struct Stack {
    top: usize,
}

impl Stack {
    /// A stack from the pool, or a new one.
    pub fn new() -> Result<Stack, NoMemory> {
        let mut pool = POOL.lock();
        if let Some(top) = pool.free.pop() {
            return Ok(Stack { top });
        }
        if pool.slots == SLOTS {
            return Err(NoMemory);
        }
        let slot = pool.slots;
        pool.slots += 1; // a slot that is half mapped for want of memory is given up
        drop(pool);
        let top = REGION as usize + (slot + 1) * SLOT;
        for va in (top - SIZE..top).step_by(PAGE as usize) {
            let frame = memory::alloc_frame()?;
            paging::map_kernel(va as u64, frame)?;
        }
        Ok(Stack { top })
    }

    /// One past the highest address.
    pub fn top(&self) -> usize {
        self.top
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        POOL.lock().free.push(self.top);
    }
}
