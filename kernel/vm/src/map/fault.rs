//! Page faults, and the kernel's own access to user memory.

use super::region::{Backing, Region};
use super::space::{AddressSpace, Inner};
use crate::memory::{Memory, PageRef};
use crate::pager::Pager;
use crate::pfdat::Use;
use crate::phys::by_page;
use crate::types::{Error, Frame, LogicalId, PAGE_SIZE, Prot};
use alloc::sync::Arc;

/// What was tried at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store or AMO.
    Write,
    /// An instruction fetch.
    Exec,
}

impl Access {
    fn right(self) -> Prot {
        match self {
            Access::Read => Prot::READ,
            Access::Write => Prot::WRITE,
            Access::Exec => Prot::EXEC,
        }
    }
}

/// Why a fault could not be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is mapped there: SIGSEGV, SEGV_MAPERR.
    NotMapped,
    /// The mapping does not allow it: SIGSEGV, SEGV_ACCERR.
    Protection,
    /// Beyond the end of the file, or the file cannot be read or was damaged: SIGBUS, BUS_ADRERR.
    Bus(Error),
    /// No frame to be had: the process must be killed.
    NoMemory,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        if error == Error::NoMemory { Fault::NoMemory } else { Fault::Bus(error) }
    }
}

impl Fault {
    /// What a system call says of it.
    pub const fn errno(self) -> i32 {
        match self {
            Fault::NoMemory => Error::NoMemory.errno(),
            _ => Error::BadAddress.errno(),
        }
    }
}

/// Names a futex word alike for all who share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FutexKey {
    /// In memory of one process: the address space and the address.
    Private(u64, u64),
    /// In a shared mapping: the page and the offset in it.
    Shared(LogicalId, u16),
}

/// Times a fault writes dirty pages back to get a frame before it gives up.
const MEMORY_TRIES: usize = 8;
/// Pages written back in each of them.
const MEMORY_FLUSH_PAGES: usize = 32;

/// What a fault needs that cannot be had under the lock.
enum Need {
    /// A page of a file; also room in the file for it, if it will be written.
    Page { pager: Arc<dyn Pager>, index: u64, write: bool },
    /// A frame.
    Memory,
    /// Cannot be helped.
    Never(Fault),
}

impl From<Error> for Need {
    fn from(error: Error) -> Need {
        if error == Error::NoMemory { Need::Memory } else { Need::Never(Fault::Bus(error)) }
    }
}

impl AddressSpace {
    /// Mends a page fault at `va`: on success the access can be tried again. Sleeps.
    ///
    /// Harts may call it for one address space at once, for one address even.
    pub fn fault(&self, va: u64, access: Access) -> Result<(), Fault> {
        self.resolve(va, access, |_| ())
    }

    /// The page that the process sees at `va`, faulted in for `access` as if by the process. It
    /// stays in memory while the reference lives, but may stop being what is mapped there.
    /// Pages of fixed frames are [`Fault::NotMapped`]. Sleeps.
    pub fn page_at(&self, va: u64, access: Access) -> Result<PageRef<'_>, Fault> {
        let memory = self.cache().memory();
        self.resolve(va, access, |frame| memory.by_frame(frame))?.ok_or(Fault::NotMapped)
    }

    /// Copies from user memory, of a process that need not be running here. Sleeps.
    pub fn copy_in(&self, va: u64, dst: &mut [u8]) -> Result<(), Fault> {
        self.copy(va, dst.len(), Access::Read, |memory, frame, within, at, n| {
            memory.phys().read(frame, within, &mut dst[at..at + n]);
        })
    }

    /// Copies to user memory, of a process that need not be running here. Sleeps. On an error
    /// part of it may have been copied.
    pub fn copy_out(&self, va: u64, src: &[u8]) -> Result<(), Fault> {
        self.copy(va, src.len(), Access::Write, |memory, frame, within, at, n| {
            memory.phys().write(frame, within, &src[at..at + n]);
        })
    }

    fn copy(
        &self,
        va: u64,
        len: usize,
        access: Access,
        mut copy: impl FnMut(&Memory, Frame, usize, usize, usize),
    ) -> Result<(), Fault> {
        let mut fault = Fault::NotMapped;
        let mut at = 0;
        let done = by_page(va, len, |number, within, want| {
            let page = self.page_at(number * PAGE_SIZE as u64, access).map_err(|f| {
                fault = f;
                Error::BadAddress
            })?;
            copy(self.cache().memory(), page.frame(), within, at, want);
            at += want;
            Ok(want)
        });
        if done == Ok(len) { Ok(()) } else { Err(fault) }
    }

    /// The key of the futex word at `va` (a multiple of 4), faulted in if it is in a shared
    /// mapping. Sleeps.
    pub fn futex_key(&self, va: u64) -> Result<FutexKey, Fault> {
        let offset = (va % PAGE_SIZE as u64) as u16;
        let inner = self.inner().lock();
        let region = inner.region_at(va).ok_or(Fault::NotMapped)?;
        let page = match &region.backing {
            Backing::File { file, page, shared: true } => file.page(page + region.pages_to(va))?,
            Backing::SharedAnon { object, page } => {
                LogicalId { tag: object.tag(), page: page + region.pages_to(va) }
            }
            _ => return Ok(FutexKey::Private(self.id(), va)),
        };
        Ok(FutexKey::Shared(page, offset))
    }

    /// Maps the page at `va` for `access` and calls `with` on its frame while it is mapped.
    fn resolve<R>(
        &self,
        va: u64,
        access: Access,
        with: impl FnOnce(Frame) -> R,
    ) -> Result<R, Fault> {
        let va = va & !(PAGE_SIZE as u64 - 1);
        let cache = self.cache();
        let mut held: Option<PageRef<'_>> = None;
        let mut tries = 0;
        loop {
            let need = {
                let mut inner = self.inner().lock();
                match inner.try_fault(self, va, access, held.as_ref()) {
                    Ok(frame) => return Ok(with(frame)),
                    Err(need) => need,
                }
            };
            match need {
                Need::Never(fault) => return Err(fault),
                Need::Page { pager, index, write } => {
                    if write {
                        pager.prepare_write(index * PAGE_SIZE as u64, PAGE_SIZE)?;
                    }
                    held = Some(cache.page(&pager, index)?);
                }
                Need::Memory => {
                    tries += 1;
                    let written = cache.flush(MEMORY_FLUSH_PAGES).unwrap_or(0);
                    if written == 0 || tries > MEMORY_TRIES {
                        return Err(Fault::NoMemory);
                    }
                }
            }
        }
    }
}

impl Inner {
    /// Maps the page at `va` if that needs no sleep; returns its frame. `held` is the page that an
    /// earlier try asked for.
    fn try_fault(
        &mut self,
        space: &AddressSpace,
        va: u64,
        access: Access,
        held: Option<&PageRef<'_>>,
    ) -> Result<Frame, Need> {
        if self.region_at(va).is_none() {
            self.grow_stack(va);
        }
        let region = self.region_at(va).ok_or(Need::Never(Fault::NotMapped))?;
        let right = access.right();
        if !region.rights().contains(right) {
            return Err(Need::Never(Fault::Protection));
        }
        if let Some((frame, prot)) = self.table.get(va)
            && prot.contains(right)
        {
            // Another hart was faster, or this one used a stale entry.
            self.table.flush(va, va + PAGE_SIZE as u64);
            return Ok(frame);
        }
        let region = region.clone();
        match &region.backing {
            Backing::Fixed { first } => {
                let frame = Frame(first.0 + region.pages_to(va));
                self.table.map(va, frame, region.rights())?;
                Ok(frame)
            }
            Backing::SharedAnon { object, page } => {
                let page = object.page(page + region.pages_to(va))?;
                Ok(self.install(va, page, region.rights(), false, space.cache().memory())?)
            }
            Backing::File { shared: true, .. } => {
                self.fault_shared(space, &region, va, access, held)
            }
            Backing::Anon | Backing::File { shared: false, .. } => {
                self.fault_private(space, &region, va, access)
            }
        }
    }

    /// A page of the process's own, or one that it shares until somebody writes.
    fn fault_private(
        &mut self,
        space: &AddressSpace,
        region: &Region,
        va: u64,
        access: Access,
    ) -> Result<Frame, Need> {
        let memory = &**space.cache().memory();
        let number = va / PAGE_SIZE as u64;
        let write = access == Access::Write;
        let shared = region.rights() - Prot::WRITE;
        if write {
            // The last child left may write in place what its parent made.
            self.leaf.collapse();
        }
        let (source, prot) = match (self.leaf.find(memory, number), &region.backing) {
            (Some(found), _) if found.exclusive => (Some(found.page), region.rights()),
            (Some(found), _) => (Some(found.page), shared),
            (None, Backing::File { file, page, .. }) => {
                let index = page + region.pages_to(va);
                file.page(index)?;
                if index >= file.pager.size().div_ceil(PAGE_SIZE as u64) {
                    return Err(Need::Never(Fault::Bus(Error::Invalid)));
                }
                let page = space.cache().page_now(&file.pager, index);
                let pager = file.pager.clone();
                (Some(page.ok_or(Need::Page { pager, index, write: false })?), shared)
            }
            (None, _) => (None, region.rights()),
        };
        let source = match source {
            Some(page) if !write || prot.contains(Prot::WRITE) => {
                return Ok(self.install(va, page, prot, false, memory)?);
            }
            other => other,
        };
        let new = memory.allocate_page(memory.local(Use::Page))?;
        match source {
            Some(page) => memory.phys().copy(page.frame(), new.frame()),
            None => memory.phys().zero(new.frame(), 0, PAGE_SIZE),
        }
        // The old page must not be mapped any more when the leaf lets go of it.
        self.unmap(va, va + PAGE_SIZE as u64, false, memory);
        self.leaf.insert(number, new.clone());
        Ok(self.install(va, new, region.rights(), false, memory)?)
    }

    /// A page of a file that stores go to.
    fn fault_shared(
        &mut self,
        space: &AddressSpace,
        region: &Region,
        va: u64,
        access: Access,
        held: Option<&PageRef<'_>>,
    ) -> Result<Frame, Need> {
        let Backing::File { file, page, .. } = &region.backing else {
            return Err(Need::Never(Fault::NotMapped));
        };
        let index = page + region.pages_to(va);
        let name = file.page(index)?;
        if index >= file.pager.size().div_ceil(PAGE_SIZE as u64) {
            return Err(Need::Never(Fault::Bus(Error::Invalid)));
        }
        let write = access == Access::Write;
        let need = || Need::Page { pager: file.pager.clone(), index, write };
        let page = space.cache().page_now(&file.pager, index).ok_or_else(need)?;
        let memory = space.cache().memory();
        if !write {
            return Ok(self.install(va, page, region.rights() - Prot::WRITE, true, memory)?);
        }
        // Room in the file must have been found for it, outside the lock.
        if held.and_then(PageRef::page) != Some(name) {
            return Err(need());
        }
        let frame = self.install(va, page.clone(), region.rights(), true, memory)?;
        space.cache().mark_dirty(&file.pager, &page);
        Ok(frame)
    }
}
