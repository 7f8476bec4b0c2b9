//! The table of page frames (Hive §5.1): one [`Pfdat`] per frame of the cell's DRAM, a hash from
//! logical page ids to pfdats, and three lists.
//!
//! A frame is on at most one list:
//!
//! | list | holds | order |
//! |---|---|---|
//! | free | frames that hold nothing | last freed first |
//! | cached | clean pages that nobody refers to, still found by id, reused when memory is short | oldest first |
//! | dirty | pages that differ from their backing store, referred to or not | oldest first |
//!
//! A pfdat keeps its *logical* state (which page is in it, who uses that) apart from its
//! *physical* state (which frame it is, what that is for), so that a frame can be loaned out and
//! its page imported back (Hive §5.5); both state machines are to grow there.
//!
//! The table does no locking and, once made, allocates no heap memory: the heap itself draws its
//! frames from here. [`crate::Memory`] holds it under a spin lock of rank `FRAMES`.

use crate::types::{CellNumber, Error, Frame, LogicalId, Tag};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Frames that only the kernel's own needs ([`Use::Kernel`], [`Use::PageTable`], device pages)
/// may take: enough for the stacks and tables by which a process gets killed and dirty pages get
/// written when memory is short. Small tables keep a sixteenth.
pub const KERNEL_RESERVE_FRAMES: usize = 128;

/// Most frames of one contiguous allocation (1 MB): what the kernel heap asks for at once.
pub const CONTIGUOUS_MAX_FRAMES: usize = 256;

/// Pages forgotten in one section of the lock: less than a millisecond on a slow hart.
const FORGET_BATCH: usize = 256;

/// Position in the pfdat table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PfdatId(u32);

impl PfdatId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a frame is for: the physical level of a pfdat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Not for allocation: the kernel image, the table itself, memory that failed.
    Reserved,
    /// Allocated for nothing.
    Free,
    /// Kernel heap, stacks, buffers. Always local (Hive §5.4).
    Kernel,
    /// Page tables. Always local.
    PageTable,
    /// Holds, held or is about to hold a logical page.
    Page,
}

/// Which cells' frames suit an allocation (Hive §5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub use_: Use,
    /// Cells whose frames are acceptable, one bit each.
    pub cells: u64,
    /// The cell whose frames are best.
    pub preferred: CellNumber,
    /// May take from [`KERNEL_RESERVE_FRAMES`].
    pub reserve: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    None,
    Free,
    Cached,
    Dirty,
}

const NIL: u32 = u32::MAX;

/// State of the logical page in a frame.
#[derive(Clone, Copy, Debug)]
struct Logical {
    id: Option<LogicalId>,
    /// References of any kind: page-table entries, tree nodes, threads at work.
    refs: u32,
    /// How many of them are nodes of copy-on-write trees that record the page.
    owners: u32,
    /// How many of them are writable page-table entries of shared mappings.
    writers: u32,
    /// Differs from the backing store.
    dirty: bool,
    /// Being filled: contents are not valid yet.
    busy: bool,
    /// Being written to the backing store.
    writing: bool,
}

const NO_PAGE: Logical =
    Logical { id: None, refs: 0, owners: 0, writers: 0, dirty: false, busy: false, writing: false };

/// State of the frame itself.
#[derive(Clone, Copy, Debug)]
struct Physical {
    frame: Frame,
    use_: Use,
}

/// One page frame data structure.
#[derive(Clone, Copy, Debug)]
struct Pfdat {
    logical: Logical,
    physical: Physical,
    on: On,
    list: (u32, u32),
    /// Next in the chain of the hash of logical page ids.
    hash_next: u32,
    /// Previous and next in the chain of the hash of tags.
    object: (u32, u32),
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: usize,
}

const EMPTY: List = List { head: NIL, tail: NIL, len: 0 };

/// Frames by what they hold now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All frames of the table, reserved ones too.
    pub total: usize,
    /// Frames that can never be allocated.
    pub reserved: usize,
    /// Frames that hold nothing.
    pub free: usize,
    /// Clean pages that can be reused at once.
    pub cached: usize,
    /// Pages to be written back.
    pub dirty: usize,
}

/// What [`crate::Memory::discard`] judges a page by.
#[derive(Clone, Copy, Debug)]
pub struct PageState {
    /// Which page.
    pub id: LogicalId,
    /// Where.
    pub frame: Frame,
    /// Differs from the backing store.
    pub dirty: bool,
    /// References.
    pub refs: u32,
}

/// The page frame table of a cell.
pub struct Table {
    cell: CellNumber,
    first: Frame,
    pfdats: Vec<Pfdat>,
    pages: Vec<u32>,
    objects: Vec<u32>,
    free: List,
    cached: List,
    dirty: List,
    reserved: usize,
    reserve: usize,
    /// Where the next search for contiguous frames starts.
    clock: usize,
}

fn mix(word: u64) -> u64 {
    // The finalizer of splitmix64: every input bit reaches every output bit.
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn hash_tag(tag: &Tag) -> u64 {
    let rest = u64::from(tag.generation) << 32 | u64::from(tag.home.0) << 8 | tag.kind as u64;
    mix(tag.object ^ mix(rest))
}

impl Table {
    /// Bytes of heap that a table of `frames` frames takes, all of it in [`Table::new`].
    pub const fn heap_bytes(frames: usize) -> usize {
        let buckets = buckets(frames);
        frames * size_of::<Pfdat>() + 2 * buckets * size_of::<u32>()
    }

    /// The table of the `count` frames from `first` of cell `cell`; those in `usable` are free,
    /// all others reserved.
    pub fn new(cell: CellNumber, first: Frame, count: usize, usable: &[Range<Frame>]) -> Table {
        assert!(count < NIL as usize, "frame count fits a PfdatId");
        let empty = |at: usize| Pfdat {
            logical: NO_PAGE,
            physical: Physical { frame: Frame(first.0 + at as u64), use_: Use::Reserved },
            on: On::None,
            list: (NIL, NIL),
            hash_next: NIL,
            object: (NIL, NIL),
        };
        let mut table = Table {
            cell,
            first,
            pfdats: (0..count).map(empty).collect(),
            pages: vec![NIL; buckets(count)],
            objects: vec![NIL; buckets(count)],
            free: EMPTY,
            cached: EMPTY,
            dirty: EMPTY,
            reserved: count,
            reserve: 0,
            clock: 0,
        };
        // Pushed in descending order: the lowest frame is taken first.
        for at in (0..count).rev() {
            let frame = Frame(first.0 + at as u64);
            if usable.iter().any(|range| range.contains(&frame)) {
                table.pfdats[at].physical.use_ = Use::Free;
                table.push_front(On::Free, at as u32);
                table.reserved -= 1;
            }
        }
        table.reserve = KERNEL_RESERVE_FRAMES.min((count - table.reserved) / 16);
        table
    }

    /// Frames by what they hold.
    pub fn counts(&self) -> Counts {
        Counts {
            total: self.pfdats.len(),
            reserved: self.reserved,
            free: self.free.len,
            cached: self.cached.len,
            dirty: self.dirty.len,
        }
    }

    /// The pfdat of a local frame.
    pub fn by_frame(&self, frame: Frame) -> Option<PfdatId> {
        let at = frame.0.checked_sub(self.first.0)?;
        ((at as usize) < self.pfdats.len()).then_some(PfdatId(at as u32))
    }

    /// The frame of a pfdat.
    pub fn frame(&self, id: PfdatId) -> Frame {
        self.pfdats[id.index()].physical.frame
    }
    /// The logical page in it.
    pub fn page(&self, id: PfdatId) -> Option<LogicalId> {
        self.pfdats[id.index()].logical.id
    }
    /// What the frame is for.
    pub fn use_of(&self, id: PfdatId) -> Use {
        self.pfdats[id.index()].physical.use_
    }
    /// References to it.
    pub fn refs(&self, id: PfdatId) -> u32 {
        self.pfdats[id.index()].logical.refs
    }
    /// Tree nodes that record it.
    pub fn owners(&self, id: PfdatId) -> u32 {
        self.pfdats[id.index()].logical.owners
    }
    /// True while it is being filled.
    pub fn is_busy(&self, id: PfdatId) -> bool {
        self.pfdats[id.index()].logical.busy
    }
    /// True while it is being written back.
    pub fn is_writing(&self, id: PfdatId) -> bool {
        self.pfdats[id.index()].logical.writing
    }
    /// True if it differs from its backing store.
    pub fn is_dirty(&self, id: PfdatId) -> bool {
        self.pfdats[id.index()].logical.dirty
    }

    // ------------------------------------------------------------------ allocation

    /// Takes a frame, with one reference; the oldest cached page makes room if no frame is free.
    /// Its bytes are whatever they were.
    pub fn allocate(&mut self, request: Request) -> Result<PfdatId, Error> {
        debug_assert!(!matches!(request.use_, Use::Free | Use::Reserved));
        let local = 1u64.checked_shl(u32::from(self.cell.0)).unwrap_or(0);
        if request.cells & local == 0 {
            return Err(Error::NoMemory);
        }
        let floor = if request.reserve { 0 } else { self.reserve };
        if self.free.len + self.cached.len <= floor {
            return Err(Error::NoMemory);
        }
        let at = if self.free.head != NIL { self.free.head } else { self.cached.head };
        self.take(at, request.use_);
        Ok(PfdatId(at))
    }

    /// Takes `count` frames that follow one another, for the kernel; one reference each.
    pub fn allocate_contiguous(&mut self, count: usize, use_: Use) -> Result<PfdatId, Error> {
        if count == 0 || count > CONTIGUOUS_MAX_FRAMES || count > self.pfdats.len() {
            return Err(Error::NoMemory);
        }
        let last = self.pfdats.len() - count;
        let start = if self.clock <= last { self.clock } else { 0 };
        let at = self
            .find_run(start, self.pfdats.len(), count)
            .or_else(|| self.find_run(0, (start + count).min(self.pfdats.len()), count))
            .ok_or(Error::NoMemory)?;
        for at in at..at + count {
            self.take(at as u32, use_);
        }
        self.clock = at + count;
        Ok(PfdatId(at as u32))
    }

    /// First of `count` frames in a row within `[from, to)` that can be taken.
    fn find_run(&self, from: usize, to: usize, count: usize) -> Option<usize> {
        let mut run = 0;
        for at in from..to {
            let takeable = matches!(self.pfdats[at].on, On::Free | On::Cached);
            run = if takeable { run + 1 } else { 0 };
            if run == count {
                return Some(at + 1 - count);
            }
        }
        None
    }

    /// Takes a frame off the free or cached list, with one reference.
    fn take(&mut self, at: u32, use_: Use) {
        self.forget(PfdatId(at));
        self.unlist(at);
        let pfdat = &mut self.pfdats[at as usize];
        pfdat.physical.use_ = use_;
        pfdat.logical.refs = 1;
    }

    /// Adds a reference.
    pub fn get(&mut self, id: PfdatId) {
        let pfdat = &mut self.pfdats[id.index()];
        assert!(
            pfdat.logical.refs > 0 || pfdat.logical.id.is_some(),
            "a reference to a free frame"
        );
        pfdat.logical.refs += 1;
        if pfdat.on == On::Cached {
            self.unlist(id.0);
        }
    }

    /// Gives a reference back. The frame becomes free if it holds no logical page, reusable if it
    /// holds a clean one.
    pub fn put(&mut self, id: PfdatId) {
        let logical = &mut self.pfdats[id.index()].logical;
        assert!(logical.refs > 0, "a reference given back twice");
        logical.refs -= 1;
        self.settle(id);
    }

    /// Puts an unreferenced frame where it belongs.
    fn settle(&mut self, id: PfdatId) {
        let pfdat = &mut self.pfdats[id.index()];
        let logical = &pfdat.logical;
        if logical.refs > 0 || pfdat.on != On::None {
            return;
        }
        assert!(logical.owners == 0 && logical.writers == 0, "counted by more than refs");
        assert!(!logical.busy && !logical.writing, "busy pages are referred to");
        if logical.id.is_some() {
            self.push_back(On::Cached, id.0);
        } else {
            pfdat.physical.use_ = Use::Free;
            self.push_front(On::Free, id.0);
        }
    }

    // ------------------------------------------------------------------ logical pages

    /// The pfdat that holds logical page `page`.
    pub fn lookup(&self, page: &LogicalId) -> Option<PfdatId> {
        let mut at = self.pages[self.bucket(page)];
        while at != NIL {
            let pfdat = &self.pfdats[at as usize];
            if pfdat.logical.id.as_ref() == Some(page) {
                return Some(PfdatId(at));
            }
            at = pfdat.hash_next;
        }
        None
    }

    /// Names the page in a frame that has none; the frame is [`Use::Page`]. `busy` pages are
    /// found, but are not valid before [`Table::filled`].
    pub fn name(&mut self, id: PfdatId, page: LogicalId, busy: bool) {
        assert!(self.lookup(&page).is_none(), "a logical page has one pfdat");
        let bucket = self.bucket(&page);
        let object = self.object_bucket(&page.tag);
        let (hash_head, object_head) = (self.pages[bucket], self.objects[object]);
        let pfdat = &mut self.pfdats[id.index()];
        assert!(pfdat.physical.use_ == Use::Page && pfdat.logical.id.is_none());
        pfdat.logical.id = Some(page);
        pfdat.logical.busy = busy;
        pfdat.hash_next = hash_head;
        pfdat.object = (NIL, object_head);
        self.pages[bucket] = id.0;
        self.objects[object] = id.0;
        if object_head != NIL {
            self.pfdats[object_head as usize].object.0 = id.0;
        }
    }

    /// Takes the page's name away: nobody finds it any more, it is not dirty any more, and its
    /// frame is free when the last reference goes. No effect on a frame without a name.
    pub fn forget(&mut self, id: PfdatId) {
        let Some(page) = self.pfdats[id.index()].logical.id else { return };
        let bucket = self.bucket(&page);
        let next = self.pfdats[id.index()].hash_next;
        if self.pages[bucket] == id.0 {
            self.pages[bucket] = next;
        } else {
            let mut at = self.pages[bucket];
            while self.pfdats[at as usize].hash_next != id.0 {
                at = self.pfdats[at as usize].hash_next;
            }
            self.pfdats[at as usize].hash_next = next;
        }
        let (before, after) = self.pfdats[id.index()].object;
        if before == NIL {
            let object = self.object_bucket(&page.tag);
            self.objects[object] = after;
        } else {
            self.pfdats[before as usize].object.1 = after;
        }
        if after != NIL {
            self.pfdats[after as usize].object.0 = before;
        }
        let pfdat = &mut self.pfdats[id.index()];
        pfdat.hash_next = NIL;
        pfdat.object = (NIL, NIL);
        pfdat.logical.id = None;
        pfdat.logical.dirty = false;
        pfdat.logical.busy = false;
        if pfdat.on != On::None {
            self.unlist(id.0);
        }
        self.settle(id);
    }

    /// A busy page is valid now.
    pub fn filled(&mut self, id: PfdatId) {
        self.pfdats[id.index()].logical.busy = false;
    }

    /// Records one more (`1`) or one fewer (`-1`) tree node that owns the page. The reference
    /// that goes with it is the caller's to take or give.
    pub fn own(&mut self, id: PfdatId, change: i32) {
        let owners = &mut self.pfdats[id.index()].logical.owners;
        *owners = owners.checked_add_signed(change).expect("owners are counted");
    }

    /// Records one more or one fewer writable entry of a shared mapping. While there is one, the
    /// page counts as dirty: stores by user programs are not seen one by one.
    pub fn writer(&mut self, id: PfdatId, change: i32) {
        let writers = &mut self.pfdats[id.index()].logical.writers;
        *writers = writers.checked_add_signed(change).expect("writers are counted");
    }

    /// The page differs from its backing store now. False if it has no name any more: then there
    /// is no store to write it to.
    pub fn set_dirty(&mut self, id: PfdatId) -> bool {
        let logical = &mut self.pfdats[id.index()].logical;
        if logical.id.is_none() {
            return false;
        }
        if !logical.dirty {
            logical.dirty = true;
            if self.pfdats[id.index()].on != On::None {
                self.unlist(id.0);
            }
            self.push_back(On::Dirty, id.0);
        }
        true
    }

    /// Starts a write-back: takes a reference, and the page is clean from here on unless it is
    /// written again (or mapped writable). False, and no effect, if it is not dirty or is being
    /// filled or written back already.
    pub fn write_begin(&mut self, id: PfdatId) -> bool {
        let pfdat = &mut self.pfdats[id.index()];
        if !pfdat.logical.dirty || pfdat.logical.busy || pfdat.logical.writing {
            return false;
        }
        pfdat.logical.writing = true;
        pfdat.logical.refs += 1;
        let mapped = pfdat.logical.writers > 0;
        pfdat.logical.dirty = mapped;
        self.unlist(id.0);
        if mapped {
            self.push_back(On::Dirty, id.0);
        }
        true
    }

    /// Ends a write-back; a page that could not be written is dirty again.
    pub fn write_end(&mut self, id: PfdatId, written: bool) {
        self.pfdats[id.index()].logical.writing = false;
        if !written {
            self.set_dirty(id);
        }
        self.put(id);
    }

    /// The oldest dirty page that is not being written back.
    pub fn oldest_dirty(&self) -> Option<PfdatId> {
        let mut at = self.dirty.head;
        while at != NIL {
            let pfdat = &self.pfdats[at as usize];
            if !pfdat.logical.writing && !pfdat.logical.busy {
                return Some(PfdatId(at));
            }
            at = pfdat.list.1;
        }
        None
    }

    /// The page of object `tag` with the lowest index in `pages` of which `wanted` is true.
    pub fn first_of(
        &self,
        tag: &Tag,
        pages: Range<u64>,
        mut wanted: impl FnMut(&Table, PfdatId) -> bool,
    ) -> Option<PfdatId> {
        let mut best: Option<(u64, PfdatId)> = None;
        let mut at = self.objects[self.object_bucket(tag)];
        while at != NIL {
            if let Some(id) = self.pfdats[at as usize].logical.id
                && id.tag == *tag
                && pages.contains(&id.page)
                && best.is_none_or(|(page, _)| id.page < page)
                && wanted(self, PfdatId(at))
            {
                best = Some((id.page, PfdatId(at)));
            }
            at = self.pfdats[at as usize].object.1;
        }
        best.map(|(_, id)| id)
    }

    /// Forgets pages of object `tag` in `pages` that are neither being filled nor written back,
    /// a few hundred at a time; true if there may be more.
    pub fn forget_idle(&mut self, tag: &Tag, pages: Range<u64>) -> bool {
        let mut left = FORGET_BATCH;
        let mut at = self.objects[self.object_bucket(tag)];
        while at != NIL && left > 0 {
            let pfdat = &self.pfdats[at as usize];
            let (this, logical) = (PfdatId(at), &pfdat.logical);
            at = pfdat.object.1;
            if logical.id.is_some_and(|id| id.tag == *tag && pages.contains(&id.page))
                && !logical.busy
                && !logical.writing
            {
                self.forget(this);
                left -= 1;
            }
        }
        left == 0
    }

    /// Every pfdat at or after position `from` that holds a logical page.
    pub fn named(&self, from: usize) -> impl Iterator<Item = (PfdatId, PageState)> + '_ {
        self.pfdats.iter().enumerate().skip(from).filter_map(|(at, pfdat)| {
            let id = pfdat.logical.id?;
            let state = PageState {
                id,
                frame: pfdat.physical.frame,
                dirty: pfdat.logical.dirty,
                refs: pfdat.logical.refs,
            };
            Some((PfdatId(at as u32), state))
        })
    }

    fn bucket(&self, page: &LogicalId) -> usize {
        mix(hash_tag(&page.tag) ^ page.page) as usize & (self.pages.len() - 1)
    }

    fn object_bucket(&self, tag: &Tag) -> usize {
        hash_tag(tag) as usize & (self.objects.len() - 1)
    }

    // ------------------------------------------------------------------ lists

    fn list(&mut self, on: On) -> &mut List {
        match on {
            On::Free => &mut self.free,
            On::Cached => &mut self.cached,
            On::Dirty => &mut self.dirty,
            On::None => unreachable!("not a list"),
        }
    }

    fn push_front(&mut self, on: On, at: u32) {
        let list = self.list(on);
        let head = core::mem::replace(&mut list.head, at);
        if head == NIL {
            list.tail = at;
        }
        list.len += 1;
        if head != NIL {
            self.pfdats[head as usize].list.0 = at;
        }
        let pfdat = &mut self.pfdats[at as usize];
        (pfdat.on, pfdat.list) = (on, (NIL, head));
    }

    fn push_back(&mut self, on: On, at: u32) {
        let list = self.list(on);
        let tail = core::mem::replace(&mut list.tail, at);
        if tail == NIL {
            list.head = at;
        }
        list.len += 1;
        if tail != NIL {
            self.pfdats[tail as usize].list.1 = at;
        }
        let pfdat = &mut self.pfdats[at as usize];
        (pfdat.on, pfdat.list) = (on, (tail, NIL));
    }

    fn unlist(&mut self, at: u32) {
        let pfdat = &mut self.pfdats[at as usize];
        let (before, after) = core::mem::replace(&mut pfdat.list, (NIL, NIL));
        let on = core::mem::replace(&mut pfdat.on, On::None);
        if before != NIL {
            self.pfdats[before as usize].list.1 = after;
        }
        if after != NIL {
            self.pfdats[after as usize].list.0 = before;
        }
        let list = self.list(on);
        if before == NIL {
            list.head = after;
        }
        if after == NIL {
            list.tail = before;
        }
        list.len -= 1;
    }

    // ------------------------------------------------------------------ invariants

    /// Checks every invariant of the table, at the cost of a walk over all of it; panics with
    /// the first that does not hold. For tests.
    pub fn check(&self) {
        let mut seen = [0usize; 3];
        for (at, pfdat) in self.pfdats.iter().enumerate() {
            let logical = &pfdat.logical;
            let use_ = pfdat.physical.use_;
            assert_eq!(pfdat.physical.frame.0, self.first.0 + at as u64);
            match pfdat.on {
                On::Free => {
                    seen[0] += 1;
                    assert!(use_ == Use::Free && logical.id.is_none() && logical.refs == 0);
                }
                On::Cached => {
                    seen[1] += 1;
                    assert!(logical.id.is_some() && !logical.dirty && logical.refs == 0);
                }
                On::Dirty => {
                    seen[2] += 1;
                    assert!(logical.id.is_some() && logical.dirty);
                }
                On::None => assert!(
                    use_ == Use::Reserved || (logical.refs > 0 && !logical.dirty),
                    "frame {at} is on no list and nobody has it"
                ),
            }
            assert!(logical.id.is_none() || use_ == Use::Page);
            assert!(logical.owners + logical.writers <= logical.refs);
            assert!(!(logical.busy || logical.writing) || logical.refs > 0);
            if let Some(id) = &logical.id {
                assert_eq!(self.lookup(id), Some(PfdatId(at as u32)));
                let this = self.first_of(&id.tag, id.page..id.page + 1, |_, _| true);
                assert_eq!(this, Some(PfdatId(at as u32)));
            }
        }
        assert_eq!(seen, [self.free.len, self.cached.len, self.dirty.len]);
        for (list, len) in [(self.free, seen[0]), (self.cached, seen[1]), (self.dirty, seen[2])] {
            let (mut at, mut before, mut n) = (list.head, NIL, 0);
            while at != NIL {
                assert_eq!(self.pfdats[at as usize].list.0, before);
                (before, at, n) = (at, self.pfdats[at as usize].list.1, n + 1);
                assert!(n <= len, "a list has a loop");
            }
            assert!(before == list.tail && n == len);
        }
    }
}

/// Buckets of each hash: about one per frame, a power of two.
const fn buckets(frames: usize) -> usize {
    if frames < 16 { 16 } else { frames.next_power_of_two() }
}

#[cfg(test)]
#[path = "pfdat_tests.rs"]
mod tests;
