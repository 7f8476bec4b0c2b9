//! [`Memory`]: the page frames of a cell behind one lock, and [`PageRef`], a counted reference.
//!
//! Lock: the table is under a spin lock of rank `FRAMES`. Under it nothing is allocated from the
//! heap and nothing is woken; sections are a few hash steps long (the exceptions are
//! [`Memory::allocate_contiguous`] and [`Memory::discard`], which walk the table).

use crate::pfdat::{Counts, PageState, PfdatId, Request, Table, Use};
use crate::phys::PhysMem;
use crate::types::{CellNumber, Error, Frame, Kind, LogicalId, PAGE_SIZE, Tag};
use alloc::boxed::Box;
use core::ops::Range;
use hive_sync::{AtomicU64, SpinGuard, SpinLock, WaitQueue, rank};

/// Wait queues for busy pages: a page uses that of its frame number modulo this. Few pages are
/// being filled at once, so that few waiters wake in vain.
const BUSY_QUEUES: usize = 16;

/// The memory of a cell.
pub struct Memory {
    cell: CellNumber,
    table: SpinLock<Table>,
    phys: Box<dyn PhysMem>,
    busy: [WaitQueue; BUSY_QUEUES],
    next_number: AtomicU64,
}

impl Memory {
    /// Bytes of heap that the memory of `frames` frames takes when made: the kernel must have
    /// that much heap before it calls [`Memory::new`], which draws no frames.
    pub const fn heap_bytes(frames: usize) -> usize {
        Table::heap_bytes(frames) + 4096
    }

    /// The memory of `cell`: `count` frames from `first`, of which those in `usable` are free and
    /// the others never touched, with their bytes reached through `phys`.
    pub fn new(
        cell: CellNumber,
        first: Frame,
        count: usize,
        usable: &[Range<Frame>],
        phys: Box<dyn PhysMem>,
    ) -> Memory {
        Memory {
            cell,
            table: SpinLock::ranked(rank::FRAMES, Table::new(cell, first, count, usable)),
            phys,
            busy: [const { WaitQueue::new() }; BUSY_QUEUES],
            next_number: AtomicU64::new(1),
        }
    }

    /// The cell whose memory this is.
    pub fn cell(&self) -> CellNumber {
        self.cell
    }
    /// Access to the bytes of frames.
    pub fn phys(&self) -> &dyn PhysMem {
        &*self.phys
    }
    /// Frames by what they hold (for /proc/meminfo and for policy).
    pub fn counts(&self) -> Counts {
        self.table.lock().counts()
    }
    /// Checks every invariant of the table; panics if one does not hold. For tests.
    pub fn check(&self) {
        self.table.lock().check();
    }

    pub(crate) fn table(&self) -> SpinGuard<'_, Table> {
        self.table.lock()
    }

    /// A tag for a new node of a copy-on-write tree; no other node of this cell ever has it.
    pub(crate) fn new_node(&self) -> Tag {
        let object = self.new_number();
        Tag { home: self.cell, kind: Kind::Anon, object, generation: 0 }
    }

    /// A number never given out before.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1)
    }

    /// A request for a local frame.
    pub fn local(&self, use_: Use) -> Request {
        Request {
            use_,
            cells: 1u64.checked_shl(u32::from(self.cell.0)).unwrap_or(0),
            preferred: self.cell,
            reserve: matches!(use_, Use::Kernel | Use::PageTable),
        }
    }

    // ------------------------------------------------------------------ kernel frames

    /// A zeroed frame for the kernel's own use, to be given back by [`Memory::free_kernel`].
    pub fn allocate_kernel(&self, use_: Use) -> Result<Frame, Error> {
        let frame = {
            let mut table = self.table.lock();
            let id = table.allocate(self.local(use_))?;
            table.frame(id)
        };
        self.phys.zero(frame, 0, PAGE_SIZE);
        Ok(frame)
    }

    /// `count` frames in a row for the kernel's own use (at most
    /// [`crate::pfdat::CONTIGUOUS_MAX_FRAMES`]), not zeroed: the first of them. The kernel heap
    /// grows by this; it takes no lock but `FRAMES`.
    pub fn allocate_contiguous(&self, count: usize) -> Result<Frame, Error> {
        let mut table = self.table.lock();
        let id = table.allocate_contiguous(count, Use::Kernel)?;
        Ok(table.frame(id))
    }

    /// Gives back `count` frames from `first` that were allocated for the kernel. Panics if they
    /// were not: that is the kernel's own bug.
    pub fn free_kernel(&self, first: Frame, count: usize) {
        let mut table = self.table.lock();
        for frame in first.0..first.0 + count as u64 {
            let id = table.by_frame(Frame(frame)).expect("a frame of this cell");
            assert!(matches!(table.use_of(id), Use::Kernel | Use::PageTable));
            table.put(id);
        }
    }

    // ------------------------------------------------------------------ pages

    /// A frame for a page, without a name; its bytes are whatever they were.
    pub fn allocate_page(&self, request: Request) -> Result<PageRef<'_>, Error> {
        let mut table = self.table.lock();
        let id = table.allocate(request)?;
        Ok(PageRef { memory: self, id, frame: table.frame(id) })
    }

    /// A zeroed local frame for a page, without a name.
    pub fn allocate_zeroed(&self) -> Result<PageRef<'_>, Error> {
        let page = self.allocate_page(self.local(Use::Page))?;
        self.phys.zero(page.frame(), 0, PAGE_SIZE);
        Ok(page)
    }

    /// The page `page`, if it is in memory: perhaps still busy.
    pub fn find(&self, page: &LogicalId) -> Option<PageRef<'_>> {
        let mut table = self.table.lock();
        let id = table.lookup(page)?;
        Some(self.reference(&mut table, id))
    }

    /// One more reference to the page in `frame`, which the caller knows to be referred to (a
    /// page-table entry under the address space's lock). `None` if it is not a frame of pages.
    pub fn by_frame(&self, frame: Frame) -> Option<PageRef<'_>> {
        let mut table = self.table.lock();
        let id = table.by_frame(frame).filter(|id| table.use_of(*id) == Use::Page)?;
        Some(self.reference(&mut table, id))
    }

    /// A new reference to `id`.
    pub(crate) fn reference(&self, table: &mut Table, id: PfdatId) -> PageRef<'_> {
        table.get(id);
        PageRef { memory: self, id, frame: table.frame(id) }
    }

    /// Takes over a reference that was given to [`PageRef::into_raw`], or taken in the table.
    pub(crate) fn adopt(&self, table: &Table, id: PfdatId) -> PageRef<'_> {
        PageRef { memory: self, id, frame: table.frame(id) }
    }

    /// Gives back the reference of a page-table entry, and its part as a writer. False, and no
    /// effect, if `frame` is not a frame of pages.
    pub(crate) fn put_entry(&self, frame: Frame, writer: bool) -> bool {
        let mut table = self.table.lock();
        let Some(id) = table.by_frame(frame).filter(|id| table.use_of(*id) == Use::Page) else {
            return false;
        };
        if writer {
            table.writer(id, -1);
        }
        table.put(id);
        true
    }

    /// For recovery (Hive §4.2): every cached file page for which `lost` is true loses its name
    /// at once, and the tags of objects of which a *dirty* page was lost are passed to `damaged`
    /// (more than once if several were). Page tables must not map those pages any more. The
    /// generation number of a damaged object must then grow: [`crate::cache`] does it.
    pub(crate) fn discard(
        &self,
        mut lost: impl FnMut(&PageState) -> bool,
        mut damaged: impl FnMut(Tag),
    ) {
        let mut from = 0;
        loop {
            // One page per section of the lock: `damaged` may allocate.
            let found = {
                let mut table = self.table.lock();
                let mut pages = table.named(from);
                let found = pages.find(|(_, s)| s.id.tag.kind != Kind::Anon && lost(s));
                drop(pages);
                if let Some((id, _)) = &found {
                    table.forget(*id);
                }
                found
            };
            let Some((id, state)) = found else { return };
            from = id.index() + 1;
            if state.dirty {
                damaged(state.id.tag);
            }
        }
    }

    /// Gives back a reference that [`PageRef::keep`] took. Panics if the frame is not one of ours.
    pub fn release(&self, frame: Frame) {
        let mut table = self.table.lock();
        let id = table.by_frame(frame).expect("a frame of this cell");
        table.put(id);
    }

    fn queue(&self, frame: Frame) -> &WaitQueue {
        &self.busy[frame.0 as usize % BUSY_QUEUES]
    }
}

/// A counted reference to a page: while it lives the frame is not reused.
#[must_use]
pub struct PageRef<'a> {
    memory: &'a Memory,
    id: PfdatId,
    frame: Frame,
}

impl<'a> PageRef<'a> {
    /// Where the page is.
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Which page it is; `None` once it has been truncated or discarded, or never had a name.
    pub fn page(&self) -> Option<LogicalId> {
        self.memory.table.lock().page(self.id)
    }

    /// Sleeps while the page is being filled.
    pub fn wait_filled(&self) {
        let queue = self.memory.queue(self.frame);
        queue.wait_until(|| (!self.memory.table.lock().is_busy(self.id)).then_some(()));
    }

    /// Sleeps while the page is being written back.
    pub fn wait_written(&self) {
        let queue = self.memory.queue(self.frame);
        queue.wait_until(|| (!self.memory.table.lock().is_writing(self.id)).then_some(()));
    }

    /// Wakes those who wait for the page.
    pub(crate) fn wake(&self) {
        self.memory.queue(self.frame).wake_all();
    }

    pub(crate) fn id(&self) -> PfdatId {
        self.id
    }

    /// Keeps the page in memory for good, where a lifetime cannot go: the frame that holds it.
    /// [`Memory::release`] undoes it.
    pub fn keep(self) -> Frame {
        let frame = self.frame();
        core::mem::forget(self);
        frame
    }

    /// The reference itself, to be kept where a lifetime cannot go; [`Memory::adopt`] undoes it.
    pub(crate) fn into_raw(self) -> PfdatId {
        let id = self.id;
        core::mem::forget(self);
        id
    }
}

impl Clone for PageRef<'_> {
    fn clone(&self) -> Self {
        self.memory.table.lock().get(self.id);
        PageRef { ..*self }
    }
}

impl Drop for PageRef<'_> {
    fn drop(&mut self) {
        self.memory.table.lock().put(self.id);
    }
}
