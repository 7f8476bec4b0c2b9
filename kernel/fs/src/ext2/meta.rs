//! Metadata blocks: bitmaps, inode tables, indirect blocks, descriptors, read and changed in the
//! page cache as pages of the device ([`hive_vm::Kind::Device`]).
//!
//! Invariant: the blocks in `dirty`, and no others, are written back. A page of the device may
//! also show blocks of file data (of 1 KB blocks, four share a page; of any size, a freed
//! metadata block becomes data): those bytes are stale, never read and never written.
//!
//! No write here waits for write-back of other objects, so file system locks may be held.

use crate::block::{BlockDevice, SECTOR, Segment};
use crate::errno::{Errno, Result};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use hive_sync::{SpinLock, rank};
use hive_vm::cache::Cache;
use hive_vm::{Error, Frame, Kind, PAGE_SIZE, Pager, Tag};

/// The device as an object of the page cache.
pub struct Disk {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) cache: Arc<Cache>,
    tag: Tag,
    block_size: usize,
    blocks: u32,
    dirty: SpinLock<BTreeSet<u32>>,
}

impl Disk {
    /// The device under a file system of `blocks` blocks; `object` names it in the cache.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        cache: Arc<Cache>,
        object: u64,
        block_size: usize,
        blocks: u32,
    ) -> Disk {
        let tag = Tag { home: cache.memory().cell(), kind: Kind::Device, object, generation: 0 };
        let dirty = SpinLock::ranked(rank::FILE, BTreeSet::new());
        Disk { device, cache, tag, block_size, blocks, dirty }
    }

    fn whole_pages(&self, sector: u64, frames: &[Frame]) -> Result<()> {
        let mut segments = [Segment { frame: Frame(0), offset: 0, len: 0 }; 16];
        let mut sector = sector;
        for run in frames.chunks(segments.len()) {
            let mut used = 0;
            let first = sector;
            for (frame, s) in run.iter().zip(segments.iter_mut()) {
                let left = self.device.sectors().saturating_sub(sector) as usize;
                let len = PAGE_SIZE.min(left.saturating_mul(SECTOR));
                self.cache.memory().phys().zero(*frame, len, PAGE_SIZE - len);
                if len > 0 {
                    *s = Segment { frame: *frame, offset: 0, len };
                    used += 1;
                }
                sector += (PAGE_SIZE / SECTOR) as u64;
            }
            if let Some(s) = segments.get(..used).filter(|s| !s.is_empty()) {
                self.device.read(first, s)?;
            }
        }
        Ok(())
    }
}

impl Pager for Disk {
    fn tag(&self) -> Tag {
        self.tag
    }
    fn size(&self) -> u64 {
        self.device.sectors() * SECTOR as u64
    }
    fn page_in(&self, index: u64, frames: &[Frame]) -> core::result::Result<(), Error> {
        let sector = index * (PAGE_SIZE / SECTOR) as u64;
        self.whole_pages(sector, frames).map_err(|_| Error::Io)
    }
    fn page_out(&self, index: u64, frames: &[Frame]) -> core::result::Result<(), Error> {
        let per_page = PAGE_SIZE / self.block_size;
        let mut result = Ok(());
        for (i, frame) in frames.iter().enumerate() {
            let first = (index + i as u64) * per_page as u64;
            for k in 0..per_page {
                let Ok(block) = u32::try_from(first + k as u64) else { continue };
                // Taken off before the transfer: a change during it puts the block back.
                if !self.dirty.lock().remove(&block) {
                    continue;
                }
                let (offset, len) = (k * self.block_size, self.block_size);
                let sector = block as u64 * (self.block_size / SECTOR) as u64;
                if self.device.write(sector, &[Segment { frame: *frame, offset, len }]).is_err() {
                    self.dirty.lock().insert(block);
                    result = Err(Error::Io);
                }
            }
        }
        result
    }
    fn extend(&self, _end: u64) {}
    fn discarded(&self) {}
}

/// Access to metadata.
pub struct Metadata {
    pub(super) disk: Arc<Disk>,
    pager: Arc<dyn Pager>,
}

impl Metadata {
    /// Access through `disk`.
    pub fn new(disk: Arc<Disk>) -> Metadata {
        Metadata { pager: disk.clone(), disk }
    }

    fn place(&self, block: u32, offset: usize, len: usize) -> Result<(u64, usize)> {
        let d = &self.disk;
        if block >= d.blocks || offset.checked_add(len).is_none_or(|end| end > d.block_size) {
            return Err(Errno::EUCLEAN);
        }
        let byte = block as u64 * d.block_size as u64 + offset as u64;
        Ok((byte / PAGE_SIZE as u64, (byte % PAGE_SIZE as u64) as usize))
    }

    /// Reads bytes of a block; `EUCLEAN` if there is no such block.
    pub fn read(&self, block: u32, offset: usize, buf: &mut [u8]) -> Result<()> {
        let (index, at) = self.place(block, offset, buf.len())?;
        let page = self.disk.cache.page(&self.pager, index)?;
        self.disk.cache.memory().phys().read(page.frame(), at, buf);
        Ok(())
    }

    /// Changes bytes of a block.
    pub fn write(&self, block: u32, offset: usize, data: &[u8]) -> Result<()> {
        let (index, at) = self.place(block, offset, data.len())?;
        let page = self.disk.cache.page(&self.pager, index)?;
        self.disk.cache.memory().phys().write(page.frame(), at, data);
        self.disk.dirty.lock().insert(block);
        self.disk.cache.mark_dirty(&self.pager, &page);
        Ok(())
    }

    /// Makes a block all zeroes: it is metadata from now on.
    pub fn zero(&self, block: u32) -> Result<()> {
        let (index, at) = self.place(block, 0, self.disk.block_size)?;
        let page = self.disk.cache.page(&self.pager, index)?;
        self.disk.cache.memory().phys().zero(page.frame(), at, self.disk.block_size);
        self.disk.dirty.lock().insert(block);
        self.disk.cache.mark_dirty(&self.pager, &page);
        Ok(())
    }

    /// The block is not metadata any more: it is not written from now on, and a write under way
    /// is over when this returns.
    pub fn forget(&self, block: u32) {
        self.disk.dirty.lock().remove(&block);
        let Ok((index, _)) = self.place(block, 0, 0) else { return };
        if let Some(page) = self.disk.cache.page_now(&self.pager, index) {
            page.wait_written();
        }
    }

    /// Reads a block pointer out of an indirect block.
    pub fn pointer(&self, block: u32, index: usize) -> Result<u32> {
        let mut b = [0; 4];
        self.read(block, index * 4, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    /// Writes everything dirty to the disk and flushes the disk's own cache.
    pub fn sync(&self) -> Result<()> {
        self.disk.cache.sync(&self.pager)?;
        self.disk.device.flush()
    }
}
