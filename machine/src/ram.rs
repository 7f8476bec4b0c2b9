//! Memory of the machine: DRAM of all nodes, firmware frames, boot ROM and flash, as numbered
//! 4 KB frames in two-level copy-on-write storage, with one attribute word per frame.
//!
//! Invariants:
//! - A frame that was never written has no storage and reads as zero.
//! - A page's storage is written only while this `Ram` alone holds it; [`Ram::fork`] shares it,
//!   the next write copies it.
//! - Harts reach storage through [`Window`]s that their TLBs keep. A hart that keeps a window is
//!   *recorded* for the frame; whoever makes a window wrong (moved storage, new attribute, code in
//!   a writable page, reservation of another hart) calls [`Ram::evict`], which queues the frame
//!   for each recorded hart. A hart drops queued windows before its next instruction: the running
//!   one when the access returns, the others when they next run. Windows never outlive the state
//!   of the `Ram` they came from: [`Ram::epoch`] changes with fork and clear, and a hart that
//!   finds another epoch starts with an empty TLB.
//! - Recording is by hart number modulo 64: eviction may hit a hart that keeps no window, which
//!   costs it a refill and nothing else.
//!
//! This is the crate's only unsafe module: the windows. Absent: who may access what (the platform
//! decides, [`crate::platform::Platform::check`]), physical address maps of anything but DRAM.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hive_platform::map;

/// Bytes of a frame.
pub const PAGE: usize = hive_platform::PAGE_SIZE as usize;
/// Bytes of a reservation set and of a cache block of Zicbom and Zicboz.
pub const LINE: u64 = 64;
/// Frames of a chunk, the unit of the first copy-on-write level (2 MB).
const CHUNK: usize = 512;

/// Attribute bits of a frame. They say that the platform must be asked, not what it will answer.
pub mod attr {
    /// Some harts may not write.
    pub const FIREWALL: u32 = 1 << 0;
    /// The node that owns the frame failed.
    pub const FAILED: u32 = 1 << 1;
    /// The owning node bars remote access.
    pub const CUTOFF: u32 = 1 << 2;
    /// ROM or flash.
    pub const READ_ONLY: u32 = 1 << 3;
    /// Some bytes raise a hardware error.
    pub const POISON: u32 = 1 << 4;
    /// Some lines were lost with a cache.
    pub const LOST: u32 = 1 << 5;
    /// A debugger watches some bytes.
    pub const WATCH: u32 = 1 << 6;
    /// Some bytes were written by a faulty cell, or writes to it must be followed.
    pub const TAINT: u32 = 1 << 7;

    /// Ask before a load or fetch.
    pub const ASK_READ: u32 = FAILED | CUTOFF | PER_ACCESS;
    /// Ask before a store.
    pub const ASK_WRITE: u32 = ASK_READ | FIREWALL | READ_ONLY;
    /// The answer is not the same for the whole page, or must be seen each time: never cached.
    pub const PER_ACCESS: u32 = POISON | LOST | WATCH | TAINT;
}

/// Number of a frame: DRAM first, in address order, then whatever [`Ram::add_frames`] added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(pub u32);

impl Frame {
    /// Address of the frame's first byte in [`Ram`]'s own numbering (not a physical address).
    pub fn base(self) -> u64 {
        u64::from(self.0) * PAGE as u64
    }
}

#[repr(align(4096))]
struct Page(UnsafeCell<[u8; PAGE]>);

// SAFETY: a page is written only through a `Window` or `Ram::page_mut`, both of which need the
// page unshared (module invariant 2); shared pages are only read.
unsafe impl Sync for Page {}

impl Page {
    const ZERO: Page = Page(UnsafeCell::new([0; PAGE]));
}

impl Clone for Page {
    fn clone(&self) -> Page {
        // SAFETY: `Arc::make_mut` clones a page because it is shared, so nobody writes it.
        Page(UnsafeCell::new(unsafe { *self.0.get() }))
    }
}

/// What every frame without storage reads as.
static ZERO: Page = Page::ZERO;

/// Access to the bytes of one frame without any check: what a TLB entry keeps.
///
/// Accesses are safe because the holder obeys the module's eviction rule; `for_write` windows
/// exist only for unshared pages.
#[derive(Clone, Copy)]
pub(crate) struct Window(NonNull<u8>);

// SAFETY: a window is only used by the machine (one thread at a time) that its `Ram` belongs to.
unsafe impl Send for Window {}

impl Window {
    /// A window on the zero page, for TLB entries that match no address.
    pub(crate) const NOWHERE: Window = {
        // A static is never at address zero.
        match NonNull::new(ZERO.0.get().cast::<u8>()) {
            Some(p) => Window(p),
            None => unreachable!(),
        }
    };

    /// Reads `N` bytes at `offset`, which must not cross the page: it is masked, never trusted.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(self, offset: u64) -> [u8; N] {
        let offset = offset as usize & (PAGE - 1) & !(N - 1);
        // SAFETY: the offset is aligned to N and below PAGE, so the access stays in the page; the
        // page lives by the module's eviction rule.
        unsafe { self.0.as_ptr().add(offset).cast::<[u8; N]>().read() }
    }

    /// Writes `N` bytes at `offset`, masked as in [`Window::load`].
    #[inline(always)]
    pub(crate) fn store<const N: usize>(self, offset: u64, bytes: [u8; N]) {
        let offset = offset as usize & (PAGE - 1) & !(N - 1);
        // SAFETY: as in `load`; a window that is written is to an unshared page.
        unsafe { self.0.as_ptr().add(offset).cast::<[u8; N]>().write(bytes) }
    }
}

#[derive(Clone)]
struct Chunk {
    pages: [Option<Arc<Page>>; CHUNK],
    attr: [u32; CHUNK],
}

impl Chunk {
    fn empty() -> Arc<Chunk> {
        Arc::new(Chunk { pages: [const { None }; CHUNK], attr: [0; CHUNK] })
    }
}

/// The memory of one machine.
pub struct Ram {
    chunks: Vec<Arc<Chunk>>,
    frames: u32,
    dram_frames: u32,
    epoch: u64,
    /// Per frame: harts (modulo 64) that may keep a window.
    recorded: Vec<u64>,
    /// Per frame: 64-byte lines from which the engine has decoded instructions.
    code: Vec<u64>,
    /// Frames whose code changed since the engine last looked.
    stale_code: Vec<Frame>,
    /// Per hart: frames whose windows it must drop.
    evicted: Vec<Vec<Frame>>,
    /// Per hart: the line (`Frame::base` numbering) that its LR reserved in an earlier run.
    reservations: Vec<Option<u64>>,
}

fn fresh_epoch() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Ram {
    /// Memory for a machine of `harts` harts with `dram` bytes (a multiple of 4 KB) of DRAM.
    pub fn new(harts: usize, dram: u64) -> Ram {
        let mut ram = Ram {
            chunks: Vec::new(),
            frames: 0,
            dram_frames: 0,
            epoch: fresh_epoch(),
            recorded: Vec::new(),
            code: Vec::new(),
            stale_code: Vec::new(),
            evicted: vec![Vec::new(); harts],
            reservations: vec![None; harts],
        };
        ram.add_frames(dram / PAGE as u64);
        ram.dram_frames = ram.frames;
        ram
    }

    /// Adds `count` frames outside DRAM (firmware frames, ROM, flash) and returns the first.
    pub fn add_frames(&mut self, count: u64) -> Frame {
        let first = Frame(self.frames);
        // Frame numbers fit 32 bits: 64 nodes of 4 GB need 2^26.
        self.frames += u32::try_from(count).expect("frame count fits 32 bits");
        let n = self.frames as usize;
        self.recorded.resize(n, 0);
        self.code.resize(n, 0);
        self.chunks.resize_with(n.div_ceil(CHUNK), Chunk::empty);
        first
    }

    /// Bytes of DRAM.
    pub fn dram_size(&self) -> u64 {
        u64::from(self.dram_frames) * PAGE as u64
    }

    /// Number of frames, DRAM and others.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The DRAM frame that holds physical address `pa`, if it is DRAM.
    #[inline]
    pub fn dram_frame(&self, pa: u64) -> Option<Frame> {
        let n = pa.wrapping_sub(map::DRAM) / PAGE as u64;
        (n < u64::from(self.dram_frames)).then_some(Frame(n as u32))
    }

    /// Identifies this state of the page storage; see the module head.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A copy that shares every page until one side writes it. Costs one reference count per 2 MB.
    pub fn fork(&mut self) -> Ram {
        self.epoch = fresh_epoch();
        Ram {
            chunks: self.chunks.clone(),
            frames: self.frames,
            dram_frames: self.dram_frames,
            epoch: fresh_epoch(),
            recorded: vec![0; self.frames as usize],
            code: vec![0; self.frames as usize],
            stale_code: Vec::new(),
            evicted: vec![Vec::new(); self.evicted.len()],
            reservations: self.reservations.clone(),
        }
    }

    /// Zeroes `count` frames from `first` and gives their storage back (cold reset).
    pub fn clear(&mut self, first: Frame, count: u32) {
        self.epoch = fresh_epoch();
        let (start, end) =
            (first.0.min(self.frames), first.0.saturating_add(count).min(self.frames));
        for n in start..end {
            if self.chunk(Frame(n)).pages[n as usize % CHUNK].is_some() {
                self.note_code_change(Frame(n), u64::MAX);
                Arc::make_mut(&mut self.chunks[n as usize / CHUNK]).pages[n as usize % CHUNK] =
                    None;
            }
        }
    }

    fn chunk(&self, frame: Frame) -> &Chunk {
        &self.chunks[frame.0 as usize / CHUNK]
    }

    fn page(&self, frame: Frame) -> &Page {
        self.chunk(frame).pages[frame.0 as usize % CHUNK].as_deref().unwrap_or(&ZERO)
    }

    /// The page's storage, unshared; evicts every window if that moves it.
    fn page_mut(&mut self, frame: Frame) -> NonNull<u8> {
        let chunk = Arc::make_mut(&mut self.chunks[frame.0 as usize / CHUNK]);
        let slot = &mut chunk.pages[frame.0 as usize % CHUNK];
        let before = slot.as_ref().map(Arc::as_ptr);
        let page = slot.get_or_insert_with(|| Arc::new(Page::ZERO));
        let data = NonNull::from(Arc::make_mut(page)).cast();
        if before != Some(Arc::as_ptr(page)) {
            self.evict(frame);
        }
        data
    }

    /// A window to read `frame`; `hart` is recorded.
    pub(crate) fn window_to_read(&mut self, frame: Frame, hart: usize) -> Window {
        self.recorded[frame.0 as usize] |= 1 << (hart % 64);
        Window(NonNull::from(self.page(frame)).cast())
    }

    /// A window to read and write `frame`; `hart` is recorded. `None` if each write must be seen
    /// by [`Ram::note_write`]: there is decoded code, or another hart's reservation.
    pub(crate) fn window_to_write(&mut self, frame: Frame, hart: usize) -> Option<Window> {
        let window = Window(self.page_mut(frame));
        if self.code[frame.0 as usize] != 0 {
            return None;
        }
        let reserved = |(h, line): (usize, &Option<u64>)| {
            h != hart && line.is_some_and(|line| line / PAGE as u64 == u64::from(frame.0))
        };
        if self.reservations.iter().enumerate().any(reserved) {
            return None;
        }
        self.recorded[frame.0 as usize] |= 1 << (hart % 64);
        Some(window)
    }

    /// A write of `size` bytes (not crossing the page) by `hart` (`None`: a device) is about to
    /// happen outside a cached window: code decoded from there and reservations of other harts
    /// on it end.
    pub(crate) fn note_write(
        &mut self,
        hart: Option<usize>,
        frame: Frame,
        offset: usize,
        size: usize,
    ) {
        if size == 0 {
            return;
        }
        let (first, last) = (offset as u64 / LINE, (offset + size - 1) as u64 / LINE);
        let lines = u64::MAX << first & u64::MAX >> (63 - last.min(63));
        self.note_code_change(frame, lines);
        for (h, slot) in self.reservations.iter_mut().enumerate() {
            if let Some(line) = *slot
                && Some(h) != hart
                && line / PAGE as u64 == u64::from(frame.0)
                && lines >> (line % PAGE as u64 / LINE) & 1 != 0
            {
                *slot = None;
            }
        }
    }

    fn note_code_change(&mut self, frame: Frame, lines: u64) {
        let code = &mut self.code[frame.0 as usize];
        if *code & lines != 0 {
            *code = 0;
            self.stale_code.push(frame);
        }
    }

    /// Records that the engine decoded instructions from `lines` (64-byte lines) of `frame`: from
    /// now on stores there are seen.
    pub(crate) fn note_code(&mut self, frame: Frame, lines: u64) {
        let code = &mut self.code[frame.0 as usize];
        let first = *code == 0;
        *code |= lines;
        if first {
            self.evict(frame);
        }
    }

    /// The frames whose code changed since the last call, for the engine to forget.
    pub(crate) fn take_stale_code(&mut self) -> Option<Vec<Frame>> {
        if self.stale_code.is_empty() { None } else { Some(std::mem::take(&mut self.stale_code)) }
    }

    /// Drops every hart's cached window and permission for `frame`.
    pub fn evict(&mut self, frame: Frame) {
        let Some(recorded) = self.recorded.get_mut(frame.0 as usize) else { return };
        let recorded = std::mem::take(recorded);
        if recorded == 0 {
            return;
        }
        for (hart, queue) in self.evicted.iter_mut().enumerate() {
            if recorded >> (hart % 64) & 1 != 0 {
                queue.push(frame);
            }
        }
    }

    /// The frames whose windows `hart` must drop now.
    pub(crate) fn take_evicted(&mut self, hart: usize) -> Option<Vec<Frame>> {
        match self.evicted.get_mut(hart) {
            Some(queue) if !queue.is_empty() => Some(std::mem::take(queue)),
            _ => None,
        }
    }

    /// The reservation that `hart` took in an earlier run, if nobody has written there since.
    pub(crate) fn reservation(&self, hart: usize) -> Option<u64> {
        self.reservations.get(hart).copied().flatten()
    }

    /// Makes `line` the reservation that other harts' stores break while `hart` does not run.
    pub(crate) fn reserve(&mut self, hart: usize, line: Option<u64>) {
        let Some(slot) = self.reservations.get_mut(hart) else { return };
        if *slot != line {
            *slot = line;
            if let Some(line) = line {
                self.evict(Frame((line / PAGE as u64) as u32));
            }
        }
    }

    /// Attribute word of `frame`.
    pub fn attr(&self, frame: Frame) -> u32 {
        self.chunk(frame).attr[frame.0 as usize % CHUNK]
    }

    /// Sets the attribute bits `set` and clears `clear`. A new bit takes effect at once for every
    /// hart: cached permissions are dropped.
    pub fn set_attr(&mut self, frame: Frame, set: u32, clear: u32) {
        let old = self.attr(frame);
        let new = old & !clear | set;
        if new != old {
            let chunk = Arc::make_mut(&mut self.chunks[frame.0 as usize / CHUNK]);
            chunk.attr[frame.0 as usize % CHUNK] = new;
        }
        if new & !old != 0 {
            self.evict(frame);
        }
    }

    /// Copies bytes out, from `address` in [`Frame::base`] numbering, without asking anybody.
    /// `None` if the range is not memory.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Option<()> {
        self.range(address, out.len())?;
        let mut address = address;
        let mut rest = out;
        while !rest.is_empty() {
            let offset = address as usize % PAGE;
            let (now, later) = rest.split_at_mut(rest.len().min(PAGE - offset));
            let page = self.page(Frame((address / PAGE as u64) as u32)).0.get().cast::<u8>();
            // SAFETY: offset + now.len() <= PAGE; nobody writes while `self` is borrowed.
            unsafe { page.add(offset).copy_to_nonoverlapping(now.as_mut_ptr(), now.len()) };
            address += now.len() as u64;
            rest = later;
        }
        Some(())
    }

    /// The 64-bit word at `offset` (masked to alignment) of `frame`.
    pub(crate) fn read_word(&self, frame: Frame, offset: usize) -> u64 {
        let window = Window(NonNull::from(self.page(frame)).cast());
        u64::from_le_bytes(window.load(offset as u64))
    }

    /// The instruction bits at `address` (`Frame::base` numbering), as far as they lie in its
    /// frame.
    pub(crate) fn read_code(&self, address: u64) -> u32 {
        let (frame, offset) = (Frame((address / PAGE as u64) as u32), address as usize % PAGE);
        let half = |at: usize| (self.read_word(frame, at) >> (8 * (at & 6))) as u32 & 0xffff;
        let low = half(offset);
        if low & 3 == 3 && offset + 2 < PAGE { half(offset + 2) << 16 | low } else { low }
    }

    /// A store by `hart` outside a window; `bytes` do not cross the page. True if decoded code
    /// changed, now or earlier, and has not been forgotten yet.
    pub(crate) fn write_by(
        &mut self,
        hart: usize,
        frame: Frame,
        offset: usize,
        bytes: &[u8],
    ) -> bool {
        self.note_write(Some(hart), frame, offset, bytes.len());
        self.write_page(frame, offset, bytes);
        !self.stale_code.is_empty()
    }

    fn write_page(&mut self, frame: Frame, offset: usize, bytes: &[u8]) {
        let offset = offset % PAGE;
        let len = bytes.len().min(PAGE - offset);
        let page = self.page_mut(frame).as_ptr();
        // SAFETY: offset + len <= PAGE; `page_mut` gave unshared storage.
        unsafe { page.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), len) };
    }

    /// Copies bytes in, as a device or a loader does: code decoded there and reservations on it
    /// end, permissions are not asked (the caller has asked, page by page).
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Option<()> {
        self.range(address, bytes.len())?;
        let mut address = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = address as usize % PAGE;
            let (now, later) = rest.split_at(rest.len().min(PAGE - offset));
            let frame = Frame((address / PAGE as u64) as u32);
            self.note_write(None, frame, offset, now.len());
            self.write_page(frame, offset, now);
            address += now.len() as u64;
            rest = later;
        }
        Some(())
    }

    fn range(&self, address: u64, len: usize) -> Option<()> {
        let end = address.checked_add(len as u64)?;
        (end <= u64::from(self.frames) * PAGE as u64).then_some(())
    }

    /// Frames from `first` that have storage, in order: what a snapshot or a hash must visit.
    pub fn touched(&self) -> impl Iterator<Item = Frame> + '_ {
        (0..self.frames).map(Frame).filter(|f| self.chunk(*f).pages[f.0 as usize % CHUNK].is_some())
    }
}
