//! The bytes of page frames, and the disk that moves them: what `hive-vm` and `hive-fs` ask of
//! the hardware, over the HAL's direct map.
//!
//! One of the few unsafe places of this crate. What makes it sound: the frames named here are
//! those that [`hive_hal::memory::hand_over`] gave to the page frame table, or that the table
//! knows as someone's; no Rust reference into them exists, so copies in and out can race only
//! with user programs and devices, and bytes have no invalid values.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr;
use hive_fs::block::{BlockDevice, Segment};
use hive_fs::errno::{Errno, Result};
use hive_hal::memory::{self, FrameSource, Pa};
use hive_hal::uaccess;
use hive_hal::virtio_blk::{Disk, Op, PIECES};
use hive_sync::Once;
use hive_vm::{CellNumber, Frame, Memory, PAGE_SIZE, PhysMem, Use};

/// The direct map as `hive-vm` sees it.
struct DirectMap;

fn bytes(frame: Frame, offset: usize, len: usize) -> *mut u8 {
    assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset, "a copy leaves its frame");
    // In bounds of the direct map by the table's own frame numbers.
    memory::direct(Pa(frame.address() + offset as u64))
}

impl PhysMem for DirectMap {
    fn read(&self, frame: Frame, offset: usize, dst: &mut [u8]) {
        // SAFETY: see the module; the length was checked and `dst` is ours.
        unsafe {
            ptr::copy_nonoverlapping(bytes(frame, offset, dst.len()), dst.as_mut_ptr(), dst.len())
        }
    }
    fn write(&self, frame: Frame, offset: usize, src: &[u8]) {
        // SAFETY: see the module; the length was checked and `src` is not in a frame of the table.
        unsafe {
            ptr::copy_nonoverlapping(src.as_ptr(), bytes(frame, offset, src.len()), src.len())
        }
    }
    fn zero(&self, frame: Frame, offset: usize, len: usize) {
        // SAFETY: see the module; the length was checked.
        unsafe { ptr::write_bytes(bytes(frame, offset, len), 0, len) }
    }
    fn copy(&self, from: Frame, to: Frame) {
        if from != to {
            // SAFETY: see the module; two frames do not overlap.
            unsafe {
                ptr::copy_nonoverlapping(
                    bytes(from, 0, PAGE_SIZE),
                    bytes(to, 0, PAGE_SIZE),
                    PAGE_SIZE,
                )
            }
        }
    }
}

/// Copies bytes of a cached page, to which the caller holds a reference, to user memory.
pub fn to_user(frame: Frame, offset: usize, at: u64, len: usize) -> Result<()> {
    assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset, "a copy leaves its frame");
    // SAFETY: see the module; the length was checked, and the caller's reference keeps the frame.
    unsafe { uaccess::copy_frame_to_user(at, Pa(frame.address() + offset as u64), len) }
        .map_err(|_| Errno::EFAULT)
}

/// Copies user memory to bytes of a cached page, to which the caller holds a reference.
pub fn from_user(frame: Frame, offset: usize, at: u64, len: usize) -> Result<()> {
    assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset, "a copy leaves its frame");
    // SAFETY: as above; the kernel has no references into pages, only copies.
    unsafe { uaccess::copy_frame_from_user(Pa(frame.address() + offset as u64), at, len) }
        .map_err(|_| Errno::EFAULT)
}

static MEMORY: Once<Arc<Memory>> = Once::new();

/// The cell's memory. Panics before [`take_over`].
pub fn memory() -> &'static Arc<Memory> {
    MEMORY.get().expect("memory is taken over at boot")
}

/// Gives frames of the page frame table to the HAL: page tables, stacks, heap.
struct Source;

impl FrameSource for Source {
    fn alloc(&self) -> Option<Pa> {
        let frame = memory().allocate_kernel(Use::Kernel).ok()?;
        Some(Pa(frame.address()))
    }
    fn free(&self, frame: Pa) {
        memory().free_kernel(Frame::containing(frame.0), 1);
    }
    fn alloc_run(&self, frames: usize) -> Option<Pa> {
        memory().allocate_contiguous(frames).ok().map(|f| Pa(f.address()))
    }
}

/// Makes the page frame table over all memory that early boot left. Once.
pub fn take_over(cell: usize) {
    let mut ranges = Vec::new();
    memory::hand_over(&Source, |free| {
        ranges = free;
        let usable: Vec<_> = ranges
            .iter()
            .map(|r| Frame::containing(r.start.0)..Frame::containing(r.end.0))
            .collect();
        let first = usable.iter().map(|r| r.start).min().expect("a cell has memory");
        let end = usable.iter().map(|r| r.end).max().expect("a cell has memory");
        let count = (end.0 - first.0) as usize;
        let cell = CellNumber(cell as u16);
        let table = Memory::new(cell, first, count, &usable, alloc::boxed::Box::new(DirectMap));
        assert!(MEMORY.set(Arc::new(table)).is_ok(), "memory is taken over once");
    });
}

/// A disk as `hive-fs` sees it.
pub struct BlockDisk(pub &'static Disk);

impl BlockDisk {
    fn move_all(&self, op: Op, mut sector: u64, segments: &[Segment]) -> Result<()> {
        for group in segments.chunks(PIECES) {
            let mut pieces = [(Pa(0), 0u32); PIECES];
            let mut bytes = 0;
            for (piece, s) in pieces.iter_mut().zip(group) {
                if s.offset > PAGE_SIZE || s.len > PAGE_SIZE - s.offset {
                    return Err(Errno::EIO);
                }
                *piece = (Pa(s.frame.address() + s.offset as u64), s.len as u32);
                bytes += s.len as u64;
            }
            // SAFETY: the caller of a read owns the frames until it returns (they are busy in
            // the page cache); see the module for the rest.
            unsafe { self.0.transfer(op, sector, &pieces[..group.len()]) }
                .map_err(|_| Errno::EIO)?;
            sector += bytes / hive_fs::block::SECTOR as u64;
        }
        Ok(())
    }
}

impl BlockDevice for BlockDisk {
    fn sectors(&self) -> u64 {
        self.0.sectors()
    }
    fn read(&self, sector: u64, to: &[Segment]) -> Result<()> {
        self.move_all(Op::Read, sector, to)
    }
    fn write(&self, sector: u64, from: &[Segment]) -> Result<()> {
        self.move_all(Op::Write, sector, from)
    }
    fn flush(&self) -> Result<()> {
        // SAFETY: a flush moves no bytes.
        unsafe { self.0.transfer(Op::Flush, 0, &[]) }.map_err(|_| Errno::EIO)
    }
}
