//! Sv39 page tables.
//!
//! The upper half (root entries 256..512) is the kernel's and the same in every table: direct map
//! (gigapages), stacks, image. It is complete before the first user table is made, so copies of it
//! never age. The lower half belongs to one address space. Leaf entries always carry A, and D if
//! writable: no walker writes tables (Svade).
//!
//! Absent: user pages above 4 KB, address-space ids (every change of table forgets the user half).

use crate::entry::Table;
use crate::memory::{self, DIRECT_BASE, DIRECT_SIZE, IMAGE_BASE, NoMemory, PAGE, Pa, direct};
use crate::{Access, hart, sbi, stack, uaccess};
use core::arch::asm;
use hive_sync::{AtomicU64, Once, SpinLock, rank};

const V: u64 = 1;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const U: u64 = 1 << 4;
const G: u64 = 1 << 5;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;
const PPN: u64 = ((1 << 44) - 1) << 10;

/// What a mapping allows. Readable always: write or execute alone does not exist here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perm {
    /// Stores.
    pub write: bool,
    /// Instruction fetches.
    pub execute: bool,
}

/// A user mapping as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The frame.
    pub frame: Pa,
    /// What it allows.
    pub perm: Perm,
}

fn leaf(frame: Pa, perm: Perm, extra: u64) -> u64 {
    let write = if perm.write { W | D } else { 0 };
    let execute = if perm.execute { X } else { 0 };
    (frame.0 >> 12) << 10 | V | R | A | write | execute | extra
}

fn branch(table: Pa) -> u64 {
    (table.0 >> 12) << 10 | V
}

fn target(entry: u64) -> Pa {
    Pa((entry & PPN) >> 10 << 12)
}

fn is_branch(entry: u64) -> bool {
    entry & (V | R | W | X) == V
}

fn index(va: u64, level: u32) -> usize {
    (va >> (12 + 9 * level)) as usize & 511
}

/// The entry `index` of the table in frame `table`.
fn slot(table: Pa, index: usize) -> &'static AtomicU64 {
    assert!(index < 512);
    // SAFETY: page-table frames belong to this module until freed, and are read and written as
    // atomics only; the direct map covers them.
    unsafe { &*direct(table).cast::<AtomicU64>().add(index) }
}

/// Finds the level-0 entry for `va`, making tables on the way if `make`.
fn find(root: Pa, va: u64, make: bool) -> Result<Option<&'static AtomicU64>, NoMemory> {
    let mut table = root;
    for level in [2, 1] {
        let entry = slot(table, index(va, level));
        let value = entry.load();
        if value & V == 0 {
            if !make {
                return Ok(None);
            }
            let new = memory::alloc_zeroed()?;
            entry.store(branch(new));
            table = new;
        } else if is_branch(value) {
            table = target(value);
        } else {
            return Ok(None);
        }
    }
    Ok(Some(slot(table, index(va, 0))))
}

/// Forgets this hart's translations of `va`, of every address space.
fn sfence(va: u64) {
    // SAFETY: forgetting translations is always sound.
    unsafe { asm!("sfence.vma {}", in(reg) va, options(nostack)) };
}

// ---- the kernel's half ----

static KERNEL_ROOT: Once<Pa> = Once::new();
/// Serialises changes of the kernel's half.
static KERNEL: SpinLock<()> = SpinLock::ranked(rank::PAGE_TABLE, ());

fn kernel_root() -> Pa {
    *KERNEL_ROOT.get().expect("kernel page tables are built at boot")
}

fn satp(root: Pa) -> u64 {
    8 << 60 | root.0 >> 12
}

pub(crate) fn kernel_satp() -> u64 {
    satp(kernel_root())
}

unsafe extern "C" {
    static __text_end: u8;
    static __rodata_end: u8;
    static __image_end: u8;
}

/// Replaces the early tables: text executable, rodata read-only, the rest of the image writable.
pub(crate) fn build_kernel_tables(image: Pa) {
    // SAFETY: addresses of symbols.
    let ends = [&raw const __text_end, &raw const __rodata_end, &raw const __image_end];
    let [text, rodata, end] = ends.map(|p| p.addr() as u64);
    let new = || memory::alloc_zeroed().expect("memory for the kernel's page tables");
    let root = new();
    for gigabyte in 0..DIRECT_SIZE >> 30 {
        let perm = Perm { write: true, execute: false };
        slot(root, index(DIRECT_BASE, 2) + gigabyte as usize).store(leaf(
            Pa(gigabyte << 30),
            perm,
            G,
        ));
    }
    assert!(KERNEL_ROOT.set(root).is_ok());
    slot(root, index(stack::REGION, 2)).store(branch(new()));
    slot(root, index(IMAGE_BASE, 2)).store(branch(new()));
    let mut va = IMAGE_BASE;
    while va < end {
        let perm = Perm { write: va >= rodata, execute: va < text };
        let entry = find(root, va, true).ok().flatten().expect("memory for page tables");
        entry.store(leaf(Pa(va - IMAGE_BASE + image.0), perm, G));
        va += PAGE;
    }
    // SAFETY: the new tables map all that is in use: image, boot stack (part of it), direct map.
    unsafe {
        csr_write!("satp", satp(root));
        asm!("sfence.vma", options(nostack));
    }
}

/// Maps `frame` at `va` in the kernel's half, readable and writable.
pub(crate) fn map_kernel(va: u64, frame: Pa) -> Result<(), NoMemory> {
    let _lock = KERNEL.lock();
    let perm = Perm { write: true, execute: false };
    if let Some(entry) = find(kernel_root(), va, true)? {
        entry.store(leaf(frame, perm, G));
        sfence(va);
    }
    Ok(())
}

/// True if a page fault of the kernel at `va` is only a translation that this hart has not seen
/// yet (a hart may remember that there was none).
pub(crate) fn spurious(va: u64, access: Access) -> bool {
    if va < DIRECT_BASE || access == Access::Execute {
        return false;
    }
    let Some(root) = KERNEL_ROOT.get() else { return false };
    let found = find(*root, va, false).ok().flatten().map_or(0, |e| e.load());
    let good = found & V != 0 && (access == Access::Read || found & W != 0);
    if good {
        sfence(va);
    }
    good
}

// ---- user tables ----

/// The user half of an address space: where harts translate while they run its threads. Frees its
/// tables when dropped; the frames it maps belong to the address space above.
///
/// Changes of entries need a lock above; a hart may walk the table meanwhile. After taking a
/// right away call [`UserTable::flush`] before the frame is used for anything else.
#[derive(Debug)]
pub struct UserTable {
    root: Pa,
    /// Harts of the cell that may remember translations of this table.
    harts: AtomicU64,
}

impl UserTable {
    /// An empty user half.
    pub fn new() -> Result<UserTable, NoMemory> {
        let root = memory::alloc_zeroed()?;
        for i in 256..512 {
            slot(root, i).store(slot(kernel_root(), i).load());
        }
        Ok(UserTable { root, harts: AtomicU64::new(0) })
    }

    /// Maps the page at `va` to `frame`; returns what was mapped there before.
    pub fn map(&self, va: u64, frame: Pa, perm: Perm) -> Result<Option<Mapping>, NoMemory> {
        assert!(va < uaccess::USER_END && va.is_multiple_of(PAGE) && frame.0.is_multiple_of(PAGE));
        let entry = find(self.root, va, true)?.expect("user tables have no large pages");
        Ok(mapping(entry.swap(leaf(frame, perm, U))))
    }

    /// Removes the mapping of the page at `va` and returns it.
    pub fn unmap(&self, va: u64) -> Option<Mapping> {
        mapping(self.entry(va)?.swap(0))
    }

    /// Changes what the mapping of the page at `va` allows; false if there is none.
    pub fn protect(&self, va: u64, perm: Perm) -> bool {
        let Some(entry) = self.entry(va) else { return false };
        let Some(old) = mapping(entry.load()) else { return false };
        entry.store(leaf(old.frame, perm, U));
        true
    }

    /// The mapping of the page at `va`.
    pub fn walk(&self, va: u64) -> Option<Mapping> {
        mapping(self.entry(va)?.load())
    }

    /// Removes every mapping in `[start, end)`, each given to `each`; skips what has no table.
    pub fn unmap_range(&self, start: u64, end: u64, mut each: impl FnMut(u64, Mapping)) {
        let mut va = start;
        while va < end {
            let Some(entry) = self.entry(va) else {
                va = (va & !((1 << 21) - 1)) + (1 << 21);
                continue;
            };
            if entry.load() & V != 0
                && let Some(old) = mapping(entry.swap(0))
            {
                each(va, old);
            }
            va += PAGE;
        }
    }

    /// Address of the first mapping in `[start, end)`; skips what has no table.
    pub fn first(&self, start: u64, end: u64) -> Option<u64> {
        let end = end.min(uaccess::USER_END);
        let mut va = start;
        while va < end {
            let mut table = self.root;
            let mut span = 0;
            for level in [2, 1, 0] {
                let entry = slot(table, index(va, level)).load();
                if entry & V == 0 {
                    span = PAGE << (9 * level);
                    break;
                }
                table = target(entry);
            }
            if span == 0 {
                return Some(va);
            }
            va = (va & !(span - 1)) + span;
        }
        None
    }

    fn entry(&self, va: u64) -> Option<&'static AtomicU64> {
        if va >= uaccess::USER_END {
            return None;
        }
        find(self.root, va, false).ok().flatten()
    }

    /// Makes every hart of the cell forget translations of `[start, start + len)`.
    pub fn flush(&self, start: u64, len: u64) {
        hive_sync::fence();
        let harts = self.harts.load();
        hive_sync::hart::without_irq(|| {
            let me = hart::index();
            if harts >> me & 1 != 0 {
                if len <= 16 * PAGE {
                    (start..start + len).step_by(PAGE as usize).for_each(sfence);
                } else {
                    sfence_user();
                }
            }
            for (i, other) in hart::all().iter().enumerate() {
                if i != me && harts >> i & 1 != 0 {
                    sbi::remote_sfence_vma(other.id(), start, len);
                }
            }
        });
    }

    /// Makes every hart that may run this address space fetch instructions anew.
    pub fn flush_code(&self) {
        hive_sync::fence();
        let harts = self.harts.load();
        hive_sync::hart::without_irq(|| {
            fence_i();
            for (i, other) in hart::all().iter().enumerate() {
                if i != hart::index() && harts >> i & 1 != 0 {
                    sbi::remote_fence_i(other.id());
                }
            }
        });
    }
}

/// Makes this hart fetch instructions anew.
pub fn fence_i() {
    // SAFETY: orders fetches after stores; no other effect.
    unsafe { asm!("fence.i", options(nostack)) };
}

/// Makes every hart of the cell forget all translations of user addresses (Hive §4.3: before the
/// first barrier of recovery).
pub fn flush_users() {
    hive_sync::fence();
    hive_sync::hart::without_irq(|| {
        sfence_user();
        let others = hart::all().iter().enumerate().filter(|(i, _)| *i != hart::index());
        others.for_each(|(_, other)| sbi::remote_sfence_vma(other.id(), 0, u64::MAX));
    });
}

/// Forgets this hart's translations of user addresses.
fn sfence_user() {
    // SAFETY: forgetting translations is always sound. An address-space id (zero, in a register
    // that is not x0) leaves global ones alone.
    unsafe { asm!("sfence.vma x0, {}", in(reg) 0u64, options(nostack)) };
}

/// Makes the running hart translate user addresses by `next` (none: no user addresses), instead
/// of `old`. Call with interrupts off, from the scheduler only, which keeps both alive.
pub fn switch_user(old: Option<&UserTable>, next: Option<&UserTable>) {
    let bit = 1u64 << hart::index();
    if let Some(next) = next {
        next.harts.fetch_or(bit);
    }
    let root = next.map_or_else(kernel_root, |t| t.root);
    // SAFETY: every root has the kernel's half.
    unsafe { csr_write!("satp", satp(root)) };
    sfence_user();
    // Code pages may have been written since this address space ran here.
    fence_i();
    if let Some(old) = old
        && next.is_none_or(|n| n.root != old.root)
    {
        old.harts.fetch_and(!bit);
    }
}

impl Drop for UserTable {
    fn drop(&mut self) {
        debug_assert!(self.harts.load() == 0, "a hart still translates by a dropped table");
        for i in (0..256).map(|i| slot(self.root, i).load()).filter(|&e| is_branch(e)) {
            let middle = target(i);
            for e in (0..512).map(|i| slot(middle, i).load()).filter(|&e| is_branch(e)) {
                memory::free_frame(target(e));
            }
            memory::free_frame(middle);
        }
        memory::free_frame(self.root);
    }
}

fn mapping(entry: u64) -> Option<Mapping> {
    (entry & V != 0).then(|| Mapping {
        frame: target(entry),
        perm: Perm { write: entry & W != 0, execute: entry & X != 0 },
    })
}

const _: () = assert!(size_of::<Table>() == PAGE as usize);
