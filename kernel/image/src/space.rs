//! The address space of a process: `hive-vm`'s over the HAL's page tables, and the page that
//! every process has (the signal trampoline).

use crate::frames::memory;
use alloc::boxed::Box;
use alloc::sync::Arc;
use hive_fs::errno::Errno;
use hive_hal::memory::Pa;
use hive_hal::paging::{Perm, UserTable};
use hive_sync::Once;
use hive_vm::map::{AddressSpace, Backing, MapRequest, Placement, Role, USER_END};
use hive_vm::{Cache, Error, Frame, PageTable, Prot, Use};

/// Where the trampoline is mapped: below the room that mmap leaves above itself, so nowhere in
/// the way of anything.
pub const TRAMPOLINE: u64 = hive_vm::map::MMAP_TOP + (8 << 20);

/// What a handler returns to: `li a7, 139` (rt_sigreturn) and `ecall`.
const TRAMPOLINE_CODE: [u32; 2] = [0x08b0_0893, 0x0000_0073];

static CACHE: Once<Arc<Cache>> = Once::new();
static TRAMPOLINE_FRAME: Once<Frame> = Once::new();

/// The cell's page cache. Panics before [`init`].
pub fn cache() -> &'static Arc<Cache> {
    CACHE.get().expect("the page cache is made at boot")
}

/// Makes the page cache and the trampoline. Once, after memory is taken over.
pub fn init() {
    assert!(CACHE.set(Arc::new(Cache::new(memory().clone()))).is_ok());
    let frame = memory().allocate_kernel(Use::Kernel).expect("memory for the trampoline");
    for (i, word) in TRAMPOLINE_CODE.iter().enumerate() {
        memory().phys().write(frame, 4 * i, &word.to_le_bytes());
    }
    assert!(TRAMPOLINE_FRAME.set(frame).is_ok());
}

/// Bytes of memory in all, and free or reusable at once.
pub fn memory_bytes() -> (u64, u64) {
    let counts = memory().counts();
    let bytes = |frames: usize| (frames * hive_vm::PAGE_SIZE) as u64;
    (bytes(counts.total - counts.reserved), bytes(counts.free + counts.cached))
}

/// A process's page table as `hive-vm` changes it.
struct Table(Arc<UserTable>);

fn perm(prot: Prot) -> Perm {
    Perm { write: prot.contains(Prot::WRITE), execute: prot.contains(Prot::EXEC) }
}

fn prot(perm: Perm) -> Prot {
    let mut prot = Prot::READ;
    if perm.write {
        prot = prot | Prot::WRITE;
    }
    if perm.execute {
        prot = prot | Prot::EXEC;
    }
    prot
}

impl PageTable for Table {
    fn map(&mut self, va: u64, frame: Frame, prot: Prot) -> Result<(), Error> {
        self.0.map(va, Pa(frame.address()), perm(prot)).map_err(|_| Error::NoMemory)?;
        if prot.contains(Prot::EXEC) {
            // The page may just have been filled.
            self.0.flush_code();
        }
        Ok(())
    }
    fn get(&self, va: u64) -> Option<(Frame, Prot)> {
        self.0.walk(va).map(|m| (Frame::containing(m.frame.0), prot(m.perm)))
    }
    fn take(&mut self, from: u64, to: u64) -> Option<(u64, Frame, Prot)> {
        let va = self.0.first(from, to)?;
        let old = self.0.unmap(va)?;
        Some((va, Frame::containing(old.frame.0), prot(old.perm)))
    }
    fn restrict(&mut self, from: u64, to: u64, allow: Prot) {
        let mut at = from;
        while let Some(va) = self.0.first(at, to) {
            if let Some(entry) = self.0.walk(va) {
                let allowed = prot(entry.perm) & allow;
                if allowed != prot(entry.perm) {
                    self.0.protect(va, perm(allowed));
                }
            }
            at = va + hive_vm::PAGE_SIZE as u64;
        }
    }
    fn flush(&mut self, from: u64, to: u64) {
        self.0.flush(from, to - from);
    }
}

/// An address space with its page table.
pub struct Space {
    map: AddressSpace,
    table: Arc<UserTable>,
}

impl core::ops::Deref for Space {
    type Target = AddressSpace;
    fn deref(&self) -> &AddressSpace {
        &self.map
    }
}

fn table() -> Result<Arc<UserTable>, Errno> {
    UserTable::new().map(Arc::new).map_err(|_| Errno::ENOMEM)
}

/// The errno of an error of `hive-vm`.
pub fn errno(error: Error) -> Errno {
    Errno::from_code(error.errno() as u16).unwrap_or(Errno::EIO)
}

impl Space {
    /// One with nothing but the trampoline.
    pub fn new() -> Result<Space, Errno> {
        let table = table()?;
        let map = AddressSpace::new(cache().clone(), Box::new(Table(table.clone())));
        let first = *TRAMPOLINE_FRAME.get().ok_or(Errno::ENOMEM)?;
        map.mmap(MapRequest {
            placement: Placement::FixedNoReplace(TRAMPOLINE),
            len: hive_vm::PAGE_SIZE as u64,
            prot: Prot::READ | Prot::EXEC,
            backing: Backing::Fixed { first },
            role: Role::Vdso,
        })
        .map_err(errno)?;
        Ok(Space { map, table })
    }

    /// The copy that a child gets.
    pub fn fork(&self) -> Result<Arc<Space>, Errno> {
        let table = table()?;
        let map = self.map.fork(Box::new(Table(table.clone())));
        Ok(Arc::new(Space { map, table }))
    }

    /// What harts translate by.
    pub fn page_table(&self) -> Arc<UserTable> {
        self.table.clone()
    }

    /// Makes harts fetch code anew (riscv_flush_icache).
    pub fn flush_code(&self) {
        self.table.flush_code();
    }
}

const _: () = assert!(TRAMPOLINE < USER_END && TRAMPOLINE % hive_vm::PAGE_SIZE as u64 == 0);
