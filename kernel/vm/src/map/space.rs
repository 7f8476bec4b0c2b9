//! [`AddressSpace`] and the calls that change what is mapped in it.

use super::region::{Backing, Region, Role};
use super::{HEAP_LIMIT, MMAP_TOP, REGIONS_MAX, STACK_GUARD, STACK_LIMIT, USER_END, USER_START};
use crate::cache::Cache;
use crate::cow::Leaf;
use crate::memory::{Memory, PageRef};
use crate::table::PageTable;
use crate::types::{Error, Frame, PAGE_SIZE, Prot};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_sync::Mutex;

/// Entries removed from the page table between two flushes: as many frames wait to be freed.
const UNMAP_BATCH: usize = 64;

const PAGE: u64 = PAGE_SIZE as u64;

/// Where mmap may put a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At this address if it is free and not 0, else anywhere.
    Hint(u64),
    /// Here; what was mapped here goes (MAP_FIXED).
    Fixed(u64),
    /// Here, or not at all (MAP_FIXED_NOREPLACE).
    FixedNoReplace(u64),
}

/// What mmap is to map.
pub struct MapRequest {
    /// Where.
    pub placement: Placement,
    /// Bytes; rounded up to pages.
    pub len: u64,
    /// Rights.
    pub prot: Prot,
    /// What is there.
    pub backing: Backing,
    /// What for.
    pub role: Role,
}

/// The address space of a process.
pub struct AddressSpace {
    cache: Arc<Cache>,
    id: u64,
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    /// By start; they do not overlap.
    regions: BTreeMap<u64, Region>,
    pub(super) leaf: Leaf,
    pub(super) table: Box<dyn PageTable>,
    brk_start: u64,
    brk: u64,
    /// Entries in the page table that map pages.
    resident: usize,
}

impl AddressSpace {
    /// An empty address space over the empty page table `table`.
    pub fn new(cache: Arc<Cache>, table: Box<dyn PageTable>) -> AddressSpace {
        let leaf = Leaf::new(cache.memory().clone());
        AddressSpace::with(cache, Inner::new(leaf, table))
    }

    fn with(cache: Arc<Cache>, inner: Inner) -> AddressSpace {
        AddressSpace { id: cache.memory().new_number(), cache, inner: Mutex::new(inner) }
    }

    /// The page cache that its files are read through.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// A number that no other address space of this cell has, ever.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn inner(&self) -> &Mutex<Inner> {
        &self.inner
    }

    /// The page table, for the kernel's own use of it (its root register). Sleeps.
    pub fn with_table<R>(&self, f: impl FnOnce(&mut dyn PageTable) -> R) -> R {
        f(&mut *self.inner.lock().table)
    }

    /// Pages in the page table now, and pages of all regions: RSS and size, in pages.
    pub fn usage(&self) -> (usize, u64) {
        let inner = self.inner.lock();
        (inner.resident, inner.regions.values().map(|r| (r.end - r.start) / PAGE).sum())
    }

    /// The regions in order of address. Each prints as its line of /proc/PID/maps.
    pub fn regions(&self) -> Vec<Region> {
        self.inner.lock().regions.values().cloned().collect()
    }

    /// The region that holds `va`.
    pub fn region(&self, va: u64) -> Option<Region> {
        self.inner.lock().region_at(va).cloned()
    }

    /// Where mmap would put `len` bytes that ask for `hint` (0: no wish).
    pub fn free_range(&self, hint: u64, len: u64) -> Option<u64> {
        self.inner.lock().find_free(hint, len)
    }

    // ------------------------------------------------------------------ mmap and friends

    /// Maps a region; returns its address. Nothing is read or allocated until it is touched.
    ///
    /// Errors: [`Error::Invalid`] for a bad length or address, [`Error::Exists`],
    /// [`Error::NoMemory`] without room, [`Error::Denied`] for a writable shared mapping of a file
    /// that is not open for writing.
    pub fn mmap(&self, request: MapRequest) -> Result<u64, Error> {
        if request.len == 0 {
            return Err(Error::Invalid);
        }
        let len = round_up(request.len).ok_or(Error::NoMemory)?;
        check_rights(&request.backing, request.prot)?;
        let mut inner = self.inner.lock();
        let (start, gone) = match request.placement {
            Placement::Hint(hint) => {
                (inner.find_free(hint, len).ok_or(Error::NoMemory)?, Vec::new())
            }
            Placement::Fixed(at) => {
                let (from, to) = range(at, len)?;
                if from < USER_START {
                    return Err(Error::Denied);
                }
                inner.room_for(2)?;
                (at, inner.remove(from, to))
            }
            Placement::FixedNoReplace(at) => {
                let (from, to) = range(at, len)?;
                if from < USER_START {
                    return Err(Error::Denied);
                }
                if !inner.is_free(from, to) {
                    return Err(Error::Exists);
                }
                (at, Vec::new())
            }
        };
        inner.room_for(1)?;
        let MapRequest { prot, backing, role, .. } = request;
        inner.insert(Region { start, end: start + len, prot, backing, role });
        drop(inner);
        drop(gone);
        Ok(start)
    }

    /// Unmaps `[at, at + len)`, whatever is there.
    pub fn munmap(&self, at: u64, len: u64) -> Result<(), Error> {
        let (from, to) = range(at, len)?;
        let mut inner = self.inner.lock();
        inner.room_for(1)?;
        let gone = inner.remove(from, to);
        drop(inner);
        drop(gone); // perhaps the last reference to a file
        Ok(())
    }

    /// Changes the rights of `[at, at + len)`, all of which must be mapped.
    pub fn mprotect(&self, at: u64, len: u64, prot: Prot) -> Result<(), Error> {
        if len == 0 && at.is_multiple_of(PAGE) {
            return Ok(());
        }
        let (from, to) = range(at, len)?;
        let mut inner = self.inner.lock();
        inner.covered(from, to)?;
        for region in inner.overlapping(from, to) {
            check_rights(&region.backing, prot)?;
        }
        inner.room_for(2)?;
        inner.isolate(from, to);
        for start in inner.starts(from, to) {
            inner.protect(start, prot);
        }
        inner.join(from, to);
        Ok(())
    }

    /// Resizes the region part `[at, at + old_len)`, all of one region; moves it if it cannot grow
    /// where it is and `may_move` is true, or to `fixed` if that is given. Returns its address.
    pub fn mremap(
        &self,
        at: u64,
        old_len: u64,
        new_len: u64,
        may_move: bool,
        fixed: Option<u64>,
    ) -> Result<u64, Error> {
        let (from, to) = range(at, old_len)?;
        let len = round_up(new_len).filter(|len| *len > 0).ok_or(Error::Invalid)?;
        let mut inner = self.inner.lock();
        let region = inner.region_at(from).ok_or(Error::BadAddress)?.clone();
        if region.end < to {
            return Err(Error::BadAddress);
        }
        inner.room_for(3)?;
        let mut gone = Vec::new();
        let target = match fixed {
            Some(target) => {
                let (start, end) = range(target, len)?;
                if !may_move || start < USER_START || (start < to && from < end) {
                    return Err(Error::Invalid);
                }
                gone = inner.remove(start, end);
                Some(start)
            }
            None => None,
        };
        let keep = len.min(to - from);
        gone.append(&mut inner.remove(from + keep, to));
        let result = match target {
            None if len <= to - from => Ok(from),
            None if to == region.end && inner.is_free(to, from + len) => {
                let more = region;
                let backing = more.backing_at(to);
                inner.insert(Region { start: to, end: from + len, backing, ..more });
                Ok(from)
            }
            None if !may_move => Err(Error::NoMemory),
            None => inner.find_free(0, len).ok_or(Error::NoMemory),
            Some(target) => Ok(target),
        };
        if let Ok(target) = result
            && target != from
        {
            inner.relocate(from, keep, target, len);
        }
        drop(inner);
        drop(gone);
        result
    }

    /// Throws the contents of `[at, at + len)` away (MADV_DONTNEED): private pages are as at
    /// first when touched again. All of it must be mapped.
    pub fn discard(&self, at: u64, len: u64) -> Result<(), Error> {
        if len == 0 && at.is_multiple_of(PAGE) {
            return Ok(());
        }
        let (from, to) = range(at, len)?;
        let mut inner = self.inner.lock();
        inner.covered(from, to)?;
        let parts: Vec<_> = inner
            .overlapping(from, to)
            .map(|r| (r.start.max(from), r.end.min(to), r.is_shared_file(), r.is_private()))
            .collect();
        for (from, to, shared_file, private) in parts {
            inner.unmap(from, to, shared_file, self.cache.memory());
            if private {
                inner.leaf.discard(Region::numbers(from, to));
            }
        }
        Ok(())
    }

    /// Writes the files that are mapped shared in `[at, at + len)` back (MS_SYNC). Sleeps.
    pub fn msync(&self, at: u64, len: u64) -> Result<(), Error> {
        if len == 0 && at.is_multiple_of(PAGE) {
            return Ok(());
        }
        let (from, to) = range(at, len)?;
        let files: Vec<_> = {
            let inner = self.inner.lock();
            inner.covered(from, to)?;
            let backing = inner.overlapping(from, to).map(|region| region.backing.clone());
            backing.collect()
        };
        for backing in files {
            if let Backing::File { file, shared: true, .. } = backing {
                self.cache.sync(&file.pager)?;
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------------ the heap

    /// Puts the end of the heap, still empty, at `at` (exec: the end of the program's data).
    pub fn set_brk(&self, at: u64) {
        let mut inner = self.inner.lock();
        (inner.brk_start, inner.brk) = (at, at);
    }

    /// Moves the end of the heap to `to`, if that can be; returns where it is then. The heap
    /// starts at the first page boundary at or after where [`AddressSpace::set_brk`] put it.
    pub fn brk(&self, to: u64) -> u64 {
        let mut inner = self.inner.lock();
        if to < inner.brk_start || to - inner.brk_start > HEAP_LIMIT || to > USER_END - PAGE {
            return inner.brk;
        }
        let old = inner.brk.next_multiple_of(PAGE);
        let new = to.next_multiple_of(PAGE);
        if new > old {
            if !inner.is_free(old, new) || inner.room_for(1).is_err() {
                return inner.brk;
            }
            let prot = Prot::READ | Prot::WRITE;
            let (backing, role) = (Backing::Anon, Role::Heap);
            inner.insert(Region { start: old, end: new, prot, backing, role });
        }
        let gone = if new < old { inner.remove(new, old) } else { Vec::new() };
        inner.brk = to;
        drop(inner);
        drop(gone);
        to
    }

    // ------------------------------------------------------------------ fork

    /// The address space of a child: it sees what this one sees now. `table` is its empty page
    /// table. What is private is copied on write by whoever writes first.
    pub fn fork(&self, table: Box<dyn PageTable>) -> AddressSpace {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for region in inner.regions.values().filter(|region| region.is_private()) {
            inner.table.restrict(region.start, region.end, Prot::READ | Prot::EXEC);
        }
        inner.table.flush(0, USER_END);
        let mut child = Inner::new(inner.leaf.fork(), table);
        child.regions = inner.regions.clone();
        (child.brk_start, child.brk) = (inner.brk_start, inner.brk);
        AddressSpace::with(self.cache.clone(), child)
    }
}

impl Inner {
    fn new(leaf: Leaf, table: Box<dyn PageTable>) -> Inner {
        Inner { regions: BTreeMap::new(), leaf, table, brk_start: 0, brk: 0, resident: 0 }
    }

    pub(super) fn region_at(&self, va: u64) -> Option<&Region> {
        let (_, region) = self.regions.range(..=va).next_back()?;
        (va < region.end).then_some(region)
    }

    /// Extends a stack region down to the page at `va`, if there is one that may.
    pub(super) fn grow_stack(&mut self, va: u64) {
        let Some((&start, region)) = self.regions.range(va..).next() else { return };
        let floor = self.regions.range(..va).next_back().map_or(USER_START, |(_, r)| r.end);
        let grows = region.role == Role::Stack
            && region.end - va <= STACK_LIMIT
            && va >= floor.saturating_add(STACK_GUARD);
        if grows && let Some(region) = self.regions.remove(&start) {
            self.regions.insert(va, Region { start: va, ..region });
        }
    }

    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = &Region> {
        let first = self.region_at(from).map_or(from, |region| region.start);
        self.regions.range(first..to.max(first)).map(|(_, region)| region)
    }

    fn starts(&self, from: u64, to: u64) -> Vec<u64> {
        self.overlapping(from, to).map(|region| region.start).collect()
    }

    fn is_free(&self, from: u64, to: u64) -> bool {
        to <= USER_END - PAGE && self.overlapping(from, to).next().is_none()
    }

    /// An error unless all of `[from, to)` is mapped.
    fn covered(&self, from: u64, to: u64) -> Result<(), Error> {
        let mut at = from;
        for region in self.overlapping(from, to) {
            if region.start > at {
                return Err(Error::NotMapped);
            }
            at = region.end;
        }
        if at >= to { Ok(()) } else { Err(Error::NotMapped) }
    }

    /// An error unless `more` regions may be made.
    fn room_for(&self, more: usize) -> Result<(), Error> {
        if self.regions.len() + more <= REGIONS_MAX { Ok(()) } else { Err(Error::NoMemory) }
    }

    /// Where `len` bytes are free: at `hint`, else as high as possible below [`MMAP_TOP`].
    fn find_free(&self, hint: u64, len: u64) -> Option<u64> {
        let hint = hint & !(PAGE - 1);
        if hint >= USER_START
            && let Some(end) = hint.checked_add(len)
            && self.is_free(hint, end)
        {
            return Some(hint);
        }
        let mut top = MMAP_TOP;
        for region in self.regions.values().rev() {
            if region.end < top && top - region.end >= len {
                break;
            }
            top = top.min(region.start);
        }
        let start = top.checked_sub(len)?;
        (start >= USER_START && self.is_free(start, top)).then_some(start)
    }

    /// Cuts regions so that none crosses `from` or `to`.
    fn isolate(&mut self, from: u64, to: u64) {
        for at in [from, to] {
            let Some((_, region)) = self.regions.range_mut(..at).next_back() else { continue };
            if region.end > at {
                let upper = region.split(at);
                self.regions.insert(at, upper);
            }
        }
    }

    /// Adds a region where nothing is, and makes it one with its neighbours if they are alike.
    fn insert(&mut self, region: Region) {
        let (start, end) = (region.start, region.end);
        self.regions.insert(start, region);
        self.join(start, end);
    }

    /// Makes one region of neighbours that are alike, at and within the ends of `[from, to)`.
    fn join(&mut self, from: u64, to: u64) {
        let mut at = match self.regions.range(..from).next_back() {
            Some((&start, _)) => start,
            None => from,
        };
        while at <= to
            && let Some((&start, region)) = self.regions.range(at..=to).next()
        {
            let next = self.regions.get(&region.end).filter(|next| region.joins(next));
            let Some((next, end)) = next.map(|next| (next.start, next.end)) else {
                at = start + 1;
                continue;
            };
            self.regions.remove(&next);
            if let Some(region) = self.regions.get_mut(&start) {
                region.end = end;
            }
        }
    }

    /// Unmaps `[from, to)` and returns the regions that were there, to be dropped without the lock.
    fn remove(&mut self, from: u64, to: u64) -> Vec<Region> {
        if from >= to {
            return Vec::new();
        }
        self.isolate(from, to);
        let memory = self.leaf.memory().clone();
        let mut gone = Vec::new();
        for start in self.starts(from, to) {
            let Some(region) = self.regions.remove(&start) else { continue };
            self.unmap(region.start, region.end, region.is_shared_file(), &memory);
            if region.is_private() {
                self.leaf.discard(Region::numbers(region.start, region.end));
            }
            gone.push(region);
        }
        gone
    }

    /// Gives the region at `start` the rights `prot`.
    fn protect(&mut self, start: u64, prot: Prot) {
        let memory = self.leaf.memory().clone();
        let Some(region) = self.regions.get_mut(&start) else { return };
        let lost_write = region.prot.contains(Prot::WRITE) && !prot.contains(Prot::WRITE);
        region.prot = prot;
        let (end, shared_file) = (region.end, region.is_shared_file());
        // New rights come by faults. Entries that would be left with none, and those that count
        // as writers, are simply made anew.
        if !prot.contains(Prot::READ) || (shared_file && lost_write) {
            self.unmap(start, end, shared_file, &memory);
        } else {
            self.table.restrict(start, end, prot);
            self.table.flush(start, end);
        }
    }

    /// Moves the region `[from, from + keep)`, cut out already or not, to `[target, target + len)`,
    /// where nothing is.
    fn relocate(&mut self, from: u64, keep: u64, target: u64, len: u64) {
        self.isolate(from, from + keep);
        let memory = self.leaf.memory().clone();
        let Some(region) = self.regions.remove(&from) else { return };
        self.unmap(from, from + keep, region.is_shared_file(), &memory);
        if region.is_private() {
            self.leaf.shift(from / PAGE, target / PAGE, keep / PAGE);
        }
        let role = if region.role == Role::Vdso { Role::Vdso } else { Role::Plain };
        self.insert(Region { start: target, end: target + len, role, ..region });
    }

    /// Maps `page` at `va`. `shared_file`: a writable entry counts as a writer of the page.
    pub(super) fn install(
        &mut self,
        va: u64,
        page: PageRef<'_>,
        prot: Prot,
        shared_file: bool,
        memory: &Memory,
    ) -> Result<Frame, Error> {
        let frame = page.frame();
        let old = self.table.get(va);
        self.table.map(va, frame, prot)?;
        if shared_file && prot.contains(Prot::WRITE) {
            memory.table().writer(page.id(), 1);
        }
        let _entry = page.into_raw();
        self.resident += 1;
        if let Some((frame, prot)) = old {
            self.table.flush(va, va + PAGE);
            self.put_entry(frame, prot, shared_file, memory);
        }
        Ok(frame)
    }

    /// Removes the entries of `[from, to)`, a part of one region, from the page table.
    pub(super) fn unmap(&mut self, from: u64, to: u64, shared_file: bool, memory: &Memory) {
        let mut at = from;
        while at < to {
            let mut batch = [(Frame(0), Prot::NONE); UNMAP_BATCH];
            let mut count = 0;
            let mut next = to;
            for slot in &mut batch {
                let Some((va, frame, prot)) = self.table.take(at, to) else {
                    next = to;
                    break;
                };
                *slot = (frame, prot);
                count += 1;
                at = va + PAGE;
                next = at;
            }
            if count > 0 {
                self.table.flush(from, next);
            }
            for (frame, prot) in batch.into_iter().take(count) {
                self.put_entry(frame, prot, shared_file, memory);
            }
            at = next;
        }
    }

    /// Gives back what an entry held that no hart uses any more.
    fn put_entry(&mut self, frame: Frame, prot: Prot, shared_file: bool, memory: &Memory) {
        // Fixed frames are not pages: nothing was taken for them.
        if memory.put_entry(frame, shared_file && prot.contains(Prot::WRITE)) {
            self.resident -= 1;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The page table lets go of the pages before the leaf does.
        let memory = self.leaf.memory().clone();
        let ranges: Vec<_> =
            self.regions.values().map(|r| (r.start, r.end, r.is_shared_file())).collect();
        for (from, to, shared_file) in ranges {
            self.unmap(from, to, shared_file, &memory);
        }
        debug_assert_eq!(self.resident, 0);
    }
}

/// `len` in whole pages.
fn round_up(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(PAGE).filter(|len| *len < USER_END)
}

/// The pages of `[at, at + len)`, none of them beyond the user half.
fn range(at: u64, len: u64) -> Result<(u64, u64), Error> {
    let len =
        round_up(len).filter(|len| *len > 0 && at.is_multiple_of(PAGE)).ok_or(Error::Invalid)?;
    let end = at.checked_add(len).filter(|end| *end < USER_END).ok_or(Error::NoMemory)?;
    Ok((at, end))
}

/// A shared mapping is writable only if the file is open for writing.
fn check_rights(backing: &Backing, prot: Prot) -> Result<(), Error> {
    match backing {
        Backing::File { file, shared: true, .. }
            if prot.contains(Prot::WRITE) && !file.writable =>
        {
            Err(Error::Denied)
        }
        _ => Ok(()),
    }
}
