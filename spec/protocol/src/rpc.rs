//! Intercell RPC on the wire (Hive §6): operation numbers, status values, data by reference.
//! How calls are matched, queued and timed out is `hive-cells`' `rpc`.

use crate::{Invalid, message::PAYLOAD};

/// Flags of an RPC message.
pub mod flags {
    /// Request: the client does not spin, so the server may queue at once instead of trying at
    /// interrupt level first.
    pub const QUEUE: u8 = 1 << 0;
    /// Request, reply or completion: the payload's *last two* words are a [`super::Reference`].
    pub const BY_REFERENCE: u8 = 1 << 1;
    /// Request: the client wants no reply and keeps no state (notifications). The server must
    /// serve it at interrupt level.
    pub const ONE_WAY: u8 = 1 << 2;
}

/// What a request asks for. The high byte names the subsystem that defines the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Op {
    /// Nothing; the payload comes back. Interrupt level.
    Ping = 0x0001,
    /// Nothing, but queued: measures the queued path.
    PingQueued = 0x0002,

    /// Create a process on the receiver and execute a file there.
    Spawn = 0x0100,
    /// A process ended whose parent lives on the receiver.
    ExitNotify = 0x0101,
    /// Deliver a signal to a process or process group.
    Signal = 0x0102,
    /// A child changed state (stopped, continued).
    ChildNotify = 0x0103,
    /// The parent of a process of the receiver is gone: the receiver's reaper inherits it.
    Orphan = 0x0104,
    /// Read or set process group, session or foreground group.
    ProcessGroup = 0x0105,
    /// Ids of the receiver's processes, from a cursor on.
    ProcList = 0x0106,
    /// One /proc file of one process.
    ProcRead = 0x0107,
    /// Processor-time and state summary of one process (`wait4`, `times`, `ps`).
    ProcStat = 0x0108,

    /// Open (and maybe create) a file whose home is the receiver.
    FileOpen = 0x0200,
    /// Close it.
    FileClose = 0x0201,
    /// Read.
    FileRead = 0x0202,
    /// Write.
    FileWrite = 0x0203,
    /// Attributes by handle or path.
    FileStat = 0x0204,
    /// Directory entries from a cursor on.
    FileReadDir = 0x0205,
    /// Readiness of a handle; registers for [`Op::PollNotify`] if it is not ready.
    FilePoll = 0x0206,
    /// A polled handle of the sender became ready.
    PollNotify = 0x0207,
    /// Set length.
    FileTruncate = 0x0208,
    /// Remove a name.
    FileUnlink = 0x0209,
    /// Make a directory.
    FileMkdir = 0x020a,
    /// Rename within one home.
    FileRename = 0x020b,
    /// Make a hard link.
    FileLink = 0x020c,
    /// Make a symbolic link.
    FileSymlink = 0x020d,
    /// Read a symbolic link.
    FileReadlink = 0x020e,
    /// Set mode, owner or times.
    FileSetAttr = 0x020f,
    /// Device control.
    FileIoctl = 0x0210,
    /// Write dirty data of one file or of the whole receiver to its disk.
    Sync = 0x0211,
    /// File system totals.
    FileStatFs = 0x0212,
    /// Duplicate a handle for another cell (a descriptor passed by fork or exec).
    FileDup = 0x0213,

    /// Bind a logical page (Hive §5.2).
    Export = 0x0300,
    /// Give it back.
    Release = 0x0301,
    /// Lend page frames (Hive §5.4).
    LoanFrame = 0x0302,
    /// Give them back.
    ReturnFrame = 0x0303,
    /// Ask the memory home to change the firewall of a borrowed frame.
    Firewall = 0x0304,
}

impl Op {
    /// Every operation, in ascending order.
    pub const ALL: &[Op] = &[
        Op::Ping,
        Op::PingQueued,
        Op::Spawn,
        Op::ExitNotify,
        Op::Signal,
        Op::ChildNotify,
        Op::Orphan,
        Op::ProcessGroup,
        Op::ProcList,
        Op::ProcRead,
        Op::ProcStat,
        Op::FileOpen,
        Op::FileClose,
        Op::FileRead,
        Op::FileWrite,
        Op::FileStat,
        Op::FileReadDir,
        Op::FilePoll,
        Op::PollNotify,
        Op::FileTruncate,
        Op::FileUnlink,
        Op::FileMkdir,
        Op::FileRename,
        Op::FileLink,
        Op::FileSymlink,
        Op::FileReadlink,
        Op::FileSetAttr,
        Op::FileIoctl,
        Op::Sync,
        Op::FileStatFs,
        Op::FileDup,
        Op::Export,
        Op::Release,
        Op::LoanFrame,
        Op::ReturnFrame,
        Op::Firewall,
    ];

    /// The operation with this number, if there is one.
    pub fn from_number(number: u16) -> Option<Op> {
        Op::ALL
            .binary_search_by_key(&number, |op| *op as u16)
            .ok()
            .and_then(|i| Op::ALL.get(i))
            .copied()
    }
}

/// How a request ended. On the wire 0 is success, 1..4096 a Linux error number, and the rest
/// belongs to the RPC layer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done; the payload is the result.
    Ok,
    /// Refused with this Linux error number (1..4096): the caller's affair.
    Errno(u16),
    /// Reply only: accepted, a [`crate::Kind::Completion`] will follow.
    Queued,
    /// The server's queue is full: try again later.
    Busy,
    /// The server does not know the operation.
    NoSuchOp,
    /// The server found the request malformed. It also counts as a failed check there.
    Malformed,
    /// The request was meant for a former life of the server.
    Stale,
}

impl Status {
    const FIRST_OWN: u16 = 0xff00;

    /// As it goes on the wire.
    ///
    /// # Panics
    /// If an error number is 0 or above 4095: a bug of the caller.
    pub const fn number(self) -> u16 {
        match self {
            Status::Ok => 0,
            Status::Errno(e) => {
                assert!(e > 0 && e < 4096);
                e
            }
            Status::Queued => Self::FIRST_OWN,
            Status::Busy => Self::FIRST_OWN + 1,
            Status::NoSuchOp => Self::FIRST_OWN + 2,
            Status::Malformed => Self::FIRST_OWN + 3,
            Status::Stale => Self::FIRST_OWN + 4,
        }
    }

    /// From the wire; anything else is a failed check of the peer.
    pub const fn from_number(number: u16) -> Option<Status> {
        Some(match number {
            0 => Status::Ok,
            1..4096 => Status::Errno(number),
            0xff00 => Status::Queued,
            0xff01 => Status::Busy,
            0xff02 => Status::NoSuchOp,
            0xff03 => Status::Malformed,
            0xff04 => Status::Stale,
            _ => return None,
        })
    }
}

/// Data too long for a line: where it stands in the *sender's* own memory. The receiver reads it
/// by careful reference; nobody ever writes another cell's memory. The sender keeps it unchanged
/// until the call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Physical address, 8-byte aligned.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// Most bytes that may be passed by one [`Reference`]: bounds what a careful copy can cost.
pub const MAX_REFERENCE: u64 = 64 << 10;
/// Bytes that travel in the line itself; longer data goes by [`Reference`].
pub const MAX_INLINE: usize = PAYLOAD;

impl Reference {
    /// On the wire: the last two words of the payload.
    pub const fn words(self) -> [u64; 2] {
        [self.address, self.length]
    }

    /// Takes the reference off the end of a payload.
    ///
    /// # Errors
    /// [`Invalid::Length`] if there is no room for one, [`Invalid::Payload`] if it is unaligned,
    /// too long or wraps. Whether it lies in the sender's DRAM is for `careful` to check.
    pub fn split(payload: &[u64]) -> Result<(&[u64], Reference), Invalid> {
        let Some((rest, &[address, length])) = payload.split_last_chunk::<2>() else {
            return Err(Invalid::Length);
        };
        let sound =
            address % 8 == 0 && length <= MAX_REFERENCE && address.checked_add(length).is_some();
        if sound { Ok((rest, Reference { address, length })) } else { Err(Invalid::Payload) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_listed_in_order_and_found() {
        assert!(Op::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for op in Op::ALL {
            assert_eq!(Op::from_number(*op as u16), Some(*op));
        }
        assert_eq!((Op::from_number(0), Op::from_number(0xffff)), (None, None));
    }

    #[test]
    fn statuses_round_trip() {
        for n in 0..=u16::MAX {
            if let Some(status) = Status::from_number(n) {
                assert_eq!(status.number(), n);
            }
        }
        assert_eq!(Status::from_number(4096), None);
        assert_eq!(Status::from_number(0xff05), None);
    }

    #[test]
    fn references_are_checked() {
        let good = [1, 2, 0x8000_0000, 100];
        let (rest, reference) = Reference::split(&good).unwrap();
        assert_eq!((rest, reference.words()), (&good[..2], [0x8000_0000, 100]));
        assert_eq!(Reference::split(&[1]), Err(Invalid::Length));
        for bad in [[1, 8], [8, MAX_REFERENCE + 1], [u64::MAX - 7, 64]] {
            assert_eq!(Reference::split(&bad), Err(Invalid::Payload));
        }
    }
}
