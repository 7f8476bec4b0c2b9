//! The path calls: what openat, mkdirat, renameat2 and their kin do after copyin of the path.
//!
//! Each checks permissions by the caller's credentials and the read-only flag of the mount before
//! the vnode is asked to act. Modes come with the umask applied.

use super::{Leaf, Namespace, Place};
use crate::abi::{Attr, FileType, StatFs, Time, at::*, mode, oflag::*, rename::*};
use crate::cred::{Cred, MAY_EXEC, MAY_READ, MAY_WRITE};
use crate::errno::{Errno, Result};
use crate::file::OpenFile;
use crate::vnode::{NewFile, NewKind, SetAttr, SetTime};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// `tv_nsec` of utimensat: set to now.
pub const UTIME_NOW: i64 = 0x3fff_ffff;
/// `tv_nsec` of utimensat: leave as it is.
pub const UTIME_OMIT: i64 = 0x3fff_fffe;

/// From where, and as whom, paths are resolved.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// The mounts.
    pub ns: &'a Namespace,
    /// The process's root.
    pub root: &'a Place,
    /// What a relative path starts from: the current directory, or the place of dirfd.
    pub base: &'a Place,
    /// Who asks.
    pub cred: &'a Cred,
}

impl<'a> At<'a> {
    /// The existing file `path` leads to.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Place> {
        self.walk(path, follow)?.existing()
    }

    /// As [`Self::resolve`], with AT_SYMLINK_NOFOLLOW and AT_EMPTY_PATH.
    pub fn resolve_at(&self, path: &[u8], flags: u32) -> Result<Place> {
        if path.is_empty() && flags & AT_EMPTY_PATH != 0 {
            return Ok(self.base.clone());
        }
        self.resolve(path, flags & AT_SYMLINK_NOFOLLOW == 0)
    }

    /// openat(2). `perm` is for a file that is made.
    pub fn open(&self, path: &[u8], flags: u32, perm: u32) -> Result<Arc<OpenFile>> {
        if flags & O_TMPFILE == O_TMPFILE {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags & O_CREAT != 0 && flags & O_DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        // O_PATH ignores all but a few flags.
        let path_flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        let flags = if flags & O_PATH != 0 { flags & path_flags } else { flags };
        let exclusive = flags & O_CREAT != 0 && flags & O_EXCL != 0;
        let follow = flags & O_NOFOLLOW == 0 && !exclusive;
        loop {
            let leaf = self.walk(path, follow)?;
            let Some(place) = &leaf.found else {
                match self.make_open(&leaf, flags, perm) {
                    // Someone else made it in between: open that one.
                    Err(Errno::EEXIST) if !exclusive => continue,
                    made => return made,
                }
            };
            if exclusive {
                return Err(Errno::EEXIST);
            }
            self.check_open(place, leaf.slash, flags)?;
            if flags & O_TRUNC != 0 && place.vnode().kind() == FileType::Regular {
                place.vnode().setattr(&SetAttr { size: Some(0), ..SetAttr::default() })?;
            }
            return OpenFile::open(place.clone(), flags);
        }
    }

    fn make_open(&self, leaf: &Leaf, flags: u32, perm: u32) -> Result<Arc<OpenFile>> {
        if flags & O_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        if leaf.slash {
            return Err(Errno::EISDIR);
        }
        let place = self.make(leaf, NewKind::Regular, perm)?;
        OpenFile::open(place, flags)
    }

    fn check_open(&self, place: &Place, slash: bool, flags: u32) -> Result<()> {
        let kind = place.vnode().kind();
        if (slash || flags & O_DIRECTORY != 0) && kind != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        if flags & O_PATH != 0 {
            return Ok(());
        }
        let acc = flags & O_ACCMODE;
        let truncate = flags & O_TRUNC != 0;
        let write = acc != O_RDONLY || truncate;
        match kind {
            FileType::Symlink => return Err(Errno::ELOOP),
            FileType::Socket => return Err(Errno::ENXIO),
            FileType::Dir if write || flags & O_CREAT != 0 => return Err(Errno::EISDIR),
            FileType::Regular if write => place.check_writable()?,
            _ => {}
        }
        let read = if acc != O_WRONLY { MAY_READ } else { 0 };
        self.check(place, read | if write { MAY_WRITE } else { 0 })
    }

    fn check(&self, place: &Place, want: u32) -> Result<()> {
        self.cred.check(&place.vnode().getattr()?, want)
    }

    /// Checks that a name may be added to the leaf's directory, then adds it.
    fn make(&self, leaf: &Leaf, kind: NewKind<'_>, perm: u32) -> Result<Place> {
        self.may_enter(leaf)?;
        let perm = perm & mode::PERM;
        let new = NewFile { kind, perm, uid: self.cred.uid, gid: self.cred.gid };
        let vnode = leaf.dir.vnode().create(&leaf.name, &new)?;
        Ok(leaf.dir.child(vnode, &leaf.name))
    }

    fn may_enter(&self, leaf: &Leaf) -> Result<()> {
        if leaf.found.is_some() {
            return Err(Errno::EEXIST);
        }
        leaf.dir.check_writable()?;
        self.check(&leaf.dir, MAY_WRITE | MAY_EXEC)
    }

    /// mkdirat(2).
    pub fn mkdir(&self, path: &[u8], perm: u32) -> Result<()> {
        self.make(&self.walk(path, false)?, NewKind::Dir, perm).map(drop)
    }

    /// symlinkat(2).
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let leaf = self.leaf_for_file(path)?;
        self.make(&leaf, NewKind::Symlink(target), 0o777).map(drop)
    }

    /// mknodat(2); `mode` with the file type. Devices need root.
    pub fn mknod(&self, path: &[u8], mode: u32, rdev: u64) -> Result<()> {
        let leaf = self.leaf_for_file(path)?;
        let kind = match FileType::from_mode(mode) {
            None if mode & mode::S_IFMT == 0 => NewKind::Regular,
            Some(FileType::Regular) => NewKind::Regular,
            Some(t @ (FileType::Fifo | FileType::Socket)) => NewKind::Node(t, 0),
            Some(t @ (FileType::Char | FileType::Block)) if self.cred.is_root() => {
                NewKind::Node(t, rdev)
            }
            Some(FileType::Dir | FileType::Char | FileType::Block) => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        };
        self.make(&leaf, kind, mode).map(drop)
    }

    /// A name for something that is not a directory.
    fn leaf_for_file(&self, path: &[u8]) -> Result<Leaf> {
        let leaf = self.walk(path, false)?;
        if leaf.found.is_none() && leaf.slash {
            return Err(Errno::ENOENT);
        }
        Ok(leaf)
    }

    /// linkat(2): AT_SYMLINK_FOLLOW, AT_EMPTY_PATH.
    pub fn link(&self, old: &[u8], to: &At<'_>, new: &[u8], flags: u32) -> Result<()> {
        let flip = if flags & AT_SYMLINK_FOLLOW != 0 { 0 } else { AT_SYMLINK_NOFOLLOW };
        let source = self.resolve_at(old, flags & AT_EMPTY_PATH | flip)?;
        let leaf = to.leaf_for_file(new)?;
        if leaf.found.is_none() && leaf.dir.mount_id() != source.mount_id() {
            return Err(Errno::EXDEV);
        }
        to.may_enter(&leaf)?;
        if source.is_dir() {
            return Err(Errno::EPERM);
        }
        leaf.dir.vnode().link(&leaf.name, source.vnode().id())
    }

    /// unlinkat(2): AT_REMOVEDIR.
    pub fn unlink(&self, path: &[u8], flags: u32) -> Result<()> {
        let leaf = self.walk(path, false)?;
        let rmdir = flags & AT_REMOVEDIR != 0;
        if leaf.name.is_empty() {
            return Err(match (rmdir, path.ends_with(b"..")) {
                (false, _) => Errno::EISDIR,
                (true, true) => Errno::ENOTEMPTY,
                (true, false) if leaf.dir.same(self.root) => Errno::EBUSY,
                (true, false) => Errno::EINVAL,
            });
        }
        let victim = leaf.found.as_ref().ok_or(Errno::ENOENT)?;
        match (rmdir, victim.is_dir()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (false, false) if leaf.slash => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.may_remove(&leaf, victim)?;
        match rmdir {
            true => leaf.dir.vnode().rmdir(&leaf.name),
            false => leaf.dir.vnode().unlink(&leaf.name),
        }
    }

    fn may_remove(&self, leaf: &Leaf, victim: &Place) -> Result<()> {
        leaf.dir.check_writable()?;
        if victim.mount_id() != leaf.dir.mount_id() {
            return Err(Errno::EBUSY); // a mount point
        }
        let (dir, victim) = (leaf.dir.vnode().getattr()?, victim.vnode().getattr()?);
        self.cred.check_delete(&dir, &victim)
    }

    /// renameat2(2).
    pub fn rename(&self, old: &[u8], to: &At<'_>, new: &[u8], flags: u32) -> Result<()> {
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        let (from, into) = (self.walk(old, false)?, to.walk(new, false)?);
        if from.name.is_empty() || into.name.is_empty() {
            return Err(Errno::EBUSY);
        }
        let source = from.found.as_ref().ok_or(Errno::ENOENT)?;
        if from.dir.mount_id() != into.dir.mount_id() {
            return Err(Errno::EXDEV);
        }
        if (from.slash || into.slash) && !source.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        self.may_remove(&from, source)?;
        match &into.found {
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
            Some(target) => self.may_remove(&into, target)?,
            None if flags & RENAME_EXCHANGE != 0 => return Err(Errno::ENOENT),
            None => self.check(&into.dir, MAY_WRITE | MAY_EXEC)?,
        }
        from.dir.vnode().rename(&from.name, into.dir.vnode().id(), &into.name, flags)
    }

    /// readlinkat(2); an empty path means the base itself.
    pub fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        let place = self.resolve_at(path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)?;
        match place.vnode().magic_link()? {
            Some(to) => Ok(self.ns.show_path(&to, self.root)),
            None => place.vnode().readlink(),
        }
    }

    /// newfstatat(2), statx(2): AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. The place tells the mount.
    pub fn stat(&self, path: &[u8], flags: u32) -> Result<(Attr, Place)> {
        let place = self.resolve_at(path, flags)?;
        Ok((place.vnode().getattr()?, place))
    }

    /// faccessat2(2): `want` is R_OK 4, W_OK 2, X_OK 1; `cred` is of the real or effective ids.
    pub fn access(&self, path: &[u8], want: u32, flags: u32) -> Result<()> {
        if want & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        let place = self.resolve_at(path, flags)?;
        let kind = place.vnode().kind();
        if want & MAY_WRITE != 0 && matches!(kind, FileType::Regular | FileType::Dir) {
            place.check_writable()?;
        }
        if want == 0 { Ok(()) } else { self.check(&place, want) }
    }

    /// chdir(2): the new current directory. With an empty path, fchdir(2).
    pub fn chdir(&self, path: &[u8]) -> Result<Place> {
        let place = self.resolve_at(path, AT_EMPTY_PATH)?;
        if !place.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        self.check(&place, MAY_EXEC)?;
        Ok(place)
    }

    /// getcwd(2): the path of `base`.
    pub fn getcwd(&self) -> Result<Vec<u8>> {
        self.ns.path_of(self.base, self.root)
    }

    /// statfs(2).
    pub fn statfs(&self, path: &[u8]) -> Result<StatFs> {
        let place = self.resolve_at(path, AT_EMPTY_PATH)?;
        let mut s = place.vnode().fs().statfs()?;
        s.flags |= place.mount().is_some_and(|m| m.read_only) as u64;
        Ok(s)
    }

    /// chmod: fchmodat, and fchmod with an empty path.
    pub fn chmod(&self, path: &[u8], perm: u32, flags: u32) -> Result<()> {
        let place = self.for_change(path, flags)?;
        let attr = place.vnode().getattr()?;
        self.cred.check_owner(&attr)?;
        if attr.kind == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut perm = perm & mode::PERM;
        if !self.cred.is_root() && !self.cred.in_group(attr.gid) {
            perm &= !mode::S_ISGID;
        }
        place.vnode().setattr(&SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    /// chown: fchownat, and fchown with an empty path. `u32::MAX` leaves an id as it is.
    pub fn chown(&self, path: &[u8], uid: u32, gid: u32, flags: u32) -> Result<()> {
        let place = self.for_change(path, flags)?;
        let attr = place.vnode().getattr()?;
        let keep = |id: u32| (id != u32::MAX).then_some(id);
        let (uid, gid) = (keep(uid), keep(gid));
        if !self.cred.is_root() {
            let own = attr.uid == self.cred.uid && uid.is_none_or(|u| u == attr.uid);
            if !own || gid.is_some_and(|g| g != attr.gid && !self.cred.in_group(g)) {
                return Err(Errno::EPERM);
            }
        }
        // A changed owner takes the set-id bits away from a program.
        let set_id = mode::S_ISUID | if attr.perm & 0o010 != 0 { mode::S_ISGID } else { 0 };
        let strip = attr.kind != FileType::Dir && attr.perm & set_id != 0;
        let perm = strip.then_some(attr.perm & !set_id);
        place.vnode().setattr(&SetAttr { uid, gid, perm, ..SetAttr::default() })
    }

    /// utimensat(2), and futimens with an empty path: `(seconds, nanoseconds)`, the nanoseconds
    /// may be `UTIME_NOW` or `UTIME_OMIT`; `None` sets both to now.
    pub fn utimens(&self, path: &[u8], times: Option<[(i64, i64); 2]>, flags: u32) -> Result<()> {
        let one = |(sec, nsec): (i64, i64)| match nsec {
            UTIME_NOW => Ok(Some(SetTime::Now)),
            UTIME_OMIT => Ok(None),
            0..1_000_000_000 => Ok(Some(SetTime::To(Time { sec, nsec: nsec as u32 }))),
            _ => Err(Errno::EINVAL),
        };
        let [a, m] = times.unwrap_or([(0, UTIME_NOW); 2]);
        let (atime, mtime) = (one(a)?, one(m)?);
        if atime.is_none() && mtime.is_none() {
            return Ok(());
        }
        let place = self.for_change(path, flags)?;
        let attr = place.vnode().getattr()?;
        let now = Some(SetTime::Now);
        // Whoever may write may set both times to now; anything else takes the owner.
        let allowed = self.cred.check_owner(&attr);
        if allowed.is_err() {
            let both_now = atime == now && mtime == now;
            let denied = if both_now { Errno::EACCES } else { Errno::EPERM };
            if !both_now || self.cred.check(&attr, MAY_WRITE).is_err() {
                return Err(denied);
            }
        }
        place.vnode().setattr(&SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// truncate(2).
    pub fn truncate(&self, path: &[u8], size: u64) -> Result<()> {
        let place = self.resolve(path, true)?;
        match place.vnode().kind() {
            FileType::Regular => {}
            FileType::Dir => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        place.check_writable()?;
        self.check(&place, MAY_WRITE)?;
        place.vnode().setattr(&SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// The file to exec: regular, executable by the caller.
    pub fn executable(&self, path: &[u8], flags: u32) -> Result<Place> {
        let place = self.resolve_at(path, flags)?;
        if place.vnode().kind() != FileType::Regular {
            return Err(Errno::EACCES);
        }
        self.check(&place, MAY_EXEC)?;
        Ok(place)
    }

    fn for_change(&self, path: &[u8], flags: u32) -> Result<Place> {
        let place = self.resolve_at(path, flags)?;
        place.check_writable()?;
        Ok(place)
    }
}
