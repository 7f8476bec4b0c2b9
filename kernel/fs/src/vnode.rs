//! The vnode: a file as the rest of the kernel sees it, wherever its home is.
//!
//! A vnode may be local (ext2, tmpfs, devfs, procfs) or a *shadow vnode* whose data home is
//! another cell (Hive §5.2); both are this trait, and nothing here or above may tell them apart.
//! Two vnodes that meet in one call (link, rename) find each other by [`VnodeId`], never by type.
//!
//! The name layer has checked permissions, the read-only flag of the mount and the length of
//! names before it calls; a vnode checks what only it can know (exists, is empty, is a directory).
//!
//! Generations: [`VnodeId::generation`] tells a reused inode number from its former life (`ESTALE`);
//! [`Vnode::data_generation`] counts losses of dirty pages (Hive §4.2): an open file that saw
//! another value at open gets `EIO`.

use crate::abi::{Attr, FileType, StatFs, Time};
use crate::errno::{Errno, Result};
use crate::file::FileOps;
use crate::io::{ByteSink, ByteSource};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use hive_sync::SpinLock;

/// Names a file system over the whole machine: home cell and number within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FsId(pub u32);

impl FsId {
    /// File system `index` of `cell`.
    pub const fn new(cell: u16, index: u16) -> FsId {
        FsId((cell as u32) << 16 | index as u32)
    }
    /// The home cell.
    pub const fn cell(self) -> u16 {
        (self.0 >> 16) as u16
    }
    /// `st_dev`: major is the cell + 8, minor the index (never 0:0).
    pub const fn dev(self) -> u64 {
        crate::abi::makedev(8 + self.cell() as u32, self.0 & 0xffff)
    }
}

/// Names a file over the whole machine, in this life of its inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct VnodeId {
    /// File system.
    pub fs: FsId,
    /// Inode number.
    pub ino: u64,
    /// Changes when the inode number is used again.
    pub generation: u32,
}

/// A counted reference to a vnode.
pub type VnodeRef = Arc<dyn Vnode>;

/// What to make in a directory.
#[derive(Clone, Debug)]
pub enum NewKind<'a> {
    /// Empty regular file.
    Regular,
    /// Directory.
    Dir,
    /// Symbolic link to this text.
    Symlink(&'a [u8]),
    /// Fifo, socket or device node with this device number.
    Node(FileType, u64),
}

/// A file to be made.
#[derive(Clone, Debug)]
pub struct NewFile<'a> {
    /// What it is.
    pub kind: NewKind<'a>,
    /// Permission bits, umask applied.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a set-gid directory overrides it.
    pub gid: u32,
}

/// How a time is set by utimensat(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Now, by the file system's clock.
    Now,
    /// To this.
    To(Time),
}

/// What setattr changes; `None` leaves a field as it is. ctime becomes now.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length, bytes: truncates or extends with a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: u64,
    /// `DT_*` (0 unknown).
    pub d_type: u8,
    /// Name.
    pub name: &'a [u8],
    /// Cookie with which reading goes on after this entry.
    pub next: u64,
}

/// Takes entries; false means it is full and the entry was not taken.
pub type EmitEntry<'a> = dyn FnMut(DirEntry<'_>) -> bool + 'a;

/// A file. Defaults refuse with what Linux says for a file that cannot do the thing.
pub trait Vnode: Send + Sync {
    /// Its name in the machine.
    fn id(&self) -> VnodeId;
    /// Its kind; never changes.
    fn kind(&self) -> FileType;
    /// Its file system.
    fn fs(&self) -> Arc<dyn FileSystem>;
    /// What stat tells.
    fn getattr(&self) -> Result<Attr>;
    /// Changes attributes, all or none.
    fn setattr(&self, _set: &SetAttr) -> Result<()> {
        Err(Errno::EPERM)
    }

    // ---- directories ----

    /// The file called `name` here; `..` of a root is the root itself. `ENOENT` if none.
    fn lookup(&self, _name: &[u8]) -> Result<VnodeRef> {
        Err(Errno::ENOTDIR)
    }
    /// Makes a file called `name`; `EEXIST` if there is one.
    fn create(&self, _name: &[u8], _new: &NewFile<'_>) -> Result<VnodeRef> {
        Err(if self.kind() == FileType::Dir { Errno::EPERM } else { Errno::ENOTDIR })
    }
    /// Makes `name` another name of `target`, a file of the same file system.
    fn link(&self, _name: &[u8], _target: VnodeId) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Removes the name of a file that is not a directory (`EISDIR`).
    fn unlink(&self, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Removes an empty directory.
    fn rmdir(&self, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Moves `old` of this directory to `new` of `to`, a directory of the same file system;
    /// flags `RENAME_*`. A directory never becomes its own descendant (`EINVAL`).
    fn rename(&self, _old: &[u8], _to: VnodeId, _new: &[u8], _flags: u32) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Emits the entries after `cookie` (0: all, with `.` and `..`) until `emit` is full.
    fn readdir(&self, _cookie: u64, _emit: &mut EmitEntry<'_>) -> Result<()> {
        Err(Errno::ENOTDIR)
    }

    // ---- links ----

    /// The text of a symbolic link.
    fn readlink(&self) -> Result<Vec<u8>> {
        Err(Errno::EINVAL)
    }
    /// Where a *magic* link of /proc (exe, cwd, root, fd/N) leads, without going by its text.
    fn magic_link(&self) -> Result<Option<crate::name::Place>> {
        Ok(None)
    }

    // ---- data ----

    /// The operations of this file when opened, if they are its own (device, fifo, generated
    /// text); `None` for a file read and written by offset through [`Self::read_at`].
    /// `open_flags` are O_*; may block (fifo).
    fn open(&self, _open_flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        Ok(None)
    }
    /// Reads from `offset` through the page cache; 0 at the end.
    fn read_at(&self, _offset: u64, _sink: &mut dyn ByteSink) -> Result<usize> {
        Err(if self.kind() == FileType::Dir { Errno::EISDIR } else { Errno::EINVAL })
    }
    /// Writes at `offset` (`None`: at the end, atomically) through the page cache; answers the
    /// bytes taken and the offset behind them.
    fn write_at(&self, _offset: Option<u64>, _source: &mut dyn ByteSource) -> Result<(usize, u64)> {
        Err(if self.kind() == FileType::Dir { Errno::EISDIR } else { Errno::EINVAL })
    }
    /// SEEK_DATA (`hole` false) or SEEK_HOLE from `offset`; `ENXIO` at or behind the end.
    fn seek_extent(&self, offset: u64, hole: bool) -> Result<u64> {
        let size = self.getattr()?.size;
        match offset {
            o if o >= size => Err(Errno::ENXIO),
            _ if hole => Ok(size),
            o => Ok(o),
        }
    }
    /// Writes what is dirty to the disk; `data_only` for fdatasync.
    fn fsync(&self, _data_only: bool) -> Result<()> {
        Ok(())
    }
    /// The page cache's view of the file, for mmap and exec; `None` if it cannot be mapped.
    fn pager(self: Arc<Self>) -> Option<Arc<dyn hive_vm::Pager>> {
        None
    }
    /// Count of losses of dirty data; see the module.
    fn data_generation(&self) -> u32 {
        0
    }
}

/// A mounted file system.
pub trait FileSystem: Send + Sync {
    /// Its name in the machine.
    fn id(&self) -> FsId;
    /// Type as in /proc/filesystems.
    fn type_name(&self) -> &'static str;
    /// Its root directory.
    fn root(&self) -> Result<VnodeRef>;
    /// The vnode of an id: how a remote cell, or a handle, names a file. `ESTALE` if that life
    /// of the inode is over.
    fn vnode(&self, id: VnodeId) -> Result<VnodeRef>;
    /// What statfs tells.
    fn statfs(&self) -> Result<StatFs>;
    /// Writes everything dirty to the disk.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// The file systems whose home is this cell, by id: what the intercell part asks when a peer
/// names a file.
#[derive(Default)]
pub struct Registry {
    list: SpinLock<BTreeMap<FsId, Weak<dyn FileSystem>>>,
}

impl Registry {
    /// An empty registry.
    pub const fn new() -> Registry {
        Registry { list: SpinLock::new(BTreeMap::new()) }
    }

    /// Enters a file system.
    pub fn add(&self, fs: &Arc<dyn FileSystem>) {
        self.list.lock().insert(fs.id(), Arc::downgrade(fs));
    }

    /// The file system `id`; `ESTALE` if there is none.
    pub fn fs(&self, id: FsId) -> Result<Arc<dyn FileSystem>> {
        self.list.lock().get(&id).and_then(Weak::upgrade).ok_or(Errno::ESTALE)
    }

    /// The live vnode `id`. A peer's ids come here unchecked.
    pub fn vnode(&self, id: VnodeId) -> Result<VnodeRef> {
        self.fs(id.fs)?.vnode(id)
    }

    /// Writes everything dirty of every file system; the first error, after trying all.
    pub fn sync_all(&self) -> Result<()> {
        let all: Vec<_> = self.list.lock().values().filter_map(Weak::upgrade).collect();
        all.iter().map(|fs| fs.sync()).fold(Ok(()), |first, r| first.and(r))
    }
}
