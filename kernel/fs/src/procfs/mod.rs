//! `/proc`: the kernel's state as files, read through [`ProcSource`]. Texts are made anew when a
//! file is read from its start, as procps expects of a file it keeps open.
//!
//! Nothing here is writable. Absent: /proc/net, /proc/sys beyond what programs ask for,
//! /proc/PID/mem and what else debuggers use.

mod source;
#[cfg(test)]
mod tests;
mod text;

pub use source::*;

use crate::abi::{Attr, FileType, StatFs};
use crate::errno::{Errno, Result};
use crate::file::FileOps;
use crate::io::{ByteSink, ByteSource, put_from};
use crate::name::{Namespace, Place};
use crate::vnode::{DirEntry, EmitEntry, FileSystem, FsId, Vnode, VnodeId, VnodeRef};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use hive_sync::Mutex;

/// The fixed part of the tree: parent (place in this table, 0 is the root itself), name, what.
/// An entry's place is its inode number - 1.
const FIXED: &[(usize, &str, Fixed)] = &[
    (0, "", Fixed::Dir),
    (0, "stat", Fixed::Text(Global::Stat)),
    (0, "meminfo", Fixed::Text(Global::MemInfo)),
    (0, "uptime", Fixed::Text(Global::Uptime)),
    (0, "loadavg", Fixed::Text(Global::LoadAvg)),
    (0, "cpuinfo", Fixed::Text(Global::CpuInfo)),
    (0, "version", Fixed::Text(Global::Version)),
    (0, "cmdline", Fixed::Text(Global::CommandLine)),
    (0, "cells", Fixed::Text(Global::Cells)),
    (0, "filesystems", Fixed::Text(Global::Fixed(text::FILESYSTEMS))),
    (0, "devices", Fixed::Text(Global::Fixed(text::DEVICES))),
    (0, "swaps", Fixed::Text(Global::Fixed("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"))),
    (0, "vmstat", Fixed::Text(Global::VmStat)),
    (0, "mounts", Fixed::Link("self/mounts")),
    (0, "self", Fixed::SelfLink),
    (0, "thread-self", Fixed::ThreadSelf),
    (0, "sys", Fixed::Dir),
    (16, "kernel", Fixed::Dir),
    (16, "vm", Fixed::Dir),
    (16, "fs", Fixed::Dir),
    (17, "ostype", Fixed::Text(Global::OsType)),
    (17, "osrelease", Fixed::Text(Global::OsRelease)),
    (17, "version", Fixed::Text(Global::OsVersion)),
    (17, "hostname", Fixed::Text(Global::HostName)),
    (17, "domainname", Fixed::Text(Global::DomainName)),
    (17, "pid_max", Fixed::Text(Global::PidMax)),
    (17, "ngroups_max", Fixed::Text(Global::Fixed("65536\n"))),
    (17, "cap_last_cap", Fixed::Text(Global::Fixed("40\n"))),
    (17, "threads-max", Fixed::Text(Global::Fixed("32768\n"))),
    (17, "randomize_va_space", Fixed::Text(Global::Fixed("0\n"))),
    (17, "random", Fixed::Dir),
    (18, "overcommit_memory", Fixed::Text(Global::Fixed("0\n"))),
    (18, "max_map_count", Fixed::Text(Global::Fixed("65530\n"))),
    (18, "mmap_min_addr", Fixed::Text(Global::Fixed("4096\n"))),
    (19, "file-max", Fixed::Text(Global::Fixed("65536\n"))),
    (19, "nr_open", Fixed::Text(Global::Fixed("65536\n"))),
    (19, "pipe-max-size", Fixed::Text(Global::Fixed("65536\n"))),
    (30, "boot_id", Fixed::Text(Global::BootId)),
    (0, "tty", Fixed::Dir),
    (38, "drivers", Fixed::Text(Global::Fixed(text::TTY_DRIVERS))),
];

#[derive(Clone, Copy)]
enum Fixed {
    Dir,
    Text(Global),
    Link(&'static str),
    SelfLink,
    ThreadSelf,
}

/// A text about the cell.
#[derive(Clone, Copy)]
enum Global {
    Stat,
    MemInfo,
    Uptime,
    LoadAvg,
    CpuInfo,
    Version,
    CommandLine,
    Cells,
    VmStat,
    OsType,
    OsRelease,
    OsVersion,
    HostName,
    DomainName,
    PidMax,
    BootId,
    Fixed(&'static str),
}

/// What stands in a process's directory; the discriminant is part of the inode number.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Item {
    Dir = 1,
    Stat,
    Statm,
    Status,
    Cmdline,
    Comm,
    Environ,
    Auxv,
    Maps,
    Limits,
    Mounts,
    MountInfo,
    Cell,
    Cgroup,
    OomScore,
    LoginUid,
    Exe,
    Cwd,
    Root,
    FdDir,
    Fd,
    FdInfoDir,
    FdInfo,
    TaskDir,
}

/// Entries of /proc/PID and /proc/PID/task/TID (which has no `task`).
const ITEMS: [(&str, Item); 21] = [
    ("stat", Item::Stat),
    ("statm", Item::Statm),
    ("status", Item::Status),
    ("cmdline", Item::Cmdline),
    ("comm", Item::Comm),
    ("environ", Item::Environ),
    ("auxv", Item::Auxv),
    ("maps", Item::Maps),
    ("limits", Item::Limits),
    ("mounts", Item::Mounts),
    ("mountinfo", Item::MountInfo),
    ("cell", Item::Cell),
    ("cgroup", Item::Cgroup),
    ("oom_score_adj", Item::OomScore),
    ("loginuid", Item::LoginUid),
    ("exe", Item::Exe),
    ("cwd", Item::Cwd),
    ("root", Item::Root),
    ("fd", Item::FdDir),
    ("fdinfo", Item::FdInfoDir),
    ("task", Item::TaskDir),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    /// Place in [`FIXED`].
    Fixed(usize),
    /// Process, thread (0: the process's own directory), what, descriptor.
    Process(i32, i32, Item, i32),
}

/// Cookies of a directory's entries: the fixed ones from here, numbered ones behind.
const NUMBERED: u64 = 1 << 16;

/// The file system of processes.
pub struct ProcFs {
    id: FsId,
    source: Arc<dyn ProcSource>,
    ns: Weak<Namespace>,
    me: Weak<ProcFs>,
}

impl ProcFs {
    /// `/proc` of a cell whose mounts are `ns`.
    pub fn new(id: FsId, source: Arc<dyn ProcSource>, ns: &Arc<Namespace>) -> Arc<ProcFs> {
        let ns = Arc::downgrade(ns);
        Arc::new_cyclic(|me| ProcFs { id, source, ns, me: me.clone() })
    }

    fn at(&self, node: Node) -> Result<VnodeRef> {
        let fs = self.me.upgrade().ok_or(Errno::ESTALE)?;
        Ok(Arc::new(ProcVnode { fs, node }))
    }

    fn global(&self, what: Global) -> String {
        let s = &self.source;
        let line = |text: String| text + "\n";
        match what {
            Global::Stat => text::cpu_stat(&s.harts(), &s.activity()),
            Global::MemInfo => text::meminfo(&s.memory()),
            Global::Uptime => text::uptime(&s.activity()),
            Global::LoadAvg => text::loadavg(&s.activity()),
            Global::CpuInfo => text::cpuinfo(&s.harts()),
            Global::Version => line(s.names().banner),
            Global::CommandLine => line(s.names().command_line),
            Global::Cells => text::cells(&s.cells()),
            Global::VmStat => {
                let m = s.memory();
                let page = hive_vm::PAGE_SIZE as u64;
                format!(
                    "nr_free_pages {}\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n",
                    m.free / page
                )
            }
            Global::OsType => line(s.names().sysname),
            Global::OsRelease => line(s.names().release),
            Global::OsVersion => line(s.names().version),
            Global::HostName => line(s.names().nodename),
            Global::DomainName => line(s.names().domainname),
            Global::PidMax => line(s.pid_max().to_string()),
            Global::BootId => line(s.names().boot_id),
            Global::Fixed(text) => text.to_owned(),
        }
    }

    fn item(&self, pid: i32, tid: i32, item: Item, fd: i32) -> Result<Vec<u8>> {
        let s = &self.source;
        let info = || s.process(pid, if tid == 0 { pid } else { tid });
        let ns = || self.ns.upgrade().ok_or(Errno::ENOENT);
        Ok(match item {
            Item::Cmdline => s.cmdline(pid)?,
            Item::Environ => s.environ(pid)?,
            Item::Auxv => s.auxv(pid)?,
            Item::Maps => s.maps(pid)?,
            Item::Limits => s.limits(pid)?,
            Item::Stat => text::stat(&info()?).into_bytes(),
            Item::Statm => text::statm(&info()?).into_bytes(),
            Item::Status => text::status(&info()?, s.harts().len()).into_bytes(),
            Item::Comm => (info()?.comm + "\n").into_bytes(),
            Item::Mounts => text::mounts(&*ns()?).into_bytes(),
            Item::MountInfo => text::mountinfo(&*ns()?).into_bytes(),
            Item::Cell => format!("{}\n", info()?.cell).into_bytes(),
            Item::Cgroup => b"0::/\n".to_vec(),
            Item::OomScore => b"0\n".to_vec(),
            Item::LoginUid => b"4294967295".to_vec(),
            Item::FdInfo => {
                let file = self.open_file(pid, fd)?;
                let at = file.lseek(0, crate::abi::seek::SEEK_CUR).unwrap_or(0);
                let (flags, mount) = (file.flags(), file.place().mount_id());
                format!("pos:\t{at}\nflags:\t0{flags:o}\nmnt_id:\t{mount}\n").into_bytes()
            }
            _ => return Err(Errno::EINVAL),
        })
    }

    fn open_file(&self, pid: i32, fd: i32) -> Result<Arc<crate::OpenFile>> {
        let files = self.source.files(pid)?;
        let found = files.into_iter().find(|(n, _)| *n == fd);
        found.map(|(_, f)| f).ok_or(Errno::ENOENT)
    }

    /// Names, cookies and nodes of a directory, after `.` and `..`, ascending by cookie.
    fn entries(&self, node: Node) -> Result<Vec<(u64, String, Node)>> {
        let mut all = Vec::new();
        let numbered = |n: i32, node: Node| (NUMBERED + n as u64, n.to_string(), node);
        match node {
            Node::Fixed(dir) => {
                for (i, (parent, name, _)) in FIXED.iter().enumerate().skip(1) {
                    if *parent == dir {
                        all.push((2 + i as u64, (*name).to_owned(), Node::Fixed(i)));
                    }
                }
                if dir == 0 {
                    let pids = self.source.pids().into_iter();
                    all.extend(pids.map(|p| numbered(p, Node::Process(p, 0, Item::Dir, 0))));
                }
            }
            Node::Process(pid, tid, Item::Dir, _) => {
                let shown = ITEMS.len() - (tid != 0) as usize;
                for (i, (name, item)) in ITEMS.iter().enumerate().take(shown) {
                    let node = Node::Process(pid, tid, *item, 0);
                    all.push((3 + i as u64, (*name).to_owned(), node));
                }
            }
            Node::Process(pid, _, Item::TaskDir, _) => {
                let tids = self.source.tids(pid)?.into_iter();
                all.extend(tids.map(|t| numbered(t, Node::Process(pid, t, Item::Dir, 0))));
            }
            Node::Process(pid, tid, dir @ (Item::FdDir | Item::FdInfoDir), _) => {
                let item = if dir == Item::FdDir { Item::Fd } else { Item::FdInfo };
                let fds = self.source.files(pid)?.into_iter().map(|(fd, _)| fd);
                all.extend(fds.map(|fd| numbered(fd, Node::Process(pid, tid, item, fd))));
            }
            _ => return Err(Errno::ENOTDIR),
        }
        Ok(all)
    }

    fn child(&self, dir: Node, name: &str) -> Result<Node> {
        // The common case without listing everything: a process, a thread, a descriptor.
        let number = name.parse::<i32>().ok().filter(|n| *n >= 0 && n.to_string() == name);
        match (dir, number) {
            (Node::Fixed(0), Some(pid)) => {
                self.source.process(pid, pid).map_err(gone)?;
                Ok(Node::Process(pid, 0, Item::Dir, 0))
            }
            (Node::Process(pid, _, Item::TaskDir, _), Some(tid)) => {
                self.source.process(pid, tid).map_err(gone)?;
                Ok(Node::Process(pid, tid, Item::Dir, 0))
            }
            (Node::Process(pid, tid, Item::FdDir, _), Some(fd)) => {
                self.open_file(pid, fd)?;
                Ok(Node::Process(pid, tid, Item::Fd, fd))
            }
            (Node::Process(pid, tid, Item::Dir, _), None) => {
                let shown = ITEMS.len() - (tid != 0) as usize;
                let found = ITEMS.iter().take(shown).find(|(n, _)| *n == name);
                Ok(Node::Process(pid, tid, found.ok_or(Errno::ENOENT)?.1, 0))
            }
            (Node::Fixed(dir), None) => {
                let found = FIXED.iter().skip(1).position(|(p, n, _)| *p == dir && *n == name);
                Ok(Node::Fixed(found.ok_or(Errno::ENOENT)? + 1))
            }
            _ => {
                let found = self.entries(dir)?.into_iter().find(|(_, n, _)| n == name);
                Ok(found.ok_or(Errno::ENOENT)?.2)
            }
        }
    }
}

/// A process that is gone has no directory.
fn gone(e: Errno) -> Errno {
    if e == Errno::ESRCH { Errno::ENOENT } else { e }
}

impl FileSystem for ProcFs {
    fn id(&self) -> FsId {
        self.id
    }
    fn type_name(&self) -> &'static str {
        "proc"
    }
    fn root(&self) -> Result<VnodeRef> {
        self.at(Node::Fixed(0))
    }
    fn vnode(&self, _id: VnodeId) -> Result<VnodeRef> {
        // Other cells read their own /proc.
        Err(Errno::ESTALE)
    }
    fn statfs(&self) -> Result<StatFs> {
        const PROC_SUPER_MAGIC: u64 = 0x9fa0;
        Ok(StatFs { magic: PROC_SUPER_MAGIC, ..StatFs::empty(self.id) })
    }
}

struct ProcVnode {
    fs: Arc<ProcFs>,
    node: Node,
}

impl ProcVnode {
    fn parent(&self) -> Node {
        match self.node {
            Node::Fixed(i) => Node::Fixed(FIXED.get(i).map_or(0, |f| f.0)),
            Node::Process(_, 0, Item::Dir, _) => Node::Fixed(0),
            Node::Process(pid, _, Item::Dir, _) => Node::Process(pid, 0, Item::TaskDir, 0),
            Node::Process(pid, tid, Item::Fd, _) => Node::Process(pid, tid, Item::FdDir, 0),
            Node::Process(pid, tid, Item::FdInfo, _) => Node::Process(pid, tid, Item::FdInfoDir, 0),
            Node::Process(pid, tid, ..) => Node::Process(pid, tid, Item::Dir, 0),
        }
    }

    fn text(&self) -> Result<Vec<u8>> {
        match self.node {
            Node::Fixed(i) => match FIXED.get(i) {
                Some((_, _, Fixed::Text(what))) => Ok(self.fs.global(*what).into_bytes()),
                _ => Err(Errno::EINVAL),
            },
            Node::Process(pid, tid, item, fd) => self.fs.item(pid, tid, item, fd),
        }
    }
}

impl Vnode for ProcVnode {
    fn id(&self) -> VnodeId {
        // Process 2^31, thread 2^31, item 2^5, descriptor 2^16: 83 bits into 64. Threads share
        // their process's numbers but for the directory, which takes the thread's place.
        let ino = match self.node {
            Node::Fixed(i) => 1 + i as u64,
            Node::Process(pid, tid, item, fd) => {
                let who = if tid == 0 { pid } else { tid } as u64;
                let thread = (tid != 0) as u64;
                who << 32 | thread << 31 | (item as u64) << 24 | fd as u64 & 0xff_ffff
            }
        };
        VnodeId { fs: self.fs.id, ino, generation: 0 }
    }
    fn kind(&self) -> FileType {
        match self.node {
            Node::Fixed(i) => match FIXED.get(i).map(|f| f.2) {
                Some(Fixed::Text(_)) => FileType::Regular,
                Some(Fixed::Dir) | None => FileType::Dir,
                Some(_) => FileType::Symlink,
            },
            Node::Process(_, _, item, _) => match item {
                Item::Dir | Item::FdDir | Item::FdInfoDir | Item::TaskDir => FileType::Dir,
                Item::Exe | Item::Cwd | Item::Root | Item::Fd => FileType::Symlink,
                _ => FileType::Regular,
            },
        }
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn getattr(&self) -> Result<Attr> {
        let kind = self.kind();
        let perm = match (kind, self.node) {
            (FileType::Symlink, _) => 0o777,
            (_, Node::Process(_, _, Item::FdDir | Item::FdInfoDir, _)) => 0o500,
            (_, Node::Process(_, _, Item::Environ | Item::Auxv, _)) => 0o400,
            (FileType::Dir, _) => 0o555,
            _ => 0o444,
        };
        let mut attr = Attr::bare(self.fs.id.dev(), self.id().ino, kind, perm);
        attr.blksize = 1024;
        if let Node::Process(pid, tid, ..) = self.node {
            let info = self.fs.source.process(pid, if tid == 0 { pid } else { tid })?;
            (attr.uid, attr.gid) = (info.uid[1], info.gid[1]);
        }
        Ok(attr)
    }
    fn lookup(&self, name: &[u8]) -> Result<VnodeRef> {
        if self.kind() != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        match name {
            b"." => self.fs.at(self.node),
            b".." => self.fs.at(self.parent()),
            _ => {
                let name = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
                self.fs.at(self.fs.child(self.node, name)?)
            }
        }
    }
    fn readdir(&self, cookie: u64, emit: &mut EmitEntry<'_>) -> Result<()> {
        let dots = [(1, ".".to_owned(), self.node), (2, "..".to_owned(), self.parent())];
        let all = self.fs.entries(self.node)?;
        for (next, name, node) in dots.into_iter().chain(all).filter(|e| e.0 > cookie) {
            let v = ProcVnode { fs: self.fs.clone(), node };
            let (ino, d_type) = (v.id().ino, v.kind().d_type());
            if !emit(DirEntry { ino, d_type, name: name.as_bytes(), next }) {
                break;
            }
        }
        Ok(())
    }
    fn readlink(&self) -> Result<Vec<u8>> {
        let (pid, tid) = self.fs.source.current();
        match self.node {
            Node::Fixed(i) => match FIXED.get(i).map(|f| f.2) {
                Some(Fixed::Link(to)) => Ok(to.as_bytes().to_vec()),
                Some(Fixed::SelfLink) => Ok(pid.to_string().into_bytes()),
                Some(Fixed::ThreadSelf) => Ok(format!("{pid}/task/{tid}").into_bytes()),
                _ => Err(Errno::EINVAL),
            },
            // Magic links are asked for their place; here only the kind is known to be wrong.
            Node::Process(..) => Err(Errno::EINVAL),
        }
    }
    fn magic_link(&self) -> Result<Option<Place>> {
        let s = &self.fs.source;
        let Node::Process(pid, _, item, fd) = self.node else { return Ok(None) };
        let place = match item {
            Item::Exe => s.exe(pid)?,
            Item::Cwd => s.cwd(pid)?,
            Item::Root => s.root(pid)?,
            Item::Fd => self.fs.open_file(pid, fd)?.place().clone(),
            _ => return Ok(None),
        };
        if s.may_inspect(pid, &self.getattr()?) { Ok(Some(place)) } else { Err(Errno::EACCES) }
    }
    fn open(&self, open_flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        use crate::abi::oflag::{O_ACCMODE, O_RDONLY};
        if self.kind() != FileType::Regular {
            return Ok(None);
        }
        if open_flags & O_ACCMODE != O_RDONLY {
            return Err(Errno::EACCES);
        }
        let node = ProcVnode { fs: self.fs.clone(), node: self.node };
        Ok(Some(Arc::new(TextFile { node, text: Mutex::new(None) })))
    }
}

/// An open text; the text stays the same until it is read from the start again.
struct TextFile {
    node: ProcVnode,
    text: Mutex<Option<Vec<u8>>>,
}

impl FileOps for TextFile {
    fn read(&self, offset: u64, _nonblock: bool, sink: &mut dyn ByteSink) -> Result<usize> {
        let text = {
            let mut text = self.text.lock();
            if offset == 0 || text.is_none() {
                *text = Some(self.node.text()?);
            }
            text.clone().unwrap_or_default()
        };
        put_from(sink, &text, offset)
    }
    fn write(&self, _offset: u64, _nonblock: bool, _source: &mut dyn ByteSource) -> Result<usize> {
        Err(Errno::EACCES)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn as_any(&self) -> &dyn core::any::Any {
        self
    }
}
