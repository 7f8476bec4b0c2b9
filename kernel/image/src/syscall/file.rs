//! Calls on open files.
//!
//! Partial: `fcntl` has no leases, signals or owners; `flock` locks whole files as a record lock
//! of the descriptor table would, so between processes only; `fallocate` is `EOPNOTSUPP` (callers
//! then write zeros); `fadvise64`, `readahead` and `sync_file_range` are hints that are checked
//! and not taken. Sockets are absent: `EAFNOSUPPORT`.

use super::{Answer, Call, RawArg, Stop, UserSink, UserSource, VectorSink, VectorSource, path};
use crate::process::post;
use crate::signal::{SIGPIPE, SigInfo};
use alloc::sync::Arc;
use hive_fs::OpenFile;
use hive_fs::abi::oflag::{O_CLOEXEC, O_DIRECT, O_NONBLOCK};
use hive_fs::abi::seek;
use hive_fs::errno::Errno;
use hive_fs::file::{self, LockKind, LockRange, RecordLock};

/// The open file that argument `at` names.
pub fn open_file(call: &Call<'_>, at: usize) -> Result<Arc<OpenFile>, Stop> {
    Ok(call.process().files()?.get(call.int(at))?)
}

/// As [`open_file`], for calls that O_PATH files refuse.
fn io_file(call: &Call<'_>, at: usize) -> Result<Arc<OpenFile>, Stop> {
    Ok(call.process().files()?.get_io(call.int(at))?)
}

/// The answer of a write; a broken pipe also sends SIGPIPE.
fn written(call: &Call<'_>, result: Result<usize, Errno>) -> Answer {
    if result == Err(Errno::EPIPE) {
        let _ = post(call.process(), Some(call.thread), SigInfo::kernel(SIGPIPE));
    }
    Ok(result?)
}

/// read(2)
pub fn read(call: &mut Call<'_>) -> Answer {
    let mut sink = UserSink::new(call.args[1], call.len(2));
    Ok(io_file(call, 0)?.read(&mut sink)?)
}

/// write(2)
pub fn write(call: &mut Call<'_>) -> Answer {
    let mut source = UserSource::new(call.args[1], call.len(2));
    let result = io_file(call, 0)?.write(&mut source);
    written(call, result)
}

/// readv(2)
pub fn readv(call: &mut Call<'_>) -> Answer {
    let mut sink = VectorSink::new(call.iovecs(call.args[1], call.args[2])?);
    Ok(io_file(call, 0)?.read(&mut sink)?)
}

/// writev(2)
pub fn writev(call: &mut Call<'_>) -> Answer {
    let mut source = VectorSource::new(call.iovecs(call.args[1], call.args[2])?);
    let result = io_file(call, 0)?.write(&mut source);
    written(call, result)
}

/// pread64(2)
pub fn pread64(call: &mut Call<'_>) -> Answer {
    let mut sink = UserSink::new(call.args[1], call.len(2));
    Ok(io_file(call, 0)?.pread(call.args[3], &mut sink)?)
}

/// pwrite64(2)
pub fn pwrite64(call: &mut Call<'_>) -> Answer {
    let mut source = UserSource::new(call.args[1], call.len(2));
    let result = io_file(call, 0)?.pwrite(call.args[3], &mut source);
    written(call, result)
}

/// preadv(2)
pub fn preadv(call: &mut Call<'_>) -> Answer {
    let mut sink = VectorSink::new(call.iovecs(call.args[1], call.args[2])?);
    Ok(io_file(call, 0)?.pread(call.args[3], &mut sink)?)
}

/// pwritev(2)
pub fn pwritev(call: &mut Call<'_>) -> Answer {
    let mut source = VectorSource::new(call.iovecs(call.args[1], call.args[2])?);
    let result = io_file(call, 0)?.pwrite(call.args[3], &mut source);
    written(call, result)
}

/// An offset at a user address, or none if that is null.
fn offset_at(call: &Call<'_>, address: u64) -> Result<Option<u64>, Stop> {
    match address {
        0 => Ok(None),
        at => {
            let offset = u64::from_le_bytes(call.read(at)?);
            if offset > i64::MAX as u64 { Err(Errno::EINVAL.into()) } else { Ok(Some(offset)) }
        }
    }
}

/// sendfile(2)
pub fn sendfile(call: &mut Call<'_>) -> Answer {
    let (out, from) = (io_file(call, 0)?, io_file(call, 1)?);
    let mut offset = offset_at(call, call.args[2])?;
    let count = call.len(3).min(super::TRANSFER_MAX);
    let result = file::sendfile(&out, &from, offset.as_mut(), count);
    let n = written(call, result)?;
    if let Some(offset) = offset {
        call.write(call.args[2], &offset.to_le_bytes())?;
    }
    Ok(n)
}

/// copy_file_range(2)
pub fn copy_file_range(call: &mut Call<'_>) -> Answer {
    let (from, to) = (io_file(call, 0)?, io_file(call, 2)?);
    let (mut a, mut b) = (offset_at(call, call.args[1])?, offset_at(call, call.args[3])?);
    if call.uint(5) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let count = call.len(4).min(super::TRANSFER_MAX);
    let n = file::copy_file_range(&from, a.as_mut(), &to, b.as_mut(), count)?;
    for (offset, at) in [(a, call.args[1]), (b, call.args[3])] {
        if let Some(offset) = offset {
            call.write(at, &offset.to_le_bytes())?;
        }
    }
    Ok(n)
}

/// lseek(2)
pub fn lseek(call: &mut Call<'_>) -> Answer {
    Ok(open_file(call, 0)?.lseek(call.args[1] as i64, call.uint(2))? as usize)
}

/// getdents64(2)
pub fn getdents64(call: &mut Call<'_>) -> Answer {
    let mut sink = UserSink::new(call.args[1], call.uint(2) as usize);
    Ok(open_file(call, 0)?.getdents64(&mut sink)?)
}

/// close(2)
pub fn close(call: &mut Call<'_>) -> Answer {
    call.process().files()?.close(call.int(0))?;
    Ok(0)
}

/// close_range(2)
pub fn close_range(call: &mut Call<'_>) -> Answer {
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    let flags = call.uint(2);
    if flags & !(UNSHARE | CLOEXEC) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let files = call.process().files()?;
    files.close_range(call.uint(0), call.uint(1), flags & CLOEXEC != 0)?;
    Ok(0)
}

/// dup(2)
pub fn dup(call: &mut Call<'_>) -> Answer {
    Ok(call.process().files()?.dup(call.int(0), 0, false)? as usize)
}

/// dup3(2)
pub fn dup3(call: &mut Call<'_>) -> Answer {
    let flags = call.uint(2);
    if flags & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL.into());
    }
    let files = call.process().files()?;
    Ok(files.dup3(call.int(0), call.int(1), flags & O_CLOEXEC != 0)? as usize)
}

/// pipe2(2)
pub fn pipe2(call: &mut Call<'_>) -> Answer {
    let flags = call.uint(1);
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let (reader, writer) = crate::files::pipe(flags & !O_CLOEXEC)?;
    let files = call.process().files()?;
    let cloexec = flags & O_CLOEXEC != 0;
    let r = files.install(reader, cloexec, 0)?;
    let w = files.install(writer, cloexec, 0).inspect_err(|_| {
        let _ = files.close(r);
    })?;
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&r.to_le_bytes());
    bytes[4..].copy_from_slice(&w.to_le_bytes());
    call.write(call.args[0], &bytes).inspect_err(|_| {
        let _ = files.close(r);
        let _ = files.close(w);
    })?;
    Ok(0)
}

/// ioctl(2)
pub fn ioctl(call: &mut Call<'_>) -> Answer {
    const FIONCLEX: u32 = 0x5450;
    const FIOCLEX: u32 = 0x5451;
    let file = open_file(call, 0)?;
    let command = call.uint(1);
    match command {
        FIOCLEX | FIONCLEX => {
            call.process().files()?.set_cloexec(call.int(0), command == FIOCLEX)?;
            Ok(0)
        }
        _ => Ok(file.ioctl(command, &RawArg(call.args[2]))?),
    }
}

/// fcntl(2)
pub fn fcntl(call: &mut Call<'_>) -> Answer {
    const F_DUPFD: u32 = 0;
    const F_GETFD: u32 = 1;
    const F_SETFD: u32 = 2;
    const F_GETFL: u32 = 3;
    const F_SETFL: u32 = 4;
    const F_GETLK: u32 = 5;
    const F_SETLK: u32 = 6;
    const F_SETLKW: u32 = 7;
    const F_DUPFD_CLOEXEC: u32 = 1030;
    const F_SETPIPE_SZ: u32 = 1031;
    const F_GETPIPE_SZ: u32 = 1032;
    let files = call.process().files()?;
    let fd = call.int(0);
    let file = files.get(fd)?;
    let argument = call.args[2];
    match call.uint(1) {
        F_DUPFD => Ok(files.dup(fd, argument as i32, false)? as usize),
        F_DUPFD_CLOEXEC => Ok(files.dup(fd, argument as i32, true)? as usize),
        F_GETFD => Ok(files.cloexec(fd)? as usize),
        F_SETFD => {
            files.set_cloexec(fd, argument & 1 != 0)?;
            Ok(0)
        }
        F_GETFL => Ok(file.flags() as usize),
        F_SETFL => {
            file.set_flags(argument as u32);
            Ok(0)
        }
        command @ (F_GETLK | F_SETLK | F_SETLKW) => {
            record_lock(call, &file, command == F_GETLK, command == F_SETLKW)
        }
        F_GETPIPE_SZ => Ok(crate::files::pipe_size(&file)?),
        F_SETPIPE_SZ => {
            // The size is fixed; as Linux, the answer is the size there is, if it is enough.
            let size = crate::files::pipe_size(&file)?;
            if argument as usize <= size { Ok(size) } else { Err(Errno::EPERM.into()) }
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

/// F_GETLK, F_SETLK, F_SETLKW: `struct flock` is type, whence, start, length, pid.
fn record_lock(call: &Call<'_>, file: &OpenFile, query: bool, wait: bool) -> Answer {
    const F_UNLCK: u16 = 2;
    let mut b: [u8; 32] = call.read(call.args[2])?;
    let half = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
    let word = |at: usize| i64::from_le_bytes(core::array::from_fn(|i| b[at + i]));
    let (kind, whence) = (half(0), half(2));
    let base = match whence as u32 {
        seek::SEEK_SET => 0,
        seek::SEEK_CUR => file.lseek(0, seek::SEEK_CUR)? as i64,
        seek::SEEK_END => file.getattr()?.size as i64,
        _ => return Err(Errno::EINVAL.into()),
    };
    let start = base.checked_add(word(8)).ok_or(Errno::EOVERFLOW)?;
    let len = word(16);
    let (start, end) = match len {
        0 => (start, u64::MAX),
        1.. => (start, start.checked_add(len).ok_or(Errno::EOVERFLOW)? as u64),
        _ => (start.checked_add(len).ok_or(Errno::EINVAL)?, start as u64),
    };
    let start = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
    let lock_kind = match kind {
        0 => LockKind::Read,
        1 | F_UNLCK => LockKind::Write,
        _ => return Err(Errno::EINVAL.into()),
    };
    let files = call.process().files()?;
    let lock = RecordLock {
        range: LockRange { start, end },
        kind: lock_kind,
        owner: files.lock_owner(),
        pid: call.process().pid,
    };
    let id = file.vnode().id();
    if !query {
        let allowed = match kind {
            0 => file.readable(),
            1 => file.writable(),
            _ => true,
        };
        if !allowed {
            return Err(Errno::EBADF.into());
        }
        file::set_lock(id, lock, kind == F_UNLCK, wait)?;
        return Ok(0);
    }
    match file::get_lock(id, &lock) {
        None => b[..2].copy_from_slice(&F_UNLCK.to_le_bytes()),
        Some(held) => {
            let kind = if held.kind == LockKind::Read { 0u16 } else { 1 };
            let len =
                if held.range.end == u64::MAX { 0 } else { held.range.end - held.range.start };
            b[..2].copy_from_slice(&kind.to_le_bytes());
            b[2..4].copy_from_slice(&0u16.to_le_bytes());
            b[8..16].copy_from_slice(&held.range.start.to_le_bytes());
            b[16..24].copy_from_slice(&len.to_le_bytes());
            b[24..28].copy_from_slice(&held.pid.to_le_bytes());
        }
    }
    call.write(call.args[2], &b)?;
    Ok(0)
}

/// flock(2)
pub fn flock(call: &mut Call<'_>) -> Answer {
    const SHARED: u32 = 1;
    const EXCLUSIVE: u32 = 2;
    const NONBLOCK: u32 = 4;
    const UNLOCK: u32 = 8;
    let file = io_file(call, 0)?;
    let operation = call.uint(1);
    let kind = match operation & !NONBLOCK {
        SHARED => LockKind::Read,
        EXCLUSIVE | UNLOCK => LockKind::Write,
        _ => return Err(Errno::EINVAL.into()),
    };
    let owner = call.process().files()?.lock_owner();
    let range = LockRange { start: 0, end: u64::MAX };
    let lock = RecordLock { range, kind, owner, pid: call.process().pid };
    let unlock = operation & UNLOCK != 0;
    file::set_lock(file.vnode().id(), lock, unlock, operation & NONBLOCK == 0)?;
    Ok(0)
}

/// fstat(2)
pub fn fstat(call: &mut Call<'_>) -> Answer {
    let attr = open_file(call, 0)?.getattr()?;
    call.write(call.args[1], &attr.stat())?;
    Ok(0)
}

/// fsync(2)
pub fn fsync(call: &mut Call<'_>) -> Answer {
    io_file(call, 0)?.fsync(false)?;
    Ok(0)
}

/// fdatasync(2)
pub fn fdatasync(call: &mut Call<'_>) -> Answer {
    io_file(call, 0)?.fsync(true)?;
    Ok(0)
}

/// sync(2): it cannot fail; what could not be written is told by fsync.
pub fn sync(_: &mut Call<'_>) -> Answer {
    let _ = crate::files::sync_all();
    Ok(0)
}

/// syncfs(2)
pub fn syncfs(call: &mut Call<'_>) -> Answer {
    io_file(call, 0)?.vnode().fs().sync()?;
    Ok(0)
}

/// sync_file_range(2): the whole file, which is more than asked.
pub fn sync_file_range(call: &mut Call<'_>) -> Answer {
    io_file(call, 0)?.fsync(true)?;
    Ok(0)
}

/// ftruncate(2)
pub fn ftruncate(call: &mut Call<'_>) -> Answer {
    let size = call.args[1];
    if size > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    io_file(call, 0)?.truncate(size)?;
    Ok(0)
}

/// fallocate(2)
pub fn fallocate(call: &mut Call<'_>) -> Answer {
    if !io_file(call, 0)?.writable() {
        return Err(Errno::EBADF.into());
    }
    Err(Errno::EOPNOTSUPP.into())
}

/// fchmod(2)
pub fn fchmod(call: &mut Call<'_>) -> Answer {
    let perm = call.uint(1);
    path::at_file(call, 0, |at| at.chmod(b"", perm, hive_fs::abi::at::AT_EMPTY_PATH))
}

/// fchown(2)
pub fn fchown(call: &mut Call<'_>) -> Answer {
    let (uid, gid) = (call.uint(1), call.uint(2));
    path::at_file(call, 0, |at| at.chown(b"", uid, gid, hive_fs::abi::at::AT_EMPTY_PATH))
}

/// fadvise64(2)
pub fn fadvise64(call: &mut Call<'_>) -> Answer {
    let file = io_file(call, 0)?;
    if file.ops().is_some_and(|ops| !ops.seekable()) {
        return Err(Errno::ESPIPE.into());
    }
    if call.uint(3) > 5 { Err(Errno::EINVAL.into()) } else { Ok(0) }
}

/// readahead(2)
pub fn readahead(call: &mut Call<'_>) -> Answer {
    if io_file(call, 0)?.readable() { Ok(0) } else { Err(Errno::EBADF.into()) }
}

/// socket(2), socketpair(2)
pub fn no_socket(_: &mut Call<'_>) -> Answer {
    Err(Errno::EAFNOSUPPORT.into())
}
