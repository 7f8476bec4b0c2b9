//! [`Region`]: a run of pages that are mapped alike.

use crate::cow::SharedAnon;
use crate::pager::Pager;
use crate::types::{Error, Frame, LogicalId, PAGE_SIZE, Prot};
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

/// A file as a mapping holds it.
pub struct MappedFile {
    /// Its pages.
    pub pager: Arc<dyn Pager>,
    /// The generation of its tag when it was opened (Hive §4.2): pages of a later one are not
    /// given out.
    pub generation: u32,
    /// It was opened for writing: shared mappings may be made writable.
    pub writable: bool,
    /// Its path, for /proc/PID/maps.
    pub path: String,
    /// Major and minor device number, for /proc/PID/maps.
    pub device: (u32, u32),
    /// Inode number, for /proc/PID/maps.
    pub inode: u64,
}

impl MappedFile {
    /// The name of page `index`; an error if the file has lost data since it was opened.
    pub(super) fn page(&self, index: u64) -> Result<LogicalId, Error> {
        let tag = self.pager.tag();
        if tag.generation != self.generation {
            return Err(Error::Stale);
        }
        Ok(LogicalId { tag, page: index })
    }
}

/// What the pages of a region hold.
#[derive(Clone)]
pub enum Backing {
    /// Zeroes at first, then the process's own (MAP_PRIVATE | MAP_ANONYMOUS, heap, stack).
    Anon,
    /// Pages of a file from page `page` on; stores go to the process's own copy (MAP_PRIVATE) or
    /// to the file (MAP_SHARED).
    File {
        /// The file.
        file: Arc<MappedFile>,
        /// Page of the file at the start of the region.
        page: u64,
        /// MAP_SHARED.
        shared: bool,
    },
    /// Zeroes at first, then what any process writes that inherited the region
    /// (MAP_SHARED | MAP_ANONYMOUS).
    SharedAnon {
        /// The object.
        object: Arc<SharedAnon>,
        /// Page of the object at the start of the region.
        page: u64,
    },
    /// Frames that are not managed here: a signal trampoline or a vDSO.
    Fixed {
        /// The frame at the start of the region; the others follow it.
        first: Frame,
    },
}

impl Backing {
    /// The backing of the part that begins `pages` pages in.
    fn skip(&self, pages: u64) -> Backing {
        let mut rest = self.clone();
        match &mut rest {
            Backing::Anon => {}
            Backing::File { page, .. } | Backing::SharedAnon { page, .. } => *page += pages,
            Backing::Fixed { first } => first.0 += pages,
        }
        rest
    }

    /// True if `next` goes on where `self` ends after `pages` pages.
    fn continues(&self, pages: u64, next: &Backing) -> bool {
        match (self, next) {
            (Backing::Anon, Backing::Anon) => true,
            (
                Backing::File { file: a, page: p, shared: s },
                Backing::File { file: b, page: q, shared: t },
            ) => {
                Arc::ptr_eq(&a.pager, &b.pager)
                    && a.generation == b.generation
                    && a.writable == b.writable
                    && p + pages == *q
                    && s == t
            }
            (
                Backing::SharedAnon { object: a, page: p },
                Backing::SharedAnon { object: b, page: q },
            ) => Arc::ptr_eq(a, b) && p + pages == *q,
            _ => false,
        }
    }
}

/// What a region is, for /proc/PID/maps and for growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// Nothing special.
    #[default]
    Plain,
    /// Grown and shrunk by brk.
    Heap,
    /// Grows down on faults below it, up to the stack limit.
    Stack,
    /// The kernel's gift to the process.
    Vdso,
}

/// A run of pages that are mapped alike. Addresses are multiples of the page size.
#[derive(Clone)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// What the process may do.
    pub prot: Prot,
    /// What is there.
    pub backing: Backing,
    /// What for.
    pub role: Role,
}

impl Region {
    /// True if the process's stores are its own.
    pub fn is_private(&self) -> bool {
        matches!(self.backing, Backing::Anon | Backing::File { shared: false, .. })
    }

    /// Rights as page tables have them: RISC-V has no write-only pages.
    pub(super) fn rights(&self) -> Prot {
        if self.prot.contains(Prot::WRITE) { self.prot | Prot::READ } else { self.prot }
    }

    /// True if stores go to a file.
    pub(super) fn is_shared_file(&self) -> bool {
        matches!(self.backing, Backing::File { shared: true, .. })
    }

    /// Pages from the start of the region to `va`.
    pub(super) fn pages_to(&self, va: u64) -> u64 {
        (va - self.start) / PAGE_SIZE as u64
    }

    /// The backing of what is, or would be, at `at`.
    pub(super) fn backing_at(&self, at: u64) -> Backing {
        self.backing.skip(self.pages_to(at))
    }

    /// Cuts at `at`, inside the region: `self` keeps what is below.
    pub(super) fn split(&mut self, at: u64) -> Region {
        debug_assert!(self.start < at && at < self.end);
        let backing = self.backing_at(at);
        let upper = Region { start: at, backing, ..self.clone() };
        self.end = at;
        upper
    }

    /// True if `next` may become part of this region.
    pub(super) fn joins(&self, next: &Region) -> bool {
        self.end == next.start
            && self.prot == next.prot
            && self.role == next.role
            && self.backing.continues(self.pages_to(self.end), &next.backing)
    }

    /// Virtual page numbers of `[from, to)`: the numbers of its pages in the copy-on-write tree.
    pub(super) fn numbers(from: u64, to: u64) -> Range<u64> {
        from / PAGE_SIZE as u64..to / PAGE_SIZE as u64
    }
}

/// The line of /proc/PID/maps, without its newline.
impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, device, inode, name) = match &self.backing {
            Backing::File { file, page, .. } => {
                (page * PAGE_SIZE as u64, file.device, file.inode, file.path.as_str())
            }
            Backing::SharedAnon { page, .. } => {
                (page * PAGE_SIZE as u64, (0, 1), 0, "/dev/zero (deleted)")
            }
            Backing::Anon | Backing::Fixed { .. } => (0, (0, 0), 0, ""),
        };
        let name = match self.role {
            Role::Plain => name,
            Role::Heap => "[heap]",
            Role::Stack => "[stack]",
            Role::Vdso => "[vdso]",
        };
        let sharing = if self.is_private() || name == "[vdso]" { 'p' } else { 's' };
        let (start, end, prot) = (self.start, self.end, self.prot);
        let (major, minor) = device;
        write!(
            f,
            "{start:08x}-{end:08x} {prot}{sharing} {offset:08x} {major:02x}:{minor:02x} {inode}"
        )?;
        if name.is_empty() {
            // Linux ends the line with a blank all the same.
            return f.write_str(" ");
        }
        // The name starts in column 74.
        let digits = inode.checked_ilog10().unwrap_or(0) as usize + 1;
        let hex = |n: u64| (n.checked_ilog(16).unwrap_or(0) as usize + 1).max(8);
        let device = |n: u32| (n.checked_ilog(16).unwrap_or(0) as usize + 1).max(2);
        let used =
            hex(start) + hex(end) + hex(offset) + device(major) + device(minor) + digits + 10;
        write!(f, "{:pad$}{name}", "", pad = 73usize.saturating_sub(used).max(1))
    }
}
