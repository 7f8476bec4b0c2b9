//! An inode in memory: the object the page cache caches, and its attributes.
//!
//! Locks, in this order: `rw` (writers, truncation, directory changes; held while the page cache
//! or a user's memory is touched), `raw` (attributes and block map; held by [`Pager`] methods,
//! never while file pages are touched). `size` is written under `rw` only and read freely.
//!
//! The inode on the disk is rewritten (in the cache) at the end of every change, so the table is
//! right whenever no `raw` is held. Access times are not kept (noatime).

use super::disk::RawInode;
use super::{Ext2, map};
use crate::abi::{Attr, FileType};
use crate::block::{SECTOR, Segment};
use crate::errno::{Errno, Result};
use crate::vnode::{SetAttr, SetTime, VnodeId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use hive_sync::{AtomicU32, AtomicU64, Mutex, SpinLock, rank};
use hive_vm::{Error, Frame, PAGE_SIZE, Pager, PhysMem, Source, Tag};

/// A live inode.
pub struct Inode {
    pub(super) fs: Arc<Ext2>,
    pub(super) ino: u32,
    pub(super) kind: FileType,
    pub(super) generation: u32,
    pub(super) rw: Mutex<()>,
    pub(super) raw: Mutex<RawInode>,
    /// Names looked up in this directory: inode numbers, 0 for "no such name". Changed under `rw`
    /// only; a leaf.
    pub(super) names: SpinLock<BTreeMap<Box<[u8]>, u32>>,
    size: AtomicU64,
    data_generation: AtomicU32,
    me: Weak<Inode>,
}

impl Inode {
    pub(super) fn new(
        fs: Arc<Ext2>,
        ino: u32,
        kind: FileType,
        raw: RawInode,
        size: u64,
        data_generation: u32,
    ) -> Arc<Inode> {
        Arc::new_cyclic(|me| Inode {
            fs,
            ino,
            kind,
            generation: raw.generation,
            rw: Mutex::new(()),
            raw: Mutex::new(raw),
            names: SpinLock::ranked(rank::FILE, BTreeMap::new()),
            size: AtomicU64::new(size),
            data_generation: AtomicU32::new(data_generation),
            me: me.clone(),
        })
    }

    /// Its name in the machine.
    pub fn vnode_id(&self) -> VnodeId {
        VnodeId { fs: self.fs.id, ino: self.ino as u64, generation: self.generation }
    }

    pub(super) fn pager_ref(&self) -> Arc<dyn Pager> {
        self.me.upgrade().expect("an inode that is used lives in its Arc")
    }

    pub(super) fn length(&self) -> u64 {
        self.size.load()
    }

    pub(super) fn damage_count(&self) -> u32 {
        self.data_generation.load()
    }

    /// Writes the inode into the table.
    pub(super) fn store(&self, raw: &RawInode) -> Result<()> {
        self.fs.store_inode(self.ino, raw, self.length(), false)
    }

    /// Changes attributes under the lock, with ctime, and stores them.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut RawInode) -> T) -> Result<T> {
        let mut raw = self.raw.lock();
        let result = change(&mut raw);
        raw.ctime = self.fs.clock.now();
        self.store(&raw)?;
        Ok(result)
    }

    /// Notes a change of the data: mtime and ctime.
    pub(super) fn touch(&self) -> Result<()> {
        let now = self.fs.clock.now();
        self.update(|raw| raw.mtime = now)
    }

    pub(super) fn attributes(&self) -> Attr {
        let raw = self.raw.lock();
        let device = matches!(self.kind, FileType::Char | FileType::Block);
        Attr {
            dev: self.fs.id.dev(),
            ino: self.ino as u64,
            kind: self.kind,
            perm: raw.mode as u32 & crate::abi::mode::PERM,
            nlink: raw.links as u32,
            uid: raw.uid,
            gid: raw.gid,
            rdev: if device { decode_rdev(&raw) } else { 0 },
            size: self.length(),
            blocks: raw.blocks,
            blksize: 4096,
            atime: raw.atime,
            mtime: raw.mtime,
            ctime: raw.ctime,
        }
    }

    pub(super) fn change(&self, set: &SetAttr) -> Result<()> {
        self.fs.modify()?;
        if let Some(size) = set.size {
            if self.kind != FileType::Regular {
                return Err(Errno::EINVAL);
            }
            self.resize(size)?;
        }
        let now = self.fs.clock.now();
        let time = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::To(t) => t,
        };
        self.update(|raw| {
            if let Some(perm) = set.perm {
                raw.mode = (self.kind.mode() | perm & crate::abi::mode::PERM) as u16;
            }
            raw.uid = set.uid.unwrap_or(raw.uid);
            raw.gid = set.gid.unwrap_or(raw.gid);
            raw.atime = set.atime.map_or(raw.atime, time);
            raw.mtime = set.mtime.map_or(raw.mtime, time);
        })
    }

    fn resize(&self, size: u64) -> Result<()> {
        if size > map::max_size(&self.fs) {
            return Err(Errno::EFBIG);
        }
        let _rw = self.rw.lock();
        if size < self.length() {
            self.shrink(size)?;
        }
        self.size.store(size);
        self.touch()
    }

    /// Cuts the file; `rw` is held.
    fn shrink(&self, size: u64) -> Result<()> {
        let (pager, cache) = (self.pager_ref(), self.fs.cache());
        // The rest of the last page must be zero on the disk too: the file may grow again.
        let last = match size % PAGE_SIZE as u64 {
            0 => None,
            _ => Some(cache.page(&pager, size / PAGE_SIZE as u64)?),
        };
        self.size.store(size);
        cache.truncate(&pager, size);
        if let Some(page) = last {
            cache.mark_dirty(&pager, &page);
        }
        let mut raw = self.raw.lock();
        let result = map::truncate(&self.fs, &mut raw, size.div_ceil(self.fs.block_size() as u64));
        self.store(&raw)?;
        result
    }

    /// Makes blocks for `at..at + len`; true if one was made. The caller holds a reference to the
    /// pages concerned, valid, and marks them dirty: a new block's bytes are rubbish.
    fn make_blocks(&self, at: u64, len: usize) -> Result<bool> {
        let bs = self.fs.block_size() as u64;
        let mut raw = self.raw.lock();
        let mut made = false;
        for n in at / bs..(at + len as u64).div_ceil(bs) {
            made |= map::lookup_or_make(&self.fs, &mut raw, self.ino, n)?.1;
        }
        Ok(made)
    }

    /// Writes through the page cache at `offset`; `rw` is held. Answers the bytes written; an
    /// error only if there are none. Stores the inode.
    pub(super) fn write_pages(&self, offset: u64, source: &mut dyn Source) -> Result<usize> {
        let room = map::max_size(&self.fs).checked_sub(offset).ok_or(Errno::EFBIG)?;
        let want = source.remaining().min(usize::try_from(room).unwrap_or(usize::MAX));
        if want == 0 && source.remaining() > 0 {
            return Err(Errno::EFBIG);
        }
        let (mut done, mut failed) = (0, None);
        while done < want {
            let at = offset + done as u64;
            let len = (PAGE_SIZE - (at % PAGE_SIZE as u64) as usize).min(want - done);
            match self.write_page(at, &mut Part { inner: source, left: len }) {
                Ok(n) if n < len => {
                    done += n;
                    break;
                }
                Ok(n) => done += n,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        if done < want {
            // Blocks were made for bytes that never came: those behind the end must go.
            let mut raw = self.raw.lock();
            let keep = self.length().div_ceil(self.fs.block_size() as u64);
            map::truncate(&self.fs, &mut raw, keep)?;
        }
        self.touch()?;
        match failed {
            Some(e) if done == 0 => Err(e),
            _ => Ok(done),
        }
    }

    fn write_page(&self, at: u64, source: &mut Part<'_>) -> Result<usize> {
        let (pager, cache) = (self.pager_ref(), self.fs.cache());
        // First the page, then its blocks: filled after they were made, it would show rubbish.
        let page = cache.page(&pager, at / PAGE_SIZE as u64)?;
        let made = self.make_blocks(at, source.left);
        if !matches!(made, Ok(false)) {
            cache.mark_dirty(&pager, &page);
        }
        made?;
        Ok(cache.write(&pager, at, source)?)
    }

    /// Runs `transfer(first disk sector, segments)` over the blocks of `frames`, pages `index`
    /// and following, joined where they lie in a row on the disk; holes go to `hole`.
    fn transfer(
        &self,
        index: u64,
        frames: &[Frame],
        end: u64,
        mut hole: impl FnMut(Segment),
        mut transfer: impl FnMut(u64, &[Segment]) -> Result<()>,
    ) -> Result<()> {
        let bs = self.fs.block_size();
        let per_page = (PAGE_SIZE / bs) as u64;
        let mut run: alloc::vec::Vec<Segment> = alloc::vec::Vec::new();
        let (mut start, mut next) = (0, 0);
        let blocks = frames.len() as u64 * per_page;
        for i in 0..blocks {
            let n = index * per_page + i;
            let Some(&frame) = frames.get((i / per_page) as usize) else { break };
            let part = Segment { frame, offset: (i % per_page) as usize * bs, len: bs };
            let inside = n * (bs as u64) < end;
            let block = match inside {
                true => map::lookup(&self.fs, &self.raw.lock(), n)?,
                false => 0,
            };
            if (block == 0 || block != next) && !run.is_empty() {
                transfer(start as u64 * (bs / SECTOR) as u64, &run)?;
                run.clear();
            }
            if block == 0 {
                hole(part);
                continue;
            }
            if run.is_empty() {
                start = block;
            }
            next = block + 1;
            match run.last_mut() {
                Some(l) if l.frame == frame && l.offset + l.len == part.offset => l.len += bs,
                _ => run.push(part),
            }
        }
        if !run.is_empty() {
            transfer(start as u64 * (bs / SECTOR) as u64, &run)?;
        }
        Ok(())
    }
}

impl Pager for Inode {
    fn tag(&self) -> Tag {
        self.fs.tag_of(self.ino, self.data_generation.load())
    }
    fn size(&self) -> u64 {
        self.size.load()
    }
    fn page_in(&self, index: u64, frames: &[Frame]) -> core::result::Result<(), Error> {
        let phys = self.fs.cache().memory().phys();
        let size = self.length();
        let hole = |s: Segment| phys.zero(s.frame, s.offset, s.len);
        let device = &self.fs.meta.disk.device;
        let result = self.transfer(index, frames, size, hole, |at, to| device.read(at, to));
        // The disk may hold anything behind the end: a page shows zeroes there.
        let last = (size / PAGE_SIZE as u64).checked_sub(index);
        if let Some(frame) = last.and_then(|i| frames.get(i as usize)) {
            let within = (size % PAGE_SIZE as u64) as usize;
            phys.zero(*frame, within, PAGE_SIZE - within);
        }
        result.map_err(|_| Error::Io)
    }
    fn page_out(&self, index: u64, frames: &[Frame]) -> core::result::Result<(), Error> {
        let device = &self.fs.meta.disk.device;
        // A dirty page's holes are all zeroes: blocks are made before bytes are written.
        let result =
            self.transfer(index, frames, self.length(), |_| (), |at, from| device.write(at, from));
        result.map_err(|_| Error::Io)
    }
    fn prepare_write(&self, offset: u64, len: usize) -> core::result::Result<(), Error> {
        let end = (offset + len as u64).min(self.length());
        let mut at = offset;
        let prepare = |at: u64, len: usize| {
            self.fs.modify()?;
            let (pager, cache) = (self.pager_ref(), self.fs.cache());
            let page = cache.page(&pager, at / PAGE_SIZE as u64)?;
            if self.make_blocks(at, len)? {
                cache.mark_dirty(&pager, &page);
            }
            self.touch()
        };
        while at < end {
            let len = (PAGE_SIZE as u64 - at % PAGE_SIZE as u64).min(end - at);
            prepare(at, len as usize).map_err(|e: Errno| match e {
                Errno::ENOSPC => Error::NoSpace,
                Errno::ENOMEM => Error::NoMemory,
                _ => Error::Io,
            })?;
            at += len;
        }
        Ok(())
    }
    fn extend(&self, end: u64) {
        // Only the holder of `rw` comes here.
        if end > self.size.load() {
            self.size.store(end);
        }
    }
    fn discarded(&self) {
        let now = self.data_generation.fetch_add(1) + 1;
        self.fs.note_damage(self.ino, now);
    }
}

impl Drop for Inode {
    /// Never sleeps: an inode without a name is put on the list of those to be freed.
    fn drop(&mut self) {
        let raw = core::mem::take(self.raw.get_mut());
        self.fs.inode_dropped(self.ino, self.kind, raw);
    }
}

/// At most `left` bytes of a source.
struct Part<'a> {
    inner: &'a mut dyn Source,
    left: usize,
}

impl Source for Part<'_> {
    fn remaining(&self) -> usize {
        self.left.min(self.inner.remaining())
    }
    fn get(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let n = self.inner.get(mem, frame, offset, len);
        self.left = self.left.saturating_sub(n);
        n
    }
}

/// The device number of a device file: the old 16-bit form, or the new one behind it.
fn decode_rdev(raw: &RawInode) -> u64 {
    let [old, new, ..] = raw.block;
    match old {
        0 => crate::abi::makedev(new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xfff00),
        _ => crate::abi::makedev(old >> 8 & 0xff, old & 0xff),
    }
}

/// Writes a device number in the new form.
pub(super) fn encode_rdev(raw: &mut RawInode, rdev: u64) {
    let (major, minor) = (crate::abi::dev_major(rdev), crate::abi::dev_minor(rdev));
    raw.block[1] = minor & 0xff | major << 8 | (minor & !0xff) << 12;
}
