//! What lies on the disk (Documentation/filesystems/ext2, "The Second Extended File System"):
//! superblock, group descriptor, inode, directory entry. Everything read here is checked, for a
//! disk may hold anything.

use crate::abi::Time;
use crate::errno::{Errno, Result};

/// Where the superblock lies, bytes from the start of the disk.
pub const SUPER_AT: usize = 1024;
/// Bytes of a superblock.
pub const SUPER_SIZE: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xef53;
/// `s_state`: unmounted cleanly.
pub const STATE_CLEAN: u16 = 1;
/// Inode number of the root directory.
pub const ROOT_INO: u32 = 2;
/// Bytes of a group descriptor.
pub const GROUP_SIZE: usize = 32;
/// Block pointers in an inode: 12 direct, then one each of single, double, triple indirect.
pub const POINTERS: usize = 15;
/// Direct ones among them.
pub const DIRECT: usize = 12;
/// Most hard links of a file (`EXT2_LINK_MAX`).
pub const LINK_MAX: u16 = 32000;
/// `i_flags`: the directory has a hash index, which plain changes make invalid.
pub const FLAG_INDEX: u32 = 0x1000;
/// `i_flags`: the inode maps its blocks by extents (ext4), which we do not read.
pub const FLAG_EXTENTS: u32 = 0x80000;

/// `s_feature_incompat`: directory entries carry the file type. All others are refused.
const INCOMPAT_FILETYPE: u32 = 2;
/// `s_feature_ro_compat` we keep to: sparse_super, large_file.
const RO_COMPAT: u32 = 1 | 2;

fn u16_at(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).and_then(|s| s.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).and_then(|s| s.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn set(b: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = b.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// The superblock: the layout, which never changes, and the counts, which do.
#[derive(Clone, Debug)]
pub struct Super {
    /// Inodes in all.
    pub inodes: u32,
    /// Blocks in all.
    pub blocks: u32,
    /// Free blocks.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Block that holds byte 1024.
    pub first_block: u32,
    /// Bytes of a block: 1024, 2048 or 4096.
    pub block_size: usize,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode on the disk.
    pub inode_size: usize,
    /// First inode that is not reserved.
    pub first_inode: u32,
    /// `s_state`.
    pub state: u16,
    /// Directory entries carry the file type.
    pub filetype: bool,
}

impl Super {
    /// Reads a superblock. `EINVAL` if it is not ext2 or has features we do not know, `EUCLEAN`
    /// if it makes no sense.
    pub fn decode(b: &[u8]) -> Result<Super> {
        if u16_at(b, 56) != MAGIC {
            return Err(Errno::EINVAL);
        }
        let dynamic = u32_at(b, 76) >= 1;
        let incompat = if dynamic { u32_at(b, 96) } else { 0 };
        let ro_compat = if dynamic { u32_at(b, 100) } else { 0 };
        let log_size = u32_at(b, 24);
        if incompat & !INCOMPAT_FILETYPE != 0 || ro_compat & !RO_COMPAT != 0 || log_size > 2 {
            return Err(Errno::EINVAL);
        }
        let s = Super {
            inodes: u32_at(b, 0),
            blocks: u32_at(b, 4),
            free_blocks: u32_at(b, 12),
            free_inodes: u32_at(b, 16),
            first_block: u32_at(b, 20),
            block_size: 1024 << log_size,
            blocks_per_group: u32_at(b, 32),
            inodes_per_group: u32_at(b, 40),
            inode_size: if dynamic { u16_at(b, 88) as usize } else { 128 },
            first_inode: if dynamic { u32_at(b, 84) } else { 11 },
            state: u16_at(b, 58),
            filetype: incompat & INCOMPAT_FILETYPE != 0,
        };
        let bits = s.block_size as u32 * 8;
        let sane = s.blocks > s.first_block
            && s.first_block == (s.block_size == 1024) as u32
            && (1..=bits).contains(&s.blocks_per_group)
            && (1..=bits).contains(&s.inodes_per_group)
            && s.inode_size.is_power_of_two()
            && (128..=s.block_size).contains(&s.inode_size)
            && s.first_inode > ROOT_INO
            && s.inodes > ROOT_INO
            && s.inodes.div_ceil(s.inodes_per_group) == s.groups();
        if sane { Ok(s) } else { Err(Errno::EUCLEAN) }
    }

    /// Groups in all.
    pub fn groups(&self) -> u32 {
        (self.blocks - self.first_block).div_ceil(self.blocks_per_group)
    }

    /// Blocks of one group's inode table.
    pub fn table_blocks(&self) -> u32 {
        let bytes = self.inodes_per_group as usize * self.inode_size;
        bytes.div_ceil(self.block_size) as u32
    }

    /// Writes what changes into a superblock; `now` is the time of writing.
    pub fn encode(&self, b: &mut [u8], now: Time) {
        set(b, 12, &self.free_blocks.to_le_bytes());
        set(b, 16, &self.free_inodes.to_le_bytes());
        set(b, 48, &(now.sec as u32).to_le_bytes());
        set(b, 58, &self.state.to_le_bytes());
    }
}

/// A group descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Block of the block bitmap.
    pub block_bitmap: u32,
    /// Block of the inode bitmap.
    pub inode_bitmap: u32,
    /// First block of the inode table.
    pub inode_table: u32,
    /// Free blocks.
    pub free_blocks: u16,
    /// Free inodes.
    pub free_inodes: u16,
    /// Directories.
    pub dirs: u16,
}

impl Group {
    /// Reads a descriptor of a file system laid out as `s`; `EUCLEAN` if it points outside.
    pub fn decode(b: &[u8], s: &Super) -> Result<Group> {
        let g = Group {
            block_bitmap: u32_at(b, 0),
            inode_bitmap: u32_at(b, 4),
            inode_table: u32_at(b, 8),
            free_blocks: u16_at(b, 12),
            free_inodes: u16_at(b, 14),
            dirs: u16_at(b, 16),
        };
        let inside = |first: u32, count: u32| {
            first > s.first_block && first.checked_add(count).is_some_and(|end| end <= s.blocks)
        };
        let sane = inside(g.block_bitmap, 1)
            && inside(g.inode_bitmap, 1)
            && inside(g.inode_table, s.table_blocks());
        if sane { Ok(g) } else { Err(Errno::EUCLEAN) }
    }

    /// Writes the counts into a descriptor.
    pub fn encode(&self, b: &mut [u8]) {
        set(b, 12, &self.free_blocks.to_le_bytes());
        set(b, 14, &self.free_inodes.to_le_bytes());
        set(b, 16, &self.dirs.to_le_bytes());
    }
}

/// An inode, except its size, which the page cache reads by itself.
#[derive(Clone, Debug, Default)]
pub struct RawInode {
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub links: u16,
    /// Storage, 512-byte units.
    pub blocks: u64,
    /// `i_flags`.
    pub flags: u32,
    /// Block pointers, or the text of a short symbolic link, or a device number.
    pub block: [u32; POINTERS],
    /// Changes when the number is used again.
    pub generation: u32,
    /// Block of extended attributes, kept as it is.
    pub file_acl: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Deletion, seconds.
    pub dtime: u32,
}

/// Bytes behind the first 128 that hold the finer times of an inode of 256 bytes.
const EXTRA_SIZE: u16 = 32;

impl RawInode {
    /// Reads an inode and its size from its bytes.
    pub fn decode(b: &[u8]) -> (RawInode, u64) {
        let extra = if b.len() > 128 { u16_at(b, 128) } else { 0 };
        // Each finer time: 30 bits of nanoseconds, 2 bits that go above the 32 of the seconds.
        let time = |at: usize, fine: usize| {
            let fine = if 128 + extra as usize >= fine + 4 { u32_at(b, fine) } else { 0 };
            let sec = u32_at(b, at) as i32 as i64 + ((fine as i64 & 3) << 32);
            Time { sec, nsec: (fine >> 2).min(999_999_999) }
        };
        let mut block = [0; POINTERS];
        for (i, p) in block.iter_mut().enumerate() {
            *p = u32_at(b, 40 + 4 * i);
        }
        let mode = u16_at(b, 0);
        let high = if mode >> 12 == 8 { u32_at(b, 108) } else { 0 };
        let raw = RawInode {
            mode,
            uid: u16_at(b, 2) as u32 | (u16_at(b, 120) as u32) << 16,
            gid: u16_at(b, 24) as u32 | (u16_at(b, 122) as u32) << 16,
            links: u16_at(b, 26),
            blocks: u32_at(b, 28) as u64 | (u16_at(b, 116) as u64) << 32,
            flags: u32_at(b, 32),
            block,
            generation: u32_at(b, 100),
            file_acl: u32_at(b, 104),
            atime: time(8, 140),
            mtime: time(16, 136),
            ctime: time(12, 132),
            dtime: u32_at(b, 20),
        };
        (raw, u32_at(b, 4) as u64 | (high as u64) << 32)
    }

    /// Writes the inode over its bytes; what it does not know stays. `fresh` inodes start from
    /// nothing.
    pub fn encode(&self, size: u64, b: &mut [u8], fresh: bool) {
        if fresh {
            b.fill(0);
            if b.len() >= 128 + EXTRA_SIZE as usize {
                set(b, 128, &EXTRA_SIZE.to_le_bytes());
                set(b, 144, &(self.ctime.sec as u32).to_le_bytes());
            }
        }
        set(b, 0, &self.mode.to_le_bytes());
        set(b, 2, &(self.uid as u16).to_le_bytes());
        set(b, 120, &((self.uid >> 16) as u16).to_le_bytes());
        set(b, 24, &(self.gid as u16).to_le_bytes());
        set(b, 122, &((self.gid >> 16) as u16).to_le_bytes());
        set(b, 4, &(size as u32).to_le_bytes());
        if self.mode >> 12 == 8 {
            set(b, 108, &((size >> 32) as u32).to_le_bytes());
        }
        set(b, 20, &self.dtime.to_le_bytes());
        set(b, 26, &self.links.to_le_bytes());
        set(b, 28, &(self.blocks as u32).to_le_bytes());
        set(b, 116, &((self.blocks >> 32) as u16).to_le_bytes());
        set(b, 32, &self.flags.to_le_bytes());
        for (i, p) in self.block.iter().enumerate() {
            set(b, 40 + 4 * i, &p.to_le_bytes());
        }
        set(b, 100, &self.generation.to_le_bytes());
        set(b, 104, &self.file_acl.to_le_bytes());
        let extra = if b.len() > 128 { u16_at(b, 128) } else { 0 };
        for (t, at, fine) in [(self.atime, 8, 140), (self.mtime, 16, 136), (self.ctime, 12, 132)] {
            set(b, at, &(t.sec as u32).to_le_bytes());
            if 128 + extra as usize >= fine + 4 {
                let above = (t.sec - t.sec as i32 as i64) >> 32;
                set(b, fine, &(t.nsec << 2 | above as u32 & 3).to_le_bytes());
            }
        }
    }
}

/// Bytes of a directory entry before its name.
pub const ENTRY_HEAD: usize = 8;

/// Bytes an entry with a name of `len` bytes takes at least.
pub const fn entry_len(len: usize) -> usize {
    (ENTRY_HEAD + len).next_multiple_of(4)
}

/// A directory entry as it lies in a block.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Inode; 0 if the entry is unused.
    pub ino: u32,
    /// Bytes to the next entry.
    pub len: usize,
    /// File type code of ext2 (0 unknown).
    pub ftype: u8,
    /// The name.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// The entry at `at` of a directory block; `EUCLEAN` if it does not fit into it.
    pub fn decode(block: &[u8], at: usize) -> Result<Entry<'_>> {
        let b = block.get(at..).unwrap_or(&[]);
        let len = u16_at(b, 4) as usize;
        let name_len = b.get(6).copied().unwrap_or(0) as usize;
        let sane = len >= ENTRY_HEAD && len % 4 == 0 && len <= b.len() && name_len + 8 <= len;
        let name = b.get(ENTRY_HEAD..ENTRY_HEAD + name_len).filter(|_| sane);
        let name = name.ok_or(Errno::EUCLEAN)?;
        Ok(Entry { ino: u32_at(b, 0), len, ftype: b.get(7).copied().unwrap_or(0), name })
    }

    /// The bytes of an entry, without what follows its name.
    pub fn encode(ino: u32, len: usize, ftype: u8, name: &[u8]) -> alloc::vec::Vec<u8> {
        let mut b = alloc::vec::Vec::with_capacity(entry_len(name.len()));
        b.extend_from_slice(&ino.to_le_bytes());
        b.extend_from_slice(&(len as u16).to_le_bytes());
        b.push(name.len() as u8);
        b.push(ftype);
        b.extend_from_slice(name);
        b.resize(entry_len(name.len()), 0);
        b
    }
}
