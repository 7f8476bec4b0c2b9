//! Calls on names. Extended attributes are absent: `EOPNOTSUPP`, as of a file system that has
//! none.

use super::{Answer, Call, Stop, time::Timespec};
use crate::files::NAMESPACE;
use crate::process::Process;
use alloc::vec::Vec;
use hive_fs::abi::at::*;
use hive_fs::abi::oflag::{O_CLOEXEC, O_CREAT};
use hive_fs::errno::Errno;
use hive_fs::{At, Cred, Place};

/// Most bits of a file mode.
const PERM: u32 = 0o7777;

/// What [`At`] borrows.
struct From {
    root: Place,
    base: Place,
    cred: Cred,
}

impl From {
    fn at(&self) -> Result<At<'_>, Errno> {
        let ns = NAMESPACE.get().ok_or(Errno::ENOENT)?;
        Ok(At { ns, root: &self.root, base: &self.base, cred: &self.cred })
    }
}

/// Where the paths of a call with directory argument `dirfd` start.
fn from(process: &Process, dirfd: i32, path: &[u8], cred: Cred) -> Result<From, Errno> {
    let context = process.context.lock().clone();
    let base = if dirfd == AT_FDCWD || path.first() == Some(&b'/') {
        context.cwd
    } else {
        process.files()?.get(dirfd)?.place().clone()
    };
    Ok(From { root: context.root, base, cred })
}

/// Runs `f` with paths starting where argument `dir` says. `path` only matters by being absolute.
fn with<R>(
    call: &Call<'_>,
    dir: usize,
    path: &[u8],
    f: impl FnOnce(&At<'_>) -> Result<R, Errno>,
) -> Result<R, Stop> {
    let cred = call.process().creds().for_files();
    let from = from(call.process(), call.int(dir), path, cred)?;
    Ok(f(&from.at()?)?)
}

/// Runs `f` on the file behind descriptor argument `fd`, as an empty path.
pub fn at_file(call: &Call<'_>, fd: usize, f: impl FnOnce(&At<'_>) -> Result<(), Errno>) -> Answer {
    call.process().files()?.get(call.int(fd))?;
    with(call, fd, b"", f)?;
    Ok(0)
}

/// The [`At`] of exec and of the kernel's own look-ups for `process`: its current directory.
pub fn from_cwd<R>(
    process: &Process,
    f: impl FnOnce(&At<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let from = from(process, AT_FDCWD, b"", process.creds().for_files())?;
    f(&from.at()?)
}

fn umasked(call: &Call<'_>, mode: u32) -> u32 {
    mode & !call.process().context.lock().umask
}

/// openat(2)
pub fn openat(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[1])?;
    let flags = call.uint(2);
    let perm = if flags & O_CREAT != 0 { umasked(call, call.uint(3) & PERM) } else { 0 };
    let file = with(call, 0, &path, |at| at.open(&path, flags, perm))?;
    Ok(call.process().files()?.install(file, flags & O_CLOEXEC != 0, 0)? as usize)
}

/// mkdirat(2)
pub fn mkdirat(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[1])?;
    let perm = umasked(call, call.uint(2) & PERM);
    with(call, 0, &path, |at| at.mkdir(&path, perm))?;
    Ok(0)
}

/// mknodat(2)
pub fn mknodat(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[1])?;
    let (mode, device) = (umasked(call, call.uint(2)), call.args[3]);
    with(call, 0, &path, |at| at.mknod(&path, mode, device))?;
    Ok(0)
}

/// unlinkat(2)
pub fn unlinkat(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[1])?;
    let flags = call.uint(2);
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL.into());
    }
    with(call, 0, &path, |at| at.unlink(&path, flags))?;
    Ok(0)
}

/// symlinkat(2)
pub fn symlinkat(call: &mut Call<'_>) -> Answer {
    let (target, path) = (call.path(call.args[0])?, call.path(call.args[2])?);
    with(call, 1, &path, |at| at.symlink(&target, &path))?;
    Ok(0)
}

/// linkat(2)
pub fn linkat(call: &mut Call<'_>) -> Answer {
    let (old, new) = (call.path(call.args[1])?, call.path(call.args[3])?);
    let flags = call.uint(4);
    with(call, 0, &old, |a| with(call, 2, &new, |b| a.link(&old, b, &new, flags)).map_err(plain))?;
    Ok(0)
}

/// The errno of a stop that comes of an inner [`with`].
fn plain(stop: Stop) -> Errno {
    match stop {
        Stop::Errno(errno) => errno,
        _ => Errno::ERESTARTSYS,
    }
}

fn rename(call: &Call<'_>, flags: u32) -> Answer {
    let (old, new) = (call.path(call.args[1])?, call.path(call.args[3])?);
    with(call, 0, &old, |a| {
        with(call, 2, &new, |b| a.rename(&old, b, &new, flags)).map_err(plain)
    })?;
    Ok(0)
}

/// renameat(2)
pub fn renameat(call: &mut Call<'_>) -> Answer {
    rename(call, 0)
}

/// renameat2(2)
pub fn renameat2(call: &mut Call<'_>) -> Answer {
    rename(call, call.uint(4))
}

/// readlinkat(2)
pub fn readlinkat(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[1])?;
    let room = call.int(3);
    if room <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let text = with(call, 0, &path, |at| at.readlink(&path))?;
    let n = text.len().min(room as usize);
    call.write(call.args[2], &text[..n])?;
    Ok(n)
}

/// newfstatat(2)
pub fn newfstatat(call: &mut Call<'_>) -> Answer {
    let flags = call.uint(3);
    let path = path_or_empty(call, call.args[1], flags)?;
    let (attr, _) = with(call, 0, &path, |at| at.stat(&path, flags))?;
    call.write(call.args[2], &attr.stat())?;
    Ok(0)
}

/// The path at `address`; AT_EMPTY_PATH allows null.
fn path_or_empty(call: &Call<'_>, address: u64, flags: u32) -> Result<Vec<u8>, Stop> {
    if address == 0 && flags & AT_EMPTY_PATH != 0 { Ok(Vec::new()) } else { call.path(address) }
}

/// statx(2)
pub fn statx(call: &mut Call<'_>) -> Answer {
    let flags = call.uint(2);
    let path = path_or_empty(call, call.args[1], flags)?;
    let (attr, place) = with(call, 0, &path, |at| at.stat(&path, flags))?;
    call.write(call.args[4], &attr.statx(place.mount_id()))?;
    Ok(0)
}

/// statfs(2)
pub fn statfs(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[0])?;
    let told = from_cwd(call.process(), |at| at.statfs(&path))?;
    call.write(call.args[1], &told.encode())?;
    Ok(0)
}

/// fstatfs(2)
pub fn fstatfs(call: &mut Call<'_>) -> Answer {
    call.process().files()?.get(call.int(0))?;
    let told = with(call, 0, b"", |at| at.statfs(b""))?;
    call.write(call.args[1], &told.encode())?;
    Ok(0)
}

/// truncate(2)
pub fn truncate(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[0])?;
    let size = call.args[1];
    if size > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    from_cwd(call.process(), |at| at.truncate(&path, size))?;
    Ok(0)
}

fn access(call: &Call<'_>, flags: u32) -> Answer {
    let path = path_or_empty(call, call.args[1], flags)?;
    let want = call.uint(2);
    let creds = call.process().creds();
    let cred = if flags & AT_EACCESS != 0 { creds.for_files() } else { creds.real_for_files() };
    let from = from(call.process(), call.int(0), &path, cred)?;
    from.at()?.access(&path, want, flags)?;
    Ok(0)
}

/// faccessat(2)
pub fn faccessat(call: &mut Call<'_>) -> Answer {
    access(call, 0)
}

/// faccessat2(2)
pub fn faccessat2(call: &mut Call<'_>) -> Answer {
    let flags = call.uint(3);
    if flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL.into());
    }
    access(call, flags)
}

/// chdir(2)
pub fn chdir(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[0])?;
    if path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let place = from_cwd(call.process(), |at| at.chdir(&path))?;
    let old = core::mem::replace(&mut call.process().context.lock().cwd, place);
    drop(old);
    Ok(0)
}

/// fchdir(2)
pub fn fchdir(call: &mut Call<'_>) -> Answer {
    call.process().files()?.get(call.int(0))?;
    let place = with(call, 0, b"", |at| at.chdir(b""))?;
    let old = core::mem::replace(&mut call.process().context.lock().cwd, place);
    drop(old);
    Ok(0)
}

/// chroot(2)
pub fn chroot(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[0])?;
    if !call.process().creds().is_root() {
        return Err(Errno::EPERM.into());
    }
    if path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let place = from_cwd(call.process(), |at| at.chdir(&path))?;
    let old = core::mem::replace(&mut call.process().context.lock().root, place);
    drop(old);
    Ok(0)
}

/// getcwd(2): the length with its NUL.
pub fn getcwd(call: &mut Call<'_>) -> Answer {
    let mut path = from_cwd(call.process(), |at| at.getcwd())?;
    path.push(0);
    if path.len() > call.len(1) {
        return Err(Errno::ERANGE.into());
    }
    call.write(call.args[0], &path)?;
    Ok(path.len())
}

/// fchmodat(2): the kernel's call has no flags.
pub fn fchmodat(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[1])?;
    let perm = call.uint(2) & PERM;
    with(call, 0, &path, |at| at.chmod(&path, perm, 0))?;
    Ok(0)
}

/// fchownat(2)
pub fn fchownat(call: &mut Call<'_>) -> Answer {
    let flags = call.uint(4);
    let path = path_or_empty(call, call.args[1], flags)?;
    let (uid, gid) = (call.uint(2), call.uint(3));
    with(call, 0, &path, |at| at.chown(&path, uid, gid, flags))?;
    Ok(0)
}

/// utimensat(2)
pub fn utimensat(call: &mut Call<'_>) -> Answer {
    let times = match call.args[2] {
        0 => None,
        address => {
            let second = address.checked_add(Timespec::SIZE as u64).ok_or(Errno::EFAULT)?;
            let (a, m) = (Timespec::read(call, address)?, Timespec::read(call, second)?);
            Some([(a.sec, a.nsec), (m.sec, m.nsec)])
        }
    };
    let flags = call.uint(3);
    if call.args[1] == 0 {
        // futimens: the file behind the descriptor itself.
        return at_file(call, 0, |at| at.utimens(b"", times, AT_EMPTY_PATH));
    }
    let path = call.path(call.args[1])?;
    with(call, 0, &path, |at| at.utimens(&path, times, flags))?;
    Ok(0)
}

/// umask(2)
pub fn umask(call: &mut Call<'_>) -> Answer {
    let new = call.uint(0) & 0o777;
    Ok(core::mem::replace(&mut call.process().context.lock().umask, new) as usize)
}

/// The extended attribute calls.
pub fn no_xattr(_: &mut Call<'_>) -> Answer {
    Err(Errno::EOPNOTSUPP.into())
}
