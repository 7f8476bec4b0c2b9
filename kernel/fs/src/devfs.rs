//! `/dev`: the devices every cell has, and links into /proc. The set is fixed; nothing is made or
//! removed here. Absent: pseudo-terminals (`ptmx`), disks as files.

use crate::abi::{Attr, FileType, StatFs, makedev};
use crate::errno::{Errno, Result};
use crate::file::FileOps;
use crate::io::{ByteSink, ByteSource};
use crate::tty::Tty;
use crate::vnode::{DirEntry, EmitEntry, FileSystem, FsId, SetAttr, Vnode, VnodeId, VnodeRef};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

/// What devices need of the kernel around them.
pub trait DevHost: Send + Sync {
    /// Fills `buf` with random bytes.
    fn random(&self, buf: &mut [u8]);
    /// The controlling terminal of the current process.
    fn controlling_tty(&self) -> Option<Arc<Tty>>;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Null,
    Zero,
    Full,
    Random,
    /// The caller's controlling terminal.
    Tty,
    /// The cell's console.
    Console,
}

#[derive(Clone, Copy)]
enum Node {
    Dir,
    Char(Device, u32, u32, u32),
    Link(&'static str),
}

/// Entries of /dev. Inode number: place in this table + 2; 1 is /dev itself.
const NODES: [(&str, Node); 14] = [
    ("null", Node::Char(Device::Null, 1, 3, 0o666)),
    ("zero", Node::Char(Device::Zero, 1, 5, 0o666)),
    ("full", Node::Char(Device::Full, 1, 7, 0o666)),
    ("random", Node::Char(Device::Random, 1, 8, 0o666)),
    ("urandom", Node::Char(Device::Random, 1, 9, 0o666)),
    ("tty", Node::Char(Device::Tty, 5, 0, 0o666)),
    ("console", Node::Char(Device::Console, 5, 1, 0o600)),
    ("ttyS0", Node::Char(Device::Console, 4, 64, 0o620)),
    ("fd", Node::Link("/proc/self/fd")),
    ("stdin", Node::Link("/proc/self/fd/0")),
    ("stdout", Node::Link("/proc/self/fd/1")),
    ("stderr", Node::Link("/proc/self/fd/2")),
    // Places to mount on.
    ("pts", Node::Dir),
    ("shm", Node::Dir),
];

/// Inode number of /dev.
const ROOT: u64 = 1;

/// The file system of devices.
pub struct DevFs {
    id: FsId,
    host: Arc<dyn DevHost>,
    console: Arc<Tty>,
    me: Weak<DevFs>,
}

impl DevFs {
    /// `/dev` of a cell with this console.
    pub fn new(id: FsId, host: Arc<dyn DevHost>, console: Arc<Tty>) -> Arc<DevFs> {
        Arc::new_cyclic(|me| DevFs { id, host, console, me: me.clone() })
    }

    fn at(&self, ino: u64) -> Result<VnodeRef> {
        let fs = self.me.upgrade().ok_or(Errno::ESTALE)?;
        Ok(Arc::new(DevVnode { fs, ino }))
    }
}

/// Device number of the console, as /proc/PID/stat shows it for its sessions.
pub const CONSOLE_RDEV: u64 = makedev(5, 1);

/// A vnode of /dev.
struct DevVnode {
    fs: Arc<DevFs>,
    ino: u64,
}

impl DevVnode {
    fn node(&self) -> Node {
        let at = self.ino.wrapping_sub(ROOT + 1) as usize;
        NODES.get(at).map_or(Node::Dir, |(_, node)| *node)
    }
}

impl FileSystem for DevFs {
    fn id(&self) -> FsId {
        self.id
    }
    fn type_name(&self) -> &'static str {
        "devtmpfs"
    }
    fn root(&self) -> Result<VnodeRef> {
        self.at(ROOT)
    }
    fn vnode(&self, id: VnodeId) -> Result<VnodeRef> {
        let known = id.fs == self.id && id.generation == 0;
        match id.ino.checked_sub(ROOT) {
            Some(n) if known && n <= NODES.len() as u64 => self.at(id.ino),
            _ => Err(Errno::ESTALE),
        }
    }
    fn statfs(&self) -> Result<StatFs> {
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        Ok(StatFs { magic: TMPFS_MAGIC, ..StatFs::empty(self.id) })
    }
}

impl Vnode for DevVnode {
    fn id(&self) -> VnodeId {
        VnodeId { fs: self.fs.id, ino: self.ino, generation: 0 }
    }
    fn kind(&self) -> FileType {
        match self.node() {
            Node::Dir => FileType::Dir,
            Node::Char(..) => FileType::Char,
            Node::Link(_) => FileType::Symlink,
        }
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn getattr(&self) -> Result<Attr> {
        let attr = |kind, perm| Attr::bare(self.fs.id.dev(), self.ino, kind, perm);
        Ok(match self.node() {
            Node::Dir => attr(FileType::Dir, 0o755),
            Node::Link(to) => Attr { size: to.len() as u64, ..attr(FileType::Symlink, 0o777) },
            Node::Char(_, major, minor, perm) => {
                Attr { rdev: makedev(major, minor), ..attr(FileType::Char, perm) }
            }
        })
    }
    fn setattr(&self, set: &SetAttr) -> Result<()> {
        // Owners and modes are fixed; truncating and touching a device has no effect.
        let fixed = set.perm.is_some() || set.uid.is_some() || set.gid.is_some();
        if fixed { Err(Errno::EPERM) } else { Ok(()) }
    }
    fn lookup(&self, name: &[u8]) -> Result<VnodeRef> {
        if self.kind() != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        let ino = match name {
            b"." => self.ino,
            b".." => ROOT,
            _ if self.ino != ROOT => return Err(Errno::ENOENT),
            _ => {
                let at = NODES.iter().position(|(n, _)| n.as_bytes() == name);
                at.ok_or(Errno::ENOENT)? as u64 + ROOT + 1
            }
        };
        Ok(Arc::new(DevVnode { fs: self.fs.clone(), ino }))
    }
    fn readdir(&self, cookie: u64, emit: &mut EmitEntry<'_>) -> Result<()> {
        if self.kind() != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        let dots = [(".", self.ino), ("..", ROOT)].into_iter();
        let own = NODES.iter().enumerate().map(|(i, (n, _))| (*n, i as u64 + ROOT + 1));
        let shown = if self.ino == ROOT { NODES.len() } else { 0 };
        for (at, (name, ino)) in dots.chain(own.take(shown)).enumerate().skip(cookie as usize) {
            let d_type = DevVnode { fs: self.fs.clone(), ino }.kind().d_type();
            let entry = DirEntry { ino, d_type, name: name.as_bytes(), next: at as u64 + 1 };
            if !emit(entry) {
                break;
            }
        }
        Ok(())
    }
    fn readlink(&self) -> Result<Vec<u8>> {
        match self.node() {
            Node::Link(to) => Ok(to.as_bytes().to_vec()),
            _ => Err(Errno::EINVAL),
        }
    }
    fn open(&self, _open_flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        let Node::Char(device, ..) = self.node() else { return Ok(None) };
        Ok(Some(match device {
            Device::Tty => self.fs.host.controlling_tty().ok_or(Errno::ENXIO)?.open(),
            Device::Console => self.fs.console.open(),
            _ => Arc::new(Memory { device, host: self.fs.host.clone() }),
        }))
    }
}

/// null, zero, full, random.
struct Memory {
    device: Device,
    host: Arc<dyn DevHost>,
}

/// Bytes made at a time.
const CHUNK: usize = 256;

impl FileOps for Memory {
    fn read(&self, _offset: u64, _nonblock: bool, sink: &mut dyn ByteSink) -> Result<usize> {
        if self.device == Device::Null {
            return Ok(0);
        }
        let mut buf = [0; CHUNK];
        let mut done = 0;
        while sink.left() > 0 {
            let part = &mut buf[..CHUNK.min(sink.left())];
            if self.device == Device::Random {
                self.host.random(part);
            }
            match sink.put(part) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
    fn write(&self, _offset: u64, _nonblock: bool, source: &mut dyn ByteSource) -> Result<usize> {
        if self.device == Device::Full {
            return Err(Errno::ENOSPC);
        }
        // Written to none: the user's memory is not even looked at.
        Ok(source.left())
    }
    fn seekable(&self) -> bool {
        true
    }
    fn as_any(&self) -> &dyn core::any::Any {
        self
    }
}
