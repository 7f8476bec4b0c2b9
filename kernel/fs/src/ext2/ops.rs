//! ext2 as vnodes.

use super::disk::{LINK_MAX, POINTERS, RawInode, entry_len};
use super::inode::{Inode, encode_rdev};
use super::{Ext2, dir::Slot};
use crate::abi::{
    Attr, FileType, mode::S_ISGID, rename::RENAME_EXCHANGE, rename::RENAME_NOREPLACE,
};
use crate::errno::{Errno, Result};
use crate::file::FileOps;
use crate::io::{ByteSink, ByteSource, PageSink, PageSource, SliceSource};
use crate::vnode::{EmitEntry, FileSystem, NewFile, NewKind, SetAttr, Vnode, VnodeId, VnodeRef};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Longest text of a symbolic link that lies in the inode.
const FAST_LINK: usize = POINTERS * 4;

/// True if the pointers of the inode are pointers.
pub fn has_blocks(kind: FileType, raw: &RawInode, fs: &Ext2) -> bool {
    let acl = if raw.file_acl != 0 { fs.block_size() as u64 / 512 } else { 0 };
    match kind {
        FileType::Regular | FileType::Dir => true,
        FileType::Symlink => raw.blocks > acl,
        _ => false,
    }
}

impl Inode {
    fn dir(&self) -> Result<()> {
        if self.kind == FileType::Dir { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    /// `ENOENT` in a directory that has been removed.
    fn alive(&self) -> Result<()> {
        if self.raw.lock().links > 0 { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// What an entry names; an entry that names nothing is the disk's fault.
    fn entered(&self, slot: &Slot) -> Result<Arc<Inode>> {
        self.fs.inode(slot.ino).map_err(|e| if e == Errno::ESTALE { Errno::EUCLEAN } else { e })
    }

    /// One name less, or two for a directory (its own `.`).
    fn lose_name(&self) -> Result<()> {
        let dir = self.kind == FileType::Dir;
        let last = self.update(|raw| {
            raw.links = if dir { 0 } else { raw.links.saturating_sub(1) };
            raw.links == 0
        })?;
        if last {
            self.fs.note_orphan(self.ino);
        }
        Ok(())
    }

    fn count_link(&self, change: i16) -> Result<()> {
        self.update(|raw| raw.links = raw.links.saturating_add_signed(change))
    }

    fn make(&self, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        let fs = &self.fs;
        let (kind, rdev) = match new.kind {
            NewKind::Regular => (FileType::Regular, 0),
            NewKind::Dir => (FileType::Dir, 0),
            NewKind::Symlink(_) => (FileType::Symlink, 0),
            NewKind::Node(kind, rdev) => (kind, rdev),
        };
        let dir = kind == FileType::Dir;
        let mine = self.raw.lock().clone();
        let inherit = mine.mode as u32 & S_ISGID != 0;
        let perm = new.perm | if inherit && dir { S_ISGID } else { 0 };
        let now = fs.clock.now();
        let mut raw = RawInode {
            mode: (kind.mode() | perm) as u16,
            uid: new.uid,
            gid: if inherit { mine.gid } else { new.gid },
            links: if dir { 2 } else { 1 },
            generation: {
                let mut live = fs.live.lock();
                live.next_generation = live.next_generation.wrapping_add(1);
                live.next_generation
            },
            atime: now,
            mtime: now,
            ctime: now,
            ..RawInode::default()
        };
        if rdev != 0 {
            encode_rdev(&mut raw, rdev);
        }
        let mut size = 0;
        let text = if let NewKind::Symlink(text) = new.kind { text } else { &[] };
        if text.len() >= crate::abi::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if !text.is_empty() && text.len() < FAST_LINK {
            for (p, part) in raw.block.iter_mut().zip(text.chunks(4)) {
                let mut b = [0; 4];
                b[..part.len()].copy_from_slice(part);
                *p = u32::from_le_bytes(b);
            }
            size = text.len() as u64;
        }
        let ino = fs.space.lock().take_inode(&fs.meta, self.ino, dir)?;
        if fs.is_live(ino) {
            return Err(Errno::EUCLEAN); // the bitmap called a used inode free
        }
        fs.store_inode(ino, &raw, size, true)?;
        let inode = fs.enter(ino, kind, raw, size);
        let filled = match kind {
            FileType::Dir => inode.write_dots(self.ino),
            FileType::Symlink if size == 0 => {
                let _rw = inode.rw.lock();
                let n = inode.write_pages(0, &mut PageSource(&mut SliceSource::new(text)));
                n.and_then(|n| if n == text.len() { Ok(()) } else { Err(Errno::EIO) })
            }
            _ => Ok(()),
        };
        if let Err(e) = filled {
            inode.lose_name()?;
            return Err(e);
        }
        Ok(inode)
    }

    /// Takes the name out and the link off; the victim is no directory, or an empty one.
    fn drop_entry(&self, slot: &Slot, name: &[u8], victim: &Inode) -> Result<()> {
        self.remove(slot, name)?;
        if victim.kind == FileType::Dir {
            self.count_link(-1)?;
        }
        victim.lose_name()
    }

    /// `EINVAL` if the directory `victim` is `self` or one of its ancestors. `rename` is held.
    fn check_not_below(&self, victim: u32) -> Result<()> {
        let mut at = self.me()?;
        // Rubbish may lead in circles: a real tree is no deeper than this.
        for _ in 0..crate::abi::PATH_MAX {
            if at.ino == victim {
                return Err(Errno::EINVAL);
            }
            if at.ino == super::ROOT_INO {
                return Ok(());
            }
            let up = at.find(b"..")?;
            at = at.entered(&up)?;
        }
        Err(Errno::EUCLEAN)
    }

    fn me(&self) -> Result<Arc<Inode>> {
        self.fs.inode(self.ino)
    }

    /// Points `..` of a moved directory at its new parent.
    fn reparent(&self, from: &Inode, to: &Inode) -> Result<()> {
        let up = self.find(b"..")?;
        self.repoint(&up, b"..", to.ino, FileType::Dir)?;
        from.count_link(-1)?;
        to.count_link(1)
    }

    /// What rename does with all locks held.
    fn do_rename(&self, old: &[u8], to: &Inode, new: &[u8], flags: u32) -> Result<()> {
        let same = self.ino == to.ino;
        let from_slot = self.find(old)?;
        let moved = self.entered(&from_slot)?;
        let dir = moved.kind == FileType::Dir;
        let search = to.search(new, entry_len(new.len()))?;
        if dir && !same {
            to.check_not_below(moved.ino)?;
        }
        let Some(slot) = search.found else {
            if flags & RENAME_EXCHANGE != 0 {
                return Err(Errno::ENOENT);
            }
            if dir && !same && to.raw.lock().links >= LINK_MAX {
                return Err(Errno::EMLINK);
            }
            to.insert(&search, new, moved.ino, moved.kind)?;
            // The insertion may have moved our entry's neighbours.
            self.remove(&self.find(old)?, old)?;
            if dir && !same {
                moved.reparent(self, to)?;
            }
            return moved.update(|_| ());
        };
        let target = to.entered(&slot)?;
        if flags & RENAME_NOREPLACE != 0 {
            return Err(Errno::EEXIST);
        }
        if target.ino == moved.ino {
            return Ok(());
        }
        let target_dir = target.kind == FileType::Dir;
        if flags & RENAME_EXCHANGE != 0 {
            if target_dir && !same {
                self.check_not_below(target.ino)?;
            }
            self.repoint(&from_slot, old, target.ino, target.kind)?;
            to.repoint(&slot, new, moved.ino, moved.kind)?;
            if dir && !same {
                moved.reparent(self, to)?;
            }
            if target_dir && !same {
                target.reparent(to, self)?;
            }
            target.update(|_| ())?;
            return moved.update(|_| ());
        }
        match (dir, target_dir) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => {}
        }
        if target.ino == self.ino || target.ino == to.ino {
            return Err(Errno::ENOTEMPTY); // an ancestor, and locked
        }
        let _target = if target_dir { Some(target.rw.lock()) } else { None };
        if target_dir && !target.is_empty_dir()? {
            return Err(Errno::ENOTEMPTY);
        }
        to.repoint(&slot, new, moved.ino, moved.kind)?;
        self.remove(&from_slot, old)?;
        if target_dir {
            to.count_link(-1)?;
        }
        target.lose_name()?;
        if dir && !same {
            moved.reparent(self, to)?;
        }
        moved.update(|_| ())
    }
}

impl Vnode for Inode {
    fn id(&self) -> VnodeId {
        self.vnode_id()
    }
    fn kind(&self) -> FileType {
        self.kind
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn getattr(&self) -> Result<Attr> {
        Ok(self.attributes())
    }
    fn setattr(&self, set: &SetAttr) -> Result<()> {
        self.change(set)
    }

    fn lookup(&self, name: &[u8]) -> Result<VnodeRef> {
        self.dir()?;
        match self.known(name) {
            Some(0) => return Err(Errno::ENOENT),
            Some(ino) => {
                // Still known with the inode in hand: the number was not used again in between.
                let inode = self.fs.inode(ino);
                if let (Ok(inode), true) = (inode, self.known(name) == Some(ino)) {
                    return Ok(inode);
                }
            }
            None => {}
        }
        let _rw = self.rw.lock();
        let Some(slot) = self.search(name, 0)?.found else {
            self.learn(name, 0);
            return Err(Errno::ENOENT);
        };
        let inode = self.entered(&slot)?;
        self.learn(name, slot.ino);
        Ok(inode)
    }

    fn create(&self, name: &[u8], new: &NewFile<'_>) -> Result<VnodeRef> {
        self.dir()?;
        self.fs.modify()?;
        let _rw = self.rw.lock();
        self.alive()?;
        let search = self.search(name, entry_len(name.len()))?;
        if search.found.is_some() {
            return Err(Errno::EEXIST);
        }
        if matches!(new.kind, NewKind::Dir) && self.raw.lock().links >= LINK_MAX {
            return Err(Errno::EMLINK);
        }
        let inode = self.make(new)?;
        if let Err(e) = self.insert(&search, name, inode.ino, inode.kind) {
            inode.lose_name()?;
            return Err(e);
        }
        if inode.kind == FileType::Dir {
            self.count_link(1)?;
        }
        Ok(inode)
    }

    fn link(&self, name: &[u8], target: VnodeId) -> Result<()> {
        self.dir()?;
        let target = self.fs.vnode_inode(target)?;
        if target.kind == FileType::Dir {
            return Err(Errno::EPERM);
        }
        self.fs.modify()?;
        let _rw = self.rw.lock();
        self.alive()?;
        let search = self.search(name, entry_len(name.len()))?;
        if search.found.is_some() {
            return Err(Errno::EEXIST);
        }
        let counted = target.update(|raw| match raw.links {
            0 => Err(Errno::ENOENT),
            LINK_MAX.. => Err(Errno::EMLINK),
            n => {
                raw.links = n + 1;
                Ok(())
            }
        })?;
        counted?;
        let entered = self.insert(&search, name, target.ino, target.kind);
        if entered.is_err() {
            target.lose_name()?;
        }
        entered
    }

    fn unlink(&self, name: &[u8]) -> Result<()> {
        self.dir()?;
        self.fs.modify()?;
        let _rw = self.rw.lock();
        let slot = self.find(name)?;
        let victim = self.entered(&slot)?;
        if victim.kind == FileType::Dir {
            return Err(Errno::EISDIR);
        }
        self.drop_entry(&slot, name, &victim)
    }

    fn rmdir(&self, name: &[u8]) -> Result<()> {
        self.dir()?;
        self.fs.modify()?;
        let _rename = self.fs.rename.lock();
        let _rw = self.rw.lock();
        let slot = self.find(name)?;
        let victim = self.entered(&slot)?;
        if victim.kind != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        if victim.ino == self.ino || victim.ino == super::ROOT_INO {
            return Err(Errno::EUCLEAN);
        }
        let _victim = victim.rw.lock();
        if !victim.is_empty_dir()? {
            return Err(Errno::ENOTEMPTY);
        }
        self.drop_entry(&slot, name, &victim)
    }

    fn rename(&self, old: &[u8], to: VnodeId, new: &[u8], flags: u32) -> Result<()> {
        self.dir()?;
        let to = self.fs.vnode_inode(to)?;
        to.dir()?;
        self.fs.modify()?;
        let _rename = self.fs.rename.lock();
        let (first, second) = if self.ino <= to.ino { (self, &*to) } else { (&*to, self) };
        let _first = first.rw.lock();
        let _second = if first.ino == second.ino { None } else { Some(second.rw.lock()) };
        to.alive()?;
        self.do_rename(old, &to, new, flags)
    }

    fn readdir(&self, cookie: u64, emit: &mut EmitEntry<'_>) -> Result<()> {
        self.dir()?;
        let _rw = self.rw.lock();
        if self.raw.lock().links == 0 {
            return Ok(());
        }
        self.entries(cookie, emit)
    }

    fn readlink(&self) -> Result<Vec<u8>> {
        if self.kind != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        let len = self.length() as usize;
        let raw = self.raw.lock().clone();
        let mut text = alloc::vec![0; len];
        if has_blocks(self.kind, &raw, &self.fs) {
            let n = self.fs.cache().read(&self.pager_ref(), 0, &mut text.as_mut_slice())?;
            if n < len {
                return Err(Errno::EIO);
            }
        } else {
            let bytes: Vec<u8> = raw.block.iter().flat_map(|p| p.to_le_bytes()).collect();
            text.copy_from_slice(bytes.get(..len).ok_or(Errno::EUCLEAN)?);
        }
        Ok(text)
    }

    fn open(&self, open_flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        match self.kind {
            FileType::Fifo => crate::pipe::open_fifo(self.vnode_id(), open_flags).map(Some),
            // Devices stand in /dev, not on disks.
            FileType::Char | FileType::Block | FileType::Socket => Err(Errno::ENXIO),
            _ => Ok(None),
        }
    }

    fn read_at(&self, offset: u64, sink: &mut dyn ByteSink) -> Result<usize> {
        match self.kind {
            FileType::Regular => {
                Ok(self.fs.cache().read(&self.pager_ref(), offset, &mut PageSink(sink))?)
            }
            FileType::Dir => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn write_at(&self, offset: Option<u64>, source: &mut dyn ByteSource) -> Result<(usize, u64)> {
        if self.kind != FileType::Regular {
            return Err(if self.kind == FileType::Dir { Errno::EISDIR } else { Errno::EINVAL });
        }
        self.fs.modify()?;
        let _rw = self.rw.lock();
        let at = offset.unwrap_or(self.length());
        if source.left() == 0 {
            return Ok((0, at));
        }
        let n = self.write_pages(at, &mut PageSource(source))?;
        Ok((n, at + n as u64))
    }

    fn seek_extent(&self, offset: u64, hole: bool) -> Result<u64> {
        let size = self.length();
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let bs = self.fs.block_size() as u64;
        let mut at = offset;
        while at < size {
            let block = super::map::lookup(&self.fs, &self.raw.lock(), at / bs)?;
            if (block == 0) == hole {
                return Ok(at);
            }
            at = (at / bs + 1) * bs;
        }
        if hole { Ok(size) } else { Err(Errno::ENXIO) }
    }

    fn fsync(&self, _data_only: bool) -> Result<()> {
        self.fs.cache().sync(&self.pager_ref())?;
        self.fs.meta.sync()
    }

    fn pager(self: Arc<Self>) -> Option<Arc<dyn hive_vm::Pager>> {
        (self.kind == FileType::Regular).then_some(self as Arc<dyn hive_vm::Pager>)
    }

    fn data_generation(&self) -> u32 {
        self.damage_count()
    }
}

impl Ext2 {
    pub(super) fn vnode_inode(&self, id: VnodeId) -> Result<Arc<Inode>> {
        if id.fs != self.id {
            return Err(Errno::EXDEV);
        }
        let inode = self.inode(u32::try_from(id.ino).map_err(|_| Errno::ESTALE)?)?;
        if inode.generation == id.generation { Ok(inode) } else { Err(Errno::ESTALE) }
    }
}
