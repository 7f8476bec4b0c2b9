//! A file of a tmpfs: attributes, kept pages, and the vnode.

use super::TmpFs;
use crate::abi::{Attr, FileType, NAME_MAX, PATH_MAX, Time, mode::S_ISGID};
use crate::errno::{Errno, Result};
use crate::file::FileOps;
use crate::io::{ByteSink, ByteSource, PageSink};
use crate::vnode::{
    EmitEntry, FileSystem, NewFile, NewKind, SetAttr, SetTime, Vnode, VnodeId, VnodeRef,
};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use hive_sync::{AtomicU32, AtomicU64, Mutex, SpinLock, rank};
use hive_vm::{Error, Frame, Kind, PAGE_SIZE, Pager, Tag};

/// Longest file: what an `off_t` can say.
const SIZE_MAX: u64 = i64::MAX as u64;

/// A file.
pub struct Node {
    pub(super) fs: Arc<TmpFs>,
    pub(super) ino: u64,
    pub(super) kind: FileType,
    attr: SpinLock<Attr>,
    text: SpinLock<Vec<u8>>,
    size: AtomicU64,
    data_generation: AtomicU32,
    rw: Mutex<()>,
    pages: Mutex<Pages>,
    me: Weak<Node>,
}

/// The pages kept, and the data generation under which they have their names.
#[derive(Default)]
struct Pages {
    generation: u32,
    kept: BTreeMap<u64, Frame>,
}

impl Node {
    pub(super) fn new(
        fs: Arc<TmpFs>,
        ino: u64,
        kind: FileType,
        perm: u32,
        uid: u32,
        gid: u32,
        rdev: u64,
    ) -> Arc<Node> {
        let now = fs.now();
        let mut attr = Attr::bare(fs.id.dev(), ino, kind, perm);
        (attr.uid, attr.gid, attr.rdev) = (uid, gid, rdev);
        (attr.atime, attr.mtime, attr.ctime) = (now, now, now);
        Arc::new_cyclic(|me| Node {
            fs,
            ino,
            kind,
            attr: SpinLock::ranked(rank::FILE, attr),
            text: SpinLock::ranked(rank::FILE, Vec::new()),
            size: AtomicU64::new(0),
            data_generation: AtomicU32::new(0),
            rw: Mutex::new(()),
            pages: Mutex::new(Pages::default()),
            me: me.clone(),
        })
    }

    pub(super) fn count_link(&self, change: i32) {
        let mut attr = self.attr.lock();
        attr.nlink = attr.nlink.saturating_add_signed(change);
    }

    pub(super) fn touch(&self, now: Time) {
        let mut attr = self.attr.lock();
        (attr.mtime, attr.ctime) = (now, now);
    }

    fn pager_ref(&self) -> Arc<dyn Pager> {
        self.me.upgrade().expect("a node that is used lives in its Arc")
    }

    fn tag_at(&self, generation: u32) -> Tag {
        let object = (self.fs.id.0 as u64) << 32 | self.ino & 0xffff_ffff;
        Tag { home: self.fs.cache.memory().cell(), kind: Kind::File, object, generation }
    }

    /// Keeps page `index` in memory: it exists from now on.
    fn keep(&self, index: u64) -> Result<Frame> {
        let page = self.fs.cache.page(&self.pager_ref(), index)?;
        let mut pages = self.pages.lock();
        self.drop_damaged(&mut pages);
        let frame = page.frame();
        if pages.kept.get(&index) == Some(&frame) {
            return Ok(frame);
        }
        self.fs.charge()?;
        if let Some(old) = pages.kept.insert(index, page.keep()) {
            self.fs.release(alloc::vec![old]); // its page had lost its name
        }
        Ok(frame)
    }

    /// After a discard the kept pages have lost their names: they are given back.
    fn drop_damaged(&self, pages: &mut Pages) {
        let now = self.data_generation.load();
        if pages.generation != now {
            for generation in pages.generation..now {
                self.fs.cache.invalidate(self.tag_at(generation));
            }
            pages.generation = now;
            self.fs.release(core::mem::take(&mut pages.kept).into_values().collect());
        }
    }

    fn write_page(&self, at: u64, len: usize, source: &mut dyn ByteSource) -> Result<usize> {
        let frame = self.keep(at / PAGE_SIZE as u64)?;
        let within = (at % PAGE_SIZE as u64) as usize;
        let n = source.get_frame(self.fs.cache.memory().phys(), frame, within, len);
        if n == 0 {
            return Err(Errno::EFAULT);
        }
        self.extend(at + n as u64);
        Ok(n)
    }

    fn resize(&self, size: u64) -> Result<()> {
        if self.kind != FileType::Regular || size > SIZE_MAX {
            return Err(Errno::EINVAL);
        }
        let _rw = self.rw.lock();
        let before = self.size.load();
        self.size.store(size);
        if size < before {
            self.fs.cache.truncate(&self.pager_ref(), size);
            let mut pages = self.pages.lock();
            let gone = pages.kept.split_off(&size.div_ceil(PAGE_SIZE as u64));
            self.fs.release(gone.into_values().collect());
        }
        self.touch(self.fs.now());
        Ok(())
    }

    fn dir(&self) -> Result<()> {
        if self.kind == FileType::Dir { Ok(()) } else { Err(Errno::ENOTDIR) }
    }
}

impl Pager for Node {
    fn tag(&self) -> Tag {
        self.tag_at(self.data_generation.load())
    }
    fn size(&self) -> u64 {
        self.size.load()
    }
    fn page_in(&self, _index: u64, frames: &[Frame]) -> core::result::Result<(), Error> {
        // A page that is not kept was never written.
        let phys = self.fs.cache.memory().phys();
        frames.iter().for_each(|f| phys.zero(*f, 0, PAGE_SIZE));
        Ok(())
    }
    fn page_out(&self, _index: u64, _frames: &[Frame]) -> core::result::Result<(), Error> {
        Ok(()) // pages are kept before they are written
    }
    fn prepare_write(&self, offset: u64, len: usize) -> core::result::Result<(), Error> {
        let page = PAGE_SIZE as u64;
        for index in offset / page..(offset + len as u64).div_ceil(page) {
            self.keep(index).map_err(|e| match e {
                Errno::ENOSPC => Error::NoSpace,
                Errno::ENOMEM => Error::NoMemory,
                _ => Error::Io,
            })?;
        }
        Ok(())
    }
    fn extend(&self, end: u64) {
        if end > self.size.load() {
            self.size.store(end);
        }
    }
    fn discarded(&self) {
        // There is no disk to read again: the file is empty for those who open it from now on.
        self.data_generation.fetch_add(1);
        self.size.store(0);
    }
}

impl Drop for Node {
    /// Never sleeps: the pages are put on the list of those to be given back.
    fn drop(&mut self) {
        let pages = core::mem::take(self.pages.get_mut());
        let frames = pages.kept.into_values().collect();
        self.fs.node_dropped(self.ino, self.tag_at(pages.generation), frames);
    }
}

impl Vnode for Node {
    fn id(&self) -> VnodeId {
        VnodeId { fs: self.fs.id, ino: self.ino, generation: 0 }
    }
    fn kind(&self) -> FileType {
        self.kind
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn getattr(&self) -> Result<Attr> {
        let mut attr = *self.attr.lock();
        attr.size = match self.kind {
            FileType::Symlink => self.text.lock().len() as u64,
            _ => self.size.load(),
        };
        attr.blocks = self.pages.lock().kept.len() as u64 * (PAGE_SIZE as u64 / 512);
        Ok(attr)
    }
    fn setattr(&self, set: &SetAttr) -> Result<()> {
        if let Some(size) = set.size {
            self.resize(size)?;
        }
        let now = self.fs.now();
        let time = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::To(t) => t,
        };
        let mut attr = self.attr.lock();
        attr.perm = set.perm.map_or(attr.perm, |p| p & crate::abi::mode::PERM);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = now;
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<VnodeRef> {
        self.dir()?;
        Ok(self.fs.tree.lock().lookup(self.ino, name)?)
    }
    fn create(&self, name: &[u8], new: &NewFile<'_>) -> Result<VnodeRef> {
        self.dir()?;
        self.fs.reap();
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let (kind, rdev) = match new.kind {
            NewKind::Regular => (FileType::Regular, 0),
            NewKind::Dir => (FileType::Dir, 0),
            NewKind::Symlink(text) if text.len() >= PATH_MAX => return Err(Errno::ENAMETOOLONG),
            NewKind::Symlink(_) => (FileType::Symlink, 0),
            NewKind::Node(kind, rdev) => (kind, rdev),
        };
        let mine = *self.attr.lock();
        let inherit = mine.perm & S_ISGID != 0;
        let perm = new.perm | if inherit && kind == FileType::Dir { S_ISGID } else { 0 };
        let gid = if inherit { mine.gid } else { new.gid };
        let node = self.fs.new_node(kind, perm, new.uid, gid, rdev)?;
        if let NewKind::Symlink(text) = new.kind {
            *node.text.lock() = text.to_vec();
        }
        // The lock is gone before a node that was refused is dropped.
        let entered = self.fs.tree.lock().enter(self.ino, name, node.clone());
        entered.map(|()| node as VnodeRef)
    }
    fn link(&self, name: &[u8], target: VnodeId) -> Result<()> {
        self.dir()?;
        let target = self.fs.node(target)?;
        if target.kind == FileType::Dir {
            return Err(Errno::EPERM);
        }
        let mut tree = self.fs.tree.lock();
        if target.attr.lock().nlink == 0 {
            return Err(Errno::ENOENT);
        }
        tree.enter(self.ino, name, target.clone())?;
        target.count_link(1);
        Ok(())
    }
    fn unlink(&self, name: &[u8]) -> Result<()> {
        self.dir()?;
        let gone = self.fs.tree.lock().remove(self.ino, name, false);
        gone.map(drop)?;
        self.fs.reap();
        Ok(())
    }
    fn rmdir(&self, name: &[u8]) -> Result<()> {
        self.dir()?;
        let gone = self.fs.tree.lock().remove(self.ino, name, true);
        gone.map(drop)
    }
    fn rename(&self, old: &[u8], to: VnodeId, new: &[u8], flags: u32) -> Result<()> {
        self.dir()?;
        let to = self.fs.node(to)?;
        to.dir()?;
        let gone = self.fs.tree.lock().rename(self.ino, old, to.ino, new, flags);
        gone.map(drop)?;
        self.fs.reap();
        Ok(())
    }
    fn readdir(&self, cookie: u64, emit: &mut EmitEntry<'_>) -> Result<()> {
        self.dir()?;
        self.fs.tree.lock().read(self.ino, cookie, emit)
    }
    fn readlink(&self) -> Result<Vec<u8>> {
        match self.kind {
            FileType::Symlink => Ok(self.text.lock().clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn open(&self, open_flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        match self.kind {
            FileType::Fifo => crate::pipe::open_fifo(self.id(), open_flags).map(Some),
            FileType::Char | FileType::Block | FileType::Socket => Err(Errno::ENXIO),
            _ => Ok(None),
        }
    }
    fn read_at(&self, offset: u64, sink: &mut dyn ByteSink) -> Result<usize> {
        match self.kind {
            FileType::Regular => {
                Ok(self.fs.cache.read(&self.pager_ref(), offset, &mut PageSink(sink))?)
            }
            FileType::Dir => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }
    fn write_at(&self, offset: Option<u64>, source: &mut dyn ByteSource) -> Result<(usize, u64)> {
        if self.kind != FileType::Regular {
            return Err(if self.kind == FileType::Dir { Errno::EISDIR } else { Errno::EINVAL });
        }
        self.fs.reap();
        let _rw = self.rw.lock();
        let start = offset.unwrap_or(self.size.load());
        let room = SIZE_MAX.checked_sub(start).ok_or(Errno::EFBIG)?;
        let want = source.left().min(usize::try_from(room).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < want {
            let at = start + done as u64;
            let len = (PAGE_SIZE - (at % PAGE_SIZE as u64) as usize).min(want - done);
            match self.write_page(at, len, source) {
                Ok(n) if n < len => {
                    done += n;
                    break;
                }
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        self.touch(self.fs.now());
        Ok((done, start + done as u64))
    }
    fn pager(self: Arc<Self>) -> Option<Arc<dyn Pager>> {
        (self.kind == FileType::Regular).then_some(self as Arc<dyn Pager>)
    }
    fn data_generation(&self) -> u32 {
        self.data_generation.load()
    }
}
