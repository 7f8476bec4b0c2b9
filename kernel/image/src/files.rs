//! The name space of the cell and the ends of its life: mounting at boot, writing back, powering
//! off.

use crate::frames::BlockDisk;
use crate::space::cache;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::abi::oflag::O_RDWR;
use hive_fs::abi::{Attr, FileType, Time, makedev};
use hive_fs::errno::{Errno, Result};
use hive_fs::ext2::{Clock, Ext2};
use hive_fs::pipe::{self, PipeFs};
use hive_fs::vnode::FsId;
use hive_fs::{FileSystem, Namespace, OpenFile, Place, Vnode, VnodeId};
use hive_hal::devicetree::Machine;
use hive_hal::sbi::{self, Reset};
use hive_hal::virtio_blk::Disk;
use hive_protocol::CellId;
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

/// Mounts what the cell has: its disk at the root, and the kernel's own file systems over it.
pub fn mount_all(machine: &Machine, cell: CellId) -> Result<()> {
    let disk = first_disk(machine).ok_or(Errno::ENXIO)?;
    let id = FsId::new(cell.index() as u16, 0);
    let root = Ext2::mount(Arc::new(BlockDisk(disk)), cache().clone(), id, Arc::new(WallClock))?;
    assert!(PIPES.set(PipeFs::new(FsId::new(cell.index() as u16, 1))).is_ok());
    let ns = Namespace::new(root, false, "/dev/vda")?;
    assert!(NAMESPACE.set(ns).is_ok(), "mounted once");
    Ok(())
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

struct ConsoleNode;

impl Vnode for ConsoleNode {
    fn id(&self) -> VnodeId {
        VnodeId { fs: FsId::new(0, 2), ino: 1, generation: 0 }
    }
    fn kind(&self) -> FileType {
        FileType::Char
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        PIPES.get().expect("made at boot").clone()
    }
    fn getattr(&self) -> Result<Attr> {
        Ok(Attr {
            rdev: makedev(5, 1),
            ..Attr::bare(FsId::new(0, 2).dev(), 1, FileType::Char, 0o600)
        })
    }
}

/// The console of the cell, open for reading and writing.
pub fn open_console() -> Result<Arc<OpenFile>> {
    let place = Place::anonymous(Arc::new(ConsoleNode));
    Ok(OpenFile::with_ops(place, Some(crate::console::console().open()), O_RDWR))
}
