//! Physical memory as the lowest layer sees it: the direct map, the frames of early boot, the
//! kernel heap.
//!
//! Frames belong to the page-frame table above (`hive-vm`). Until it exists, [`alloc_frame`]
//! takes them from the bottom of the boot node's memory; [`hand_over`] then gives the ranges that
//! are left to the kernel, which names itself as the [`FrameSource`] from then on.

use crate::devicetree::Machine;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use hive_sync::{AtomicU64, Once, SpinLock, rank};
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

/// Bytes of a page frame.
pub const PAGE: u64 = hive_platform::PAGE_SIZE;
/// Where physical memory appears, readable and writable, never executable.
pub const DIRECT_BASE: u64 = 0xffff_ffc0_0000_0000;
/// Physical addresses below this are in the direct map: all that the platform has.
pub const DIRECT_SIZE: u64 = 144 << 30;
const _: () = assert!(hive_platform::map::PHYSICAL_END <= DIRECT_SIZE);
/// Where the image is linked.
pub const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;

/// A physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Pa(pub u64);

/// There is no frame left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Where `pa` appears in the direct map.
#[inline(always)]
pub fn direct(pa: Pa) -> *mut u8 {
    debug_assert!(pa.0 < DIRECT_SIZE, "physical address beyond the direct map");
    ptr::with_exposed_provenance_mut((DIRECT_BASE + pa.0) as usize)
}

static IMAGE_PA: Once<u64> = Once::new();

/// Physical address of a byte of the image, by its link address.
pub fn image_pa(va: u64) -> Pa {
    let base = IMAGE_PA.get().copied().unwrap_or(0);
    Pa(va - IMAGE_BASE + base)
}

/// Physical address of kernel data that may be handed to a device or another cell: the direct
/// map (heap, frames) or the image (statics); `None` elsewhere (stacks).
pub fn pa_of(at: *const u8) -> Option<Pa> {
    let va = at.addr() as u64;
    if (DIRECT_BASE..DIRECT_BASE + DIRECT_SIZE).contains(&va) {
        Some(Pa(va - DIRECT_BASE))
    } else if va >= IMAGE_BASE {
        Some(image_pa(va))
    } else {
        None
    }
}

/// The bytes of the frame at `pa`, for the time of `f`.
///
/// # Safety
/// Nobody else may write the frame meanwhile, nor may Rust code hold a reference into it.
pub unsafe fn with_frame<R>(pa: Pa, f: impl FnOnce(&mut [u8; PAGE as usize]) -> R) -> R {
    assert!(pa.0.is_multiple_of(PAGE) && pa.0 < DIRECT_SIZE);
    // SAFETY: the caller's promise; the direct map covers the frame.
    f(unsafe { &mut *direct(pa).cast() })
}

/// Words of a page that other cells read.
pub type Page = [AtomicU64; PAGE as usize / 8];

/// The page `offset` bytes from the start of the cell's DRAM: one of those below the image, which
/// nobody allocates. Other cells may read it at any time, so it is words, never bytes.
pub fn published(offset: u64) -> &'static Page {
    use hive_platform::map::KERNEL_OFFSET;
    assert!(offset.is_multiple_of(PAGE) && offset >= KERNEL_OFFSET / 2 && offset < KERNEL_OFFSET);
    let image = IMAGE_PA.get().copied().unwrap_or(KERNEL_OFFSET);
    // SAFETY: the upper half of what lies below the image is above any firmware, in the direct
    // map, in no range given to an allocator, and reached through here only, as atomics.
    unsafe { &*direct(Pa(image - KERNEL_OFFSET + offset)).cast() }
}

/// A run of physical memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte, on a page boundary.
    pub start: Pa,
    /// One past the last byte, on a page boundary.
    pub end: Pa,
    /// Node that owns it.
    pub node: usize,
}

/// Gives frames to this crate (page tables, stacks) once early boot is over.
pub trait FrameSource: Sync {
    /// A local frame for kernel use, contents unspecified.
    fn alloc(&self) -> Option<Pa>;
    /// Takes a frame back.
    fn free(&self, frame: Pa);
    /// `frames` adjacent local frames for the kernel heap, which keeps them; `None` if there is
    /// no such run.
    fn alloc_run(&self, frames: usize) -> Option<Pa>;
}

enum Frames {
    None,
    Early { ranges: [Option<Range>; EARLY_RANGES] },
    Source(&'static dyn FrameSource),
}

/// Most ranges of free memory at boot: one for each node, and a few holes.
const EARLY_RANGES: usize = 80;

static FRAMES: SpinLock<Frames> = SpinLock::ranked(rank::FRAMES, Frames::None);

unsafe extern "C" {
    static __image_end: u8;
}

/// Bytes of the image in memory.
pub(crate) fn image_size() -> u64 {
    // SAFETY: the address of a symbol.
    (&raw const __image_end).addr() as u64 - IMAGE_BASE
}

/// Finds the free memory of this cell and grows the heap to its first size.
pub(crate) fn init_early(image: Pa, machine: &Machine) {
    assert!(IMAGE_PA.set(image.0).is_ok());
    let image_end = Pa((image.0 + image_size()).next_multiple_of(PAGE));
    let mut holes: Vec<(Pa, Pa)> = machine.reserved.clone();
    holes.push((image, image_end));
    let mut ranges = [const { None }; EARLY_RANGES];
    let mut used = 0;
    for memory in machine.memory.iter().filter(|m| machine.cell_nodes.contains(&m.node)) {
        let mut at = memory.start;
        // Below the image is what the firmware may still use.
        if (memory.start..memory.end).contains(&image) {
            at = image;
        }
        while at < memory.end {
            if let Some(&(_, end)) = holes.iter().find(|&&(s, e)| (s..e).contains(&at)) {
                at = Pa(end.0.next_multiple_of(PAGE));
                continue;
            }
            let end = holes.iter().map(|h| h.0).filter(|&s| s > at).min();
            let end = Pa(end.unwrap_or(memory.end).min(memory.end).0 / PAGE * PAGE);
            if at < end && used < EARLY_RANGES {
                ranges[used] = Some(Range { start: at, end, node: memory.node });
                used += 1;
            }
            at = if at < end { end } else { Pa(at.0 + PAGE) };
        }
    }
    // The boot node's memory first: kernel data is always local.
    let boot_node =
        ranges.iter().position(|r| r.is_some_and(|r| r.end > image && r.start >= image));
    ranges.swap(0, boot_node.unwrap_or(0));
    *FRAMES.lock() = Frames::Early { ranges };
    let heap = machine.cell_memory() / HEAP_SHARE + HEAP_MIN;
    let frames = (heap / PAGE) as usize;
    match alloc_run(frames) {
        // SAFETY: the run is ours from now on.
        Ok(run) => unsafe { HEAP.claim(direct(run), frames * PAGE as usize) },
        Err(NoMemory) => panic!("no room for a kernel heap of {heap} bytes"),
    }
}

/// The heap starts with this share of the cell's memory, twice what the page-frame table takes
/// (which is made before the heap can grow), and ..
const HEAP_SHARE: u64 = 32;
/// .. this much more.
const HEAP_MIN: u64 = 1 << 20;

/// Ends early boot: the ranges of free memory, which now belong to the caller.
pub fn hand_over(source: &'static dyn FrameSource, accept: impl FnOnce(Vec<Range>)) {
    let ranges = match &mut *FRAMES.lock() {
        Frames::Early { ranges } => core::mem::replace(ranges, [const { None }; EARLY_RANGES]),
        _ => panic!("memory is handed over already"),
    };
    accept(ranges.into_iter().flatten().filter(|r| r.start < r.end).collect());
    *FRAMES.lock() = Frames::Source(source);
}

/// A frame for kernel use, contents unspecified.
pub fn alloc_frame() -> Result<Pa, NoMemory> {
    alloc_run(1)
}

fn alloc_run(frames: usize) -> Result<Pa, NoMemory> {
    let source = match &mut *FRAMES.lock() {
        Frames::None => return Err(NoMemory),
        Frames::Early { ranges } => {
            let bytes = frames as u64 * PAGE;
            let mut fits = ranges.iter_mut().flatten().filter(|r| r.end.0 - r.start.0 >= bytes);
            let range = fits.next().ok_or(NoMemory)?;
            let at = range.start;
            range.start = Pa(at.0 + bytes);
            return Ok(at);
        }
        Frames::Source(source) => *source,
    };
    let found = if frames == 1 { source.alloc() } else { source.alloc_run(frames) };
    found.ok_or(NoMemory)
}

/// A cleared frame for kernel use.
pub fn alloc_zeroed() -> Result<Pa, NoMemory> {
    let frame = alloc_frame()?;
    // SAFETY: the frame was free and is ours.
    unsafe { with_frame(frame, |bytes| bytes.fill(0)) };
    Ok(frame)
}

/// Gives back a frame from [`alloc_frame`].
pub fn free_frame(frame: Pa) {
    let source = match &*FRAMES.lock() {
        Frames::Source(source) => *source,
        _ => return, // early frames are few; they stay with the kernel
    };
    source.free(frame);
}

// ---- heap ----

/// Bytes the heap has before memory is known: enough to read any device tree.
const FIRST_HEAP: usize = 256 << 10;
#[repr(C, align(4096))]
struct FirstHeap([u8; FIRST_HEAP]);
static mut FIRST: FirstHeap = FirstHeap([0; FIRST_HEAP]);

/// Frames the heap asks for at a time when it grows.
const GROW_FRAMES: usize = 64;

#[derive(Debug)]
struct Grow;

// SAFETY: `acquire` allocates frames, never from this heap.
unsafe impl Source for Grow {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let need = (layout.size() + layout.align()) as u64 + PAGE;
        let frames = (need.div_ceil(PAGE) as usize).max(GROW_FRAMES);
        let run = alloc_run(frames).map_err(drop)?;
        // SAFETY: the run is ours from now on.
        unsafe { talc.claim(direct(run), frames * PAGE as usize) }.map(drop).ok_or(())
    }
}

struct Heap(SpinLock<Talc<Grow, talc::DefaultBinning>>);

impl Heap {
    /// # Safety
    /// The memory must be nobody else's, for ever.
    unsafe fn claim(&self, at: *mut u8, size: usize) {
        // SAFETY: the caller's promise.
        let _ = unsafe { self.0.lock().claim(at, size) };
    }
}

#[global_allocator]
static HEAP: Heap = Heap(SpinLock::ranked(rank::HEAP, Talc::new(Grow)));

// SAFETY: talc keeps the contract of GlobalAlloc; the lock keeps callers apart.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is not of size zero.
        let got = unsafe { self.0.lock().allocate(layout) };
        got.map_or(ptr::null_mut(), |p| p.as_ptr())
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` with this layout.
        unsafe { self.0.lock().deallocate(at, layout) }
    }
}

pub(crate) fn init_heap() {
    // SAFETY: FIRST is used for nothing else; this runs once.
    unsafe { HEAP.claim((&raw mut FIRST).cast(), FIRST_HEAP) };
}
