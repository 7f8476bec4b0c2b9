//! What client and home say to each other, in postcard encoding.
//!
//! Decoding is total: any bytes give a value or an error, never a panic. Numbers that mean
//! something (kinds, error numbers, sizes) are checked where they are turned into it.

use alloc::vec::Vec;
use hive_fs::abi::{Attr, FileType, StatFs, Time};
use hive_fs::vnode::{FsId, NewFile, NewKind, SetAttr, SetTime, VnodeId};
use hive_fs::{Errno, Result};
use hive_protocol::rpc::Op;
use serde::{Deserialize, Serialize};

/// Most bytes of file data in one call: with its frame it stays below what one reference carries.
pub const DATA_MAX: usize = 32 << 10;
const _: () = assert!(DATA_MAX as u64 + 4096 <= hive_protocol::rpc::MAX_REFERENCE);

/// A [`VnodeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Id(u32, u64, u32);

impl From<VnodeId> for Id {
    fn from(id: VnodeId) -> Id {
        Id(id.fs.0, id.ino, id.generation)
    }
}

impl From<Id> for VnodeId {
    fn from(Id(fs, ino, generation): Id) -> VnodeId {
        VnodeId { fs: FsId(fs), ino, generation }
    }
}

/// A tree that a cell offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tree {
    /// Its writable tree, `/cells/N`.
    Cell,
    /// `/tmp`, if it is the home of that.
    Tmp,
}

/// Who asks: what a terminal's job control looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// Process id.
    pub pid: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// It blocks or ignores SIGTTIN and SIGTTOU.
    pub tty_signals_off: [bool; 2],
}

/// A question to a home.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are those of the `Vnode` and `OpenFile` methods of that name
pub enum Request<'a> {
    /// The root of a tree.
    Root(Tree),
    /// This many of the vnodes handed out are no longer held.
    Forget(#[serde(borrow)] &'a [u8]),
    GetAttr(Id),
    SetAttr(Id, WireSetAttr),
    Lookup(Id, &'a [u8]),
    Create {
        dir: Id,
        name: &'a [u8],
        kind: WireKind<'a>,
        perm: u32,
        uid: u32,
        gid: u32,
    },
    Link {
        dir: Id,
        name: &'a [u8],
        target: Id,
    },
    Unlink(Id, &'a [u8]),
    Rmdir(Id, &'a [u8]),
    Rename {
        dir: Id,
        old: &'a [u8],
        to: Id,
        new: &'a [u8],
        flags: u32,
    },
    ReadDir {
        dir: Id,
        cookie: u64,
    },
    Readlink(Id),
    Read {
        id: Id,
        offset: u64,
        count: u32,
    },
    Write {
        id: Id,
        offset: Option<u64>,
        data: &'a [u8],
    },
    SeekExtent {
        id: Id,
        offset: u64,
        hole: bool,
    },
    Fsync {
        id: Id,
        data_only: bool,
    },
    StatFs(Tree),
    /// Everything dirty at the home.
    Sync,

    HandleClose(u64),
    /// A handle on the same open file for cell `.1`.
    HandleDup(u64, u16),
    HandleRead {
        handle: u64,
        caller: Caller,
        count: u32,
    },
    HandleWrite {
        handle: u64,
        caller: Caller,
        data: &'a [u8],
    },
    HandleSeek {
        handle: u64,
        delta: i64,
        whence: u32,
    },
    HandleAttr(u64),
    /// State now; if none of `wanted`, a [`Ready`] will follow.
    HandlePoll {
        handle: u64,
        wanted: u16,
    },
    HandleIoctl {
        handle: u64,
        caller: Caller,
        command: u32,
        value: u64,
        input: &'a [u8],
    },
}

impl Request<'_> {
    /// The RPC operation that carries it.
    pub fn op(&self) -> Op {
        use Request::*;
        match self {
            Root(_) | Lookup(..) | Create { .. } => Op::FileOpen,
            Forget(_) | HandleClose(_) => Op::FileClose,
            GetAttr(_) | HandleAttr(_) => Op::FileStat,
            SetAttr(..) => Op::FileSetAttr,
            Link { .. } => Op::FileLink,
            Unlink(..) | Rmdir(..) => Op::FileUnlink,
            Rename { .. } => Op::FileRename,
            ReadDir { .. } => Op::FileReadDir,
            Readlink(_) => Op::FileReadlink,
            Read { .. } | SeekExtent { .. } | HandleRead { .. } | HandleSeek { .. } => Op::FileRead,
            Write { .. } | HandleWrite { .. } => Op::FileWrite,
            Fsync { .. } | Sync => Op::Sync,
            StatFs(_) => Op::FileStatFs,
            HandleDup(..) => Op::FileDup,
            HandlePoll { .. } => Op::FilePoll,
            HandleIoctl { .. } => Op::FileIoctl,
        }
    }
}

/// What a home answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Refused with this Linux error number.
    Error(u16),
    /// Done.
    Done,
    /// A number: a count, an offset, a handle, poll bits.
    Number(u64),
    /// A file handed out.
    Vnode(Id, u8),
    /// Attributes.
    Attr(WireAttr),
    /// Bytes read, or the text of a link.
    Data(Vec<u8>),
    /// Bytes taken and the offset behind them.
    Written(u64, u64),
    /// Directory entries: inode, type, name, cookie of the next.
    Entries(Vec<(u64, u8, Vec<u8>, u64)>),
    /// Result of an ioctl and what it wrote to its argument.
    Ioctl(u64, Vec<u8>),
    /// File system totals.
    StatFs([u64; 10]),
    /// Nothing to be had without waiting.
    WouldBlock,
}

/// Sent by a home, once, when a polled handle of the receiver becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready(pub u64);

/// An open file on its way to another cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Travelling {
    /// Its home.
    pub home: u16,
    /// Handle at the home, for the receiving cell.
    pub handle: u64,
    /// Open flags.
    pub flags: u32,
    /// The file, as far as it has an id.
    pub id: Id,
    /// [`FileType`].
    pub kind: u8,
}

/// Encodes; only allocation could fail, and that panics anyway.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap_or_default()
}

/// Decodes what a peer sent.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// [`Attr`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireAttr {
    numbers: [u64; 5],
    small: [u32; 5],
    kind: u8,
    times: [(i64, u32); 3],
}

impl From<Attr> for WireAttr {
    fn from(a: Attr) -> WireAttr {
        WireAttr {
            numbers: [a.dev, a.ino, a.rdev, a.size, a.blocks],
            small: [a.perm, a.nlink, a.uid, a.gid, a.blksize],
            kind: a.kind as u8,
            times: [a.atime, a.mtime, a.ctime].map(|t| (t.sec, t.nsec)),
        }
    }
}

impl WireAttr {
    /// The attributes; `EIO` if the home sent nonsense.
    pub fn attr(self) -> Result<Attr> {
        let [dev, ino, rdev, size, blocks] = self.numbers;
        let [perm, nlink, uid, gid, blksize] = self.small;
        if self.times.iter().any(|(_, nsec)| *nsec >= 1_000_000_000) || size > i64::MAX as u64 {
            return Err(Errno::EIO);
        }
        let [atime, mtime, ctime] = self.times.map(|(sec, nsec)| Time { sec, nsec });
        let kind = kind(self.kind)?;
        Ok(Attr {
            dev,
            ino,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            blksize,
            atime,
            mtime,
            ctime,
        })
    }
}

/// A file kind by its number; `EIO` for a number that is none.
pub fn kind(number: u8) -> Result<FileType> {
    FileType::from_mode(u32::from(number) << 12).ok_or(Errno::EIO)
}

/// [`SetAttr`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireSetAttr {
    perm: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    /// `Some(None)`: now.
    times: [Option<Option<(i64, u32)>>; 2],
}

impl From<&SetAttr> for WireSetAttr {
    fn from(s: &SetAttr) -> WireSetAttr {
        let time = |t: Option<SetTime>| {
            t.map(|t| match t {
                SetTime::Now => None,
                SetTime::To(t) => Some((t.sec, t.nsec)),
            })
        };
        WireSetAttr {
            perm: s.perm,
            uid: s.uid,
            gid: s.gid,
            size: s.size,
            times: [time(s.atime), time(s.mtime)],
        }
    }
}

impl WireSetAttr {
    /// What to set; `EINVAL` for what the name layer would not have let through.
    pub fn set_attr(self) -> Result<SetAttr> {
        let time = |t: Option<Option<(i64, u32)>>| match t {
            Some(Some((_, nsec))) if nsec >= 1_000_000_000 => Err(Errno::EINVAL),
            t => {
                Ok(t.map(|t| t.map_or(SetTime::Now, |(sec, nsec)| SetTime::To(Time { sec, nsec }))))
            }
        };
        if self.size.is_some_and(|size| size > i64::MAX as u64) {
            return Err(Errno::EINVAL);
        }
        let [atime, mtime] = self.times;
        Ok(SetAttr {
            perm: self.perm.map(|p| p & hive_fs::abi::mode::PERM),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: time(atime)?,
            mtime: time(mtime)?,
        })
    }
}

/// [`NewKind`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum WireKind<'a> {
    Regular,
    Dir,
    Symlink(&'a [u8]),
    Node(u8, u64),
}

impl<'a> WireKind<'a> {
    /// As it goes on the wire.
    pub fn of(new: &NewKind<'a>) -> WireKind<'a> {
        match *new {
            NewKind::Regular => WireKind::Regular,
            NewKind::Dir => WireKind::Dir,
            NewKind::Symlink(text) => WireKind::Symlink(text),
            NewKind::Node(kind, device) => WireKind::Node(kind as u8, device),
        }
    }

    /// The file to be made.
    pub fn new_file(self, perm: u32, uid: u32, gid: u32) -> Result<NewFile<'a>> {
        let kind = match self {
            WireKind::Regular => NewKind::Regular,
            WireKind::Dir => NewKind::Dir,
            WireKind::Symlink(text) if text.len() < hive_fs::abi::PATH_MAX => {
                NewKind::Symlink(text)
            }
            WireKind::Symlink(_) => return Err(Errno::ENAMETOOLONG),
            WireKind::Node(number, device) => NewKind::Node(kind(number)?, device),
        };
        Ok(NewFile { kind, perm: perm & hive_fs::abi::mode::PERM, uid, gid })
    }
}

/// [`StatFs`] as ten words.
pub fn statfs_words(s: &StatFs) -> [u64; 10] {
    [s.magic, s.bsize, s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.fsid, s.namelen, s.flags]
}

/// Ten words as [`StatFs`].
pub fn statfs(words: [u64; 10]) -> StatFs {
    let [magic, bsize, blocks, bfree, bavail, files, ffree, fsid, namelen, flags] = words;
    StatFs { magic, bsize, blocks, bfree, bavail, files, ffree, fsid, namelen, flags }
}
