//! The page cache of files and block devices (Hive §5.1): `read`, `write` and mapped files all go
//! through the pfdats of one object, so they see the same bytes at once.
//!
//! A page that is being filled is *busy*: found by all, valid for none; others sleep until it is
//! filled. Pages are filled and written back with no lock held. A page is clean from the moment
//! its write-back starts, so a store that comes during it makes the page dirty again.
//!
//! Lock: `dirty` (rank `PAGE`) maps the tag of every object with dirty pages to its pager, and is
//! held while a page becomes dirty, so an object leaves the map only when it has none.

use crate::memory::{Memory, PageRef};
use crate::pager::Pager;
use crate::pfdat::{PageState, Request, Use};
use crate::phys::{Sink, Source, by_page};
use crate::types::{Error, Frame, Kind, LogicalId, PAGE_SIZE, Tag};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Range;
use hive_sync::{SpinLock, rank};

/// Pages of one transfer at most: 64 KB, where a disk's seek no longer dominates, and a stack
/// array of it is small.
pub const CLUSTER_PAGES: usize = 16;

/// A writer that finds more than this fraction of all frames dirty writes back first, so that
/// frames to reclaim remain (Linux: dirty_ratio 20).
pub const DIRTY_LIMIT_PERCENT: usize = 20;

/// Times an allocation writes dirty pages back before it gives up.
const RECLAIM_TRIES: usize = 8;

/// The page cache of a cell.
pub struct Cache {
    memory: Arc<Memory>,
    dirty: SpinLock<BTreeMap<Tag, Arc<dyn Pager>>>,
}

impl Cache {
    /// A cache in `memory`; a cell has one.
    pub fn new(memory: Arc<Memory>) -> Cache {
        Cache { memory, dirty: SpinLock::ranked(rank::PAGE, BTreeMap::new()) }
    }

    /// The memory it caches in.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    // ------------------------------------------------------------------ reading

    /// Page `index` of the object, valid, filled from its pager if need be; a page wholly beyond
    /// the object's size is zero. Sleeps.
    ///
    /// Errors: those of [`Pager::page_in`], and [`Error::NoMemory`].
    pub fn page(&self, pager: &Arc<dyn Pager>, index: u64) -> Result<PageRef<'_>, Error> {
        loop {
            if let Some(page) = self.memory.find(&LogicalId { tag: pager.tag(), page: index }) {
                page.wait_filled();
                if page.page().is_some() {
                    return Ok(page);
                }
                // Filling failed, or the page was truncated: try it ourselves.
                continue;
            }
            if let Some(page) = self.fill(pager, index)? {
                return Ok(page);
            }
        }
    }

    /// Page `index` if it is in memory and valid now: never sleeps.
    pub fn page_now(&self, pager: &Arc<dyn Pager>, index: u64) -> Option<PageRef<'_>> {
        let page = self.memory.find(&LogicalId { tag: pager.tag(), page: index })?;
        let valid = {
            let table = self.memory.table();
            !table.is_busy(page.id()) && table.page(page.id()).is_some()
        };
        valid.then_some(page)
    }

    /// Copies bytes of the object from `offset` on into `sink`, up to the object's size; returns
    /// how many. Zero at or beyond the end. Sleeps.
    ///
    /// Errors, if nothing was copied: of [`Cache::page`]; [`Error::BadAddress`] of the sink.
    pub fn read(
        &self,
        pager: &Arc<dyn Pager>,
        offset: u64,
        sink: &mut dyn Sink,
    ) -> Result<usize, Error> {
        let left = pager.size().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(sink.remaining());
        by_page(offset, len, |index, within, want| {
            let page = self.page(pager, index)?;
            Ok(sink.put(self.memory.phys(), page.frame(), within, want))
        })
    }

    /// Fills page `index` and, if the page before it is in memory (a sequential reader), those
    /// that follow. `None` if another thread was faster.
    fn fill(&self, pager: &Arc<dyn Pager>, index: u64) -> Result<Option<PageRef<'_>>, Error> {
        let tag = pager.tag();
        let pages = pager.size().div_ceil(PAGE_SIZE as u64);
        let Some(first) = self.claim(LogicalId { tag, page: index }, true)? else {
            return Ok(None);
        };
        if index >= pages {
            self.memory.phys().zero(first.frame(), 0, PAGE_SIZE);
            self.filled(&first);
            return Ok(Some(first));
        }
        let mut frames = [Frame(0); CLUSTER_PAGES];
        let mut ahead: [Option<PageRef<'_>>; CLUSTER_PAGES] = [const { None }; CLUSTER_PAGES];
        frames[0] = first.frame();
        let mut count = 1;
        let before = LogicalId { tag, page: index.wrapping_sub(1) };
        if index == 0 || self.memory.find(&before).is_some() {
            while count < CLUSTER_PAGES && index + (count as u64) < pages {
                // Reading ahead is worth a free frame, not a write-back.
                let next = LogicalId { tag, page: index + count as u64 };
                let Ok(Some(page)) = self.claim(next, false) else { break };
                frames[count] = page.frame();
                ahead[count] = Some(page);
                count += 1;
            }
        }
        let result = pager.page_in(index, &frames[..count]);
        for page in core::iter::once(&first).chain(ahead.iter().flatten()) {
            if result.is_err() {
                self.memory.table().forget(page.id());
            }
            self.filled(page);
        }
        result.map(|()| Some(first))
    }

    fn filled(&self, page: &PageRef<'_>) {
        self.memory.table().filled(page.id());
        page.wake();
    }

    /// A frame for `page`, named and busy; `None` if the page is there already.
    fn claim(&self, page: LogicalId, must: bool) -> Result<Option<PageRef<'_>>, Error> {
        let device = page.tag.kind == Kind::Device;
        let request = Request { reserve: device, ..self.memory.local(Use::Page) };
        let new = match self.memory.allocate_page(request) {
            Err(Error::NoMemory) if must && !device => self.allocate(request)?,
            other => other?,
        };
        let mut table = self.memory.table();
        if table.lookup(&page).is_some() {
            drop(table);
            return Ok(None);
        }
        table.name(new.id(), page, true);
        drop(table);
        Ok(Some(new))
    }

    // ------------------------------------------------------------------ writing

    /// Copies all of `source` to the object from `offset` on, and raises the object's size as the
    /// bytes arrive; returns how many were copied. They reach the store later (see
    /// [`Cache::sync`]). The caller excludes truncation and other writes of this object, and has
    /// found room for the bytes on the store. Sleeps.
    ///
    /// Errors, if nothing was copied: as [`Cache::read`].
    pub fn write(
        &self,
        pager: &Arc<dyn Pager>,
        offset: u64,
        source: &mut dyn Source,
    ) -> Result<usize, Error> {
        by_page(offset, source.remaining(), |index, within, want| {
            self.balance_dirty();
            // A page that is overwritten whole is filled all the same: the source may fail in
            // the middle. Appending, the usual case, fills nothing.
            let page = self.page(pager, index)?;
            let got = source.get(self.memory.phys(), page.frame(), within, want);
            if got > 0 {
                pager.extend(index * PAGE_SIZE as u64 + (within + got) as u64);
                self.mark_dirty(pager, &page);
            }
            Ok(got)
        })
    }

    /// The page differs from its store from now on.
    pub fn mark_dirty(&self, pager: &Arc<dyn Pager>, page: &PageRef<'_>) {
        let mut dirty = self.dirty.lock();
        let Some(id) = page.page() else { return };
        dirty.entry(id.tag).or_insert_with(|| pager.clone());
        self.memory.table().set_dirty(page.id());
    }

    /// The object ends at `size` now: forgets the pages beyond it and zeroes the rest of the last
    /// one. The caller has lowered the object's size, excludes reads and writes of it, and gives
    /// its blocks back only after this returns. Pages that processes have mapped stay theirs.
    /// Sleeps.
    pub fn truncate(&self, pager: &Arc<dyn Pager>, size: u64) {
        let tag = pager.tag();
        let within = (size % PAGE_SIZE as u64) as usize;
        if within != 0
            && let Some(last) = self.find(tag, size / PAGE_SIZE as u64)
        {
            self.memory.phys().zero(last.frame(), within, PAGE_SIZE - within);
        }
        self.drop_pages(tag, size.div_ceil(PAGE_SIZE as u64)..u64::MAX);
    }

    /// Forgets every page of the object, dirty ones too: it is being deleted. Sleeps.
    pub fn invalidate(&self, tag: Tag) {
        self.drop_pages(tag, 0..u64::MAX);
        self.retire(&tag);
    }

    fn find(&self, tag: Tag, page: u64) -> Option<PageRef<'_>> {
        let page = self.memory.find(&LogicalId { tag, page })?;
        page.wait_filled();
        Some(page)
    }

    fn drop_pages(&self, tag: Tag, pages: Range<u64>) {
        while self.memory.table().forget_idle(&tag, pages.clone()) {}
        // The others are busy.
        loop {
            let found = {
                let mut table = self.memory.table();
                let found = table.first_of(&tag, pages.clone(), |_, _| true);
                found.map(|id| self.memory.reference(&mut table, id))
            };
            let Some(page) = found else { return };
            page.wait_filled();
            page.wait_written();
            self.memory.table().forget(page.id());
        }
    }

    // ------------------------------------------------------------------ write-back

    /// Writes every dirty page of the object to its store, and waits for write-backs that others
    /// have started. Pages that processes can write through a mapping are written as they are
    /// now. Sleeps. Returns the first error; what could not be written stays dirty.
    pub fn sync(&self, pager: &Arc<dyn Pager>) -> Result<(), Error> {
        let tag = pager.tag();
        let mut from = 0;
        while let Some(last) = self.write_cluster(pager, tag, from)? {
            from = last + 1;
        }
        self.retire(&tag);
        Ok(())
    }

    /// [`Cache::sync`] of every object: the `sync` call. Tries all, returns the first error.
    pub fn sync_all(&self) -> Result<(), Error> {
        let mut result = Ok(());
        let mut after = None;
        loop {
            let next = {
                let dirty = self.dirty.lock();
                let from = after.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
                let next = dirty.range((from, core::ops::Bound::Unbounded)).next();
                next.map(|(tag, pager)| (*tag, pager.clone()))
            };
            let Some((tag, pager)) = next else { return result };
            result = result.and(self.sync(&pager));
            after = Some(tag);
        }
    }

    /// Writes back about `pages` dirty pages, oldest first: what a flusher thread calls from time
    /// to time, and whoever needs frames. Returns how many pages it wrote. Sleeps.
    pub fn flush(&self, pages: usize) -> Result<usize, Error> {
        let mut written = 0;
        while written < pages {
            let oldest = {
                let table = self.memory.table();
                table.oldest_dirty().and_then(|id| table.page(id))
            };
            let Some(page) = oldest else { break };
            let Some(pager) = self.dirty.lock().get(&page.tag).cloned() else { break };
            let Some(last) = self.write_cluster(&pager, page.tag, page.page)? else { break };
            written += (last + 1).saturating_sub(page.page) as usize;
        }
        Ok(written)
    }

    /// Writes the first run of dirty pages of the object at or after page `from`; returns the
    /// last page it wrote, `None` if no page there was dirty.
    fn write_cluster(
        &self,
        pager: &Arc<dyn Pager>,
        tag: Tag,
        from: u64,
    ) -> Result<Option<u64>, Error> {
        let mut pages: [Option<PageRef<'_>>; CLUSTER_PAGES] = [const { None }; CLUSTER_PAGES];
        let mut frames = [Frame(0); CLUSTER_PAGES];
        let mut count = 0;
        let start = loop {
            let mut table = self.memory.table();
            let wanted = |t: &crate::pfdat::Table, id| t.is_dirty(id) || t.is_writing(id);
            // Mostly the very next page: it spares the walk over all pages of the object.
            let next =
                table.lookup(&LogicalId { tag, page: from }).filter(|id| wanted(&table, *id));
            let found = next.or_else(|| table.first_of(&tag, from..u64::MAX, wanted));
            let Some(id) = found else { return Ok(None) };
            let Some(first) = table.page(id) else { return Ok(None) };
            if !table.write_begin(id) {
                // Another thread fills it or writes it back: wait, then look again.
                let page = self.memory.reference(&mut table, id);
                drop(table);
                page.wait_filled();
                page.wait_written();
                continue;
            }
            let mut next = Some(id);
            while let Some(id) = next {
                let page = self.memory.adopt(&table, id);
                frames[count] = page.frame();
                pages[count] = Some(page);
                count += 1;
                next = (count < CLUSTER_PAGES)
                    .then(|| table.lookup(&LogicalId { tag, page: first.page + count as u64 }))
                    .flatten()
                    .filter(|id| table.write_begin(*id));
            }
            break first.page;
        };
        let result = pager.page_out(start, &frames[..count]);
        for page in pages.into_iter().flatten() {
            // One reference more for the wake; `write_end` gives back that of `write_begin`.
            let awake = page.clone();
            self.memory.table().write_end(page.into_raw(), result.is_ok());
            awake.wake();
        }
        result.map(|()| Some(start + count as u64 - 1))
    }

    /// Lets go of the pager of an object that has no dirty pages left.
    fn retire(&self, tag: &Tag) {
        let mut dirty = self.dirty.lock();
        let left = self.memory.table().first_of(tag, 0..u64::MAX, |t, id| t.is_dirty(id));
        let pager = if left.is_none() { dirty.remove(tag) } else { None };
        drop(dirty);
        drop(pager); // perhaps the last reference to a vnode: not under our lock
    }

    fn balance_dirty(&self) {
        let counts = self.memory.counts();
        let limit = (counts.total - counts.reserved) * DIRTY_LIMIT_PERCENT / 100;
        if counts.dirty > limit.max(CLUSTER_PAGES) {
            // An error here is reported to whoever syncs the object it befell.
            let _ = self.flush(2 * CLUSTER_PAGES);
        }
    }

    /// A frame for a page, without a name; writes dirty pages back if none is free. Sleeps.
    pub fn allocate(&self, request: Request) -> Result<PageRef<'_>, Error> {
        for _ in 0..RECLAIM_TRIES {
            if let Ok(page) = self.memory.allocate_page(request) {
                return Ok(page);
            }
            if !matches!(self.flush(2 * CLUSTER_PAGES), Ok(written) if written > 0) {
                break;
            }
        }
        self.memory.allocate_page(request)
    }

    // ------------------------------------------------------------------ recovery

    /// Preemptive discard (Hive §4.2): every cached page for which `lost` is true (a failed cell
    /// could write it) is forgotten without being written, and each object that lost a dirty page
    /// is told ([`Pager::discarded`]), which makes its generation grow. Page tables must not map
    /// those pages any more. Never sleeps but for locks.
    pub fn discard(&self, lost: impl FnMut(&PageState) -> bool) {
        self.memory.discard(lost, |tag| {
            let pager = self.dirty.lock().get(&tag).cloned();
            if let Some(pager) = pager {
                pager.discarded();
            }
        });
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
