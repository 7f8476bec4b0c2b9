//! ext2, read and write: revision 0 and 1 with filetype, sparse_super and large_file, blocks of
//! 1, 2 or 4 KB. `e2fsck` judges it: after [`FileSystem::sync`] with no file in use that has lost
//! its names, the disk is marked clean and consistent.
//!
//! Files: [`disk`] (layouts), [`meta`] (metadata in the page cache), [`space`] (free blocks and
//! inodes), [`map`] (block maps), [`inode`], [`dir`], [`ops`] (the vnode).
//!
//! Locks, in this order: `rename` (rename and rmdir, so that only they hold two directories),
//! `rw` of a directory, `rw` of a file, `raw` of an inode, `space`, then the page cache's device
//! pages. File pages are touched with at most `rename` and `rw` held: writing one back takes `raw`.
//! `live` and `damage` are leaves.
//!
//! The disk is not trusted: what makes no sense is `EUCLEAN`, never a panic or an endless loop.
//! Absent: journal, extents, quotas, extended attributes (kept, not read), access times, reserved
//! blocks (root writes here), crash consistency between syncs (`e2fsck -p` repairs).

mod dir;
mod disk;
mod inode;
mod map;
mod meta;
mod ops;
mod space;
#[cfg(test)]
mod tests;

use crate::abi::{FileType, StatFs, Time};
use crate::block::{BlockDevice, SECTOR, Segment};
use crate::errno::{Errno, Result};
use crate::vnode::{FileSystem, FsId, VnodeId, VnodeRef};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use disk::{FLAG_EXTENTS, GROUP_SIZE, Group, ROOT_INO, RawInode, SUPER_AT, SUPER_SIZE, Super};
use hive_sync::{Mutex, SpinLock, rank};
use hive_vm::cache::Cache;
use hive_vm::{Kind, PAGE_SIZE, Tag};
use inode::Inode;
use meta::{Disk, Metadata};
use space::Space;

/// Inodes kept in memory without a user: about 0.5 KB each, and enough for a compiler's headers.
const RECENT: usize = 256;

/// Where the time of day comes from.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Time;
}

/// A mounted ext2.
pub struct Ext2 {
    id: FsId,
    clock: Arc<dyn Clock>,
    meta: Metadata,
    space: Mutex<Space>,
    /// What never changes of the superblock, readable without `space`.
    layout: Super,
    rename: Mutex<()>,
    live: SpinLock<Live>,
    me: Weak<Ext2>,
}

struct Live {
    inodes: BTreeMap<u32, Weak<Inode>>,
    /// Inodes used lately, kept in memory for the next use; replaced in turn.
    recent: Vec<Arc<Inode>>,
    turn: usize,
    /// Inodes without a name that are in memory.
    orphans: Vec<u32>,
    /// Inodes whose last name and last user are gone, to be freed by the next change or sync.
    dead: Vec<(u32, FileType, RawInode)>,
    /// Data generations of inodes that lost dirty pages; kept when the inode leaves memory, for
    /// old pages may still be cached under old generations.
    damage: BTreeMap<u32, u32>,
    next_generation: u32,
}

impl Live {
    /// Keeps an inode in memory; answers the one whose place it took, to be dropped unlocked.
    fn keep(&mut self, inode: Arc<Inode>) -> Option<Arc<Inode>> {
        if self.recent.len() < RECENT {
            self.recent.push(inode);
            return None;
        }
        self.turn = (self.turn + 1) % RECENT;
        self.recent.get_mut(self.turn).map(|place| core::mem::replace(place, inode))
    }
}

impl Ext2 {
    /// Mounts the disk. `EINVAL` if it holds no ext2 we know, `EUCLEAN` if it makes no sense.
    /// `id` must be this cell's own and unused: pages are cached under it.
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        cache: Arc<Cache>,
        id: FsId,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Ext2>> {
        let sb = Super::decode(&read_super(&*device, &cache)?)?;
        if sb.blocks as u64 * (sb.block_size / SECTOR) as u64 > device.sectors() {
            return Err(Errno::EUCLEAN);
        }
        let disk = Disk::new(device, cache, id.0 as u64, sb.block_size, sb.blocks);
        let meta = Metadata::new(Arc::new(disk));
        let mut groups = Vec::new();
        let mut b = [0; GROUP_SIZE];
        for i in 0..sb.groups() {
            let (block, offset) = group_at(&sb, i);
            meta.read(block, offset, &mut b)?;
            groups.push(Group::decode(&b, &sb)?);
        }
        let clean = sb.state & disk::STATE_CLEAN != 0;
        let layout = sb.clone();
        let space = Space { sb, groups, clean_on_disk: clean, changes: 0, orphans: 0 };
        let live = Live {
            inodes: BTreeMap::new(),
            recent: Vec::new(),
            turn: 0,
            orphans: Vec::new(),
            dead: Vec::new(),
            damage: BTreeMap::new(),
            next_generation: clock.now().sec as u32,
        };
        let fs = Arc::new_cyclic(|me| Ext2 {
            id,
            clock,
            meta,
            space: Mutex::new(space),
            layout,
            rename: Mutex::new(()),
            live: SpinLock::ranked(rank::FILE, live),
            me: me.clone(),
        });
        match fs.inode(ROOT_INO)?.kind {
            FileType::Dir => Ok(fs),
            _ => Err(Errno::EUCLEAN),
        }
    }

    /// Lets go of the inodes kept for later and writes everything back; whoever still has files
    /// open may go on.
    pub fn unmount(&self) -> Result<()> {
        let recent = core::mem::take(&mut self.live.lock().recent);
        drop(recent);
        self.sync_all()
    }

    fn block_size(&self) -> usize {
        self.layout.block_size
    }

    fn filetype(&self) -> bool {
        self.layout.filetype
    }

    /// The file type code for a directory entry.
    fn ftype(&self, kind: FileType) -> u8 {
        if self.filetype() { dir::ftype_of(kind) } else { 0 }
    }

    fn cache(&self) -> &Cache {
        &self.meta.disk.cache
    }

    fn tag_of(&self, ino: u32, generation: u32) -> Tag {
        let object = (self.id.0 as u64) << 32 | ino as u64;
        Tag { home: self.cache().memory().cell(), kind: Kind::File, object, generation }
    }

    /// `EUCLEAN` unless `block` may hold data.
    fn check_block(&self, block: u32) -> Result<()> {
        let inside = block > self.layout.first_block && block < self.layout.blocks;
        if inside { Ok(()) } else { Err(Errno::EUCLEAN) }
    }

    /// A good place for the first block of an inode: its group.
    fn group_start(&self, ino: u32) -> u32 {
        let group = ino.saturating_sub(1) / self.layout.inodes_per_group;
        self.layout.first_block + group.saturating_mul(self.layout.blocks_per_group)
    }

    // ---- inodes ----

    /// The live inode `ino`, read from the disk if need be. `ESTALE` if it is not in use.
    fn inode(&self, ino: u32) -> Result<Arc<Inode>> {
        let known = |live: &Live| live.inodes.get(&ino).and_then(Weak::upgrade);
        if let Some(inode) = known(&self.live.lock()) {
            return Ok(inode);
        }
        if ino != ROOT_INO && ino < self.layout.first_inode {
            return Err(Errno::EUCLEAN);
        }
        let (block, offset) = self.space.lock().inode_at(ino)?;
        let mut b = alloc::vec![0; self.layout.inode_size];
        self.meta.read(block, offset, &mut b)?;
        let (raw, size) = RawInode::decode(&b);
        if raw.links == 0 {
            return Err(Errno::ESTALE);
        }
        let kind = FileType::from_mode(raw.mode as u32).ok_or(Errno::EUCLEAN)?;
        let bs = self.block_size() as u64;
        let sane = raw.flags & FLAG_EXTENTS == 0
            && match kind {
                FileType::Dir => size > 0 && size % bs == 0 && size <= map::max_size(self),
                FileType::Symlink => size > 0 && size < crate::abi::PATH_MAX as u64,
                _ => size <= map::max_size(self),
            };
        if !sane {
            return Err(Errno::EUCLEAN);
        }
        Ok(self.enter(ino, kind, raw, size))
    }

    /// Enters an inode among the live ones, unless another thread was faster.
    fn enter(&self, ino: u32, kind: FileType, raw: RawInode, size: u64) -> Arc<Inode> {
        let me = self.me.upgrade().expect("a file system that is used lives in its Arc");
        let damage = self.live.lock().damage.get(&ino).copied().unwrap_or(0);
        let mine = Inode::new(me, ino, kind, raw, size, damage);
        let mut live = self.live.lock();
        let theirs = live.inodes.get(&ino).and_then(Weak::upgrade);
        let mut replaced = None;
        if theirs.is_none() {
            live.inodes.insert(ino, Arc::downgrade(&mine));
            replaced = live.keep(mine.clone());
        }
        drop(live); // before `mine` or `replaced` may be dropped
        drop(replaced);
        theirs.unwrap_or(mine)
    }

    /// Writes an inode into the table.
    fn store_inode(&self, ino: u32, raw: &RawInode, size: u64, fresh: bool) -> Result<()> {
        let (block, offset) = {
            let mut space = self.space.lock();
            space.changes += 1;
            space.inode_at(ino)?
        };
        let mut b = alloc::vec![0; self.layout.inode_size];
        if !fresh {
            self.meta.read(block, offset, &mut b)?;
        }
        raw.encode(size, &mut b, fresh);
        self.meta.write(block, offset, &b)
    }

    /// From the drop of an inode: never sleeps.
    fn inode_dropped(&self, ino: u32, kind: FileType, raw: RawInode) {
        let mut live = self.live.lock();
        if live.inodes.get(&ino).is_some_and(|w| w.strong_count() == 0) {
            live.inodes.remove(&ino);
            if raw.links == 0 {
                live.orphans.retain(|o| *o != ino);
                live.dead.push((ino, kind, raw));
            }
        }
    }

    fn is_live(&self, ino: u32) -> bool {
        self.live.lock().inodes.get(&ino).is_some_and(|w| w.strong_count() > 0)
    }

    fn note_damage(&self, ino: u32, generation: u32) {
        self.live.lock().damage.insert(ino, generation);
    }

    /// Frees the inodes that nobody can reach any more. No lock is held.
    fn reap(&self) -> Result<()> {
        self.drop_orphan_pages();
        loop {
            let Some((ino, kind, mut raw)) = self.live.lock().dead.pop() else { return Ok(()) };
            let damage = self.live.lock().damage.remove(&ino).unwrap_or(0);
            for generation in 0..=damage {
                self.cache().invalidate(self.tag_of(ino, generation));
            }
            let freed = match ops::has_blocks(kind, &raw, self) {
                true => map::truncate(self, &mut raw, 0),
                false => Ok(()),
            };
            raw.dtime = self.clock.now().sec.max(1) as u32;
            self.store_inode(ino, &raw, 0, false)?;
            let mut space = self.space.lock();
            space.orphans = space.orphans.saturating_sub(1);
            space.free_inode(&self.meta, ino, kind == FileType::Dir)?;
            drop(space);
            freed?;
        }
    }

    /// A nameless inode that only its dirty pages keep in memory loses them, and so dies.
    fn drop_orphan_pages(&self) {
        let orphans: Vec<Arc<Inode>> = {
            let live = self.live.lock();
            live.orphans.iter().filter_map(|o| live.inodes.get(o)?.upgrade()).collect()
        };
        for inode in orphans {
            // Two references: ours and that of the page cache.
            if Arc::strong_count(&inode) <= 2 {
                for generation in 0..=inode.damage_count() {
                    self.cache().invalidate(self.tag_of(inode.ino, generation));
                }
            }
        }
    }

    /// An inode has lost its last name.
    fn note_orphan(&self, ino: u32) {
        self.space.lock().orphans += 1;
        let mut live = self.live.lock();
        live.orphans.push(ino);
        let kept = live.recent.iter().position(|i| i.ino == ino);
        let kept = kept.map(|at| live.recent.swap_remove(at));
        drop(live);
        drop(kept);
    }

    /// Before every change: frees what is dead, and takes the mark "clean" off the disk.
    fn modify(&self) -> Result<()> {
        self.reap()?;
        let mut space = self.space.lock();
        space.changes += 1;
        if !space.clean_on_disk {
            return Ok(());
        }
        space.clean_on_disk = false;
        self.write_super(&mut space, false)?;
        self.meta.sync()
    }

    /// Writes superblock and group descriptors (into the cache).
    fn write_super(&self, space: &mut Space, clean: bool) -> Result<()> {
        let bs = self.block_size();
        space.sb.state = if clean { disk::STATE_CLEAN } else { 0 };
        let mut b = alloc::vec![0; SUPER_SIZE];
        let (block, offset) = ((SUPER_AT / bs) as u32, SUPER_AT % bs);
        self.meta.read(block, offset, &mut b)?;
        space.sb.encode(&mut b, self.clock.now());
        self.meta.write(block, offset, &b)?;
        let mut b = [0; GROUP_SIZE];
        for (i, g) in space.groups.iter().enumerate() {
            let (block, offset) = group_at(&space.sb, i as u32);
            self.meta.read(block, offset, &mut b)?;
            g.encode(&mut b);
            self.meta.write(block, offset, &b)?;
        }
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        self.reap()?;
        // File data first: writing it back changes no metadata.
        self.cache().sync_all()?;
        let changes = {
            let mut space = self.space.lock();
            if space.clean_on_disk {
                return self.meta.sync();
            }
            let clean = space.orphans == 0;
            self.write_super(&mut space, clean)?;
            space.changes
        };
        self.meta.sync()?;
        let mut space = self.space.lock();
        if space.sb.state & disk::STATE_CLEAN == 0 {
            return Ok(());
        }
        if space.changes == changes {
            space.clean_on_disk = true;
            return Ok(());
        }
        // Something changed meanwhile: what the disk says may not be true any more.
        self.write_super(&mut space, false)?;
        self.meta.sync()
    }
}

impl FileSystem for Ext2 {
    fn id(&self) -> FsId {
        self.id
    }
    fn type_name(&self) -> &'static str {
        "ext2"
    }
    fn root(&self) -> Result<VnodeRef> {
        Ok(self.inode(ROOT_INO)?)
    }
    fn vnode(&self, id: VnodeId) -> Result<VnodeRef> {
        Ok(self.vnode_inode(id)?)
    }
    fn statfs(&self) -> Result<StatFs> {
        self.reap()?;
        let space = self.space.lock();
        Ok(StatFs {
            magic: disk::MAGIC as u64,
            bsize: self.block_size() as u64,
            blocks: space.sb.blocks as u64,
            bfree: space.sb.free_blocks as u64,
            bavail: space.sb.free_blocks as u64,
            files: space.sb.inodes as u64,
            ffree: space.sb.free_inodes as u64,
            fsid: self.id.0 as u64,
            namelen: crate::abi::NAME_MAX as u64,
            flags: 0,
        })
    }
    fn sync(&self) -> Result<()> {
        self.sync_all()
    }
}

/// Block and byte of a group descriptor.
fn group_at(sb: &Super, group: u32) -> (u32, usize) {
    let byte = group as usize * GROUP_SIZE;
    (sb.first_block + 1 + (byte / sb.block_size) as u32, byte % sb.block_size)
}

/// The superblock, read past the cache: the block size is not known yet.
fn read_super(device: &dyn BlockDevice, cache: &Cache) -> Result<Vec<u8>> {
    if (device.sectors() as usize) < PAGE_SIZE / SECTOR {
        return Err(Errno::EINVAL);
    }
    let memory = cache.memory();
    let frame = memory.allocate_kernel(hive_vm::Use::Kernel)?;
    let result = device.read(0, &[Segment { frame, offset: 0, len: PAGE_SIZE }]);
    let mut b = alloc::vec![0; SUPER_SIZE];
    memory.phys().read(frame, SUPER_AT, &mut b);
    memory.free_kernel(frame, 1);
    result.map(|()| b)
}
