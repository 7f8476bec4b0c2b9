//! Names of frames, pages and rights, and what can go wrong with them.

use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};

/// Bytes of a page and of a frame.
pub const PAGE_SIZE: usize = hive_platform::PAGE_SIZE as usize;
/// `PAGE_SIZE == 1 << PAGE_SHIFT`.
pub const PAGE_SHIFT: u32 = PAGE_SIZE.trailing_zeros();

/// A page frame: physical address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(pub u64);

impl Frame {
    /// The frame that holds physical address `address`.
    pub const fn containing(address: u64) -> Frame {
        Frame(address >> PAGE_SHIFT)
    }
    /// Physical address of the first byte.
    pub const fn address(self) -> u64 {
        self.0 << PAGE_SHIFT
    }
}

/// Number of a cell, as cut at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellNumber(pub u16);

/// What the object of a logical page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file (or directory) of a file system.
    File,
    /// A node of a copy-on-write tree, or a shared anonymous object.
    Anon,
    /// A block device. Filled from the frame reserve and without write-back, because file
    /// systems read their metadata through it while they hold their own locks.
    Device,
}

/// The object that a logical page belongs to (Hive §5.1), named alike on every cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// The data home: the cell that owns the data and finds it by name.
    pub home: CellNumber,
    /// What `object` counts.
    pub kind: Kind,
    /// Names the object among those of its kind at its home, never reused while pages remain.
    pub object: u64,
    /// Grows when dirty pages of the object are discarded (Hive §4.2), so that they who opened
    /// it earlier are told of the loss.
    pub generation: u32,
}

/// Logical page id (Hive §5.1): which page of which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogicalId {
    /// The object.
    pub tag: Tag,
    /// Offset within the object, in pages.
    pub page: u64,
}

/// Rights to a mapped page, by the values of PROT_READ, PROT_WRITE and PROT_EXEC.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Prot(pub u8);

impl Prot {
    /// No access.
    pub const NONE: Prot = Prot(0);
    /// Loads.
    pub const READ: Prot = Prot(1);
    /// Stores (RISC-V has no write-only pages: the page table adds READ).
    pub const WRITE: Prot = Prot(2);
    /// Instruction fetches.
    pub const EXEC: Prot = Prot(4);
    /// All of them.
    pub const ALL: Prot = Prot(7);

    /// From the `prot` argument of mmap; `None` if it has other bits.
    pub fn from_linux(bits: u64) -> Option<Prot> {
        u8::try_from(bits).ok().filter(|b| b & !7 == 0).map(Prot)
    }
    /// True if every right of `other` is in `self`.
    pub const fn contains(self, other: Prot) -> bool {
        self.0 & other.0 == other.0
    }
}
impl BitOr for Prot {
    type Output = Prot;
    fn bitor(self, other: Prot) -> Prot {
        Prot(self.0 | other.0)
    }
}
impl BitAnd for Prot {
    type Output = Prot;
    fn bitand(self, other: Prot) -> Prot {
        Prot(self.0 & other.0)
    }
}
impl Sub for Prot {
    type Output = Prot;
    fn sub(self, other: Prot) -> Prot {
        Prot(self.0 & !other.0)
    }
}
/// As in /proc/PID/maps: `rwx`, with `-` for a right that is missing.
impl fmt::Display for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in [(Prot::READ, "r"), (Prot::WRITE, "w"), (Prot::EXEC, "x")] {
            f.write_str(if self.contains(bit) { letter } else { "-" })?;
        }
        Ok(())
    }
}
impl fmt::Debug for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why an operation of this crate did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No frame is free and none can be reclaimed now; or a limit of address space is reached.
    NoMemory,
    /// The backing store failed.
    Io,
    /// The object lost data in a preemptive discard since its opener opened it (Hive §4.2).
    Stale,
    /// The backing store is full.
    NoSpace,
    /// The caller's buffer is not accessible.
    BadAddress,
    /// The caller's arguments make no sense.
    Invalid,
    /// The range is taken (MAP_FIXED_NOREPLACE).
    Exists,
    /// The caller has no right to ask this.
    Denied,
    /// The range is not mapped.
    NotMapped,
    /// The file is no program of this machine.
    NoExec,
    /// Arguments and environment are too long.
    TooBig,
}

impl Error {
    /// The errno that Linux gives for it.
    pub const fn errno(self) -> i32 {
        match self {
            Error::NoMemory | Error::NotMapped => 12,
            Error::Io | Error::Stale => 5,
            Error::NoSpace => 28,
            Error::BadAddress => 14,
            Error::Invalid => 22,
            Error::Exists => 17,
            Error::Denied => 13,
            Error::NoExec => 8,
            Error::TooBig => 7,
        }
    }
}
