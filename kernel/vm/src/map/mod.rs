//! Address spaces: regions of mapped pages, the calls that change them, and page faults.
//!
//! Nothing is mapped before it is touched: mmap only notes a [`Region`], fork gives the child an
//! empty page table, and [`AddressSpace::fault`] fills in one entry at a time, from the process's
//! leaf of its copy-on-write tree ([`crate::cow`]) or from the page cache ([`crate::cache`]).
//!
//! References: each entry of the page table holds one reference to the page it maps, and a
//! writable entry of a shared file mapping counts as one *writer* of that page.
//!
//! Lock: everything in an address space is under one mutex, which comes after the locks of files
//! (a `read` into user memory faults) and before the page cache's and the frame table's. It is
//! not held while pages are filled or written back: a fault that needs that lets go, fetches the
//! page, and starts again while it holds a reference to what it fetched. So faults of harts that
//! run one process may cross in any order; the second finds the entry there.
//!
//! Reading order: [`region`], `space` (calls), `fault`.
//!
//! Absent: swap and mlock (nothing is ever paged out that is mapped), huge pages, address-space
//! layout randomisation (runs must repeat), overcommit limits, NUMA placement.

mod fault;
pub mod region;
mod space;

pub use fault::{Access, Fault, FutexKey};
pub use region::{Backing, MappedFile, Region, Role};
pub use space::{AddressSpace, MapRequest, Placement};

use crate::types::PAGE_SIZE;

/// End of the user half of Sv39.
pub const USER_END: u64 = 1 << 38;
/// Lowest address that mmap gives out or takes with MAP_FIXED (Linux: vm.mmap_min_addr), so that
/// null pointers fault.
pub const USER_START: u64 = 0x1_0000;
/// End of the stack region. One page stays free above it, so that no pointer to the stack's end
/// is an address of the other half.
pub const STACK_TOP: u64 = USER_END - PAGE_SIZE as u64;
/// Most bytes that a stack grows to, and what RLIMIT_STACK says.
pub const STACK_LIMIT: u64 = 8 << 20;
/// Bytes below a growing stack that stay free of other regions (Linux: stack_guard_gap).
pub const STACK_GUARD: u64 = 256 * PAGE_SIZE as u64;
/// mmap without an address fills from here downwards: room above for a stack and its guard.
pub const MMAP_TOP: u64 = STACK_TOP - (64 << 20);
/// Most regions of an address space (Linux: vm.max_map_count).
pub const REGIONS_MAX: usize = 65530;
/// Most bytes of brk heap: the gap up to the mmap area is checked besides.
pub const HEAP_LIMIT: u64 = 64 << 30;

const _: () = {
    assert!(STACK_TOP - STACK_LIMIT - STACK_GUARD >= MMAP_TOP);
    assert!(USER_START.is_multiple_of(PAGE_SIZE as u64));
};

#[cfg(test)]
mod calls_tests;
#[cfg(test)]
pub(crate) mod tests;
