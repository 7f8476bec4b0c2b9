//! The numbers and byte layouts of Linux riscv64 that files need: open flags, modes, `AT_*`,
//! `struct stat`, `struct statx`, `struct statfs`, `struct linux_dirent64`.
//!
//! Structures are encoded into byte arrays field by field: no unsafe, and the same bytes on
//! every host. Sizes are pinned by tests.

/// Open flags (asm-generic/fcntl.h).
pub mod oflag {
    #![allow(missing_docs)]
    pub const O_RDONLY: u32 = 0;
    pub const O_WRONLY: u32 = 1;
    pub const O_RDWR: u32 = 2;
    pub const O_ACCMODE: u32 = 3;
    pub const O_CREAT: u32 = 0o100;
    pub const O_EXCL: u32 = 0o200;
    pub const O_NOCTTY: u32 = 0o400;
    pub const O_TRUNC: u32 = 0o1000;
    pub const O_APPEND: u32 = 0o2000;
    pub const O_NONBLOCK: u32 = 0o4000;
    pub const O_DSYNC: u32 = 0o10000;
    pub const O_ASYNC: u32 = 0o20000;
    pub const O_DIRECT: u32 = 0o40000;
    pub const O_LARGEFILE: u32 = 0o100000;
    pub const O_DIRECTORY: u32 = 0o200000;
    pub const O_NOFOLLOW: u32 = 0o400000;
    pub const O_NOATIME: u32 = 0o1000000;
    pub const O_CLOEXEC: u32 = 0o2000000;
    pub const O_SYNC: u32 = 0o4010000;
    pub const O_PATH: u32 = 0o10000000;
    pub const O_TMPFILE: u32 = 0o20200000;
    /// What F_SETFL may change.
    pub const SETFL: u32 = O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME;
}

/// File type and permission bits of `st_mode`.
pub mod mode {
    #![allow(missing_docs)]
    pub const S_IFMT: u32 = 0o170000;
    pub const S_ISUID: u32 = 0o4000;
    pub const S_ISGID: u32 = 0o2000;
    pub const S_ISVTX: u32 = 0o1000;
    /// Permission bits, set-id bits and sticky bit.
    pub const PERM: u32 = 0o7777;
}

/// Flags of the `*at` calls.
pub mod at {
    #![allow(missing_docs)]
    /// dirfd: the current directory.
    pub const AT_FDCWD: i32 = -100;
    pub const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
    pub const AT_REMOVEDIR: u32 = 0x200;
    /// faccessat2: use effective ids. Same bit as `AT_REMOVEDIR`.
    pub const AT_EACCESS: u32 = 0x200;
    pub const AT_SYMLINK_FOLLOW: u32 = 0x400;
    pub const AT_NO_AUTOMOUNT: u32 = 0x800;
    pub const AT_EMPTY_PATH: u32 = 0x1000;
    pub const AT_STATX_SYNC_TYPE: u32 = 0x6000;
}

/// renameat2 flags.
pub mod rename {
    #![allow(missing_docs)]
    pub const RENAME_NOREPLACE: u32 = 1;
    pub const RENAME_EXCHANGE: u32 = 2;
}

/// lseek whence.
pub mod seek {
    #![allow(missing_docs)]
    pub const SEEK_SET: u32 = 0;
    pub const SEEK_CUR: u32 = 1;
    pub const SEEK_END: u32 = 2;
    pub const SEEK_DATA: u32 = 3;
    pub const SEEK_HOLE: u32 = 4;
}

/// Longest path name including its NUL (linux/limits.h).
pub const PATH_MAX: usize = 4096;
/// Longest component of a path name.
pub const NAME_MAX: usize = 255;

/// Kind of a file; the discriminant is `S_IFMT >> 12`, which is also `d_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileType {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    Char = 2,
    /// Directory.
    Dir = 4,
    /// Block device.
    Block = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileType {
    /// The type in the high bits of a mode.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode >> 12 & 0xf {
            1 => FileType::Fifo,
            2 => FileType::Char,
            4 => FileType::Dir,
            6 => FileType::Block,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits.
    pub const fn mode(self) -> u32 {
        (self as u32) << 12
    }

    /// The `DT_*` value.
    pub const fn d_type(self) -> u8 {
        self as u8
    }
}

/// A point in time since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

/// What stat(2) tells about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileType,
    /// Permission bits (07777).
    pub perm: u32,
    /// Names that lead here.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u64,
    /// Length, bytes.
    pub size: u64,
    /// Storage used, 512-byte units.
    pub blocks: u64,
    /// Preferred transfer, bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
}

impl Attr {
    /// `st_mode`.
    pub fn mode(&self) -> u32 {
        self.kind.mode() | self.perm & mode::PERM
    }

    /// Attributes of a thing without storage (device, pipe, proc entry).
    pub fn bare(dev: u64, ino: u64, kind: FileType, perm: u32) -> Attr {
        let nlink = if kind == FileType::Dir { 2 } else { 1 };
        let t = Time::default();
        Attr {
            dev,
            ino,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            blksize: 4096,
            atime: t,
            mtime: t,
            ctime: t,
        }
    }

    /// `struct stat` of riscv64 (asm-generic/stat.h).
    pub fn stat(&self) -> [u8; STAT_SIZE] {
        let mut w = Fields::<STAT_SIZE>::new();
        w.u64(self.dev).u64(self.ino).u32(self.mode()).u32(self.nlink);
        w.u32(self.uid).u32(self.gid).u64(self.rdev).u64(0);
        w.u64(self.size).u32(self.blksize).u32(0).u64(self.blocks);
        for t in [self.atime, self.mtime, self.ctime] {
            w.u64(t.sec as u64).u64(t.nsec as u64);
        }
        w.out
    }

    /// `struct statx` (linux/stat.h); the mask says STATX_BASIC_STATS whatever was asked.
    pub fn statx(&self, mount_id: u64) -> [u8; STATX_SIZE] {
        const STATX_BASIC_STATS: u32 = 0x7ff;
        const STATX_MNT_ID: u32 = 0x1000;
        let mut w = Fields::<STATX_SIZE>::new();
        w.u32(STATX_BASIC_STATS | STATX_MNT_ID).u32(self.blksize).u64(0);
        w.u32(self.nlink).u32(self.uid).u32(self.gid).u16(self.mode() as u16).u16(0);
        w.u64(self.ino).u64(self.size).u64(self.blocks).u64(0);
        for t in [self.atime, Time::default(), self.ctime, self.mtime] {
            w.u64(t.sec as u64).u32(t.nsec).u32(0);
        }
        w.u32(dev_major(self.rdev)).u32(dev_minor(self.rdev));
        w.u32(dev_major(self.dev)).u32(dev_minor(self.dev));
        w.u64(mount_id);
        w.out
    }
}

/// What statfs(2) tells about a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Magic number of the type (linux/magic.h).
    pub magic: u64,
    /// Block size, bytes.
    pub bsize: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks free.
    pub bfree: u64,
    /// Blocks free to other users than root.
    pub bavail: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes free.
    pub ffree: u64,
    /// File system id.
    pub fsid: u64,
    /// Longest name.
    pub namelen: u64,
    /// `ST_*` mount flags; bit 0 is read-only.
    pub flags: u64,
}

impl StatFs {
    /// A file system without storage.
    pub fn empty(id: crate::vnode::FsId) -> StatFs {
        StatFs {
            magic: 0,
            bsize: 4096,
            blocks: 0,
            bfree: 0,
            bavail: 0,
            files: 0,
            ffree: 0,
            fsid: id.0 as u64,
            namelen: NAME_MAX as u64,
            flags: 0,
        }
    }

    /// `struct statfs` of 64-bit machines.
    pub fn encode(&self) -> [u8; STATFS_SIZE] {
        const ST_VALID: u64 = 0x20;
        let mut w = Fields::<STATFS_SIZE>::new();
        w.u64(self.magic).u64(self.bsize).u64(self.blocks).u64(self.bfree).u64(self.bavail);
        w.u64(self.files).u64(self.ffree).u64(self.fsid).u64(self.namelen).u64(self.bsize);
        w.u64(self.flags | ST_VALID);
        w.out
    }
}

/// Bytes of `struct stat`.
pub const STAT_SIZE: usize = 128;
/// Bytes of `struct statx`.
pub const STATX_SIZE: usize = 256;
/// Bytes of `struct statfs`.
pub const STATFS_SIZE: usize = 120;

/// A device number as glibc's makedev packs it.
pub const fn makedev(major: u32, minor: u32) -> u64 {
    (minor & 0xff) as u64
        | ((major & 0xfff) as u64) << 8
        | ((minor & !0xff) as u64) << 12
        | ((major & !0xfff) as u64) << 32
}

/// Major part of a device number.
pub const fn dev_major(dev: u64) -> u32 {
    (dev >> 8 & 0xfff) as u32 | (dev >> 32) as u32 & !0xfff
}

/// Minor part of a device number.
pub const fn dev_minor(dev: u64) -> u32 {
    (dev & 0xff) as u32 | (dev >> 12) as u32 & !0xff
}

/// Appends one `struct linux_dirent64` to `out` if it fits below `limit` bytes.
/// `next` is the cookie with which reading goes on after this entry.
pub fn push_dirent64(
    out: &mut alloc::vec::Vec<u8>,
    limit: usize,
    ino: u64,
    next: u64,
    kind: u8,
    name: &[u8],
) -> bool {
    let len = (19 + name.len() + 1).next_multiple_of(8);
    if out.len() + len > limit {
        return false;
    }
    let end = out.len() + len;
    out.extend_from_slice(&ino.to_le_bytes());
    out.extend_from_slice(&next.to_le_bytes());
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.push(kind);
    out.extend_from_slice(name);
    out.resize(end, 0);
    true
}

/// Little-endian fields laid one after the other.
struct Fields<const N: usize> {
    out: [u8; N],
    at: usize,
}

impl<const N: usize> Fields<N> {
    fn new() -> Self {
        Fields { out: [0; N], at: 0 }
    }
    fn put(&mut self, b: &[u8]) -> &mut Self {
        self.out[self.at..self.at + b.len()].copy_from_slice(b);
        self.at += b.len();
        self
    }
    fn u16(&mut self, v: u16) -> &mut Self {
        self.put(&v.to_le_bytes())
    }
    fn u32(&mut self, v: u32) -> &mut Self {
        self.put(&v.to_le_bytes())
    }
    fn u64(&mut self, v: u64) -> &mut Self {
        self.put(&v.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_stand_where_riscv64_has_them() {
        let mut a = Attr::bare(0x11, 0x22, FileType::Regular, 0o644);
        a.size = 0x33;
        a.mtime = Time { sec: 0x44, nsec: 0x55 };
        let s = a.stat();
        let u64_at = |o: usize| u64::from_le_bytes(s[o..o + 8].try_into().unwrap());
        assert_eq!(u64_at(8), 0x22);
        assert_eq!(u32::from_le_bytes(s[16..20].try_into().unwrap()), 0o100644);
        assert_eq!(u64_at(48), 0x33); // st_size
        assert_eq!(u64_at(88), 0x44); // st_mtime
        assert_eq!(u64_at(96), 0x55);
        let x = a.statx(7);
        assert_eq!(u64::from_le_bytes(x[40..48].try_into().unwrap()), 0x33); // stx_size
        assert_eq!(u64::from_le_bytes(x[112..120].try_into().unwrap()), 0x44); // stx_mtime
    }

    #[test]
    fn dirents_are_aligned_and_bounded() {
        let mut v = alloc::vec::Vec::new();
        assert!(push_dirent64(&mut v, 48, 9, 1, 8, b"abcd"));
        assert_eq!(v.len(), 24);
        assert!(push_dirent64(&mut v, 48, 9, 2, 8, b"abcd"));
        assert!(!push_dirent64(&mut v, 48, 9, 3, 8, b"a"));
    }

    #[test]
    fn device_numbers_round_trip() {
        for (ma, mi) in [(1, 3), (0xfff, 0xff), (0x12345, 0x6789a)] {
            let d = makedev(ma, mi);
            assert_eq!((dev_major(d), dev_minor(d)), (ma, mi));
        }
    }
}
