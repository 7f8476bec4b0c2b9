//! The name space of the cell and the ends of its life: mounting at boot, writing back, powering
//! off.

use crate::frames::BlockDisk;
use crate::space::{cache, memory_bytes};
use crate::{cell, console, procfs_source};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::abi::Time;
use hive_fs::abi::oflag::O_RDWR;
use hive_fs::devfs::DevFs;
use hive_fs::errno::{Errno, Result};
use hive_fs::ext2::{Clock, Ext2};
use hive_fs::name::Mount;
use hive_fs::pipe::{self, PipeFs};
use hive_fs::procfs::ProcFs;
use hive_fs::tmpfs::TmpFs;
use hive_fs::vnode::FsId;
use hive_fs::{At, Cred, FileSystem, Namespace, OpenFile, Place, VnodeRef};
use hive_hal::devicetree::Machine;
use hive_hal::sbi::{self, Reset};
use hive_hal::virtio_blk::Disk;
use hive_protocol::CellId;
use hive_remote::wire::Tree;
use hive_sync::{Once, sched::sleep_ns};

/// The mounts of the cell.
pub static NAMESPACE: Once<Arc<Namespace>> = Once::new();

/// The path of `place` as the kernel sees it.
pub fn show_path(place: &Place) -> Vec<u8> {
    match NAMESPACE.get() {
        Some(ns) => ns.show_path(place, &ns.root()),
        None => Vec::new(),
    }
}

/// Writes everything dirty to the disks; the first error, after trying all.
pub fn sync_all() -> Result<()> {
    let Some(ns) = NAMESPACE.get() else { return Ok(()) };
    let mut result = Ok(());
    let mut done = Vec::new();
    for mount in ns.mounts() {
        let id = mount.fs.id();
        if !done.contains(&id) {
            done.push(id);
            result = result.and(mount.fs.sync());
        }
    }
    result.and(cache().sync_all().map_err(crate::space::errno))
}

/// Writes everything back and turns the machine off; the firmware passes `code` on if it can
/// (reset reason `0xe000_0000 | code`).
pub fn power_off(code: u8) -> ! {
    if let Err(why) = sync_all() {
        log!("hive: not everything could be written: {why}");
    }
    log!("hive: power off, code {code}");
    console::let_out();
    sbi::system_reset(Reset::Exit(code));
    sbi::system_reset(if code == 0 { Reset::Shutdown } else { Reset::Failure });
    panic!("the firmware does not power off")
}

/// Writes everything back and starts the machine again.
pub fn restart() -> ! {
    if let Err(why) = sync_all() {
        log!("hive: not everything could be written: {why}");
    }
    sbi::system_reset(Reset::Reboot);
    panic!("the firmware does not reboot")
}

/// Pages that the flusher writes at a time.
const FLUSH_PAGES: usize = 256;
/// Between two rounds of the flusher.
const FLUSH_PERIOD_NS: u64 = 5_000_000_000;

/// Starts the kernel thread that writes old dirty pages back.
pub fn start_flusher() {
    crate::sched::spawn_kernel("flusher", || {
        loop {
            sleep_ns(FLUSH_PERIOD_NS);
            // What cannot be written now stays dirty; fsync tells who asks.
            let _ = cache().flush(FLUSH_PAGES);
        }
    });
}

/// The time of day, for file systems.
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Time {
        let ns = crate::time::wall_ns();
        Time { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as u32 }
    }
}

/// File systems of a cell, by their number in its [`FsId`]s.
mod number {
    pub const DISK: u16 = 0;
    pub const PIPES: u16 = 1;
    pub const DEV: u16 = 2;
    pub const PROC: u16 = 3;
    pub const TMP: u16 = 4;
    pub const SHM: u16 = 5;
    pub const RUN: u16 = 6;
}

/// Share of memory that a tmpfs may fill.
const TMPFS_SHARE: u64 = 4;

/// Mounts what the cell has: its disk at the root, the writable tree `/cells/N`, and the kernel's
/// own file systems.
///
/// A disk with a directory `/cells/N` for this cell is the base tree of a machine of cells and
/// read-only but for that directory; any other disk is one system's own and writable.
pub fn mount_all(machine: &Machine, cell: CellId) -> Result<()> {
    let fs_id = |number| FsId::new(cell.index() as u16, number);
    let disk = first_disk(machine).ok_or(Errno::ENXIO)?;
    let disk = Arc::new(BlockDisk(disk));
    let root = Ext2::mount(disk, cache().clone(), fs_id(number::DISK), Arc::new(WallClock))?;
    let own = own_tree(&*root, cell);
    let ns = Namespace::new(root.clone(), own.is_some(), "/dev/vda")?;
    assert!(PIPES.set(PipeFs::new(fs_id(number::PIPES))).is_ok());
    if let Some(vnode) = own {
        cell::files::offer(&(root.clone() as Arc<dyn FileSystem>), Tree::Cell, vnode.clone());
        mount_at(&ns, &format!("/cells/{cell}"), root, vnode, "/dev/vda")?;
    }
    let dev = DevFs::new(fs_id(number::DEV), Arc::new(console::Wire), console::console().clone());
    mount_root(&ns, "/dev", dev, "devtmpfs")?;
    let proc = ProcFs::new(fs_id(number::PROC), Arc::new(procfs_source::Kernel), &ns);
    mount_root(&ns, "/proc", proc, "proc")?;
    let limit = memory_bytes().0 / TMPFS_SHARE / hive_vm::PAGE_SIZE as u64;
    for (path, number) in [("/tmp", number::TMP), ("/dev/shm", number::SHM), ("/run", number::RUN)]
    {
        let tmp = TmpFs::new(cache().clone(), fs_id(number), Arc::new(WallClock), limit)?;
        if number == number::TMP {
            let fs: Arc<dyn FileSystem> = tmp.clone();
            cell::files::offer(&fs, Tree::Tmp, tmp.root()?);
        }
        mount_root(&ns, path, tmp, "tmpfs")?;
    }
    assert!(NAMESPACE.set(ns).is_ok(), "mounted once");
    Ok(())
}

/// The directory `/cells/N` of the disk, if there is one.
fn own_tree(disk: &dyn FileSystem, cell: CellId) -> Option<VnodeRef> {
    let cells = disk.root().ok()?.lookup(b"cells").ok()?;
    cells.lookup(format!("{cell}").as_bytes()).ok()
}

/// Mounts the root of `fs` at `path`. A disk without that directory goes without the mount.
fn mount_root(ns: &Namespace, path: &str, fs: Arc<dyn FileSystem>, source: &str) -> Result<()> {
    let root = fs.root()?;
    mount_at(ns, path, fs, root, source).map(drop)
}

/// Mounts `vnode` of `fs` at `path`; `None` if there is no such directory.
pub fn mount_at(
    ns: &Namespace,
    path: &str,
    fs: Arc<dyn FileSystem>,
    vnode: VnodeRef,
    source: &str,
) -> Result<Option<Arc<Mount>>> {
    let root = ns.root();
    let at = At { ns, root: &root, base: &root, cred: &Cred::root() };
    match at.resolve(path.as_bytes(), true) {
        Ok(place) => ns.mount(&place, fs, vnode, false, source).map(Some),
        Err(why) => {
            log!("hive: {path} is not mounted: {why}");
            Ok(None)
        }
    }
}

/// The first disk of the cell's own nodes.
fn first_disk(machine: &Machine) -> Option<&'static Disk> {
    let own = machine.virtio.iter().filter(|d| machine.cell_nodes.contains(&d.node));
    own.filter_map(|device| Disk::start(*device).ok().flatten()).next()
}

static PIPES: Once<Arc<PipeFs>> = Once::new();

/// pipe2(2).
pub fn pipe(flags: u32) -> Result<(Arc<OpenFile>, Arc<OpenFile>)> {
    Ok(PIPES.get().ok_or(Errno::ENFILE)?.pipe(flags))
}

/// Bytes that the pipe `file` holds at most; `EBADF` if it is none.
pub fn pipe_size(file: &OpenFile) -> Result<usize> {
    file.ops().and_then(|ops| pipe::pipe_size(&**ops)).ok_or(Errno::EBADF)
}

/// The console of the cell, open for reading and writing.
pub fn open_console() -> Result<Arc<OpenFile>> {
    let ns = NAMESPACE.get().ok_or(Errno::ENOENT)?;
    let root = ns.root();
    At { ns, root: &root, base: &root, cred: &Cred::root() }.open(b"/dev/console", O_RDWR, 0)
}
