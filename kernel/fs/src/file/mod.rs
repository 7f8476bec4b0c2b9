//! The open file description: what a file descriptor leads to, shared by dup and fork.
//!
//! Lock order: `offset` (sleeping) before any lock of the vnode; `flags` is a leaf.
//! Stream files ([`FileOps`] that are not seekable) never take `offset`, so a reader that blocks
//! keeps no other reader out.

mod copy;
mod lock;
mod table;

pub use copy::{copy_file_range, sendfile};
pub use lock::{LockKind, LockRange, RecordLock, drop_locks, get_lock, set_lock};
pub use table::{FdTable, OPEN_MAX};

use crate::abi::{Attr, FileType, oflag::*, push_dirent64, seek};
use crate::errno::{Errno, Result};
use crate::io::{ByteSink, ByteSource, UserArg, put_all};
use crate::name::Place;
use crate::poll::{self, PollTable};
use crate::vnode::{SetAttr, VnodeRef};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_sync::{Mutex, SpinLock, rank};

/// Operations of an open file that are its own: pipes, terminals, devices, sockets, generated
/// text. One object per open; dropping it is the close.
pub trait FileOps: Send + Sync {
    /// Reads, at `offset` if [`Self::seekable`]. Blocks unless `nonblock` (then `EAGAIN`); a
    /// signal is `ERESTARTSYS`. 0 is the end.
    fn read(&self, offset: u64, nonblock: bool, sink: &mut dyn ByteSink) -> Result<usize>;
    /// Writes, as [`Self::read`] reads.
    fn write(&self, offset: u64, nonblock: bool, source: &mut dyn ByteSource) -> Result<usize>;
    /// True if it has offsets (generated text); streams have none.
    fn seekable(&self) -> bool {
        false
    }
    /// True if it has an offset that is kept elsewhere: an open file that came from another
    /// cell. read and write then use that offset, and [`Self::seek`] moves it.
    fn shared_offset(&self) -> bool {
        false
    }
    /// lseek(2) where [`Self::shared_offset`].
    fn seek(&self, _delta: i64, _whence: u32) -> Result<u64> {
        Err(Errno::ESPIPE)
    }
    /// Registers with `table`, then answers `POLL*` bits of its state now.
    fn poll(&self, _table: &mut PollTable) -> u16 {
        poll::ALWAYS_READY
    }
    /// Device control.
    fn ioctl(&self, _cmd: u32, _arg: &dyn UserArg) -> Result<usize> {
        Err(Errno::ENOTTY)
    }
    /// Lets the kernel find its own objects again behind a descriptor (sockets, epoll).
    fn as_any(&self) -> &dyn core::any::Any;
}

/// Largest count of one read or write, bytes (Linux `MAX_RW_COUNT`).
pub const MAX_RW_COUNT: usize = 0x7fff_f000;

/// FIONREAD: bytes that can be read at once, to an int.
pub const FIONREAD: u32 = 0x541b;
/// FIONBIO: O_NONBLOCK from an int.
pub const FIONBIO: u32 = 0x5421;

/// An open file description.
pub struct OpenFile {
    place: Place,
    ops: Option<Arc<dyn FileOps>>,
    flags: SpinLock<u32>,
    offset: Mutex<u64>,
    data_generation: u32,
}

impl OpenFile {
    /// Opens the file at `place`: permissions are checked already, O_CREAT and O_TRUNC done.
    /// May block (fifo).
    pub fn open(place: Place, flags: u32) -> Result<Arc<OpenFile>> {
        let ops = if flags & O_PATH == 0 { place.vnode().open(flags)? } else { None };
        Ok(Self::with_ops(place, ops, flags))
    }

    /// An open file with operations that exist already (pipe, socket, epoll); see
    /// [`Place::anonymous`].
    pub fn with_ops(place: Place, ops: Option<Arc<dyn FileOps>>, flags: u32) -> Arc<OpenFile> {
        let keep = !(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC);
        Arc::new(OpenFile {
            data_generation: place.vnode().data_generation(),
            place,
            ops,
            flags: SpinLock::ranked(rank::FILE, flags & keep),
            offset: Mutex::new(0),
        })
    }

    /// Where it was opened.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Its vnode.
    pub fn vnode(&self) -> &VnodeRef {
        self.place.vnode()
    }

    /// Its own operations, if it has them.
    pub fn ops(&self) -> Option<&Arc<dyn FileOps>> {
        self.ops.as_ref()
    }

    /// Open flags as F_GETFL tells them.
    pub fn flags(&self) -> u32 {
        *self.flags.lock()
    }

    /// F_SETFL: changes only the flags that may change.
    pub fn set_flags(&self, new: u32) {
        let mut flags = self.flags.lock();
        *flags = *flags & !SETFL | new & SETFL;
    }

    /// True if opened with O_PATH: good for names only.
    pub fn is_path(&self) -> bool {
        self.flags() & O_PATH != 0
    }

    /// True if it can be read.
    pub fn readable(&self) -> bool {
        let f = self.flags();
        f & O_PATH == 0 && f & O_ACCMODE != O_WRONLY
    }

    /// True if it can be written.
    pub fn writable(&self) -> bool {
        let f = self.flags();
        f & O_PATH == 0 && f & O_ACCMODE != O_RDONLY
    }

    fn nonblock(&self) -> bool {
        self.flags() & O_NONBLOCK != 0
    }

    /// `EIO` if dirty data of the file was lost since it was opened (Hive §4.2).
    pub fn check_generation(&self) -> Result<()> {
        match self.vnode().data_generation() == self.data_generation {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }

    /// The data generation seen at open, for address space regions that map the file.
    pub fn data_generation(&self) -> u32 {
        self.data_generation
    }

    fn is_stream(&self) -> bool {
        self.ops.as_ref().is_some_and(|o| !o.seekable())
    }

    fn read_from(&self, offset: u64, sink: &mut dyn ByteSink) -> Result<usize> {
        match &self.ops {
            Some(ops) => ops.read(offset, self.nonblock(), sink),
            None => {
                self.check_generation()?;
                self.vnode().read_at(offset, sink)
            }
        }
    }

    /// Writes; answers the count and the offset behind it. `None` means at the end.
    fn write_to(&self, offset: Option<u64>, source: &mut dyn ByteSource) -> Result<(usize, u64)> {
        match &self.ops {
            Some(ops) => {
                let at = offset.unwrap_or(0);
                let n = ops.write(at, self.nonblock(), source)?;
                Ok((n, at + n as u64))
            }
            None => {
                self.check_generation()?;
                let r = self.vnode().write_at(offset, source)?;
                if self.flags() & O_DSYNC != 0 {
                    self.vnode().fsync(self.flags() & O_SYNC != O_SYNC)?;
                }
                Ok(r)
            }
        }
    }

    /// read(2), readv(2).
    pub fn read(&self, sink: &mut dyn ByteSink) -> Result<usize> {
        self.want_read()?;
        if self.is_stream() {
            return self.read_from(0, sink);
        }
        let mut offset = self.offset.lock();
        let n = self.read_from(*offset, sink)?;
        *offset += n as u64;
        Ok(n)
    }

    /// write(2), writev(2). `EPIPE` asks the caller to send SIGPIPE.
    pub fn write(&self, source: &mut dyn ByteSource) -> Result<usize> {
        self.want_write()?;
        if self.is_stream() {
            return Ok(self.write_to(None, source)?.0);
        }
        let mut offset = self.offset.lock();
        let at = if self.flags() & O_APPEND != 0 { None } else { Some(*offset) };
        let (n, behind) = self.write_to(at, source)?;
        *offset = behind;
        Ok(n)
    }

    /// pread(2), preadv(2).
    pub fn pread(&self, offset: u64, sink: &mut dyn ByteSink) -> Result<usize> {
        self.want_read()?;
        self.seekable_at(offset)?;
        self.read_from(offset, sink)
    }

    /// pwrite(2), pwritev(2). With O_APPEND it appends, as on Linux.
    pub fn pwrite(&self, offset: u64, source: &mut dyn ByteSource) -> Result<usize> {
        self.want_write()?;
        self.seekable_at(offset)?;
        let at = if self.flags() & O_APPEND != 0 { None } else { Some(offset) };
        Ok(self.write_to(at, source)?.0)
    }

    fn want_read(&self) -> Result<()> {
        if self.readable() { Ok(()) } else { Err(Errno::EBADF) }
    }

    fn want_write(&self) -> Result<()> {
        if self.writable() { Ok(()) } else { Err(Errno::EBADF) }
    }

    fn seekable_at(&self, offset: u64) -> Result<()> {
        match () {
            _ if self.is_stream() => Err(Errno::ESPIPE),
            _ if offset > i64::MAX as u64 => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// lseek(2); on a directory it sets the reading cookie.
    pub fn lseek(&self, delta: i64, whence: u32) -> Result<u64> {
        if self.is_path() {
            return Err(Errno::EBADF);
        }
        if let Some(ops) = self.ops.as_ref().filter(|ops| ops.shared_offset()) {
            return ops.seek(delta, whence);
        }
        self.seekable_at(0)?;
        let mut offset = self.offset.lock();
        let by = |base: u64| base.checked_add_signed(delta).ok_or(Errno::EINVAL);
        let to = match whence {
            seek::SEEK_SET => by(0)?,
            seek::SEEK_CUR => by(*offset)?,
            seek::SEEK_END => by(self.vnode().getattr()?.size)?,
            seek::SEEK_DATA | seek::SEEK_HOLE => {
                let from = u64::try_from(delta).map_err(|_| Errno::ENXIO)?;
                self.vnode().seek_extent(from, whence == seek::SEEK_HOLE)?
            }
            _ => return Err(Errno::EINVAL),
        };
        if to > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        *offset = to;
        Ok(to)
    }

    /// getdents64(2): whole entries, as many as there is room for; `EINVAL` if not even one.
    pub fn getdents64(&self, sink: &mut dyn ByteSink) -> Result<usize> {
        self.want_read()?;
        if self.vnode().kind() != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        // Gathered here and copied out once: emitting may not touch user memory.
        const CHUNK: usize = 32 * 1024;
        let limit = sink.left().min(CHUNK);
        let mut offset = self.offset.lock();
        let (mut out, mut cookie, mut full) = (Vec::new(), *offset, false);
        self.vnode().readdir(cookie, &mut |e| {
            full = !push_dirent64(&mut out, limit, e.ino, e.next, e.d_type, e.name);
            if !full {
                cookie = e.next;
            }
            !full
        })?;
        if full && out.is_empty() {
            return Err(Errno::EINVAL);
        }
        if put_all(sink, &out)? < out.len() {
            return Err(Errno::EFAULT);
        }
        *offset = cookie;
        Ok(out.len())
    }

    /// `POLL*` state; registers with `table` first.
    pub fn poll(&self, table: &mut PollTable) -> u16 {
        match &self.ops {
            Some(ops) => ops.poll(table),
            None => poll::ALWAYS_READY,
        }
    }

    /// ioctl(2), except what concerns descriptors (FIOCLEX, FIONCLEX).
    pub fn ioctl(&self, cmd: u32, arg: &dyn UserArg) -> Result<usize> {
        if self.is_path() {
            return Err(Errno::EBADF);
        }
        if cmd == FIONBIO {
            let mut on = [0; 4];
            arg.read(&mut on)?;
            let mut flags = self.flags.lock();
            *flags = if on == [0; 4] { *flags & !O_NONBLOCK } else { *flags | O_NONBLOCK };
            return Ok(0);
        }
        match &self.ops {
            Some(ops) => ops.ioctl(cmd, arg),
            None if cmd == FIONREAD && self.vnode().kind() == FileType::Regular => {
                let left = self.vnode().getattr()?.size.saturating_sub(*self.offset.lock());
                arg.write(&(left.min(i32::MAX as u64) as i32).to_le_bytes())?;
                Ok(0)
            }
            None => Err(Errno::ENOTTY),
        }
    }

    /// fstat(2).
    pub fn getattr(&self) -> Result<Attr> {
        self.vnode().getattr()
    }

    /// ftruncate(2).
    pub fn truncate(&self, size: u64) -> Result<()> {
        if !self.writable() || self.vnode().kind() != FileType::Regular {
            return Err(Errno::EINVAL);
        }
        self.check_generation()?;
        self.vnode().setattr(&SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// fsync(2), fdatasync(2). Lost dirty data is told here too.
    pub fn fsync(&self, data_only: bool) -> Result<()> {
        if self.is_path() {
            return Err(Errno::EBADF);
        }
        if self.ops.is_some() {
            return Err(Errno::EINVAL);
        }
        self.check_generation()?;
        self.vnode().fsync(data_only)
    }
}
